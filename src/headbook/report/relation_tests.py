"""Tests of attention heads against the best surface rule for each relation, over all heads.

In this module, a *head* is an attention head, and a *governor* is the syntactic head of a word. For
each relation and direction (a *label*), the best head and the best surface rule are chosen on the
selection split and compared on the held-out split, on the same words. Sentences are the clusters. A
rule knows the order of words and their parts of speech (`headbook.attention.surface_rules`), and
takes a neighbour where it names no word, as a head always has a strongest word.

*Null hypothesis* of the test: the vector of differences of a sentence, over all heads and labels,
is as likely as the vector with the opposite sign. A difference is the hits of a head minus the hits
of the rule. So the signs of whole sentences are flipped at random, and each flip records the
largest statistic over all heads and labels. The p-value of a head is the share of flips whose
largest statistic reaches the head's own statistic. Thus it is family-wise over all heads and
labels, not only the chosen ones (Westfall & Young 1993; Nichols & Holmes 2002,
doi:10.1002/hbm.1058). From `MIN_SENTENCES_FOR_BUCKETS` sentences on, signs of `N_BUCKETS` groups of
sentences are flipped, because sums of groups are closer to symmetric.

*A claim* needs more than a margin over the rule. An attention head that always attends to nouns
finds the governor or the dependent of many words. So the strongest key of the relation's querying
words has to be of the right answer's part of speech more often than the strongest key of other
words with the querying words' part of speech.

*Limits.* Sentences count as independent, though sentences of one document may not be; equal
sentences are flipped together. A small p-value says that a head beats the best of these rules on
this corpus, not that the model uses the head for the relation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import HELD_OUT, SELECTION, Estimates, RatioSums
from headbook.analysis.arrays import Floats, Ints
from headbook.analysis.intervals import MIN_EFFECTIVE
from headbook.analysis.multiple_testing import ALPHA, sign_flip_p
from headbook.report.relation_counts import (
    ClassPreference,
    RelationCounts,
    best_rule,
    class_preference,
    count_relation,
    effective_sentences,
    estimates_by_label,
    ratios_of,
    words_of,
)
from headbook.report.results import StackResults
from headbook.schema import Place
from headbook.study.sums.word_samples import StrongestWords

MIN_SENTENCES_FOR_BUCKETS = 200  # in both splits; below, single sentences are flipped
MOST_HALF_WIDTH = 0.15  # of the interval of a margin beyond which too few words decide
N_BUCKETS = 256  # groups of sentences by hash; half of the groups are held out


def is_supported(p: Floats, margin: Estimates) -> NDArray[np.bool_]:
    """Return the mask of numbers with a family-wise p-value below `ALPHA` and interval above 0.

    This is the site's rule for every number that is tested family-wise.

    Args:
        p: family-wise p-value; NaN without a test.
        margin: the tested numbers. *Shape:* that of ``p``.
    """
    with np.errstate(invalid="ignore"):
        supported: NDArray[np.bool_] = (
            (p < ALPHA) & (margin.low > 0) & (margin.effective >= MIN_EFFECTIVE)
        )
    return supported


class RelationScores(NamedTuple):
    """Accuracy of a head and of a rule on the same words.

    Attributes:
        accuracy: share of the words that the head finds; ``events`` is the number of words.
            *Shape:* ``(label,)``.
        at_rule: share of the same words that the rule finds. *Shape:* ``(label,)``.
        margin: ``accuracy`` minus ``at_rule``. *Shape:* ``(label,)``.
    """

    accuracy: Estimates
    at_rule: Estimates
    margin: Estimates


@dataclass(frozen=True, eq=False)
class RelationTests:
    """The tested labels, each with its best head and its best surface rule.

    Attributes:
        labels: relation and direction, as in `headbook.schema.AnnotationScheme.labels`.
        head: layer and number of the best head. *Shape:* ``(label, 2)``.
        rule: name of the best rule of each label.
        scores: scores of these heads and rules on all sentences, which pages print.
        held_out, selection: their scores on one half of the sentences.
        accuracy_where_rule_fails: share of words that the head finds among all words that the rule
            misses. *Shape:* ``(label,)``.
        preference: the head's preference for the right class of words, on all sentences.
        held_out_preference: the same on the held-out split.
        p: family-wise p-value of the best head; NaN with fewer than two sentences.
            *Shape:* ``(label,)``.
        p_of_all_heads: family-wise p-value of each head and label; NaN if the head is absent or
            the label has fewer than two sentences. *Shape:* ``(layer, head, label)``.
        layer_head: the best head of each layer on the selection split. *Shape:*
            ``(layer, label)``.
        layer_margin: margin of ``layer_head`` on all sentences; NaN in layers without attention.
            *Shape:* ``(layer, label)``.
        held_out_layer_margin: the same on the held-out split.
        family: number of pairs of head and label over which p-values are corrected.
    """

    labels: tuple[str, ...]
    head: Ints
    rule: tuple[str, ...]
    scores: RelationScores
    held_out: RelationScores
    selection: RelationScores
    accuracy_where_rule_fails: Estimates
    preference: ClassPreference
    held_out_preference: ClassPreference
    p: Floats
    p_of_all_heads: Floats
    layer_head: Ints
    layer_margin: Estimates
    held_out_layer_margin: Estimates
    family: int

    @property
    def above_rule(self) -> NDArray[np.bool_]:
        """Whether the best head beats the best rule family-wise. *Shape:* ``(label,)``."""
        return is_supported(self.p, self.held_out.margin)

    @property
    def claimed(self) -> NDArray[np.bool_]:
        """Whether pages may say that the best head serves the relation. *Shape:* ``(label,)``."""
        return self.above_rule & self.held_out_preference.clear

    @property
    def undecided(self) -> NDArray[np.bool_]:
        """Whether too few words decide if the head beats the rule. *Shape:* ``(label,)``.

        The interval of its margin reaches above 0 and is wider than ± `MOST_HALF_WIDTH`, or is
        unknown.
        """
        margin = self.scores.margin
        is_narrow = (margin.high - margin.low) / 2 <= MOST_HALF_WIDTH
        undecided: NDArray[np.bool_] = ~(self.above_rule | is_narrow | (margin.high <= 0))
        return undecided

    @property
    def layer_supported(self) -> NDArray[np.bool_]:
        """Whether the best head of each layer beats the rule. *Shape:* ``(layer, label)``."""
        p = np.take_along_axis(self.p_of_all_heads, self.layer_head[:, None], 1)[:, 0]
        return is_supported(p, self.held_out_layer_margin)

    def claims(self, label: str, place: tuple[int, int]) -> bool:
        """Check whether a head, by layer and number, is the best head of a label and is claimed."""
        return any(
            name == label and (int(layer), int(head)) == place and bool(is_claimed)
            for name, (layer, head), is_claimed in zip(
                self.labels, self.head, self.claimed, strict=True
            )
        )

    def best_label(self, among: NDArray[np.bool_]) -> int | None:
        """Return the index of the label with the largest margin, or None if none is allowed.

        Margins of the selection split are compared, so that the held-out margin of the label, which
        is the evidence of the claim, is not inflated by the choice.

        Args:
            among: mask of the allowed labels. *Shape:* ``(label,)``.
        """
        allowed = np.flatnonzero(among)
        if not len(allowed):
            return None
        return int(allowed[np.argmax(self.selection.margin.value[allowed])])


def tests_of_stack(results: StackResults) -> RelationTests | None:
    """Return the tests of a stack; None if the study lacks the strongest words."""
    words_and_heads = words_of(results)
    return relation_tests(*words_and_heads) if words_and_heads else None


def relation_tests(words: StrongestWords, present: NDArray[np.bool_]) -> RelationTests:
    """Choose heads and rules on one half of the sentences, and compare them on the other.

    A label is tested if its words on the held-out split are in at least `MIN_EFFECTIVE` effective
    sentences, and if it has any words on the selection split.

    Args:
        words: strongest words of all heads.
        present: mask of the stack's heads. *Shape:* ``(layer, head)``.
    """
    halves = [words.of(half) for half in (SELECTION, HELD_OUT)]
    taken = [half.taken() for half in halves]
    tested = []
    for label in sorted({*halves[SELECTION].labels_asked()} & {*halves[HELD_OUT].labels_asked()}):
        selection_counts, held_out_counts = map(count_relation, halves, taken, (label, label))
        if effective_sentences(held_out_counts.words) >= MIN_EFFECTIVE:
            counts = selection_counts, held_out_counts
            tested.append(_Test.of(counts, halves, taken, present))
    return _run_sign_flip_test(words, halves[HELD_OUT], present, tested)


class _Test(NamedTuple):
    """Best head and best rule of one label on the selection split, and counts on both splits.

    Attributes:
        head, rule: indices of the best head and the best rule.
        layer_head: the best head of each layer. *Shape:* ``(layer,)``.
        counts: counts by split.
        rule_misses: in each sentence of both splits, the number of words that the rule misses, and
            the number of these words that the head finds. *Shape:* ``(sentence,)`` each.
    """

    head: tuple[int, int]
    rule: int
    layer_head: Ints
    counts: tuple[RelationCounts, RelationCounts]
    rule_misses: tuple[Ints, Ints]

    @classmethod
    def of(
        cls,
        counts: tuple[RelationCounts, RelationCounts],
        halves: Sequence[StrongestWords],
        taken: Sequence[NDArray[np.int32]],
        present: NDArray[np.bool_],
    ) -> "_Test":
        hits = np.where(present, counts[SELECTION].heads.sum(0), -1)  # absent heads come last
        layer, head = (int(index) for index in np.unravel_index(hits.argmax(), present.shape))
        rule = best_rule(counts[SELECTION].rules.sum(0))
        misses = []
        for of_split, words, rule_words in zip(counts, halves, taken, strict=True):
            cases, sentences = of_split.cases, of_split.sentences
            right = words.strongest[cases.query, layer, head] == cases.right
            missed = rule_words[rule, cases.query] != cases.right
            row, size = np.searchsorted(sentences, cases.sentence), len(sentences)
            misses.append([np.bincount(row[w], minlength=size) for w in (missed, right & missed)])
        n_missed, n_right = (np.concatenate(parts) for parts in zip(*misses, strict=True))
        return cls((layer, head), rule, hits.argmax(1), counts, (n_missed, n_right))

    def beyond_rule(self, *splits: int) -> tuple[Ints, Ints]:
        """Return the hits of each head minus those of the rule, and the words, by sentence.

        *Shapes:* ``(sentence, layer, head)`` and ``(sentence,)``.
        """
        parts = [self.counts[split] for split in splits]
        beyond = [counts.heads - counts.rules[:, self.rule, None, None] for counts in parts]
        return np.concatenate(beyond), np.concatenate([counts.words for counts in parts])


def _run_sign_flip_test(
    words: StrongestWords,
    held_out_words: StrongestWords,
    present: NDArray[np.bool_],
    tested: list[_Test],
) -> RelationTests:
    """Return the scores of the tested labels, with p-values from flipped signs of sentences.

    Args:
        words, held_out_words: strongest words of both splits, and of the held-out split.
        present: mask of the stack's heads. *Shape:* ``(layer, head)``.
        tested: tested labels.
    """
    held_out = _scores(tested, HELD_OUT)
    p = _sign_flip_p(held_out_words, len(words.index), present, tested)
    p = np.where(held_out.margin.sentences >= 2, p, np.nan)
    head = np.array([test.head for test in tested], np.int64).reshape(-1, 2)
    where_rule_fails = [
        ratios_of(n_right, n_missed) for n_missed, n_right in (test.rule_misses for test in tested)
    ]
    layer_head = (
        np.array([test.layer_head for test in tested], np.int64).reshape(-1, len(present)).T
    )
    preference, held_out_preference = (
        ClassPreference.of(
            [class_preference(part, t.counts[HELD_OUT].label, t.head) for t in tested]
        )
        for part in (words, held_out_words)
    )
    return RelationTests(
        labels=tuple(words.labels[test.counts[HELD_OUT].label] for test in tested),
        head=head,
        rule=tuple(words.rules[test.rule] for test in tested),
        scores=_scores(tested, SELECTION, HELD_OUT),
        held_out=held_out,
        selection=_scores(tested, SELECTION),
        accuracy_where_rule_fails=estimates_by_label(where_rule_fails, (0.0, 1.0)),
        preference=preference,
        held_out_preference=held_out_preference,
        p=p[head[:, 0], head[:, 1], np.arange(len(tested))],
        p_of_all_heads=p,
        layer_head=layer_head,
        layer_margin=_layer_margins(present, tested, SELECTION, HELD_OUT),
        held_out_layer_margin=_layer_margins(present, tested, HELD_OUT),
        family=int(present.sum()) * len(tested),
    )


def _sign_flip_p(
    held_out_words: StrongestWords,
    n_sentences: int,
    present: NDArray[np.bool_],
    tested: list[_Test],
) -> Floats:
    """Return the family-wise p-value of each head and label. *Shape:* ``(layer, head, label)``."""
    if not tested:
        return np.zeros((*present.shape, 0))
    keys, clusters = sign_clusters(held_out_words, n_sentences)
    differences = np.zeros((len(keys), *present.shape, len(tested)), np.float32)
    for column, test in enumerate(tested):
        sentences = test.counts[HELD_OUT].sentences
        np.add.at(differences[..., column], clusters[sentences], test.beyond_rule(HELD_OUT)[0])
    return sign_flip_p(differences, present, keys)


def _scores(tested: list[_Test], *splits: int) -> RelationScores:
    """Return the scores of the chosen heads and rules on one split, or on several together."""
    ratios: list[list[RatioSums]] = [[], [], []]
    for test in tested:
        parts = [test.counts[split] for split in splits]
        hits = np.concatenate([counts.heads[:, *test.head] for counts in parts])
        rule_hits = np.concatenate([counts.rules[:, test.rule] for counts in parts])
        n_words = np.concatenate([counts.words for counts in parts])
        for of_score, numerators in zip(ratios, (hits, rule_hits, hits - rule_hits), strict=True):
            of_score.append(ratios_of(numerators, n_words))
    limits = (0.0, 1.0), (0.0, 1.0), (-1.0, 1.0)
    return RelationScores(*map(estimates_by_label, ratios, limits))


def sign_clusters(
    held_out_words: StrongestWords, n_sentences: int
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the keys of the clusters whose signs are flipped, and the cluster of each sentence.

    Args:
        held_out_words: strongest words of the held-out split.
        n_sentences: number of sentences in both splits.
    """
    hashes = held_out_words.content_hash
    if n_sentences < MIN_SENTENCES_FOR_BUCKETS:
        return hashes, np.arange(len(hashes))
    keys, cluster = np.unique(hashes % np.uint64(N_BUCKETS), return_inverse=True)
    return keys, cluster


def _layer_margins(present: NDArray[np.bool_], tested: list[_Test], *splits: int) -> Estimates:
    """Return the margin of the best head of each layer; NaN in layers without heads.

    *Shape:* ``(layer, label)``.
    """
    layers = np.arange(len(present))
    margins = []
    for test in tested:
        beyond, n_words = test.beyond_rule(*splits)
        margins.append(ratios_of(beyond[:, layers, test.layer_head], n_words[:, None]))
    numbers = estimates_by_label(margins, (-1.0, 1.0), (len(present),))
    has_heads = np.any(present, axis=1, keepdims=True)
    value, low, high = (
        np.where(has_heads, part, np.nan) for part in (numbers.value, numbers.low, numbers.high)
    )
    return numbers._replace(value=value, low=low, high=high)


def best_relation(tests: "RelationTests | None", place: Place) -> int | None:
    """Return the index of the relation that a head serves best, by the selection split, or None."""
    if tests is None or not len(tests.labels):
        return None
    return tests.best_label(tests.claimed & (tests.head == place).all(1))
