"""Heat maps of parts of speech: ratio to uniform attention, on a scale of octaves around 1."""

import json
from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from headbook.charts.base.render import Chart, drawn, finished, on_demand, ramp
from headbook.charts.vega.draw import LAYER_NAMES

OCTAVES = 2  # the colours end at 1/4 and 4 ratio to uniform attention
STEPS = 8  # colours of an octave; fewer than could be told apart would show as bands
THIN_INK = "rgba(128, 128, 128, 0.2)"  # quiet on light and dark paper
HEIGHT = 16  # pixels of a tag
LAYER = (10, 40)  # least and most pixels of a layer
HEAD = (2, 13)  # least and most pixels of a head
LEAST = 4  # pixels of a head from which on some heads have their numbers
NUMBER = 14  # pixels that the number of a head takes
NAMED = 44  # pixels of a layer that has room for "layer 12", else its number stands alone
WIDTH = 1040  # pixels that a map of all heads may take


@on_demand
def tag_layers(rows: pd.DataFrame, *, tags: Sequence[str]) -> Chart:
    """Parts of speech by layer, a panel for each way of looking.

    Args:
        rows: columns ``way, tag, layer, ratio, low, high, share, words, thin``.
        tags: from top to bottom.
    """
    table, rows = rows, drawn(rows)
    directions = list(dict.fromkeys(rows["way"]))
    n_layers = rows["layer"].nunique()
    chart = _rectangles(rows, tags, ["layer:O"])
    chart = chart.encode(
        x=alt.X("layer:O", title="layer", axis=alt.Axis(ticks=False, domain=False, **LAYER_NAMES)),
        column=alt.Column(
            "way:N", title=None, sort=directions, header=alt.Header(labelAnchor="start")
        ),
    )
    width = alt.Step(_within(480 // max(n_layers, 1), LAYER))
    return finished(chart.properties(width=width, height=alt.Step(HEIGHT)), table)


@on_demand
def tag_heads(rows: pd.DataFrame, *, tags: Sequence[str], n_heads: int) -> Chart:
    """Parts of speech by head, a gap between layers.

    Args:
        rows: columns ``head, tag, layer, number, ratio, low, high, share, words, thin``;
            ``head`` is the name of a head, ``number`` its place in the layer.
        tags: from top to bottom.
        n_heads: heads of a layer.
    """
    table, rows = rows, drawn(rows)
    layers = sorted(set(rows["layer"]))
    series = rows["layer"].map(layers.index) * (n_heads + 1) + rows["number"]
    total = len(layers) * (n_heads + 1) - 1
    pixels = _within(WIDTH // max(total, 1), HEAD)
    axis = _head_axis(layers, n_heads)
    scale = alt.Scale(domain=[0, total], nice=False)
    chart = _rectangles(rows.assign(start=series, end=series + 1), tags, ["head:N"])
    title = "head" if pixels * (n_heads + 1) > NAMED else "layer (a column for each head)"
    chart = chart.encode(x=alt.X("start:Q", title=title, scale=scale, axis=axis), x2="end:Q")
    return finished(chart.properties(width=total * pixels, height=alt.Step(HEIGHT)), table)


def _head_axis(layers: Sequence[int], n_heads: int) -> alt.Axis:
    """Numbers of heads under their places where they have room, those of layers below."""
    step, half = n_heads + 1, n_heads // 2
    head = f"floor(datum.value) % {step}"
    room = f"width / {len(layers) * step - 1}"  # pixels of a head
    number = f"({head}) % ceil({NUMBER} / ({room})) == 0 && {room} > {LEAST} ? {head} : ''"
    place, wide = f"floor(datum.value / {step})", f"({room}) * {step}"
    word = f"({wide} > {NAMED} ? 'layer ' : '')"
    there = f"{head} == {half} && {place} % ceil({NUMBER} / ({wide})) == 0"
    layer = f"{word} + {json.dumps(layers)}[{place}]"
    return alt.Axis(
        values=[n * step + x + 0.5 for n in range(len(layers)) for x in range(n_heads)],
        labelExpr=f"[{number}, {there} ? {layer} : '']",
        labelFontSize=9.5,
        labelOverlap=False,
        grid=False,
        ticks=False,
        domain=False,
    )


def _rectangles(rows: pd.DataFrame, tags: Sequence[str], names: Sequence[str]) -> Any:
    """Cells coloured by ratio, one tag a row; grey where too few words stand behind them.

    Cells of one colour come together, so that a picture can draw them as one shape.

    Args:
        names: fields that a tooltip begins with.
    """
    rows = rows[rows["ratio"].notna()]
    with np.errstate(divide="ignore"):
        octaves = np.log2(rows["ratio"].to_numpy(float)).clip(-OCTAVES, OCTAVES)
    rows = rows.assign(octaves=(octaves * STEPS).round() / STEPS + 0.0)
    rows = rows.sort_values(["thin", "octaves"], kind="stable", ignore_index=True)
    numbers = [alt.Tooltip(f"{n}:Q", format=".3~g") for n in ("ratio", "low", "high")]
    numbers += [alt.Tooltip("share:Q", format=".2~%"), alt.Tooltip("words:Q", format=",")]
    return (
        alt.Chart(rows)
        .mark_rect()
        .encode(
            y=alt.Y("tag:N", title=None, sort=[*tags], axis=alt.Axis(ticks=False, domain=False)),
            color=alt.condition(alt.datum.thin, alt.value(THIN_INK), _colour()),
            tooltip=[*names, "tag:N", *numbers],
        )
    )


def _colour() -> alt.Color:
    """Orange below chance, blue above, pale at chance; each step of the legend is an octave."""
    power = "pow(2, abs(datum.value))"
    return alt.Color(
        "octaves:Q",
        title="ratio to uniform attention",
        scale=ramp((-OCTAVES, OCTAVES)),
        legend=alt.Legend(
            orient="top",
            values=[*range(-OCTAVES, OCTAVES + 1)],
            labelExpr=f"(datum.value < 0 ? '1/' : '') + {power}",
            gradientLength=200,
        ),
    )


def _within(value: int, ends: tuple[int, int]) -> int:
    return min(max(value, ends[0]), ends[1])
