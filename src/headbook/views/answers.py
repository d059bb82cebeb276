"""Why maps collapse into stripes: arguments from the literature, and what a study's numbers say.

Each sentence follows from numbers by rule, names how many heads it speaks of, and is left out
where its numbers are missing.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from headbook.findings import Finding, Link
from headbook.measures.classify import Label
from headbook.numbers.classes import KINDS, OTHER, PATTERN, Classes, Place
from headbook.numbers.results import Numbers, StackResults
from headbook.stored.shown import HeadName
from headbook.terms import View
from headbook.wording import counted, head_name, head_page, number

Parts = list[str | Link]
Rule = Callable[[StackResults, Classes], Iterator[Finding]]

KEYS = dict(
    zip(
        (*KINDS, OTHER),
        ("first token", "separators", "other special tokens", "punctuation", "other tokens"),
        strict=True,
    )
)
NAMED = 6  # heads that a sentence names
BY_DISTANCE = (Label.DIAGONAL, Label.WINDOW)


@dataclass(frozen=True)
class Answer:
    """A question, the argument of the literature, and what the numbers say to it."""

    question: str
    argument: str
    findings: tuple[Finding, ...]


def answers(results: StackResults, classes: Classes) -> Iterator[Answer]:
    """The questions that a stack's numbers say something to."""
    for question, (argument, rules) in QUESTIONS.items():
        found = tuple(finding for rule in rules for finding in rule(results, classes))
        if found:
            yield Answer(question, argument, found)


def offset_name(offset: int) -> str:
    """An offset as pages write it."""
    return f"{offset:+d}".replace("-", "−") if offset else "0"


def sink_name(results: StackResults) -> str:
    """What the sink of a stack is, in words."""
    return "special tokens or the first token" if results.stack.causal else "special tokens"


def _layers(results: StackResults, classes: Classes) -> Iterator[Finding]:
    """How many heads are vertical, and in which layer most."""
    known = _having(classes, *Label)
    vertical = _having(classes, Label.VERTICAL)
    text = f"{len(vertical):,} of {counted(len(known), 'head')} are vertical"
    if vertical:
        per_layer = Counter(layer for layer, _ in vertical)
        layer, most = min(per_layer.items(), key=lambda item: (-item[1], item[0]))
        size = sum(place[0] == layer for place in known)
        text += f"; layer {layer} has most of them, {most:,} of {size:,}"
    broad = len(_having(classes, Label.BROAD))
    text += f". Of the others, {broad:,} look at the same keys from everywhere, too, but at many"
    yield Finding((f"{text}.",), _sentences(results))


def _stripes(results: StackResults, classes: Classes) -> Iterator[Finding]:
    """Shares by layer: how much stripes explain, heads of all classes together."""
    if not results.has(PATTERN, View.RAW, "vertical"):
        return
    layers = results.layers(PATTERN, View.RAW, "vertical")
    there = [layer for layer in results.stack.attention_layers if not np.isnan(layers.value[layer])]
    low, top = (pick(there, key=lambda at: float(layers.value[at])) for pick in (min, max))
    said = {at: number(float(layers.value[at]), share=True) for at in (low, top)}
    yield Finding(
        (
            "Stripes and even attention together explain ",
            Link(f"{said[top]} of the attention", f"metrics/{PATTERN}.html"),
            f" of layer {top}" + (f" and {said[low]} of that of layer {low}" if low != top else ""),
            f", the most and the least of {counted(len(there), 'layer')}." if low != top else ".",
        ),
        int(layers.sentences[top]),
    )


def _kinds(results: StackResults, classes: Classes) -> Iterator[Finding]:
    """What the stripes of vertical heads stand on."""
    vertical = _having(classes, Label.VERTICAL)
    keys = {place: each.keys for place in vertical if (each := classes[place]) and each.keys}
    if not keys:
        return
    counts = Counter(keys.values()).most_common()
    listed = ", ".join(f"{KEYS[kind]} ({n:,})" for kind, n in counts)
    parts: Parts = [f"What the stripes of {counted(len(keys), 'vertical head')} stand on: {listed}"]
    words = [place for place, kind in keys.items() if kind in {KINDS[3], OTHER}]
    if words:
        parts += [". Stripes on punctuation or on words: ", *_named(results, words)]
    yield Finding((*parts, "."), _sentences(results))


def _parked(results: StackResults, classes: Classes) -> Iterator[Finding]:
    """How much vertical heads give to the sink, beside all others."""
    if not results.has("sink_share", View.RAW):
        return
    given = results.heads("sink_share", View.RAW)
    vertical = _having(classes, Label.VERTICAL)
    own = _values(given, vertical)
    rest = _values(given, [place for place in _having(classes, *Label) if place not in vertical])
    if own:
        even = float(np.nanmax(results.uniform("sink_share", View.RAW).value))
        beside = f"; the other {len(rest):,} give {_mean(rest)}" if rest else ""
        yield Finding(
            (
                f"The {counted(len(own), 'vertical head')} give {_mean(own)} of their attention to "
                f"{sink_name(results)}",
                f"{beside}; uniform attention would give {number(even, share=True)}.",
            ),
            int(given.sentences.max()),
        )


def _carried(results: StackResults, classes: Classes) -> Iterator[Finding]:
    """How much of the output of vertical heads comes from the sink."""
    if not all(results.has(name, View.RAW) for name in ("sink_share", "sink_norm_share")):
        return
    given, carried = (results.heads(m, View.RAW) for m in ("sink_share", "sink_norm_share"))
    vertical = [place for place in _having(classes, Label.VERTICAL) if given.value[place] > 0]
    brought = _values(carried, vertical)
    idle = [place for place in vertical if carried.high[place] < given.low[place] / 2]
    if brought:
        yield Finding(
            (
                f"Of the length of what {counted(len(brought), 'vertical head')} bring, ",
                Link(_mean(brought), "metrics/sink_norm_share.html"),
                f" comes from {sink_name(results)}. In {len(idle):,} of them that is less than "
                "half of its share of their attention, intervals apart.",
            ),
            int(carried.sentences.max()),
        )


def _distances(results: StackResults, classes: Classes) -> Iterator[Finding]:
    """Which heads go by distance, and which distance."""
    slanted, known = _having(classes, *BY_DISTANCE), _having(classes, *Label)
    offsets = [each.offset for p in slanted if (each := classes[p]) and each.offset is not None]
    of = f"of {counted(len(known), 'head')}"
    parts: Parts = [f"{len(slanted):,} {of} go by distance: diagonal, or in a window"]
    if slanted:
        parts += [" (", *_named(results, slanted), ")"]
    if offsets:
        listed = ", ".join(f"{offset_name(o)} ({n:,})" for o, n in Counter(offsets).most_common())
        parts.append(f". Their strongest offsets, key minus query: {listed}")
        own = offsets.count(0)
        parts.append(f"; {own:,} of {len(offsets):,} look at the token itself most")
    yield Finding((*parts, "."), _sentences(results))


def _sure(results: StackResults, classes: Classes) -> Iterator[Finding]:
    """How confident heads that go by distance are, and how much they park."""
    slanted = _having(classes, *BY_DISTANCE)
    others = [place for place in _having(classes, *Label) if place not in slanted]
    for metric, what in (
        ("confidence", "The strongest weight of a row is on average"),
        ("sink_share", f"The share of attention that {sink_name(results)} get is"),
    ):
        if results.has(metric, View.RAW):
            numbers = results.heads(metric, View.RAW)
            own, rest = _values(numbers, slanted), _values(numbers, others)
            if own and rest:
                yield Finding(
                    (
                        *(what, " ", Link(_mean(own), f"metrics/{metric}.html")),
                        f" in the {counted(len(own), 'head')} by distance, {_mean(rest)} in the "
                        f"other {len(rest):,}.",
                    ),
                    int(numbers.sentences.max()),
                )


QUESTIONS: dict[str, tuple[str, tuple[Rule, ...]]] = {
    "Why do whole layers collapse into vertical lines?": (
        "The usual explanation: every query must give all of its attention somewhere, and a head "
        "with nothing to say parks it where next to nothing is brought, on special tokens or on "
        "the first one (Clark et al. 2019, Kobayashi et al. 2020, Xiao et al. 2023). Then stripes "
        "stand on the sink, and the sink carries little. Another one is that tokens have become "
        "alike, so that all queries ask the same (Dong et al. 2021); this page does not test it.",
        (_layers, _stripes, _kinds, _parked, _carried),
    ),
    "And why not into diagonals?": (
        "A place to park must bring next to nothing to every query. One fixed token can learn "
        "such a value; the token itself cannot, its value being content. That is an inference, "
        "and the numbers can only agree with it: heads on the token itself should be rare.",
        (_distances,),
    ),
    "Are near-diagonal heads dead?": (
        "Elsewhere they are not: in translation models, heads that look one token to the side are "
        "the most confident and among the last to be pruned (Voita et al. 2019). Whether this "
        "model needs its own, only taking them away would tell, which is not measured here.",
        (_sure,),
    ),
}


def _having(classes: Classes, *labels: Label) -> list[Place]:
    return [place for place, each in classes.items() if each is not None and each.label in labels]


def _sentences(results: StackResults) -> int:
    return int(results.heads(PATTERN, View.RAW, "column").sentences.max())


def _named(results: StackResults, places: Sequence[Place]) -> Parts:
    """Heads by name, the first few."""
    parts: Parts = []
    for place in places[:NAMED]:
        head = HeadName(results.stack.name, *place)
        parts += [", ", Link(head_name(head), head_page(head))]
    more = [f" and {len(places) - NAMED:,} more"] if len(places) > NAMED else []
    return [*parts[1:], *more]


def _values(numbers: Numbers, places: Sequence[Place]) -> list[float]:
    found = [float(numbers.value[place]) for place in places]
    return [value for value in found if not np.isnan(value)]


def _mean(values: Sequence[float]) -> str:
    """A mean over heads with the least and the most."""
    mean = number(float(np.mean(values)), share=True)
    least, most = (number(end(values), share=True) for end in (min, max))
    return mean if len(values) == 1 else f"{mean} ({least} to {most})"
