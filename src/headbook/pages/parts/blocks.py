"""The parts that pages are made of; ``templates/blocks.html`` has one macro for each.

A page is a value: `Page.blocks` in order, each a small record. No page has a class, a template or
a style sheet of its own. What stands in a block, and in the cells of a `Table`, may be a text, a
`Number`, a head, a `Link`, a `Sentence` or a picture; `headbook.site.html` prints each of them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from headbook.charts import Drawing, Figure, Plot
from headbook.charts.theme import amount_class
from headbook.metrics.base import Metric
from headbook.pages.parts.page import TemplatePage
from headbook.report.linked_rows import LinkedNumber
from headbook.report.results import StackResults
from headbook.report.wording import STACKS, capital
from headbook.results.formats import MISSING
from headbook.results.number import Number, Printed
from headbook.results.sentence import Link, Marked, Sentence, listed, say
from headbook.schema import HeadName

Words = str | Sentence
MOST_NARROW = 12  # layers of tables that stand side by side
MAX_NARROW_COLUMNS = 14  # columns of a table on half of the page


@dataclass(frozen=True)
class Block:
    """A part of a page, printed by the macro of its name in ``templates/blocks.html``."""

    @property
    def macro(self) -> str:
        """Name of the macro."""
        return type(self).__name__.lower()


@dataclass(frozen=True)
class Text(Block):
    """A paragraph.

    Attributes:
        words: what it says.
        style: ``note`` beside a figure, ``evidence`` below an answer, ``example``, ``hint``,
            ``cut`` between two halves of a list; empty for running text.
    """

    words: Words
    style: str = ""


@dataclass(frozen=True)
class Title(Block):
    """A heading: 2 for a stack or a question, 3 for a part of one."""

    words: Words
    level: int = 3
    note: Words = ""


@dataclass(frozen=True)
class Steps(Block):
    """The steps of the fills of a table or a picture, between two texts."""

    low: str
    fills: tuple[str, ...]
    high: str


@dataclass(frozen=True)
class Caption(Block):
    """Small print below a table or a picture: sentences, and the scale of the fills."""

    parts: tuple[Words | Steps, ...]


class Option(NamedTuple):
    """A label or view that readers may choose.

    Attributes:
        value, name: as in data of scripts, and on pages.
        phrase: name as the beginning of a sentence.
        unit: unit of its numbers; empty for shares and ratios.
        notable: ``high`` or ``low`` for the end of the numbers that is framed; else empty.
    """

    value: str
    name: str
    phrase: str = ""
    unit: str = ""
    notable: str = ""


@dataclass(frozen=True)
class Choices:
    """Choices of readers for a table of all heads, with the data that its script needs.

    Attributes:
        title: title of the numbers.
        share: whether numbers are shares, printed in per cent.
        low, high: ends of the scale of fills.
        labels, views: what may be chosen; of one view there is no choice.
        label, view: the choice that the page shows first.
    """

    title: str
    share: bool
    low: float
    high: float
    labels: tuple[Option, ...]
    views: tuple[Option, ...]
    label: str
    view: str


@dataclass(frozen=True)
class Lead(Block):
    """A figure that answers a question, over the full width, with its caption and its files.

    Attributes:
        figure: a chart, which has files; None if blocks stand in its place.
        caption: by default that of the chart.
        why: an explanation that the page does not test.
        blocks: what stands in the place of the chart, or above it.
        data: link to the numbers of blocks.
        id: fragment of its address; by default the name of the chart.
        drawn: the chart of the numbers that blocks show, of which the page has the files alone.
        choices: what readers may choose for the table in ``blocks``; None without a choice.
    """

    figure: Plot | None = None
    caption: Words = ""
    why: Words = ""
    blocks: tuple[Block, ...] = ()
    data: Link | None = None
    id: str = ""
    drawn: Figure | None = None
    choices: Choices | None = None


@dataclass(frozen=True)
class Question(Block):
    """A further question of a page, with its answer and what shows it.

    Attributes:
        id: fragment of its address.
        title, answer: the question and its answer.
        blocks: what shows the answer.
        keywords: words by which the search finds it, beside those of the title.
    """

    id: str
    title: str
    answer: Words
    blocks: tuple[Block, ...] = ()
    keywords: str = ""


@dataclass(frozen=True)
class Group(Block):
    """Blocks that belong together, with a heading.

    Attributes:
        blocks: the blocks.
        title, note: the heading, and small words beside it.
        id: fragment of its address.
        link: words of the link to it at the top of "Look closer"; empty without one.
        folded: whether a reader unfolds it.
    """

    blocks: tuple[Block, ...]
    title: Words = ""
    note: Words = ""
    id: str = ""
    link: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Details(Block):
    """Blocks that a reader unfolds.

    Attributes:
        title: what stands there before.
        blocks: the blocks.
        file: name of the table with the numbers, if a script loads the blocks on demand.
        id: fragment of the address of the blocks.
        open: whether they are unfolded from the start.
    """

    title: Words
    blocks: tuple[Block, ...]
    file: str = ""
    id: str = ""
    open: bool = False


@dataclass(frozen=True)
class Columns(Block):
    """Blocks side by side, at most ``most`` in a row; narrow windows stack them."""

    blocks: tuple[Block, ...]
    most: int = 2


@dataclass(frozen=True)
class Small(Block):
    """Many small tables side by side, as many as fit."""

    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Bullets(Block):
    """Sentences as a list, numbered if a picture refers to their numbers."""

    items: tuple[Words, ...]
    numbered: bool = False


@dataclass(frozen=True)
class Symbols(Block):
    """Terms with their meaning.

    Attributes:
        pairs: each term with its meaning.
        of_file: whether the terms are columns of a file.
    """

    pairs: tuple[tuple[Words, Words], ...]
    of_file: bool = False


class Definition(NamedTuple):
    """A term with a sentence, its formula in LaTeX, and its source.

    Attributes:
        id: id of a metric; else empty.
        href: address of a page on the term; empty without one.
    """

    title: str
    summary: str
    formula: str
    reference: str
    id: str = ""
    href: str = ""

    @classmethod
    def of(cls, metric: Metric, href: str = "") -> "Definition":
        """Return the definition of a metric."""
        return cls(metric.title, metric.summary, metric.formula, metric.reference, metric.id, href)


@dataclass(frozen=True)
class Definitions(Block):
    """Metrics and other terms with definition, formula, source and id.

    Attributes:
        metrics: the metrics and terms.
        whole: whether the text of metrics is printed, not its first line alone.
    """

    metrics: tuple[Metric | Definition, ...]
    whole: bool = False


@dataclass(frozen=True)
class Finder(Block):
    """A list in sections that follows what a reader types.

    Attributes:
        noun: what is listed, in the plural; also the id of the list.
        title: words before the field.
        hint: words in the empty field.
        sections: titles with their entries: each a link, and what is said of it.
    """

    noun: str
    title: str
    hint: str
    sections: tuple[tuple[str, tuple[tuple[Link | Words, ...], ...]], ...]


@dataclass(frozen=True)
class Code(Block):
    """Text to copy as it is, such as an entry of BibTeX."""

    text: str


@dataclass(frozen=True)
class Charts(Block):
    """Charts side by side with their files."""

    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Picture(Block):
    """A picture with its caption; it scrolls sideways where it is wide."""

    drawing: Drawing


@dataclass(frozen=True)
class Heat:
    """A number of a table on a fill that shows its amount.

    Attributes:
        number: the number, alone or in a sentence, or the text of a missing one.
        fill: class of the fill, as from `headbook.charts.theme.amount_class`, and further classes.
        note: words for a tooltip.
    """

    number: Number | Printed | Sentence | str
    fill: str
    note: str = ""


def heat_of(number: Number, top: float, format_name: str = "") -> Heat:
    """Return a number on a fill from 0 to ``top``; a dash if it is not known."""
    if not number.known:
        return Heat(MISSING, "q0")
    return Heat(number.printed(format_name), amount_class(number.value, 0, top))


class SmallMap(NamedTuple):
    """The mean map of a head inside a sentence.

    Attributes:
        style: classes of the map, as from `headbook.pages.parts.atlas.map_style`.
        size: pixels of a side.
    """

    style: str
    size: int = 33
    text: str = ""


# A whole number stands at the right; None does not apply.
Cell = (
    str | int | Number | Printed | LinkedNumber | HeadName | Link | Sentence | Marked | Heat
    | SmallMap | Drawing | None
)  # fmt: skip
Row = tuple[Cell, ...]


def row(*cells: Cell) -> Row:
    """Return a row of a table; its first cell is its heading."""
    return cells


@dataclass(frozen=True)
class Table(Block):
    """A table; the first cell of each row is its heading.

    Attributes:
        columns: titles of the columns; an integer is the number of a layer.
        rows: a cell for each column.
        caption, note: words above the table; without them it needs a ``label``.
        style: ``numbers``, ``heat`` for fills, ``mini`` for small fills; and further classes.
        groups: titles above those of all columns but the first, and how many each spans.
        grey: indices of rows that step back.
        label: caption for screen readers alone.
    """

    columns: Row
    rows: tuple[Row, ...]
    caption: Words = ""
    note: Words = ""
    style: str = "numbers"
    groups: tuple[tuple[Words, int], ...] = ()
    grey: frozenset[int] = frozenset()
    label: str = ""


@dataclass(frozen=True)
class HeadMap:
    """A head with its mean map, or with the map of a sentence.

    Attributes:
        style: classes of the map, as from `headbook.pages.parts.atlas.map_style`.
        words: what stands below its name.
        picture: address of the picture of a sentence's map, in place of the mean map.
        title: name of the head's function; empty for maps without the colour of a family.
    """

    head: HeadName
    style: str
    words: Words = ""
    picture: str = ""
    title: str = ""


@dataclass(frozen=True)
class Maps(Block):
    """Heads with their maps, each a link to the head, as many in a row as fit."""

    maps: tuple[HeadMap, ...]
    size: int = 60


@dataclass(frozen=True)
class Cards(Block):
    """Groups of heads: what is known of each group, and the maps of its heads."""

    cards: tuple[tuple[Sentence, tuple[HeadMap, ...]], ...]
    size: int = 60


STYLES = ("plots", "maps", "analysis", "blocks", "importance")


@dataclass(frozen=True, kw_only=True)
class Page(TemplatePage):
    """A page that answers a question, which is its title.

    Attributes:
        topic: subject of the page, as the menu calls it.
        answer: one sentence that answers the question.
        scope: what was measured and compared, each a term with a fact.
        blocks: figure and further questions.
        closer: groups below "Look closer"; those with a link are listed there.
        measured: how the numbers are made.
        absent: a sentence for each number that was not measured, with the option that measures it.
        scripts, styles: names of the scripts and style sheets that the page loads.
        contents: whether the page has a table of contents.
    """

    template: ClassVar[str] = "page.html"
    topic: Words
    answer: Words
    scope: tuple[tuple[str, Words], ...] = ()
    blocks: tuple[Block, ...] = ()
    closer: tuple[Block, ...] = ()
    measured: tuple[Block, ...] = ()
    absent: tuple[str, ...] = ()
    scripts: tuple[str, ...] = field(default=())  # type: ignore[misc]
    styles: tuple[str, ...] = field(default=STYLES)  # type: ignore[misc]
    contents: bool = field(default=False)  # type: ignore[misc]

    @property
    def questions(self) -> Iterator[Question]:
        """Further questions, for the search."""
        return (block for block in self.blocks if isinstance(block, Question))

    @property
    def links(self) -> Iterator[Group]:
        """Groups to which "Look closer" links: those of the first stack."""
        seen: set[str] = set()
        for block in self.closer:
            for group in block.blocks if isinstance(block, Columns) else (block,):
                if isinstance(group, Group) and group.link and group.link not in seen:
                    seen.add(group.link)
                    yield group


def figure_name(results: StackResults, page: str, part: str) -> str:
    """Return the name of a figure; figures of one stack have no stack in their names."""
    stack = results.stack.name
    return f"{page}-{part}" if stack == "self" else f"{page}-{stack}-{part}"


def links_below(path: str, questions: Sequence[Question], *others: Link) -> Text | None:
    """Return links to the further questions of a page, and other links, for its first screen."""
    links = [Link(question.title, f"{path}#{question.id}") for question in questions]
    if not (links or others):
        return None
    return Text(say("Below: {links}", links=listed((*links, *others), " · ", " · ")), "asks")


def by_stack(
    stacks: Iterable[StackResults],
    blocks_of: Callable[[StackResults], Iterable[Block]],
    names: Mapping[str, StackResults],
) -> tuple[Block, ...]:
    """Return the blocks of every stack, below its name if the model has several.

    Args:
        stacks: results of each stack.
        blocks_of: makes the blocks of a stack.
        names: all stacks of the model by name.
    """
    in_order: list[Block] = []
    for results in stacks:
        of_stack = [*blocks_of(results)]
        if of_stack and len(names) > 1:
            in_order.append(Title(capital(STACKS[results.stack.name]), 2))
        in_order += of_stack
    return tuple(in_order)


def blocks(*parts: Block | Iterable[Block] | None) -> tuple[Block, ...]:
    """Return blocks, and those of lists of blocks, in order, without what is missing."""
    in_order: list[Block] = []
    for part in parts:
        if isinstance(part, Block):
            in_order.append(part)
        elif part is not None:
            in_order += part
    return tuple(in_order)
