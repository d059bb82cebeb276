"""The pages of single numbers: every head over all steps, and when each changed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from headbook.analysis.accumulators import Estimate
from headbook.charts import Drawing, Figure
from headbook.charts.checkpoints import MAX_COLOURED_HEADS, head_steps
from headbook.comparison.checkpoint_claims import head_row_link
from headbook.comparison.checkpoint_steps import CheckpointColumn
from headbook.metrics import all_metrics
from headbook.pages.checkpoints.parts import DrawnCheckpoints, HalfRiseText, head_row, measure_page
from headbook.pages.parts.page import StackSection, TemplatePage
from headbook.pages.parts.table import MarkedText, PageTable, Row, WordsCell, words_cell
from headbook.report.results import heads_by_value
from headbook.report.wording import VIEWS, is_share
from headbook.results.formats import head_name, interval_text, number
from headbook.schema import AttentionStack, HeadName, heads_of

MOST_LINES = 200  # of a chart


@dataclass(frozen=True)
class SparkCell:
    """A head in the table of small lines."""

    name: str
    href: str
    picture: Drawing
    last: str
    turn: HalfRiseText


@dataclass(frozen=True)
class MeasureSection(StackSection):
    """One stack.

    Attributes:
        figure: all heads in one chart.
        heads: numbers of the columns.
        rows: layers with their heads.
        table: heads that changed, by half-rise step.
        others: those that did not change clearly.
    """

    figure: Figure
    heads: tuple[int, ...]
    rows: tuple[tuple[int, tuple[SparkCell, ...]], ...]
    table: PageTable
    others: PageTable


@dataclass(frozen=True, kw_only=True)
class MeasurePage(TemplatePage):
    """One number of every head.

    Attributes:
        about: which keys, and of what.
        sections: by stack.
    """

    template: ClassVar[str] = "checkpoints/checkpointmeasure.html"
    styles = ("checkpoints",)
    about: str
    sections: tuple[MeasureSection, ...]


def measure_pages(drawn: DrawnCheckpoints) -> Iterator[MeasurePage]:
    """Yield a page for each headline of any stack."""
    columns: dict[str, dict[str, CheckpointColumn]] = {}
    for stack in drawn.checkpoints.stacks:
        for column in drawn.checkpoints.columns(stack.name):
            columns.setdefault(column.key, {})[stack.name] = column
    stacks = {stack.name: stack for stack in drawn.checkpoints.stacks}
    for by_stack in columns.values():
        first = next(iter(by_stack.values()))
        yield MeasurePage(
            path=measure_page(first),
            title=first.name,
            description=f"{first.name} of every head at every step, and the step at which it "
            "changed.",
            about=_about(drawn, first),
            sections=tuple(
                _section(drawn, stacks[name], column) for name, column in by_stack.items()
            ),
        )


def _about(drawn: DrawnCheckpoints, column: CheckpointColumn) -> str:
    known = all_metrics()[column.metric]
    source = known.reference
    stack = next(
        s.name for s in drawn.checkpoints.stacks if column in drawn.checkpoints.columns(s.name)
    )
    random = drawn.checkpoints.numbers(stack, column)[0].random
    keys = "random sequences, each repeated once" if random else f"keys: {VIEWS[column.view]}"
    return f"{known.title}, {keys}. {source}."


def _section(
    drawn: DrawnCheckpoints, stack: AttentionStack, column: CheckpointColumn
) -> MeasureSection:
    heads = tuple(range(stack.n_heads))
    changed, others = _tables(drawn, stack, column)
    return MeasureSection(
        stack=stack.name,
        figure=_figure(drawn, stack, column),
        heads=heads,
        rows=tuple(
            (layer, tuple(_cell(drawn, stack.name, column, (layer, head)) for head in heads))
            for layer in stack.attention_layers
        ),
        table=changed,
        others=others,
    )


def _cell(
    drawn: DrawnCheckpoints, stack: str, column: CheckpointColumn, place: tuple[int, int]
) -> SparkCell:
    head = HeadName(stack, *place)
    return SparkCell(
        head_name(head),
        head_row(head),
        drawn.spark(stack, column, place),
        drawn.last(stack, column, place),
        drawn.turn(stack, column, place),
    )


def _figure(drawn: DrawnCheckpoints, stack: AttentionStack, column: CheckpointColumn) -> Figure:
    numbers = drawn.checkpoints.numbers(stack.name, column)
    changed = _changed_most(drawn, stack, column)
    rows = [
        (head_name(HeadName(stack.name, *place)), place[0], drawn.checkpoints.step(n),
         round(drawn.axis.places[n], 4), *each.heads.at(*place)[:3])
        for n, each in enumerate(numbers)
        for place in changed
    ]  # fmt: skip
    names = ["head", "layer", "step", "place", "value", "low", "high"]
    highest = [place for place in heads_by_value(numbers[-1].heads.value) if place in changed]
    named = [head_name(HeadName(stack.name, *place)) for place in highest[:MAX_COLOURED_HEADS]]
    total = len(heads_of(stack))
    which = f" The {len(changed)} heads that changed most, of {total:,}." * (len(changed) < total)
    apart = " Step 0 stands apart: a logarithmic axis has no 0." * drawn.axis.apart
    return head_steps(
        f"steps-{column.key}-{stack.name}",
        f"{column.name}: each line is a head, each point a checkpoint. Coloured: the highest at "
        f"the last step.{which}{apart}",
        pd.DataFrame(rows, columns=names).dropna(subset="value"),
        title=column.name,
        axis=drawn.axis,
        share=is_share(all_metrics()[column.metric]),
        named=named,
    )


def _changed_most(
    drawn: DrawnCheckpoints, stack: AttentionStack, column: CheckpointColumn
) -> list[tuple[int, int]]:
    """Return the heads that the chart has, in the order of layers."""
    values = drawn.checkpoints.values(stack.name, column)
    change = np.nan_to_num(np.abs(values[-1] - values[0]))
    places = [(head.layer, head.head) for head in heads_of(stack)]
    return sorted(sorted(places, key=lambda place: -change[place])[:MOST_LINES])


def _tables(
    drawn: DrawnCheckpoints, stack: AttentionStack, column: CheckpointColumn
) -> tuple[PageTable, PageTable]:
    """Heads that rose beyond noise, the earliest first, then those that fell; and the others."""
    places = [(head.layer, head.head) for head in heads_of(stack)]
    turns = {place: drawn.turn(stack.name, column, place) for place in places}
    numbers = drawn.checkpoints.numbers(stack.name, column)
    ends = numbers[0], numbers[-1]

    def rank(place: tuple[int, int]) -> tuple[float, ...]:
        first, last = (float(np.nan_to_num(each.heads.value[place])) for each in ends)
        turn = turns[place].place
        return (2, 0, -last) if turn is None else (last < first, turn, -last)

    rows: tuple[list[Row], list[Row]] = ([], [])
    for place in sorted(places, key=rank):
        cells = (_when(turns[place]), *(_number(column, each.heads.at(*place)) for each in ends))
        still = turns[place].place is None
        rows[still].append(Row(head_row_link(HeadName(stack.name, *place)), cells))
    titles = "Head", "Half-rise step", drawn.at(0).capitalize(), drawn.at(-1).capitalize()
    return PageTable(titles, tuple(rows[0])), PageTable(titles, tuple(rows[1]))


def _when(turn: HalfRiseText) -> WordsCell:
    """Return the cell of a step, with its name and interval."""
    between = f" {turn.between}" if turn.between else ""
    return words_cell(
        turn.text, MarkedText(between, "small"), f" [{turn.ends}]" if turn.ends else ""
    )


def _number(column: CheckpointColumn, value: Estimate) -> WordsCell:
    share = is_share(all_metrics()[column.metric])
    ends = interval_text(value.low, value.high, share=share)
    text = number(value.value, share=share)
    return words_cell(text, MarkedText(f" {ends}" if ends else "", "small"), style="number")
