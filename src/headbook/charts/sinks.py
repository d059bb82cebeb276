"""Charts about sink heads: what they give to the sink and get from it, and what changes without."""

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd

from headbook.charts.plots import (
    MAX_LINKED_MARKS,
    Plot,
    PlotCurve,
    PlotMark,
    Scale,
    end_labels,
    grid,
    mark,
    percent,
    text,
    value_axis,
)
from headbook.report.ablation import effect_unit, unit_factor
from headbook.report.facts.sinks import (
    SINK,
    SINK_OUTPUT,
    group_row,
    rows_together,
    single_rows,
    sink_heads,
    sink_threshold,
)
from headbook.report.results import StackResults
from headbook.results.formats import head_name, interval_text, number
from headbook.results.formats import percent as share_text
from headbook.results.number import RowAddress
from headbook.schema import HeadName, Replacement
from headbook.study.ablation import effect_tests
from headbook.study.ablation.effect_tests import ATTRIBUTION
from headbook.study.ablation.results import AblationResults
from headbook.study.ablation_tables import EFFECT, ESTIMATED, EXACT

SINK_HEIGHT = 380  # pixels
MIN_BAR = 0.35  # width of the bar of a head without a link, in per cent of the plot
MAX_NAMED_HEADS = 80  # heads of a stack up to which the chart names the first of a layer
PAGE_WIDTH = 1240  # pixels of a plot on a wide page, by which names are placed
MAX_NOTE_PLACE = 70  # per cent of the plot beyond which the note stands on the left of its head
HeadRow = Mapping[Hashable, Any]  # a row of `sink_rows`
HeadMark = tuple[float, HeadRow]  # place in per cent of the plot, and the row of a head


def sink_rows(results: StackResults) -> pd.DataFrame:
    """Return attention to the sink and its part of the output, a row for each head of a stack.

    Heads are in the order of layers, and of a layer those with most attention first.
    """
    attention = results.heads(*SINK)
    uniform = results.uniform(*SINK).value
    layer, head = np.nonzero(~np.isnan(attention.value))
    frame = pd.DataFrame({"stack": results.stack.name, "layer": layer, "head": head})
    measured = {"attention": attention}
    if results.has_value(*SINK_OUTPUT):
        measured["output"] = results.heads(*SINK_OUTPUT)
    for name, numbers in measured.items():
        frame[name] = numbers.value[layer, head]
        frame[f"{name}_low"], frame[f"{name}_high"] = (
            numbers.low[layer, head], numbers.high[layer, head],
        )  # fmt: skip
    frame["uniform"] = uniform[layer]
    frame["threshold"] = [sink_threshold(value) for value in uniform[layer]]
    sinks = {*sink_heads(results)}
    places = zip(layer.tolist(), head.tolist(), strict=True)
    frame["sink_head"] = [place in sinks for place in places]
    order = ["layer", "attention", "head"]
    return frame.sort_values(order, ascending=[True, False, True], ignore_index=True)


def sink_plot(results: StackResults, name: str, caption: str) -> Plot:
    """Draw attention to the sink beside its part of the output, for all heads of a stack.

    Each head is a pair of marks: two links, or one if there are many heads. Of more than
    `MAX_LINKED_MARKS` heads, none is a link.
    """
    rows = sink_rows(results)
    layers = results.stack.attention_layers
    largest = float(rows[["attention", "threshold"]].max().max())
    scale = Scale(0, min(1.0, largest + 0.08), SINK_HEIGHT, top=22, bottom=30)
    ticks = [(tick, f"{100 * tick:.0f} %") for tick in np.arange(0, scale.high, 0.25)]
    width = 100 / len(layers)
    step = width / results.stack.n_heads
    behind, heads = [*grid(scale, [tick for tick, _ in ticks])], list[HeadMark]()
    marks, linked = list[str | PlotMark](), len(rows) <= MAX_LINKED_MARKS
    for index, layer in enumerate(layers):
        of_layer = rows[rows["layer"] == layer].to_dict("records")
        behind += _layer_frame(of_layer, index, layer, width, scale)
        heads += zip(_places(len(of_layer), index, width), of_layer, strict=True)
    if linked:
        apart = 2 * len(rows) <= MAX_LINKED_MARKS
        for x, row in heads:
            marks += _pair(results, x, row, scale, step, apart=apart)
        marks.append(_note(max(heads, key=lambda head: head[1]["attention"]), scale))
    if len(rows) <= MAX_NAMED_HEADS:
        marks += _names(heads, scale)
    return Plot(
        name=name,
        caption=caption,
        height=SINK_HEIGHT,
        curves=() if linked else tuple(_small_pairs(heads, scale, step)),
        behind=tuple(behind),
        marks=tuple(marks),
        axis=value_axis(scale, ticks),
        labels=_keys(rows)
        + _line_labels(heads[-1][1], scale)
        + text("layer", "10", SINK_HEIGHT - 6),
        label_width=100,
        rows=rows,
    )


def _places(amount: int, index: int, width: float) -> list[float]:
    """Return the places of the heads of a layer, in per cent of the plot."""
    margin = min(1.6, 0.1 * width)
    return [
        index * width + margin + (width - 2 * margin) * (n + 0.5) / amount for n in range(amount)
    ]


def _layer_frame(
    of_layer: Sequence[HeadRow], index: int, layer: int, width: float, scale: Scale
) -> Iterator[str]:
    """Yield the name of a layer, its border, and the lines of sink heads and uniform attention."""
    left, right = index * width, (index + 1) * width
    if index:
        yield (f'<line class="gl" x1="{percent(left)}" x2="{percent(left)}" '
               f'y1="{scale.top - 8:.1f}" y2="{scale.height - scale.bottom:.1f}"/>')  # fmt: skip
    yield text(str(layer), percent((left + right) / 2), scale.height - 6, "mid b")
    for style, column in (("ax", "threshold"), ("bl", "uniform")):
        value = of_layer[0][column] if of_layer else math.nan
        if not math.isnan(value):
            y = f'y1="{scale(value):.1f}" y2="{scale(value):.1f}"'
            yield f'<line class="{style}" x1="{percent(left)}" x2="{percent(right)}" {y}/>'


def _pair(
    results: StackResults, x: float, row: HeadRow, scale: Scale, step: float, *, apart: bool
) -> Iterator[PlotMark]:
    """Yield the two marks of a head, as two links or as one.

    Args:
        step: distance of heads in per cent.
        apart: whether the part of the output is a link of its own.
    """
    place, y = (row["layer"], row["head"]), scale(row["attention"])
    name = head_name(HeadName(results.stack.name, *place))
    style = f"c-{'model' if row['sink_head'] else 'baseline'}"
    radius = round(min(4.4, 0.45 * PAGE_WIDTH * step / 100), 1)
    circle = mark("model", x, y, hollow=not row["sink_head"], radius=radius)
    output = row.get("output", math.nan)
    bar = ""
    if not math.isnan(output):
        ends = f'y1="{y:.1f}" y2="{scale(output):.1f}"'
        circle = f'<line class="ld" x1="{percent(x)}" x2="{percent(x)}" {ends}/>{circle}'
        bar = _bar(x, scale(output), min(0.5, 0.45 * step))
    if bar and apart:
        label = f"{name}: {share_text(output)} of its output"
        row_of_bar = results.number(SINK_OUTPUT, *place).row
        yield PlotMark(bar, style, row_of_bar, label, x, scale(output))
        bar = ""
    label = f"{name}: {share_text(row['attention'])} of its attention"
    yield PlotMark(circle + bar, style, results.number(SINK, *place).row, label, x, y)


def _bar(x: float, y: float, half: float = 0.5) -> str:
    """Return the mark of what the sink contributes; ``half`` its width, in per cent of the plot."""
    ends = f'x1="{percent(x - half)}" x2="{percent(x + half)}" y1="{y:.1f}" y2="{y:.1f}"'
    return f'<line class="st" stroke-width="3" {ends}/>'


def _small_pairs(heads: Sequence[HeadMark], scale: Scale, step: float) -> Iterator[PlotCurve]:
    """Yield the marks of all heads without links; ``step`` the distance of heads in per cent."""
    for is_sink, colour in ((False, "c-baseline"), (True, "c-model")):
        drawn = [(x, row) for x, row in heads if row["sink_head"] == is_sink]
        bars = [(x, scale(row["output"])) for x, row in drawn
                if not math.isnan(row.get("output", math.nan))]  # fmt: skip
        dots = [(x, scale(row["attention"])) for x, row in drawn]
        yield PlotCurve(tuple(bars), f"st bars {colour}", dash=max(0.9 * step, MIN_BAR))
        yield PlotCurve(tuple(dots), f"st dots {colour}", dash=0)


def _names(heads: Sequence[HeadMark], scale: Scale) -> Iterator[str]:
    """Yield the name of the head of each layer with most attention, above its mark."""
    for _, of_layer in groupby(heads, key=lambda head: head[1]["layer"]):
        x, row = next(of_layer)
        yield text(f"H{row['head']}", percent(x), scale(row["attention"]) - 9, "mid s")


def _note(head: HeadMark, scale: Scale) -> str:
    """Return the two numbers of a head, beside its upper mark."""
    x, row = head
    style, shift = ("end b halo at-page", -12) if x > MAX_NOTE_PLACE else ("b halo at-page", 13)
    output = row.get("output", math.nan)
    words = f"{share_text(row['attention'])} of its attention"
    words += "" if math.isnan(output) else f", {share_text(output)} of its output"
    return text(words, percent(x), scale(row["attention"]) + 4, style, shift)


def _keys(rows: pd.DataFrame) -> str:
    """Return what the two kinds of marks stand for, above all data."""
    bar = text("▬ output", "10", 28, "s") if "output" in rows else ""
    return text("○ attention", "10", 12, "s") + bar


def _line_labels(row: HeadRow, scale: Scale) -> str:
    """Return the names of the two lines, beside their ends in the last layer."""
    parts = []
    if not math.isnan(row["threshold"]):
        y = scale(row["threshold"])
        parts.append(text("“sink head”", "10", y - 1, "b s"))
        parts.append(text(f"from {share_text(row['threshold'])}", "10", y + 14))
    y = scale(row["uniform"])
    return "".join([*parts, text("uniform", "10", y - 1), text("attention", "10", y + 14)])


CHANGE_HEIGHT = 340  # pixels
MAX_HEADS = 30  # heads that the chart shows, those of the largest changes
MAX_UPRIGHT_NAMES = 20  # names that run upwards below the chart in a narrow window
MAX_IN_ONE_ROW = 10  # names that fit into one row below the chart
MAX_DECADES = 6  # powers of ten that the chart shows at most
TOGETHER = "all"  # in place of a head, in the rows of all sink heads at once
CHANGES = {"change": Replacement.MEAN, "sink_masked": Replacement.WITHOUT_SINK}


def change_rows(results: StackResults) -> pd.DataFrame:
    """Return what changes without sink heads, in the unit of pages, the largest change first.

    Columns ``stack, heads, layer, head`` and, for `CHANGES`, the value, its interval and its
    method, ``exact`` or ``estimated``. The first row is that of all sink heads together, if they
    were replaced together.
    """
    ablation = results.study.corpus_sums.ablation
    assert ablation is not None
    target, factor = effect_tests.ranked_target(ablation), unit_factor(ablation)
    rows: list[dict[str, Any]] = []
    if group := rows_together(results):
        row: dict[str, Any] = {"heads": TOGETHER, "layer": math.nan, "head": math.nan}
        for name, replacement in CHANGES.items():
            row |= _change(name, group.get(replacement), EXACT, factor)
        rows.append(row)
    singles: list[dict[str, Any]] = []
    for (layer, head), numbers in single_rows(results).items():
        row = {"heads": f"L{layer}·H{head}", "layer": layer, "head": head}
        for name, replacement in CHANGES.items():
            exact = numbers.get((EFFECT, replacement, target))
            estimate = numbers.get((ATTRIBUTION, replacement, target))
            method = EXACT if exact else ESTIMATED
            row |= _change(name, exact or estimate, method, factor)
        if not math.isnan(row["change"]):
            singles.append(row)
    singles.sort(key=lambda row: -row["change"])
    frame = pd.DataFrame([*rows, *singles[:MAX_HEADS]])
    frame.insert(0, "stack", results.stack.name)
    return frame


def _change(name: str, row: Mapping[str, Any] | None, method: str, factor: float) -> dict[str, Any]:
    """Return the value, interval and method of one replacement; NaN if it was not made."""
    value, low, high = (
        (row[column] * factor for column in ("value", "low", "high")) if row else (math.nan,) * 3
    )
    return {name: value, f"{name}_low": low, f"{name}_high": high, f"{name}_method": method}


def change_plot(results: StackResults, name: str, caption: str) -> Plot:
    """Draw the change without each sink head above the change with the sink masked in the head."""
    ablation = results.study.corpus_sums.ablation
    assert ablation is not None
    rows = change_rows(results)
    target = effect_tests.ranked_target(ablation)
    margin = effect_tests.equivalence_margin(ablation, target) * unit_factor(ablation)
    values = rows[[*CHANGES]].to_numpy(float)
    largest = float(np.nanmax([*rows["change_high"], *values.ravel(), margin]))
    top = math.ceil(math.log10(largest)) if largest > 0 else 0
    smallest = min(values[values > 0], default=10.0**top)
    bottom = max(min(math.floor(math.log10(smallest)), top - 1), top - MAX_DECADES)
    scale = Scale(10.0**bottom, 10.0**top, CHANGE_HEIGHT, top=40, bottom=40, log=True)
    ticks = [(10.0**power, f"{10.0**power:g}") for power in range(bottom, top + 1)]
    behind: list[str] = []
    for tick, _ in ticks:
        y = f'y1="{scale(tick):.1f}" y2="{scale(tick):.1f}"'
        behind.append(f'<line class="gl" x1="0" x2="100%" {y}/>')
    if not math.isnan(margin):
        y = f'y1="{scale(margin):.1f}" y2="{scale(margin):.1f}"'
        behind.append(f'<line class="bl" x1="0" x2="100%" {y}/>')
    together = rows["heads"].iloc[0] == TOGETHER
    step = 100 / (len(rows) + together)
    marks: list[str | PlotMark] = []
    if together:
        x = percent(1.5 * step)
        behind.append(f'<line class="gl" x1="{x}" x2="{x}" y1="40" y2="{CHANGE_HEIGHT - 40}"/>')
    for index, row in enumerate(rows.to_dict("records")):
        x = step * (index + 0.5 + (together and index > 0))
        marks += _change_marks(results, ablation, row, x, scale)
        down = 12 if len(rows) <= MAX_IN_ONE_ROW or index % 2 else 26
        marks.append(text(row["heads"], percent(x), CHANGE_HEIGHT - down, "mid s at-page"))
        if index % math.ceil(len(rows) / MAX_UPRIGHT_NAMES) == 0:
            marks.append(_upright(row["heads"], x))
    unit = text(f"change, {effect_unit(ablation)}", "0", 16)
    return Plot(
        name=name, caption=caption, height=CHANGE_HEIGHT, behind=tuple(behind), marks=tuple(marks),
        axis=value_axis(scale, ticks) + unit, axis_width=60,
        labels=_change_labels(rows, margin, scale), label_width=160, rows=rows,
    )  # fmt: skip


def _upright(words: str, x: float) -> str:
    """Return a name that runs upwards below the chart, in a window that is too narrow for rows."""
    return (
        f'<svg class="at-phone" x="{percent(x)}" y="{CHANGE_HEIGHT - 2}" overflow="visible">'
        f'<g transform="rotate(-90)">{text(words, "0", 4, "s")}</g></svg>'
    )


def _change_marks(
    results: StackResults, ablation: AblationResults, row: Mapping[Any, Any], x: float, scale: Scale
) -> Iterator[str | PlotMark]:
    """Yield both changes of a head, or of all together, each with a link to its row."""
    target = effect_tests.ranked_target(ablation)
    ends = [scale(row[name]) for name in CHANGES if not math.isnan(row[name])]
    yield (f'<line class="ld" x1="{percent(x)}" x2="{percent(x)}" y1="{min(ends):.1f}" '
           f'y2="{max(ends):.1f}"/>')  # fmt: skip
    for name, replacement in CHANGES.items():
        value, low, high = row[name], row[f"{name}_low"], row[f"{name}_high"]
        if math.isnan(value):
            continue
        kind, y, is_exact = "special", scale(value), row[f"{name}_method"] == EXACT
        words = "with only the sink masked in"
        if name == "change":
            kind, words = "model", "without"
        who = "all sink heads together"
        if row["heads"] != TOGETHER:
            who = head_name(HeadName(results.stack.name, int(row["layer"]), int(row["head"])))
        label = (f"Change {words} {who}: {number(value)} {effect_unit(ablation)} "
                 f"{interval_text(low, high) if is_exact else '(estimated)'}")  # fmt: skip
        if not math.isnan(low):
            yield (f'<line class="iv" x1="{percent(x)}" x2="{percent(x)}" y1="{scale(low):.1f}" '
                   f'y2="{scale(high):.1f}"/>')  # fmt: skip
        shape = mark(kind, x, y, hollow=not is_exact, radius=5 if kind == "model" else 4.4)
        href = _change_row(results, row, replacement, target, is_exact=is_exact)
        yield PlotMark(shape, f"c-{kind}", href, label, x, y)


def _change_row(
    results: StackResults, row: Mapping[Any, Any], replacement: str, target: str, *, is_exact: bool
) -> RowAddress:
    """Return the row of the number of a mark."""
    if row["heads"] == TOGETHER:
        return group_row(rows_together(results)[replacement])
    columns = (
        ("stack", results.stack.name), ("layer", int(row["layer"])), ("head", int(row["head"])),
        ("metric", EFFECT if is_exact else ATTRIBUTION), ("replacement", str(replacement)),
        ("target", target), ("label", ""),
    )  # fmt: skip
    return RowAddress("importance", columns)


def _change_labels(rows: pd.DataFrame, margin: float, scale: Scale) -> str:
    """Return what the two kinds of marks and the line of the margin stand for."""
    ends: list[tuple[float, str]] = []

    def add(y: float, style: str, *lines: str) -> None:
        for index, words in enumerate(lines):
            ends.append((y + 16 * index, text(words, "10", 0, style).replace('y="0.0"', 'y="{y}"')))

    change, masked = rows["change"].median(), rows["sink_masked"].median()
    methods = {*rows["change_method"]}
    keys = {EXACT: "● measured", ESTIMATED: "○ estimated"}
    key = [words for method, words in keys.items() if method in methods]
    add(scale(change) + 8, "b", "the whole head")
    if not math.isnan(margin):
        add(scale(margin) - 8, "s", "a change counts", "from here on")
    if not math.isnan(masked):
        add(scale(masked) - 8, "lb c-special", "only the sink", "masked")
    above = "".join(text(words, "10", 12 + 16 * n, "s") for n, words in enumerate(key))
    return above + end_labels(ends, scale, strokes=False)
