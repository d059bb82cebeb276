"""Sections of the page of a metric in two models, for metrics of heads.

Maps and differences, or over relative depth where heads do not correspond.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import pandas as pd

from headbook.charts import Figure
from headbook.charts.comparison import depth_curves, difference_map, pair_points, side_maps
from headbook.comparison.differences import HeadDifferences
from headbook.comparison.drift import by_layer
from headbook.metrics import all_metrics
from headbook.metrics.base import ChartKind, HeadMetric, LayerwiseMetric, Section
from headbook.pages.comparison.parts import StackComparison
from headbook.pages.parts.table import domain
from headbook.report.results import StackResults
from headbook.report.wording import VIEWS, choice_file, counted_if, is_share, label_name
from headbook.results.formats import head_name
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


CUT = (
    "One model sees earlier tokens only: numbers that depend on how many keys a query has, such as "
    "distance and entropy, differ for that alone."
)
OF_HEADS, OF_LAYERS = "head", "layer"  # kinds of rows of the chart


def depth_choices(stack: StackComparison, metric: ComparedMetric) -> list[tuple[SinkView, str]]:
    """Return the views and labels that both models have numbers for, the site's choice first."""
    known = stack.a.by_id.get(metric.id)
    if known is None or metric.id not in stack.b.by_id:
        return []
    labels = {view: _depth_labels(stack, known, view) for view in known.views}
    views = [view for view in labels if labels[view]]
    if not views:
        return []
    first = _first(stack, views)
    label = metric.headline if metric.headline in labels[first] else labels[first][0]
    rest = [(view, x) for view in (first, *views) for x in labels[view]]
    return [*dict.fromkeys([(first, label), *rest])]


def depth_figure(
    stack: StackComparison, metric: ComparedMetric, view: SinkView, label: str
) -> Figure:
    """Return the chart of both models over relative depth, showing one view and label.

    The name of a chart that shows another choice than the site's ends with it.
    """
    usual_view, usual_label = depth_choices(stack, metric)[0]
    models = zip(stack.names, (stack.a, stack.b), strict=True)
    rows = [_of(results, metric, view, label).assign(series=name) for name, results in models]
    name = choice_file(
        f"{metric.id}-{stack.stack}",
        "" if view == usual_view else str(view),
        "" if label == usual_label else label,
    )
    return depth_curves(
        f"{name}-depth",
        f"{metric.title} ({choice_words(metric, view, label)}) over relative depth: points are "
        "heads, lines medians of layers, bands the middle half of their heads.",
        pd.concat(rows, ignore_index=True),
        title=metric.unit_title,
    )


def depth(stack: AttentionStack, layer: int) -> float:
    """Return the relative depth of the middle of a layer, 0 to 1."""
    return (layer + 0.5) / stack.n_layers


def _first(stack: StackComparison, views: Sequence[SinkView]) -> SinkView:
    """Return the view that both models show first; if they differ, the one without the sink."""
    mine, theirs = stack.pair.a.default_view, stack.pair.b.default_view
    if mine == theirs and mine in views:
        return mine
    return SinkView.RENORM if SinkView.RENORM in views else views[0]


def _depth_labels(stack: StackComparison, metric: HeadMetric, view: SinkView) -> list[str]:
    return [
        x
        for x in metric.listed
        if stack.a.has_value(metric.id, view, x) and stack.b.has_value(metric.id, view, x)
    ]


def _of(results: StackResults, metric: ComparedMetric, view: SinkView, label: str) -> pd.DataFrame:
    """Return the heads and the layers of one model."""
    values = results.heads(metric.id, view, label).value
    known = ~np.isnan(values)
    layers = np.nonzero(known)[0]
    heads = pd.DataFrame({"place": layers, "value": values[known], "kind": OF_HEADS})
    low, middle, high = by_layer(values)
    known = np.flatnonzero(~np.isnan(middle))
    medians = pd.DataFrame(
        {"place": known, "value": middle[known], "low": low[known], "high": high[known]}
    ).assign(kind=OF_LAYERS)
    numbers = pd.concat([medians, heads.assign(low=np.nan, high=np.nan)], ignore_index=True)
    depths = [depth(results.stack, int(place)) for place in numbers.pop("place")]
    return numbers.assign(depth=depths, view=str(view), label=metric.label(label))


def pair_choices(stack: StackComparison, metric: ComparedMetric) -> list[tuple[str, str]]:
    """Return the views and labels that both models have numbers for, the site's choice first."""
    differences = stack.differences
    columns = [c for c in differences.columns if c.metric == metric.id] if differences else []
    columns = [
        c for c in columns if differences and _known(differences, differences.columns.index(c))
    ]
    default = str(stack.pair.a.default_view)
    views = sorted(dict.fromkeys(c.view for c in columns), key=lambda view: view != default)
    ordered = [(v, c.label) for v in views for c in columns if c.view == v]
    first = [choice for choice in ordered if choice[0] == views[0]]
    return sorted(ordered, key=lambda choice: choice not in first or choice[1] != metric.headline)


def _known(differences: HeadDifferences, column: int) -> bool:
    sums = differences.a[..., column] + differences.b[..., column]
    return not np.isnan(sums).all()


def choice_words(metric: ComparedMetric, view: str, label: str) -> str:
    """Return label and keys of a number in words."""
    keys = VIEWS[SinkView(view)] if view else ""
    return ", ".join(part for part in (metric.label(label), keys) if part)


def pair_figures(
    stack: StackComparison, metric: ComparedMetric, view: str, label: str
) -> tuple[Figure, ...]:
    """Return the maps and the points of a metric in both models, showing one view and label.

    Names of figures that show another choice than the site's end with it.
    """
    assert stack.differences is not None
    column, names = stack.differences.column(metric.id, view, label), stack.names
    assert column is not None
    choices = pair_choices(stack, metric)
    rows = _frame(stack.differences, column, stack.pair.a.name, (view, metric.label(label)))
    usual_view, usual_label = choices[0]
    name = choice_file(
        f"{metric.id}-{stack.stack}",
        "" if view == usual_view else view,
        "" if label == usual_label else label,
    )
    words = choice_words(metric, view, label)
    about = f"{metric.title} ({words})" if words else metric.title
    sides = pd.concat([
        rows.assign(side=side, value=rows[part])[
            ["side", "layer", "head", "view", "label", "value"]
        ]
        for side, part in zip(names, "ab", strict=True)
    ])  # fmt: skip
    rule = counted_if(float(stack.differences.floors[column]), share=metric.share)
    end = float(rows["value"].abs().max()) or 1.0
    return (
        side_maps(
            f"{name}-sides",
            f"{about} in {names[0]} (left) and {names[1]} (right). Rows: layers, columns: heads.",
            sides,
            title=metric.unit_title,
            domain=domain(sides["value"].to_numpy(), metric.limits),
        ),
        difference_map(
            f"{name}-difference",
            f"{about}: {names[1]} minus {names[0]}. Star: {rule} (family: all heads and "
            "labels); pale: no clear difference.",
            rows,
            title=f"difference in {metric.unit_title}",
            end=end,
        ),
        pair_points(
            f"{name}-points",
            f"{about}: each point is a head. Filled: {rule}; hollow: no clear "
            "difference; dashed line: the same in both models.",
            rows,
            titles=names,
        ),
    )


def _frame(
    differences: HeadDifferences, column: int, stack: str, choice: tuple[str, str]
) -> pd.DataFrame:
    """Return one number of the differences, a row for each head that both models have.

    Args:
        choice: view and label of the number in words.
    """
    known = ~np.isnan(differences.value[..., column])
    layers, heads = np.nonzero(known)
    frame = pd.DataFrame({"layer": layers, "head": heads})
    frame["name"] = [head_name(HeadName(stack, *place)) for place in np.argwhere(known).tolist()]
    frame["view"], frame["label"] = choice
    for part in ("a", "b", "value", "low", "high", "q", "supported"):
        frame[part] = getattr(differences, part)[..., column][known]
    return frame
