"""The page of all heads: every headline of each head as a small line."""

from dataclasses import dataclass
from typing import ClassVar

from headbook.charts import Drawing
from headbook.comparison.film_steps import FilmColumn
from headbook.pages.film.parts import HEADS, DrawnFilm, measure_page
from headbook.pages.parts.page import Page, StackSection
from headbook.report.findings.finding import Link
from headbook.report.wording import head_file, head_name
from headbook.schema import AttentionStack, HeadName, heads_of

MOST = 6_000  # small lines of the page


@dataclass(frozen=True)
class FilmHead:
    """A head.

    Attributes:
        id, name: of its row.
        first, last: its type at the first and last step.
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
    rows: tuple[FilmHead, ...]


@dataclass(frozen=True, kw_only=True)
class FilmHeadsPage(Page):
    """All heads.

    Attributes:
        ends: first and last step.
        sections: by stack.
    """

    template: ClassVar[str] = "film/filmheads.html"
    styles = ("film",)
    contents = False
    ends: tuple[str, str]
    sections: tuple[HeadsSection, ...]


def filmheads_page(reel: DrawnFilm) -> FilmHeadsPage:
    """Return the page of all heads; with many heads it has the first headlines alone."""
    stacks = reel.film.stacks
    heads = sum(len(heads_of(stack)) for stack in stacks)
    return FilmHeadsPage(
        path=HEADS,
        title="All heads over steps",
        description="Every head with its numbers over the steps of the training.",
        ends=(reel.at(0), reel.at(-1)),
        sections=tuple(_section(reel, stack, max(MOST // heads, 1)) for stack in stacks),
    )


def _section(reel: DrawnFilm, stack: AttentionStack, most: int) -> HeadsSection:
    columns = reel.film.columns(stack.name)[:most]
    return HeadsSection(
        stack=stack.name,
        columns=tuple(Link(column.name, measure_page(column)) for column in columns),
        rows=tuple(_head(reel, columns, head) for head in heads_of(stack)),
    )


def _head(reel: DrawnFilm, columns: tuple[FilmColumn, ...], head: HeadName) -> FilmHead:
    place, frames = (head.layer, head.head), reel.film.frames
    first, last = (
        "–" if found is None else found.name
        for found in (each.stacks[head.stack].types.get(place) for each in (frames[0], frames[-1]))
    )
    return FilmHead(
        head_file(head),
        head_name(head),
        first,
        last,
        tuple((reel.spark(head.stack, c, place), reel.last(head.stack, c, place)) for c in columns),
    )
