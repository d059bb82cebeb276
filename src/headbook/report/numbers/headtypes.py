"""The type of a head: one name of at most two parts, decided by shares of its attention.

Shares of attention decide, not fits, so that a reader can check the name by eye. Wherever a share
decides, it is corrected for chance (`Share.corrected`): 0 for uniform attention at any length, so
that short sentences, in which every token is near, make no local window.

1. *Sink*: the share of all attention on the sink. From `SOME_SINK` on the sink is one of the two
   parts; from `SINK` on the name begins with it.
2. *The rest*, from rows with the sink masked and renormalised (rows with more than 90 % on the sink
   left out), is the first that holds: near-uniform, normalised entropy of at least `EVEN` and none
   of the shares below reaches `HALF` (0.7 within three tokens still has an entropy of 0.84 in a
   sentence of 20 tokens); key-driven, a fit of one weight per key leaves at most `KEYS_LEFT`; at
   least `HALF` at one offset (previous-token, next-token, self, offset k), on other occurrences of
   the token where there are any, or within three tokens either way; in texts of several sentences,
   odds of at least `ODDS` for the query's own. Else the head is mixed, and its two largest positive
   shares are named.

The thresholds are conventions: a head within `MARGIN` of one is near the border of the type on the
other side.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from headbook.report.numbers.results import StackResults
from headbook.report.numbers.typeshares import NO_SHARE, ROUNDING, Place, Shares, shares_of
from headbook.report.wording import percent, signed

SINK, SOME_SINK, HALF, EVEN, KEYS_LEFT, ODDS = 0.5, 0.25, 0.5, 0.8, 0.15, 2.0
MARGIN = 0.1  # of a threshold
NOT_MEASURED = "not measured"


class Rest(StrEnum):
    """What a head does outside the sink."""

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
    """The study lacks the shares, or the entropy that near-uniform heads have."""
    NONE = ""
    """All rows give more than 90 % to the sink."""


UNNAMED = {Rest.NOT_MEASURED, Rest.NONE}  # no types that lists group by
AT_ONE_OFFSET = {"previous": Rest.PREVIOUS, "next": Rest.NEXT, "self": Rest.SELF}
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
        shares: the numbers behind it.
        sink: whether the name begins with the sink; ``some_sink``: whether it names it at all.
        rest: what it is outside the sink.
        offset: of `Rest.OFFSET`, key minus query; 0 else.
        border: what it would be beyond a threshold that it is close to.
    """

    shares: Shares
    sink: bool
    some_sink: bool
    rest: Rest
    offset: int = 0
    border: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """One or two kinds, by which pages colour it: ``sink``, rests, and parts of a mixed one."""
        sink = ("sink",) if self.some_sink else ()
        if self.rest is Rest.NONE:
            return sink or (NOT_MEASURED,)
        if self.rest is Rest.MIXED and self.sink:
            return sink
        if self.rest is Rest.MIXED:
            return (*sink, *self.shares.largest[: 2 - len(sink)]) or (str(Rest.MIXED),)
        return (*sink, str(self.rest))

    @property
    def name(self) -> str:
        """As readers meet it, shares of the sink beside."""
        return self._named(f"sink ({percent(self.shares.sink.value)})")

    @property
    def short(self) -> str:
        """The same without shares."""
        return self._named("sink")

    def _named(self, sink: str) -> str:
        if self.sink:
            return sink + ("" if self.rest in {Rest.MIXED, Rest.NONE} else f" + {self._rest}")
        if self.rest is Rest.MIXED and self.parts != (Rest.MIXED,):
            return "mixed: " + " + ".join(PART_NAMES.get(part, part) for part in self.parts)
        return (f"{sink} + " if self.some_sink else "") + (self._rest or NOT_MEASURED)

    @property
    def family(self) -> str:
        """First part of the name, by which lists group and filter; empty if not measured."""
        return "sink" if self.sink else "" if self.rest in UNNAMED else str(self.rest)

    @property
    def measured(self) -> bool:
        """Whether the study has the numbers that decide the type outside the sink."""
        return self.rest is not Rest.NOT_MEASURED

    @property
    def detail(self) -> str:
        """What its name says beyond the family: a share, an offset, a second part."""
        if self.sink:
            rest = "" if self.rest in {Rest.MIXED, Rest.NONE} else f" + {self._rest}"
            return f"{percent(self.shares.sink.value)}{rest}"
        if self.rest is Rest.MIXED:
            parts = (part for part in self.parts if part != Rest.MIXED)
            return " + ".join(PART_NAMES.get(part, part) for part in parts)
        about = self._rest.removeprefix(str(self.rest)).strip(" ()")
        sink = f"sink {percent(self.shares.sink.value)}" if self.some_sink else ""
        return ", ".join(part for part in (about, sink) if part)

    @property
    def near(self) -> str:
        """What it borders on, in words; empty where it is clear."""
        return f"near the border of {' and of '.join(self.border)}" if self.border else ""

    @property
    def _rest(self) -> str:
        """The name of the rest."""
        if self.rest is Rest.OFFSET:
            return f"offset {signed(self.offset)}"
        if self.rest is Rest.KEYS and self.shares.keys:
            best = max(self.shares.keys, key=lambda kind: self.shares.keys[kind])
            return f"key-driven ({KEY_NAMES[best]})" if best != "other" else "key-driven"
        return str(self.rest)


class _Tests:
    """Tests against thresholds, one of which may be turned round; notes which are close."""

    def __init__(self, turned: str = "") -> None:
        self._turned = turned
        self.close: list[str] = []

    def __call__(self, name: str, value: float, limit: float, *, most: bool = False) -> bool:
        """Whether a value is at least, or at most, a limit; a missing one never is."""
        if math.isnan(value):
            return False
        if abs(value - limit) <= MARGIN * limit + ROUNDING:
            self.close.append(name)
        holds = value <= limit + ROUNDING if most else value >= limit - ROUNDING
        return holds != (name == self._turned)


def head_type(shares: Shares) -> HeadType:
    """The type that the rule gives, and what it is near the border of."""
    tests = _Tests()
    found = _decide(shares, tests)
    others = [_decide(shares, _Tests(name)).short for name in tests.close]
    border = tuple(dict.fromkeys(name for name in others if name != found.short))
    return HeadType(found.shares, found.sink, found.some_sink, found.rest, found.offset, border)


def _decide(shares: Shares, holds: _Tests) -> HeadType:
    sink = holds("sink", shares.sink.corrected, SINK)
    some = sink or holds("some sink", shares.sink.corrected, SOME_SINK)
    rest, offset = _rest(shares, holds)
    return HeadType(shares, sink, some, rest, offset)


def _rest(shares: Shares, holds: _Tests) -> tuple[Rest, int]:
    """Return the first type that holds, and its offset."""
    if shares.left_out >= 1 - ROUNDING:
        return Rest.NONE, 0
    reached = [rest for rest, value in _halves(shares) if holds(str(rest), value, HALF)]
    missing = math.isnan(shares.entropy) and not reached
    if not shares.parts or missing:
        return Rest.NOT_MEASURED, 0
    # Half of the attention in one sentence of two still has a high entropy.
    apart = holds("own share", shares.own_sentence.corrected, HALF) or bool(reached)
    if holds(Rest.UNIFORM, shares.entropy, EVEN) and not apart:
        return Rest.UNIFORM, 0
    if holds(Rest.KEYS, shares.column, KEYS_LEFT, most=True):
        return Rest.KEYS, 0
    if reached:
        return reached[0], shares.best_offset if reached[0] is Rest.OFFSET else 0
    return (Rest.OWN if holds(Rest.OWN, shares.odds, ODDS) else Rest.MIXED), 0


def _halves(shares: Shares) -> Iterator[tuple[Rest, float]]:
    """Yield the types that half of the attention decides, with their corrected shares."""
    for part, rest in AT_ONE_OFFSET.items():
        yield rest, shares.parts.get(part, NO_SHARE).corrected
    yield Rest.OFFSET, shares.offsets.get(shares.best_offset, NO_SHARE).corrected
    yield Rest.SAME, shares.same_token.corrected
    yield Rest.WINDOW, shares.window.corrected


Types = Mapping[Place, HeadType | None]


def head_types(results: StackResults) -> Types:
    """The type of every head, by layer and head; None where its numbers are missing."""
    return results.once(_types)


def _types(results: StackResults) -> Types:
    stack = results.stack
    heads = [(layer, head) for layer in stack.attention_layers for head in range(stack.n_heads)]
    return {head: _of(results, head) for head in heads}


def _of(results: StackResults, place: Place) -> HeadType | None:
    shares = shares_of(results, place)
    return None if math.isnan(shares.sink.value) else head_type(shares)
