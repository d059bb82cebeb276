"""Alignment of target and source words by cross-attention, and its table.

Alignments are computed over the sentences with a page, from the strongest source of each target
word, which is found before weights are rounded to be stored. Two rows of attention belong to a
target word: those that read its tokens, the "shifted" alignment of Chen et al. (2020),
arXiv:2004.14837, and those before, which predict them. Rows of a word are averaged, keys summed.
Special tokens are no words, the decoder's start token and language codes among them; their rows
count only where they predict a word.
"""

import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headbook.analysis.accumulators import SELECTION, Estimate, Estimates, RatioSums
from headbook.analysis.arrays import Floats, Ints, divide
from headbook.report.results import StackResults, stack_results
from headbook.schema import HeadName, heads_of
from headbook.study.sentence_data import StoredSentence
from headbook.study.study import Study
from headbook.study.tables import ESTIMATE_COLUMNS, HEAD_COLUMNS, TableSpec
from headbook.text.aligned_words import GOLD, NO_SOURCE, AlignmentRow

WORD_PAIR = re.compile(r"(\d+)([-?p])(\d+)")  # ? and p: a possible link, not a sure one
AER, SAME_FORM, MONOTONE, DIAGONAL = "aer", "same_form", "monotone", "diagonal"
PRECISION, RECALL, F1 = "precision", "recall", "f1"
LIMITS = {  # of estimates by measure
    MONOTONE: (-1.0, 1.0), DIAGONAL: (0.0, 1.0), SAME_FORM: (0.0, 1.0), AER: (0.0, 1.0),
    PRECISION: (0.0, 1.0), RECALL: (0.0, 1.0),
}  # fmt: skip


class Gold(NamedTuple):
    """Gold links of words, as pairs of source and target word counted from 0.

    Attributes:
        sure: links marked as sure.
        possible: all links, sure or possible.
    """

    sure: frozenset[tuple[int, int]]
    possible: frozenset[tuple[int, int]]


Part = tuple[Floats, Floats]  # numerators and denominators, of a sentence or of all


@dataclass(frozen=True, eq=False)
class Alignments:
    """Alignment of words by every head, by one of the rows that belong to a word.

    Attributes:
        parts: numerators and denominators of sentences by measure; a sentence without the measure
            has denominators of 0. *Shape:* ``(sentence, layer, head)`` each.
        half: split of each sentence. *Shape:* ``(sentence,)``.
        estimates: numbers of all sentences by measure, those against gold links only if a sentence
            has some: ``same_form``, share of target words whose strongest source has the same
            letters except for case and accents; ``diagonal``, share whose strongest source has the
            same relative position; ``monotone``, Kendall's tau-b between target positions and their
            strongest sources, mean over sentences; ``aer``, alignment error rate (Och & Ney 2003);
            ``precision``; ``recall``.
        chosen: values of the selection split by measure. *Shape:* ``(layer, head)``.
        even: numbers if every source word were equally likely, by measure.
    """

    parts: Mapping[str, Part]
    half: Ints
    estimates: Mapping[str, Estimates]
    chosen: Mapping[str, Floats]
    even: Mapping[str, Estimate]

    @property
    def measure(self) -> str:
        """Measure by which heads are compared: error rate with gold links, else equal forms."""
        return AER if AER in self.estimates else SAME_FORM


def linked_sentences(results: StackResults) -> Iterator[StoredSentence]:
    """Yield the sentences with a page that have a target and a source word."""
    data, stack = results.study.sentence_data, results.stack
    for sentence in data.listed:
        sources = data.sources.get((stack.name, sentence.index))
        if sources is not None and sources.size and sentence.aligned(stack.keys).names:
            yield sentence


def alignments(results: StackResults) -> Mapping[AlignmentRow, Alignments]:
    """Return the alignment numbers of one stack by row; empty if no sentence has links."""
    sentences = [*linked_sentences(results)]
    sources = results.study.sentence_data.sources
    half = np.array([sentence.half for sentence in sentences], np.int64)
    by_row = {}
    for place, row in enumerate(AlignmentRow if sentences else ()):
        counts = [
            _counts(results, sentence, sources[results.stack.name, sentence.index][place])
            for sentence in sentences
        ]
        parts = {measure: _stacked([part[measure] for part in counts]) for measure in counts[0]}
        by_row[row] = _alignments(parts, half)
    return by_row


def _stacked(parts: Sequence[Part]) -> Part:
    numerators, denominators = (np.stack(values) for values in zip(*parts, strict=True))
    return numerators, denominators


EVEN = "even "  # before a measure of a head that chooses every source word equally often


def _alignments(parts: Mapping[str, Part], half: Ints) -> Alignments:
    sums = {measure: RatioSums.of(*part, part[1], half) for measure, part in parts.items()}
    known = {measure: each for measure, each in sums.items() if each.total["d"].any()}
    return Alignments(
        parts=parts,
        half=half,
        estimates={m: Estimates.of(known[m], LIMITS[m]) for m in LIMITS if m in known},
        chosen={m: known[m].split(SELECTION).value for m in LIMITS if m in known},
        even={
            m: Estimates.of(known[EVEN + m], LIMITS[m]).at() for m in (DIAGONAL, SAME_FORM)
        },
    )  # fmt: skip


def _counts(results: StackResults, sentence: StoredSentence, best: Ints) -> dict[str, Part]:
    """Return a sentence's numerators and denominators by measure.

    Args:
        best: strongest source of each target word. *Shape:* ``(layer, head, target)``.
    """
    stack = results.stack
    target, source = sentence.aligned(stack.queries), sentence.aligned(stack.keys)
    has_source, words = best != NO_SOURCE, np.arange(best.shape[-1])
    n_linked, total = has_source.sum(-1).astype(float), np.array(float(len(words)))
    same = same_form(target.names, source.names)
    is_copied = same[words, best] & has_source
    is_diagonal = (best == on_diagonal(len(words), len(source.names))) & has_source
    tau = np.stack([kendall(layer) for layer in best])
    counts = {
        SAME_FORM: (is_copied.sum(-1).astype(float), n_linked),
        DIAGONAL: (is_diagonal.sum(-1).astype(float), n_linked),
        MONOTONE: (np.nan_to_num(tau), (~np.isnan(tau)).astype(float)),
        EVEN + SAME_FORM: (same.mean(-1).sum(), total),
        EVEN + DIAGONAL: (total / len(source.names), total),
    }
    gold = gold_of(sentence, results)
    if gold is None:
        nothing = np.zeros(best.shape[:2])
        return counts | dict.fromkeys((AER, PRECISION, RECALL), (nothing, nothing))
    hits = []
    for links in (gold.sure, gold.possible):
        is_gold = np.array([[(s, t) in links for s in source.numbers] for t in target.numbers])
        hits.append((is_gold[words, best] & has_source).sum(-1).astype(float))
    sure, possible = hits
    n_sure = np.full(best.shape[:2], float(len(gold.sure)))
    counts[AER] = n_linked + n_sure - sure - possible, n_linked + n_sure
    counts[PRECISION], counts[RECALL] = (possible, n_linked), (sure, n_sure)
    return counts


def same_form(targets: Sequence[str], sources: Sequence[str]) -> NDArray[np.bool_]:
    """Return the mask of pairs of words with the same letters except for case and accents.

    *Shape:* ``(target, source)``. Words that are nothing but accents match no word.
    """
    target_forms = np.array([folded(name) for name in targets])[:, None]
    source_forms = np.array([folded(name) for name in sources])
    is_same: NDArray[np.bool_] = (target_forms == source_forms) & (target_forms != "")
    return is_same


def folded(text: str) -> str:
    """Return letters without case and accents, as the search of pages folds them."""
    decomposed = unicodedata.normalize("NFD", text.strip())
    return "".join(
        character for character in decomposed if not unicodedata.category(character).startswith("M")
    ).lower()


def on_diagonal(targets: int, sources: int) -> Ints:
    """Return, for each target token, the source token at the same relative position.

    With both texts scaled to one length, that source token covers the middle of the target token.
    """
    return ((2 * np.arange(targets) + 1) * sources // (2 * targets)).astype(np.int64)


def kendall(best: Ints) -> Floats:
    """Compute Kendall's tau-b between target positions and chosen source positions, by head.

    Args:
        best: source of each target; `NO_SOURCE` is left out. *Shape:* ``(head, target)``.

    Returns:
        *Shape:* ``(head,)``; NaN with fewer than two links, or if all sources are equal.
    """
    has_source = best != NO_SOURCE
    first, later = np.triu_indices(best.shape[-1], 1)
    linked = has_source[:, first] & has_source[:, later]
    direction = np.sign(best[:, later] - best[:, first]) * linked
    pairs, untied = linked.sum(-1).astype(float), np.abs(direction).sum(-1).astype(float)
    return divide(direction.sum(-1), np.sqrt(pairs * untied))


def gold_of(sentence: StoredSentence, results: StackResults) -> Gold | None:
    """Return the gold links of a sentence's words; None if there are none that can be used.

    Words are separated by white space, as in files of gold alignments. Sentences whose target the
    model generated, or with a link to a missing word, have no gold links.
    """
    fields = sentence.metadata.get(GOLD, "").split()
    matches = [WORD_PAIR.fullmatch(field) for field in fields]
    target, source = sentence.texts[results.stack.queries], sentence.texts[results.stack.keys]
    if not fields or not all(matches) or target.generated:
        return None
    is_sure_by_pair = {
        (int(match[1]), int(match[3])): match[2] == "-" for match in matches if match
    }
    n_words = len(source.text.split()), len(target.text.split())
    if any(
        source_word >= n_words[0] or target_word >= n_words[1]
        for source_word, target_word in is_sure_by_pair
    ):
        return None
    sure = frozenset(pair for pair, is_sure in is_sure_by_pair.items() if is_sure)
    return Gold(sure, frozenset(is_sure_by_pair))


def f1(precision: float, recall: float) -> float:
    """Return the harmonic mean; NaN if either number is missing, 0 if both are 0."""
    if math.isnan(precision) or math.isnan(recall):
        return math.nan
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


ALIGNMENTS: TableSpec[Study] = TableSpec(
    "alignments",
    "How each head of cross-attention aligns the target and source words of the sentences "
    "that have a page, by both rows that belong to a target word.",
    HEAD_COLUMNS
    | {
        "row": "read: the rows whose input is the target word; written: the rows before, which "
        "predict it",
        "measure": "monotone: Kendall's tau-b; diagonal, same_form: shares of target words; "
        "aer, precision, recall, f1: against gold alignments, where there are any",
    }
    | ESTIMATE_COLUMNS
    | {"uniform": "the same if every source word were chosen equally often; empty without one"},
    lambda study: alignment_table(stack_results(study)),
    optional=True,
)


def alignment_table(results: Mapping[str, StackResults]) -> pd.DataFrame:
    """Return a row for each measure of each cross-attention head and row; empty without any.

    Returns:
        Columns as in ``alignments.csv``; without gold alignments only the measures that need none.
    """
    rows = [
        line
        for result in results.values()
        if result.stack.crosses
        for row, numbers in result.cached(alignments).items()
        for head in heads_of(result.stack)
        for line in _lines(head, row, numbers)
    ]
    return pd.DataFrame(rows, columns=[*ALIGNMENTS.columns])


def _lines(head: HeadName, row: AlignmentRow, numbers: Alignments) -> Iterator[tuple[object, ...]]:
    values = {name: each.at(head.layer, head.head) for name, each in numbers.estimates.items()}
    if PRECISION in values:
        precision, recall = values[PRECISION], values[RECALL]
        mean = f1(precision.value, recall.value)
        values[F1] = Estimate(mean, math.nan, math.nan, precision.sentences, precision.events)
    for name, number in values.items():
        uniform = numbers.even[name].value if name in numbers.even else math.nan
        yield (*head, str(row), name, *number[:5], uniform)
