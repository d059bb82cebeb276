"""The shares of attention that decide the type of a head, from whatever a study has."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from headbook.metrics import ids
from headbook.metrics.patterns.type_shares import KEYS, OFFSETS, ONE_OFFSET, PARTS
from headbook.report.numbers.results import NO_ESTIMATE, Estimate, StackResults
from headbook.terms import View

METRIC = ids.TYPE_SHARES
SOME_SINK = 0.25  # of all attention, from which on a type names the sink
Place = tuple[int, int]  # layer and head
Key = TypeVar("Key", int, str)


@dataclass(frozen=True)
class Shares:
    """The numbers that decide; NaN where one is missing.

    Attributes:
        sink: of all attention, the share on the sink.
        parts: of the rest, shares that sum to 1, by `PARTS`; for attention across two texts
            ``punctuation`` and ``words``.
        offsets: of the rest, by offsets from 2 away.
        same_token: of the rest of the queries that see one.
        entropy: of the rest, normalised.
        column: what the fit of one weight per key leaves of the rest.
        keys: in how many sentences the key of largest weight is of each class.
        odds: of the query's own sentence.
        left_out: share of rows with more than 90 % on the sink.
    """

    sink: float
    parts: Mapping[str, float] = field(default_factory=dict)
    offsets: Mapping[int, float] = field(default_factory=dict)
    same_token: float = math.nan
    entropy: float = math.nan
    column: float = math.nan
    keys: Mapping[str, float] = field(default_factory=dict)
    odds: float = math.nan
    left_out: float = math.nan

    @property
    def window(self) -> float:
        """Of the rest, within three tokens either way."""
        near = (*ONE_OFFSET, "near")
        return sum(self.parts.get(name, math.nan) for name in near)

    @property
    def largest(self) -> list[str]:
        """Parts of the rest, the largest first."""
        return sorted(self.parts, key=lambda name: -self.parts[name])


Ask = Callable[[str, View, str], float]


def shares_of(results: StackResults, place: Place) -> Shares:
    """The numbers of one head that decide its type."""

    def ask(metric: str, view: View, label: str) -> float:
        return share(results, metric, view, label, place).value

    return shares_by(ask, crosses=results.stack.crosses)


def shares_by(ask: Ask, *, crosses: bool) -> Shares:
    """The same from numbers by metric, view and label; NaN where one is missing."""
    marks = ask(METRIC, View.RENORM, "punctuation")
    parts = {name: ask(METRIC, View.RENORM, name) for name in PARTS}
    if crosses:
        parts = {"punctuation": marks, "words": 1 - marks}
    even = ask(METRIC, View.RENORM, "own_sentence_even")
    return Shares(
        sink=ask(ids.SINK_SHARE, View.RAW, ""),
        parts=_known(parts),
        offsets=_known({int(k): ask(METRIC, View.RENORM, k) for k in OFFSETS}),
        same_token=ask(METRIC, View.RENORM, "same_token"),
        entropy=ask(ids.RELATIVE_ENTROPY, View.RENORM, ""),
        column=ask(METRIC, View.RENORM, "column"),
        keys=_known({kind: ask(METRIC, View.RENORM, f"key_{kind}") for kind in KEYS}),
        odds=_odds(ask(METRIC, View.RENORM, "own_sentence"), even),
        left_out=ask(METRIC, View.RENORM, "left_out"),
    )


def _known(shares: Mapping[Key, float]) -> dict[Key, float]:
    return {name: value for name, value in shares.items() if not math.isnan(value)}


def _odds(own: float, even: float) -> float:
    """Of the own sentence against equal weights; NaN in texts of one sentence."""
    if math.isnan(own) or not 0 < even < 1:
        return math.nan
    return math.inf if own >= 1 else own / (1 - own) * (1 - even) / even


def share(results: StackResults, metric: str, view: View, label: str, place: Place) -> Estimate:
    """A number of one head; NaN where there is none."""
    if not results.has(metric, view, label):
        return NO_ESTIMATE
    return results.heads(metric, view, label).at(*place)
