"""Pictures of circuits: heads that feed others, a circuit on one text, and a plot of pairs."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
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
from headbook.report.facts.circuits.rules import Feed, main_feeder
from headbook.report.wording import visible
from headbook.results.formats import number
from headbook.results.number import Number, RowAddress
from headbook.schema import HeadName, Place

# Pixels of the picture of heads that feed others.
BOX_WIDTH, BOX_HEIGHT, BOX_DISTANCE = 106.0, 24.0, 29.0
EDGE_HEIGHT, TITLE_HEIGHT = 104.0, 22.0
COLUMN_WIDTH = 116.0  # least width of a layer; the style sheet has it, too
MAX_EDGE = 12  # widest line, in pixels; its class is ``e12``
EDGE_POINTS = 20


@dataclass(frozen=True, eq=False)
class FeedingPlot(Plot):
    """A plot whose boxes need a least width: it scrolls on pages, and is smaller in papers.

    Attributes:
        n_columns: number of boxes side by side.
    """

    n_columns: int = 1

    def html(self, address: Callable[[str | RowAddress], str]) -> str:
        """Return the chart as an element of a page, which scrolls sideways in a narrow window."""
        return (
            '<div class="scroll" tabindex="0" role="group" aria-label="Chart, scrolls sideways '
            f'where it is wide"><div class="feeds n{self.n_columns}">{super().html(address)}</div>'
            "</div>"
        )

    def drawn(self, width: float) -> tuple[float, str]:
        """Return height and elements of the chart at a width in pixels, without links."""
        scale = min(1.0, width / (COLUMN_WIDTH * self.n_columns))
        height, elements = super().drawn(width / scale)
        return height * scale, f'<g transform="scale({scale:.4f})">{elements}</g>'


def feeding_plot(
    name: str,
    caption: str,
    previous: Sequence[Number],
    induction: Sequence[Number],
    used: Sequence[Feed],
) -> FeedingPlot:
    """Draw previous-token heads above, induction heads below, and lines between them.

    In both rows layers run to the right, and heads of a layer stand one above the other, the
    highest score at the lines. A box is filled up to the score of its head, and a line is as wide
    as the loss.

    Args:
        previous, induction: scores of the heads of both rows.
        used: pairs of a previous-token head and an induction head that uses it.
    """
    main = main_feeder(used)
    n_columns, tallest = zip(*map(_extent, (previous, induction)), strict=True)
    middle = TITLE_HEIGHT + tallest[0] * BOX_DISTANCE
    height = middle + EDGE_HEIGHT + tallest[1] * BOX_DISTANCE + TITLE_HEIGHT
    upper = _places(previous, middle - BOX_DISTANCE + BOX_HEIGHT / 2, -BOX_DISTANCE)
    lower = _places(induction, middle + EDGE_HEIGHT + BOX_HEIGHT / 2, BOX_DISTANCE)
    return FeedingPlot(
        name=name, caption=caption, height=height, n_columns=max(n_columns),
        behind=(text("Previous-token heads", "0", 12, "b s"),
                text("Induction heads", "0", height - 5, "b s")),
        curves=tuple(
            _edge(upper[feed.lower[1:]], lower[feed.upper[1:]], feed, is_main=feed.lower == main)
            for feed in sorted(used, key=lambda feed: (feed.lower == main, -feed.change.value))
        ),
        marks=(*(_box(score, upper, "previous-token", "f-position") for score in previous),
               *(_box(score, lower, "induction", "f-repeats") for score in induction)),
        axis_width=0, label_width=0, rows=_changes(used),
    )  # fmt: skip


def _changes(feeds: Sequence[Feed]) -> pd.DataFrame:
    """Return pairs of heads with composition and change, for the file of a chart."""
    return pd.DataFrame(
        {
            "lower": [_short(feed.lower[1:]) for feed in feeds],
            "upper": [_short(feed.upper[1:]) for feed in feeds],
            "composition": [feed.value.value for feed in feeds],
            **{end: [getattr(feed.change, end) for feed in feeds] for end in CHANGE_COLUMNS},
        }
    ).rename(columns=CHANGE_COLUMNS)


CHANGE_COLUMNS = {"value": "change", "low": "low", "high": "high"}  # by part of a `Number`


def _short(place: Place) -> str:
    layer, head = place
    return f"L{layer}·H{head}"


def _place(score: Number) -> Place:
    return score.place("layer"), score.place("head")


def _extent(scores: Sequence[Number]) -> tuple[int, int]:
    """Return the number of layers of a row, and the most heads of a layer."""
    heads = Counter(score.place("layer") for score in scores)
    return len(heads), max(heads.values())


def _places(
    scores: Sequence[Number], first: float, step: float
) -> dict[Place, tuple[float, float]]:
    """Return the centre of each box of a row: x in per cent, y in pixels.

    Args:
        first: y of the highest score of a layer; ``step`` leads to the next one.
    """
    layers = sorted({score.place("layer") for score in scores})
    places, taken = dict[Place, tuple[float, float]](), Counter[int]()
    for score in sorted(scores, key=lambda score: -score.value):
        layer = score.place("layer")
        x = 100 * (layers.index(layer) + 0.5) / len(layers)
        places[_place(score)] = x, first + taken[layer] * step
        taken[layer] += 1
    return places


def _edge(
    start: tuple[float, float], end: tuple[float, float], feed: Feed, *, is_main: bool
) -> PlotCurve:
    """Return the line between two boxes: a cubic curve that leaves and arrives upright."""
    (x1, y1), (x2, y2) = (start[0], start[1] + BOX_HEIGHT / 2), (end[0], end[1] - BOX_HEIGHT / 2)
    bend = max(34.0, (y2 - y1) / 2)
    t = np.linspace(0, 1, EDGE_POINTS)
    weights = np.stack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3])
    xs, ys = (
        np.array([x1, x1, x2, x2]) @ weights,
        np.array([y1, y1 + bend, y2 - bend, y2]) @ weights,
    )
    width = max(1, round(MAX_EDGE * min(-feed.change.value, 1.0)))
    colour = "f-repeats" if is_main else "c-control"
    points = tuple((float(x), float(y)) for x, y in zip(xs, ys, strict=True))
    return PlotCurve(points, f"ln e{width} {colour}")


def _box(
    score: Number, places: Mapping[Place, tuple[float, float]], kind: str, style: str
) -> PlotMark:
    """Return the box of a head, filled up to its score, with its name and score."""
    (x, y), name = places[_place(score)], _short(_place(score))
    left, top = -BOX_WIDTH / 2, -BOX_HEIGHT / 2
    size = f'x="{left:.0f}" y="{top:.0f}" height="{BOX_HEIGHT:.0f}" rx="5"'
    svg = (
        f'<svg x="{percent(x)}" y="{y:.1f}" overflow="visible">'
        f'<rect class="mk o {style}" {size} width="{BOX_WIDTH:.0f}"/>'
        f'<rect class="bd {style}" {size} width="{BOX_WIDTH * min(score.value, 1):.1f}"/>'
        f"{text(name, f'{left + 8:.0f}', 4.5, 'b s')}"
        f"{text(score.as_text(), f'{-left - 7:.0f}', 4.5, 's end')}</svg>"
    )
    label = f"{name}: {kind} score {score.as_text('interval')}"
    return PlotMark(svg, style, score.row, label, x, y)


SCATTER_HEIGHT = 330.0


def pairs_plot(name: str, caption: str, feeds: Sequence[Feed], lower: Collection[HeadName]) -> Plot:
    """Draw the change by an intervention against the composition of weights, a point a pair.

    The pairs of largest loss and of highest composition have their names, and a dashed upright
    line is the composition of random matrices.

    Args:
        lower: lower heads that have the colour of position.
    """
    random = feeds[0].random
    values = [*(feed.value.value for feed in feeds), random.value]
    low, high = min(values), max(values)
    pad = (high - low) / 12 or 0.1
    low, high = low - pad, high + pad
    changes = [feed.change.value for feed in feeds]
    ends = min(*changes, -0.1), max(*changes, 0.05)
    scale = Scale(*ends, SCATTER_HEIGHT, top=26, bottom=44)

    def place(value: float) -> float:
        return 2 + 96 * (value - low) / (high - low)

    ticks = even_ticks(*ends, lambda value: number(value).replace("-", "−"))
    floor, at = SCATTER_HEIGHT - 44, percent(place(random.value))
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
    return Plot(
        name=name, caption=caption, height=SCATTER_HEIGHT, behind=tuple(behind),
        marks=tuple(_pair_marks(feeds, lower, place, scale)),
        axis=value_axis(scale, ticks, "change of the induction score"),
        axis_width=60, label_width=20, rows=_changes(feeds),
    )  # fmt: skip


def _pair_marks(
    feeds: Sequence[Feed],
    lower: Collection[HeadName],
    place: Callable[[float], float],
    scale: Scale,
) -> Iterator[str | PlotMark]:
    """Yield the marks of all pairs, then the names of some."""
    for feed in feeds:
        x, y = place(feed.value.value), scale(feed.change.value)
        label = (
            f"{_short(feed.lower[1:])} → {_short(feed.upper[1:])}: K-composition "
            f"{feed.value.as_text()}, change {feed.change.as_text('interval')}"
        )
        style = "f-position" if feed.lower in lower else "c-other"
        yield PlotMark(mark("model", x, y), style, feed.change.row, label, x, y)
    largest = min(feeds, key=lambda feed: feed.change.value)
    highest = max(feeds, key=lambda feed: feed.value.value)
    for feed in [largest] if largest is highest else [largest, highest]:
        x = place(feed.value.value)
        style, shift = ("s halo end", -8) if x > 50 else ("s halo", 8)
        names = f"{_short(feed.lower[1:])} → {_short(feed.upper[1:])}"
        yield text(names, percent(x), scale(feed.change.value) + 4, style, shift)


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
