"""Attention flow, context mixing, and heads by output norm."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from headbook.analysis.accumulators import Estimates
from headbook.analysis.arrays import effective_number
from headbook.charts import Figure, heat_map, layer_curve
from headbook.metrics import all_metrics, ids
from headbook.pages.metric import study_metrics
from headbook.pages.parts.page import Page, StackSection, gap_text
from headbook.pages.parts.table import (
    DASH,
    Content,
    NumberCell,
    PageTable,
    Row,
    domain,
    layer_frame,
    layer_table,
    words_cell,
)
from headbook.report.findings.finding import head_link
from headbook.report.results import StackResults, study_of
from headbook.report.wording import (
    STACKS,
    TOKEN_CLASSES,
    count_text,
    head_name,
    highest_text,
    number,
    number_word,
    percent,
    tie_note,
    tied_places,
)
from headbook.schema import CLASSES, ResidualPoint, SinkView
from headbook.study.manifest import MissingPart
from headbook.study.sentence_data import HeadName

OUTPUT = ids.OUTPUT_NORM_SHARE
VIEW = SinkView.RAW
COLUMNS = ("Layer", "effective heads", "largest", "share", "smallest", "share")


@dataclass(frozen=True)
class Outputs:
    """The heads of a stack by what they write.

    Attributes:
        sentences: what the numbers say, in sentences.
        n_heads: heads of a layer.
        figure: share of every head.
        table: by layer, the heads with the largest and the smallest share.
    """

    sentences: tuple[str, ...]
    n_heads: int
    figure: Figure
    table: PageTable


def outputs(results: StackResults) -> Outputs | None:
    """What the heads of a stack write; None where that was not measured."""
    if not results.has_value(OUTPUT, VIEW):
        return None
    numbers = results.heads(OUTPUT, VIEW)
    rows = tuple(
        _row(results, layer, effective_number(numbers.value[layer]))
        for layer in results.stack.attention_layers
    )
    return Outputs(
        sentences=tuple(_output_sentences(results, numbers)),
        n_heads=results.stack.n_heads,
        figure=_figure(results, numbers),
        table=PageTable(COLUMNS, rows, "Heads of each layer by share of the output norm."),
    )


def _row(results: StackResults, layer: int, count: float) -> Row:
    values = results.heads(OUTPUT, VIEW).value[layer]
    heads: tuple[Content, ...] = (DASH,) * 4
    if not np.isnan(values).all():
        heads = tuple(
            each
            for lowest in (False, True)
            for each in _extreme(results, layer, tied_places(values, percent, lowest=lowest))
        )
    return Row(f"L{layer}", (number(count), *heads))


def _extreme(
    results: StackResults, layer: int, heads: Sequence[tuple[int, ...]]
) -> tuple[Content, Content]:
    """Return the cells of the head of a layer with an extreme share, and of that share."""
    (first,), *others = heads
    name = HeadName(results.stack.name, layer, first)
    note = tie_note([head_name(name._replace(head=other)) for (other,) in others])
    share = NumberCell.of(results.heads(OUTPUT, VIEW).at(layer, first), all_metrics()[OUTPUT])
    return words_cell(head_link(name), note) if note else head_link(name), share


def _output_sentences(results: StackResults, numbers: Estimates) -> Iterator[str]:
    stack = results.stack
    counts = np.array([effective_number(shares) for shares in numbers.value])
    if np.isnan(counts).all() or stack.n_heads < 2:
        return
    fewest, most = (
        highest_text(counts, number, lambda layer: f"layer {layer}", lowest=lowest)
        for lowest in (True, False)
    )
    yield f"Effective heads: fewest in {fewest}; most in {most}; {stack.n_heads} heads per layer."

    def head(layer: int, head: int) -> str:
        return head_name(HeadName(stack.name, layer, head))

    largest, smallest = (
        highest_text(numbers.value, percent, head, lowest=low) for low in (False, True)
    )
    yield (
        f"Largest share of a layer's output norm: {largest}; smallest: {smallest}; equal heads: "
        f"{percent(1 / stack.n_heads)} each."
    )


def _figure(results: StackResults, numbers: Estimates) -> Figure:
    there = np.nonzero(~np.isnan(numbers.value))
    columns = dict(zip(("layer", "head"), there, strict=True))
    values = {n: getattr(numbers, n)[there] for n in ("value", "low", "high")}
    caption = (
        f"Share of each head in its layer's output norm ({STACKS[results.stack.name]}), all keys. "
        "Rows: layers, columns: heads."
    )
    return heat_map(
        f"flow-outputs-{results.stack.name}",
        caption,
        pd.DataFrame({**columns, **values}).assign(view=str(VIEW), label=""),
        title="share of the layer's output norm",
        domain=domain(numbers.value, all_metrics()[OUTPUT].limits),
        show={"view": str(VIEW), "label": ""},
        share=True,
    )


MIXING, HALF, MEASURED = ids.MIXING_RATIO, ids.ROLLOUT_SELF, ids.ROLLOUT_SELF_MEASURED
STATES = {MIXING: ResidualPoint.MID, HALF: ResidualPoint.POST, MEASURED: ResidualPoint.POST}
KINDS = {MEASURED: "measured ratios", HALF: "one half in each layer"}
TITLES = {
    MIXING: "context-mixing ratio",
    **{name: f"own input, {kind}" for name, kind in KINDS.items()},
}


@dataclass(frozen=True)
class FlowSection(StackSection):
    """One kind of attention.

    Attributes:
        sentences: what the numbers say, in sentences.
        figures: mixing by class of tokens, and what is left of a token's own input.
        table: the same numbers; None without any.
        classes: mixing of every class of tokens, a column for each layer; None without it.
        outputs: which heads a layer's output comes from; None where that is not known.
    """

    sentences: tuple[str, ...]
    figures: tuple[Figure, ...]
    table: PageTable | None
    classes: PageTable | None
    outputs: Outputs | None


@dataclass(frozen=True, kw_only=True)
class FlowPage(Page):
    """What attention carries, in all stacks.

    Attributes:
        metrics: ids of what was measured and has a page.
        sections: by stack.
        remarks: what is missing, and why.
    """

    template: ClassVar[str] = "flow.html"
    metrics: tuple[str, ...]
    sections: tuple[FlowSection, ...]
    remarks: tuple[str, ...]


def _sections(results: Mapping[str, StackResults]) -> tuple[FlowSection, ...]:
    return tuple(section for r in results.values() if (section := r.cached(_section)))


def has_flow(results: Mapping[str, StackResults]) -> bool:
    """Return whether a study has value-weighted norms."""
    return bool(_sections(results))


def flow_page(results: Mapping[str, StackResults]) -> FlowPage:
    """The page of flow."""
    manifest = study_of(results).manifest
    asked = {MIXING, HALF, MEASURED, MissingPart.VALUES}
    lines = [gap_text(gap) for gap in manifest.gaps if gap.key in asked]
    return FlowPage(
        path="flow.html",
        title="Attention flow",
        description=f"How much information the attention of {manifest.model.name} moves between "
        "tokens, what remains of a token's own input, and which heads contribute.",
        metrics=tuple(metric.id for metric in study_metrics(results)),
        sections=_sections(results),
        remarks=tuple(dict.fromkeys(lines)),
    )


def _section(results: StackResults) -> FlowSection | None:
    estimates = {name: _tokens(results, name, "all") for name in TITLES}
    there = {name: numbers for name, numbers in estimates.items() if numbers is not None}
    heads = outputs(results)
    if not there and heads is None:
        return None
    stack = results.stack
    columns = [(TITLES[name], n, all_metrics()[name]) for name, n in there.items()]
    layers = range(stack.n_layers)
    return FlowSection(
        stack=stack.name,
        sentences=tuple(_flow_sentences(results, there)),
        figures=tuple(_figures(results, there)),
        table=layer_table(layers, columns, "All tokens of text, by layer.", "L") if there else None,
        classes=_classes(results) if MIXING in there else None,
        outputs=heads,
    )


def _tokens(results: StackResults, metric: str, label: str) -> Estimates | None:
    return results.tokens(metric, STATES[metric], None, label)


def _flow_sentences(results: StackResults, there: Mapping[str, Estimates]) -> Iterator[str]:
    if MIXING in there:
        yield from _mixing_sentence(results, there[MIXING])
    ends = [f"{percent(n.value[-1])} ({KINDS[k]})" for k, n in there.items() if k in KINDS]
    if ends:
        last = results.stack.n_layers - 1
        yield (f"Attention rollout, mean share of own input after layer {last}: {', '.join(ends)}.")


def _mixing_sentence(results: StackResults, numbers: Estimates) -> Iterator[str]:
    least, most = int(np.nanargmin(numbers.value)), int(np.nanargmax(numbers.value))
    yield (
        f"Context-mixing ratio: {percent(numbers.value[least])} (layer {least}) to "
        f"{percent(numbers.value[most])} (layer {most}); attention rollout assumes 50 %."
    )
    function, content = (_tokens(results, MIXING, name) for name in ("function", "content"))
    if function is None or content is None:
        return
    apart = np.flatnonzero((function.low > content.high) | (function.high < content.low))
    more = [int(i) for i in apart if function.value[i] > content.value[i]]
    if len(apart):
        layers = results.stack.n_layers
        less = number_word(len(apart) - len(more))
        where = f"{number_word(len(more))} of {layers} layers and less in {less}"
        if len(more) == layers:
            where = f"all {count_text(layers, 'layer')}"
        yield (
            f"Function words mix in more context than content words in {where} "
            "(95 % intervals apart)."
        )
    else:
        yield "No clear difference between function words and content words in any layer."


def _figures(results: StackResults, there: Mapping[str, Estimates]) -> Iterator[Figure]:
    stack = results.stack
    most = max((n.sentences.max() for n in there.values()), default=0)
    behind = f"Means over tokens{results.sample_note(int(most), ' of')}"
    if MIXING in there:
        series = {title: _tokens(results, MIXING, name) for name, title in TOKEN_CLASSES.items()}
        caption = (
            f"Context-mixing ratio by layer and class of tokens ({STACKS[stack.name]}): share of "
            f"other tokens in the output of an attention block. {behind}, 95 % intervals."
        )
        yield _curve(f"flow-mixing-{stack.name}", caption, series, "context-mixing ratio")
    kinds = {KINDS[name]: numbers for name, numbers in there.items() if name in KINDS}
    if kinds:
        caption = (
            f"Attention rollout, share of own input after each layer ({STACKS[stack.name]}): with "
            f"measured context-mixing ratios, and as published, with one half in each layer. "
            f"{behind}, 95 % intervals."
        )
        yield _curve(f"flow-rollout-{stack.name}", caption, kinds, "share of own input")


def _curve(name: str, caption: str, series: Mapping[str, Estimates | None], title: str) -> Figure:
    frames = [layer_frame(numbers, label) for label, numbers in series.items() if numbers]
    rows = pd.concat(frames, ignore_index=True).assign(state="")
    return layer_curve(name, caption, rows, title=title, show={"state": ""}, share=True)


def _classes(results: StackResults) -> PageTable:
    """Every class that some token belongs to."""
    rows = []
    for label in CLASSES:
        numbers = _tokens(results, MIXING, label)
        if numbers is not None:
            layers = range(len(numbers.value))
            cells = (NumberCell.of(numbers.at(i), all_metrics()[MIXING]) for i in layers)
            rows.append(Row(TOKEN_CLASSES.get(label, _class_name(label)), tuple(cells)))
    caption = (
        "Context-mixing ratio by class of tokens and layer. Grey: fewer than ten effective "
        "sentences."
    )
    return PageTable(("Tokens", *range(results.stack.n_layers)), tuple(rows), caption)


def _class_name(label: str) -> str:
    """A part of speech as it is; other classes as words."""
    return label if label.isupper() else f"{label} subword tokens"
