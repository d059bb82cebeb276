"""The type of a head: one name of at most two parts, decided by shares of its attention.

Simple shares of mass decide, not fits, so that a reader can check the name by eye:

1. *Sink*: at least `SINK` of all attention: the name begins with it. From `SOME_SINK` on it is one
   of the two parts.
2. *The rest*, from rows with the sink masked and renormalised (rows with more than 90 % on the sink
   left out), is the first that holds: at least `HALF` at one offset (previous-token, next-token,
   self, offset k), on other occurrences of the token where there are any, or within three tokens
   either way; normalised entropy of at least `EVEN`; a fit of one weight per key that leaves at
   most `KEYS_LEFT`; in texts of several sentences, odds of at least `ODDS` for the query's own.
   Else it is mixed, and its two largest shares are named.

The thresholds are conventions: a head within `MARGIN` of one is near the border of what it would be
on the other side.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from headbook.report.numbers.results import StackResults
from headbook.report.numbers.typeshares import SOME_SINK, Place, Shares, shares_of
from headbook.report.wording import percent, signed

SINK, HALF, EVEN, KEYS_LEFT, ODDS = 0.5, 0.5, 0.8, 0.15, 2.0
MARGIN = 0.1  # of a threshold
ROUNDING = 1e-9  # sums that should be a half may fall short by as much


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
    NONE = ""
    """All rows give more than 90 % to the sink."""


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
        if self.rest is Rest.NONE or (self.sink and self.rest is Rest.MIXED):
            return sink or ("mixed",)
        if self.rest is Rest.MIXED:
            return (*sink, *self.shares.largest[: 2 - len(sink)])
        return (*sink, str(self.rest))

    @property
    def name(self) -> str:
        """As readers meet it, shares of the sink beside."""
        return self._named(f"sink ({percent(self.shares.sink)})")

    @property
    def short(self) -> str:
        """The same without shares."""
        return self._named("sink")

    def _named(self, sink: str) -> str:
        if self.sink:
            return sink + ("" if self.rest in {Rest.MIXED, Rest.NONE} else f" + {self._rest}")
        if self.rest is Rest.MIXED:
            return "mixed: " + " + ".join(PART_NAMES.get(part, part) for part in self.parts)
        return (f"{sink} + " if self.some_sink else "") + (self._rest or "unknown")

    @property
    def family(self) -> str:
        """The first part of its name, by which lists group and filter; empty where unknown."""
        return "sink" if self.sink else str(self.rest)

    @property
    def detail(self) -> str:
        """What its name says beyond the family: a share, an offset, a second part."""
        if self.sink:
            rest = "" if self.rest in {Rest.MIXED, Rest.NONE} else f" + {self._rest}"
            return f"{percent(self.shares.sink)}{rest}"
        if self.rest is Rest.MIXED:
            return " + ".join(PART_NAMES.get(part, part) for part in self.parts)
        about = self._rest.removeprefix(str(self.rest)).strip(" ()")
        sink = f"sink {percent(self.shares.sink)}" if self.some_sink else ""
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
    sink = holds("sink", shares.sink, SINK)
    some = sink or holds("some sink", shares.sink, SOME_SINK)
    rest, offset = _rest(shares, holds)
    return HeadType(shares, sink, some, rest, offset)


def _rest(shares: Shares, holds: _Tests) -> tuple[Rest, int]:
    """The first that holds, and its offset."""
    parts = shares.parts
    if not any(value > 0 for value in parts.values()) and math.isnan(shares.entropy):
        return Rest.NONE, 0
    for part, rest in AT_ONE_OFFSET.items():
        if holds(part, parts.get(part, math.nan), HALF):
            return rest, 0
    if shares.offsets:
        best = max(shares.offsets, key=lambda k: shares.offsets[k])
        if holds("offset", shares.offsets[best], HALF):
            return Rest.OFFSET, best
    tests = (
        (Rest.SAME, shares.same_token, HALF, False),
        (Rest.WINDOW, shares.window, HALF, False),
        (Rest.UNIFORM, shares.entropy, EVEN, False),
        (Rest.KEYS, shares.column, KEYS_LEFT, True),
        (Rest.OWN, shares.odds, ODDS, False),
    )
    for rest, value, limit, most in tests:
        if holds(rest, value, limit, most=most):
            return rest, 0
    return Rest.MIXED if parts else Rest.NONE, 0


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
    return None if math.isnan(shares.sink) else head_type(shares)
