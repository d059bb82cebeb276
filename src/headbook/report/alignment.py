"""Alignment of target and source tokens by cross-attention, and its table.

Alignments are computed over the sentences with a page, from the strongest source of each target
token, which is found before weights are rounded to be stored. Special tokens, the decoder's start
token and language codes among them, are neither queries nor keys, as in the views without the sink.
A row belongs to the token that the decoder reads, not to the next token: the "shifted" alignment of
Chen et al. (2020), arXiv:2004.14837.
"""

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headbook.analysis.accumulators import Estimate, Estimates, RatioSums
from headbook.analysis.arrays import Floats, Ints, divide
from headbook.report.results import StackResults, stack_results
from headbook.schema import HeadName, heads_of
from headbook.study.sentence_data import NO_KEY, StoredSentence, StoredText
from headbook.study.study import Study
from headbook.study.tables import ESTIMATE_COLUMNS, HEAD_COLUMNS, TableSpec

GOLD = "alignment"  # the metadata column with word alignments: "0-0 1-2", source first
WORD_PAIR = re.compile(r"(\d+)([-?p])(\d+)")  # ? and p: a possible link, not a sure one
NO_SOURCE, NO_WORD = -1, -1
SHARE, CORRELATION = (0.0, 1.0), (-1.0, 1.0)  # limits of estimates


class Links(NamedTuple):
    """The strongest source of every target token in one sentence.

    Attributes:
        targets, sources: positions of the tokens that count. *Shape:* ``(target,)``, ``(source,)``.
        best: index in ``sources``, the first of equals; `NO_SOURCE` if all weights are 0.
            *Shape:* ``(layer, head, target)``.
        weight: attention to that source in the raw view, in steps of 1/255. *Shape:*
            ``(layer, head, target)``.
    """

    targets: Ints
    sources: Ints
    best: Ints
    weight: NDArray[np.uint8]


class Gold(NamedTuple):
    """Gold links of words, as pairs of source and target word counted from 0.

    Attributes:
        sure: links marked as sure.
        possible: all links, sure or possible.
    """

    sure: frozenset[tuple[int, int]]
    possible: frozenset[tuple[int, int]]


@dataclass(frozen=True, eq=False)
class Alignments:
    """Alignment numbers of the heads of a stack, over the sentences with a page.

    Attributes:
        sentences: number of sentences with a target and a source token that count.
        copied: share of target tokens whose strongest source has the same letters except for case
            and accents. *Shape:* ``(layer, head)``, as of all numbers but the two below.
        diagonal: share of target tokens whose strongest source has the same relative position.
        monotone: Kendall's tau-b between target positions and their strongest sources, mean over
            sentences; sentences with fewer than two links, or with one source, are left out.
        even_copied, even_diagonal: ``copied`` and ``diagonal`` if every source token were equally
            likely. *Shape:* ``()``.
        error: alignment error rate (Och & Ney 2003) against gold alignments of words; None without
            gold alignments.
        precision, recall: precision and recall against gold alignments; None without any.
    """

    sentences: int
    copied: Estimates
    diagonal: Estimates
    monotone: Estimates
    even_copied: Estimates
    even_diagonal: Estimates
    error: Estimates | None
    precision: Estimates | None
    recall: Estimates | None


def links(results: StackResults, sentence: StoredSentence) -> Links | None:
    """Return the links of a sentence; None without its maps, or without tokens that count."""
    stack = results.stack
    name = stack.name, sentence.index
    maps = results.study.sentence_data.maps.get(name)
    queries, keys = sentence.texts[stack.queries], sentence.texts[stack.keys]
    targets, sources = (np.flatnonzero(~np.array(text.special, bool)) for text in (queries, keys))
    if maps is None or not len(targets) or not len(sources):
        return None
    strongest = results.study.sentence_data.strongest[name][:, :, targets]
    weight = np.take_along_axis(maps[:, :, targets], strongest[..., None], -1)[..., 0]
    best = np.where(strongest == NO_KEY, NO_SOURCE, np.searchsorted(sources, strongest))
    return Links(targets, sources, best, weight)


def alignments(results: StackResults) -> Alignments | None:
    """Return the alignment numbers of one stack; None if no sentence has links."""
    texts = results.stack.queries, results.stack.keys
    linked = [*_linked(results)]
    if not linked:
        return None
    counts = [
        _counts(sentence_links, *(sentence.texts[side] for side in texts))
        for sentence, sentence_links in linked
    ]
    copied, diagonal, monotone, even_copied, even_diagonal = zip(*counts, strict=True)
    gold_counts = [
        _alignment_counts(sentence_links, gold, *(sentence.texts[side] for side in texts))
        for sentence, sentence_links in linked
        if (gold := gold_of(sentence, results))
    ]
    gold_numbers: list[Estimates | None] = [
        _numbers(parts, SHARE) for parts in zip(*gold_counts, strict=True)
    ]
    error, precision, recall = gold_numbers or [None] * 3
    return Alignments(
        len(linked),
        _numbers(copied, SHARE),
        _numbers(diagonal, SHARE),
        _numbers(monotone, CORRELATION),
        _numbers(even_copied, SHARE),
        _numbers(even_diagonal, SHARE),
        error,
        precision,
        recall,
    )


def _linked(results: StackResults) -> Iterator[tuple[StoredSentence, Links]]:
    for sentence in results.study.sentence_data.listed:
        sentence_links = links(results, sentence)
        if sentence_links:
            yield sentence, sentence_links


Part = tuple[Floats, Floats]  # a sentence's numerator and denominator


def _numbers(parts: Iterable[Part], limits: tuple[float, float]) -> Estimates:
    """Return ratios of sums over sentences, with intervals clustered by sentence."""
    numerators, denominators = (np.stack(values) for values in zip(*parts, strict=True))
    return Estimates.of(
        RatioSums.of(numerators, denominators, denominators, np.zeros(len(numerators), np.int64)),
        limits,
    )


def _counts(sentence_links: Links, target: StoredText, source: StoredText) -> tuple[Part, ...]:
    """Return a sentence's part in the first five numbers of `Alignments`."""
    has_source = sentence_links.best != NO_SOURCE
    n_linked = has_source.sum(-1).astype(float)
    same = same_form(sentence_links, target, source)
    rows = np.arange(len(sentence_links.targets))
    is_copied = same[rows, sentence_links.best] & has_source
    diagonal = on_diagonal(len(sentence_links.targets), len(sentence_links.sources))
    is_diagonal = (sentence_links.best == diagonal) & has_source
    tau = np.stack([kendall(layer) for layer in sentence_links.best])
    total = np.array(float(len(rows)))
    return (
        (is_copied.sum(-1).astype(float), n_linked),
        (is_diagonal.sum(-1).astype(float), n_linked),
        (np.nan_to_num(tau), (~np.isnan(tau)).astype(float)),
        (same.mean(-1).sum(), total),
        (total / len(sentence_links.sources), total),
    )


def same_form(sentence_links: Links, target: StoredText, source: StoredText) -> NDArray[np.bool_]:
    """Return the mask of pairs with the same letters except for case and accents.

    *Shape:* ``(target, source)``. Tokens that are nothing but accents match no token.
    """
    target_forms = np.array([folded(target.pieces[i]) for i in sentence_links.targets])[:, None]
    source_forms = np.array([folded(source.pieces[i]) for i in sentence_links.sources])
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


def _alignment_counts(
    sentence_links: Links, gold: Gold, target: StoredText, source: StoredText
) -> tuple[Part, Part, Part]:
    """Return error, precision and recall of each head in one sentence.

    *Shape:* ``(layer, head)`` each.

    A head links two words if any token of one word has its strongest source in the other.
    """
    target_words = _words(target)[sentence_links.targets].tolist()
    source_words = _words(source)[sentence_links.sources].tolist()
    shape = sentence_links.best.shape[:2]
    n_predicted, n_hit_sure, n_hit_possible = np.zeros((3, *shape))
    for head in np.ndindex(shape):
        predicted = {
            (source_words[source_index], target_word)
            for source_index, target_word in zip(
                sentence_links.best[head].tolist(), target_words, strict=True
            )
            if source_index != NO_SOURCE
            and NO_WORD not in (source_words[source_index], target_word)
        }
        n_predicted[head] = len(predicted)
        n_hit_sure[head] = len(predicted & gold.sure)
        n_hit_possible[head] = len(predicted & gold.possible)
    total = n_predicted + len(gold.sure)
    n_sure = np.full(shape, float(len(gold.sure)))
    return (
        (total - n_hit_sure - n_hit_possible, total),
        (n_hit_possible, n_predicted),
        (n_hit_sure, n_sure),
    )


def _words(text: StoredText) -> Ints:
    """Return the word of each token, counted from 0 by white space; `NO_WORD` without one."""
    starts = [word.start() for word in re.finditer(r"\S+", text.text)]
    spans = np.array(text.spans, np.int64).reshape(-1, 2)
    words = np.searchsorted(starts, spans[:, 0], side="right") - 1
    return np.where(spans[:, 1] > spans[:, 0], words, NO_WORD)


def f1(precision: float, recall: float) -> float:
    """Return the harmonic mean; NaN if either number is missing, 0 if both are 0."""
    if math.isnan(precision) or math.isnan(recall):
        return math.nan
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


ALIGNMENTS: TableSpec[Study] = TableSpec(
    "alignments",
    "How each head of cross-attention aligns the target and source tokens of the sentences "
    "that have a page.",
    HEAD_COLUMNS
    | {
        "measure": "monotone: Kendall's tau-b; diagonal, same_form: shares of target tokens; "
        "aer, precision, recall, f1: against gold alignments, where there are any",
    }
    | ESTIMATE_COLUMNS
    | {"uniform": "the same if every source token were chosen equally often; empty without one"},
    lambda study: alignment_table(stack_results(study)),
    optional=True,
)


def alignment_table(results: Mapping[str, StackResults]) -> pd.DataFrame:
    """Return a row for each measure of each cross-attention head; empty without any.

    Returns:
        Columns as in ``alignments.csv``; without gold alignments only the measures that need none.
    """
    rows = []
    for result in results.values():
        numbers = result.cached(alignments) if result.stack.crosses else None
        if numbers is not None:
            rows += [row for head in heads_of(result.stack) for row in _rows(head, numbers)]
    return pd.DataFrame(rows, columns=[*ALIGNMENTS.columns])


def _rows(head: HeadName, numbers: Alignments) -> Iterator[tuple[object, ...]]:
    cell = head.layer, head.head
    uniform = {
        "same_form": numbers.even_copied.at().value,
        "diagonal": numbers.even_diagonal.at().value,
    }
    estimates = {
        "monotone": numbers.monotone,
        "diagonal": numbers.diagonal,
        "same_form": numbers.copied,
    }
    against_gold = {"aer": numbers.error, "precision": numbers.precision, "recall": numbers.recall}
    estimates |= {name: values for name, values in against_gold.items() if values}
    values = {name: table.at(*cell) for name, table in estimates.items()}
    if "precision" in values:
        precision, recall = values["precision"], values["recall"]
        mean = f1(precision.value, recall.value)
        values["f1"] = Estimate(mean, math.nan, math.nan, precision.sentences, precision.events)
    for name, number in values.items():
        yield (*head, name, *number[:5], uniform.get(name, math.nan))
