"""Shares of attention that decide the type of a head, each with its share by chance."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from headbook.metrics import ids
from headbook.metrics.patterns.type_shares import EVEN, KEYS, OFFSETS, ONE_OFFSET, PARTS
from headbook.report.numbers.results import NO_ESTIMATE, Estimate, StackResults
from headbook.terms import View

METRIC = ids.TYPE_SHARES
ROOM = 0.05  # least 1 - u: closer to 1, uniform attention leaves a share no room to differ
ROUNDING = 1e-9  # by which sums that should reach a threshold may miss it
Place = tuple[int, int]  # layer and head
Key = TypeVar("Key", int, str)


class Share(NamedTuple):
    """A share of attention beside the share that uniform attention gives.

    Attributes:
        value: the share of attention, 0 to 1; NaN if it was not measured.
        even: the share that uniform attention over the same keys gives, for the same queries.
    """

    value: float = math.nan
    even: float = math.nan

    @property
    def corrected(self) -> float:
        """Share corrected for chance: 0 for uniform attention, 1 for all of it.

        NaN if either number is missing, or if uniform attention gives more than 95 %.
        """
        if not 1 - self.even >= ROOM - ROUNDING:
            return math.nan
        return (self.value - self.even) / (1 - self.even)


NO_SHARE = Share()


@dataclass(frozen=True)
class Shares:
    """Numbers that decide the type of one head; NaN if a number is missing.

    Attributes:
        sink: share of all attention on the sink.
        parts: shares of the attention outside the sink that sum to 1, by `PARTS`; in
            cross-attention ``punctuation`` and ``words``.
        offsets: shares outside the sink at one offset, by offsets of 2 and more either way.
        same_token: share outside the sink on other occurrences of the query's token, over queries
            that see one.
        own_sentence: share outside the sink on the query's own sentence, in texts of several.
        entropy: normalised entropy outside the sink.
        column: what one weight per key leaves unexplained outside the sink.
        keys: share of sentences in which the key of largest weight is of a class, by class.
        left_out: share of queries with more than 90 % of their attention on the sink.
    """

    sink: Share
    parts: Mapping[str, Share] = field(default_factory=dict)
    offsets: Mapping[int, Share] = field(default_factory=dict)
    same_token: Share = NO_SHARE
    own_sentence: Share = NO_SHARE
    entropy: float = math.nan
    column: float = math.nan
    keys: Mapping[str, float] = field(default_factory=dict)
    left_out: float = math.nan

    @property
    def window(self) -> Share:
        """Share outside the sink within three tokens either way."""
        near = [self.parts.get(name, NO_SHARE) for name in (*ONE_OFFSET, "near")]
        return Share(sum(each.value for each in near), sum(each.even for each in near))

    @property
    def odds(self) -> float:
        """Odds of the query's own sentence over its odds under uniform attention."""
        own, even = self.own_sentence
        if math.isnan(own) or not 0 < even < 1:
            return math.nan
        return math.inf if own >= 1 else own / (1 - own) * (1 - even) / even

    @property
    def largest(self) -> list[str]:
        """Names of the parts above uniform attention, the largest corrected share first."""
        above = {name: each.corrected for name, each in self.parts.items() if each.corrected > 0}
        return sorted(above, key=lambda name: -above[name])

    @property
    def best_offset(self) -> int:
        """Offset of the largest corrected share among offsets of 2 and more; 0 without one."""
        known = {k: each.corrected for k, each in self.offsets.items()}
        known = {k: value for k, value in known.items() if not math.isnan(value)}
        return max(known, key=lambda k: known[k], default=0)


Ask = Callable[[str, View, str], float]


def shares_of(results: StackResults, place: Place) -> Shares:
    """Return the numbers of one head that decide its type."""

    def ask(metric: str, view: View, label: str) -> float:
        return share(results, metric, view, label, place).value

    return shares_by(ask, sink_share(results, place), crosses=results.stack.crosses)


def sink_share(results: StackResults, place: Place) -> Share:
    """Return the share of a head's attention on the sink."""
    value = share(results, ids.SINK_SHARE, View.RAW, "", place).value
    if math.isnan(value):
        return NO_SHARE
    return Share(value, float(results.uniform(ids.SINK_SHARE, View.RAW).value[place[0]]))


def shares_by(ask: Ask, sink: Share, *, crosses: bool) -> Shares:
    """Return the numbers that decide a type, looked up by metric, view and label.

    Args:
        ask: returns a number of the head; NaN if it is missing.
        sink: share of all attention on the sink.
        crosses: whether queries and keys are of two texts.
    """

    def of(label: str) -> Share:
        return Share(ask(METRIC, View.RENORM, label), ask(METRIC, View.RENORM, EVEN[label]))

    marks = of("punctuation")
    parts = {name: of(name) for name in PARTS}
    if crosses:
        parts = {"punctuation": marks, "words": Share(1 - marks.value, 1 - marks.even)}
    keys = {kind: ask(METRIC, View.RENORM, f"key_{kind}") for kind in KEYS}
    return Shares(
        sink=sink,
        parts=_known(parts),
        offsets=_known({int(k): of(k) for k in OFFSETS}),
        same_token=of("same_token"),
        own_sentence=of("own_sentence"),
        entropy=ask(ids.RELATIVE_ENTROPY, View.RENORM, ""),
        column=ask(METRIC, View.RENORM, "column"),
        keys={kind: value for kind, value in keys.items() if not math.isnan(value)},
        left_out=ask(METRIC, View.RENORM, "left_out"),
    )


def _known(shares: Mapping[Key, Share]) -> dict[Key, Share]:
    return {name: each for name, each in shares.items() if not math.isnan(each.value)}


def share(results: StackResults, metric: str, view: View, label: str, place: Place) -> Estimate:
    """Return a number of one head; NaN if the study lacks it."""
    if not results.has(metric, view, label):
        return NO_ESTIMATE
    return results.heads(metric, view, label).at(*place)
