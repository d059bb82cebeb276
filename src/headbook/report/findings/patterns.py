"""Questions about sinks and positions: arguments of the literature, and a study's numbers.

Each sentence follows from numbers by rule, states how many heads it covers, and is left out if its
numbers are missing.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from headbook.analysis.accumulators import Estimates
from headbook.metrics import ids
from headbook.report.findings.ablation import replaced
from headbook.report.findings.finding import Finding, Link
from headbook.report.head_types import OffSinkType, Place, Types, share_of_head
from headbook.report.results import StackResults
from headbook.report.roles import sink_words
from headbook.report.wording import (
    count_text,
    head_name,
    head_page,
    in_hundred,
    number,
    number_word,
    percent,
)
from headbook.schema import SinkView
from headbook.study.sentence_data import HeadName

Parts = list[str | Link]
Rule = Callable[[StackResults, Types], Iterator[Finding]]

PATTERN = ids.PATTERN
# Kinds of sink keys; the first token and separators count as special tokens once more.
SINK_KEY_NAMES = {
    "first": "the first token",
    "separator": "separators",
    "special": "other special tokens",
}
MAX_NAMED_HEADS = 4  # in one sentence
POSITIONAL = (
    OffSinkType.PREVIOUS,
    OffSinkType.NEXT,
    OffSinkType.SELF,
    OffSinkType.OFFSET,
    OffSinkType.WINDOW,
)


@dataclass(frozen=True)
class Discussion:
    """A question, the argument of the literature, and the findings that bear on it."""

    question: str
    argument: str
    findings: tuple[Finding, ...]


def discussions(results: StackResults, types: Types) -> Iterator[Discussion]:
    """Yield the questions for which a stack has findings."""
    for question, (argument, rules) in QUESTIONS.items():
        findings = tuple(finding for rule in rules for finding in rule(results, types))
        if findings:
            note = ""
            if _removed in rules and results.study.corpus_sums.ablation is None:
                note = " Only ablation would show whether this holds here; it is not measured."
            yield Discussion(question, argument + note, findings)


def _layers(results: StackResults, types: Types) -> Iterator[Finding]:
    """Yield the number of sink heads, and the layer with most of them."""
    heads, sinks = _known(types), _sinks(types)
    if not heads:
        return
    text = f"Sink heads: {len(sinks):,} of {len(heads):,}"
    if sinks:
        per_layer = Counter(layer for layer, _ in sinks)
        layer, most = min(per_layer.items(), key=lambda item: (-item[1], item[0]))
        size = sum(cell[0] == layer for cell in heads)
        text += f", most of them in layer {layer} ({most:,} of {size:,} heads)"
    n_even = sum(
        kind.rest is OffSinkType.UNIFORM and not kind.sink for kind in types.values() if kind
    )
    even_note = f" Near-uniform heads: {n_even:,}." if _measured(types) else ""
    yield Finding((f"{text}.{even_note}",), _sentences(results))


def _columns(results: StackResults, types: Types) -> Iterator[Finding]:
    """Yield the share of attention that fixed keys explain, in the extreme layers."""
    if not results.has_value(PATTERN, SinkView.RAW, "vertical"):
        return
    layers = results.layers(PATTERN, SinkView.RAW, "vertical")
    layers_with_value = [
        layer for layer in results.stack.attention_layers if not np.isnan(layers.value[layer])
    ]
    low, high = (
        extreme(layers_with_value, key=lambda layer: float(layers.value[layer]))
        for extreme in (min, max)
    )
    shares = {layer: number(float(layers.value[layer]), share=True) for layer in (low, high)}
    yield Finding(
        (
            "Attention to the same keys from every query, or to all alike, explains ",
            Link(shares[high], f"metrics/{PATTERN}.html"),
            f" of the attention in layer {high}",
            f" (most) and {shares[low]} in layer {low} (least)." if low != high else ".",
        ),
        int(layers.sentences[high]),
    )


def _kinds(results: StackResults, types: Types) -> Iterator[Finding]:
    """Yield which kinds of sink key receive most attention in sink heads."""
    kinds = Counter(kind for sink in _sinks(types) if (kind := _key(results, sink)))
    if kinds:
        listed = ", ".join(
            f"{SINK_KEY_NAMES[kind]} ({n_heads:,})" for kind, n_heads in kinds.most_common()
        )
        heads = count_text(sum(kinds.values()), "sink head")
        yield Finding(
            (f"Largest part of the attention to the sink, over {heads}: {listed}.",),
            _sentences(results),
        )


def _key(results: StackResults, place: Place) -> str:
    """Return the kind of sink key that receives most from a head; empty if none is known."""
    shares = {
        kind: share_of_head(results, ids.ATTENTION_TO, SinkView.RAW, kind, place).value
        for kind in SINK_KEY_NAMES
    }
    shares = {kind: 0.0 if np.isnan(value) else value for kind, value in shares.items()}
    shares["special"] = max(shares["special"] - shares["first"] - shares["separator"], 0.0)
    best = max(shares, key=lambda kind: shares[kind])
    return best if shares[best] > 0 else ""


def _given(results: StackResults, types: Types) -> Iterator[Finding]:
    """Yield the attention of sink heads to the sink, compared with all other heads."""
    if not results.has_value(ids.SINK_SHARE, SinkView.RAW):
        return
    numbers, sinks = results.heads(ids.SINK_SHARE, SinkView.RAW), _sinks(types)
    sink_shares = _values(numbers, sinks)
    other_shares = _values(numbers, [cell for cell in _known(types) if cell not in sinks])
    if sink_shares:
        uniform = float(np.nanmax(results.uniform(ids.SINK_SHARE, SinkView.RAW).value))
        other_note = (
            f"; the other {len(other_shares):,}: {_mean(other_shares)}" if other_shares else ""
        )
        heads = count_text(len(sink_shares), "sink head")
        yield Finding(
            (
                f"Mean attention to {sink_words(results)} in {heads}: "
                f"{_mean(sink_shares)}{other_note}; "
                f"uniform attention: {number(uniform, share=True)}.",
            ),
            int(numbers.sentences.max()),
        )


def _contributed(results: StackResults, types: Types) -> Iterator[Finding]:
    """Yield the sink's share of the output of sink heads."""
    if not all(
        results.has_value(name, SinkView.RAW) for name in (ids.SINK_SHARE, ids.SINK_NORM_SHARE)
    ):
        return
    attention, norm_share = (
        results.heads(name, SinkView.RAW) for name in (ids.SINK_SHARE, ids.SINK_NORM_SHARE)
    )
    sinks = [sink for sink in _sinks(types) if attention.value[sink] > 0]
    values = _values(norm_share, sinks)
    idle = [sink for sink in sinks if norm_share.high[sink] < attention.low[sink] / 2]
    if values:
        yield Finding(
            (
                f"In {count_text(len(values), 'sink head')}, {sink_words(results)} contribute ",
                Link(_mean(values), "metrics/sink_norm_share.html"),
                " of the value-weighted norm. Less than half of their share of attention, "
                f"95 % intervals apart: in {number_word(len(idle))} of these heads.",
            ),
            int(norm_share.sentences.max()),
        )


def _positions(results: StackResults, types: Types) -> Iterator[Finding]:
    """Yield the number of positional heads, by type."""
    positional, measured = _positional(types), _measured(types)
    if not measured:
        return
    parts: Parts = [f"Positional heads: {len(positional):,} of {len(measured):,}"]
    if positional:
        names = Counter(head_type.rest for place in positional if (head_type := types[place]))
        listed = ", ".join(f"{rest} ({n_heads:,})" for rest, n_heads in names.most_common())
        parts += [f", by type {listed}: ", *_named(results, positional)]
    yield Finding((*parts, "."), _sentences(results))


def _sure(results: StackResults, types: Types) -> Iterator[Finding]:
    """Yield the largest weights of positional heads, and their attention to the sink."""
    positional = _positional(types)
    others = [cell for cell in _known(types) if cell not in positional]
    for metric, measure in (
        (ids.CONFIDENCE, "Mean maximum weight"),
        (ids.SINK_SHARE, f"Attention to {sink_words(results)}"),
    ):
        if results.has_value(metric, SinkView.RAW):
            numbers = results.heads(metric, SinkView.RAW)
            positional_values, other_values = _values(numbers, positional), _values(numbers, others)
            if positional_values and other_values:
                yield Finding(
                    (
                        f"{measure}: ",
                        Link(_mean(positional_values), f"metrics/{metric}.html"),
                        f" in {count_text(len(positional_values), 'positional head')}, "
                        f"{_mean(other_values)} in the other {len(other_values):,}.",
                    ),
                    int(numbers.sentences.max()),
                )


def _removed(results: StackResults, types: Types) -> Iterator[Finding]:
    """Yield verdicts on positional heads whose output was replaced."""
    yield from without(results, _positional(types), "positional head")


def without(results: StackResults, places: Sequence[Place], noun: str) -> Iterator[Finding]:
    """Yield verdicts on some heads of a stack that were replaced one at a time, if any was."""
    ablation = results.study.corpus_sums.ablation
    if ablation is None:
        return
    wanted = {HeadName(results.stack.name, *place) for place in places}
    amount, how, verdicts = replaced(ablation, wanted)
    if amount:
        yield Finding(
            (
                f"Of {count_text(amount, noun)} ",
                Link("replaced one at a time", "importance.html#list"),
                f"{how}, {verdicts}.",
            ),
            len(ablation.content_hash),
        )


QUESTIONS: dict[str, tuple[str, tuple[Rule, ...]]] = {
    "Why do most heads of a layer attend to the same token?": (
        "A common explanation: weights sum to 1, so a head with nothing to add attends to tokens "
        "whose values are near zero, such as special tokens or the first (Clark et al. 2019, "
        "Kobayashi et al. 2020, Xiao et al. 2023). Another: tokens have become alike, and with "
        "them all queries (Dong et al. 2021); not tested here.",
        (_layers, _kinds, _given, _contributed, _columns),
    ),
    "Why not to the token itself?": (
        "A sink needs values near zero for every query. One fixed token can learn such a value; "
        "the token itself cannot, because its value depends on its content. Under this inference "
        "self heads are rare.",
        (_positions,),
    ),
    "Do positional heads contribute?": (
        "In translation models, previous-token and next-token heads have the highest confidence "
        "and are among the last to be pruned (Voita et al. 2019).",
        (_sure, _removed),
    ),
}


def _known(types: Types) -> list[Place]:
    return [cell for cell, kind in types.items() if kind is not None]


def _measured(types: Types) -> list[Place]:
    """Return the heads whose type outside the sink is known."""
    return [cell for cell, kind in types.items() if kind is not None and kind.measured]


def _sinks(types: Types) -> list[Place]:
    return [cell for cell, kind in types.items() if kind is not None and kind.sink]


def _positional(types: Types) -> list[Place]:
    """Return the heads of one offset or a window whose type does not begin with the sink."""
    return [
        place for place, kind in types.items() if kind and not kind.sink and kind.rest in POSITIONAL
    ]


def _sentences(results: StackResults) -> int:
    return int(results.heads(PATTERN, SinkView.RAW, "column").sentences.max())


def _named(results: StackResults, places: Sequence[Place]) -> Parts:
    """Return the first few heads as links, and the number of the others."""
    parts: Parts = []
    for cell in places[:MAX_NAMED_HEADS]:
        head = HeadName(results.stack.name, *cell)
        parts += [", ", Link(head_name(head), head_page(head))]
    others = (
        [f" and {number_word(len(places) - MAX_NAMED_HEADS)} more"]
        if len(places) > MAX_NAMED_HEADS
        else []
    )
    return [*parts[1:], *others]


def _values(numbers: Estimates, places: Sequence[Place]) -> list[float]:
    values = [float(numbers.value[cell]) for cell in places]
    return [value for value in values if not np.isnan(value)]


def _mean(values: Sequence[float]) -> str:
    """Return a mean over heads as text, with the smallest and the largest value."""
    mean, range_text = (
        percent(float(np.mean(values))),
        f"{in_hundred(min(values))} to {percent(max(values))}",
    )
    return mean if len(values) == 1 else f"{mean} (range over heads {range_text})"
