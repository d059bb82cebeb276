"""Similar heads: map, ordered matrices, nearest heads."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from headbook.analysis.arrays import Floats, Ints
from headbook.charts import Figure, head_points, images
from headbook.charts.theme import rgba_ramp
from headbook.pages.parts.nearest_heads import NEAREST, distances, nats_text
from headbook.pages.parts.page import Page, StackSection
from headbook.pages.parts.table import DASH, PageTable, Part, Row, WordsCell, words_cell
from headbook.report.findings.finding import head_link
from headbook.report.results import StackResults, study_of
from headbook.report.similar_heads import HeadDistanceMatrix, head_distances, procrustes_aligned
from headbook.report.wording import VIEWS, count_text, head_name, head_page, number, percent
from headbook.schema import SinkView

SIDE = 460  # pixels of a matrix
STRIP, GAP, MARK = 64, 6, 4  # pixels beside it that show layers; to the matrix; of a mark
STEPS = 256


@dataclass(frozen=True)
class MatrixRow:
    """A head beside its row of a matrix, and where that begins."""

    name: str
    href: str
    y: float


@dataclass(frozen=True)
class Matrix:
    """The distances of all heads as a picture.

    Attributes:
        title: the view and the order.
        src: the picture, a pixel for each pair.
        side, cell: units of the whole and of a row.
        marks: a mark for each row that shows the layer, as an SVG path.
        rows: heads from top to bottom; empty where there are too many.
    """

    title: str
    src: str
    side: int
    cell: float
    marks: str
    rows: tuple[MatrixRow, ...]


def most(found: Mapping[SinkView, HeadDistanceMatrix]) -> float:
    """The largest distance, where the colours end."""
    return max(float(np.nanmax(each.apart)) for each in found.values())


def _orders(
    found: Mapping[SinkView, HeadDistanceMatrix],
) -> Iterator[tuple[str, str, SinkView, Ints]]:
    """File, title, view and order of each matrix: each in its own order, and renorm as raw."""
    views = list(found)
    for view in views:
        if view is not views[0]:
            title = f"{VIEWS[view]}, in the order of {VIEWS[views[0]]}"
            yield f"{view}-as-{views[0]}", title, view, found[views[0]].order
        yield view, f"{VIEWS[view]}, in its own order", view, found[view].order


def matrices(
    stack: str, found: Mapping[SinkView, HeadDistanceMatrix], *, listed: bool
) -> Iterator[Matrix]:
    """The matrices of a stack.

    Args:
        listed: whether rows lead to their heads.
    """
    for file, title, view, order in _orders(found):
        heads = [found[view].heads[place] for place in order]
        cell = SIDE / len(heads)
        yield Matrix(
            title=title,
            src=f"data/similar/{stack}-{file}.png",
            side=SIDE,
            cell=round(cell, 2),
            marks=_marks([head.layer for head in heads], cell),
            rows=tuple(
                MatrixRow(head_name(h), head_page(h), round(index * cell, 2))
                for index, h in enumerate(heads if listed else ())
            ),
        )


def _marks(layers: Sequence[int], cell: float) -> str:
    """A mark for each row: left for the first layer, right for the last."""
    first, depth = min(layers), max(1, max(layers) - min(layers))
    places = [(STRIP - GAP - MARK) * (layer - first) / depth - STRIP for layer in layers]
    return "".join(
        f"M{x:.1f},{row * cell:.2f}h{MARK}v{cell:.2f}h-{MARK}z" for row, x in enumerate(places)
    )


def matrix_pictures(results: StackResults) -> Iterator[tuple[str, bytes]]:
    """File names and PNGs of a stack's matrices."""
    found = results.cached(head_distances)
    largest = most(found) if found else 1.0
    for file, _, view, order in _orders(found):
        value = found[view].apart[np.ix_(order, order)]
        cells = np.rint(np.nan_to_num(value) / (largest or 1) * (STEPS - 1)).astype(np.uint8)
        picture = images.inked(cells, rgba_ramp(STEPS))
        yield f"{results.stack.name}-{file}.png", picture


CLOSEST = 15  # pairs that the table shows
MOST_HEADS = 150  # of all stacks; with more, neither lists of heads nor rows that lead to them
NAMED = 12  # heads that a sentence names
NEAR = 0.05  # part of all pairs that the text calls near


@dataclass(frozen=True)
class SimilarSection(StackSection):
    """One kind of attention.

    Attributes:
        summary: what the distances say, in sentences.
        figure: the map.
        matrices: pictures; ``low`` and ``high`` are the ends of their colours,
            in ``unit``, empty where not all pairs were compared; beside them a
            strip ``strip`` units wide shows layers, ``first`` to ``last``.
        closest: by view, the pairs nearest to each other.
        nearest: for each head by view its nearest heads; None where there are too many.
    """

    summary: tuple[str, ...]
    figure: Figure
    matrices: tuple[Matrix, ...]
    low: str
    high: str
    unit: str
    strip: int
    first: int
    last: int
    closest: tuple[PageTable, ...]
    nearest: PageTable | None


@dataclass(frozen=True, kw_only=True)
class SimilarPage(Page):
    """Which heads are alike, in all stacks that were compared.

    Attributes:
        sections: by stack.
        nearest: how many heads are listed beside each.
    """

    template: ClassVar[str] = "similar.html"
    sections: tuple[SimilarSection, ...]
    nearest: int


def _compared(
    results: Mapping[str, StackResults],
) -> dict[str, Mapping[SinkView, HeadDistanceMatrix]]:
    return {name: each for name, r in results.items() if (each := r.cached(head_distances))}


def has_similar(results: Mapping[str, StackResults]) -> bool:
    """Return whether a study has distances of heads."""
    return bool(_compared(results))


def similar_page(results: Mapping[str, StackResults]) -> SimilarPage:
    """The page of similar heads."""
    found = _compared(results)
    total = sum(len(next(iter(each.values())).heads) for each in found.values())
    model = study_of(results).manifest.model.name
    return SimilarPage(
        path="similar.html",
        title="Similar heads",
        description=f"Which heads of {model} attend alike: a map, an ordered matrix and the most "
        "similar heads of each, with all keys and with the sink masked.",
        sections=tuple(
            _section(results[name], each, listed=total <= MOST_HEADS)
            for name, each in found.items()
        ),
        nearest=NEAREST,
    )


def _section(
    results: StackResults, found: Mapping[SinkView, HeadDistanceMatrix], *, listed: bool
) -> SimilarSection:
    stack = results.stack.name
    return SimilarSection(
        stack=stack,
        summary=tuple(_summary(found)),
        figure=_map(results, found),
        matrices=tuple(matrices(stack, found, listed=listed)),
        low=number(0),
        high=number(most(found)),
        unit=_unit(found),
        strip=STRIP,
        first=results.stack.attention_layers[0],
        last=results.stack.attention_layers[-1],
        closest=tuple(_closest(found, view) for view in found),
        nearest=_nearest(found) if listed else None,
    )


def _summary(found: Mapping[SinkView, HeadDistanceMatrix]) -> Iterator[str]:
    """What the numbers say; each sentence rests on pairs that all views have."""
    first = next(iter(found.values()))
    pairs = np.triu_indices(len(first.heads), 1)
    values = {view: each.apart[pairs] for view, each in found.items()}
    unit = _unit(found)
    there = ~np.isnan([*values.values()]).any(0)
    values = {view: value[there] for view, value in values.items()}
    same = (first.layers[pairs[0]] == first.layers[pairs[1]])[there]
    for view, apart in values.items():
        if same.any() and not same.all():
            yield (
                f"Mean divergence, {VIEWS[view]}: {nats_text(apart[same].mean())}{unit} within a "
                "layer, "
                f"{nats_text(apart[~same].mean())} between layers."
            )
    if {SinkView.RAW, SinkView.RENORM} <= values.keys() and there.sum() > 1:
        yield _without_sink(values[SinkView.RAW], values[SinkView.RENORM], unit)
    for view, each in found.items():
        rest = np.setdiff1d(np.arange(len(each.heads)), each.complete)
        names = ", ".join(head_name(each.heads[place]) for place in rest[:NAMED])
        more = f" and {len(rest) - NAMED} more" if len(rest) > NAMED else ""
        if len(rest):
            yield (
                f"Not on the map and last in the matrix ({VIEWS[view]}), with too few rows in "
                f"common with some other head: {names}{more}."
            )


def _unit(found: Mapping[SinkView, HeadDistanceMatrix]) -> str:
    """Of what map, order and matrix rest on, with a space before it; Hellinger's has none."""
    return " nats" if next(iter(found.values())).roots is None else ""


def _without_sink(raw: Floats, renorm: Floats, unit: str) -> str:
    """Whether pairs that are near with the sink are near without it."""
    amount = max(1, round(NEAR * len(raw)))
    near = np.argsort(raw, kind="stable")[:amount]
    # All heads of a text of one or two tokens may be the same.
    before, after = (float(each[near].mean() / (each.mean() or 1)) for each in (raw, renorm))
    lost = (after - before) / (1 - before) if before < 1 else 0.0
    verdict = (
        "mostly due to the shared sink"
        if lost >= 1 / 2
        else "partly due to the shared sink"
        if lost >= 1 / 10
        else "not due to the sink"
    )
    return (
        f"Most similar {count_text(amount, 'pair')} of {len(raw):,}, all keys: "
        f"{nats_text(raw[near].mean())}{unit}, {percent(before)} of the mean of all pairs. Sink "
        "masked "
        f"and renormalised: {nats_text(renorm[near].mean())}{unit}, {percent(after)} of the mean; "
        "their "
        f"similarity is {verdict}."
    )


def _map(results: StackResults, found: Mapping[SinkView, HeadDistanceMatrix]) -> Figure:
    panels = {view: f"{VIEWS[view]}: {percent(each.plane.share)}" for view, each in found.items()}
    first = next(iter(found.values()))
    frames = []
    for view, each in found.items():
        points = procrustes_aligned(each.plane, first.plane)
        heads = [each.heads[head] for head in each.plane.heads]
        frame = pd.DataFrame({"head": map(head_name, heads), "layer": [h.layer for h in heads]})
        frames.append(frame.assign(panel=panels[view], x=points[:, 0], y=points[:, 1]))
    measure = "divergences" if first.roots is None else "squared Hellinger distances"
    turn = " The second map is turned to match the first." if len(found) > 1 else ""
    caption = (
        "Each point is a head (layer.head, where it has room; colour: layer); similar heads are "
        "close. Two dimensions lose part of the distances below; beside the keys, the share of the "
        "variation that they hold. Classical scaling of the square roots of mean "
        f"{measure}{results.sample_note(first.sentences, ' over')}.{turn}"
    )
    rows = pd.concat(frames, ignore_index=True)
    name = f"similar-{results.stack.name}"
    layers = results.stack.attention_layers
    return head_points(name, caption, rows, panels=[*panels.values()], layers=layers)


def _nearest(found: Mapping[SinkView, HeadDistanceMatrix]) -> PageTable:
    """For each head its nearest heads, by view."""
    heads = next(iter(found.values())).heads
    rows = (
        Row(head_link(head), tuple(_near(each, index) for each in found.values()))
        for index, head in enumerate(heads)
    )
    return PageTable(("Head", *_views(found)), tuple(rows), "With divergence in nats.")


def _near(found: HeadDistanceMatrix, index: int) -> WordsCell:
    parts: list[Part] = []
    for other in found.nearest(index, NEAREST):
        parts += [", "] * bool(parts)
        parts += [head_link(found.heads[other]), f" {nats_text(found.value[index, other])}"]
    return words_cell(*parts) if parts else DASH


def _closest(found: Mapping[SinkView, HeadDistanceMatrix], view: SinkView) -> PageTable:
    """The pairs nearest to each other."""
    heads = found[view].heads
    rows = (
        Row(
            words_cell(head_link(heads[one]), " and ", head_link(heads[other])),
            distances(found, one, other),
        )
        for one, other in found[view].closest(CLOSEST)
    )
    caption = f"Most similar pairs, {VIEWS[view]} (nats)."
    return PageTable(("Pair", *_views(found)), tuple(rows), caption)


def _views(found: Mapping[SinkView, HeadDistanceMatrix]) -> list[str]:
    return [VIEWS[view] for view in found]
