"""Cross-attention: how the heads of an encoder-decoder align target and source tokens."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import numpy as np

from headbook.analysis.intervals import FEW
from headbook.metrics import all_metrics, ids
from headbook.pages.alignment.aligned import AlignedSentence, aligned_sentence
from headbook.pages.parts.across import across
from headbook.pages.parts.cells import Cell
from headbook.pages.parts.page import Page
from headbook.pages.parts.table import Mark, Row, Table, words
from headbook.report.findings.finding import head_link, metric_link
from headbook.report.numbers.alignment import Alignments, alignments, f1
from headbook.report.numbers.results import Estimate, StackResults
from headbook.report.wording import (
    VIEWS,
    counted,
    head_name,
    interval,
    number,
    sentence_page,
    shortened,
)
from headbook.study.sentencedata import HeadName, StoredSentence, heads_of
from headbook.terms import View

PEAKED = (ids.CONFIDENCE, ids.RELATIVE_ENTROPY)  # metrics of how peaked rows are
GOLD = ("AER", "precision", "recall", "F1")  # columns beside gold alignments
MOST_ROWS = 100  # heads of the table
MOST_HEADS, MOST_SENTENCES = 3, 3
MOST_LISTED, LETTERS = 200, 60  # sentences that are linked, and what is shown of each


@dataclass(frozen=True)
class Listed:
    """A sentence in the list of all: its page at the first heads, and how it begins."""

    number: int
    href: str
    text: str


@dataclass(frozen=True, kw_only=True)
class AlignmentPage(Page):
    """Alignments of cross-attention.

    Attributes:
        behind: what they rest on, in words.
        gold: in how many sentences alignments of words are known; 0 without any.
        table: a head that chooses every source token equally often, then heads, those with the
            fewest errors first, or else the most monotone.
        sentences: the first sentences, drawn.
        listed: the sentences that have a page, or the first of them.
        more: how many are left out there.
        choices: heads that their pages can open at: in words, and as addresses have them.
    """

    template: ClassVar[str] = "alignment.html"
    behind: str
    gold: int
    table: Table
    sentences: tuple[AlignedSentence, ...]
    listed: tuple[Listed, ...]
    more: int
    choices: tuple[tuple[str, str], ...]


def _crossing(results: Mapping[str, StackResults]) -> tuple[StackResults, Alignments] | None:
    """The stack whose links are known, and these."""
    crossing = next((result for result in results.values() if result.stack.crosses), None)
    found = crossing.once(alignments) if crossing else None
    return None if crossing is None or found is None else (crossing, found)


@across("alignment.html", lambda results: _crossing(results) is not None)
def alignment_page(results: Mapping[str, StackResults]) -> AlignmentPage:
    """The page of cross-attention."""
    known = _crossing(results)
    assert known is not None
    crossing, found = known
    order = _order(crossing, found)
    choices = tuple(_choices(order))
    chosen = crossing.study.sentence_data.listed
    drawn = (aligned_sentence(crossing, sentence, order[:MOST_HEADS]) for sentence in chosen)
    model = crossing.study.manifest.model.name
    return AlignmentPage(
        path="alignment.html",
        title="Cross-attention",
        description=f"Source tokens with the largest weights from the target tokens of {model}, "
        "head by head, and how monotone these alignments are.",
        behind=counted(found.sentences, "sentence"),
        gold=int(found.error.sentences.max()) if found.error else 0,
        table=_table(crossing, found, order),
        sentences=tuple(islice((each for each in drawn if each), MOST_SENTENCES)),
        listed=tuple(_listed(crossing, s, choices[0][1]) for s in chosen[:MOST_LISTED]),
        more=max(0, len(chosen) - MOST_LISTED),
        choices=choices,
    )


def _choices(order: Sequence[HeadName]) -> Iterator[tuple[str, str]]:
    """The first heads of the table together, then each of its heads."""
    places = [f"{head.layer}.{head.head}" for head in order[:MOST_ROWS]]
    yield f"the first {min(MOST_HEADS, len(order))} of the table", ",".join(places[:MOST_HEADS])
    yield from ((head_name(head), place) for head, place in zip(order, places, strict=False))


def _listed(results: StackResults, sentence: StoredSentence, heads: str) -> Listed:
    return Listed(
        sentence.number,
        f"{sentence_page(sentence.number)}#at={results.stack.name}&heads={heads}",
        shortened(sentence.texts[results.stack.keys].text, LETTERS),
    )


def _order(results: StackResults, found: Alignments) -> list[HeadName]:
    """Heads with the fewest errors first, or else the most monotone; without a number last."""
    key = found.error.value if found.error else -found.monotone.value
    return sorted(
        heads_of(results.stack), key=lambda h: np.nan_to_num(key[h.layer, h.head], nan=math.inf)
    )


def _peaked(results: StackResults) -> Iterator[tuple[str, View]]:
    """Metrics of how peaked rows are, among keys that are not special."""
    for name in PEAKED:
        if results.has(name, View.RENORM, ""):
            yield name, View.RENORM


def _table(results: StackResults, found: Alignments, order: Sequence[HeadName]) -> Table:
    peaked = (
        words(metric_link(name, all_metrics()[name].title), " ", Mark(VIEWS[view], "small"))
        for name, view in _peaked(results)
    )
    columns = (*peaked, "Monotone", "Diagonal", "Same form", *(GOLD if found.error else ()))
    which = "fewest errors" if found.error else "most monotone links"
    more = f"; left out: {len(order) - MOST_ROWS} more" if len(order) > MOST_ROWS else ""
    even = Row("every source equally often (baseline)", tuple(_even(results, found)))
    rows = (_row(results, found, head) for head in order[:MOST_ROWS])
    caption = f"Heads with the {which} first{more}."
    return Table(("Head", *columns), (even, *rows), caption, "numbers aligned")


def _row(results: StackResults, found: Alignments, head: HeadName) -> Row:
    cell = head.layer, head.head
    cells = [
        Cell.of(results.heads(name, view, "").at(*cell), all_metrics()[name])
        for name, view in _peaked(results)
    ]
    cells.append(_cell(found.monotone.at(*cell), share=False))
    cells += [_cell(estimates.at(*cell)) for estimates in (found.diagonal, found.copied)]
    if found.error and found.precision and found.recall:
        precision, recall = found.precision.at(*cell), found.recall.at(*cell)
        cells += [_cell(found.error.at(*cell)), _cell(precision), _cell(recall)]
        cells.append(Cell(number(f1(precision.value, recall.value), share=True), "", "", False))
    return Row(head_link(head), tuple(cells))


def _even(results: StackResults, found: Alignments) -> Iterator[Cell | None]:
    """Numbers of even choice; metrics have theirs of uniform attention on their own pages."""
    yield from (None for _ in _peaked(results))
    yield None
    yield _cell(found.even_diagonal.at())
    yield _cell(found.even_copied.at())
    yield from (None for _ in range(4 if found.error else 0))


def _cell(value: Estimate, *, share: bool = True) -> Cell:
    """A number as pages print it; of correlations each sentence is one observation."""
    unit = "observations" if share else "sentences with a correlation"
    return Cell(
        number(value.value, share=share),
        interval(value.low, value.high, share=share),
        f"{value.sentences:,} sentences, {value.events:,.0f} {unit}",
        thin=share and 0 < value.effective < FEW,
    )
