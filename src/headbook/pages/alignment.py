"""The page of cross-attention as an alignment of target and source."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import numpy as np

from headbook.analysis.accumulators import Estimate
from headbook.analysis.intervals import MIN_EFFECTIVE
from headbook.charts import images
from headbook.charts.theme import rgba_ramp
from headbook.metrics import all_metrics, ids
from headbook.pages.parts.page import TemplatePage
from headbook.pages.parts.table import MarkedText, NumberCell, PageTable, Row, words_cell
from headbook.report.alignment import (
    ALIGNMENTS,
    NO_SOURCE,
    Alignments,
    Links,
    alignments,
    f1,
    links,
)
from headbook.report.results import StackResults
from headbook.report.wording import (
    VIEWS,
    capital,
    count_text,
    sentence_page,
    shortened,
    stored_weight,
    visible,
)
from headbook.results.formats import head_name, head_page, interval_text, number
from headbook.results.sentence import head_link, metric_link
from headbook.schema import HeadKey, HeadName, SinkView, heads_of
from headbook.study.sentence_data import UINT8_STEPS, StoredSentence
from headbook.study.tables import row_of_head

MOST_TOKENS = 32  # tokens of a text in pictures
LINE = 17  # units from one token to the next
MAX_TOKEN_LETTERS = 16  # letters of a token in a picture
WIDTH = 8  # units that a letter takes at most, in most scripts
REACH, GAP = 70, 12  # units between the two texts, and around them
PIXELS = 120  # largest width of a map; its rows are beside the names of their tokens
COLOURS = 64  # colours of a map, few since each picture has its own palette


@dataclass(frozen=True)
class AlignmentLine:
    """A line from a target token to its strongest source token.

    Attributes:
        source, target: heights at which the line begins and ends.
        width: width in proportion to the weight, in units of the picture.
        note: the tokens and the weight in words.
    """

    source: float
    target: float
    width: float
    note: str


@dataclass(frozen=True)
class DrawnAlignment:
    """The alignment of a sentence by one head: source and target side by side, and the map.

    Attributes:
        name, href: the head and its page.
        view: the sentence's page with this head open.
        note: description of the picture, also for readers who cannot see it.
        left, right, height: units of the picture to the left and right of the lines' beginning, and
            from top to bottom.
        sources, targets: names of the tokens.
        strokes: the links.
        image: map of the head as an image address, rows are target tokens; ``width`` by ``tall``
            pixels.
        most: largest weight of the map, which has the strongest colour.
    """

    name: str
    href: str
    view: str
    note: str
    left: int
    right: int
    height: int
    sources: tuple[tuple[float, str], ...]
    targets: tuple[tuple[float, str], ...]
    strokes: tuple[AlignmentLine, ...]
    image: str
    width: int
    tall: int
    most: str


@dataclass(frozen=True)
class AlignedSentence:
    """A sentence with its alignments by several heads.

    Attributes:
        name, href: the sentence and its page.
        heads: the first heads of the table.
        table: links in words: a target token, and its source by each head.
        cut: tokens of the longer text that pictures and table leave out.
    """

    name: str
    href: str
    heads: tuple[DrawnAlignment, ...]
    table: PageTable
    cut: int


def aligned_sentence(
    results: StackResults, sentence: StoredSentence, heads: Sequence[HeadName]
) -> AlignedSentence | None:
    """Return the alignments of a sentence by some heads; None if the sentence has no links."""
    made = links(results, sentence)
    if made is None:
        return None
    sources, targets = _names(results, sentence, made)
    longest = max(len(made.sources), len(made.targets))
    return AlignedSentence(
        name=f"{capital(results.study.manifest.text_noun)} {sentence.number}",
        href=sentence_page(sentence.number),
        heads=tuple(_drawn(results, sentence, made, h) for h in heads),
        table=PageTable(
            ("Target", *map(head_name, heads)),
            tuple(
                Row(
                    words_cell(name, foreign=True),
                    tuple(words_cell(_label(made, h, row, sources), foreign=True) for h in heads),
                )
                for row, name in enumerate(targets)
            ),
            "Source with the largest weight for each target token.",
            "numbers linked",
        ),
        cut=max(0, longest - MOST_TOKENS),
    )


def _names(
    results: StackResults, sentence: StoredSentence, made: Links
) -> tuple[list[str], list[str]]:
    """Return the first source and target tokens between which links are drawn."""
    sides = (results.stack.keys, made.sources), (results.stack.queries, made.targets)
    sources, targets = (
        [visible(sentence.texts[side].pieces[i]) for i in places[:MOST_TOKENS]]
        for side, places in sides
    )
    return sources, targets


def _label(made: Links, head: HeadName, row: int, sources: Sequence[str]) -> str:
    """Return the strongest source of a target token with its weight."""
    position = int(made.best[head.layer, head.head, row])
    if position == NO_SOURCE:
        return "none"
    name = sources[position] if position < len(sources) else "a later token"
    return f"{name} {stored_weight(int(made.weight[head.layer, head.head, row]))}"


def _drawn(
    results: StackResults, sentence: StoredSentence, made: Links, head: HeadName
) -> DrawnAlignment:
    sources, targets = _names(results, sentence, made)
    maps = results.study.sentence_data.maps[results.stack.name, sentence.index]
    rows, columns = made.targets[:MOST_TOKENS], made.sources[:MOST_TOKENS]
    cells = maps[head.layer, head.head][np.ix_(rows, columns)]
    most = max(int(cells.max()), 1)
    labels = [tuple(_labels(names)) for names in (sources, targets)]
    left, right = (max(WIDTH * len(text) for _, text in each) for each in labels)
    return DrawnAlignment(
        name=head_name(head),
        href=head_page(head),
        view=f"{sentence_page(sentence.number)}#at={results.stack.name}&heads={head.layer}.{head.head}",
        note=f"Links of {head_name(head)} in sentence {sentence.number}, source on the left, "
        "target on the right; the table below has them in words.",
        left=left + GAP,
        right=right + GAP + REACH,
        height=LINE * max(map(len, labels)) + 6,
        sources=labels[0],
        targets=labels[1],
        strokes=tuple(_strokes(made, head, sources, targets)),
        image=images.map_preview(
            (cells / most * (COLOURS - 1)).astype(np.uint8), rgba_ramp(COLOURS)
        ),
        width=min(LINE, PIXELS // len(columns)) * len(columns),
        tall=LINE * len(rows),
        most=stored_weight(most),
    )


def _labels(names: Sequence[str]) -> Iterator[tuple[float, str]]:
    for row, name in enumerate(names):
        yield LINE * (row + 0.5), shortened(name, MAX_TOKEN_LETTERS)


def _strokes(
    made: Links, head: HeadName, sources: Sequence[str], targets: Sequence[str]
) -> Iterator[AlignmentLine]:
    for row, name in enumerate(targets):
        position = int(made.best[head.layer, head.head, row])
        if position == NO_SOURCE or position >= len(sources):
            continue
        steps = int(made.weight[head.layer, head.head, row])
        weight = steps / UINT8_STEPS
        note = f"“{name}” attends to “{sources[position]}”: {stored_weight(steps)}"
        yield AlignmentLine(
            LINE * (position + 0.5), LINE * (row + 0.5), round(0.5 + 4 * weight, 2), note
        )


PEAKED = (ids.CONFIDENCE, ids.RELATIVE_ENTROPY)  # metrics of how peaked rows are
GOLD = ("AER", "precision", "recall", "F1")  # columns beside gold alignments
MOST_ROWS = 100  # heads of the table
MOST_HEADS, MOST_SENTENCES = 3, 3
MOST_LISTED, MAX_ENTRY_LETTERS = 200, 60  # sentences in the list, letters of each


@dataclass(frozen=True, kw_only=True)
class AlignmentPage(TemplatePage):
    """The page of alignments by cross-attention.

    Attributes:
        behind: number of sentences behind the alignments, in words.
        gold: number of sentences with gold alignments of words.
        table: a head that chooses every source token equally often, then heads, those with the
            fewest errors first, or else the most monotone.
        sentences: the first sentences, drawn.
        listed: number, address at the first heads, and beginning of the sentences that have a page,
            or of the first of them.
        more: number of sentences that ``listed`` leaves out.
        choices: heads with which pages of sentences can open: in words, and as in addresses.
    """

    template: ClassVar[str] = "alignment.html"
    styles = ("plots",)
    scripts = ("alignment",)
    behind: str
    gold: int
    table: PageTable
    sentences: tuple[AlignedSentence, ...]
    listed: tuple[tuple[int, str, str], ...]
    more: int
    choices: tuple[tuple[str, str], ...]


def _crossing(results: Mapping[str, StackResults]) -> tuple[StackResults, Alignments] | None:
    """Return cross-attention with its alignments; None if the study has none."""
    crossing = next((result for result in results.values() if result.stack.crosses), None)
    found = crossing.cached(alignments) if crossing else None
    return None if crossing is None or found is None else (crossing, found)


def has_alignment(results: Mapping[str, StackResults]) -> bool:
    """Whether a study has cross-attention with alignments for a page."""
    return _crossing(results) is not None


def alignment_page(results: Mapping[str, StackResults]) -> AlignmentPage:
    """Return the page of cross-attention."""
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
        behind=count_text(found.sentences, "sentence"),
        gold=int(found.error.sentences.max()) if found.error else 0,
        table=_table(crossing, found, order),
        sentences=tuple(islice((each for each in drawn if each), MOST_SENTENCES)),
        listed=tuple(_listed(crossing, s, choices[0][1]) for s in chosen[:MOST_LISTED]),
        more=max(0, len(chosen) - MOST_LISTED),
        choices=choices,
    )


def _choices(order: Sequence[HeadName]) -> Iterator[tuple[str, str]]:
    """Yield the first heads of the table together, then each head of the table."""
    places = [f"{head.layer}.{head.head}" for head in order[:MOST_ROWS]]
    yield f"the first {min(MOST_HEADS, len(order))} of the table", ",".join(places[:MOST_HEADS])
    yield from ((head_name(head), place) for head, place in zip(order, places, strict=False))


def _listed(results: StackResults, sentence: StoredSentence, heads: str) -> tuple[int, str, str]:
    return (
        sentence.number,
        f"{sentence_page(sentence.number)}#at={results.stack.name}&heads={heads}",
        shortened(sentence.texts[results.stack.keys].text, MAX_ENTRY_LETTERS),
    )


def _order(results: StackResults, found: Alignments) -> list[HeadName]:
    """Sort heads by errors, the fewest first, or else by monotony; heads without a number last."""
    key = found.error.value if found.error else -found.monotone.value
    return sorted(
        heads_of(results.stack), key=lambda h: np.nan_to_num(key[h.layer, h.head], nan=math.inf)
    )


def _peaked(results: StackResults) -> Iterator[tuple[str, SinkView]]:
    """Yield the metrics of how peaked rows are, among keys that are not special."""
    for name in PEAKED:
        if results.has_value(name, SinkView.RENORM, ""):
            yield name, SinkView.RENORM


def _table(results: StackResults, found: Alignments, order: Sequence[HeadName]) -> PageTable:
    peaked = (
        words_cell(
            metric_link(name, all_metrics()[name].title), " ", MarkedText(VIEWS[view], "small")
        )
        for name, view in _peaked(results)
    )
    columns = (*peaked, "Monotone", "Diagonal", "Same form", *(GOLD if found.error else ()))
    which = "fewest errors" if found.error else "most monotone links"
    more = f"; left out: {len(order) - MOST_ROWS} more" if len(order) > MOST_ROWS else ""
    even = Row("every source equally often (baseline)", tuple(_even(results, found, order[0])))
    rows = (_row(results, found, head) for head in order[:MOST_ROWS])
    caption = f"Heads with the {which} first{more}."
    return PageTable(("Head", *columns), (even, *rows), caption, "numbers aligned")


def _row(results: StackResults, found: Alignments, head: HeadName) -> Row:
    cell = head.layer, head.head
    cells = [
        NumberCell.of(results.heads(name, view, "").at(*cell), all_metrics()[name]).with_row(
            "heads", row_of_head(head, HeadKey(name, view, ""))
        )
        for name, view in _peaked(results)
    ]
    measured = {
        "monotone": _cell(found.monotone.at(*cell), share=False),
        "diagonal": _cell(found.diagonal.at(*cell)),
        "same_form": _cell(found.copied.at(*cell)),
    }
    if found.error and found.precision and found.recall:
        precision, recall = found.precision.at(*cell), found.recall.at(*cell)
        mean = number(f1(precision.value, recall.value), share=True)
        measured |= {"aer": _cell(found.error.at(*cell)), "precision": _cell(precision)}
        measured |= {"recall": _cell(recall), "f1": NumberCell(mean, "", "", too_few=False)}
    cells += [_linked(each, head, measure) for measure, each in measured.items()]
    return Row(head_link(head), tuple(cells))


def _linked(cell: NumberCell, head: HeadName, measure: str) -> NumberCell:
    """Return a cell that leads to the row of a head's measure."""
    return cell.with_row(ALIGNMENTS.name, (*head._asdict().items(), ("measure", measure)))


def _even(results: StackResults, found: Alignments, head: HeadName) -> Iterator[NumberCell | None]:
    """Yield the numbers of a head that chooses every source token equally often.

    Metrics other than those of alignments have uniform attention on their own pages.

    Args:
        head: head whose rows the numbers link to; any head will do.
    """
    yield from (None for _ in _peaked(results))
    yield None
    yield _linked(_cell(found.even_diagonal.at()), head, "diagonal")
    yield _linked(_cell(found.even_copied.at()), head, "same_form")
    yield from (None for _ in range(4 if found.error else 0))


def _cell(value: Estimate, *, share: bool = True) -> NumberCell:
    """Return a number with its interval; of correlations each sentence is one observation."""
    unit = "observations" if share else "sentences with a correlation"
    return NumberCell(
        number(value.value, share=share),
        interval_text(value.low, value.high, share=share),
        f"{value.sentences:,} sentences, {value.events:,.0f} {unit}",
        too_few=share and 0 < value.effective < MIN_EFFECTIVE,
    )
