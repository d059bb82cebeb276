"""Charts of head outputs: similarity by layer and by distance, within and across sentences."""

import math
from collections.abc import Collection, Sequence

import numpy as np

from headbook.analysis.accumulators import Estimates
from headbook.analysis.arrays import Floats
from headbook.charts.axes import even_places
from headbook.charts.panels import PanelPlot, PlotPanel, panel_plot
from headbook.charts.plots import Plot, Scale, Series, even_ticks, layer_plot, mark, percent
from headbook.report.facts.outputs import OUTPUTS, ROWS
from headbook.report.results import StackResults
from headbook.results.formats import number
from headbook.schema import CONTEXT_DISTANCES, HeadKey

LAYER_HEIGHT = 250
PANEL_HEIGHT = 170
DOT_STEP = 2.2  # pixels between the dots of two heads in a row
MAX_DOT_SPREAD = 40.0  # pixels that the dots of a layer take at most
GAP_TOKENS = 10  # tokens compared on each side of a gap, as in the segmentation metric
MAX_MARKED = 8  # distances of a panel with a mark
MAX_PANELS = 6  # layers whose similarity by distance is drawn; of more, that many at even distances


def _line(
    results: StackResults, name: str, kind: str, key: HeadKey, layers: Sequence[int]
) -> Series:
    """Return a metric of layers as a line."""
    numbers: Estimates = results.layers(*key)
    at = [*layers]
    values = numbers.value[at]
    return Series(
        name, kind, values, numbers.low[at], numbers.high[at], [number(value) for value in values],
        [results.number(key, layer).row for layer in layers],
    )  # fmt: skip


def similarity_plot(results: StackResults, name: str, caption: str) -> Plot:
    """Draw how alike the outputs of a head are for two tokens, beside its rows of attention."""
    layers = [*results.stack.attention_layers]
    lines = [_line(results, "head outputs", "model", OUTPUTS, layers)]
    if results.has_value(*ROWS):
        lines.append(_line(results, "attention rows", "baseline", ROWS, layers))
    heads = results.heads(*OUTPUTS).value
    low = min(0.0, math.floor(5 * np.nanmin(heads)) / 5)
    scale = Scale(low, 1, LAYER_HEIGHT, top=16)
    return layer_plot(
        name, caption, lines, [str(layer) for layer in layers], scale=scale,
        ticks=even_ticks(low, 1, lambda value: f"{value:g}".replace("-", "−")), label_width=200,
        notes=tuple(_dots(heads[layer], index, len(layers), scale) for index, layer in
                    enumerate(layers)),
    )  # fmt: skip


def _dots(values: np.ndarray, index: int, n_layers: int, scale: Scale) -> str:
    """Return a small dot for each head of a layer, side by side in the order of heads."""
    x = 2 + 96 * index / max(1, n_layers - 1)
    step = min(DOT_STEP, MAX_DOT_SPREAD / len(values))
    path = "".join(
        f"M{(head - (len(values) - 1) / 2) * step:.0f} {scale(float(value)):.0f}h0"
        for head, value in enumerate(values)
        if not math.isnan(value)
    )
    dots = f'<path class="st" stroke-width="5" stroke-linecap="round" d="{path}"/>'
    return f'<svg x="{percent(x)}" overflow="visible" opacity="0.5" class="c-baseline">{dots}</svg>'


def distance_plot(results: StackResults, name: str, caption: str) -> PanelPlot | None:
    """Draw similarity by distance within and across sentences, a panel for a layer."""
    layers = results.stack.attention_layers
    kept = [layers[place] for place in sorted(even_places(len(layers), MAX_PANELS))]
    sides = {side: _distance_keys(side) for side in ("within", "across")}
    sides = {side: keys for side, keys in sides.items() if any(results.has_value(*k) for k in keys)}
    if not sides:
        return None
    values = np.ravel([_values(results, keys, layer)
                       for keys in sides.values() for layer in kept])  # fmt: skip
    low, high = (float(end([0.0, *values[np.isfinite(values)]])) for end in (min, max))
    scale = Scale(low, high, PANEL_HEIGHT, top=16)
    ticks = even_ticks(low, high, lambda value: f"{value:.2g}".replace("-", "−"))
    points = [key.label.partition(":")[2] for key in next(iter(sides.values()))]
    panels = []
    for layer in kept:
        lines = [_by_distance(results, keys, layer, side) for side, keys in sides.items()]
        plot = layer_plot(
            f"{name}-{layer}", caption, lines, points, scale=scale, ticks=ticks, label_width=100,
            n_marked=MAX_MARKED, across="tokens",
        )  # fmt: skip
        panels.append(PlotPanel(f"Layer {layer}", "mean cosine by distance in tokens", plot))
    return panel_plot(name, caption, panels)


def _distance_keys(side: str) -> list[HeadKey]:
    """Return the numbers of one side by distance, the nearest first."""
    labels = (label for label in CONTEXT_DISTANCES if label.startswith(f"{side}:"))
    return [OUTPUTS._replace(label=label) for label in labels]


def _values(results: StackResults, keys: Sequence[HeadKey], layer: int) -> list[float]:
    return [float(results.layers(*key).value[layer]) for key in keys]


def _by_distance(results: StackResults, keys: Sequence[HeadKey], layer: int, side: str) -> Series:
    numbers = [results.number(key, layer) for key in keys]
    value, low, high = (
        np.array([getattr(n, part) for n in numbers]) for part in ("value", "low", "high")
    )
    kind = "model" if side == "within" else "baseline"
    texts = [number(part) for part in value.tolist()]
    return Series(side, kind, value, low, high, texts, [n.row for n in numbers])


def gap_plot(
    name: str,
    caption: str,
    cosines: Floats,
    ends: Collection[int],
    dips: Collection[int],
) -> Plot:
    """Draw the similarity across each gap of a passage, with the ends of its sentences.

    Args:
        cosines: centred similarity, mean over heads; NaN for tokens that do not count. *Shape:*
            ``(token, token)``.
        ends: positions of the last tokens of sentences.
        dips: positions of the tokens before proposed ends.
    """
    counted = np.flatnonzero(~np.isnan(cosines).all(1))
    across = similarity_of_gaps(cosines[np.ix_(counted, counted)])
    known = across[np.isfinite(across)]
    scale = Scale(float(known.min()), float(known.max()), PANEL_HEIGHT, top=16)
    ticks = even_ticks(scale.low, scale.high, lambda value: f"{value:.2g}".replace("-", "−"))
    unknown = np.full(len(across), np.nan)
    texts = ["" if np.isnan(value) else number(value) for value in across.tolist()]
    line = Series("similarity", "model", across, unknown, unknown, texts, thin=True)
    places = {int(at): 2 + 96 * n / max(1, len(counted) - 1) for n, at in enumerate(counted)}
    notes = [
        f'<line class="bl" x1="{percent(x)}" x2="{percent(x)}" y1="{scale.top:.0f}" '
        f'y2="{scale.height - scale.bottom:.0f}"/>'
        for x in (places[end] for end in sorted(ends) if end in places)
    ]
    order = {int(at): n for n, at in enumerate(counted)}
    notes += [
        mark("model", places[dip], scale(float(across[order[dip]])))
        for dip in sorted(dips)
        if dip in order and np.isfinite(across[order[dip]])
    ]
    return layer_plot(
        name, caption, [line], [str(at) for at in counted.tolist()], scale=scale, ticks=ticks,
        label_width=60, across="token", notes=tuple(notes),
    )  # fmt: skip


def similarity_of_gaps(cosines: Floats) -> Floats:
    """Return the mean similarity of up to `GAP_TOKENS` tokens before a gap with as many after it.

    *Shape:* ``(token, token)`` to ``(token,)``, by the token before the gap; NaN after the last.
    """
    n = len(cosines)
    gaps = np.full(n, np.nan)
    for before in range(n - 1):
        first, last = max(0, before + 1 - GAP_TOKENS), min(n, before + 1 + GAP_TOKENS)
        gaps[before] = np.nanmean(cosines[first : before + 1, before + 1 : last])
    return gaps
