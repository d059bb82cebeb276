"""The type of a head by shares of its attention.

Shares of attention decide, not fits, so that a reader can check the type by eye. Wherever a share
decides, it is corrected for chance (`Share.corrected`): 0 for uniform attention at any length, so
that short sentences, in which every token is near, make no local window.

1. *Sink*: the share of all attention on the sink. From `MIN_SINK_MENTION` on the sink is one of the
   two parts; from `MIN_SINK_SHARE` on the name begins with it.
2. *The rest*, from rows with the sink masked and renormalised (rows with more than 90 % on the sink
   left out), is the first type that holds: near-uniform, normalised entropy of at least
   `MIN_UNIFORM_ENTROPY` and none of the shares below reaches `MIN_PART_SHARE` (0.7 within three
   tokens still has an entropy of 0.84 in a sentence of 20 tokens); key-driven, the key explains
   `MIN_PART_SHARE` of its departure from even attention; at least `MIN_PART_SHARE` at one offset
   (previous-token, next-token, self, offset k), on other occurrences of the token if there are any,
   or within three tokens either way; in texts of several sentences, odds of at least
   `MIN_OWN_SENTENCE_ODDS` for the query's own. Else the head is mixed, and its two largest positive
   shares are named.

The thresholds are conventions: a head within `BORDER_WIDTH` of a threshold is near the border of
the type on the other side.

Shares are taken among ordinary keys: the sink is masked and rows are renormalised. Among all keys
each share of a head that gives most of its attention to the sink is small, and so is its ratio to
uniform attention, whatever the head prefers of the rest: a head that gives half of its attention to
the sink and the rest evenly would seem to avoid every part of speech.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple, TypeVar

from headbook.metrics import ids
from headbook.metrics.patterns.type_shares import EVEN, KEYS, OFFSETS, ONE_OFFSET, PARTS
from headbook.report.results import StackResults, share_of_head
from headbook.results.formats import percent, signed
from headbook.schema import Place, SinkView

METRIC = ids.TYPE_SHARES
MIN_OFF_UNIFORM = 0.05  # of 1 - uniform share; with less, shares could hardly exceed it
ROUNDING_TOLERANCE = 1e-9  # of sums that should reach a threshold
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
        if not 1 - self.even >= MIN_OFF_UNIFORM - ROUNDING_TOLERANCE:
            return math.nan
        return (self.value - self.even) / (1 - self.even)


NO_SHARE = Share()


@dataclass(frozen=True)
class TypeShares:
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
        key: part of the departure from even attention that the key explains.
        keys: share of sentences in which the key that receives most is of a class, by class.
        left_out: share of queries with more than 90 % of their attention on the sink.
    """

    sink: Share
    parts: Mapping[str, Share] = field(default_factory=dict)
    offsets: Mapping[int, Share] = field(default_factory=dict)
    same_token: Share = NO_SHARE
    own_sentence: Share = NO_SHARE
    entropy: float = math.nan
    key: float = math.nan
    keys: Mapping[str, float] = field(default_factory=dict)
    left_out: float = math.nan

    @property
    def window(self) -> Share:
        """Share outside the sink within three tokens either way."""
        near = [self.parts.get(name, NO_SHARE) for name in (*ONE_OFFSET, "near")]
        return Share(sum(share.value for share in near), sum(share.even for share in near))

    @property
    def odds(self) -> float:
        """Odds of the query's own sentence over its odds under uniform attention."""
        share, even = self.own_sentence
        if math.isnan(share) or not 0 < even < 1:
            return math.nan
        return math.inf if share >= 1 else share / (1 - share) * (1 - even) / even

    @property
    def largest(self) -> list[str]:
        """Names of the parts above uniform attention, the largest corrected share first."""
        above = {name: share.corrected for name, share in self.parts.items() if share.corrected > 0}
        return sorted(above, key=lambda name: -above[name])

    @property
    def best_offset(self) -> int:
        """Offset of the largest corrected share among offsets of 2 and more; 0 without one."""
        corrected = {offset: share.corrected for offset, share in self.offsets.items()}
        corrected = {offset: value for offset, value in corrected.items() if not math.isnan(value)}
        return max(corrected, key=lambda offset: corrected[offset], default=0)


Ask = Callable[[str, SinkView, str], float]


def shares_of(results: StackResults, place: Place) -> TypeShares:
    """Return the numbers of one head that decide its type."""

    def ask(metric: str, view: SinkView, label: str) -> float:
        return share_of_head(results, metric, view, label, place).value

    return shares_by(ask, sink_share(results, place), crosses=results.stack.crosses)


def sink_share(results: StackResults, place: Place) -> Share:
    """Return the share of a head's attention on the sink."""
    value = share_of_head(results, ids.SINK_SHARE, SinkView.RAW, "", place).value
    if math.isnan(value):
        return NO_SHARE
    return Share(value, float(results.uniform(ids.SINK_SHARE, SinkView.RAW).value[place[0]]))


def shares_by(ask: Ask, sink: Share, *, crosses: bool) -> TypeShares:
    """Return the numbers that decide a type, looked up by metric, view and label.

    Args:
        ask: returns a number of the head; NaN if it is missing.
        sink: share of all attention on the sink.
        crosses: whether queries and keys are of two texts.
    """

    def share(label: str) -> Share:
        return Share(ask(METRIC, SinkView.RENORM, label), ask(METRIC, SinkView.RENORM, EVEN[label]))

    punctuation = share("punctuation")
    parts = {name: share(name) for name in PARTS}
    if crosses:
        parts = {
            "punctuation": punctuation,
            "words": Share(1 - punctuation.value, 1 - punctuation.even),
        }
    keys = {kind: ask(METRIC, SinkView.RENORM, f"key_{kind}") for kind in KEYS}
    return TypeShares(
        sink=sink,
        parts=_known(parts),
        offsets=_known({int(offset): share(offset) for offset in OFFSETS}),
        same_token=share("same_token"),
        own_sentence=share("own_sentence"),
        entropy=ask(ids.RELATIVE_ENTROPY, SinkView.RENORM, ""),
        key=ask(ids.ATTENTION_PARTS, SinkView.RENORM, "key"),
        keys={kind: value for kind, value in keys.items() if not math.isnan(value)},
        left_out=ask(METRIC, SinkView.RENORM, "left_out"),
    )


def _known(shares: Mapping[Key, Share]) -> dict[Key, Share]:
    return {name: share for name, share in shares.items() if not math.isnan(share.value)}


MIN_SINK_SHARE = 0.5  # corrected share of the sink from which on a name begins with the sink
MIN_SINK_MENTION = 0.25  # corrected share of the sink from which on a name mentions the sink
MIN_PART_SHARE = 0.5  # corrected share from which on one part of the attention gives the type
MIN_UNIFORM_ENTROPY = 0.8  # normalised entropy of near-uniform heads
MIN_OWN_SENTENCE_ODDS = 2.0  # odds of the query's own sentence, over those of uniform attention
BORDER_WIDTH = 0.1  # share of a threshold within which a head is near the border
NOT_MEASURED = "not measured"


class OffSinkType(StrEnum):
    """Types of a head by its attention outside the sink."""

    PREVIOUS = "previous-token"
    NEXT = "next-token"
    SELF = "self"
    OFFSET = "offset"
    SAME = "same-token"
    WINDOW = "local-window"
    UNIFORM = "near-uniform"
    KEYS = "key-driven"
    OWN = "own-sentence"
    MIXED = "mixed"
    NOT_MEASURED = NOT_MEASURED
    """The study lacks the shares, or the entropy, that decide the type."""
    NONE = ""
    """All rows give more than 90 % to the sink."""


UNGROUPED_TYPES = {OffSinkType.NOT_MEASURED, OffSinkType.NONE}  # types by which lists do not group
TYPE_AT_OFFSET = {
    "previous": OffSinkType.PREVIOUS,
    "next": OffSinkType.NEXT,
    "self": OffSinkType.SELF,
}
PART_NAMES = {
    "previous": "previous token",
    "next": "next token",
    "self": "the token itself",
    "near": "tokens 2–3 away",
    "punctuation": "distant punctuation",
    "repeated": "distant same token",
    "before": "distant earlier tokens",
    "after": "distant later tokens",
    "words": "words",
}
KEY_NAMES = {
    "punctuation": "punctuation",
    "first": "first word",
    "last": "last word",
    "function": "function words",
    "content": "content words",
    "other": "no class",
}


@dataclass(frozen=True)
class HeadType:
    """The type of one head.

    Attributes:
        shares: the numbers that decide the type.
        sink: whether the name begins with the sink.
        some_sink: whether the name mentions the sink.
        rest: type outside the sink.
        offset: key minus query of `OffSinkType.OFFSET`; 0 for other types.
        border: types beyond the thresholds that the head is close to.
    """

    shares: TypeShares
    sink: bool
    some_sink: bool
    rest: OffSinkType
    offset: int = 0
    border: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of one or two parts that give the type its colours: the sink, a type, or shares."""
        sink = ("sink",) if self.some_sink else ()
        if self.rest is OffSinkType.NONE:
            return sink or (NOT_MEASURED,)
        if self.rest is OffSinkType.MIXED and self.sink:
            return sink
        if self.rest is OffSinkType.MIXED:
            return (*sink, *self.shares.largest[: 2 - len(sink)]) or (str(OffSinkType.MIXED),)
        return (*sink, str(self.rest))

    @property
    def name(self) -> str:
        """Name of the type, with the share of the sink."""
        return self._named(f"sink ({percent(self.shares.sink.value)})")

    @property
    def short(self) -> str:
        """Name of the type without shares."""
        return self._named("sink")

    def _named(self, sink: str) -> str:
        if self.sink:
            return sink + (
                "" if self.rest in {OffSinkType.MIXED, OffSinkType.NONE} else f" + {self._rest}"
            )
        if self.rest is OffSinkType.MIXED and self.parts != (OffSinkType.MIXED,):
            return "mixed: " + " + ".join(PART_NAMES.get(part, part) for part in self.parts)
        return (f"{sink} + " if self.some_sink else "") + (self._rest or NOT_MEASURED)

    @property
    def family(self) -> str:
        """First part of the name, by which lists group and filter; empty if not measured."""
        return "sink" if self.sink else "" if self.rest in UNGROUPED_TYPES else str(self.rest)

    @property
    def measured(self) -> bool:
        """Whether the study has the numbers that decide the type outside the sink."""
        return self.rest is not OffSinkType.NOT_MEASURED

    @property
    def detail(self) -> str:
        """Parts of the name beyond the family: a share, an offset, a second part."""
        if self.sink:
            rest = "" if self.rest in {OffSinkType.MIXED, OffSinkType.NONE} else f" + {self._rest}"
            return f"{percent(self.shares.sink.value)}{rest}"
        if self.rest is OffSinkType.MIXED:
            parts = (part for part in self.parts if part != OffSinkType.MIXED)
            return " + ".join(PART_NAMES.get(part, part) for part in parts)
        about = self._rest.removeprefix(str(self.rest)).strip(" ()")
        sink = f"sink {percent(self.shares.sink.value)}" if self.some_sink else ""
        return ", ".join(part for part in (about, sink) if part)

    @property
    def near(self) -> str:
        """A remark on the types that the head is close to; empty if there are none."""
        return f"near the border of {' and of '.join(self.border)}" if self.border else ""

    @property
    def _rest(self) -> str:
        """Name of the type outside the sink."""
        if self.rest is OffSinkType.OFFSET:
            return f"offset {signed(self.offset)}"
        if self.rest is OffSinkType.KEYS and self.shares.keys:
            best = max(self.shares.keys, key=lambda kind: self.shares.keys[kind])
            return f"key-driven ({KEY_NAMES[best]})" if best != "other" else "key-driven"
        return str(self.rest)


class _ThresholdTests:
    """Comparisons with thresholds that collect the close ones.

    Args:
        inverted: name of a comparison whose result is inverted; empty for none.
    """

    def __init__(self, inverted: str = "") -> None:
        self._inverted = inverted
        self.close: list[str] = []

    def __call__(self, name: str, value: float, limit: float) -> bool:
        """Check whether a value is at least a limit; False if the value is missing."""
        if math.isnan(value):
            return False
        if abs(value - limit) <= BORDER_WIDTH * limit + ROUNDING_TOLERANCE:
            self.close.append(name)
        return (value >= limit - ROUNDING_TOLERANCE) != (name == self._inverted)


def head_type(shares: TypeShares) -> HeadType:
    """Return the type that the rule gives, with the types that the head is close to."""
    tests = _ThresholdTests()
    decided = _decide(shares, tests)
    alternatives = [_decide(shares, _ThresholdTests(name)).short for name in tests.close]
    border = tuple(dict.fromkeys(name for name in alternatives if name != decided.short))
    return replace(decided, border=border)


def _decide(shares: TypeShares, holds: _ThresholdTests) -> HeadType:
    sink = holds("sink", shares.sink.corrected, MIN_SINK_SHARE)
    some_sink = sink or holds("some sink", shares.sink.corrected, MIN_SINK_MENTION)
    rest, offset = _rest(shares, holds)
    return HeadType(shares, sink, some_sink, rest, offset)


def _rest(shares: TypeShares, holds: _ThresholdTests) -> tuple[OffSinkType, int]:
    """Return the first type outside the sink that holds, and its offset."""
    if shares.left_out >= 1 - ROUNDING_TOLERANCE:
        return OffSinkType.NONE, 0
    half_types = [
        rest for rest, value in _halves(shares) if holds(str(rest), value, MIN_PART_SHARE)
    ]
    is_missing = math.isnan(shares.entropy) and not half_types
    if not shares.parts or is_missing:
        return OffSinkType.NOT_MEASURED, 0
    # A head with half of its attention in one of two sentences still has a high entropy.
    in_own_sentence = holds("own share", shares.own_sentence.corrected, MIN_PART_SHARE)
    is_uneven = in_own_sentence or bool(half_types)
    if holds(OffSinkType.UNIFORM, shares.entropy, MIN_UNIFORM_ENTROPY) and not is_uneven:
        return OffSinkType.UNIFORM, 0
    if holds(OffSinkType.KEYS, shares.key, MIN_PART_SHARE):
        return OffSinkType.KEYS, 0
    if half_types:
        return half_types[0], shares.best_offset if half_types[0] is OffSinkType.OFFSET else 0
    in_one_sentence = holds(OffSinkType.OWN, shares.odds, MIN_OWN_SENTENCE_ODDS)
    return OffSinkType.OWN if in_one_sentence else OffSinkType.MIXED, 0


def _halves(shares: TypeShares) -> Iterator[tuple[OffSinkType, float]]:
    """Yield the types that half of the attention decides, with their corrected shares."""
    for part, rest in TYPE_AT_OFFSET.items():
        yield rest, shares.parts.get(part, NO_SHARE).corrected
    yield OffSinkType.OFFSET, shares.offsets.get(shares.best_offset, NO_SHARE).corrected
    yield OffSinkType.SAME, shares.same_token.corrected
    yield OffSinkType.WINDOW, shares.window.corrected


Types = Mapping[Place, HeadType | None]


def head_types(results: StackResults) -> Types:
    """Return the type of every head, by layer and head; None if its numbers are missing."""
    return results.cached(_types)


def _types(results: StackResults) -> Types:
    stack = results.stack
    heads = [(layer, head) for layer in stack.attention_layers for head in range(stack.n_heads)]
    shares = {head: shares_of(results, head) for head in heads}
    return {
        head: None if math.isnan(head_shares.sink.value) else head_type(head_shares)
        for head, head_shares in shares.items()
    }


def much_to_sink(results: StackResults, place: Place) -> float:
    """Return the share of a head's attention on the sink, if the share is large.

    NaN if the share, corrected for uniform attention as in the types of heads, is below
    `MIN_SINK_MENTION`, or if it was not measured.
    """
    share = sink_share(results, place)
    return share.value if share.corrected >= MIN_SINK_MENTION else math.nan


def sink_remark(results: StackResults, place: Place) -> str:
    """Return a sentence on a large share of the sink, which shares by part of speech leave out."""
    share = much_to_sink(results, place)
    return "" if math.isnan(share) else f"{percent(share)} of all its attention goes to the sink."
