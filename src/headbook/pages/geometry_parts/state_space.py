"""The space of token states: how alike tokens and layers are, and in how many dimensions."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from headbook.analysis.state_vectors import MINIBATCH, N_OUTLIERS
from headbook.charts.axes import even_places
from headbook.charts.panels import PanelPlot, PlotPanel, panel_plot
from headbook.charts.plots import Line, Plot, Scale, even_ticks, layer_plot
from headbook.charts.theme import amount_class
from headbook.metrics import all_metrics, ids
from headbook.pages.parts.blocks import Heat, Table, heat_of, row
from headbook.report.facts.states import geometry as facts
from headbook.report.results import StackResults
from headbook.report.wording import count_text, number_word
from headbook.results.formats import MISSING, metric_page
from headbook.results.number import PLAIN, Number
from headbook.results.sentence import Link, say
from headbook.study.sums.state_geometry import CKA, OUTLIERS, GeometrySums, StateColumn, short_names

HEIGHT = 220  # pixels of a panel
MAX_MARKED = 8  # states with a name in a panel
MAX_STATES = 13  # rows of a table with heat
THREE = number_word(N_OUTLIERS)
ANISOTROPY = ids.ANISOTROPY
ANY_TWO = ("any two", "baseline", facts.ANY_TWO)
RANK_MEASURE = f"effective rank of {MINIBATCH} tokens: dimensions that their states fill evenly"
# Title, measure and lines of each panel; of a line its name, its role in the palette and its key.
PANELS = (
    ("Two tokens of different sentences", "mean cosine (anisotropy)", (
        ("unchanged", "model", facts.ANY_TWO),
        (f"{THREE} removed", "control", StateColumn(ANISOTROPY, "without_outliers")),
        ("standardised", "control", StateColumn(ANISOTROPY, "standardised")),
    )),
    ("One word in two sentences", "mean cosine (self-similarity)", (
        ("one word", "model", StateColumn(ids.SELF_SIMILARITY, "raw")), ANY_TWO,
    )),
    ("A word and its sentence", "cosine to the mean of the sentence", (
        ("own sentence", "model", StateColumn(ids.INTRA_SENTENCE_SIMILARITY, "raw")), ANY_TWO,
    )),
    ("Dimensions in use", RANK_MEASURE, (
        ("rank", "model", StateColumn(ids.EFFECTIVE_RANK, "")),
    )),
)  # fmt: skip


def sums_of(results: StackResults) -> GeometrySums | None:
    """Return the sums of the states of a stack; None if they were not measured."""
    return results.study.corpus_sums.geometry.get(results.stack.name)


def _numbers(results: StackResults, column: StateColumn) -> list[Number]:
    """Return a number of every state; empty if it was not measured."""
    sums = sums_of(results)
    states = range(len(sums.weights)) if sums else range(0)
    numbers = [facts.space_number(results, column, state) for state in states]
    return [number for number in numbers if number is not None]


def space_plot(results: StackResults) -> PanelPlot | None:
    """Return the curves of the space of states; None without any number."""
    sums, panels = sums_of(results), []
    if sums is None:
        return None
    for title, measure, of_panel in PANELS:
        every = [Line(name, role, _numbers(results, column)) for name, role, column in of_panel]
        lines = [line for line in every if any(n.known for n in line.numbers)]
        if lines and not (len(lines) == 1 and lines[0].kind == "baseline"):
            panels.append(PlotPanel(title, measure, _panel(title, lines, len(sums.weights))))
    behind = f"{count_text(sums.tokens, 'token')}{results.sample_note(sums.sentences, ' of')}"
    caption = (
        f"Space of states by layer, {behind}, special tokens left out. Dashed: any two tokens of "
        f"different sentences. Dotted: without the {THREE} dimensions that add most to their "
        "cosine, and with every dimension standardised. Bands: 95 % intervals, from leaving out "
        "each sentence in turn (jackknife)."
    )
    return panel_plot(f"geometry-space-{results.stack.name}", caption, panels)


def round_top(value: float) -> float:
    """Return the end of an axis from 0: 1, 2, 4 or 6 times a power of ten, at least a value."""
    power = 10.0 ** math.floor(math.log10(max(value, 0.01)))
    return next(n * power for n in (1, 2, 4, 6, 10) if n * power >= value * (1 - 1e-9))


def _panel(title: str, lines: Sequence[Line], n_states: int) -> Plot:
    known = [n for line in lines for n in line.numbers if n.known]
    low, high = min(0.0, *(n.value for n in known)), max(np.fmax(n.value, n.high) for n in known)
    top = round_top(float(high))
    ticks = even_ticks(0.0, top, lambda value: f"{value:g}", 3)
    return layer_plot(
        "", title, lines, short_names(n_states), scale=Scale(low, top, HEIGHT), ticks=ticks,
        label_width=160, n_marked=MAX_MARKED,
    )  # fmt: skip


def layer_similarity(results: StackResults) -> Table | None:
    """Return the similarity of every two states, of many states a part; None if not measured."""
    sums = sums_of(results)
    if sums is None or np.isnan(sums.cka).all():
        return None
    places, names = even_places(len(sums.weights), MAX_STATES), short_names(len(sums.weights))

    def similarity(state: int, other: int) -> Number:
        column = StateColumn(CKA, names[other])
        row_address = facts.state_row(results.stack.name, state, column)
        return Number(float(sums.cka[state, other]), PLAIN, row_address)

    rows = tuple(
        row(_long_name(state), *(heat_of(similarity(state, other), 1.0) for other in places))
        for state in places
    )
    note = (
        "linear CKA (centred kernel alignment); 1: states of all tokens lie alike, up to rotation "
        "and scale"
    )
    columns = row("state", *(names[place] for place in places))
    return Table(columns, rows, "How alike two layers are", note, "heat")


def _long_name(state: int) -> str:
    return f"layer {state - 1}" if state else "input"


def outlier_table(results: StackResults) -> Table | None:
    """Return how much single dimensions add to the cosine of tokens; None if not measured."""
    sums = sums_of(results)
    columns = (facts.ANY_TWO, facts.LARGEST, StateColumn(OUTLIERS, "three"))
    whole, largest, three = (_numbers(results, column) for column in columns)
    if sums is None or not any(n.known for n in three):
        return None
    most = max(n.value for numbers in (whole, largest, three) for n in numbers if n.known)

    def heat(numbers: Sequence[Number], state: int) -> Heat:
        number = numbers[state] if numbers else None  # --metrics may leave one of them out
        if number is None or not number.known:
            return Heat(MISSING, "q0")
        fill = amount_class(number.value, 0.0, most)
        return Heat(number, fill, number.as_text("ends"))

    order = sorted(range(len(three)), key=lambda state: -np.nan_to_num(three[state].value))
    if largest:
        order.sort(key=lambda state: -np.nan_to_num(largest[state].value))
    rows = tuple(
        row(
            _long_name(state), heat(whole, state), heat(largest, state),
            ", ".join(map(str, sums.largest(state, 1))), heat(three, state),
        )
        for state in order[:MAX_STATES]
    )  # fmt: skip
    titles = row("state", "all dimensions", "from the largest", "dimension", f"from {THREE}")
    note = "mean cosine of two tokens of different sentences, largest first"
    return Table(titles, rows, results.cached(facts.few_dimensions).text, note, "heat")


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


def number_tables(results: StackResults) -> Iterator[Table]:
    """Yield tables of all numbers of states with intervals; similarities of layers are left out."""
    sums = sums_of(results)
    if sums is None:
        return
    names = [f"L{name}" if name.isdigit() else name for name in short_names(len(sums.weights))]
    for title, metrics in TABLES.items():
        columns = [c for m in metrics for c in sums.columns if c.metric == m]
        if columns:
            cells = [_numbers(results, column) for column in columns]
            counts = {m: sum(c.metric == m for c in columns) for m in metrics}
            yield Table(
                ("State", *(HEADINGS.get(column.label, "value") for column in columns)),
                tuple(row(*of_state) for of_state in zip(names, *cells, strict=True)),
                title,
                groups=tuple(
                    (say("{link}", link=Link(all_metrics()[m].title, metric_page(m))), n)
                    for m, n in counts.items()
                    if n
                ),
            )


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
