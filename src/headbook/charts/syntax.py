"""Heads against rules of word order for relations, and scores of induced trees, as wide plots."""

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np
import pandas as pd

from headbook.charts.plots import (
    Plot,
    PlotMark,
    Scale,
    end_labels,
    even_ticks,
    grid,
    mark,
    percent,
    text,
    value_axis,
)
from headbook.report.wording import visible
from headbook.results.formats import whole_percent
from headbook.results.number import Number

ROW_HEIGHT = 44.0  # pixels of a relation
FIRST, WIDTH = 1.0, 97.0  # per cent of the plot at which shares of 0 begin, and that they span
WIDE_LETTERS, FEW_LETTERS = 85, 40  # letters that a wide and a narrow plot have room for
NARROW_LINE = 54  # letters of a name and a difference beside each other in a narrow plot
UNDECIDED = ", undecided"
LETTER = 6.3  # pixels of a letter, on average
TREE_HEIGHT = 230.0
MANY_POINTS = 12  # layers beyond which points of a plot have no values beside them
DOT_RADIUS = 5.5


class RelationLine(NamedTuple):
    """A head against the best surface rule, on the words of one relation and direction.

    Attributes:
        name: query and key.
        example: a query and its key from a sentence with a page; empty without one.
        head: name of the head.
        accuracy: share of the words that the head finds.
        rule: share of the words that the rule finds.
        against: the rule in words.
        points: the difference in points.
        undecided: whether there are too few words to tell.
        supported: whether pages may claim the relation.
        label: the numbers in words.
    """

    name: str
    example: str
    head: str
    accuracy: Number
    rule: Number
    against: str
    points: str
    undecided: bool
    supported: bool
    label: str


def _x(share: float) -> float:
    """Return the place of a share, in per cent of the plot's width."""
    return FIRST + WIDTH * share


def _line(style: str, ends: tuple[float, float], y: tuple[float, float]) -> str:
    """Draw a line between two shares."""
    (left, right), (top, bottom) = map(_x, ends), y
    return (
        f'<line class="{style}" x1="{percent(left)}" x2="{percent(right)}" '
        f'y1="{top:.1f}" y2="{bottom:.1f}"/>'
    )


def _relation_marks(line: RelationLine, y: float) -> list[str | PlotMark]:
    """Draw interval, distance, rule and head of one relation at a height."""
    accuracy, rule = line.accuracy, line.rule.value
    weak = "" if line.supported else " weak"
    parts: list[str | PlotMark] = [_line("gl", (0, 1), (y, y))]
    if not np.isnan(accuracy.low):
        parts.append(_line(f"iv{weak}", (accuracy.low, accuracy.high), (y, y)))
    parts.append(_line(f"rise{weak}", (rule, accuracy.value), (y, y)))
    parts.append(_line(f"rl{weak}", (rule, rule), (y - 9, y + 9)))
    x = _x(accuracy.value)
    dot = mark("model", x, y, hollow=not line.supported, radius=DOT_RADIUS)
    parts.append(PlotMark(dot, "c-model", accuracy.row, line.label, x, y))
    return [*parts, *_relation_label(line, y + 4)]


def _relation_words(line: RelationLine, y: float) -> list[str]:
    """Write what is compared above the marks: query and key, the rule, the difference."""
    style = "b s" if line.supported else "s"
    example = f' <tspan class="at-page">{escape(visible(line.example))}</tspan>'
    words = f"{line.points}{UNDECIDED}" if line.undecided else line.points
    is_narrow = len(line.name) + len(words) <= NARROW_LINE  # else it would run into the name
    differences = [text(words, "100%", y, f"{style} end{'' if is_narrow else ' at-wide'}")]
    if not is_narrow:
        differences.append(text(line.points, "100%", y, f"{style} end at-narrow"))
    return [
        f'<text class="s" x="0" y="{y:.1f}"><tspan class="{style}">{escape(visible(line.name))}'
        f"</tspan>{example if line.example else ''}</text>",
        text(line.against, "100%", y, "s end at-wide", -16 - LETTER * len(words)),
        *differences,
    ]


def _relation_label(line: RelationLine, y: float) -> list[str]:
    """Write head and accuracy beside all marks, where wide and narrow plots have a free place."""
    style = "b halo" if line.supported else "s halo"
    words = f"{line.head} {line.accuracy.as_text('whole')}"
    places = [_label_place(line, len(words) / letters) for letters in (WIDE_LETTERS, FEW_LETTERS)]
    kinds = ("",) if places[0] == places[1] else (" at-wide", " at-narrow")
    return [
        text(words, percent(_x(share)), y, style + kind + " end" * (shift < 0), shift)
        for kind, (share, shift) in zip(kinds, places, strict=False)
    ]


def _label_place(line: RelationLine, width: float) -> tuple[float, int]:
    """Return the share at which a label begins or ends, and its distance in pixels.

    Args:
        width: share that the label covers.
    """
    value = line.accuracy.value
    ends = (value, line.rule.value, line.accuracy.low, line.accuracy.high)
    left, right = np.nanmin(ends), np.nanmax(ends)
    if right + width < 1:
        return float(right), 11
    if left > width:
        return float(left), -11
    return (value, 11) if value + width < 1 else (value, -11)


def relation_plot(name: str, caption: str, lines: Sequence[RelationLine]) -> Plot:
    """Draw relations one below the other, each on a scale from 0 to 100 %."""
    marks: list[str | PlotMark] = []
    for place, line in enumerate(lines):
        y = ROW_HEIGHT * (place + 0.65)
        marks += [*_relation_words(line, y - 14), *_relation_marks(line, y)]
    height = ROW_HEIGHT * len(lines) + 20
    styles = {0.0: "s", 1.0: "s end"}
    marks += [
        text(whole_percent(tick), percent(_x(tick)), height - 6, styles.get(tick, "s mid"))
        for tick in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    rows = pd.DataFrame([
        {"relation": line.name, "head": line.head, "accuracy": line.accuracy.value,
         "low": line.accuracy.low, "high": line.accuracy.high, "rule": line.rule.value,
         "supported": line.supported}
        for line in lines
    ])  # fmt: skip
    return Plot(name, caption, height, marks=tuple(marks), axis_width=0, rows=rows)


class TreePoint(NamedTuple):
    """A score of induced trees in one layer.

    Attributes:
        layer: number of the layer.
        name: the head, or the layer.
        score: share with its interval.
        above: whether it is clearly above all trees without attention.
        label: the score in words.
    """

    layer: int
    name: str
    score: Number
    above: bool
    label: str


def tree_plot(
    name: str,
    caption: str,
    points: Sequence[TreePoint],
    baselines: Sequence[tuple[float, str]],
) -> Plot:
    """Draw scores by layer, with dashed lines for trees without attention.

    Args:
        baselines: scores with their names.
    """
    known = [float(np.fmax(point.score.value, point.score.high)) for point in points]
    top = math.ceil(10 * max([*known, *(value for value, _ in baselines), 0.1])) / 10
    scale = Scale(0.0, top, TREE_HEIGHT, top=16)
    ticks = even_ticks(0.0, top, whole_percent)
    behind = [*grid(scale, [value for value, _ in ticks])]
    ends = []
    for value, words in baselines:
        y = scale(value)
        behind.append(f'<line class="bl" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>')
        label = escape(visible(f"{words} {whole_percent(value)}"))
        ends.append((y, f'<text class="s" x="8" y="{{y}}">{label}</text>'))
    marks: list[str | PlotMark] = []
    for place, point in enumerate(points):
        x = 100 * (place + 0.5) / len(points)
        marks += _tree_marks(point, x, scale, [value for value, _ in baselines], len(points))
    return Plot(
        name=name,
        caption=caption,
        height=TREE_HEIGHT,
        behind=tuple(behind),
        marks=tuple(marks),
        axis=value_axis(scale, ticks),
        labels=end_labels(ends, scale),
        label_width=160,
        rows=pd.DataFrame(
            [
                {"layer": p.layer, "tree": p.name, "score": p.score.value, "low": p.score.low,
                 "high": p.score.high, "above_plain_trees": p.above}
                for p in points
            ]
        ),
    )  # fmt: skip


def _tree_marks(
    point: TreePoint, x: float, scale: Scale, lines: Sequence[float], n_points: int
) -> list[str | PlotMark]:
    """Draw interval, dot and name of one score.

    Args:
        x: place in per cent.
        lines: values of lines, which no text may lie on.
    """
    score, role = point.score, "model" if point.above else "baseline"
    few = n_points <= MANY_POINTS
    names = [(str(point.layer), "")]
    if few and point.name != names[0][0]:
        names = [(point.name, " at-wide"), (str(point.layer), " at-narrow")]
    parts: list[str | PlotMark] = []
    if few or point.layer % (n_points // MANY_POINTS) == 0:
        parts += [
            text(words, percent(x), scale.height - 6, f"mid s{kind}") for words, kind in names
        ]
    y = scale(score.value)
    if not np.isnan(score.low):
        parts.append(
            f'<line class="st c-{role}" x1="{percent(x)}" x2="{percent(x)}" '
            f'y1="{scale(score.low):.1f}" y2="{scale(score.high):.1f}"/>'
        )
    dot = mark(role, x, y, hollow=not point.above)
    parts.append(PlotMark(dot, f"c-{role}", score.row, point.label, x, y))
    if few:
        near = any(abs(scale(line) - y) < 12 for line in lines)
        style = "b s halo at-wide" if point.above else "s halo at-wide"
        parts.append(
            text(whole_percent(score.value), percent(x), y + (-7 if near else 4), style, 9)
        )
    return parts
