"""What a study does not have, and why."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from headbook.metrics import all_metrics
from headbook.metrics.base import Need


class Lack(StrEnum):
    """What pages ask for by name; studies store these words."""

    TAGS = "tags"
    TREE = "tree"
    VALUES = "values"
    OUTPUTS = "outputs"
    PASSAGES = "passages"
    QUERIES = "queries"
    WEIGHTS = "weights"
    """Weights that do not follow from queries and keys."""
    GROUPS = "groups"


@dataclass(frozen=True)
class Gap:
    """Something that this study does not have, and why.

    Attributes:
        what: in words.
        stack: where; empty for all of the model.
        key: a `Lack` or the id of a metric; empty where no page asks for it.
    """

    what: str
    stack: str
    why: str
    key: str = ""

    @classmethod
    def of(cls, row: Mapping[str, str]) -> "Gap":
        """A gap as a study stores it; older ones stored no keys."""
        return cls(**({"key": _key(row["what"])} | dict(row)))


def _key(what: str) -> str:
    """The key of what older studies call so."""
    joined = [name for name in what.split(" and ") if name in _keys()]
    if what in _keys():
        return _keys()[what]
    if what.startswith("groups by "):
        return Lack.GROUPS
    return Lack.PASSAGES if joined else ""


@cache
def _keys() -> dict[str, str]:
    return {metric.title: metric.id for metric in all_metrics().values()} | {
        Need.TAGS: Lack.TAGS,
        Need.TREE: Lack.TREE,
        Need.VALUES: Lack.VALUES,
        Need.OUTPUTS: Lack.OUTPUTS,
        "queries, keys and values": Lack.QUERIES,
        "how weights come about": Lack.WEIGHTS,
    }
