"""What a head does, from all evidence in one order.

Position, then a relation beyond the best fixed offset, then classes of tokens, then repetition,
then evenness or a mixture, and last the sink. Each claim is one sentence with its numbers:
estimate, interval, baseline. What was tested family-wise says so; the rest describes.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headbook.numbers.headtypes import (
    KEY_NAMES,
    METRIC,
    PART_NAMES,
    SOME_SINK,
    HeadType,
    Place,
    Rest,
    head_types,
    share,
)
from headbook.numbers.relationnames import TAGS, relation_words, way
from headbook.numbers.results import Number, StackResults
from headbook.stored.shown import HeadName
from headbook.terms import View
from headbook.wording import FEW, THIN, counted, interval, number, p_text, percent

if TYPE_CHECKING:
    from headbook.numbers.inference import RelationTests

LEVEL = 0.05  # family-wise
REPEATED = 0.4  # of the attention on repeated random tokens, by convention
TWICE = 2.0  # times uniform attention, from which on a class of tokens is worth a sentence
ALMOST_ALL = 0.95
NONE = Number(math.nan, math.nan, math.nan, 0, 0)


class Claim(NamedTuple):
    """One piece of evidence.

    Attributes:
        kind: ``position``, ``relation``, ``class``, ``repetition``, ``shape`` or ``sink``.
        short: what the head does, to stand after its name; empty where it decides no role.
        text: a whole sentence.
        value: the number behind it.
        baseline: what it is set against; NaN without one.
        against: name of that.
        p: family-wise, where it was tested; else NaN.
    """

    kind: str
    short: str
    text: str
    value: Number
    baseline: float = math.nan
    against: str = "uniform attention"
    p: float = math.nan


@dataclass(frozen=True)
class Role:
    """What one head does.

    Attributes:
        head: which one.
        type: its type; None where the study lacks the numbers.
        claims: evidence, in the order in which it is told.
    """

    head: HeadName
    type: HeadType | None
    claims: tuple[Claim, ...]

    @property
    def short(self) -> str:
        """What it does, in a few words without numbers; empty where nothing is known."""
        relation, sink = self.claim("relation"), self.claim("sink")
        if relation is not None:
            return relation.short
        parts = [claim.short for claim in self.claims if claim.short and claim.kind != "sink"]
        if sink is not None and sink.short:
            return ", otherwise ".join([sink.short, *parts[:1]])
        return ", and ".join(parts[:2])

    @property
    def text(self) -> str:
        """All claims as sentences."""
        return " ".join(claim.text for claim in self.claims)

    def claim(self, kind: str) -> Claim | None:
        """The claim of a kind; None without one."""
        return next((claim for claim in self.claims if claim.kind == kind), None)


def role(results: StackResults, head: HeadName, tests: "RelationTests | None") -> Role:
    """What a head does.

    Args:
        tests: which heads serve relations; without it nothing is said of them.
    """
    place = head.layer, head.head
    found = head_types(results).get(place)
    claims = (
        *_position(results, place, found),
        *_relation(tests, place),
        *_class(results, place, found),
        *_repetition(results, place),
        *_shape(results, place, found),
        *_sink(results, place, found),
    )
    return Role(head, found, claims)


def estimate(value: Number, *, share: bool = True) -> str:
    """A number with its interval, the unit once: ``84.4 % [72.0, 96.9]``."""
    ends = interval(value.low, value.high, share=share).replace(f"{THIN}%", "")
    return f"{number(value.value, share=share)} {ends}".strip()


def signed_points(value: float) -> str:
    """A difference of shares in points, with its sign."""
    return f"{100 * value:+.1f}".replace("-", "−")


def point_estimate(value: Number) -> str:
    """The same with its interval: ``+40.0 points [+22.8, +57.2]``."""
    ends = f" [{signed_points(value.low)}, {signed_points(value.high)}]"
    return f"{signed_points(value.value)} points" + ("" if math.isnan(value.low) else ends)


def sink_words(results: StackResults) -> str:
    """What the sink of a stack is."""
    return "special tokens and the first position" if results.stack.causal else "special tokens"


def _it(results: StackResults, found: HeadType) -> str:
    """The subject of a sentence whose shares are of the rest."""
    return f"With {sink_words(results)} masked, it" if found.some_sink else "It"


def _begun(text: str) -> str:
    return text[:1].upper() + text[1:]


AT = {
    Rest.PREVIOUS: ("previous", "the previous token"),
    Rest.NEXT: ("next", "the next token"),
    Rest.SELF: ("self", "the token itself"),
    Rest.SAME: ("same_token", "other occurrences of the token"),
}


def _position(results: StackResults, place: Place, found: HeadType | None) -> Iterator[Claim]:
    """A share at one offset, on the same token, or in a window."""
    if found is None:
        return
    if found.rest in AT:
        label, where = AT[found.rest]
    elif found.rest is Rest.OFFSET:
        label = str(found.offset)
        side = "back" if found.offset < 0 else "ahead"
        where = f"the token {abs(found.offset)} positions {side}"
    elif found.rest is Rest.WINDOW:
        within = percent(found.shares.window)
        text = f"{_it(results, found)} keeps {within} of its attention within three tokens."
        value = Number(found.shares.window, math.nan, math.nan, 0, 0)
        yield Claim("position", "attends to a local window, up to three tokens away",
                    text, value)  # fmt: skip
        return
    else:
        return
    value = share(results, METRIC, View.RENORM, label, place)
    if math.isnan(value.value):  # a study of an older version
        value = NONE._replace(value=found.shares.parts.get(label, math.nan))
    even = _even(results, METRIC, View.RENORM, label, place)
    said = f"{_it(results, found)} gives {estimate(value)} of its attention to {where}"
    yield Claim("position", f"attends to {where}", f"{said}{_uniform(even)}.", value,
                even)  # fmt: skip


def _uniform(even: float) -> str:
    return "" if math.isnan(even) else f" (uniform attention: {percent(even)})"


def _even(results: StackResults, metric: str, view: View, label: str, place: Place) -> float:
    """What uniform attention gives in a head's layer; NaN where it is not known."""
    if not results.has(metric, view, label):
        return math.nan
    return float(results.uniform(metric, view, label).value[place[0]])


def served(tests: "RelationTests | None", place: Place) -> int | None:
    """Number of the relation in which a head beats the best fixed offset most, family-wise."""
    if tests is None or not len(tests.labels):
        return None
    with np.errstate(invalid="ignore"):
        sure = (tests.p < LEVEL) & (tests.margin.low > 0) & (tests.accuracy.events >= FEW)
    own = np.flatnonzero(sure & (tests.head == place).all(1))
    return int(own[tests.margin.value[own].argmax()]) if len(own) else None


def _relation(tests: "RelationTests | None", place: Place) -> Iterator[Claim]:
    """The relation that a head serves beyond the best fixed offset."""
    n = served(tests, place)
    if tests is None or n is None:
        return
    ends, label = way(tests.labels[n]), tests.labels[n]
    found, offset = tests.accuracy.at(n), f"{int(tests.offset[n]):+d}".replace("-", "−")
    other, p = float(tests.at_offset.value[n]), float(tests.p[n])
    sign = p_text(p) if p_text(p).startswith("<") else f"= {p_text(p)}"
    yield Claim(
        "relation",
        f"attends {relation_words(label)}",
        f"It attends most from {ends.query} to {ends.key} in {estimate(found)} of "
        f"{counted(round(found.events), 'case')}: {point_estimate(tests.margin.at(n))} over the "
        f"best fixed offset ({offset}: {percent(other)}), p {sign} family-wise.",
        found,
        other,
        f"best fixed offset ({offset})",
        p,
    )


CLASSES = {"punctuation": "punctuation", "same_word": "other subword tokens of the same word"}


def _class(results: StackResults, place: Place, found: HeadType | None) -> Iterator[Claim]:
    """The class of tokens that receives most against uniform attention, if at least twice that."""
    if found is not None and found.rest in {*AT, Rest.OFFSET}:
        return
    view, best = results.stack.default_view, None
    asked = [("attention_to", label, name) for label, name in CLASSES.items()]
    asked += [("pos_received", tag, f"{name} ({tag})") for tag, name in TAGS.items()]
    for metric, label, name in asked:
        value = share(results, metric, view, label, place)
        even = _even(results, metric, view, label, place)
        clear = value.events >= FEW and value.low >= TWICE * even > 0
        if clear and (best is None or value.value / even > best[0]):
            best = value.value / even, value, even, name
    if best is not None:
        times, value, even, name = best
        yield Claim(
            "class",
            f"attends to {name}",
            f"{_begun(name)} receive {estimate(value)} of its attention, {times:.1f} times "
            f"uniform attention ({percent(even)}).".replace("Punctuation receive", "Punctuation "
                                                            "receives"),
            value,
            even,
        )  # fmt: skip


REPETITION = {
    "induction_score": ("the token after its earlier occurrence", "an induction head"),
    "duplicate_score": ("its earlier occurrence", "a duplicate-token head"),
}


def _repetition(results: StackResults, place: Place) -> Iterator[Claim]:
    for metric, (where, kind) in REPETITION.items():
        value = share(results, metric, View.RAW, "", place)
        if value.value >= REPEATED and value.low > 0:
            even = _even(results, metric, View.RAW, "", place)
            yield Claim(
                "repetition",
                f"is {kind}",
                f"On repeated random tokens, a token gives {estimate(value)} of its attention to "
                f"{where} (threshold 40{THIN}%; uniform attention: {percent(even)}).",
                value,
                even,
            )


def _shape(results: StackResults, place: Place, found: HeadType | None) -> Iterator[Claim]:
    """How even it is, which keys win, or what it is mixed of."""
    if found is None:
        return
    it, parts = _it(results, found), found.shares.parts
    if found.rest is Rest.UNIFORM:
        value = share(results, "relative_entropy", View.RENORM, "", place)
        said = f"{it} has a normalised entropy of {estimate(value, share=False)}, where 1 is "
        yield Claim("shape", "spreads its attention almost evenly",
                    f"{said}uniform attention.", value, 1.0)  # fmt: skip
    elif found.rest is Rest.KEYS:
        value = share(results, METRIC, View.RENORM, "column", place)
        best = max(found.shares.keys, key=lambda kind: found.shares.keys[kind], default="other")
        often = "" if best == "other" else (
            f"; by class, the key of largest weight is mostly {KEY_NAMES[best]} "
            f"({percent(found.shares.keys[best])} of sentences)"
        )  # fmt: skip
        said = f"{it} attends to the same keys from every query: one weight per key leaves "
        yield Claim("shape", "attends to the same keys from every query",
                    f"{said}{estimate(value, share=False)} unexplained (scale 0 to 1)"
                    f"{often}.", value)  # fmt: skip
    elif found.rest is Rest.OWN:
        value = share(results, METRIC, View.RENORM, "own_sentence", place)
        said = f"{it} keeps {estimate(value)} of its attention in the query's own sentence"
        even = _even(results, METRIC, View.RENORM, "own_sentence", place)
        yield Claim("shape", "attends within the query's own sentence",
                    f"{said}{_uniform(even)}.", value, even)  # fmt: skip
    elif found.rest is Rest.MIXED and parts:
        first, second = found.shares.largest[:2]
        said = f"{it} mixes shares, the largest {PART_NAMES[first]} {percent(parts[first])} and "
        value = share(results, METRIC, View.RENORM, first, place)
        names = [PART_NAMES[part] for part in (first, second)]
        yield Claim("shape", "" if found.sink else f"attends to {' and '.join(names)}",
                    f"{said}{PART_NAMES[second]} {percent(parts[second])}.",
                    value)  # fmt: skip


def _sink(results: StackResults, place: Place, found: HeadType | None) -> Iterator[Claim]:
    """What the sink receives, and what it contributes."""
    given = share(results, "sink_share", View.RAW, "", place)
    if math.isnan(given.value):
        return
    brought = share(results, "sink_norm_share", View.RAW, "", place)
    even, what = _even(results, "sink_share", View.RAW, "", place), sink_words(results)
    text = f"{_begun(what)} receive {estimate(given)} of its attention{_uniform(even)}"
    first = share(results, "attention_to", View.RAW, "first", place).value
    if given.value >= SOME_SINK and first >= ALMOST_ALL * given.value:
        text += ", almost all of it at the first position"
    if not math.isnan(brought.value):
        less = brought.high < given.low
        text += f"{', but' if less else ' and'} contribute {estimate(brought)} of its output norm"
    short = f"attends mostly to {what}" if found is not None and found.sink else ""
    yield Claim("sink", short, f"{text}.", given, even)
