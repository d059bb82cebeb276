"""Pictures of circuits: heads that feed others, a circuit on one text, and a plot of pairs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from headbook.charts.drawing import Drawing, guessed_width
from headbook.charts.plots import (
    Plot,
    PlotCurve,
    PlotMark,
    Scale,
    even_ticks,
    grid,
    mark,
    percent,
    text,
    value_axis,
)
from headbook.report.wording import visible
from headbook.results.formats import number

# Pixels of the picture of heads that feed others.
BOX_WIDTH, BOX_HEIGHT, BOX_DISTANCE = 106.0, 24.0, 29.0
EDGE_HEIGHT, TOP, BOTTOM = 104.0, 4.0, 28.0
LAYER_WIDTH = 132.0  # least width of a layer; the style sheet has it, too
MAX_EDGE = 12  # widest line, in pixels; its class is ``e12``
EDGE_POINTS = 20
SIDE = 6.0  # per cent of the width at either end


class FedHead(NamedTuple):
    """A head of the picture.

    Attributes:
        name, layer: the head.
        is_upper: whether it is an induction head, which stands in the lower row.
        score: its score, between 0 and 1, and ``text`` as text.
        href: row of the score.
    """

    name: str
    layer: int
    is_upper: bool
    score: float
    text: str
    href: str


class FeedLine(NamedTuple):
    """A line from a lower to an upper head.

    Attributes:
        lower, upper: names of both heads.
        loss: loss without the lower head, between 0 and 1.
        main: whether it leads from the head that costs most.
    """

    lower: str
    upper: str
    loss: float
    main: bool


@dataclass(frozen=True, eq=False)
class FeedingPlot(Plot):
    """A plot whose boxes need a least width; narrower ones in papers are drawn smaller.

    Attributes:
        least_width: pixels.
    """

    least_width: float = 0.0

    def drawn(self, width: float) -> tuple[float, str]:
        """Return height and elements of the chart at a width in pixels, without links."""
        scale = min(1.0, width / self.least_width)
        height, elements = super().drawn(width / scale)
        return height * scale, f'<g transform="scale({scale:.4f})">{elements}</g>'


def feeding_plot(
    name: str,
    caption: str,
    heads: Sequence[FedHead],
    lines: Sequence[FeedLine],
    rows: pd.DataFrame,
) -> FeedingPlot:
    """Draw previous-token heads above, induction heads below, and lines between them.

    Layers run to the right at even distances; three dots mark layers that are left out. A box is
    filled up to the score of its head, and a line is as wide as the loss.
    """
    layers = sorted({head.layer for head in heads})
    step = (100 - 2 * SIDE) / max(1, len(layers) - 1)
    x_of = {layer: SIDE + step * n if len(layers) > 1 else 50.0 for n, layer in enumerate(layers)}
    y_of, second, height = _box_heights(heads, layers)
    behind = [text(f"layer {layer}", percent(x), height - 6, "mid s") for layer, x in x_of.items()]
    for left, right in pairwise(layers):
        if right - left > 1:
            middle = (x_of[left] + x_of[right]) / 2
            behind.append(text("⋯", percent(middle), height - 6, "mid s"))
    places = {key: (x_of[head.layer], y_of[key]) for key, head in _by_row(heads).items()}
    return FeedingPlot(
        name=name, caption=caption, height=height, behind=tuple(behind),
        least_width=140 + LAYER_WIDTH * len(layers),
        curves=tuple(
            _edge(places[line.lower, False], places[line.upper, True], line)
            for line in sorted(lines, key=lambda line: (line.main, line.loss))
        ),
        marks=tuple(_box(head, *places[key]) for key, head in _by_row(heads).items()),
        axis=text("Previous-token", "0", second - EDGE_HEIGHT - 13, "b s")
        + text("Induction", "0", second + 16, "b s"),
        axis_width=120, label_width=20, rows=rows,
    )  # fmt: skip


BoxKey = tuple[str, bool]  # name of a head, and whether its box stands in the row of upper heads


def _by_row(heads: Sequence[FedHead]) -> dict[BoxKey, FedHead]:
    return {(head.name, head.is_upper): head for head in heads}


def _box_heights(
    heads: Sequence[FedHead], layers: Sequence[int]
) -> tuple[dict[BoxKey, float], float, float]:
    """Return the centre of each box, the top of the lower row, and the height of the picture.

    Boxes of a layer stand one above the other: the highest score at the lines.
    """
    columns = {
        (layer, is_upper): sorted(
            (h for h in heads if h.layer == layer and h.is_upper is is_upper),
            key=lambda head: -head.score,
        )
        for layer in layers
        for is_upper in (False, True)
    }
    tallest = [max(len(columns[layer, upper]) for layer in layers) for upper in (False, True)]
    second = TOP + tallest[0] * BOX_DISTANCE + EDGE_HEIGHT
    y_of = {}
    for (_, is_upper), of_layer in columns.items():
        for n, head in enumerate(of_layer):
            line = n if is_upper else tallest[0] - 1 - n
            top = second if is_upper else TOP
            y_of[head.name, is_upper] = top + line * BOX_DISTANCE + BOX_HEIGHT / 2
    return y_of, second, second + tallest[1] * BOX_DISTANCE + BOTTOM


def _edge(start: tuple[float, float], end: tuple[float, float], line: FeedLine) -> PlotCurve:
    """Return the line between two boxes: a cubic curve that leaves and arrives upright."""
    (x1, y1), (x2, y2) = (start[0], start[1] + BOX_HEIGHT / 2), (end[0], end[1] - BOX_HEIGHT / 2)
    bend = max(34.0, (y2 - y1) / 2)
    t = np.linspace(0, 1, EDGE_POINTS)
    weights = np.stack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3])
    xs, ys = (
        np.array([x1, x1, x2, x2]) @ weights,
        np.array([y1, y1 + bend, y2 - bend, y2]) @ weights,
    )
    width = max(1, round(MAX_EDGE * min(line.loss, 1.0)))
    colour = "f-repeats" if line.main else "c-control"
    points = tuple((float(x), float(y)) for x, y in zip(xs, ys, strict=True))
    return PlotCurve(points, f"ln e{width} {colour}")


def _box(head: FedHead, x: float, y: float) -> PlotMark:
    """Return the box of a head, filled up to its score, with its name and score."""
    style = "f-repeats" if head.is_upper else "f-position"
    left, top = -BOX_WIDTH / 2, -BOX_HEIGHT / 2
    size = f'x="{left:.0f}" y="{top:.0f}" height="{BOX_HEIGHT:.0f}" rx="5"'
    svg = (
        f'<svg x="{percent(x)}" y="{y:.1f}" overflow="visible">'
        f'<rect class="mk o {style}" {size} width="{BOX_WIDTH:.0f}"/>'
        f'<rect class="bd {style}" {size} width="{BOX_WIDTH * min(head.score, 1):.1f}"/>'
        f"{text(head.name, f'{left + 8:.0f}', 4.5, 'b s')}"
        f"{text(head.text, f'{-left - 7:.0f}', 4.5, 's end')}</svg>"
    )
    kind = "induction" if head.is_upper else "previous-token"
    label = f"{head.name}: {kind} score {head.text}"
    return PlotMark(svg, style, head.href, label, x, y)


class PairPoint(NamedTuple):
    """A pair of heads by composition and by what an intervention changes.

    Attributes:
        name: both heads, ``L16·H0 → L17·H3``.
        style: class of its colour.
        composition, change: both numbers.
        href: row of the pair.
        is_named: whether its name stands beside the point.
    """

    name: str
    style: str
    composition: float
    change: float
    href: str
    is_named: bool


SCATTER_HEIGHT = 330.0


def pairs_plot(name: str, caption: str, points: Sequence[PairPoint], random: float) -> Plot:
    """Draw the change by an intervention against the composition of weights, a point a pair.

    Args:
        random: composition of random matrices, a dashed upright line.
    """
    values = [*(point.composition for point in points), random]
    low, high = min(values), max(values)
    pad = (high - low) / 12 or 0.1
    low, high = low - pad, high + pad
    changes = [point.change for point in points]
    ends = min(*changes, -0.1), max(*changes, 0.05)
    scale = Scale(*ends, SCATTER_HEIGHT, top=26, bottom=44)

    def place(value: float) -> float:
        return 2 + 96 * (value - low) / (high - low)

    ticks = even_ticks(*ends, lambda value: number(value).replace("-", "−"))
    floor, at = SCATTER_HEIGHT - 44, percent(place(random))
    behind = [*grid(scale, [value for value, _ in ticks])]
    behind += [
        text(words, percent(place(value)), floor + 18, "mid s")
        for value, words in even_ticks(low, high, number)
    ]
    behind += [
        text("K-composition", "50%", SCATTER_HEIGHT - 6, "mid"),
        f'<line class="bl" x1="{at}" x2="{at}" y1="14" y2="{floor:.0f}"/>',
        text("random", at, floor - 6, "s halo", 6),
    ]
    columns = ("name", "composition", "change")
    return Plot(
        name=name, caption=caption, height=SCATTER_HEIGHT, behind=tuple(behind),
        marks=tuple(_pair_marks(points, place, scale)),
        axis=value_axis(scale, ticks, "change of the induction score"),
        axis_width=60, label_width=20,
        rows=pd.DataFrame({n: [getattr(point, n) for point in points] for n in columns}),
    )  # fmt: skip


def _pair_marks(
    points: Sequence[PairPoint], place: Callable[[float], float], scale: Scale
) -> Iterator[str | PlotMark]:
    """Yield the marks of all pairs, then the names of some."""
    for point in points:
        x, y = place(point.composition), scale(point.change)
        numbers = f"K-composition {number(point.composition)}, change {number(point.change)}"
        label = f"{point.name}: {numbers}"
        yield PlotMark(mark("model", x, y), point.style, point.href, label, x, y)
    for point in points:
        if point.is_named:
            x = place(point.composition)
            style, shift = ("s halo end", -8) if x > 50 else ("s halo", 8)
            yield text(point.name, percent(x), scale(point.change) + 4, style, shift)


class WalkArc(NamedTuple):
    """An arc between two words, with an arrow at its end.

    Attributes:
        start, end: indices of the words.
        label: head and weight.
        style: class of its colour.
        above: whether it runs above the words.
    """

    start: int
    end: int
    label: str
    style: str
    above: bool


LETTER, WIDE_LETTER, WORD_GAP = 9.2, 17.0, 13.0  # pixels of letters, and between words
ARC_HEIGHT, WORDS_Y = 54.0, 86.0


def walk_drawing(
    name: str, caption: str, words: Sequence[str], marked: Sequence[int], arcs: Sequence[WalkArc]
) -> Drawing:
    """Draw the words of a text in a row with arcs between them.

    Args:
        words: words in order.
        marked: indices of the words that the circuit is about.
        arcs: arcs between words.
    """
    widths = [guessed_width(word, LETTER, WIDE_LETTER) for word in words]
    starts = np.cumsum([4.0, *(width + WORD_GAP for width in widths)])
    centres = [float(start) + width / 2 for start, width in zip(starts, widths, strict=False)]
    boxes = [
        f'<rect class="word" x="{centres[n] - widths[n] / 2 - 4:.1f}" y="{WORDS_Y - 19:.0f}" '
        f'width="{widths[n] + 8:.1f}" height="27" rx="5"/>'
        for n in marked
    ]
    letters = [
        text(word, f"{centre:.1f}", WORDS_Y, "w b" if n in marked else "w")
        for n, (word, centre) in enumerate(zip(words, centres, strict=True))
    ]
    drawn = "".join([*boxes, *letters, *(_arc(arc, centres) for arc in arcs)])
    width, height = float(starts[-1]), WORDS_Y + 66
    svg = (
        f'<svg class="walk" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} '
        f'{height:.0f}" role="img" aria-label="{escape(visible(caption))}">{drawn}</svg>'
    )
    return Drawing(name, caption, svg)


def _arc(arc: WalkArc, centres: Sequence[float]) -> str:
    """Return an arc between two words with its arrow and label."""
    sign = -1 if arc.above else 1
    y = WORDS_Y + (-22 if arc.above else 11)
    x1, x2 = centres[arc.start], centres[arc.end]
    top, base = y + sign * ARC_HEIGHT * 0.75, y + sign * 7
    curve = f"M{x1:.1f} {y:.1f}C{x1:.1f} {top:.1f} {x2:.1f} {top:.1f} {x2:.1f} {base:.1f}"
    arrow = f"M{x2 - 4:.1f} {base:.1f}L{x2 + 4:.1f} {base:.1f}L{x2:.1f} {y:.1f}z"
    label_y = y + sign * ARC_HEIGHT * (0.68 if arc.above else 0.86)
    label = text(arc.label, f"{max((x1 + x2) / 2, 60):.1f}", label_y, "l")
    return (
        f'<g class="{arc.style}"><path class="arc" d="{curve}"/><path class="tip" d="{arrow}"/>'
        f"{label}</g>"
    )
