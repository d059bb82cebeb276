"""A metric of tokens in one stack of two models: both paths through the layers, and differences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from headbook.charts import Figure
from headbook.charts.vega.pairs import difference_curve, paired_curves
from headbook.comparison.layerdifferences import LayerDifferences
from headbook.metrics import all_metrics
from headbook.metrics.base import LayerwiseMetric
from headbook.pages.metricpair.compared import WEAK, Compared
from headbook.pages.metricpair.named import ComparedMetric
from headbook.pages.parts.both import BothStacks
from headbook.pages.parts.rows import layer_frame
from headbook.pages.parts.table import Row, Table
from headbook.report.wording import SPACES, STATES, TOKEN_CLASSES, unbroken
from headbook.study.summaries.columns import TokenColumn
from headbook.terms import COMPARED_CLASSES, State


@dataclass(frozen=True)
class LayerSection:
    """A metric of tokens in one kind of attention of two models.

    Attributes:
        title: the kind of attention.
        drawn_text: what charts and table of layers show, in words.
        summary: in how many layers the models differ, and where most.
        short: the same in few words.
        figures: both models over layers, and the difference.
        labels: the largest difference of each state, space and class of tokens; None where there
            is one, or where all are equal.
        layers: every layer under what is drawn.
    """

    title: str
    drawn_text: str
    summary: str
    short: str
    figures: tuple[Figure, ...]
    labels: Table | None
    layers: Table


@dataclass(frozen=True)
class _Drawn(Compared[LayerDifferences]):
    """A metric of one stack: what there is of it, and of that what is drawn first."""

    columns: tuple[TokenColumn, ...]
    first: TokenColumn

    def at(self, column: TokenColumn) -> int:
        place = self.found.column(column.metric, "", column.words)
        assert place is not None
        return place


def layer_section(both: BothStacks, metric: ComparedMetric) -> LayerSection | None:
    """What differs in one stack; None where one of the models has no numbers there."""
    known, found = all_metrics().get(metric.id), both.layers
    if found is None or not isinstance(known, LayerwiseMetric):
        return None
    columns = tuple(column for column in token_columns(known) if _known(found, column))
    if not columns:
        return None
    drawn = _Drawn(both, found, metric, columns, first_of(columns))
    values = found.value[:, [drawn.at(column) for column in columns]]
    several = len(columns) > 1 and bool(np.nan_to_num(values).any())
    return LayerSection(
        title=both.title,
        drawn_text=column_words(drawn.first),
        summary=_summary(drawn),
        short=drawn.short(drawn.at(drawn.first), "layer"),
        figures=_figures(drawn),
        labels=_labels(drawn) if several else None,
        layers=_layers(drawn),
    )


def token_columns(metric: LayerwiseMetric) -> Iterator[TokenColumn]:
    """Everything by which a metric of tokens is compared."""
    for state in metric.states:
        for space in metric.spaces or (None,):
            for label in COMPARED_CLASSES:
                yield TokenColumn(metric.id, state, space, label)


def first_of(columns: Sequence[TokenColumn]) -> TokenColumn:
    """What is drawn first: after the layer, of all tokens."""
    return max(columns, key=lambda c: (c.state is State.OUT, c.label == COMPARED_CLASSES[0]))


def column_words(column: TokenColumn) -> str:
    """What a number of tokens is: state, space and class."""
    space = column.space and f"compared with {SPACES[column.space]}"
    return ", ".join(x for x in (STATES[column.state], space, TOKEN_CLASSES[column.label]) if x)


def choice(column: TokenColumn) -> dict[str, str]:
    """The same as columns of a chart."""
    label = TOKEN_CLASSES[column.label]
    return {"state": str(column.state), "space": str(column.space or ""), "label": label}


def _known(found: LayerDifferences, column: TokenColumn) -> bool:
    place = found.column(column.metric, "", column.words)
    return place is not None and not np.isnan(found.value[:, place]).all()


def _summary(drawn: _Drawn) -> str:
    """In how many layers the difference is supported, and the largest."""
    at = drawn.at(drawn.first)
    begin, sure = drawn.summary(at, "layer"), drawn.found.supported[:, at]
    if not sure.any():
        return begin
    most = int(np.nanargmax(np.where(sure, np.abs(drawn.found.value[:, at]), np.nan)))
    return f"{begin}layer {most}: {drawn.stated(most, at)}."


def _figures(drawn: _Drawn) -> tuple[Figure, ...]:
    metric, names = drawn.metric, drawn.both.names
    name, show = f"{metric.id}-{drawn.both.stack}", choice(drawn.first)
    about = f"{metric.title}, {column_words(drawn.first)}"
    return (
        paired_curves(
            f"{name}-layers",
            f"{about}, mean over tokens by layer. Bands: 95 % intervals of each model, sentences "
            "as clusters.",
            pd.concat([*_curves(drawn)], ignore_index=True),
            title=metric.unit_title,
            show=show,
        ),
        difference_curve(
            f"{name}-difference",
            f"{about}: {names[1]} minus {names[0]}. Band: 95 % interval, paired by sentence. "
            f"Filled: {drawn.rule(drawn.at(drawn.first))} (family: all layers and labels); hollow: "
            "no clear difference.",
            pd.concat([*_differences(drawn)], ignore_index=True),
            title=f"difference in {metric.unit_title}",
            show=show,
        ),
    )


def _curves(drawn: _Drawn) -> Iterator[pd.DataFrame]:
    """Each model's own numbers, for everything that the chart offers."""
    sides = zip(drawn.both.names, (drawn.both.a, drawn.both.b), strict=True)
    for name, results in sides:
        for column in drawn.columns:
            numbers = results.tokens(*column)
            if numbers is not None:
                yield layer_frame(numbers, name).assign(**choice(column))


def _differences(drawn: _Drawn) -> Iterator[pd.DataFrame]:
    for column in drawn.columns:
        at = drawn.at(column)
        parts = ("value", "low", "high", "p", "supported")
        frame = pd.DataFrame({part: getattr(drawn.found, part)[:, at] for part in parts})
        frame.insert(0, "layer", range(len(frame)))
        yield frame.assign(**choice(column))


def _labels(drawn: _Drawn) -> Table:
    """Of each state, space and class how many layers differ, and the largest difference."""
    rows = []
    for column in drawn.columns:
        at = drawn.at(column)
        value, sure = np.abs(drawn.found.value[:, at]), drawn.found.supported[:, at]
        most = int(np.nanargmax(np.where(sure, value, np.nan) if sure.any() else value))
        cells = (str(int(sure.sum())), str(most), *drawn.cells(most, at))
        rows.append(Row(unbroken(column_words(column)), cells, "" if sure.any() else WEAK))
    columns = ("Tokens", "layers that differ", "most in", *drawn.both.names, "difference", "p")
    return Table(columns, tuple(rows), "The largest difference of each; grey: not supported.")


def _layers(drawn: _Drawn) -> Table:
    at = drawn.at(drawn.first)
    layers = np.flatnonzero(~np.isnan(drawn.found.value[:, at])).tolist()
    rows = (
        Row(f"layer {layer}", drawn.cells(layer, at), drawn.style(layer, at)) for layer in layers
    )
    return Table(("Layer", *drawn.both.names, "difference", "p"), tuple(rows))
