"""Alignment of target and source tokens by cross-attention, and its table.

Alignments are computed over the sentences with a page, from their stored maps. Special tokens are
neither queries nor keys, as in the views without the sink. A row belongs to the token that the
decoder reads, not to the next token: the "shifted" alignment of Chen et al. (2020),
arXiv:2004.14837.
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
from headbook.study.sentence_data import HeadName, StoredSentence, StoredText, heads_of
from headbook.study.study import Study
from headbook.study.tables import ESTIMATE_COLUMNS, HEAD_COLUMNS, Table

GOLD = "alignment"  # the metadata column with word alignments: "0-0 1-2", source first
PAIR = re.compile(r"(\d+)([-?p])(\d+)")  # ? and p: a possible link, not a sure one
NO_SOURCE, NO_WORD = -1, -1
SHARE, CORRELATION = (0.0, 1.0), (-1.0, 1.0)


class Links(NamedTuple):
    """The strongest source of every target token in one sentence.

    Attributes:
        targets, sources: positions of the tokens that count. *Shape:* ``(target,)``, ``(source,)``.
        best: index in ``sources``, the first of equals; `NO_SOURCE` if all weights round to 0.
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
    maps = results.study.sentence_data.maps.get((stack.name, sentence.index))
    queries, keys = sentence.texts[stack.queries], sentence.texts[stack.keys]
    targets, sources = (np.flatnonzero(~np.array(t.special, bool)) for t in (queries, keys))
    if maps is None or not len(targets) or not len(sources):
        return None
    seen = maps[:, :, targets][..., sources]
    weight = seen.max(-1)
    return Links(targets, sources, np.where(weight > 0, seen.argmax(-1), NO_SOURCE), weight)


def alignments(results: StackResults) -> Alignments | None:
    """Return the alignment numbers of one stack; None if no sentence has links."""
    texts = results.stack.queries, results.stack.keys
    pairs = [*_linked(results)]
    if not pairs:
        return None
    each = [_counts(made, *(sentence.texts[side] for side in texts)) for sentence, made in pairs]
    copied, diagonal, monotone, even_copied, even_diagonal = zip(*each, strict=True)
    counted = [
        _alignment_counts(made, gold, *(sentence.texts[side] for side in texts))
        for sentence, made in pairs
        if (gold := gold_of(sentence, results))
    ]
    errors: list[Estimates | None] = [_numbers(each, SHARE) for each in zip(*counted, strict=True)]
    error, precision, recall = errors or [None] * 3
    return Alignments(
        len(pairs),
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
        made = links(results, sentence)
        if made:
            yield sentence, made


Part = tuple[Floats, Floats]  # a sentence's numerator and denominator


def _numbers(parts: Iterable[Part], limits: tuple[float, float]) -> Estimates:
    """Return ratios of sums over sentences, with intervals clustered by sentence."""
    n, d = (np.stack(each) for each in zip(*parts, strict=True))
    return Estimates.of(RatioSums.of(n, d, d, np.zeros(len(n), np.int64)), limits)


def _counts(made: Links, target: StoredText, source: StoredText) -> tuple[Part, ...]:
    """Return a sentence's part in the first five numbers of `Alignments`."""
    there = made.best != NO_SOURCE
    among = there.sum(-1).astype(float)
    same = same_form(made, target, source)
    row = np.arange(len(made.targets))
    hit = same[row, made.best] & there
    near = (made.best == on_diagonal(len(made.targets), len(made.sources))) & there
    tau = np.stack([kendall(layer) for layer in made.best])
    total = np.array(float(len(row)))
    return (
        (hit.sum(-1).astype(float), among),
        (near.sum(-1).astype(float), among),
        (np.nan_to_num(tau), (~np.isnan(tau)).astype(float)),
        (same.mean(-1).sum(), total),
        (total / len(made.sources), total),
    )


def same_form(made: Links, target: StoredText, source: StoredText) -> NDArray[np.bool_]:
    """Return the mask of pairs with the same letters except for case and accents.

    *Shape:* ``(target, source)``. Tokens that are nothing but accents match no token.
    """
    one = np.array([folded(target.pieces[i]) for i in made.targets])[:, None]
    other = np.array([folded(source.pieces[i]) for i in made.sources])
    found: NDArray[np.bool_] = (one == other) & (one != "")
    return found


def folded(text: str) -> str:
    """Return letters without case and accents, as the search of pages folds them."""
    decomposed = unicodedata.normalize("NFD", text.strip())
    return "".join(c for c in decomposed if not unicodedata.category(c).startswith("M")).lower()


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
    there = best != NO_SOURCE
    first, later = np.triu_indices(best.shape[-1], 1)
    both = there[:, first] & there[:, later]
    turn = np.sign(best[:, later] - best[:, first]) * both
    pairs, decided = both.sum(-1).astype(float), np.abs(turn).sum(-1).astype(float)
    return divide(turn.sum(-1), np.sqrt(pairs * decided))


def gold_of(sentence: StoredSentence, results: StackResults) -> Gold | None:
    """Return the gold links of a sentence's words; None if there are none that can be used.

    Words are separated by white space, as in files of gold alignments. Sentences whose target the
    model generated, or with a link to a missing word, have no gold links.
    """
    parts = sentence.metadata.get(GOLD, "").split()
    matches = [PAIR.fullmatch(part) for part in parts]
    target, source = sentence.texts[results.stack.queries], sentence.texts[results.stack.keys]
    if not parts or not all(matches) or target.generated:
        return None
    every = {(int(m[1]), int(m[3])): m[2] == "-" for m in matches if m}
    sizes = len(source.text.split()), len(target.text.split())
    if any(one >= sizes[0] or other >= sizes[1] for one, other in every):
        return None
    sure = frozenset(pair for pair, is_sure in every.items() if is_sure)
    return Gold(sure, frozenset(every))


def _alignment_counts(
    made: Links, gold: Gold, target: StoredText, source: StoredText
) -> tuple[Part, Part, Part]:
    """Return error, precision and recall of each head in one sentence.

    *Shape:* ``(layer, head)`` each.

    A head links two words if any token of one word has its strongest source in the other.
    """
    to, of = _words(target)[made.targets], _words(source)[made.sources]
    shape = made.best.shape[:2]
    linked, sure, possible = np.zeros((3, *shape))
    for place in np.ndindex(shape):
        chosen = zip(of[made.best[place]], to, made.best[place], strict=True)
        predicted = {
            (int(s), int(t)) for s, t, b in chosen if b != NO_SOURCE and NO_WORD not in (s, t)
        }
        linked[place] = len(predicted)
        sure[place], possible[place] = len(predicted & gold.sure), len(predicted & gold.possible)
    total = linked + len(gold.sure)
    wanted = np.full(shape, float(len(gold.sure)))
    return (total - sure - possible, total), (possible, linked), (sure, wanted)


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


ALIGNMENTS: Table[Study] = Table(
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
        found = result.cached(alignments) if result.stack.crosses else None
        if found is not None:
            rows += [row for head in heads_of(result.stack) for row in _rows(head, found)]
    return pd.DataFrame(rows, columns=[*ALIGNMENTS.columns])


def _rows(head: HeadName, found: Alignments) -> Iterator[tuple[object, ...]]:
    cell = head.layer, head.head
    even = {"same_form": found.even_copied.at().value, "diagonal": found.even_diagonal.at().value}
    estimates = {"monotone": found.monotone, "diagonal": found.diagonal, "same_form": found.copied}
    counted = {"aer": found.error, "precision": found.precision, "recall": found.recall}
    estimates |= {name: numbers for name, numbers in counted.items() if numbers}
    numbers = {name: table.at(*cell) for name, table in estimates.items()}
    if "precision" in numbers:
        precision, recall = numbers["precision"], numbers["recall"]
        mean = f1(precision.value, recall.value)
        numbers["f1"] = Estimate(mean, math.nan, math.nan, precision.sentences, precision.events)
    for name, number in numbers.items():
        yield (*head, name, *number[:5], even.get(name, math.nan))
