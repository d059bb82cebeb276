"""A sentence with lines above and below its words, drawn as SVG: trees, attention, phrases."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headbook.charts.base.drawing import Drawing, drawing, guessed_width, written
from headbook.charts.base.render import BLUE, GREY, ORANGE

LETTER, WIDE = 6.9, 12.0  # pixels of a letter, of an East Asian one
SMALL = 5.6  # of a letter of a label
GAP = 14.0  # between words
MARGIN = 8.0
LEVEL = 17.0  # from one arc to the next above it
STEP = 8.0  # the same for brackets
ROOM = 7.0  # between a word and its lines
TEXT = 12  # size of letters: 9 points
THICKEST = 7.0  # line of weight 1


class Arc(NamedTuple):
    """A line from a word to a word, with an arrow at its end.

    Attributes:
        weight: of its width, between 0 and 1; None for a thin line.
        marked: whether it stands out.
        label: at its middle.
    """

    start: int
    end: int
    weight: float | None = None
    marked: bool = False
    label: str = ""


def arc_diagram(
    name: str, caption: str, words: Sequence[str], above: Sequence[Arc], below: Sequence[Arc]
) -> Drawing:
    """Words in a row, one set of arcs above and one below."""
    centres = _centres(words, above)
    tops = [_levels([(a.start, a.end) for a in arcs]) for arcs in (above, below)]
    heights = [ROOM + LEVEL * max(levels, default=0) for levels in tops]
    base = MARGIN + heights[0] + TEXT
    parts = [*_words(words, centres, base)]
    places = (base - TEXT - 2, -1), (base + 6, 1)
    for arcs, levels, (start, direction) in zip((above, below), tops, places, strict=True):
        # What stands out is drawn last, over the rest.
        for arc, level in sorted(zip(arcs, levels, strict=True), key=lambda each: each[0].marked):
            parts += _arc(arc, centres, start, direction * (ROOM + LEVEL * level))
    parts.sort(key=lambda part: part.startswith("<text"))  # no line crosses a letter
    width = centres[-1] + _width(words[-1]) / 2 + MARGIN if words else MARGIN
    return drawing(name, caption, width, base + 6 + heights[1] + MARGIN, parts)


def bracket_diagram(
    name: str,
    caption: str,
    words: Sequence[str],
    above: Sequence[tuple[int, int]],
    below: Sequence[tuple[int, int]],
) -> Drawing:
    """Words in a row, one set of brackets above and one below; thick where both have them.

    Args:
        above, below: first and last word of each bracket.
    """
    centres = _centres(words, ())
    both = {*above} & {*below}
    tops = [_levels(brackets, inside=True) for brackets in (above, below)]
    heights = [ROOM + STEP * max(levels, default=0) for levels in tops]
    base = MARGIN + heights[0] + TEXT
    parts = [*_words(words, centres, base)]
    places = (base - TEXT - 2, -1), (base + 6, 1)
    for brackets, levels, (start, direction) in zip((above, below), tops, places, strict=True):
        for (first, last), level in zip(brackets, levels, strict=True):
            left = centres[first] - _width(words[first]) / 2
            right = centres[last] + _width(words[last]) / 2
            y, tick = start + direction * (2 + STEP * (level - 1)), direction * -4
            ink, size = (BLUE, 3) if (first, last) in both else (GREY, 1.2)
            line = f"M{left:.1f} {y + tick:.1f}V{y:.1f}H{right:.1f}V{y + tick:.1f}"
            parts.append(f'<path d="{line}" fill="none" stroke="{ink}" stroke-width="{size}"/>')
    width = centres[-1] + _width(words[-1]) / 2 + MARGIN if words else MARGIN
    return drawing(name, caption, width, base + 6 + heights[1] + MARGIN, parts)


def _words(words: Sequence[str], centres: Sequence[float], base: float) -> Iterator[str]:
    for word, x in zip(words, centres, strict=True):
        yield written(word, x, base, TEXT)


def _width(word: str, letter: float = LETTER) -> float:
    """A guess that is rather too wide than too narrow."""
    return guessed_width(word, letter, WIDE)


def _centres(words: Sequence[str], arcs: Sequence[Arc]) -> list[float]:
    """The middle of each word, far enough apart for words and for the labels of arcs."""
    centres: list[float] = []
    for index, word in enumerate(words):
        half = _width(word) / 2
        x = MARGIN + half
        if index:
            x = centres[-1] + _width(words[index - 1]) / 2 + GAP + half
        for arc in arcs:
            first, last = sorted(arc[:2])
            if last == index:
                x = max(x, centres[first] + _width(arc.label, SMALL) + GAP)
        centres.append(x)
    return centres


def _levels(spans: Sequence[tuple[int, int]], *, inside: bool = False) -> list[int]:
    """How far from the words each line runs, from 1: beyond the shorter ones that it spans.

    Args:
        inside: only those that lie inside it count; else all that it overlaps.
    """
    levels = [0] * len(spans)
    ends = [tuple(sorted(span)) for span in spans]
    order = sorted(range(len(spans)), key=lambda place: ends[place][1] - ends[place][0])
    for number, place in enumerate(order):
        first, last = ends[place]
        under = [0]
        for other in order[:number]:
            start, end = ends[other]
            nested = first <= start and end <= last
            if nested if inside else max(first, start) < min(last, end):
                under.append(levels[other])
        levels[place] = max(under) + 1
    return levels


def _arc(arc: Arc, centres: Sequence[float], y: float, reach: float) -> Iterator[str]:
    """A curve between two words with a head at its end, and its label.

    Args:
        reach: how far its control points are from the words; negative upwards.
    """
    shift = 4.0 if arc.end > arc.start else -4.0
    a, b = centres[arc.start] + shift, centres[arc.end] - shift
    ink = ORANGE if arc.marked else BLUE if arc.weight is not None else GREY
    size = 1.3 if arc.weight is None else max(0.6, THICKEST * arc.weight)
    tip = 5.0 if reach > 0 else -5.0
    curve = f"M{a:.1f} {y:.1f}C{a:.1f} {y + reach:.1f} {b:.1f} {y + reach:.1f} {b:.1f}"
    line = f'fill="none" stroke="{ink}" stroke-width="{size:.1f}"'
    yield f'<path d="{curve} {y + tip:.1f}" {line}/>'
    yield f'<path d="M{b:.1f} {y:.1f}l-3 {tip:.1f}h6z" fill="{ink}"/>'
    if arc.label:
        yield written(arc.label, (a + b) / 2, y + 0.75 * reach - 2, 10, ink)
