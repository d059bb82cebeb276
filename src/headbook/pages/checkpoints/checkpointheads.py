"""The page of all heads: every headline of each head as a small line."""

from dataclasses import dataclass
from typing import ClassVar

from headbook.charts import Drawing
from headbook.comparison.checkpoint_steps import CheckpointColumn
from headbook.pages.checkpoints.parts import HEADS, DrawnCheckpoints, measure_page
from headbook.pages.parts.page import StackSection, TemplatePage
from headbook.results.formats import head_file, head_name
from headbook.results.sentence import Link
from headbook.schema import AttentionStack, HeadName, heads_of

MOST = 6_000  # small lines of the page


@dataclass(frozen=True)
class CheckpointHeadRow:
    """A head.

    Attributes:
        id, name: of its row.
        first, last: its function at the first and last step.
        lines: its numbers over steps, with the last value.
    """

    id: str
    name: str
    first: str
    last: str
    lines: tuple[tuple[Drawing, str], ...]


@dataclass(frozen=True)
class HeadsSection(StackSection):
    """The heads of one stack.

    Attributes:
        columns: headlines, which lead to their pages.
        rows: heads.
    """

    columns: tuple[Link, ...]
    rows: tuple[CheckpointHeadRow, ...]


@dataclass(frozen=True, kw_only=True)
class CheckpointHeadsPage(TemplatePage):
    """All heads.

    Attributes:
        ends: first and last step.
        sections: by stack.
    """

    template: ClassVar[str] = "checkpoints/checkpointheads.html"
    styles = ("checkpoints",)
    contents = False
    ends: tuple[str, str]
    sections: tuple[HeadsSection, ...]


def checkpointheads_page(drawn: DrawnCheckpoints) -> CheckpointHeadsPage:
    """Return the page of all heads; with many heads it has the first headlines alone."""
    stacks = drawn.checkpoints.stacks
    heads = sum(len(heads_of(stack)) for stack in stacks)
    return CheckpointHeadsPage(
        path=HEADS,
        title="All heads over steps",
        description="Every head with its numbers over the steps of the training.",
        ends=(drawn.at(0), drawn.at(-1)),
        sections=tuple(_section(drawn, stack, max(MOST // heads, 1)) for stack in stacks),
    )


def _section(drawn: DrawnCheckpoints, stack: AttentionStack, most: int) -> HeadsSection:
    columns = drawn.checkpoints.columns(stack.name)[:most]
    return HeadsSection(
        stack=stack.name,
        columns=tuple(Link(column.name, measure_page(column)) for column in columns),
        rows=tuple(_head(drawn, columns, head) for head in heads_of(stack)),
    )


def _head(
    drawn: DrawnCheckpoints, columns: tuple[CheckpointColumn, ...], head: HeadName
) -> CheckpointHeadRow:
    place, frames = (head.layer, head.head), drawn.checkpoints.frames
    first, last = (frames[step].stacks[head.stack].functions[head].noun for step in (0, -1))
    return CheckpointHeadRow(
        head_file(head),
        head_name(head),
        first,
        last,
        tuple(
            (drawn.spark(head.stack, c, place), drawn.last(head.stack, c, place)) for c in columns
        ),
    )
