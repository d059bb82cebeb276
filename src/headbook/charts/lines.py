"""Lines over layers, drawn from numbers: scale, ticks, links and files follow from the numbers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from headbook.analysis.arrays import Floats
from headbook.charts.plots import Plot, Scale, Series, layer_plot
from headbook.results.number import Number

RATIO_TICKS = (1 / 8, 1 / 4, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 8.0)
MOST_LINKED = 150  # marks of a figure up to which each is a link to its row
MOST_STRONG = 4  # lines that are drawn at full strength: those that end farthest from 1
HEIGHT = 430.0  # pixels
LONG_NAME = 15  # letters of a name that fits the narrower column of labels


class Line(NamedTuple):
    """A line of a figure: one number for each layer with attention.

    Attributes:
        name: label at its end.
        kind: class, role or family of the palette.
        numbers: its numbers by layer.
    """

    name: str
    kind: str
    numbers: Sequence[Number]


def ratio_lines(name: str, caption: str, lines: Sequence[Line], layers: Sequence[int]) -> Plot:
    """Draw multiples of a baseline by layer on a logarithmic scale, around a dashed line at 1.

    Lines that end near 1 step back; one without any interval is hollow. Intervals are in the file.
    """
    linked = sum(len(line.numbers) for line in lines) <= MOST_LINKED
    series = [_series(line, linked=linked) for line in lines]
    strong = sorted(series, key=_end_distance, reverse=True)[:MOST_STRONG]
    strong_names = {line.name for line in strong}
    values = np.concatenate([line.values for line in series])
    known = values[values > 0]
    low, high = min(known.min(initial=1.0), 0.8) / 1.05, max(known.max(initial=1.0), 1.25) * 1.05
    nothing = np.full(len(layers), np.nan)  # of bands, which would cover each other
    plot = layer_plot(
        name,
        caption
        + " Strong lines: farthest from 1× in the last layer." * (len(series) > MOST_STRONG)
        + " Hollow: too few sentences for an interval." * any(line.hollow for line in series),
        [
            line._replace(low=nothing, high=nothing, faint=line.name not in strong_names)
            for line in series
        ],
        [str(layer) for layer in layers],
        scale=Scale(float(low), float(high), HEIGHT, top=16, log=True),
        ticks=[(tick, f"{tick:g}×") for tick in RATIO_TICKS if low <= tick <= high],
        baselines=[(1.0, "")],
        label_width=160 if max(len(line.name) for line in series) <= LONG_NAME else 200,
    )
    ends = [np.concatenate([getattr(line, end) for line in series]) for end in ("low", "high")]
    return replace(plot, rows=plot.rows.assign(low=ends[0], high=ends[1]))


def _series(line: Line, *, linked: bool) -> Series:
    """Return the arrays that a plot draws."""
    values, low, high = (
        np.array([getattr(n, part) for n in line.numbers]) for part in ("value", "low", "high")
    )
    rows = [n.row for n in line.numbers] if linked else []
    texts = [f"{n}" for n in line.numbers]
    return Series(
        line.name, line.kind, values, low, high, texts, rows, hollow=bool(np.isnan(low).all())
    )


def _end_distance(line: Series) -> float:
    """Return how far the last known number of a line is from 1, in octaves."""
    known: Floats = line.values[line.values > 0]
    return float(abs(np.log2(known[-1]))) if len(known) else 0.0
