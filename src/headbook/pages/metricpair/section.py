"""A metric of corresponding heads in one kind of attention: maps, differences, and labels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from headbook.analysis.arithmetic import Floats
from headbook.charts import Figure
from headbook.charts.vega.pairs import difference_map, pair_points, side_maps
from headbook.comparison.headdifferences import HeadDifferences
from headbook.metrics.base import Chart
from headbook.pages.metric.sections import DRAWN_DISTANCES, DRAWN_OFFSETS, MOST_DRAWN
from headbook.pages.metricpair.compared import WEAK, Compared
from headbook.pages.metricpair.named import ComparedMetric
from headbook.pages.parts.both import BothStacks
from headbook.pages.parts.cells import domain
from headbook.pages.parts.table import Row, Table
from headbook.report.findings.finding import Link, Parts, head_link
from headbook.report.wording import VIEWS, choice_file, head_name, unbroken
from headbook.study.sentencedata import HeadName
from headbook.terms import View

MOST_HEADS = 150  # of a table; the files have them all


@dataclass(frozen=True)
class PairSection:
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
    labels: Table | None
    heads: Table


@dataclass(frozen=True)
class _Drawn(Compared[HeadDifferences]):
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
        """What is drawn, in words: label and keys."""
        keys = VIEWS[View(self.view)] if self.view else ""
        return ", ".join(part for part in (self.metric.label(self.label), keys) if part)


def pair_section(both: BothStacks, metric: ComparedMetric) -> PairSection | None:
    """What differs in one stack; None where one of the models has no numbers there."""
    found, choices = both.found, pair_choices(both, metric)
    if found is None or not choices:
        return None
    view, label = choices[0]
    labels = [x for v, x in choices if v == view]
    drawn = _Drawn(both, found, metric, view, label)
    return PairSection(
        title=both.title,
        drawn_text=drawn.words,
        summary=_summary(drawn),
        short=drawn.short(drawn.column, "head"),
        figures=pair_figures(both, metric, view, label),
        labels=_labels(drawn, labels) if len(labels) > 1 and _differs(drawn) else None,
        heads=_heads(drawn),
    )


def pair_choices(both: BothStacks, metric: ComparedMetric) -> list[tuple[str, str]]:
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


def _differs(drawn: _Drawn) -> bool:
    """Whether any head differs at all under any label."""
    places = [n for n, c in enumerate(drawn.found.columns) if c.metric == drawn.metric.id]
    return bool(np.nan_to_num(drawn.found.value[..., places]).any())


def _summary(drawn: _Drawn) -> Parts:
    """In how many heads the difference is supported, and the largest."""
    found, at = drawn.found, drawn.column
    begin, sure = drawn.summary(at, "head"), found.supported[..., at]
    if not sure.any():
        return (begin,)
    place = _largest(np.where(sure, found.value[..., at], np.nan))[0]
    return begin, _link(drawn, place), f": {drawn.stated(*place, at)}."


def pair_figures(
    both: BothStacks, metric: ComparedMetric, view: str, label: str
) -> tuple[Figure, ...]:
    """Return the maps and the points of a metric in both models, showing one view and label.

    Names of figures that show another choice than the site's end with it.
    """
    assert both.found is not None
    drawn, names = _Drawn(both, both.found, metric, view, label), both.names
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


def _offered(drawn: _Drawn, labels: Sequence[str]) -> list[str]:
    """Labels that charts offer: as on the pages of one study, those that differ most first."""
    chart = drawn.metric.chart
    if chart in {Chart.PROFILE, Chart.DISTANCES}:
        near = DRAWN_OFFSETS if chart is Chart.PROFILE else DRAWN_DISTANCES
        return [x for x in labels if x in near or x == drawn.label]

    def rank(label: str) -> tuple[bool, float]:
        at = drawn.found.column(drawn.metric.id, drawn.view, label)
        size = np.nan_to_num(np.abs(drawn.found.value[..., at])).max(initial=0)
        return label != drawn.label, -float(size)

    most = sorted(labels, key=rank)[:MOST_DRAWN]
    return [x for x in labels if x in most]


def _frame(drawn: _Drawn, labels: Sequence[str]) -> pd.DataFrame:
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


def _name(drawn: _Drawn, place: Sequence[int]) -> str:
    return head_name(HeadName(drawn.both.pair.a.name, *place))


def _largest(values: Floats) -> list[tuple[int, int]]:
    """Places of the differences, the largest of either sign first."""
    there = np.argwhere(~np.isnan(values))
    order = np.argsort(-np.abs(values[tuple(there.T)]), kind="stable")
    return [(int(layer), int(head)) for layer, head in there[order]]


def _labels(drawn: _Drawn, labels: Sequence[str]) -> Table:
    """Of each label, how many heads differ, and the largest difference, supported ones first."""
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
    return Table(columns, tuple(rows), "The largest difference of each label; grey: not supported.")


def _heads(drawn: _Drawn) -> Table:
    at = drawn.column
    rows = (
        Row(_link(drawn, place), drawn.cells(*place, at), drawn.style(*place, at))
        for place in _largest(drawn.found.value[..., at])[:MOST_HEADS]
    )
    return Table(("Head", *drawn.both.names, "difference", "p"), tuple(rows))


def _link(drawn: _Drawn, place: tuple[int, int]) -> Link:
    return head_link(HeadName(drawn.both.pair.a.name, *place))
