"""A metric in two models: the page, and its sections for metrics of tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from headbook.charts import Figure
from headbook.charts.comparison import depth_curves, difference_curve, paired_curves
from headbook.comparison.differences import ComparedColumn, LayerDifferences
from headbook.comparison.study_pair import same_vocabulary
from headbook.metrics import all_metrics
from headbook.metrics.base import LayerwiseMetric
from headbook.pages.comparison.metricpair_heads import (
    OF_LAYERS,
    WEAK,
    ComparedMetric,
    DepthSection,
    HeadMetricSection,
    MetricComparison,
    compared_metric,
    depth,
    depth_section,
    head_metric_section,
    median_table,
)
from headbook.pages.comparison.parts import StackComparison
from headbook.pages.parts.page import Page
from headbook.pages.parts.table import PageTable, Row, layer_frame
from headbook.report.wording import SPACES, STATES, TOKEN_CLASSES, unbroken
from headbook.schema import COMPARED_CLASSES, ResidualPoint, TokenKey
from headbook.study.ablation_tables import EFFECT


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
    labels: PageTable | None
    layers: PageTable


@dataclass(frozen=True)
class _TokenMetric(MetricComparison[LayerDifferences]):
    """A metric of one stack: what there is of it, and of that what is drawn first."""

    columns: tuple[TokenKey, ...]
    first: TokenKey

    def at(self, column: TokenKey) -> int:
        place = self.found.column(column.metric, "", column.words)
        assert place is not None
        return place


def layer_section(both: StackComparison, metric: ComparedMetric) -> LayerSection | None:
    """Return the differences in one stack; None if a model has no numbers there."""
    known, found = all_metrics().get(metric.id), both.layers
    if found is None or not isinstance(known, LayerwiseMetric):
        return None
    columns = tuple(column for column in token_columns(known) if _is_known(found, column))
    if not columns:
        return None
    drawn = _TokenMetric(both, found, metric, columns, first_token_key(columns))
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


def token_columns(metric: LayerwiseMetric) -> Iterator[TokenKey]:
    """Everything by which a metric of tokens is compared."""
    for state in metric.states:
        for space in metric.spaces or (None,):
            for label in COMPARED_CLASSES:
                yield TokenKey(metric.id, state, space, label)


def first_token_key(columns: Sequence[TokenKey]) -> TokenKey:
    """Return the key that is drawn first: after the layer, of all tokens."""
    return max(
        columns, key=lambda c: (c.state is ResidualPoint.POST, c.label == COMPARED_CLASSES[0])
    )


def column_words(column: TokenKey) -> str:
    """Return state, space and class of a number of tokens in words."""
    space = column.space and f"compared with {SPACES[column.space]}"
    return ", ".join(x for x in (STATES[column.state], space, TOKEN_CLASSES[column.label]) if x)


def choice(column: TokenKey) -> dict[str, str]:
    """Return state, space and class of a number of tokens as columns of a chart."""
    label = TOKEN_CLASSES[column.label]
    return {"state": str(column.state), "space": str(column.space or ""), "label": label}


def _is_known(found: LayerDifferences, column: TokenKey) -> bool:
    place = found.column(column.metric, "", column.words)
    return place is not None and not np.isnan(found.value[:, place]).all()


def _summary(drawn: _TokenMetric) -> str:
    """Return in how many layers the difference is supported, and the largest."""
    at = drawn.at(drawn.first)
    begin, sure = drawn.summary(at, "layer"), drawn.found.supported[:, at]
    if not sure.any():
        return begin
    most = int(np.nanargmax(np.where(sure, np.abs(drawn.found.value[:, at]), np.nan)))
    return f"{begin}layer {most}: {drawn.stated(most, at)}."


def _figures(drawn: _TokenMetric) -> tuple[Figure, ...]:
    metric, names = drawn.metric, drawn.both.names
    name, show = f"{metric.id}-{drawn.both.stack}", choice(drawn.first)
    about = f"{metric.title}, {column_words(drawn.first)}"
    return (
        paired_curves(
            f"{name}-layers",
            f"{about}, mean over tokens by layer. Bands: 95 % intervals of each model, sentences "
            "as clusters.",
            pd.concat([*_layer_curves(drawn)], ignore_index=True),
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


def _layer_curves(drawn: _TokenMetric) -> Iterator[pd.DataFrame]:
    """Each model's own numbers, for everything that the chart offers."""
    sides = zip(drawn.both.names, (drawn.both.a, drawn.both.b), strict=True)
    for name, results in sides:
        for column in drawn.columns:
            numbers = results.tokens(*column)
            if numbers is not None:
                yield layer_frame(numbers, name).assign(**choice(column))


def _differences(drawn: _TokenMetric) -> Iterator[pd.DataFrame]:
    for column in drawn.columns:
        at = drawn.at(column)
        parts = ("value", "low", "high", "p", "supported")
        frame = pd.DataFrame({part: getattr(drawn.found, part)[:, at] for part in parts})
        frame.insert(0, "layer", range(len(frame)))
        yield frame.assign(**choice(column))


def _labels(drawn: _TokenMetric) -> PageTable:
    """Return how many layers differ for each state, space and class, and by how much at most."""
    rows = []
    for column in drawn.columns:
        at = drawn.at(column)
        value, sure = np.abs(drawn.found.value[:, at]), drawn.found.supported[:, at]
        most = int(np.nanargmax(np.where(sure, value, np.nan) if sure.any() else value))
        cells = (str(int(sure.sum())), str(most), *drawn.cells(most, at))
        rows.append(Row(unbroken(column_words(column)), cells, "" if sure.any() else WEAK))
    columns = ("Tokens", "layers that differ", "most in", *drawn.both.names, "difference", "p")
    return PageTable(columns, tuple(rows), "The largest difference of each; grey: not supported.")


def _layers(drawn: _TokenMetric) -> PageTable:
    at = drawn.at(drawn.first)
    layers = np.flatnonzero(~np.isnan(drawn.found.value[:, at])).tolist()
    rows = (
        Row(f"layer {layer}", drawn.cells(layer, at), drawn.style(layer, at)) for layer in layers
    )
    return PageTable(("Layer", *drawn.both.names, "difference", "p"), tuple(rows))


VOCABULARIES = "The vocabularies differ, and with them ranks and what chance gives."


def token_depth_section(both: StackComparison, metric: ComparedMetric) -> DepthSection | None:
    """Both models over relative depth; None where one of them has no numbers."""
    known = all_metrics().get(metric.id)
    if not isinstance(known, LayerwiseMetric):
        return None
    columns = [column for column in token_columns(known) if _is_known_in_both(both, column)]
    if not columns:
        return None
    first = first_token_key(columns)
    words = column_words(first)
    figure = depth_curves(
        f"{metric.id}-{both.stack}-depth",
        f"{metric.title}, {words}, over relative depth: mean over tokens; bands: 95 % intervals, "
        "sentences as clusters.",
        pd.concat([*_depth_curves(both, columns)], ignore_index=True),
        title=metric.unit_title,
        show=choice(first),
    )
    named = [(column_words(c), ComparedColumn(c.metric, "", c.words)) for c in columns]
    table = median_table(both, metric, named, OF_LAYERS + "s")
    models = (results.study.manifest.model for results in (both.a, both.b))
    note = VOCABULARIES if known.spaces and not same_vocabulary(*models) else ""
    return DepthSection(both.title, words, figure, table, OF_LAYERS + "s", note)


def _is_known_in_both(both: StackComparison, column: TokenKey) -> bool:
    return all(results.tokens(*column) is not None for results in (both.a, both.b))


def _depth_curves(both: StackComparison, columns: Sequence[TokenKey]) -> Iterator[pd.DataFrame]:
    """Both models under every choice."""
    for name, results in zip(both.names, (both.a, both.b), strict=True):
        for column in columns:
            numbers = results.tokens(*column)
            assert numbers is not None
            there = np.flatnonzero(~np.isnan(numbers.value))
            frame = pd.DataFrame({
                "depth": [depth(results.stack, layer) for layer in there.tolist()],
                **{part: getattr(numbers, part)[there] for part in ("value", "low", "high")},
            })  # fmt: skip
            yield frame.assign(series=name, kind=OF_LAYERS, **choice(column))


@dataclass(frozen=True, kw_only=True)
class MetricPairPage(Page):
    """A metric in two models.

    Attributes:
        metric: what is compared.
        names: of the models.
        rounded: whether rounding floors were measured.
        pairs: by kind of attention, where heads correspond.
        depths: the same where they do not.
        layers: metrics of tokens, by kind of attention, where layers correspond.
    """

    template: ClassVar[str] = "comparison/metricpair.html"
    styles = ("comparison",)
    metric: ComparedMetric
    names: tuple[str, str]
    rounded: bool
    pairs: tuple[HeadMetricSection, ...]
    depths: tuple[DepthSection, ...]
    layers: tuple[LayerSection, ...]

    @property
    def short(self) -> str:
        """Difference in the first kind of attention, in few words; empty if unknown.

        Heads or layers of models that do not correspond are not set against each other.
        """
        texts = [*(each.short for each in self.pairs), *(each.short for each in self.layers)]
        return texts[0] if texts else ""


def metric_pair_pages(stacks: Sequence[StackComparison]) -> Iterator[MetricPairPage]:
    """Yield a page for each metric that both models have."""
    for name in (*all_metrics(), EFFECT):
        metric = compared_metric(name)
        page = metric and _page(metric, stacks)
        if page and (page.pairs or page.depths or page.layers):
            yield page


def _page(metric: ComparedMetric, stacks: Sequence[StackComparison]) -> MetricPairPage:
    pairs = [head_metric_section(both, metric) for both in stacks]
    depths = [
        depth_section(both, metric) or token_depth_section(both, metric)
        for both in stacks
        if both.found is None
    ]
    layers = [layer_section(both, metric) for both in stacks]
    names = stacks[0].names
    return MetricPairPage(
        path=metric.path,
        title=metric.title,
        description=metric.about,
        metric=metric,
        names=names,
        rounded=any(both.found is not None and both.found.floor is not None for both in stacks),
        pairs=tuple(section for section in pairs if section),
        depths=tuple(section for section in depths if section),
        layers=tuple(section for section in layers if section),
    )
