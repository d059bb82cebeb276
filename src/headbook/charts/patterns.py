"""Charts of attention by distance, of its parts, and of the similarity of head outputs."""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from headbook.analysis.arrays import Floats
from headbook.charts.axes import even_places, spread_values
from headbook.charts.drawing import Drawing
from headbook.charts.panels import PanelPlot, PlotPanel, panel_plot
from headbook.charts.plots import (
    Line,
    Plot,
    PlotMark,
    Scale,
    Series,
    even_ticks,
    grid,
    layer_plot,
    mark,
    percent,
    text,
    value_axis,
)
from headbook.metrics import ids
from headbook.report.facts.outputs import OUTPUTS, ROWS
from headbook.report.results import StackResults
from headbook.results.formats import head_name, number, signed
from headbook.results.formats import percent as share_text
from headbook.results.number import Number
from headbook.results.sentence import Sentence, listed, say
from headbook.schema import CONTEXT_DISTANCES, GAP_TOKENS, HeadKey, HeadName, SinkView

OFFSET_HEIGHT = 330  # pixels
LAYER_HEIGHT = 250
PANEL_HEIGHT = 170
DOT_STEP = 2.2  # pixels between the dots of two heads in a row
MAX_DOT_SPREAD = 40.0  # pixels that the dots of a layer take at most
MAX_MARKED = 8  # distances of a panel with a mark
MAX_PANELS = 6  # layers whose similarity by distance is drawn; of more, that many at even distances
N_OFFSETS = 13  # offsets that the chart shows
MIN_MARKED_SHARE = 0.2  # share of attention at one offset from which on a head has a mark
MIN_NAMED_SHARE = 0.28  # share from which on the head is named, too
MIN_PHONE_SHARE = 0.5  # share from which on the largest head of an offset has its name on phones
MAX_NAMED, MAX_MARKS = 4, 40  # named heads at one offset, and marks at all of them
MAX_NAME_PLACE = 88  # per cent of the plot beyond which names stand on the left of marks
NAME_DISTANCE = 15.0  # pixels between two names


def offset_key(offset: int) -> HeadKey:
    """Return the key of the share of attention at one offset, key minus query."""
    return HeadKey(ids.OFFSET_PROFILE, SinkView.RAW, str(offset))


def offset_rows(results: StackResults) -> pd.DataFrame:
    """Return the share of attention at each offset, a row for each offset and head.

    Causal models have no keys after the query.
    """
    first = 1 - N_OFFSETS if results.stack.causal else -(N_OFFSETS // 2)
    frames = []
    for offset in range(first, first + N_OFFSETS):
        if not results.has_value(*offset_key(offset)):
            continue
        numbers = results.heads(*offset_key(offset))
        layer, head = np.nonzero(~np.isnan(numbers.value))
        at = layer, head
        frames.append(pd.DataFrame({
            "stack": results.stack.name, "offset": offset, "layer": layer, "head": head,
            "share": numbers.value[at], "low": numbers.low[at], "high": numbers.high[at],
            "uniform": results.uniform(*offset_key(offset)).value[layer],
        }))  # fmt: skip
    return pd.concat(frames, ignore_index=True)


def offset_plot(results: StackResults, name: str, caption: str) -> Plot:
    """Draw the share of attention at each offset, a line for each head, large ones as marks."""
    rows = offset_rows(results)
    scale = Scale(
        0, min(1.0, math.ceil(4 * rows["share"].max()) / 4), OFFSET_HEIGHT, top=22, bottom=46
    )
    ticks = even_ticks(0, scale.high, lambda value: f"{100 * value:g} %")
    offsets = sorted(rows["offset"].unique().tolist())
    width = 100 / len(offsets)
    marked = rows.sort_values("share", ascending=False, kind="stable")
    marked = marked[marked["share"] >= MIN_MARKED_SHARE][:MAX_MARKS]
    at_self = rows[rows["offset"] == 0]
    if len(at_self) and 0 not in {*marked["offset"]}:
        marked = pd.concat([marked, at_self.loc[[at_self["share"].idxmax()]]])
    behind = [*grid(scale, [tick for tick, _ in ticks])]
    marks: list[str | PlotMark] = []
    for index, offset in enumerate(offsets):
        x, here = width * (index + 0.5), rows[rows["offset"] == offset]
        behind += _offset_axis(offset, x, width, scale, float(here["uniform"].iloc[0]))
        large = marked[marked["offset"] == offset]
        marks.append(_ticks(here.drop(index=large.index)["share"], x, scale))
        marks += _large(results, large, x, scale)
    y = scale(float(rows.loc[rows["offset"] == 0, "uniform"].max())) - 12
    marks.append(text("dashed: uniform attention", "0", y, "s halo at-page"))
    return Plot(
        name=name, caption=caption, height=OFFSET_HEIGHT, behind=tuple(behind), marks=tuple(marks),
        axis=value_axis(scale, ticks), label_width=20, rows=rows,
    )  # fmt: skip


def _offset_axis(
    offset: int, x: float, width: float, scale: Scale, uniform: float
) -> Iterator[str]:
    """Yield the name of an offset and its share under uniform attention."""
    y = f'y1="{scale(uniform):.1f}" y2="{scale(uniform):.1f}"'
    left, right = percent(x - 0.36 * width), percent(x + 0.36 * width)
    yield f'<line class="bl" x1="{left}" x2="{right}" {y}/>'
    yield text(signed(offset), percent(x), scale.height - 26, "mid b" if offset == 0 else "mid s")
    if offset == 0:
        yield text("itself", percent(x), scale.height - 8, "mid b")
        yield text("← tokens before", percent(x - width / 2), scale.height - 8, "end s at-page", -6)
        if x < 90:
            yield text("tokens after →", percent(x + width / 2), scale.height - 8, "s at-page", 6)


def _ticks(shares: pd.Series, x: float, scale: Scale) -> str:
    """Return a short line for each head; of lines at the same pixel one is drawn."""
    heights = sorted({round(scale(share)) for share in shares})
    path = "".join(f"M-10 {y}h20" for y in heights)
    return (f'<svg x="{percent(x)}" overflow="visible" opacity="0.55" class="c-baseline">'
            f'<path class="st" d="{path}"/></svg>')  # fmt: skip


def _large(
    results: StackResults, large: pd.DataFrame, x: float, scale: Scale
) -> Iterator[str | PlotMark]:
    """Yield the marks of heads with large shares at one offset, the largest with their names."""
    for row in large.to_dict("records"):
        place, y = (row["layer"], row["head"]), scale(row["share"])
        name = head_name(HeadName(results.stack.name, *place))
        label = f"{name}: {share_text(row['share'])} of its attention at offset "
        label += signed(row["offset"])
        href = results.number(offset_key(row["offset"]), *place).row
        yield PlotMark(mark("model", x, y), "c-model", href, label, x, y)
    is_self = large["offset"] == 0
    named = large[(large["share"] >= MIN_NAMED_SHARE) | is_self][:MAX_NAMED]
    if len(named):
        heights = np.array([scale(share) for share in named["share"]])
        limits = scale.top - 6, scale.height - scale.bottom
        for y, row in zip(
            spread_values(heights, NAME_DISTANCE, limits), named.to_dict("records"), strict=True
        ):
            words = f"L{row['layer']}·H{row['head']} {share_text(row['share'])}"
            at_right = x > MAX_NAME_PLACE
            style, shift = ("end s halo at-page", -9) if at_right else ("s halo at-page", 9)
            yield text(words, percent(x), y + 4, style, shift)
        largest = named.iloc[0]
        if largest["share"] >= MIN_PHONE_SHARE:
            words = f"L{largest['layer']}·H{largest['head']}"
            yield text(words, percent(x), heights[0] + 4, "s halo at-phone", 9)


PARTS = {"distance": "distance", "key": "the key", "pair": "the pair"}
FILLS = {"distance": "f-position", "key": "f-same_keys", "pair": "c-control"}


def part_key(part: str) -> HeadKey:
    """Return metric, view and label of a part of attention."""
    return HeadKey(ids.ATTENTION_PARTS, SinkView.RENORM, part)


def parts_of(results: StackResults, layer: int, head: int | None = None) -> dict[str, Number]:
    """Return the parts of a head, or of all heads of a layer together, that were measured."""
    numbers = {
        part: results.number(part_key(part), layer, head)
        for part in PARTS
        if results.has_value(*part_key(part))
    }
    return {part: number for part, number in numbers.items() if number.known}


def widths(parts: dict[str, Number]) -> tuple[float, float]:
    """Return the widths of distance and key in per cent; the pair has the rest, nothing below 0."""
    distance = min(max(parts["distance"].value, 0.0), 1.0) if "distance" in parts else 0.0
    key = min(max(parts["key"].value, 0.0), 1 - distance)
    return 100 * distance, 100 * key


def parts_bar(parts: dict[str, Number]) -> Drawing:
    """Return a bar of three parts."""
    distance, key = widths(parts)
    ends = (0.0, distance), (distance, key), (distance + key, 100 - distance - key)
    bars = "".join(
        f'<rect class="{FILLS[part]}" x="{start:.1f}%" width="{width:.1f}%" height="100%"/>'
        for part, (start, width) in zip(PARTS, ends, strict=True)
    )
    shares = (f"{PARTS[part]} {number.as_text('whole')}" for part, number in parts.items())
    caption = ", ".join(shares)
    svg = f'<svg class="parts" role="img" aria-label="{caption}">{bars}</svg>'
    return Drawing("", caption, svg)


def parts_sentence(parts: dict[str, Number]) -> Sentence:
    """Return what explains the departure of a head's attention from uniform attention."""
    shares = [say("{part} {share:interval}", part=PARTS[part], share=share)
              for part, share in parts.items()]  # fmt: skip
    return say("Explains its preference among keys: {shares}.", shares=listed(shares))


def similarity_plot(results: StackResults, name: str, caption: str) -> Plot:
    """Draw how alike the outputs of a head are for two tokens, beside its rows of attention."""
    layers = [*results.stack.attention_layers]
    keys = [("head outputs", "model", OUTPUTS), ("attention rows", "baseline", ROWS)]
    lines = [
        Line(side, kind, [results.number(key, layer) for layer in layers])
        for side, kind, key in keys
        if key == OUTPUTS or results.has_value(*key)
    ]
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


def _by_distance(results: StackResults, keys: Sequence[HeadKey], layer: int, side: str) -> Line:
    kind = "model" if side == "within" else "baseline"
    return Line(side, kind, [results.number(key, layer) for key in keys])


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
    # Of a run of one token the first counts, so that an end may stand behind the last that counts.
    end_places, dip_places = (
        sorted({int(np.searchsorted(counted, at, "right")) - 1 for at in positions})
        for positions in (ends, dips)
    )
    xs = [2 + 96 * n / max(1, len(counted) - 1) for n in range(len(counted))]
    notes = [
        f'<line class="bl" x1="{percent(xs[n])}" x2="{percent(xs[n])}" y1="{scale.top:.0f}" '
        f'y2="{scale.height - scale.bottom:.0f}"/>'
        for n in end_places
    ]
    notes += [
        mark("model", xs[n], scale(float(across[n]))) for n in dip_places if np.isfinite(across[n])
    ]
    plot = layer_plot(
        name, caption, [line], [str(n + 1) for n in range(len(counted))], scale=scale, ticks=ticks,
        label_width=60, across="token", notes=tuple(notes),
    )  # fmt: skip
    numbers = np.arange(len(counted))
    marked = {"end": np.isin(numbers, end_places), "dip": np.isin(numbers, dip_places)}
    return replace(plot, rows=plot.rows.assign(**marked))


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
