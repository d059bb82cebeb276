"""Sections of the page of a metric in two models, for metrics of heads.

Maps and differences, or over relative depth where heads do not correspond.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

import numpy as np
import pandas as pd

from headbook.analysis.accumulators import Estimate
from headbook.analysis.arrays import Floats
from headbook.analysis.paired import MedianEstimate
from headbook.charts import Figure
from headbook.charts.comparison import depth_curves, difference_map, pair_points, side_maps
from headbook.comparison.differences import ComparedColumn, HeadDifferences, ModelDifferences
from headbook.comparison.drift import by_layer
from headbook.metrics import all_metrics
from headbook.metrics.base import ChartKind, HeadMetric, LayerwiseMetric, Section
from headbook.pages.comparison.parts import StackComparison
from headbook.pages.metrics.figures import DRAWN_DISTANCES, DRAWN_OFFSETS, MOST_DRAWN
from headbook.pages.parts.groups import difference_cell
from headbook.pages.parts.table import NumberCell, PageTable, Row, domain
from headbook.report.findings.finding import Link, Parts, head_link
from headbook.report.results import StackResults
from headbook.report.wording import (
    ROUNDING_NOTE,
    VIEWS,
    choice_file,
    count_text,
    counted_if,
    floor_text,
    head_name,
    interval_text,
    is_share,
    label_name,
    number,
    p_text,
    unbroken,
)
from headbook.schema import AblationTarget, AttentionStack, HeadName, SinkView
from headbook.study.ablation_tables import EFFECT

TARGETS = {
    AblationTarget.LOSS: "loss of the next token (nats)",
    AblationTarget.MASKED_LOSS: "loss of masked tokens (nats)",
    AblationTarget.KL: "divergence of predictions (nats)",
    AblationTarget.LOGIT: "logit of the true token",
    AblationTarget.STATE: "1 minus the cosine of last states",
    AblationTarget.EMBEDDING: "1 minus the cosine of text vectors",
}
REPLACED = {
    "mean": "replaced by its mean",
    "zero": "set to zero",
    "position_mean": "replaced by its mean at the position",
    "resample": "resampled",
    "uniform": "attending uniformly",
    "sink_only": "attending to the sink",
}
EFFECT_ABOUT = (
    "What a model loses without a head: the change of its loss, or of its last states, where the "
    "head's output is replaced. A difference says that one model depends on the head more."
)


@dataclass(frozen=True)
class ComparedMetric:
    """A number of heads, or of the tokens of layers, as pages of comparisons name it.

    Attributes:
        id: as in files.
        title, unit, about: in words; ``about`` is the first sentence of its definition.
        share: whether values are written in per cent.
        limits: of its values.
        headline: the label that pages show first.
        section: where it stands in lists.
        chart: which labels charts offer.
    """

    id: str
    title: str
    unit: str
    about: str
    share: bool
    limits: tuple[float, float]
    headline: str
    section: Section
    chart: ChartKind

    @property
    def path(self) -> str:
        """Address of its page."""
        return f"metrics/{self.id}.html"

    @property
    def unit_title(self) -> str:
        """Name with the unit, for the legend of a chart."""
        return f"{self.title.lower()} ({self.unit})" if self.unit else self.title.lower()

    def label(self, label: str) -> str:
        """Return a label as words."""
        if self.id != EFFECT:
            return label_name(label)
        replacement, _, target = label.partition("/")
        return f"{TARGETS[AblationTarget(target)]}, head {REPLACED[replacement]}"


def compared_metric(name: str) -> ComparedMetric | None:
    """Return a number by its name in files; None if it has no page."""
    if name == EFFECT:
        return ComparedMetric(
            EFFECT, "Importance of heads", "", EFFECT_ABOUT, share=False, limits=(-inf, inf),
            headline="", section=Section.CONTRIBUTIONS, chart=ChartKind.HEATMAP,
        )  # fmt: skip
    known = all_metrics().get(name)
    if isinstance(known, LayerwiseMetric):
        return _of_tokens(known)
    if not isinstance(known, HeadMetric):
        return None
    return ComparedMetric(
        known.id, known.title, known.unit, known.summary, share=is_share(known),
        limits=known.limits, headline=known.headline, section=known.section, chart=known.chart,
    )  # fmt: skip


def _of_tokens(metric: LayerwiseMetric) -> ComparedMetric:
    """Return a metric of tokens, unbounded if its means have another unit than its values."""
    other = metric.averaged.unit
    return ComparedMetric(
        metric.id, metric.title, other or metric.unit, metric.summary,
        share=is_share(metric) and not other, limits=(-inf, inf) if other else metric.limits,
        headline="", section=metric.section, chart=metric.chart,
    )  # fmt: skip


WEAK = "weak"  # style of what is not supported
Found = TypeVar("Found", bound=ModelDifferences)


@dataclass(frozen=True)
class MetricComparison(Generic[Found]):
    """A metric in one kind of attention of two models; places end with a column of ``found``."""

    both: StackComparison
    found: Found
    metric: ComparedMetric

    def cells(self, *place: int) -> tuple[str, str, NumberCell, str]:
        """Both values, the difference and its p."""
        found, share = self.found, self.metric.share
        a, b = (number(float(side[place]), share=share) for side in (found.a, found.b))
        value, low, high = (float(part[place]) for part in (found.value, found.low, found.high))
        sentences = int(found.sentences[place])
        gap = Estimate(value, low, high, sentences, 0.0)
        behind = count_text(sentences, "sentence")
        return a, b, difference_cell(gap, share=share, behind=behind), p_text(float(found.p[place]))

    def stated(self, *place: int) -> str:
        """Both values and the difference, in words."""
        a, b, gap, _ = self.cells(*place)
        names = self.both.names
        return f"{a} in {names[0]}, {b} in {names[1]}, {gap.text} {gap.interval}"

    def style(self, *place: int) -> str:
        """Return the style of a row: weak without support."""
        return "" if self.found.supported[place] else WEAK

    def summary(self, column: int, what: str) -> str:
        """Return in how many cells, heads or layers, the difference is supported.

        Where it is in any, to be continued with the largest.
        """
        value, sure = self.found.value[..., column], self.found.supported[..., column]
        total = count_text(int((~np.isnan(value)).sum()), what)
        if not np.nan_to_num(value).any():
            return f"Both models are exactly equal in all {total}."
        if not sure.any():
            floor = float(self.found.floors[column])
            known = "" if np.isnan(floor) else f" ({floor_text(floor, share=self.metric.share)})"
            return f"No clear difference in any of {total}{known}."
        return f"Of {total}, {int(sure.sum()):,} differ ({self.rule(column)}); most "

    def short(self, column: int, what: str) -> str:
        """Return the summary in few words."""
        value, sure = self.found.value[..., column], self.found.supported[..., column]
        if not np.nan_to_num(value).any():
            return "exactly equal"
        unsure = sure.any() and np.isnan(self.found.floors[column])
        return (
            f"{int(sure.sum()):,} of {int((~np.isnan(value)).sum()):,} {what}s differ"
            f"{f' ({ROUNDING_NOTE})' if unsure else ''}"
        )

    def rule(self, column: int) -> str:
        """Return when a cell counts as different, with the rounding floor."""
        return counted_if(float(self.found.floors[column]), share=self.metric.share)


MOST_LABELS = 24
CUT = (
    "One model sees earlier tokens only: numbers that depend on how many keys a query has, such as "
    "distance and entropy, differ for that alone."
)
OF_HEADS, OF_LAYERS = "head", "layer"  # kinds of rows of the chart


@dataclass(frozen=True)
class DepthSection:
    """A metric in one kind of attention of each model.

    Attributes:
        title: the kinds of attention.
        drawn_text: what the chart shows, in words.
        figure: heads, medians and middle halves over relative depth.
        medians: of all heads, or layers, of each model, by label.
        cells: which of the two.
        note: why both may differ for another reason; empty without one.
    """

    title: str
    drawn_text: str
    figure: Figure
    medians: PageTable
    cells: str
    note: str = ""


def depth_section(both: StackComparison, metric: ComparedMetric) -> DepthSection | None:
    """Both models over relative depth; None where one of them has no numbers."""
    choices = depth_choices(both, metric)
    if not choices:
        return None
    view, label = choices[0]
    labels = [x for v, x in choices if v == view]
    named = [(metric.label(x) or metric.title, ComparedColumn(metric.id, view, x)) for x in labels]
    return DepthSection(
        title=both.title,
        drawn_text=_words(metric, view, label),
        figure=depth_figure(both, metric, view, label),
        medians=median_table(both, metric, named, "heads"),
        cells="heads",
        note=CUT if both.pair.a.causal != both.pair.b.causal else "",
    )


def depth_choices(both: StackComparison, metric: ComparedMetric) -> list[tuple[SinkView, str]]:
    """Return the views and labels that both models have numbers for, the site's choice first."""
    known = both.a.by_id.get(metric.id)
    if known is None or metric.id not in both.b.by_id:
        return []
    labels = {view: _depth_labels(both, known, view) for view in known.views}
    views = [view for view in labels if labels[view]]
    if not views:
        return []
    first = _first(both, views)
    label = metric.headline if metric.headline in labels[first] else labels[first][0]
    rest = [(view, x) for view in (first, *views) for x in labels[view]]
    return [*dict.fromkeys([(first, label), *rest])]


def depth_figure(
    both: StackComparison, metric: ComparedMetric, view: SinkView, label: str
) -> Figure:
    """Return the chart of both models over relative depth, showing one view and label.

    The name of a chart that shows another choice than the site's ends with it.
    """
    choices = depth_choices(both, metric)
    usual_view, usual_label = choices[0]
    labels = [x for v, x in choices if v == view]
    labels = sorted(labels, key=lambda x: x not in {label, usual_label})[:MOST_LABELS]
    rows = [*_rows(both, metric, [*dict.fromkeys(v for v, _ in choices)], labels)]
    name = choice_file(
        f"{metric.id}-{both.stack}",
        "" if view == usual_view else str(view),
        "" if label == usual_label else label,
    )
    return depth_curves(
        f"{name}-depth",
        f"{metric.title} ({_words(metric, view, label)}) over relative depth: points are heads, "
        "lines medians of layers, bands the middle half of their heads.",
        pd.concat(rows, ignore_index=True),
        title=metric.unit_title,
        show={"view": str(view), "label": metric.label(label)},
    )


def _words(metric: ComparedMetric, view: SinkView, label: str) -> str:
    return ", ".join(part for part in (metric.label(label), VIEWS[view]) if part)


def depth(stack: AttentionStack, layer: int) -> float:
    """Return the relative depth of the middle of a layer, 0 to 1."""
    return (layer + 0.5) / stack.n_layers


def _first(both: StackComparison, views: Sequence[SinkView]) -> SinkView:
    """Return the view that both models show first; if they differ, the one without the sink."""
    mine, theirs = both.pair.a.default_view, both.pair.b.default_view
    if mine == theirs and mine in views:
        return mine
    return SinkView.RENORM if SinkView.RENORM in views else views[0]


def _depth_labels(both: StackComparison, metric: HeadMetric, view: SinkView) -> list[str]:
    return [
        x
        for x in metric.listed
        if both.a.has_value(metric.id, view, x) and both.b.has_value(metric.id, view, x)
    ]


def _rows(
    both: StackComparison, metric: ComparedMetric, views: Sequence[SinkView], labels: Sequence[str]
) -> Iterator[pd.DataFrame]:
    """Heads and layers of both models under every choice."""
    for name, results in zip(both.names, (both.a, both.b), strict=True):
        for view in views:
            for label in labels:
                if all(each.has_value(metric.id, view, label) for each in (both.a, both.b)):
                    yield _of(results, metric, view, label).assign(series=name)


def _of(results: StackResults, metric: ComparedMetric, view: SinkView, label: str) -> pd.DataFrame:
    """One model under one choice."""
    values = results.heads(metric.id, view, label).value
    there = ~np.isnan(values)
    layers = np.nonzero(there)[0]
    heads = pd.DataFrame({"place": layers, "value": values[there], "kind": OF_HEADS})
    low, middle, high = by_layer(values)
    known = np.flatnonzero(~np.isnan(middle))
    medians = pd.DataFrame(
        {"place": known, "value": middle[known], "low": low[known], "high": high[known]}
    ).assign(kind=OF_LAYERS)
    found = pd.concat([medians, heads.assign(low=np.nan, high=np.nan)], ignore_index=True)
    depths = [depth(results.stack, int(place)) for place in found.pop("place")]
    return found.assign(depth=depths, view=str(view), label=metric.label(label))


def median_table(
    both: StackComparison,
    metric: ComparedMetric,
    columns: Sequence[tuple[str, ComparedColumn]],
    cells: str,
) -> PageTable:
    """Medians of both models with their difference, those that there are.

    Args:
        columns: what rows are called, and which number that is.
        cells: heads or layers.
    """
    behind = count_text(both.a.study.manifest.counts["sentences"], "sentence")
    rows = []
    for title, column in columns:
        found = both.medians.get(column)
        if found is None or np.isnan(found.difference.value):
            continue
        sides = (_cell(ends, share=metric.share, behind=behind) for ends in (found.a, found.b))
        gap = Estimate(*found.difference, 0, 0.0)
        difference = difference_cell(gap, share=metric.share, behind=behind)
        rows.append(Row(unbroken(title), (*sides, difference)))
    caption = (
        f"Median over all {cells} of each model, with 95 % intervals for other sentences; that of "
        f"the difference is paired by sentence. {cells.capitalize()} of one model are no sample."
    )
    return PageTable((f"Median of {cells}", *both.names, "difference"), tuple(rows), caption)


def _cell(ends: MedianEstimate, *, share: bool, behind: str) -> NumberCell:
    return NumberCell(
        number(ends.value, share=share), interval_text(ends.low, ends.high, share=share), behind,
        too_few=False,
    )  # fmt: skip


MOST_HEADS = 150  # of a table; the files have them all


@dataclass(frozen=True)
class HeadMetricSection:
    """A metric in one kind of attention of two models.

    Attributes:
        title: the kind of attention.
        drawn_text: what the charts show, in words.
        summary: in how many heads the models differ, and where most.
        short: the same in few words.
        figures: both models, the difference, and points.
        labels: for metrics that have several, the largest difference of each; None for
            those that are equal in all, too.
        heads: all heads under the label that is drawn, the largest differences first.
    """

    title: str
    drawn_text: str
    summary: Parts
    short: str
    figures: tuple[Figure, ...]
    labels: PageTable | None
    heads: PageTable


@dataclass(frozen=True)
class _HeadMetric(MetricComparison[HeadDifferences]):
    """A metric of one stack: what is drawn first, and what else there is."""

    view: str
    label: str

    @property
    def column(self) -> int:
        place = self.found.column(self.metric.id, self.view, self.label)
        assert place is not None
        return place

    @property
    def show(self) -> dict[str, str]:
        return {"view": self.view, "label": self.metric.label(self.label)}

    @property
    def words(self) -> str:
        """Label and keys of the drawn numbers in words."""
        keys = VIEWS[SinkView(self.view)] if self.view else ""
        return ", ".join(part for part in (self.metric.label(self.label), keys) if part)


def head_metric_section(both: StackComparison, metric: ComparedMetric) -> HeadMetricSection | None:
    """Return the differences in one stack; None if a model has no numbers there."""
    found, choices = both.found, pair_choices(both, metric)
    if found is None or not choices:
        return None
    view, label = choices[0]
    labels = [x for v, x in choices if v == view]
    drawn = _HeadMetric(both, found, metric, view, label)
    return HeadMetricSection(
        title=both.title,
        drawn_text=drawn.words,
        summary=_summary(drawn),
        short=drawn.short(drawn.column, "head"),
        figures=pair_figures(both, metric, view, label),
        labels=_label_table(drawn, labels) if len(labels) > 1 and _differs(drawn) else None,
        heads=_heads(drawn),
    )


def pair_choices(both: StackComparison, metric: ComparedMetric) -> list[tuple[str, str]]:
    """Return the views and labels that both models have numbers for, the site's choice first."""
    found = both.found
    columns = [c for c in found.columns if c.metric == metric.id] if found else []
    columns = [c for c in columns if found and _known(found, found.columns.index(c))]
    default = str(both.pair.a.default_view)
    views = sorted(dict.fromkeys(c.view for c in columns), key=lambda view: view != default)
    ordered = [(v, c.label) for v in views for c in columns if c.view == v]
    first = [each for each in ordered if each[0] == views[0]]
    return sorted(ordered, key=lambda each: each not in first or each[1] != metric.headline)


def _known(found: HeadDifferences, column: int) -> bool:
    both = found.a[..., column] + found.b[..., column]
    return not np.isnan(both).all()


def _differs(drawn: _HeadMetric) -> bool:
    """Whether any head differs at all under any label."""
    places = [n for n, c in enumerate(drawn.found.columns) if c.metric == drawn.metric.id]
    return bool(np.nan_to_num(drawn.found.value[..., places]).any())


def _summary(drawn: _HeadMetric) -> Parts:
    """In how many heads the difference is supported, and the largest."""
    found, at = drawn.found, drawn.column
    begin, sure = drawn.summary(at, "head"), found.supported[..., at]
    if not sure.any():
        return (begin,)
    place = _largest(np.where(sure, found.value[..., at], np.nan))[0]
    return begin, _link(drawn, place), f": {drawn.stated(*place, at)}."


def pair_figures(
    both: StackComparison, metric: ComparedMetric, view: str, label: str
) -> tuple[Figure, ...]:
    """Return the maps and the points of a metric in both models, showing one view and label.

    Names of figures that show another choice than the site's end with it.
    """
    assert both.found is not None
    drawn, names = _HeadMetric(both, both.found, metric, view, label), both.names
    choices = pair_choices(both, metric)
    rows = _frame(drawn, _offered(drawn, [x for v, x in choices if v == view]))
    usual_view, usual_label = choices[0]
    name = choice_file(
        f"{metric.id}-{both.stack}",
        "" if view == usual_view else view,
        "" if label == usual_label else label,
    )
    about = f"{metric.title} ({drawn.words})" if drawn.words else metric.title
    sides = pd.concat([
        rows.assign(side=side, value=rows[column])[
            ["side", "layer", "head", "view", "label", "value"]
        ]
        for side, column in zip(names, "ab", strict=True)
    ])  # fmt: skip
    rule = drawn.rule(drawn.column)
    end = float(rows["value"].abs().max()) or 1.0
    return (
        side_maps(
            f"{name}-sides",
            f"{about} in {names[0]} (left) and {names[1]} (right). Rows: layers, columns: heads.",
            sides,
            title=metric.unit_title,
            domain=domain(sides["value"].to_numpy(), metric.limits),
            show=drawn.show,
        ),
        difference_map(
            f"{name}-difference",
            f"{about}: {names[1]} minus {names[0]}. Star: {rule} (family: all heads and "
            "labels); pale: no clear difference.",
            rows,
            title=f"difference in {metric.unit_title}",
            end=end,
            show=drawn.show,
        ),
        pair_points(
            f"{name}-points",
            f"{about}: each point is a head. Filled: {rule}; hollow: no clear "
            "difference; dashed line: the same in both models.",
            rows,
            titles=names,
            show=drawn.show,
        ),
    )


def _offered(drawn: _HeadMetric, labels: Sequence[str]) -> list[str]:
    """Labels that charts offer: as on the pages of one study, those that differ most first."""
    chart = drawn.metric.chart
    if chart in {ChartKind.PROFILE, ChartKind.DISTANCES}:
        near = DRAWN_OFFSETS if chart is ChartKind.PROFILE else DRAWN_DISTANCES
        return [x for x in labels if x in near or x == drawn.label]

    def rank(label: str) -> tuple[bool, float]:
        at = drawn.found.column(drawn.metric.id, drawn.view, label)
        size = np.nan_to_num(np.abs(drawn.found.value[..., at])).max(initial=0)
        return label != drawn.label, -float(size)

    most = sorted(labels, key=rank)[:MOST_DRAWN]
    return [x for x in labels if x in most]


def _frame(drawn: _HeadMetric, labels: Sequence[str]) -> pd.DataFrame:
    """All numbers of these labels in all views, a row for each head that both models have."""
    found, parts = drawn.found, []
    for at, column in enumerate(found.columns):
        if column.metric != drawn.metric.id or column.label not in labels:
            continue
        there = ~np.isnan(found.value[..., at])
        layers, heads = np.nonzero(there)
        frame = pd.DataFrame({"layer": layers, "head": heads})
        frame["name"] = [_name(drawn, place) for place in np.argwhere(there).tolist()]
        frame["view"], frame["label"] = column.view, drawn.metric.label(column.label)
        for part in ("a", "b", "value", "low", "high", "p", "supported"):
            frame[part] = getattr(found, part)[..., at][there]
        parts.append(frame)
    return pd.concat(parts, ignore_index=True)


def _name(drawn: _HeadMetric, place: Sequence[int]) -> str:
    return head_name(HeadName(drawn.both.pair.a.name, *place))


def _largest(values: Floats) -> list[tuple[int, int]]:
    """Places of the differences, the largest of either sign first."""
    there = np.argwhere(~np.isnan(values))
    order = np.argsort(-np.abs(values[tuple(there.T)]), kind="stable")
    return [(int(layer), int(head)) for layer, head in there[order]]


def _label_table(drawn: _HeadMetric, labels: Sequence[str]) -> PageTable:
    """Return how many heads differ for each label, and the largest difference."""
    rows = []
    for label in labels:
        at = drawn.found.column(drawn.metric.id, drawn.view, label)
        assert at is not None
        sure, value = drawn.found.supported[..., at], drawn.found.value[..., at]
        places = _largest(np.where(sure, value, np.nan)) or _largest(value)
        if places:
            title = unbroken(drawn.metric.label(label))
            largest = _link(drawn, places[0]), *drawn.cells(*places[0], at)
            style = "" if sure.any() else WEAK
            rows.append(Row(title, (str(int(sure.sum())), *largest), style))
    columns = ("Label", "heads that differ", "most", *drawn.both.names, "difference", "p")
    return PageTable(
        columns, tuple(rows), "The largest difference of each label; grey: not supported."
    )


def _heads(drawn: _HeadMetric) -> PageTable:
    at = drawn.column
    rows = (
        Row(_link(drawn, place), drawn.cells(*place, at), drawn.style(*place, at))
        for place in _largest(drawn.found.value[..., at])[:MOST_HEADS]
    )
    return PageTable(("Head", *drawn.both.names, "difference", "p"), tuple(rows))


def _link(drawn: _HeadMetric, place: tuple[int, int]) -> Link:
    return head_link(HeadName(drawn.both.pair.a.name, *place))
