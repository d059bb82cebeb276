"""One number of all heads, layer by layer, beside uniform attention."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from headbook.analysis.arrays import Floats
from headbook.charts.plots import Plot, PlotMark, Scale, even_ticks, mark, percent, text, value_axis

HEIGHT, PANEL_HEIGHT = 400, 240  # pixels of the only panel, and of one of several
TOP, BOTTOM = 26, 30  # pixels above and below the values of a panel
MAX_LAYERS = 12  # layers of a panel
MANY_HEADS = 24  # heads of a layer from which on marks are small and without names
LABEL_WIDTH = 100  # pixels beside the plot

Address = Callable[[int, int], str]


def heads_plot(
    name: str,
    caption: str,
    values: Floats,
    *,
    layers: Sequence[int],
    means: Floats,
    uniform: Floats,
    written: Callable[[float], str],
    unit: str = "",
    least: float = math.nan,
    href: Address | None = None,
    root: str = "",
) -> Plot:
    """Draw a mark for each head, in each layer from the lowest value to the highest.

    Models of many layers have several panels below each other.

    Args:
        values: *Shape:* ``(layer, head)``; NaN if unknown.
        layers: layers that are drawn.
        means: number of each layer, all heads together; NaN without. *Shape:* ``(layer,)``.
        uniform: number under uniform attention; NaN without. *Shape:* ``(layer,)``.
        written: writes a number.
        unit: unit of the numbers, above the axis.
        least: lower end of the scale; NaN for the lowest value.
        href: returns the address of the row of a head's number, by layer and head; None if marks
            are no links.
    """
    ends = _ends([values[[*layers]], means[[*layers]], uniform[[*layers]]], least)
    n_panels = math.ceil(len(layers) / MAX_LAYERS)
    height = HEIGHT if n_panels == 1 else PANEL_HEIGHT
    size = math.ceil(len(layers) / n_panels)
    scale = Scale(*ends, height, top=TOP, bottom=BOTTOM)
    ticks = even_ticks(*ends, lambda value: f"{value:,.10g}")
    behind, axis, labels = list[str](), "", ""
    marks: list[str | PlotMark] = []
    for panel in range(n_panels):
        inside = layers[panel * size : (panel + 1) * size]
        y = float(panel * height)
        drawn = _Panel(inside, 100 / size, y, scale, written)
        behind += drawn.frame([value for value, _ in ticks], means, uniform)
        for place, layer in enumerate(inside):
            marks += drawn.heads(place, layer, values[layer], href)
        axis += f'<g transform="translate(0,{y:.0f})">{value_axis(scale, ticks, unit)}</g>'
        if not math.isnan(uniform[inside[-1]]):
            at = y + scale(float(uniform[inside[-1]]))
            labels += text("uniform", "10", at - 3)
            labels += text(f"attention {written(float(uniform[inside[-1]]))}", "10", at + 12)
    return Plot(
        name=name, caption=caption, height=n_panels * height, behind=tuple(behind),
        marks=tuple(marks), axis=axis, labels=labels,
        label_width=LABEL_WIDTH if labels else 20, rows=_rows(values, layers), root=root,
    )  # fmt: skip


def _ends(parts: Sequence[Floats], least: float) -> tuple[float, float]:
    """Return the ends of the scale of all known numbers."""
    known = np.concatenate([part[np.isfinite(part)] for part in parts])
    if not len(known):
        return 0.0, 1.0
    low = float(known.min()) if math.isnan(least) else min(least, float(known.min()))
    high = float(known.max())
    return (low, high) if high > low else (low, low + 1)


def _rows(values: Floats, layers: Sequence[int]) -> pd.DataFrame:
    """Return the numbers of all heads, a row for each."""
    places = [(layer, head) for layer in layers for head in range(values.shape[1])]
    frame = pd.DataFrame(places, columns=["layer", "head"])
    rows = frame.assign(value=[float(values[place]) for place in places])
    return rows[rows["value"].notna()].reset_index(drop=True)


class _Panel:
    """Some layers of a model side by side.

    Args:
        layers: layers from left to right.
        width: per cent of a layer.
        y: pixels from the top of the plot.
        scale: scale of the values.
        written: writes a number.
    """

    def __init__(
        self,
        layers: Sequence[int],
        width: float,
        y: float,
        scale: Scale,
        written: Callable[[float], str],
    ) -> None:
        self.layers, self.width, self.y = layers, width, y
        self.scale, self.written = scale, written

    def frame(self, ticks: Sequence[float], means: Floats, uniform: Floats) -> list[str]:
        """Return lines of ticks, names of layers, their means, and uniform attention."""
        width, parts = self.width, [self._across(0, 100, tick, "gl") for tick in ticks]
        bottom = self.y + self.scale.height - self.scale.bottom
        for place, layer in enumerate(self.layers):
            left, right = width * place, width * (place + 1)
            if place:
                line = f'x1="{percent(left)}" x2="{percent(left)}"'
                ys = f'y1="{self.y + self.scale.top - 8:.1f}" y2="{bottom:.1f}"'
                parts.append(f'<line class="gl" {line} {ys}/>')
            name = f"layer {layer}" if len(self.layers) <= 6 else f"L{layer}"
            middle, foot = percent(left + width / 2), self.y + self.scale.height - 8
            parts.append(text(name, middle, foot, "mid b"))
            if not math.isnan(uniform[layer]):
                parts.append(self._across(left, right, float(uniform[layer]), "bl"))
            if not math.isnan(means[layer]):
                mean = float(means[layer])
                parts.append(self._across(left + 0.08 * width, right - 0.08 * width, mean, "iv"))
        return parts

    def _across(self, left: float, right: float, value: float, style: str) -> str:
        y = f"{self.y + self.scale(value):.1f}"
        ends = f'x1="{percent(left)}" x2="{percent(right)}"'
        return f'<line class="{style}" {ends} y1="{y}" y2="{y}"/>'

    def heads(
        self, place: int, layer: int, values: Floats, href: Address | None
    ) -> list[str | PlotMark]:
        """Return the marks of a layer, the lowest value first, and names of extreme heads."""
        known = np.flatnonzero(~np.isnan(values))
        order = known[np.argsort(values[known], kind="stable")].tolist()
        many = len(values) >= MANY_HEADS
        radius = 2.2 if many else 4.4 if len(self.layers) <= 6 else 3.2
        marks: list[str | PlotMark] = []
        for rank, head in enumerate(order):
            part = 0.12 + 0.76 * (rank + 0.5) / len(order)
            x, y = self.width * (place + part), self.y + self.scale(float(values[head]))
            shape = mark("model", x, y, radius=radius)
            label = f"L{layer}·H{head}: {self.written(float(values[head]))}"
            if href is None:
                marks.append(shape.replace('class="mk"', 'class="mk c-model"'))
            else:
                marks.append(PlotMark(shape, "c-model", href(layer, head), label, x, y))
            if not many and rank in {0, len(order) - 1}:
                below = rank == 0 and len(order) > 1
                name = text(f"H{head}", percent(x), y + (16 if below else -8), "mid s halo")
                marks.append(name)
        return marks
