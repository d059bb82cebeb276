"""The page of each metric of heads and of tokens, and the list of metrics."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from headbook.analysis.accumulators import Estimates
from headbook.charts import Figure, heat_map, layer_curve
from headbook.charts.axes import UNIFORM
from headbook.metrics import all_metrics, ids
from headbook.metrics.base import (
    AnchorMetric,
    ChartKind,
    HeadMetric,
    LayerMetric,
    LayerPairMetric,
    LayerwiseMetric,
    Metric,
    PairMetric,
    Source,
    TokenMetric,
)
from headbook.pages.parts.anchors import AnchorSection, anchor_sections
from headbook.pages.parts.baselines import baseline_title
from headbook.pages.parts.page import Page, gap_text
from headbook.pages.parts.table import (
    NumberCell,
    PageTable,
    Row,
    domain,
    layer_frame,
    layer_table,
    words_cell,
)
from headbook.report.findings.finding import Link, head_link, sample_size
from headbook.report.results import StackResults, heads_by_value, study_of
from headbook.report.wording import (
    SPACES,
    STACKS,
    STATES,
    TOKEN_CLASSES,
    VIEWS,
    choice_file,
    count_text,
    head_name,
    is_share,
    label_name,
    number,
    tie_note,
    tied_places,
    unbroken,
)
from headbook.schema import EmbeddingSpace, ResidualPoint, SinkView, TokenKey
from headbook.study.corpus_sums import PairColumn
from headbook.study.sentence_data import HeadName
from headbook.study.state_geometry import CKA

MOST_HEADS = 150  # lines of a table of heads; the files have them all
DRAWN_OFFSETS = tuple(map(str, range(-5, 6)))  # a profile's labels that the heat map offers
DRAWN_DISTANCES = ("all", "1", "2", "3", "4", "6", "8", "12", "16", "24", "32+")
# Numbers that grow with the length of sentences, and the same over uniform attention: only these
# are drawn beside it, for the intervals of the others overlap whatever heads do.
PAIRED = {ids.ATTENTION_DISTANCE: ids.DISTANCE_RATIO}
MOST_DRAWN = 24  # labels that charts offer: those with most observations


@dataclass(frozen=True)
class MetricSection:
    """A metric in one stack.

    Attributes:
        title: the kind of attention.
        drawn_text: what figures and tables show, in words.
        figures: heat map and curve.
        layers: table of layers; None where a metric has no numbers of them.
        labels: for metrics that have several the head with the highest value of each, or None.
        heads: heads with their numbers, highest first; ``left_out`` more are in the files.
    """

    title: str
    drawn_text: str
    figures: tuple[Figure, ...]
    layers: PageTable | None
    labels: PageTable | None = None
    heads: tuple[tuple[Link, NumberCell], ...] = ()
    left_out: int = 0


def _unit_title(metric: Metric) -> str:
    return f"{metric.title.lower()} ({metric.unit})" if metric.unit else metric.title.lower()


def head_section(results: StackResults, metric: HeadMetric) -> MetricSection | None:
    """What a metric says of the heads of one stack; None where it has no numbers there."""
    stack = results.stack
    metric = results.by_id.get(metric.id, metric)
    drawn = results.drawn(metric)
    if drawn is None:
        return None
    labels, (view, label) = results.drawable(metric), drawn
    about = f"{label_name(label)}, " if label else ""
    heads = _heads(results, metric, view, label)
    return MetricSection(
        title=STACKS[stack.name],
        drawn_text=f"{about}{VIEWS[view]}",
        figures=(*head_figures(results, metric, view, label), *_ratio_curve(results, metric)),
        layers=_layers(results, metric, label) if metric.has_layer_value else None,
        labels=_labels(results, metric, labels, view) if len(labels) > 1 else None,
        heads=tuple(heads[:MOST_HEADS]),
        left_out=max(0, len(heads) - MOST_HEADS),
    )


def head_figures(
    results: StackResults, metric: HeadMetric, view: SinkView, label: str
) -> tuple[Figure, ...]:
    """Return the heat map and the curve of a metric, showing one view and label.

    Names of figures that show another choice than the site's end with it.
    """
    labels = _drawn(results, metric, results.drawable(metric), label)
    name = f"{metric.id}-{results.stack.name}"
    usual_view, usual_label = results.drawn(metric) or (view, label)
    other_view = "" if view == usual_view else str(view)
    name = choice_file(name, other_view, "" if label == usual_label else label)
    heat = _heat_map(results, metric, labels, view, label, name=name)
    if not metric.has_layer_value:
        return (heat,)
    return heat, _curve(results, metric, labels, view, label, name=f"{name}-layers")


def _layers(results: StackResults, metric: HeadMetric, label: str) -> PageTable:
    numbers = [results.layers(metric.id, view, label) for view in metric.views]
    return layer_table(
        results.stack.attention_layers,
        [(VIEWS[v], n, metric) for v, n in zip(metric.views, numbers, strict=True)],
    )


def _drawn(
    results: StackResults, metric: HeadMetric, labels: Sequence[str], drawn_text: str
) -> list[str]:
    """The labels that charts offer, in their own order: near offsets, or those often seen."""
    if metric.chart is ChartKind.PROFILE:
        return [x for x in labels if x in DRAWN_OFFSETS or x == drawn_text]
    if metric.chart is ChartKind.DISTANCES:
        return [x for x in labels if x in DRAWN_DISTANCES or x == drawn_text]
    seen = {x: results.heads(metric.id, results.view(metric), x).events.max() for x in labels}
    most = sorted(labels, key=lambda x: (x != drawn_text, -seen[x]))[:MOST_DRAWN]
    return [x for x in labels if x in most]


def _heads(
    results: StackResults, metric: HeadMetric, view: SinkView, label: str
) -> list[tuple[Link, NumberCell]]:
    """All heads that have a number, the highest first."""
    numbers = results.heads(metric.id, view, label)
    return [_head(results, metric, numbers, *cell) for cell in heads_by_value(numbers.value)]


def _head(
    results: StackResults, metric: HeadMetric, numbers: Estimates, layer: int, head: int
) -> tuple[Link, NumberCell]:
    name = HeadName(results.stack.name, layer, head)
    return head_link(name), NumberCell.of(numbers.at(layer, head), metric)


def _labels(
    results: StackResults, metric: HeadMetric, labels: Sequence[str], view: SinkView
) -> PageTable:
    rows, written = [], partial(number, share=is_share(metric))
    for label in labels:
        numbers = results.heads(metric.id, view, label)
        if not np.isnan(numbers.value).all():
            (layer, head), *others = tied_places(numbers.value, written)
            link, best = _head(results, metric, numbers, layer, head)
            note = tie_note([head_name(HeadName(results.stack.name, *each)) for each in others])
            even = NumberCell.of(results.uniform(metric.id, view, label).at(layer), metric)
            cells = (words_cell(link, note) if note else link, best, even)
            rows.append(Row(unbroken(label_name(label)), cells))
    caption = "The head with the highest value for each label, and uniform attention in its layer."
    return PageTable(("Label", "Head", "value", "uniform attention"), tuple(rows), caption)


def _table(
    results: StackResults, metric: HeadMetric, labels: Sequence[str], name: str
) -> pd.DataFrame:
    """Numbers of heads, layers or uniform attention, in all views and labels."""
    return _rows(metric, labels, getattr(results, name))


def _rows(
    metric: HeadMetric, labels: Sequence[str], numbers_of: Callable[[str, SinkView, str], Estimates]
) -> pd.DataFrame:
    """The same for anything that gives numbers by metric, view and label."""
    parts: dict[str, list[Any]] = {}
    for view in metric.views:
        for label in labels:
            numbers = numbers_of(metric.id, view, label)
            cells = np.nonzero(~np.isnan(numbers.value))
            columns: dict[str, Any] = dict(zip(("layer", "head"), cells, strict=False))
            columns |= {n: getattr(numbers, n)[cells] for n in ("value", "low", "high")}
            columns |= {"view": [str(view)] * len(cells[0])}
            columns |= {"label": [label_name(label)] * len(cells[0])}
            for column, values in columns.items():
                parts.setdefault(column, []).append(values)
    return pd.DataFrame({column: np.concatenate(values) for column, values in parts.items()})


def _heat_map(
    results: StackResults,
    metric: HeadMetric,
    labels: Sequence[str],
    view: SinkView,
    label: str,
    *,
    name: str,
) -> Figure:
    rows = _table(results, metric, labels, "heads")
    caption = (
        f"{metric.title}{_of(label)} of every head, {VIEWS[view]}"
        f"{_behind(results, metric, view, label)}. Rows: layers, columns: heads."
    )
    return heat_map(
        name,
        caption,
        rows,
        title=_unit_title(metric),
        domain=domain(rows["value"].to_numpy(), metric.limits),
        show={"view": str(view), "label": label_name(label)},
        share=is_share(metric),
    )


def _curve(
    results: StackResults,
    metric: HeadMetric,
    labels: Sequence[str],
    view: SinkView,
    label: str,
    *,
    name: str,
) -> Figure:
    series = [_table(results, metric, labels, "layers").assign(series="model")]
    titles = []
    if metric.id not in PAIRED or PAIRED[metric.id] not in results.by_id:
        series.append(_table(results, metric, labels, "uniform").assign(series=UNIFORM))
        titles.append(UNIFORM)
    for baseline in results.baselines:
        titles.append(baseline_title(results, baseline))
        baseline_run = partial(results.baseline_band, baseline)
        series.append(_rows(metric, labels, baseline_run).assign(series=titles[-1]))
    caption = (
        f"{metric.title}{_of(label)} by layer, all heads, {VIEWS[view]}"
        f"{_behind(results, metric, view, label)}; 95 % intervals clustered by sentence."
        + (f" Baselines: {', '.join(titles)}." if titles else "")
    )
    return layer_curve(
        name,
        caption,
        pd.concat(series, ignore_index=True),
        title=_unit_title(metric),
        show={"view": str(view), "label": label_name(label)},
        share=is_share(metric),
    )


def _ratio_curve(results: StackResults, metric: HeadMetric) -> Iterator[Figure]:
    """The same as a ratio to uniform attention on the same sentences, where lengths cancel."""
    ratio = results.by_id.get(PAIRED.get(metric.id, ""))
    if ratio is not None:
        name = f"{ratio.id}-{results.stack.name}-layers"
        yield _curve(results, ratio, [""], results.view(ratio, ""), "", name=name)


def _behind(results: StackResults, metric: HeadMetric, view: SinkView, label: str) -> str:
    """What numbers rest on, where that is not every sentence of the study."""
    found = int(results.heads(metric.id, view, label).sentences.max())
    if metric.source is Source.RANDOM:
        return f", on {count_text(found, 'random sequence')}"
    return results.sample_note(found, ", on")


def _of(label: str) -> str:
    name = label_name(label) if label else ""
    return f", {name}," if name.endswith(")") else f" ({name})" if name else ""


DRAWN_CLASSES = ("all", "content", "function")


def token_section(results: StackResults, metric: LayerwiseMetric) -> MetricSection | None:
    """What a metric of tokens says of one stack; None where it has no numbers there."""
    frames, columns, behind = [], [], 0
    for numbers, title, state, space in _series(results, metric):
        frame = layer_frame(numbers, title)
        frames.append(frame.assign(state=str(state), space=str(space or "")))
        behind = max(behind, int(numbers.sentences.max()))
        about = (part for part in (STATES[state], space and SPACES[space], title) if part)
        columns.append((" · ".join(about), numbers, metric))
    if not frames:
        return None
    rows = pd.concat(frames, ignore_index=True)
    show = {"state": str(rows["state"][0]), "space": str(rows["space"][0])}
    drawn_text = STATES[ResidualPoint(show["state"])]
    if show["space"]:
        drawn_text += f", compared with {SPACES[EmbeddingSpace(show['space'])]}"
    unit = metric.averaged.unit or metric.unit
    axis = unit or metric.title.lower()
    share = not unit and is_share(metric)
    caption = (
        f"{metric.title} by layer, {drawn_text}, mean over "
        f"tokens{results.sample_note(behind, ' of')}"
        + (f" as {unit}" if metric.averaged.unit else "")
        + "; 95 % intervals clustered by sentence."
    )
    name = f"{metric.id}-{results.stack.name}-layers"
    return MetricSection(
        title=STACKS[results.stack.name],
        drawn_text=drawn_text,
        figures=(layer_curve(name, caption, rows, title=axis, show=show, share=share),),
        layers=layer_table(range(len(columns[0][1].value)), columns),
    )


def _series(
    results: StackResults, metric: LayerwiseMetric
) -> Iterator[tuple[Estimates, str, ResidualPoint, EmbeddingSpace | None]]:
    """The lines of a token metric: classes of tokens, and what it is set against."""
    beside = metric.beside if isinstance(metric, TokenMetric) else ()
    for state in metric.states:
        for space in metric.spaces or (None,):
            for name in DRAWN_CLASSES:
                numbers = results.tokens(metric.id, state, space, name)
                if numbers is not None:
                    yield numbers, TOKEN_CLASSES[name], state, space
            for other in beside:
                # What does not depend on the space is there in one.
                numbers = results.tokens(other, state, space, "all")
                numbers = numbers or results.tokens(other, state, EmbeddingSpace.RAW, "all")
                if numbers is not None and results.tokens(metric.id, state, space, "all"):
                    title = all_metrics()[other].title.lower().removeprefix("neighbours ")
                    yield numbers, title, state, space


ELSEWHERE = (AnchorMetric, LayerMetric, LayerPairMetric, PairMetric)  # shown on pages of their own


@dataclass(frozen=True, kw_only=True)
class MetricPage(Page):
    """One metric.

    Attributes:
        metric: its name in tables.
        section: the group it belongs to.
        prose: what it means, in Markdown.
        formula: LaTeX.
        reference: where the definition comes from.
        unit: of the values, or empty.
        bounds: smallest and largest possible value, in words.
        taken_on: what a head metric is measured on, in words; else empty.
        pairs: whether it compares heads, so that another page shows it.
        anchors: tokens of heads by stack, if the metric is a token for each head.
        states: whether it is of states, so that the page of their geometry shows it.
        sections: results by stack.
        remarks: what is missing, and why.
    """

    template: ClassVar[str] = "metric.html"
    metric: str
    section: str
    prose: str
    formula: str
    reference: str
    unit: str
    bounds: str
    taken_on: str
    pairs: bool
    states: bool
    anchors: tuple[AnchorSection, ...]
    sections: tuple[MetricSection, ...]
    remarks: tuple[str, ...]


def _section(results: StackResults, metric: Metric) -> MetricSection | None:
    """What a metric says of one stack; None where it has no numbers there."""
    if isinstance(metric, HeadMetric):
        return head_section(results, metric)
    return token_section(results, metric) if isinstance(metric, LayerwiseMetric) else None


def metric_pages(
    results: Mapping[str, StackResults], metrics: Sequence[Metric]
) -> Iterator[MetricPage]:
    """A page for each metric of the study."""
    for metric in metrics:
        made = {name: _section(r, metric) for name, r in results.items()}
        yield MetricPage(
            path=f"metrics/{metric.id}.html",
            title=metric.title,
            description=metric.summary,
            metric=metric.id,
            section=metric.section,
            prose=metric.prose,
            formula=metric.formula,
            reference=metric.reference,
            unit=metric.unit,
            bounds=_bounds(metric),
            taken_on=_taken_on(metric, next(iter(results.values()))),
            pairs=isinstance(metric, PairMetric),
            anchors=tuple(anchor_sections(results)) if isinstance(metric, AnchorMetric) else (),
            states=isinstance(metric, LayerMetric | LayerPairMetric),
            sections=tuple(section for section in made.values() if section),
            remarks=tuple(
                gap_text(gap)
                for name, r in results.items()
                for gap in r.study.manifest.gaps
                if gap.stack == name and made[name] is None and not isinstance(metric, ELSEWHERE)
            ),
        )


def study_metrics(results: Mapping[str, StackResults]) -> list[Metric]:
    """The metrics that a study has numbers for, in the order of lists."""
    there = {metric.id for r in results.values() for metric in r.metrics}
    corpus_sums = study_of(results).corpus_sums
    sums = [
        *corpus_sums.tokens.values(),
        *corpus_sums.vocabulary.values(),
        *corpus_sums.flows.values(),
    ]
    columns: list[TokenKey | PairColumn] = [c for table in sums for c in table.columns]
    columns += [c for table in corpus_sums.distances.values() for c in table.columns]
    there |= {column.metric for column in columns}
    there |= {c.metric for table in corpus_sums.geometry.values() for c in table.columns}
    there |= {column.metric for table in corpus_sums.anchors.values() for column in table.columns}
    there |= {CKA for table in corpus_sums.geometry.values() if table.products.size}
    return [metric for metric in all_metrics().values() if metric.id in there]


def _taken_on(metric: Metric, results: StackResults) -> str:
    if not isinstance(metric, HeadMetric):
        return ""
    if metric.source is Source.RANDOM:
        return metric.source
    count = count_text(results.study.manifest.counts["sentences"], "sentence")
    if metric.source is Source.ALL:
        return count
    return f"{sample_size(results):,} of {count}, chosen by a hash of their content"


def _bounds(metric: Metric) -> str:
    low, high = metric.limits
    top = "no upper bound" if math.isinf(high) else f"{high:.4g}"
    return f"{low:g} to {top}" if not math.isinf(high) else f"{low:g}, {top}"


@dataclass(frozen=True, kw_only=True)
class MetricsPage(Page):
    """The list of all metrics.

    Attributes:
        groups: metrics by section, in order.
    """

    template: ClassVar[str] = "metrics.html"
    groups: tuple[tuple[str, tuple[Metric, ...]], ...]


def metrics_page(metrics: Sequence[Metric]) -> MetricsPage:
    """The list of the study's metrics."""
    groups: dict[str, list[Metric]] = {}
    for metric in metrics:
        groups.setdefault(metric.section, []).append(metric)
    return MetricsPage(
        path="metrics/index.html",
        title="Metrics",
        description="Every number of this site: what it means, its unit and its source.",
        groups=tuple((name, tuple(each)) for name, each in groups.items()),
    )
