"""What a study does not have, and why."""

from dataclasses import dataclass
from enum import StrEnum


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
