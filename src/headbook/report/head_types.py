"""The type of a head by shares of its attention, and the letters and colours of types.

Shares of attention decide, not fits, so that a reader can check the type by eye. Wherever a share
decides, it is corrected for chance (`Share.corrected`): 0 for uniform attention at any length, so
that short sentences, in which every token is near, make no local window.

1. *Sink*: the share of all attention on the sink. From `SOME_SINK` on the sink is one of the two
   parts; from `SINK` on the name begins with it.
2. *The rest*, from rows with the sink masked and renormalised (rows with more than 90 % on the sink
   left out), is the first type that holds: near-uniform, normalised entropy of at least `EVENNESS`
   and none of the shares below reaches `HALF` (0.7 within three tokens still has an entropy of 0.84
   in a sentence of 20 tokens); key-driven, a fit of one weight per key leaves at most `KEYS_LEFT`;
   at least `HALF` at one offset (previous-token, next-token, self, offset k), on other occurrences
   of the token if there are any, or within three tokens either way; in texts of several sentences,
   odds of at least `ODDS` for the query's own. Else the head is mixed, and its two largest positive
   shares are named.

The thresholds are conventions: a head within `MARGIN` of a threshold is near the border of the type
on the other side.

Shares are taken among ordinary keys: the sink is masked and rows are renormalised. Among all keys
each share of a head that gives most of its attention to the sink is small, and so is its ratio to
uniform attention, whatever the head prefers of the rest: a head that gives half of its attention to
the sink and the rest evenly would seem to avoid every part of speech.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeVar

from headbook.analysis.accumulators import NO_ESTIMATE, Estimate
from headbook.metrics import ids
from headbook.metrics.patterns.type_shares import EVEN, KEYS, OFFSETS, ONE_OFFSET, PARTS
from headbook.report.results import StackResults
from headbook.report.wording import percent, signed
from headbook.schema import SinkView

METRIC = ids.TYPE_SHARES
MIN_OFF_UNIFORM = 0.05  # least 1 - uniform share; with less, shares could hardly exceed it
ROUNDING = 1e-9  # tolerance of sums that should reach a threshold
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
        if not 1 - self.even >= MIN_OFF_UNIFORM - ROUNDING:
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
        column: part of the attention outside the sink that one weight per key does not fit.
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

    def of(label: str) -> Share:
        return Share(ask(METRIC, SinkView.RENORM, label), ask(METRIC, SinkView.RENORM, EVEN[label]))

    marks = of("punctuation")
    parts = {name: of(name) for name in PARTS}
    if crosses:
        parts = {"punctuation": marks, "words": Share(1 - marks.value, 1 - marks.even)}
    keys = {kind: ask(METRIC, SinkView.RENORM, f"key_{kind}") for kind in KEYS}
    return TypeShares(
        sink=sink,
        parts=_known(parts),
        offsets=_known({int(k): of(k) for k in OFFSETS}),
        same_token=of("same_token"),
        own_sentence=of("own_sentence"),
        entropy=ask(ids.RELATIVE_ENTROPY, SinkView.RENORM, ""),
        column=ask(METRIC, SinkView.RENORM, "column"),
        keys={kind: value for kind, value in keys.items() if not math.isnan(value)},
        left_out=ask(METRIC, SinkView.RENORM, "left_out"),
    )


def _known(shares: Mapping[Key, Share]) -> dict[Key, Share]:
    return {name: each for name, each in shares.items() if not math.isnan(each.value)}


def share_of_head(
    results: StackResults, metric: str, view: SinkView, label: str, place: Place
) -> Estimate:
    """Return a number of one head; NaN if the study lacks it."""
    if not results.has_value(metric, view, label):
        return NO_ESTIMATE
    return results.heads(metric, view, label).at(*place)


SINK, SOME_SINK, HALF, EVENNESS, KEYS_LEFT, ODDS = 0.5, 0.25, 0.5, 0.8, 0.15, 2.0
MARGIN = 0.1  # share of a threshold within which a head is near the border
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


UNNAMED = {OffSinkType.NOT_MEASURED, OffSinkType.NONE}  # types by which lists do not group
AT_ONE_OFFSET = {
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
        return "sink" if self.sink else "" if self.rest in UNNAMED else str(self.rest)

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


class _Tests:
    """Comparisons with thresholds that collect the close ones.

    Args:
        turned: name of a comparison whose result is inverted; empty for none.
    """

    def __init__(self, turned: str = "") -> None:
        self._turned = turned
        self.close: list[str] = []

    def __call__(self, name: str, value: float, limit: float, *, most: bool = False) -> bool:
        """Check whether a value is at least, or at most, a limit; False if the value is missing."""
        if math.isnan(value):
            return False
        if abs(value - limit) <= MARGIN * limit + ROUNDING:
            self.close.append(name)
        holds = value <= limit + ROUNDING if most else value >= limit - ROUNDING
        return holds != (name == self._turned)


def head_type(shares: TypeShares) -> HeadType:
    """Return the type that the rule gives, with the types that the head is close to."""
    tests = _Tests()
    found = _decide(shares, tests)
    others = [_decide(shares, _Tests(name)).short for name in tests.close]
    border = tuple(dict.fromkeys(name for name in others if name != found.short))
    return HeadType(found.shares, found.sink, found.some_sink, found.rest, found.offset, border)


def _decide(shares: TypeShares, holds: _Tests) -> HeadType:
    sink = holds("sink", shares.sink.corrected, SINK)
    some = sink or holds("some sink", shares.sink.corrected, SOME_SINK)
    rest, offset = _rest(shares, holds)
    return HeadType(shares, sink, some, rest, offset)


def _rest(shares: TypeShares, holds: _Tests) -> tuple[OffSinkType, int]:
    """Return the first type outside the sink that holds, and its offset."""
    if shares.left_out >= 1 - ROUNDING:
        return OffSinkType.NONE, 0
    reached = [rest for rest, value in _halves(shares) if holds(str(rest), value, HALF)]
    missing = math.isnan(shares.entropy) and not reached
    if not shares.parts or missing:
        return OffSinkType.NOT_MEASURED, 0
    # A head with half of its attention in one of two sentences still has a high entropy.
    apart = holds("own share", shares.own_sentence.corrected, HALF) or bool(reached)
    if holds(OffSinkType.UNIFORM, shares.entropy, EVENNESS) and not apart:
        return OffSinkType.UNIFORM, 0
    if holds(OffSinkType.KEYS, shares.column, KEYS_LEFT, most=True):
        return OffSinkType.KEYS, 0
    if reached:
        return reached[0], shares.best_offset if reached[0] is OffSinkType.OFFSET else 0
    return (OffSinkType.OWN if holds(OffSinkType.OWN, shares.odds, ODDS) else OffSinkType.MIXED), 0


def _halves(shares: TypeShares) -> Iterator[tuple[OffSinkType, float]]:
    """Yield the types that half of the attention decides, with their corrected shares."""
    for part, rest in AT_ONE_OFFSET.items():
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
    return {h: None if math.isnan(s.sink.value) else head_type(s) for h, s in shares.items()}


@dataclass(frozen=True)
class TypeStyle:
    """A part of a type on pages: class of its colour, letter and name."""

    style: str
    letter: str
    name: str


KINDS = {
    "sink": TypeStyle("sink", "S", "sink"),
    OffSinkType.PREVIOUS: TypeStyle("previous", "P", "previous-token"),
    OffSinkType.NEXT: TypeStyle("next", "N", "next-token"),
    OffSinkType.SELF: TypeStyle("self", "I", "self"),
    OffSinkType.OFFSET: TypeStyle("offset", "K", "one other offset"),
    OffSinkType.SAME: TypeStyle("same", "R", "same token"),
    OffSinkType.WINDOW: TypeStyle("window", "W", "local window"),
    OffSinkType.UNIFORM: TypeStyle("uniform", "U", "near-uniform"),
    OffSinkType.KEYS: TypeStyle("keys", "C", "key-driven"),
    OffSinkType.OWN: TypeStyle("own", "O", "own sentence"),
    "distant": TypeStyle("distant", "D", "distant tokens"),
    OffSinkType.MIXED: TypeStyle("distant", "M", "mixed"),
    OffSinkType.NOT_MEASURED: TypeStyle("unmeasured", "–", NOT_MEASURED),
}
# The kind of each share that a mixed head may be named by.
OF_SHARE = {
    "previous": OffSinkType.PREVIOUS, "next": OffSinkType.NEXT, "self": OffSinkType.SELF,
    "near": OffSinkType.WINDOW,
    "punctuation": "distant", "repeated": OffSinkType.SAME, "before": "distant", "after": "distant",
    "words": "distant",
}  # fmt: skip


def kinds_of(found: HeadType) -> tuple[TypeStyle, ...]:
    """Return the one or two kinds of a type, without repetition."""
    kinds = (KINDS[OF_SHARE.get(part, part)] for part in found.parts)
    return tuple(dict.fromkeys(kinds))


def letters_of(found: HeadType) -> str:
    """Return the one or two letters of a type."""
    return "".join(kind.letter for kind in kinds_of(found))


def style_of(found: HeadType) -> str:
    """Return the classes of a type's colours."""
    first, *second = kinds_of(found)
    return " ".join([f"k-{first.style}", *(f"l-{kind.style}" for kind in second)])


TAG_VIEW = SinkView.RENORM  # the view of attention by part of speech


def much_to_sink(results: StackResults, place: Place) -> float:
    """Return the share of a head's attention on the sink, if the share is large.

    NaN if the share, corrected for uniform attention as in the types of heads, is below
    `SOME_SINK`, or if it was not measured.
    """
    given = sink_share(results, place)
    return given.value if given.corrected >= SOME_SINK else math.nan


def sink_remark(results: StackResults, place: Place) -> str:
    """Return a sentence on a large share of the sink, which shares by part of speech leave out."""
    given = much_to_sink(results, place)
    return "" if math.isnan(given) else f"{percent(given)} of all its attention goes to the sink."
