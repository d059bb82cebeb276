"""Tests of heads against the best surface rule for each relation, corrected over all heads.

For each relation and direction, the best head and the best surface rule are chosen on one half of
the sentences and compared on the other, word by word on the same words. Sentences are the clusters.
A rule knows the order of words and their parts of speech (`headbook.attention.surface_rules`).

*Null hypothesis* of the test: in each sentence, or bucket of sentences, the differences between the
hits of heads and the hits of rules, all heads and all labels together, are as likely as the
differences with the opposite sign. So the signs of whole sentences are flipped at random, and the
largest statistic among all heads and labels is recorded each time. A head's p is the share of flips
whose largest statistic reaches the head's own: family-wise over all heads and labels, not only the
chosen ones (Westfall & Young 1993; Nichols & Holmes 2002, doi:10.1002/hbm.1058). From `SENTENCES`
sentences on, signs of `BUCKETS` groups of sentences are flipped, whose sums are closer to
symmetric.

*A claim* needs more than the margin. A head that always attends to nouns finds the head of many
words. So the strongest key of the relation's querying words has to be of the right answer's part of
speech more often than that of other words of the same part of speech.

*Limits.* Sentences count as independent, though sentences of one document may not be; equal
sentences are flipped together. A small p says that a head beats the best of these rules on this
corpus; it does not say that the model uses the head for the relation.
"""

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
    _estimates,
    best_rule,
    class_preference,
    count_relation,
    effective_sentences,
    ratios_of,
    words_of,
)
from headbook.report.results import StackResults
from headbook.study.word_samples import StrongestWords

SENTENCES = 200  # sentences of both halves from which on groups of sentences are flipped
BUCKETS = 256  # groups of sentences by hash; half of the groups are held out


def is_supported(p: Floats, margin: Estimates) -> NDArray[np.bool_]:
    """Return the mask of numbers with a family-wise p below `ALPHA` and an interval above 0.

    This is the site's rule for every number that is tested family-wise.

    Args:
        p: family-wise p; NaN without a test.
        margin: the tested numbers. *Shape:* that of ``p``.
    """
    with np.errstate(invalid="ignore"):
        found: NDArray[np.bool_] = (
            (p < ALPHA) & (margin.low > 0) & (margin.effective >= MIN_EFFECTIVE)
        )
    return found


class SplitScores(NamedTuple):
    """Accuracy of a head and of a rule on the same words of one half of the sentences.

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
        accuracy, at_rule, margin: numbers of the held-out split, see `SplitScores`.
        choice: numbers of these heads and rules on the selection split.
        where_wrong: share of words that the head finds among the held-out words that the rule
            misses. *Shape:* ``(label,)``.
        preference: the head's preference for the right class of words.
        p: family-wise p of the head; NaN with fewer than two sentences. *Shape:* ``(label,)``.
        every: p of every head and label; NaN without a head. *Shape:*
            ``(layer, head, label)``.
        layer_head: the best head of each layer on the selection split. *Shape:*
            ``(layer, label)``.
        layer_margin: margin of ``layer_head``; NaN in layers without attention. *Shape:*
            ``(layer, label)``.
        family: number of pairs of head and label over which p is corrected.
    """

    labels: tuple[str, ...]
    head: Ints
    rule: tuple[str, ...]
    accuracy: Estimates
    at_rule: Estimates
    margin: Estimates
    choice: SplitScores
    where_wrong: Estimates
    preference: ClassPreference
    p: Floats
    every: Floats
    layer_head: Ints
    layer_margin: Estimates
    family: int

    @property
    def above_rule(self) -> NDArray[np.bool_]:
        """Whether the best head beats the best rule family-wise. *Shape:* ``(label,)``."""
        return is_supported(self.p, self.margin)

    @property
    def claimed(self) -> NDArray[np.bool_]:
        """Whether pages may say that the best head serves the relation. *Shape:* ``(label,)``."""
        return self.above_rule & self.preference.clear

    @property
    def layer_supported(self) -> NDArray[np.bool_]:
        """Whether the best head of each layer beats the rule. *Shape:* ``(layer, label)``."""
        p = np.take_along_axis(self.every, self.layer_head[:, None], 1)[:, 0]
        return is_supported(p, self.layer_margin)

    def claims(self, label: str, place: tuple[int, int]) -> bool:
        """Check whether a head, by layer and number, is the best head of a label and is claimed."""
        return any(
            name == label and (int(layer), int(head)) == place and bool(sure)
            for name, (layer, head), sure in zip(self.labels, self.head, self.claimed, strict=True)
        )

    def first(self, among: NDArray[np.bool_]) -> int | None:
        """Return the label with the largest margin on the selection split; None without any.

        The reported margin does not decide, because the largest of several is inflated.
        """
        places = np.flatnonzero(among)
        if not len(places):
            return None
        return int(places[np.argmax(self.choice.margin.value[places])])


def tests_of_stack(results: StackResults) -> RelationTests | None:
    """Return the tests of a stack; None if the study lacks the strongest words."""
    hits = words_of(results)
    return relation_tests(*hits) if hits else None


def relation_tests(found: StrongestWords, present: NDArray[np.bool_]) -> RelationTests:
    """Choose heads and rules on one half of the sentences, and compare them on the other.

    A label is tested if its words on the held-out split stand in at least `MIN_EFFECTIVE` effective
    sentences, and if it has any words on the selection split.

    Args:
        present: mask of the stack's heads. *Shape:* ``(layer, head)``.
    """
    halves = [found.of(half) for half in (SELECTION, HELD_OUT)]
    named = [half.named() for half in halves]
    tested = []
    for label in sorted({*halves[SELECTION].labels_asked()} & {*halves[HELD_OUT].labels_asked()}):
        choice, report = map(count_relation, halves, named, (label, label))
        if effective_sentences(report.words) >= MIN_EFFECTIVE:
            tested.append(_Test.of((choice, report), halves[HELD_OUT], named[HELD_OUT], present))
    return _together(halves[HELD_OUT], len(found.index), present, tested)


class _Test(NamedTuple):
    """The choice for one label on the selection split, and its counts on both splits.

    Attributes:
        head, rule: indices of the best head and the best rule.
        layer_head: the best head of each layer. *Shape:* ``(layer,)``.
        counts: counts by split.
        wrong: in each held-out sentence, the number of words that the rule misses, and how many of
            these the head finds. *Shape:* ``(sentence,)`` each.
    """

    head: tuple[int, int]
    rule: int
    layer_head: Ints
    counts: tuple[RelationCounts, RelationCounts]
    wrong: tuple[Ints, Ints]

    @classmethod
    def of(
        cls,
        counts: tuple[RelationCounts, RelationCounts],
        report: StrongestWords,
        named: NDArray[np.int32],
        present: NDArray[np.bool_],
    ) -> "_Test":
        hits = np.where(present, counts[SELECTION].heads.sum(0), -1)  # absent heads come last
        layer, head = (int(x) for x in np.unravel_index(hits.argmax(), present.shape))
        rule = best_rule(counts[SELECTION].rules.sum(0))
        cases, sentences = counts[HELD_OUT].cases, counts[HELD_OUT].sentences
        right = report.strongest[cases.query, layer, head] == cases.right
        missed = named[rule, cases.query] != cases.right
        place, size = np.searchsorted(sentences, cases.sentence), len(sentences)
        wrong = tuple(
            np.bincount(place[flags], minlength=size) for flags in (missed, right & missed)
        )
        return cls((layer, head), rule, hits.argmax(1), counts, (wrong[0], wrong[1]))


def _together(
    report: StrongestWords, sentences: int, present: NDArray[np.bool_], tested: list[_Test]
) -> RelationTests:
    keys, clusters = sign_clusters(report, sentences)
    shape, layers = present.shape, np.arange(len(present))
    ahead = np.zeros((len(keys), *shape, len(tested)), np.float32)
    layer_margins = []
    for place, test in enumerate(tested):
        counts = test.counts[HELD_OUT]
        beyond = counts.heads - counts.rules[:, test.rule, None, None]
        np.add.at(ahead[..., place], clusters[counts.sentences], beyond)
        layer_margins.append(ratios_of(beyond[:, layers, test.layer_head], counts.words[:, None]))
    reported, choice = _scores(tested, HELD_OUT), _scores(tested, SELECTION)
    every = sign_flip_p(ahead, present, keys) if tested else np.zeros((*shape, 0))
    every = np.where(reported.margin.sentences >= 2, every, np.nan)
    head = np.array([test.head for test in tested], np.int64).reshape(-1, 2)
    wrong = [ratios_of(found, words) for words, found in (test.wrong for test in tested)]
    layer_head = np.array([test.layer_head for test in tested], np.int64).reshape(-1, shape[0]).T
    return RelationTests(
        labels=tuple(report.labels[test.counts[HELD_OUT].label] for test in tested),
        head=head,
        rule=tuple(report.rules[test.rule] for test in tested),
        accuracy=reported.accuracy,
        at_rule=reported.at_rule,
        margin=reported.margin,
        choice=choice,
        where_wrong=_estimates(wrong, (0.0, 1.0)),
        preference=ClassPreference.of(
            [class_preference(report, t.counts[HELD_OUT].label, t.head) for t in tested]
        ),
        p=every[head[:, 0], head[:, 1], np.arange(len(tested))],
        every=every,
        layer_head=layer_head,
        layer_margin=_where(present, _estimates(layer_margins, (-1.0, 1.0), shape[:1])),
        family=int(present.sum()) * len(tested),
    )


def _scores(tested: list[_Test], half: int) -> SplitScores:
    """Return the scores of the chosen heads and rules on one split."""
    parts: list[list[RatioSums]] = [[], [], []]
    for test in tested:
        counts = test.counts[half]
        hits, at = counts.heads[:, *test.head], counts.rules[:, test.rule]
        for part, n in zip(parts, (hits, at, hits - at), strict=True):
            part.append(ratios_of(n, counts.words))
    limits = (0.0, 1.0), (0.0, 1.0), (-1.0, 1.0)
    return SplitScores(*map(_estimates, parts, limits))


def sign_clusters(
    report: StrongestWords, sentences: int
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the keys of the clusters whose signs are flipped, and the cluster of each sentence.

    Args:
        sentences: number of sentences in both halves.
    """
    hashes = report.content_hash
    if sentences < SENTENCES:
        return hashes, np.arange(len(hashes))
    keys, cluster = np.unique(hashes % np.uint64(BUCKETS), return_inverse=True)
    return keys, cluster


def _where(present: NDArray[np.bool_], numbers: Estimates) -> Estimates:
    """Return numbers of layers that have heads; NaN in other layers."""
    there = np.any(present, axis=1, keepdims=True)
    value, low, high = (np.where(there, part, np.nan) for part in numbers[:3])
    return numbers._replace(value=value, low=low, high=high)
