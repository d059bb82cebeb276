"""The grid of all heads of a stack under any metric: the map of a site."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headbook.metrics import ids
from headbook.metrics.base import ChartKind, HeadMetric
from headbook.pages.parts.page import StackSection
from headbook.pages.parts.table import colour_step, domain
from headbook.report.results import StackResults
from headbook.report.wording import (
    MISSING,
    VIEWS,
    head_name,
    head_page,
    is_share,
    label_name,
    number,
    percent,
)
from headbook.schema import HeadName

# Metrics that the grid may show first, in order of preference.
FIRST = (ids.ATTENTION_DISTANCE, ids.RELATIVE_ENTROPY, ids.SINK_SHARE)
NO_STEP = -1
NOT_MEASURED = "Not measured in this stack"


@dataclass(frozen=True)
class GridCell:
    """A head in the grid.

    Attributes:
        name, href: the head and its page.
        text: value in short form.
        step: step on the colour scale; -1 if the value is missing.
    """

    name: str
    href: str
    text: str
    step: int


@dataclass(frozen=True)
class Grid(StackSection):
    """All heads of a stack under one metric.

    Attributes:
        chosen: the metric that is shown, as a key of `grid_data`.
        choices: all metrics by key, grouped by the metric's title.
        caption: metric, label and view of the cells, in words.
        low, high: ends of the colour scale.
        ink: beginning of the classes of colours: c for scales from 0 on, d for both signs.
        heads: head numbers, the table's columns.
        rows: layer numbers with their cells.
    """

    chosen: str
    choices: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    caption: str
    low: str
    high: str
    ink: str
    heads: tuple[int, ...]
    rows: tuple[tuple[int, tuple[GridCell, ...]], ...]


@dataclass(frozen=True)
class Grids:
    """The heads of all stacks under one metric, which is chosen for all stacks.

    Attributes:
        chosen: metric that is shown; if possible one that all stacks have.
        choices: metrics that any stack has, as in `Grid`.
        each: grids by stack, with empty cells if the stack lacks the metric.
    """

    chosen: str
    choices: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    each: tuple[Grid, ...]


def grids(results: Iterable[StackResults]) -> Grids:
    """Return the heads of all stacks under the metric that pages show first."""
    measured = [r for r in results if r.metrics]
    per_stack = [r.cached(grid) for r in measured]
    choices: dict[str, dict[str, str]] = {}
    for own in per_stack:
        for title, options in own.choices:
            choices.setdefault(title, {}).update(options)
    asked = [own.chosen for own in per_stack]
    everywhere = (key for key in asked if all(key in _keys(own) for own in per_stack))
    chosen = next(everywhere, asked[0] if asked else "")
    every = tuple((title, tuple(options.items())) for title, options in choices.items())
    return Grids(chosen, every, tuple(_under(chosen, r) for r in measured))


def _keys(stack_grid: Grid) -> set[str]:
    return {key for _, options in stack_grid.choices for key, _ in options}


def grid(results: StackResults) -> Grid:
    """Return the heads of one stack under the metric that the stack shows first."""
    offered = _offered(results)
    first = next((m for name in FIRST for m, _ in offered if m.id == name), offered[0][0])
    labels = {m.id: x for m, x in offered}[first.id]
    return _under(
        number_key(first, first.headline if first.headline in labels else labels[0]), results
    )


def _offered(results: StackResults) -> list[tuple[HeadMetric, tuple[str, ...]]]:
    offered = [(m, tuple(_labels(results, m))) for m in results.metrics]
    return [(metric, labels) for metric, labels in offered if labels]


def _under(chosen: str, results: StackResults) -> Grid:
    """Return the heads of one stack under a metric."""
    stack, offered = results.stack, _offered(results)
    named = {number_key(metric, x): (metric, x) for metric, labels in offered for x in labels}
    cells_of = stack.n_heads * len(stack.attention_layers)
    choice = _choice(results, *named[chosen]) if chosen in named else _absent(cells_of)
    heads = tuple(range(stack.n_heads))
    cells = iter(zip(choice["texts"], choice["steps"], strict=True))
    rows = tuple(
        (layer, tuple(_cell(HeadName(stack.name, layer, head), *next(cells)) for head in heads))
        for layer in stack.attention_layers
    )
    return Grid(
        stack=stack.name,
        chosen=chosen,
        choices=tuple(
            (
                metric.title,
                tuple((number_key(metric, x), label_name(x) or metric.title) for x in labels),
            )
            for metric, labels in offered
        ),
        caption=choice["caption"],
        low=choice["low"],
        high=choice["high"],
        ink=choice["ink"],
        heads=heads,
        rows=rows,
    )


def _cell(head: HeadName, text: str, step: int) -> GridCell:
    return GridCell(head_name(head), head_page(head), text, step)


def grid_data(results: StackResults) -> dict[str, Any]:
    """Return every choice of a grid: caption, and colours and texts of the cells, row by row."""
    return {
        number_key(metric, label): _choice(results, metric, label)
        for metric in results.metrics
        for label in _labels(results, metric)
    }


def map_data(
    results: Mapping[str, StackResults], data: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the small map of all heads that every page opens, without the data of `grid_data`.

    Args:
        data: `grid_data` of each stack.

    Returns:
        ``stacks``: name, title, layers, number of heads, names and addresses of all heads, row by
        row; ``choices`` and ``chosen`` as in `Grids`; ``first``: data of ``chosen`` by stack.
    """
    all_grids = grids(results.values())
    first = {each.stack: data[each.stack].get(all_grids.chosen) for each in all_grids.each}
    return {
        "stacks": [_place(each) for each in all_grids.each],
        "choices": [[title, [*map(list, options)]] for title, options in all_grids.choices],
        "chosen": all_grids.chosen,
        "first": {stack: value for stack, value in first.items() if value},
    }


def _place(stack_grid: Grid) -> list[Any]:
    cells = [cell for _, row in stack_grid.rows for cell in row]
    layers = [layer for layer, _ in stack_grid.rows]
    names, addresses = [cell.name for cell in cells], [cell.href for cell in cells]
    return [stack_grid.stack, stack_grid.title, layers, len(stack_grid.heads), names, addresses]


def number_key(metric: HeadMetric, label: str) -> str:
    """Return the key of a number in addresses and scripts."""
    return f"{metric.id}/{label}"


def offered_labels(metric: HeadMetric) -> Sequence[str]:
    """Return the labels that readers choose from; none for a metric that is drawn as a profile."""
    if metric.chart is ChartKind.PROFILE:
        return ()
    return (metric.headline,) if metric.chart is ChartKind.DISTANCES else metric.listed


def _labels(results: StackResults, metric: HeadMetric) -> list[str]:
    """Return the labels of a metric for which a stack has numbers."""
    view = results.view(metric)
    return [label for label in offered_labels(metric) if results.has_value(metric.id, view, label)]


def _choice(results: StackResults, metric: HeadMetric, label: str) -> dict[str, Any]:
    view = results.view(metric)
    numbers = results.heads(metric.id, view, label)
    layers = list(results.stack.attention_layers)
    values = numbers.value[layers]
    ends = domain(values, metric.limits)
    share = is_share(metric)
    unit = " (%)" if share else f" ({metric.unit})" if metric.unit else ""
    about = f": {label_name(label)}" if label else ""
    return {
        "caption": f"{metric.title}{about}{unit}, {VIEWS[view]}",
        "low": number(ends[0], share=share),
        "high": number(ends[1], share=share),
        "ink": "d" if ends[0] < 0 else "c",
        "steps": [_step(value, ends) for value in values.ravel()],
        "texts": [short(value, share=share) for value in values.ravel()],
    }


def _absent(cells: int) -> dict[str, Any]:
    """Return the caption and the empty cells of a metric that a stack lacks."""
    texts = {"caption": NOT_MEASURED, "low": "", "high": "", "ink": "c"}
    return texts | {"steps": [NO_STEP] * cells, "texts": [MISSING] * cells}


def _step(value: float, ends: tuple[float, float]) -> int:
    step = colour_step(float(value), ends)
    return NO_STEP if step is None else step


def short(value: float, *, share: bool) -> str:
    """Return a value for a small cell: shares in whole per cent, but never 0 or 100 by rounding."""
    if np.isnan(value):
        return MISSING
    if not share:
        return number(value).replace("\u202f", "") if abs(value) < 9.95 else f"{value:,.1f}"
    if 0 < value < 0.005:
        return "<1"
    return percent(value).partition(".")[0] if 0.995 <= value < 1 else f"{100 * value:.0f}"
