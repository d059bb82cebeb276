"""The page of cross-attention as an alignment of target and source."""

from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np

from headbook.analysis.arrays import Floats
from headbook.charts import AttentionLine, Drawing, attention_lines
from headbook.metrics import all_metrics, ids
from headbook.pages.parts.blocks import (
    Block,
    Cell,
    Columns,
    Details,
    Group,
    Lead,
    Page,
    Picture,
    Symbols,
    Table,
    Text,
    blocks,
    row,
)
from headbook.report.alignment import (
    AER,
    ALIGNMENTS,
    DIAGONAL,
    F1,
    MONOTONE,
    PRECISION,
    RECALL,
    SAME_FORM,
    Alignments,
    alignments,
    f1,
    linked_sentences,
)
from headbook.report.facts.language.alignment import (
    WORDS,
    address,
    aligned_heads,
    alignment_number,
    better_row,
    row_leaders,
)
from headbook.report.results import StackResults
from headbook.report.wording import VIEWS, capital, count_text, sentence_page, visible
from headbook.results.formats import head_name, metric_page
from headbook.results.number import SHARE, Number
from headbook.results.sentence import Link, Marked, Sentence, say
from headbook.schema import HeadKey, HeadName, SinkView, heads_of
from headbook.study.sentence_data import UINT8_STEPS, StoredSentence
from headbook.text.aligned_words import NO_SOURCE, AlignmentRow, word_attention

MOST_WORDS = 32  # words of a text in pictures
MOST_HEADS, MOST_ALL = 12, 100  # heads of the first table, and of that of all numbers
MOST_SENTENCES = 3
PEAKED = (ids.CONFIDENCE, ids.RELATIVE_ENTROPY)  # metrics of how peaked rows are
NAMES = {
    AER: "AER", PRECISION: "precision", RECALL: "recall", F1: "F1", SAME_FORM: "same form",
    MONOTONE: "monotone", DIAGONAL: "diagonal",
}  # fmt: skip
CAPTION = (
    "Shares of target words, with 95 % intervals. One half of the sentences chooses the word by "
    "which a head aligns better. Lines: a sentence with this head open."
)
DATA = Link("Data", f"data.html#{ALIGNMENTS.name}")
SHORT = {AlignmentRow.WRITTEN: "the word written", AlignmentRow.READ: "the word read"}
Results = Mapping[str, StackResults]
ByRow = Mapping[AlignmentRow, Alignments]


def _crossing(results: Results) -> StackResults | None:
    """Return cross-attention if the study has alignments of it."""
    crossing = (r for r in results.values() if r.stack.crosses and r.cached(alignments))
    return next(crossing, None)


def has_alignment(results: Results) -> bool:
    """Whether a study has cross-attention with alignments for a page."""
    return _crossing(results) is not None


def alignment_page(results: Results) -> Page:
    """Return the page of cross-attention."""
    crossing = _crossing(results)
    assert crossing is not None
    by_row, order = crossing.cached(alignments), _order(crossing)
    drawn = islice(linked_sentences(crossing), MOST_SENTENCES)
    everything = Details("All numbers of heads", (_all_numbers(crossing, order),), "alignments")
    return Page(
        path="alignment.html",
        topic="Cross-attention",
        title="Which heads align source and target?",
        description="Source words with the largest weights from the target words of "
        f"{crossing.study.manifest.model.name}, head by head, by the word that is read and by the "
        "word that is written.",
        answer=crossing.cached(aligned_heads).text,
        scope=_scope(by_row),
        blocks=(Lead(blocks=(_table(crossing, order),), caption=CAPTION, data=DATA, id="heads"),),
        closer=blocks(
            Group((everything,), id="numbers", link="all numbers"),
            [_sentence(crossing, sentence) for sentence in drawn],
        ),
        measured=_measured(by_row),
    )  # fmt: skip


def _scope(by_row: ByRow) -> tuple[tuple[str, str], ...]:
    numbers = by_row[AlignmentRow.READ]
    n = count_text(len(numbers.half), "sentence")
    gold = int((numbers.parts[AER][1].max((1, 2)) > 0).sum())
    links = f", gold links of words in {gold:,}" if gold else ""
    return (
        ("Measured on", f"{n} with a page{links}."),
        ("Two rows", "a row of attention belongs to the word that the decoder reads there, and to "
         "the next one, which it is about to write."),
    )  # fmt: skip


def _order(results: StackResults) -> list[HeadName]:
    """Sort heads by the better row: fewest errors first, else most equal forms; unknown ones last.

    Where the half that chooses has no sentence, the better number counts.
    """
    by_row = results.cached(alignments)
    measure = by_row[AlignmentRow.READ].measure

    def rank(head: HeadName) -> float:
        better = better_row(results, head, measure)
        rows = [better] if better else [*AlignmentRow]
        values = [float(by_row[line].estimates[measure].value[head.layer, head.head])
                  for line in rows]  # fmt: skip
        ranks = [value if measure == AER else -value for value in values if not np.isnan(value)]
        return min(ranks, default=np.inf)

    return sorted(heads_of(results.stack), key=rank)


def _number(by_row: ByRow, head: HeadName, line: AlignmentRow, measure: str) -> Number | None:
    numbers = by_row[line]
    if measure in numbers.estimates:
        return alignment_number(numbers, head, line, measure)
    if measure == F1 and PRECISION in numbers.estimates:
        place = head.layer, head.head
        values = (float(numbers.estimates[m].value[place]) for m in (PRECISION, RECALL))
        return Number(f1(*values), SHARE, address(head, line, F1))
    return None


def _measures(by_row: ByRow) -> list[str]:
    """Return the measures that the study has, in the order of columns."""
    known = by_row[AlignmentRow.READ].estimates
    return [m for m in NAMES if m in known or (m == F1 and PRECISION in known)]


def _table(results: StackResults, order: Sequence[HeadName]) -> Table:
    """Return the first heads with error rate and equal forms by both rows."""
    by_row = results.cached(alignments)
    measure = by_row[AlignmentRow.READ].measure
    measures = [m for m in (AER, SAME_FORM) if m in by_row[AlignmentRow.READ].estimates]
    first = next(linked_sentences(results)).number
    rows = []
    for head in order[:MOST_HEADS]:
        better = better_row(results, head, measure)
        cells: list[Cell] = [
            _number(by_row, head, line, measure) for measure in measures for line in SHORT
        ]
        see = Link(f"sentence {first}", f"{sentence_page(first)}#{_state(head, better)}")
        rows.append(row(head, SHORT[better] if better else "–", *cells, see))
    which = "fewest errors" if measure == AER else "most words of the same form"
    return Table(
        row("head", "aligns", *(SHORT[line] for _ in measures for line in SHORT), "lines"),
        tuple(rows),
        f"Heads with the {which} first",
        groups=(("", 1), *((NAMES[measure], len(SHORT)) for measure in measures), ("", 1)),
    )


def _state(head: HeadName, line: AlignmentRow | None) -> str:
    """Return the state of a sentence's page with one head open, by the row of a word."""
    written = "&rows=written" if line is AlignmentRow.WRITTEN else ""
    return f"at={head.stack}{written}&heads={head.layer}.{head.head}"


def _all_numbers(results: StackResults, order: Sequence[HeadName]) -> Table:
    by_row, measures = results.cached(alignments), _measures(results.cached(alignments))
    peaked = [HeadKey(name, SinkView.RENORM, "") for name in PEAKED]
    peaked = [key for key in peaked if results.has_value(*key)]
    titles = [
        say("{name} {view}", name=Link(all_metrics()[key.metric].title, metric_page(key.metric)),
            view=Marked(VIEWS[key.view], "small"))
        for key in peaked
    ]  # fmt: skip
    even: list[Cell] = [_even(by_row, order[0], line, m) for line in SHORT for m in measures]
    rows = [row("equal choice (baseline)", *(None for _ in peaked), *even)]
    rows += [
        row(
            head,
            *(results.number(key, head.layer, head.head) for key in peaked),
            *(_number(by_row, head, line, m) for line in SHORT for m in measures),
        )
        for head in order[:MOST_ALL]
    ]
    more = f"; left out: {len(order) - MOST_ALL} more" if len(order) > MOST_ALL else ""
    names = [NAMES[m] for m in measures]
    rates = ((capital(SHORT[line]), len(measures)) for line in SHORT)
    return Table(
        row("head", *titles, *names, *names), tuple(rows), f"In the order of the first table{more}",
        groups=((("", len(peaked)),) if peaked else ()) + tuple(rates),
    )  # fmt: skip


def _even(by_row: ByRow, head: HeadName, line: AlignmentRow, measure: str) -> Number | None:
    """Return the number of a head that chooses every source word equally often.

    Args:
        head: head whose row holds the number; any head will do.
    """
    even = by_row[line].even.get(measure)
    return Number.of(even, SHARE, address(head, line, measure)) if even else None


def _sentence(results: StackResults, sentence: StoredSentence) -> Group:
    """Return the links of a sentence by the head that leads each row."""
    led = {line: row_leaders(results, line) for line in SHORT}
    chosen = [
        (HeadName(results.stack.name, *leaders.first), line)
        for line, leaders in led.items() if leaders
    ]  # fmt: skip
    pictures = tuple(Picture(_drawing(results, sentence, *each)) for each in chosen)
    words = max(len(sentence.aligned(side).names) for side in sentence.texts)
    cut = f"; the first {MOST_WORDS} words" if words > MOST_WORDS else ""
    name = f"{results.study.manifest.text_noun} {sentence.number}"
    title = say("{name}", name=Link(capital(name), sentence_page(sentence.number)))
    links = Details(f"The links of {name} as a table", (_links(results, sentence, chosen),))
    return Group(
        (Columns(pictures), links), title, f"the head of the answer for each row{cut}",
        id=f"sentence-{sentence.number}",
    )  # fmt: skip


def _best(
    results: StackResults, sentence: StoredSentence, head: HeadName, line: AlignmentRow
) -> list[int]:
    """Return the strongest source of each target word by a row of a head."""
    sources = results.study.sentence_data.sources[results.stack.name, sentence.index]
    best: list[int] = sources[[*AlignmentRow].index(line), head.layer, head.head].tolist()
    return best


def _weights(
    results: StackResults, sentence: StoredSentence, head: HeadName, line: AlignmentRow
) -> Floats:
    """Return attention from target to source words. *Shape:* ``(target, source)``."""
    stack = results.stack
    maps = results.study.sentence_data.maps[stack.name, sentence.index]
    target, source = sentence.aligned(stack.queries), sentence.aligned(stack.keys)
    steps = maps[head.layer, head.head][None] / UINT8_STEPS
    of_words: Floats = word_attention(steps, target, source, line)[0]
    return of_words


def _drawing(
    results: StackResults, sentence: StoredSentence, head: HeadName, line: AlignmentRow
) -> Drawing:
    stack = results.stack
    targets, sources = (
        [*map(visible, sentence.aligned(side).names[:MOST_WORDS])]
        for side in (stack.queries, stack.keys)
    )
    weights = _weights(results, sentence, head, line)
    best = _best(results, sentence, head, line)
    lines = [
        AttentionLine(target, source, float(weights[target, source]))
        for target, source in enumerate(best[:MOST_WORDS])
        if source != NO_SOURCE and source < MOST_WORDS
    ]
    caption = (
        f"{head_name(head)}, {WORDS[line]}: target words on the left, each with its strongest "
        "source."
    )
    name = f"alignment-{sentence.number}-{line}"
    return attention_lines(name, caption, targets, sources, lines, about="weight")


def _links(
    results: StackResults,
    sentence: StoredSentence,
    chosen: Sequence[tuple[HeadName, AlignmentRow]],
) -> Table:
    stack = results.stack
    targets, sources = (sentence.aligned(side).names for side in (stack.queries, stack.keys))
    of_heads = [
        (_best(results, sentence, *each), _weights(results, sentence, *each)) for each in chosen
    ]
    rows = tuple(
        row(
            Marked(name, "bdi"),
            *(_link(sources, best[n], weights[n]) for best, weights in of_heads),
        )
        for n, name in enumerate(targets)
    )
    titles = (say("{head}, {line}", head=head, line=SHORT[line]) for head, line in chosen)
    return Table(row("target", *titles), rows, label="Source with the largest weight")


def _link(
    sources: Sequence[str], best: int, weights: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]"
) -> Sentence | str:
    if best == NO_SOURCE:
        return "none"
    share = f"{100 * weights[best]:.0f} %"
    return say("{source} {share}", source=Marked(sources[best], "bdi"), share=share)


def _measured(by_row: ByRow) -> tuple[Block, ...]:
    shifted = say(
        "the row whose input is the target word ({chen}: “shifted” alignment)",
        chen=Link("Chen et al. 2020", "https://arxiv.org/abs/2004.14837"),
    )
    gold = say(
        "alignment error rate ({och}) against gold links of words (column “alignment”); precision "
        "counts possible links, recall sure ones; F1 is their harmonic mean",
        och=Link("Och & Ney 2003", "https://doi.org/10.1162/089120103321337421"),
    )
    pairs: list[tuple[str, str | Sentence]] = [
        ("the word read", shifted),
        ("the word written", "the row before, which predicts the target word; for the first word "
         "that of the start token or of the language code"),
        ("link", "from a target word to the source word with its largest weight, the first of "
         "equals; rows of the tokens of a word are averaged, keys summed; special tokens are no "
         "words. Words are those of the gold links, separated by white space, else those of the "
         "annotation"),
        ("same form", "share of target words whose source has the same letters, case and accents "
         "aside"),
        ("monotone", "Kendall’s τ-b of positions of target words and their sources, mean over "
         "sentences; 1: the same order; −1: the opposite order; –: one source for all words"),
        ("diagonal", "share of target words whose source has the same relative position"),
    ]  # fmt: skip
    if AER in by_row[AlignmentRow.READ].estimates:
        pairs.append(("AER", gold))
    note = (
        "Numbers rest on the sentences with a page. Heads are ranked on the same sentences, so "
        "that the first value is likely to be worse on others. Alignment does not show that a head "
        "decides what is predicted."
    )
    return Symbols(tuple(pairs)), Text(note)
