"""Counts of words that heads and rules find in relations, and preferences for word classes.

A head that always attends to nouns finds the head of many words, and one that always attends to
punctuation finds the punctuation of many clauses. So the class of the strongest word is compared
between the words of a relation and other words of the same part of speech.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import HELD_OUT, Estimates, RatioSums
from headbook.analysis.arrays import Floats, Ints, divide
from headbook.attention.surface_rules import NO_SELECTION, OFFSETS
from headbook.metrics import ids
from headbook.report.results import StackResults
from headbook.schema import SinkView
from headbook.study.sums.word_samples import RelationCases, StrongestWords

MIN_OTHER_WORDS = 30  # with fewer words of the same part of speech, nothing is compared


class ClassPreference(NamedTuple):
    """Shares of strongest words of the right class, in a relation and outside it.

    Attributes:
        share: share of the querying words whose strongest word is of the right answer's part of
            speech. *Shape:* ``(label,)``.
        elsewhere: that share among other words of the querying words' parts of speech, outside the
            relation; NaN without any. *Shape:* ``(label,)``.
        difference: ``share`` minus ``elsewhere``. *Shape:* ``(label,)``.
        others: number of other words behind ``elsewhere``. *Shape:* ``(label,)``.
    """

    share: Floats
    elsewhere: Floats
    difference: Estimates
    others: Ints

    @classmethod
    def of(cls, parts: "Sequence[LabelPreference]") -> "ClassPreference":
        """Return the preferences of several labels side by side."""
        sums = np.stack([part.sums.sums for part in parts], -1) if parts else RatioSums.zero(0).sums
        return cls(
            np.array([part.share for part in parts]),
            np.array([part.elsewhere for part in parts]),
            Estimates.of(RatioSums(sums), (-1.0, 1.0)),
            np.array([part.others for part in parts], np.int64),
        )

    @property
    def comparable(self) -> NDArray[np.bool_]:
        """Whether there are enough other words to compare with. *Shape:* ``(label,)``."""
        return self.others >= MIN_OTHER_WORDS

    @property
    def clear(self) -> NDArray[np.bool_]:
        """Whether the interval of the difference lies above 0. *Shape:* ``(label,)``."""
        with np.errstate(invalid="ignore"):
            is_clear: NDArray[np.bool_] = self.comparable & (self.difference.low > 0)
        return is_clear


class LabelPreference(NamedTuple):
    """The class preference of one head for one label.

    Attributes:
        share, elsewhere, others: see `ClassPreference`.
        sums: sums of the difference. The numerator of a sentence is its influence on the
            difference, times the number of cases, so that sentences without a case count by their
            other words.
    """

    share: float
    elsewhere: float
    sums: RatioSums
    others: int


def class_preference(words: StrongestWords, label: int, head: tuple[int, int]) -> LabelPreference:
    """Compare the class of a head's strongest words inside a relation and outside.

    For each pair of parts of speech, of a querying word and its right answer, the share of
    querying words whose strongest word is of the answer's part of speech, minus that share among
    other words of the querying word's part of speech; pairs weigh as many cases as they have.
    Cases of which no other words exist are left out.

    Args:
        words: sentences of the reporting half.
        label: index among the scheme's labels.
        head: layer and number.
    """
    cases, tag = words.cases(label), words.tag.astype(np.int64)
    strongest = words.strongest[:, *head].astype(np.int64)
    target = np.where(strongest == NO_SELECTION, NO_SELECTION, tag[words.first + strongest])
    outside = words.has_others & (tag >= 0)
    outside[words.querying(label)] = False
    n_tags = len(words.scheme.tags)
    others = np.bincount(tag[outside], minlength=n_tags)
    is_known = (tag[cases.query] >= 0) & (tag[cases.key] >= 0)
    is_known[is_known] = others[tag[cases.query][is_known]] > 0
    query, key, sentence = (part[is_known] for part in (cases.query, cases.key, cases.sentence))
    query_tag, key_tag = tag[query], tag[key]
    with_target = outside & (target >= 0)
    # Share of other words of one tag (rows) whose strongest word has another tag (columns).
    tag_shares = divide(
        _count_pairs(tag[with_target], target[with_target], n_tags), others[:, None]
    )
    tag_shares = np.nan_to_num(tag_shares)
    inside = (target[query] == key_tag).astype(np.float64)
    expected = tag_shares[query_tag, key_tag]
    weight = _count_pairs(query_tag, key_tag, n_tags)
    numerators, n_cases = np.zeros((2, len(words.lengths)))
    np.add.at(numerators, sentence, inside - expected)
    np.add.at(n_cases, sentence, 1)
    # Each other word moves the expectation of all cases of its tag.
    other = np.flatnonzero(outside)
    moved = np.where(target[other] >= 0, weight[tag[other], target[other]], 0.0)
    moved = divide(moved - (weight * tag_shares).sum(1)[tag[other]], others[tag[other]])
    np.subtract.at(numerators, words.sentence[other], moved)
    share, elsewhere = (
        float(values.mean()) if len(values) else np.nan for values in (inside, expected)
    )
    sums = RatioSums.of(numerators, n_cases, n_cases, np.full(len(n_cases), HELD_OUT))
    return LabelPreference(share, elsewhere, sums, int(others[np.unique(query_tag)].sum()))


def _count_pairs(rows: Ints, columns: Ints, n_tags: int) -> Floats:
    """Return how often each pair of tags occurs. *Shape:* ``(tag, tag)``."""
    table = np.zeros((n_tags, n_tags))
    np.add.at(table, (rows, columns), 1)
    return table


METRIC, VIEW = ids.RELATION_ACCURACY, SinkView.NOSINK


class RelationCounts(NamedTuple):
    """Words of one label that heads and rules find, counted by sentence.

    Attributes:
        label: index of the label.
        cases: the querying words of the label and their right answers.
        sentences: rows of the sentences that have cases, ascending. *Shape:* ``(sentence,)``.
        words: number of cases in each sentence. *Shape:* ``(sentence,)``.
        heads: number of cases that each head finds. *Shape:* ``(sentence, layer, head)``.
        rules: number of cases that each rule finds. *Shape:* ``(sentence, rule)``.
    """

    label: int
    cases: RelationCases
    sentences: Ints
    words: Ints
    heads: Ints
    rules: Ints


def count_relation(words: StrongestWords, taken: NDArray[np.int32], label: int) -> RelationCounts:
    """Count the words of one label that heads and rules find.

    Args:
        taken: the word that each rule takes, see `StrongestWords.taken`.
    """
    cases = words.cases(label)
    sentences, starts, n_cases = np.unique(cases.sentence, return_index=True, return_counts=True)
    by_head = words.strongest[cases.query] == cases.right[:, None, None]
    by_rule = (taken[:, cases.query] == cases.right).T
    heads, rules = (
        np.add.reduceat(hits, starts, dtype=np.int64)
        if len(starts)
        else np.zeros((0, *hits.shape[1:]), np.int64)
        for hits in (by_head, by_rule)
    )
    return RelationCounts(label, cases, sentences, n_cases, heads, rules)


def words_of(results: StackResults) -> tuple[StrongestWords, NDArray[np.bool_]] | None:
    """Return the strongest words of a stack and the mask of its heads; None without relations.

    *Shape* of the second: ``(layer, head)``.
    """
    words = results.study.corpus_sums.heads[results.stack.name].strongest_words
    labels = [label for label in results.labels(METRIC) if results.has_value(METRIC, VIEW, label)]
    if results.stack.crosses or words is None or not labels:
        return None
    return words, ~np.isnan(results.heads(METRIC, VIEW, labels[0]).value)


def effective_sentences(words: NDArray[np.generic]) -> Floats:
    """Return the effective number of sentences (Kish), given the words of each; 0 without words.

    As many sentences with equal numbers of words would give an estimate of the same variance.

    Args:
        words: number of words in each sentence. *Shape:* ``(sentence, ...)``.
    """
    words = words.astype(np.float64)
    return np.nan_to_num(divide(words.sum(0) ** 2, (words**2).sum(0)))


def best_rule(counts: NDArray[np.generic]) -> int:
    """Return the index of the rule that finds most words; of equal rules the simplest.

    Offsets come first, the nearest before the others, so that a direction and its mirror image,
    whose counts are mirrored, get the same answer.

    Args:
        counts: number of words that each rule finds. *Shape:* ``(rule,)``.
    """
    order = np.arange(len(counts))
    order[: len(OFFSETS)] = np.argsort(np.abs(OFFSETS), kind="stable")
    return int(order[counts[order].argmax()])


def ratios_of(numerators: NDArray[np.generic], denominators: NDArray[np.generic]) -> RatioSums:
    """Return ratios of sums over the sentences of one split.

    Args:
        numerators: numerators. *Shape:* ``(sentence, …)``.
        denominators: denominators, broadcast to the shape of ``numerators``.
    """
    totals = np.broadcast_to(denominators, numerators.shape).astype(np.float64)
    return RatioSums.of(
        numerators.astype(np.float64), totals, totals, np.full(len(numerators), HELD_OUT)
    )


def estimates_by_label(
    ratios: Sequence[RatioSums], limits: tuple[float, float], cells: tuple[int, ...] = ()
) -> Estimates:
    """Return values with intervals of several labels, side by side in the last dimension.

    Args:
        ratios: ratios of each label. *Shape:* ``cells`` each.
        limits: least and largest possible ratio.
        cells: shape of the result without labels, if there are none.
    """
    sums = (
        np.stack([ratio.sums for ratio in ratios], -1) if ratios else RatioSums.zero(*cells, 0).sums
    )
    return Estimates.of(RatioSums(sums), limits)


def held_out_estimates(
    numerators: NDArray[np.generic], denominators: NDArray[np.generic], limits: tuple[float, float]
) -> Estimates:
    """Return ratios of sums over the sentences of the held-out split, with intervals.

    Args:
        numerators: numerators. *Shape:* ``(sentence, …)``.
        denominators: denominators, broadcast to the shape of ``numerators``.
        limits: least and largest possible ratio.
    """
    return Estimates.of(ratios_of(numerators, denominators), limits)
