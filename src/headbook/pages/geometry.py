"""The geometry of states."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import pandas as pd

from headbook.analysis.accumulators import Estimates
from headbook.analysis.state_vectors import MINIBATCH, N_OUTLIERS
from headbook.charts import Figure, state_curves, state_matrix
from headbook.metrics import all_metrics, ids
from headbook.pages.parts.page import Page
from headbook.pages.parts.table import (
    DASH,
    MarkedText,
    NumberCell,
    PageTable,
    Part,
    Row,
    words_cell,
)
from headbook.report.findings.finding import metric_link
from headbook.report.findings.states import geometry_sentences
from headbook.report.results import StackResults, study_of
from headbook.report.wording import MISSING, STACKS, count_text, number, percent
from headbook.study.state_geometry import (
    CKA,
    OUTLIERS,
    GeometrySums,
    StateColumn,
    short_names,
    state_names,
)


class StateCurve(NamedTuple):
    """A number in a panel; its axis is the panel's."""

    panel: str
    axis: str
    series: str
    metric: str
    label: str = "raw"
    baseline: bool = False


SIMILAR, ONE, RANK = "Similarity of tokens", "Best single direction", "Effective rank"
COSINE, PATH = "Cosine of two tokens", "Cosine to the input embedding"
SHAPES = (
    StateCurve(SIMILAR, "cosine", "same token", ids.SELF_SIMILARITY),
    StateCurve(SIMILAR, "cosine", "same sentence", ids.INTRA_SENTENCE_SIMILARITY),
    StateCurve(SIMILAR, "cosine", "any two", ids.ANISOTROPY, baseline=True),
    StateCurve(ONE, "share", "same token", ids.MAXIMUM_EXPLAINABLE_VARIANCE),
    StateCurve(
        ONE, "share", "random tokens", ids.MAXIMUM_EXPLAINABLE_VARIANCE, "baseline", baseline=True
    ),
    StateCurve(RANK, f"dimensions ({MINIBATCH} tokens)", "rank", ids.EFFECTIVE_RANK, ""),
)
TREATED = tuple(
    StateCurve(panel, "cosine", series, metric, label)
    for panel, metric in ((COSINE, ids.ANISOTROPY), (PATH, ids.STANDARDISED_COSINE))
    for label, series in {
        "raw": "unchanged",
        "without_outliers": "without three",
        "standardised": "standardised",
    }.items()
)


def figures(results: StackResults, sums: GeometrySums) -> Iterator[Figure]:
    """All figures of one stack that have something to show."""
    stack = results.stack.name
    behind = f"{count_text(sums.tokens, 'token')}{results.sample_note(sums.sentences, ' of')}"
    ranked = StateColumn(ids.EFFECTIVE_RANK, "") in sums.columns and sums.minibatches
    rank = " Right: effective rank." if ranked else ""
    captions = {
        f"geometry-{stack}": (
            SHAPES,
            "Cosine of occurrences of one vocabulary token in different sentences, of tokens with "
            "the mean of their sentence, and of any two tokens (grey: baseline). Variance along "
            "the best single direction: one vocabulary token, and as many random tokens (grey)."
            f"{rank} Bands: 95 % intervals.",
        ),
        f"geometry-dimensions-{stack}": (
            TREATED,
            "Cosine of two tokens of different sentences, and of each token to its input "
            "embedding: unchanged, without the three dimensions that add most to it, and with "
            "every dimension standardised. Where lines differ, a few dimensions dominate.",
        ),
    }
    for name, (lines, caption) in captions.items():
        rows = _rows(sums, lines)
        if len(rows):
            panels = list(dict.fromkeys(rows["panel"]))
            yield state_curves(
                name,
                f"{caption} {behind}.",
                rows,
                states=short_names(len(sums.weights)),
                panels=panels,
            )
    if not np.isnan(sums.cka).all():
        yield _matrix(f"geometry-cka-{stack}", sums)


def _rows(sums: GeometrySums, lines: tuple[StateCurve, ...]) -> pd.DataFrame:
    states, frames = short_names(len(sums.weights)), []
    for line in lines:
        metric = all_metrics()[line.metric]
        of = sums.of(line.metric, line.label)
        numbers = Estimates.of(of, metric.limits, metric.spread(line.label))
        frame = pd.DataFrame(
            {"state": states, "value": numbers.value, "low": numbers.low, "high": numbers.high}
        )
        labels = {"panel": line.panel, "title": line.axis, "series": line.series}
        frames.append(frame.assign(**labels, baseline=line.baseline).dropna(subset="value"))
    frames = [frame for frame in frames if len(frame)]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _matrix(name: str, sums: GeometrySums) -> Figure:
    states = short_names(len(sums.weights))
    rows = [
        {"state": state, "other": other, "value": float(value)}
        for state, row in zip(states, sums.cka, strict=True)
        for other, value in zip(states, row, strict=True)
        if not np.isnan(value)
    ]
    caption = (
        "Similarity of every two layers by linear CKA, unbiased (1: the same up to rotation and "
        f"scale), over {count_text(sums.minibatches, 'minibatch', 'minibatches')} of "
        f"{MINIBATCH} tokens."
    )
    return state_matrix(name, caption, pd.DataFrame(rows), states=states, title="CKA")


ANISOTROPY = ids.ANISOTROPY
LEAST = 0.01  # mean cosine of which parts are told
MOST_STATES = 40  # rows of a table of every two states
HEADINGS = {
    "raw": "unchanged",
    "adjusted": "minus baseline",
    "baseline": "random tokens",
    "standardised": "standardised",
    "without_outliers": "without outliers",
}
# Each table's metrics; what is said of the outliers has a table of its own.
TABLES = {
    "Similarity of tokens": (ANISOTROPY, ids.SELF_SIMILARITY, ids.INTRA_SENTENCE_SIMILARITY),
    "Dimensions": (ids.MAXIMUM_EXPLAINABLE_VARIANCE, ids.EFFECTIVE_RANK),
    "Cosine to the input embedding": (ids.STANDARDISED_COSINE,),
}


@dataclass(frozen=True)
class GeometrySection:
    """One kind of states.

    Attributes:
        stack, title: as files and as pages call it.
        sample: what the numbers rest on.
        summary: what they say, in sentences.
        remarks: what is missing, and why.
        figures: curves and the matrix of layers.
        tables: the numbers by state, with their headings; titles stand below the metrics'.
        outliers: the largest dimensions of each state; None where nobody asked.
        cka: by state, how alike it is to every other; None where there are too many, or none.
    """

    stack: str
    title: str
    sample: str
    summary: tuple[str, ...]
    remarks: tuple[str, ...]
    figures: tuple[Figure, ...]
    tables: tuple[tuple[str, PageTable], ...]
    outliers: PageTable | None
    cka: PageTable | None


@dataclass(frozen=True, kw_only=True)
class GeometryPage(Page):
    """The geometry of the states of all stacks.

    Attributes:
        sections: by stack.
        without: kinds of attention that have no section, and why.
        named: dimensions that the table of outliers names.
        minibatch: tokens of a minibatch.
    """

    template: ClassVar[str] = "geometry.html"
    sections: tuple[GeometrySection, ...]
    without: tuple[str, ...]
    named: int
    minibatch: int


def has_geometry(results: Mapping[str, StackResults]) -> bool:
    """Return whether a study has the geometry of token states."""
    return bool(study_of(results).corpus_sums.geometry)


def geometry_page(results: Mapping[str, StackResults]) -> GeometryPage:
    """The page of the geometry of states."""
    study = study_of(results)
    geometry_sums = study.corpus_sums.geometry
    return GeometryPage(
        path="geometry.html",
        title="Representation geometry",
        description=f"Similarity of token states in the layers of {study.manifest.model.name}, "
        "their effective dimensions, and similarity of layers.",
        sections=tuple(
            _section(r, geometry_sums[name]) for name, r in results.items() if name in geometry_sums
        ),
        without=tuple(_without(results[name]) for name in results if name not in geometry_sums),
        named=N_OUTLIERS,
        minibatch=MINIBATCH,
    )


def _without(results: StackResults) -> str:
    stack = results.stack
    why = (
        "no states of its own; those of the decoder are above"
        if stack.crosses
        else "no sentence of the sample has a token that counts"
    )
    return f"{STACKS[stack.name]}: {why}"


def _section(results: StackResults, sums: GeometrySums) -> GeometrySection:
    stack = results.stack.name
    return GeometrySection(
        stack=stack,
        title="states of the " + ("layers" if stack == "self" else stack),
        sample=f"{count_text(sums.tokens, 'token')} of {count_text(sums.sentences, 'sentence')}",
        summary=tuple(geometry_sentences(sums)),
        remarks=tuple(_remarks(sums)),
        figures=tuple(figures(results, sums)),
        tables=tuple(_tables(sums)),
        outliers=_outliers(sums),
        cka=_cka(sums),
    )


def _cka(sums: GeometrySums) -> PageTable | None:
    names = short_names(len(sums.weights))
    if np.isnan(sums.cka).all() or len(names) > MOST_STATES:
        return None
    rows = zip(names, sums.cka, strict=True)
    return PageTable(
        ("Layer", *names), tuple(Row(name, tuple(map(number, map(float, r)))) for name, r in rows)
    )


def _remarks(sums: GeometrySums) -> Iterator[str]:
    """Why numbers are missing."""
    there = {
        column.metric: not np.isnan(sums.states.value[:, index]).all()
        for index, column in enumerate(sums.columns)
        if column.label in {"", "raw", "largest"}
    }
    asked = {*there} | ({CKA} if sums.products.size else set())
    if sums.sentences < 2 and ANISOTROPY in asked:
        yield "anisotropy, and what builds on it: the sample has one sentence only"
    if sums.minibatches == 0 and asked & {CKA, ids.EFFECTIVE_RANK}:
        what = "effective rank and similarity of layers"
        yield f"{what}: they need {MINIBATCH} tokens; the sample has {sums.tokens:,}"
    if there.get(ids.SELF_SIMILARITY) is False:
        yield "self-similarity: no vocabulary token occurs in two sentences of the sample"
    if there.get(ids.MAXIMUM_EXPLAINABLE_VARIANCE) is False:
        yield "maximum explainable variance: no vocabulary token occurs in five of its sentences"
    if sums.sentences > 1 and not sums.weights.all():
        states = np.array(short_names(len(sums.weights)))[sums.weights == 0]
        yield f"cosines of {', '.join(states)}: some vector there is 0, or not a finite number"


def _tables(sums: GeometrySums) -> Iterator[tuple[str, PageTable]]:
    for title, metrics in TABLES.items():
        columns = [c for m in metrics for c in sums.columns if c.metric == m]
        asked = [m for m in metrics if any(c.metric == m for c in columns)]
        if not columns:
            continue
        cells = [_cells(sums, column) for column in columns]
        yield (
            title,
            PageTable(
                ("State", *(HEADINGS.get(column.label, "value") for column in columns)),
                tuple(map(Row, _names(sums), zip(*cells, strict=True))),
                groups=tuple(
                    (metric_link(m, all_metrics()[m].title), sum(c.metric == m for c in columns))
                    for m in asked
                ),
            ),
        )


def _cells(sums: GeometrySums, column: StateColumn) -> list[NumberCell]:
    metric = all_metrics()[column.metric]
    numbers = Estimates.of(sums.of(*column), metric.limits, metric.spread(column.label))
    return [NumberCell.of(numbers.at(row), metric) for row in range(len(sums.weights))]


def _names(sums: GeometrySums) -> list[str]:
    names = state_names(len(sums.weights))
    return [str(state) if layer is None else f"L{layer}" for layer, state in names]


def _outliers(sums: GeometrySums) -> PageTable | None:
    """The largest dimensions: their parts of the whole, or what they give where that is nothing."""
    together, whole = StateColumn(OUTLIERS, "three"), StateColumn(ANISOTROPY, "raw")
    if together not in sums.columns:
        return None
    missing = [NumberCell(MISSING, "", "not asked for", too_few=False)] * len(sums.weights)
    wholes = _cells(sums, whole) if whole in sums.columns else missing
    rows = []
    for row, (name, cell) in enumerate(zip(_names(sums), _cells(sums, together), strict=True)):
        total = float(sums.contributions[row].sum())
        dimensions: list[Part] = []
        for dimension in sums.largest(row, N_OUTLIERS):
            part = float(sums.contributions[row, dimension])
            share = percent(part / total) if total > LEAST else number(part)
            dimensions += [", "] * bool(dimensions)
            dimensions += [MarkedText(str(dimension), "b"), f"\N{NO-BREAK SPACE}{share}"]
        rows.append(Row(name, (wholes[row], words_cell(*dimensions) if dimensions else DASH, cell)))
    return PageTable(("State", "all dimensions", "the largest", "together"), tuple(rows))
