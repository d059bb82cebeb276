"""Shared parts of charts: specifications from Altair, rows, axes, tooltips."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from altair.utils import schemapi

from headbook.analysis.arrays import Floats
from headbook.charts.figure import Spec
from headbook.charts.theme import INK, PAPER, ROLE_COLOURS, vega_config


@contextmanager
def without_schema_checks() -> Iterator[None]:
    """Make charts without comparing each of their parts with Vega-Lite's schema.

    The comparison takes longer than all other work on a page; tests make the same charts with it.
    """
    with schemapi.debug_mode(False):
        yield


def styled_spec(chart: Any) -> Spec:
    """Return an Altair chart in the site's style as a specification."""
    named: dict[int, tuple[str, pd.DataFrame]] = {}  # by identity: layers share their rows

    def name(table: Any) -> dict[str, str]:
        new_name = f"rows-{len(named)}", table
        return {"name": named.setdefault(id(table), new_name)[0]}

    # Altair reads each cell several times, to check it and to name the table by its content.
    alt.data_transformers.register("named", name)
    with alt.data_transformers.enable("named"):
        spec: Spec = chart.to_dict(validate=schemapi.DEBUG_MODE)
    spec.pop("$schema", None)  # an address that no page may request
    spec |= {"background": None, "config": vega_config()}
    if named:
        spec["datasets"] = {table_name: records(table) for table_name, table in named.values()}
    return spec


def altair_chart(spec: Spec) -> Any:
    """Return a specification of `styled_spec` as an Altair chart, in dark ink on white paper.

    The specification itself has the text colour of a page, which pictures in notebooks lack.
    """
    config = spec["config"] | {"background": PAPER}
    text = json.dumps(spec | {"background": PAPER, "config": config}).replace(
        INK, ROLE_COLOURS["model"][0]
    )
    return alt.Chart.from_json(text)


def records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a mapping for each row, as JSON has it; None for numbers that are missing."""
    text = rows.to_json(orient="records", double_precision=15)
    mappings: list[dict[str, Any]] = json.loads(text)
    return mappings


NAME_DISTANCE = 13  # pixels between the names of two lines
CURVE = (300, 170)  # width and height of a curve over layers
NAMED_CURVE_WIDTH = 224  # pixels if names of lines are beside the plot: three charts fit in a row
LAYER_NAMES: dict[str, Any] = {"labelAngle": 0, "labelOverlap": True, "labelSeparation": 3}
UNIFORM = "uniform attention"
CHANCE = "expected overlap"
# Formats of shares in per cent, as in tables, and of other numbers.
SHARE_FORMAT, PLAIN_FORMAT = "~p", "~g"


def cell_axis(**options: Any) -> alt.Axis:
    """Return an axis of a map of cells: labels alone, without ticks and line."""
    return alt.Axis(ticks=False, domain=False, labelOverlap=True, **options)


def axis_heading(title: str) -> alt.Title:
    """Return the title of an axis of values, to stand above the chart, where any length fits."""
    return alt.Title(title, fontSize=12, limit=0, offset=8)


def spread_values(values: Floats, gap: float, ends: tuple[float, float]) -> Floats:
    """Move values apart until neighbours are ``gap`` apart, as little as that takes.

    Neighbours that would overlap form a group around their common mean, as in isotonic
    regression.

    Args:
        ends: least and largest value allowed, if all fit; the least one is raised by half a gap,
            because an axis would cross a name there.
    """
    order = np.argsort(values, kind="stable")
    groups: list[tuple[float, int]] = []  # mean of (value - place in group * gap), members
    for rank, index in enumerate(order):
        mean, size = float(values[index]) - rank * gap, 1
        while groups and groups[-1][0] > mean:
            last_mean, members = groups.pop()
            mean = (mean * size + last_mean * members) / (size + members)
            size += members
        groups.append((mean, size))
    group_means = np.concatenate([np.full(size, mean) for mean, size in groups] or [np.zeros(0)])
    offsets = np.arange(len(values)) * gap
    spread = np.empty(len(values))
    highest = ends[1] - gap * (len(values) - 1)
    lowest = min(ends[0] + gap / 2, max(highest, ends[0]))
    spread[order] = np.maximum(np.minimum(group_means, highest), lowest) + offsets
    return spread


def even_places(n_places: int, most: int) -> list[int]:
    """Return at most ``most`` (two or more) of the places from 0 at one distance, and the last."""
    step = max(1, math.ceil((n_places - 1) / (most - 1)))
    *places, last = range(0, n_places, step)
    if places and 0 < n_places - 1 - last <= step / 2:
        return [*places, n_places - 1]  # in the place of one that is too near to it
    return [*places, last] if last == n_places - 1 else [*places, last, n_places - 1]


def number_tooltips(*names: str, share: bool = False) -> list[alt.Tooltip]:
    """Return columns of numbers with their format in a tooltip."""
    number_format = f".4{SHARE_FORMAT if share else PLAIN_FORMAT}"
    return [alt.Tooltip(f"{name}:Q", format=number_format) for name in names]


def text_tooltips(*names: str) -> list[alt.Tooltip]:
    """Return columns of text, each given as ``name:type``, for a tooltip.

    Channels, and no bare names: for each of those Altair looks through all of its classes.
    """
    return [alt.Tooltip(name) for name in names]
