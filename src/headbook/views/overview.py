"""The first page: what was run, what was found, and the way to everything else."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from headbook.charts import Figure
from headbook.findings import Finding, find
from headbook.manifest import Manifest
from headbook.metrics.base import Chart, HeadMetric
from headbook.results import StackResults
from headbook.shown import HeadName
from headbook.terms import Side
from headbook.views.cells import colour_step, domain
from headbook.views.metric import MetricPage
from headbook.views.page import Page, gap_texts
from headbook.views.ranked import tests_of
from headbook.wording import (
    MISSING,
    STACKS,
    counted,
    head_name,
    head_page,
    is_share,
    label_name,
    number,
    percent,
)

FIRST = ("attention_distance", "relative_entropy", "sink_share")  # the grid begins with one of them
CURVES = (*FIRST, "cosine_to_input", "vocabulary_rank")
MOST_CURVES = 8  # on the page; several stacks share them
NO_STEP = -1


@dataclass(frozen=True)
class GridCell:
    """A head in the grid.

    Attributes:
        name, href: the head and its page.
        text: its value, short.
        step: place on the colour scale; -1 where the value is missing.
    """

    name: str
    href: str
    text: str
    step: int


@dataclass(frozen=True)
class Grid:
    """All heads of a stack under one metric.

    Attributes:
        stack, title: the kind of attention, as files and as pages call it.
        chosen: the metric that the page shows first, as a key of `grid_data`.
        choices: all metrics by key, grouped by the metric's title.
        caption: what is shown, in words.
        low, high: ends of the colour scale.
        heads: head numbers, the table's columns.
        rows: layer numbers with their cells.
    """

    stack: str
    title: str
    chosen: str
    choices: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    caption: str
    low: str
    high: str
    heads: tuple[int, ...]
    rows: tuple[tuple[int, tuple[GridCell, ...]], ...]


@dataclass(frozen=True)
class FindingGroup:
    """What was found in one stack."""

    title: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True)
class OverviewPage(Page):
    """The first page.

    Attributes:
        facts: what was run, as terms and values.
        notes: the author's own words, in Markdown.
        warnings: what a reader must know before trusting the numbers.
        findings: sentences computed from the numbers, by stack.
        grids: all heads, by stack.
        figures: curves over layers, by stack.
        sentences: whether there are pages of sentences.
    """

    template: ClassVar[str] = "index.html"
    facts: tuple[tuple[str, str], ...]
    notes: str
    warnings: tuple[str, ...]
    findings: tuple[FindingGroup, ...]
    grids: tuple[Grid, ...]
    figures: tuple[tuple[str, tuple[Figure, ...]], ...]
    sentences: bool


def overview_page(
    results: Mapping[str, StackResults], metric_pages: Sequence[MetricPage]
) -> OverviewPage:
    """The first page of a study's site."""
    study = next(iter(results.values())).study
    manifest = study.manifest
    found = [
        FindingGroup(STACKS[name], tuple(find(r, r.once(tests_of)))) for name, r in results.items()
    ]
    return OverviewPage(
        path="index.html",
        title=manifest.title,
        description=f"Attention heads and token paths of {manifest.model.name} on "
        f"{counted(manifest.counts['sentences'], 'sentence')}: numbers, charts and exemplars.",
        facts=tuple(_facts(manifest)),
        notes=manifest.notes,
        warnings=tuple(_warnings(manifest)),
        findings=tuple(group for group in found if group.findings),
        grids=tuple(_grid(r) for r in results.values() if r.metrics),
        figures=tuple(_curves(results, metric_pages)),
        sentences=any(s.listed for s in study.portrait.sentences.values()),
    )


def grid_data(results: StackResults) -> dict[str, Any]:
    """Every choice of a grid: colours and texts of the cells, row by row, and the caption."""
    return {
        _key(metric, label): _choice(results, metric, label)
        for metric in results.metrics
        for label in _labels(results, metric)
    }


def _facts(manifest: Manifest) -> Iterator[tuple[str, str]]:
    model = manifest.model
    yield "Model", f"{model.name} · {model.architecture} · {model.kind}"
    for stack in manifest.stacks:
        shape = f"{len(stack.attention_layers)} layers × {stack.n_heads} heads"
        shared = f", {stack.n_key_heads} key heads" if stack.n_key_heads < stack.n_heads else ""
        yield STACKS[stack.name].capitalize(), shape + shared
    yield "Parameters", f"{model.parameters:,} ({model.dtype})"
    for file in manifest.inputs:
        yield (
            "Input",
            f"{file.name} · {counted(file.sentences, 'sentence')}"
            + (f" · {counted(file.blank, 'blank line')} skipped" if file.blank else ""),
        )
    if manifest.options.get("pack"):
        joined = counted(manifest.counts["sentences"], "passage")
        most = f"at most {manifest.options['pack']:,} tokens each"
        yield "Passages", f"{joined}, {most}; where pages say sentences, they mean these"
    for side in Side:
        tokens = manifest.count(side, "tokens")
        if tokens:
            special = manifest.count(side, "special")
            name = "Tokens" if side is Side.SOURCE else "Target tokens"
            yield name, f"{tokens:,}, of which {special:,} special"
    yield (
        "Annotation",
        "; ".join(
            name if len(manifest.annotators) == 1 else f"{side}: {name}"
            for side, name in manifest.annotators.items()
        ),
    )
    yield "Made", f"{manifest.created} with Headbook {manifest.headbook}"


def _warnings(manifest: Manifest) -> Iterator[str]:
    model = manifest.model
    for side in Side:
        cut = manifest.count(side, "cut_sentences")
        if cut:
            lost = manifest.count(side, "cut_tokens")
            yield (
                f"{counted(cut, f'{side} text')} longer than {model.limit:,} tokens: cut at the "
                f"end, {counted(lost, 'token')} lost. Their pages say so."
            )
    unread = manifest.counts.get("unread_targets", 0)
    if unread:
        yield (
            f"{counted(unread, 'target')} of source-target pairs not read: {model.name} takes one "
            "text. They are kept as metadata."
        )
    written = manifest.count(Side.TARGET, "generated")
    if written:
        yield f"{counted(written, 'target text')} written by the model itself (greedy decoding)."
    if model.missing:
        yield (
            "The checkpoint lacks weights that this architecture has; they are random: "
            f"{_some(model.missing)}."
        )
    if model.unexpected:
        yield f"The checkpoint holds weights that were not used: {_some(model.unexpected)}."
    for check in manifest.checks:
        if not check.passed:
            yield (
                f"A self-check failed: {check.name}"
                + (f" ({STACKS[check.stack]})" if check.stack else "")
                + f", difference {check.error:.2g}. Do not trust the numbers it concerns."
            )
    for gap in gap_texts(manifest.gaps):
        yield f"Not available: {gap}."


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8:,} more"


def _key(metric: HeadMetric, label: str) -> str:
    return f"{metric.id}/{label}"


def _labels(results: StackResults, metric: HeadMetric) -> list[str]:
    """Labels that the grid offers; a profile's offsets are left to the profile."""
    if metric.chart is Chart.PROFILE:
        return []
    if metric.chart is Chart.DISTANCES:
        labels: Sequence[str] = [metric.headline]
    else:
        labels = metric.labels
    view = results.view(metric)
    return [label for label in labels if results.has(metric.id, view, label)]


def _choice(results: StackResults, metric: HeadMetric, label: str) -> dict[str, Any]:
    view = results.view(metric)
    numbers = results.heads(metric.id, view, label)
    layers = list(results.stack.attention_layers)
    values = numbers.value[layers]
    ends = domain(values, metric.limits)
    share = is_share(metric)
    unit = " (%)" if share else f" ({metric.unit})" if metric.unit else ""
    about = f": {label_name(label)}" if label else ""
    return {
        "caption": f"{metric.title}{about}{unit}, view {view}",
        "low": number(ends[0], share=share),
        "high": number(ends[1], share=share),
        "steps": [_step(value, ends) for value in values.ravel()],
        "texts": [_short(value, share=share) for value in values.ravel()],
    }


def _step(value: float, ends: tuple[float, float]) -> int:
    step = colour_step(float(value), ends)
    return NO_STEP if step is None else step


def _short(value: float, *, share: bool) -> str:
    """A value for a small cell: shares in whole per cent, but never 0 or 100 by rounding."""
    if np.isnan(value):
        return MISSING
    if not share:
        return number(value).replace("\u202f", "") if abs(value) < 9.95 else f"{value:,.1f}"
    if 0 < value < 0.005:
        return "<1"
    return percent(value).partition(".")[0] if 0.995 <= value < 1 else f"{100 * value:.0f}"


def _grid(results: StackResults) -> Grid:
    stack = results.stack
    offered = [(m, tuple(_labels(results, m))) for m in results.metrics]
    offered = [(metric, labels) for metric, labels in offered if labels]
    first = next((m for name in FIRST for m, _ in offered if m.id == name), offered[0][0])
    labels = {m.id: x for m, x in offered}[first.id]
    label = first.headline if first.headline in labels else labels[0]
    shown = _choice(results, first, label)
    heads = tuple(range(stack.n_heads))
    cells = iter(zip(shown["texts"], shown["steps"], strict=True))
    rows = tuple(
        (layer, tuple(_cell(HeadName(stack.name, layer, head), *next(cells)) for head in heads))
        for layer in stack.attention_layers
    )
    return Grid(
        stack=stack.name,
        title=STACKS[stack.name],
        chosen=_key(first, label),
        choices=tuple(
            (metric.title, tuple((_key(metric, x), label_name(x) or metric.title) for x in labels))
            for metric, labels in offered
        ),
        caption=shown["caption"],
        low=shown["low"],
        high=shown["high"],
        heads=heads,
        rows=rows,
    )


def _cell(head: HeadName, text: str, step: int) -> GridCell:
    return GridCell(head_name(head), head_page(head), text, step)


def _curves(
    results: Mapping[str, StackResults], pages: Sequence[MetricPage]
) -> Iterator[tuple[str, tuple[Figure, ...]]]:
    """The curves over layers that stand on the metrics' own pages."""
    by_metric = {page.metric: page for page in pages}
    for stack in results:
        title = STACKS[stack]
        sections = (
            section
            for name in CURVES[: MOST_CURVES // len(results)]
            if name in by_metric
            for section in by_metric[name].sections
            if section.title == title
        )
        figures = tuple(section.figures[-1] for section in sections)
        if figures:
            yield title, figures
