"""The space of token states: how alike tokens and layers are, and in how many dimensions."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from headbook.analysis.accumulators import Estimates
from headbook.analysis.state_vectors import MINIBATCH, N_OUTLIERS
from headbook.charts.axes import even_places
from headbook.charts.panels import PanelPlot, PlotPanel, panel_plot
from headbook.charts.plots import Plot, Scale, Series, even_ticks, layer_plot
from headbook.charts.theme import amount_class
from headbook.metrics import all_metrics, ids
from headbook.pages.parts.table import HeatCell, NumberCell, PageTable, Row
from headbook.report.linked_rows import LinkedNumber
from headbook.report.results import StackResults
from headbook.report.wording import count_text, number_word
from headbook.results.formats import MISSING, interval_text, number
from headbook.results.sentence import metric_link
from headbook.schema import ResidualPoint
from headbook.study.sums.state_geometry import (
    CKA,
    OUTLIERS,
    GeometrySums,
    StateColumn,
    short_names,
    state_names,
)

HEIGHT = 220  # pixels of a panel
MAX_MARKED = 8  # states with a name in a panel
MAX_STATES = 13  # rows of a table with heat
DOMINANT = 1 / 4  # share of the mean cosine from which on a dimension makes tokens alike
ANISOTROPY = ids.ANISOTROPY
THREE = number_word(N_OUTLIERS)


class SpaceLine(NamedTuple):
    """A line of a panel: name, role in the palette, and key of its number."""

    name: str
    role: str
    column: StateColumn


ANY_TWO = SpaceLine("any two", "baseline", StateColumn(ANISOTROPY, "raw"))
RANK_MEASURE = f"effective rank of {MINIBATCH} tokens: dimensions that their states fill evenly"
PANELS = (
    ("Two tokens of different sentences", "mean cosine (anisotropy)", (
        SpaceLine("unchanged", "model", StateColumn(ANISOTROPY, "raw")),
        SpaceLine(f"{THREE} removed", "control", StateColumn(ANISOTROPY, "without_outliers")),
        SpaceLine("standardised", "control", StateColumn(ANISOTROPY, "standardised")),
    )),
    ("One word in two sentences", "mean cosine (self-similarity)", (
        SpaceLine("one word", "model", StateColumn(ids.SELF_SIMILARITY, "raw")), ANY_TWO,
    )),
    ("A word and its sentence", "cosine to the mean of the sentence", (
        SpaceLine("own sentence", "model", StateColumn(ids.INTRA_SENTENCE_SIMILARITY, "raw")),
        ANY_TWO,
    )),
    ("Dimensions in use", RANK_MEASURE, (
        SpaceLine("rank", "model", StateColumn(ids.EFFECTIVE_RANK, "")),
    )),
)  # fmt: skip


def state_row(stack: str, state: int, column: StateColumn) -> tuple[tuple[str, str | int], ...]:
    """Return the columns and values that identify a number of a state in the table `geometry`.

    Args:
        state: place among the states, 0 for the input of layer 0.
    """
    place = ("layer", state - 1) if state else ("state", str(ResidualPoint.PRE))
    return (("stack", stack), place, ("metric", column.metric), ("label", column.label))


def estimates_of(sums: GeometrySums, column: StateColumn) -> Estimates:
    """Return a number of every state; NaN if it was not measured."""
    metric = all_metrics()[column.metric]
    return Estimates.of(sums.of(*column), metric.limits, metric.spread(column.label))


def space_plot(results: StackResults, sums: GeometrySums) -> PanelPlot | None:
    """Return the curves of the space of states; None without any number."""
    stack = results.stack.name
    panels = []
    for title, measure, lines in PANELS:
        series = [
            Series(line.name, line.role, values.value, values.low, values.high,
                   [*map(number, values.value.tolist())],
                   [LinkedNumber("", "geometry", state_row(stack, state, line.column)).href
                    for state in range(len(values.value))])
            for line in lines
            if not np.isnan((values := estimates_of(sums, line.column)).value).all()
        ]  # fmt: skip
        if series and not (len(series) == 1 and series[0].kind == "baseline"):
            panels.append(PlotPanel(title, measure, _panel(title, series, sums)))
    behind = f"{count_text(sums.tokens, 'token')}{results.sample_note(sums.sentences, ' of')}"
    caption = (
        f"States of {behind}, special tokens left out. Dashed: any two tokens of different "
        f"sentences. Dotted: without the {THREE} dimensions that add most to their cosine, and "
        "with every dimension standardised. Bands: 95 % intervals, from leaving out each sentence "
        "in turn (jackknife)."
    )
    return panel_plot(f"geometry-space-{stack}", caption, panels)


def round_top(value: float) -> float:
    """Return the end of an axis from 0: 1, 2, 4 or 6 times a power of ten, at least a value."""
    power = 10.0 ** math.floor(math.log10(max(value, 0.01)))
    return next(n * power for n in (1, 2, 4, 6, 10) if n * power >= value * (1 - 1e-9))


def _panel(title: str, series: Sequence[Series], sums: GeometrySums) -> Plot:
    values = np.concatenate([part for line in series for part in (line.values, line.high)])
    least = min(float(np.nanmin(line.values)) for line in series)
    low, high = min(0.0, least), round_top(float(np.nanmax(values)))
    ticks = even_ticks(0.0, high, lambda value: f"{value:g}", 3)
    scale = Scale(low, high, HEIGHT)
    names = short_names(len(sums.weights))
    return layer_plot(
        "", title, series, names, scale=scale, ticks=ticks, label_width=160, n_marked=MAX_MARKED
    )


def _heat(value: float, most: float, number_of: LinkedNumber, note: str = "") -> HeatCell:
    if np.isnan(value):
        return HeatCell(MISSING, "q0")
    return HeatCell(number_of.text, amount_class(value, 0.0, most), number_of, note)


def layer_similarity(results: StackResults, sums: GeometrySums) -> PageTable | None:
    """Return the similarity of every two states, of many states a part; None if not measured."""
    if np.isnan(sums.cka).all():
        return None
    places = even_places(len(sums.weights), MAX_STATES)
    names = short_names(len(sums.weights))
    rows = []
    for state in places:
        cells = []
        for other in places:
            value = float(sums.cka[state, other])
            row = state_row(results.stack.name, state, StateColumn(CKA, names[other]))
            cells.append(_heat(value, 1.0, LinkedNumber(number(value), "geometry", row)))
        rows.append(Row(_long_name(state), tuple(cells)))
    return PageTable(("state", *(names[place] for place in places)), tuple(rows), style="heat")


def _long_name(state: int) -> str:
    return f"layer {state - 1}" if state else "input"


def outlier_title(sums: GeometrySums) -> str:
    """Return the title of the table of outlier dimensions."""
    whole, largest = (
        estimates_of(sums, StateColumn(*column)).value
        for column in ((ANISOTROPY, "raw"), (OUTLIERS, "largest"))
    )
    # If the mean cosine may be 0, the share of one dimension means nothing.
    positive = sums.above(ANISOTROPY, "raw")
    if (largest[positive] >= DOMINANT * whole[positive]).any():
        return "Few dimensions make tokens alike"
    return "Which dimensions make tokens alike"


def outlier_table(results: StackResults, sums: GeometrySums) -> PageTable | None:
    """Return how much single dimensions add to the cosine of tokens; None if not measured."""
    largest = StateColumn(OUTLIERS, "largest")
    columns = (StateColumn(ANISOTROPY, "raw"), largest, StateColumn(OUTLIERS, "three"))
    numbers = [estimates_of(sums, column) for column in columns]
    if np.isnan(numbers[2].value).all():
        return None
    most = max(float(np.nanmax(each.value)) for each in numbers if not np.isnan(each.value).all())
    rows = []
    for state in np.argsort(-np.nan_to_num(numbers[1].value), kind="stable")[:MAX_STATES].tolist():
        cells = []
        for column, estimates in zip(columns, numbers, strict=True):
            value = estimates.value.item(state)
            dimensions = sums.largest(state, 1) if column == largest else []
            text = f"{number(value)}{''.join(f' (dim. {n})' for n in dimensions)}"
            row = LinkedNumber(text, "geometry", state_row(results.stack.name, state, column))
            note = interval_text(estimates.low.item(state), estimates.high.item(state))
            cells.append(_heat(value, most, row, note))
        rows.append(Row(_long_name(state), tuple(cells)))
    titles = ("state", "all dimensions", "from the largest", f"from {THREE}")
    return PageTable(titles, tuple(rows), style="heat")


HEADINGS = {
    "raw": "unchanged",
    "adjusted": "minus any two",
    "baseline": "random tokens",
    "standardised": "standardised",
    "without_outliers": f"without {THREE} dimensions",
}
# Metrics of each table of numbers.
TABLES = {
    "Similarity of tokens": (ANISOTROPY, ids.SELF_SIMILARITY, ids.INTRA_SENTENCE_SIMILARITY),
    "Dimensions": (ids.MAXIMUM_EXPLAINABLE_VARIANCE, ids.EFFECTIVE_RANK),
    "Cosine to the input embedding": (ids.STANDARDISED_COSINE,),
}


def number_tables(sums: GeometrySums) -> Iterator[PageTable]:
    """Yield tables of all numbers of states with intervals; similarities of layers are left out."""
    names = [
        "input" if layer is None else f"L{layer}" for layer, _ in state_names(len(sums.weights))
    ]
    for title, metrics in TABLES.items():
        columns = [c for m in metrics for c in sums.columns if c.metric == m]
        if columns:
            cells = [_number_cells(sums, column) for column in columns]
            counts = {m: sum(c.metric == m for c in columns) for m in metrics}
            yield PageTable(
                ("State", *(HEADINGS.get(column.label, "value") for column in columns)),
                tuple(map(Row, names, zip(*cells, strict=True))),
                title,
                groups=tuple(
                    (metric_link(m, all_metrics()[m].title), n) for m, n in counts.items() if n
                ),
            )


def _number_cells(sums: GeometrySums, column: StateColumn) -> list[NumberCell]:
    numbers, metric = estimates_of(sums, column), all_metrics()[column.metric]
    return [NumberCell.of(numbers.at(row), metric) for row in range(len(sums.weights))]


def gaps_in_space(sums: GeometrySums) -> Iterator[str]:
    """Yield a sentence for each reason for which numbers of states are missing."""
    known = {
        column.metric: not np.isnan(sums.states.value[:, index]).all()
        for index, column in enumerate(sums.columns)
        if column.label in {"", "raw", "largest"}
    }
    asked = {*known} | ({CKA} if sums.products.size else set())
    if sums.sentences < 2 and ANISOTROPY in asked:
        yield "Anisotropy, and what builds on it, needs two sentences; the sample has one."
    if sums.minibatches == 0 and asked & {CKA, ids.EFFECTIVE_RANK}:
        yield (
            f"Effective rank and similarity of layers need {MINIBATCH} tokens; the sample has "
            f"{sums.tokens:,}."
        )
    if known.get(ids.SELF_SIMILARITY) is False:
        yield "Self-similarity needs a vocabulary token that occurs in two sentences of the sample."
    if known.get(ids.MAXIMUM_EXPLAINABLE_VARIANCE) is False:
        yield "Explainable variance needs a vocabulary token that occurs in five of its sentences."
    if sums.sentences > 1 and not sums.weights.all():
        states = np.array(short_names(len(sums.weights)))[sums.weights == 0]
        yield f"Cosines of {', '.join(states)} are missing: a vector there is 0 or not finite."
