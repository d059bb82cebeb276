"""All heads in one list: what each looks at and finds, to sort, filter and compare."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

import pandas as pd

from headbook.charts import Figure
from headbook.charts.vega.scatter import head_scatter
from headbook.pages.heads.headfacts import Fact, HeadFacts, head_facts
from headbook.pages.heads.headvalues import Column, Results, axes, columns, first_columns
from headbook.pages.heads.questions import Question, questions
from headbook.pages.parts.across import across
from headbook.pages.parts.cells import Cell
from headbook.pages.parts.page import Page
from headbook.pages.parts.table import DASH, Mark, Row, Table, Words, words
from headbook.report.findings.finding import head_link
from headbook.report.numbers.results import StackResults, study_of
from headbook.report.wording import STACKS, counted

FACTS = ("Type", "Most attention to", "Best relation")
MOST_ROWS = 150  # of the page; its script and the files have all heads


@dataclass(frozen=True, kw_only=True)
class HeadsPage(Page):
    """The list of heads.

    Attributes:
        questions: what readers come with, and which head answers.
        table: heads, layer by layer: some numbers, then type, what receives most attention, and
            the best relation; ``total`` heads are in the script's data.
        total: number of heads.
        figures: a picture of two columns for each stack.
        data: script with what the page's own script needs at once.
        values: folder with a script for each metric.
    """

    template: ClassVar[str] = "heads.html"
    questions: tuple[Question, ...]
    table: Table
    total: int
    figures: tuple[Figure, ...]
    data: str = "data/headlist.js"
    values: str = "data/values/"


@across("heads.html", lambda results: bool(columns(results)))
def heads_page(results: Results) -> HeadsPage:
    """The list of heads."""
    offered = columns(results)
    first = first_columns(offered)
    heads = [*chain.from_iterable(head_facts(r) for r in results.values())]
    model = study_of(results).manifest.model.name
    return HeadsPage(
        path="heads.html",
        title="Heads",
        description=f"All {counted(len(heads), 'head')} of {model}: type, attention, "
        "relations and all metrics, to sort and filter.",
        questions=tuple(questions(results, offered, first)),
        table=Table(
            ("Head", *(words(c.title, " ", Mark(c.unit, "small")) for c in first), *FACTS),
            tuple(_row(results, facts, first) for facts in heads[:MOST_ROWS]),
            style="numbers finding",
        ),
        total=len(heads),
        figures=tuple(_figures(results, axes(offered))),
    )


def _row(results: Results, facts: HeadFacts, first: Sequence[Column]) -> Row:
    cells = (Cell.of(column.at(results, facts.head), column.metric) for column in first)
    about = map(_fact, (facts.label, facts.looks, facts.relation))
    return Row(head_link(facts.head), (*cells, *about))


def _fact(fact: Fact) -> Words:
    behind = (" ", Mark(fact.behind, "small")) if fact.behind else ()
    return words(fact.word, *behind) if fact.word else DASH


def _figures(results: Results, pair: Sequence[Column]) -> Iterator[Figure]:
    for name, r in results.items():
        if pair and all(name in column.views for column in pair):
            yield _figure(r, pair)


def _figure(results: StackResults, pair: Sequence[Column]) -> Figure:
    stack = results.stack
    facts = head_facts(results)
    numbers = [column.numbers(results).value for column in pair]
    rows = pd.DataFrame({"head": [f.name for f in facts], "layer": [f.head.layer for f in facts]})
    for place, values in zip("xy", numbers, strict=True):
        rows[place] = values[[*stack.attention_layers]].ravel()
    titles = [f"{column.title} ({column.unit})" for column in pair]
    caption = (
        f"Each point is a head, colour: layer. {pair[0].title} and {pair[1].title}. "
        f"{STACKS[stack.name].capitalize()}."
    )
    rows = rows.dropna(ignore_index=True)
    return head_scatter(
        f"heads-{stack.name}", caption, rows, titles=titles, layers=stack.attention_layers
    )
