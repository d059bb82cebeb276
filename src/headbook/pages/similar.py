"""The page of similar heads: groups of near doubles, nearest pairs, and an ordered matrix."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from headbook.charts import images
from headbook.charts.theme import amount_class, rgba_ramp
from headbook.metrics import ids
from headbook.pages.parts.atlas import MANY_HEADS, map_style
from headbook.pages.parts.nearest_heads import nats_text
from headbook.pages.parts.page import AnalysisPage, StackSection
from headbook.pages.parts.table import HeatCell, PageTable, Row, words_cell
from headbook.report.answers.similar import similar_answer
from headbook.report.claims.heads import MEAN_OF_PAIRS
from headbook.report.families import first_position_is_sink, sink_tokens
from headbook.report.findings.finding import Link, head_link
from headbook.report.head_facts import type_words
from headbook.report.head_types import OffSinkType, head_types
from headbook.report.linked_rows import LinkedNumber
from headbook.report.results import StackResults, study_of
from headbook.report.similar_heads import (
    MAX_DOUBLE_DISTANCE,
    HeadDistanceMatrix,
    compared_view,
    head_distances,
    mean_distances,
)
from headbook.report.wording import VIEWS, count_text
from headbook.schema import SinkView
from headbook.study.tables import HELLINGER

Matrices = Mapping[SinkView, HeadDistanceMatrix]

NEAREST_PAIRS = 24  # pairs that the page lists, in columns of `PAIRS_IN_COLUMN`
PAIRS_IN_COLUMN = 8
MOST_ALONE = 15  # heads without a double that the page shows
FILLED_DISTANCE = 0.12  # nats from which on a cell has no fill
PALE_DISTANCE = 0.3  # nats from which on the matrix is as pale as paper
MOST_LABELS = 90  # heads of a matrix whose rows bear names
STEPS = 256
STRIP = 8.0  # per cent of the matrix's width for the marks of layers, if rows have no names
# Codes of the data of the script, whose numbers are thousandths: no distance, and an upper bound.
MISSING_DISTANCE, IS_BOUND = 0x7FFF, 0x8000


@dataclass(frozen=True)
class SimilarHead:
    """A head of the page.

    Attributes:
        link: name and address.
        style: classes of its map.
        kind: type in words; empty if it was not measured.
        even: whether it attends nearly evenly outside the sink.
        number: distance to its nearest head; None where the page prints none.
    """

    link: Link
    style: str
    kind: str
    even: bool = False
    number: LinkedNumber | None = None


@dataclass(frozen=True)
class DoublesCard:
    """A group of near doubles.

    Attributes:
        heads: heads of the group.
        number: largest distance in the group.
        kind: type of most heads in words; ``several types`` if there is no such type.
    """

    heads: tuple[SimilarHead, ...]
    number: LinkedNumber
    kind: str

    @property
    def even(self) -> bool:
        """Whether all heads attend nearly evenly, and are alike for that alone."""
        return all(head.even for head in self.heads)


@dataclass(frozen=True)
class PairLine:
    """A pair of heads with its distance in each view."""

    heads: tuple[SimilarHead, SimilarHead]
    cells: tuple[HeatCell, ...]

    @property
    def even(self) -> bool:
        """Whether both heads attend nearly evenly, and are alike for that alone."""
        return all(head.even for head in self.heads)


@dataclass(frozen=True)
class OrderedMatrix:
    """The distances of all heads as a picture, similar heads side by side.

    Attributes:
        src: address of the picture, a pixel for each pair.
        size: number of heads.
        labels: heads from top to bottom; empty if there are too many.
        marks: a mark for each row that shows its layer, as an SVG path; empty if there are labels.
        frames: first row and number of rows of each group of near doubles.
        data: address of the script with all numbers; empty if there are too many.
    """

    src: str
    size: int
    labels: tuple[Link, ...]
    marks: str
    frames: tuple[tuple[int, int], ...]
    data: str


@dataclass(frozen=True)
class SimilarSection(StackSection):
    """The similar heads of one stack.

    Attributes:
        views: names of the views that were compared, the one of the groups first.
        cropped: whether maps leave out the first position, which belongs to the sink.
        groups: groups of near doubles, the tightest first, those of nearly even heads last.
        pairs: nearest pairs, in columns.
        matrix: distances of all heads.
        means: mean distance within a layer, and between layers.
        alone: heads without a double, the furthest from all others first.
        bounded: whether some distances are upper bounds.
        left_out: names of heads with too few rows in common with another head.
    """

    views: tuple[str, ...]
    cropped: bool
    groups: tuple[DoublesCard, ...]
    pairs: tuple[tuple[PairLine, ...], ...]
    matrix: OrderedMatrix
    means: tuple[tuple[str, LinkedNumber], ...]
    alone: tuple[SimilarHead, ...]
    bounded: bool
    left_out: tuple[Link, ...]


@dataclass(frozen=True, kw_only=True)
class SimilarPage(AnalysisPage):
    """The page of heads with similar attention, in all stacks that were compared.

    Attributes:
        sections: by stack.
        limit: distance below which two heads are near doubles, in nats.
        pale: distance from which on the matrix is pale, in nats.
    """

    template: ClassVar[str] = "similar.html"
    scripts = ("similar",)
    styles: ClassVar[tuple[str, ...]] = (*AnalysisPage.styles, "similar")
    sections: tuple[SimilarSection, ...]
    limit: str = f"{MAX_DOUBLE_DISTANCE:.2f}"
    pale: str = f"{PALE_DISTANCE:g}"


def _compared(results: Mapping[str, StackResults]) -> dict[str, Matrices]:
    return {name: each for name, r in results.items() if (each := r.cached(head_distances))}


def has_similar(results: Mapping[str, StackResults]) -> bool:
    """Return whether a study has distances of heads."""
    return bool(_compared(results))


def similar_page(results: Mapping[str, StackResults]) -> SimilarPage:
    """Return the page of similar heads."""
    compared = _compared(results)
    first, matrices = next(iter(compared.items()))
    matrix = matrices[compared_view(matrices)]
    model = study_of(results).manifest.model.name
    sections = tuple(_section(results[name], each) for name, each in compared.items())
    n_even = sum(group.even for group in sections[0].groups)
    return SimilarPage(
        path="similar.html",
        title="Which heads attend alike?",
        description=f"Near doubles among the heads of {model}, the nearest pairs, and the "
        "divergence of every two heads.",
        topic="Similar heads",
        answer=(similar_answer(results[first], matrix, n_even),),
        scope=tuple(_scope(results[first], matrices)),
        sections=sections,
    )


def _scope(results: StackResults, matrices: Matrices) -> Iterator[tuple[str, str]]:
    view = compared_view(matrices)
    matrix = matrices[view]
    yield (
        "Jensen–Shannon divergence",
        "of the rows of two heads: 0 nats alike, 0.69 no key in common; "
        f"{count_text(matrix.sentences, 'sentence')}.",
    )
    if view is SinkView.RENORM:
        yield "Sink masked", f"({sink_tokens(results)}), or a shared sink would decide."


def _section(results: StackResults, matrices: Matrices) -> SimilarSection:
    view = compared_view(matrices)
    matrix = matrices[view]
    heads = _heads(results, matrix)
    lines = [
        PairLine((heads[one], heads[other]), _cells(matrices, one, other))
        for one, other in matrix.closest(NEAREST_PAIRS)
    ]
    groups = [_card(matrix, view, heads, each.heads, each.pair) for each in matrix.doubles]
    starts = [*range(0, len(lines), PAIRS_IN_COLUMN), len(lines)]
    missing = np.setdiff1d(np.arange(len(heads)), matrix.complete).tolist()
    return SimilarSection(
        stack=results.stack.name,
        views=tuple(VIEWS[each] for each in _views(matrices)),
        cropped=view is SinkView.RENORM and first_position_is_sink(results),
        groups=tuple(sorted(groups, key=lambda group: group.even)),
        pairs=tuple(tuple(lines[start:end]) for start, end in pairwise(starts)),
        matrix=_ordered(results, matrix),
        means=tuple(_means(results, matrix, view)),
        alone=tuple(_alone(matrix, view, heads)),
        bounded=matrix.roots is not None,
        left_out=tuple(heads[index].link for index in missing),
    )


def _views(matrices: Matrices) -> list[SinkView]:
    """Return the views that were compared, the one of the groups first."""
    first = compared_view(matrices)
    return [first, *(view for view in matrices if view is not first)]


def _heads(results: StackResults, matrix: HeadDistanceMatrix) -> list[SimilarHead]:
    types = head_types(results)
    heads = []
    for head in matrix.heads:
        kind = types.get((head.layer, head.head))
        style = map_style(results.stack, head.layer, head.head)
        even = kind is not None and kind.rest is OffSinkType.UNIFORM
        heads.append(SimilarHead(head_link(head), style, type_words(kind) if kind else "", even))
    return heads


def _number(matrix: HeadDistanceMatrix, view: SinkView, one: int, other: int) -> LinkedNumber:
    """Return the distance of two heads, or an upper bound of it, with its row."""
    one, other = sorted((one, other))
    first, second = matrix.heads[one], matrix.heads[other]
    is_bound = bool(np.isnan(matrix.value[one, other])) and matrix.roots is not None
    text = nats_text(float(matrix.bounds[one, other]))
    row = (
        ("stack", first.stack), ("layer", first.layer), ("head", first.head),
        ("other_layer", second.layer), ("other_head", second.head),
        ("metric", HELLINGER if is_bound else ids.HEAD_DISTANCE), ("view", str(view)),
    )  # fmt: skip
    return LinkedNumber(f"{'≤ ' * is_bound}{text}", "pairs", row)


def _cells(matrices: Matrices, one: int, other: int) -> tuple[HeatCell, ...]:
    cells = []
    for view in _views(matrices):
        matrix = matrices[view]
        distance, number = float(matrix.bounds[one, other]), _number(matrix, view, one, other)
        note = f"{int(matrix.rows[one, other]):,} query tokens that count in both heads"
        fill = amount_class(max(0.0, FILLED_DISTANCE - distance), 0.0, 1.25 * FILLED_DISTANCE)
        known = not np.isnan(distance)
        cells.append(HeatCell(number.text, fill if known else "", number if known else None, note))
    return tuple(cells)


def nearest_pairs(results: StackResults) -> PageTable | None:
    """Return the nearest pairs of heads of a stack in all views; None if none were compared."""
    matrices = results.cached(head_distances)
    if not matrices:
        return None
    matrix = matrices[compared_view(matrices)]
    links = [head_link(head) for head in matrix.heads]
    rows = tuple(
        Row(words_cell(links[one], " and ", links[other]), _cells(matrices, one, other))
        for one, other in matrix.closest(NEAREST_PAIRS)
    )
    titles = ("pair", *(VIEWS[view] for view in _views(matrices)))
    return PageTable(titles, rows, style="heat pairs-of-heads")


def _card(
    matrix: HeadDistanceMatrix,
    view: SinkView,
    heads: Sequence[SimilarHead],
    members: Sequence[int],
    pair: tuple[int, int],
) -> DoublesCard:
    kinds = [heads[index].kind.removesuffix(" + sink") for index in members]
    most = max(kinds, key=kinds.count)
    kind = most if 2 * kinds.count(most) > len(kinds) else "several types" * any(kinds)
    of_group = tuple(heads[index] for index in sorted(members))
    return DoublesCard(of_group, _number(matrix, view, *pair), kind)


def _means(
    results: StackResults, matrix: HeadDistanceMatrix, view: SinkView
) -> Iterator[tuple[str, LinkedNumber]]:
    metric = ids.HEAD_DISTANCE if matrix.roots is None else HELLINGER
    for label, mean in mean_distances(matrix).items():
        if label and not np.isnan(mean):
            row = (
                ("claim", MEAN_OF_PAIRS), ("stack", results.stack.name),
                ("metric", metric), ("view", str(view)), ("label", label),
            )  # fmt: skip
            yield label, LinkedNumber(nats_text(mean), "tests", row)


def _alone(
    matrix: HeadDistanceMatrix, view: SinkView, heads: Sequence[SimilarHead]
) -> Iterator[SimilarHead]:
    """Yield heads that are in no group, with the distance to their nearest head."""
    grouped = {index for group in matrix.doubles for index in group.heads}
    nearest = {index: matrix.nearest(index, 1) for index in matrix.complete.tolist()}
    pairs = [(index, near[0]) for index, near in nearest.items() if near and index not in grouped]
    pairs.sort(key=lambda pair: -matrix.value[pair])
    for index, other in pairs[:MOST_ALONE]:
        head = heads[index]
        yield replace(head, number=_number(matrix, view, index, other))


def _ordered(results: StackResults, matrix: HeadDistanceMatrix) -> OrderedMatrix:
    order, size = matrix.order.tolist(), len(matrix.heads)
    row = {index: place for place, index in enumerate(order)}
    frames = [sorted(row[index] for index in group.heads) for group in matrix.doubles]
    named = size <= MOST_LABELS
    stack = results.stack.name
    return OrderedMatrix(
        src=f"data/similar/{stack}.png",
        size=size,
        labels=tuple(head_link(matrix.heads[index]) for index in order) if named else (),
        marks="" if named else _layer_marks([matrix.heads[index].layer for index in order]),
        frames=tuple((rows[0], len(rows)) for rows in frames),
        data=f"data/similar/{stack}.js" if size <= MANY_HEADS else "",
    )


def _layer_marks(layers: Sequence[int]) -> str:
    """Return a mark for each row: left for the first layer, right for the last."""
    first, depth = min(layers), max(1, max(layers) - min(layers))
    return "".join(
        f"M{0.8 * (layer - first) / depth:.3f},{row}h.2v1h-.2z" for row, layer in enumerate(layers)
    )


def matrix_picture(results: StackResults) -> bytes | None:
    """Return the picture of a stack's matrix as a PNG; None if heads were not compared."""
    matrices = results.cached(head_distances)
    if not matrices:
        return None
    matrix = matrices[compared_view(matrices)]
    distances = matrix.bounds[np.ix_(matrix.order, matrix.order)]
    similarity = np.nan_to_num(1 - distances / PALE_DISTANCE).clip(0, 1)
    cells = np.rint(similarity * (STEPS - 1)).astype(np.uint8)
    return images.inked(cells, rgba_ramp(STEPS))


def matrix_data(results: StackResults) -> dict[str, Any] | None:
    """Return the numbers of a stack's matrix for scripts; None without numbers, or with too many.

    ``values`` has the distances of each view in thousandths of a nat, 16 bits each, in the order of
    the matrix; the highest bit marks upper bounds, and 0x7FFF missing distances.
    """
    matrices = results.cached(head_distances)
    if not matrices or len(next(iter(matrices.values())).heads) > MANY_HEADS:
        return None
    matrix = matrices[compared_view(matrices)]
    heads, order = _heads(results, matrix), matrix.order
    return {
        "heads": [[*heads[index].link, heads[index].style, heads[index].kind] for index in order],
        "values": [_thousandths(matrices[view], order) for view in _views(matrices)],
    }


def _thousandths(matrix: HeadDistanceMatrix, order: NDArray[np.int64]) -> bytes:
    cells = np.ix_(order, order)
    bounds = matrix.bounds[cells]
    steps = np.where(np.isnan(bounds), MISSING_DISTANCE, np.rint(1000 * np.nan_to_num(bounds)))
    is_bound = np.isnan(matrix.value[cells]) & ~np.isnan(bounds)
    return (steps.astype(np.uint16) | np.where(is_bound, IS_BOUND, 0).astype(np.uint16)).tobytes()
