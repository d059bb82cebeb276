"""The relation that each head finds best, and the surface rule that explains each head best.

Relation, direction and rule are chosen on one half of the sentences and compared on the other, as
in `inference`. Here each head has a relation and a rule of its own, so the intervals hold for one
head each; they are not corrected for the number of heads, as the tests of `inference` are.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import CHOICE, REPORT
from headbook.analysis.arithmetic import Floats, Ints
from headbook.analysis.intervals import FEW
from headbook.attention.surfacerules import NOTHING
from headbook.metrics import ids
from headbook.report.numbers.inference import (
    VIEW,
    best_rule,
    counted,
    effective_sentences,
    reported,
)
from headbook.report.numbers.results import Estimate, Estimates, StackResults
from headbook.study.summaries.strongestwords import StrongestWords

MOSTLY = 0.5  # of the words, from which on a rule names a head


class HeadRelation(NamedTuple):
    """What one head finds best.

    Attributes:
        label: relation and direction, one of `headbook.terms.Scheme.labels`.
        rule: the best surface rule for the label.
        accuracy: share of the words that the head finds.
        at_rule: share of the same words that the rule finds.
        margin: ``accuracy`` minus ``at_rule``.
    """

    label: str
    rule: str
    accuracy: Estimate
    at_rule: Estimate
    margin: Estimate


@dataclass(frozen=True, eq=False)
class HeadRelations:
    """What every head of a stack finds best; numbers of the reporting half.

    Attributes:
        labels: relation and direction of each place.
        label: places in ``labels``. *Shape:* ``(layer, head)``.
        rule: the best surface rule for each head's label. *Shape:* ``(layer, head)``.
        present: which heads there are. *Shape:* ``(layer, head)``.
        accuracy, at_rule, margin: see `HeadRelation`. *Shape:* ``(layer, head)``.
    """

    labels: tuple[str, ...]
    label: Ints
    rule: NDArray[np.str_]
    present: NDArray[np.bool_]
    accuracy: Estimates
    at_rule: Estimates
    margin: Estimates

    def at(self, layer: int, head: int) -> HeadRelation | None:
        """Return what one head finds best; None if there is no such head."""
        if not self.present[layer, head]:
            return None
        label, rule = self.labels[int(self.label[layer, head])], str(self.rule[layer, head])
        numbers = (part.at(layer, head) for part in (self.accuracy, self.at_rule, self.margin))
        return HeadRelation(label, rule, *numbers)


def head_relations(
    found: StrongestWords, present: NDArray[np.bool_], uniform: Floats
) -> HeadRelations | None:
    """Return the relation that each head finds most above uniform attention.

    Relations and directions take part whose words stand in at least `FEW` effective sentences of
    each half; None if none does.

    Args:
        present: which heads there are. *Shape:* ``(layer, head)``.
        uniform: what uniform attention finds; NaN if it is not known. *Shape:*
            ``(layer, label)``.
    """
    halves = [found.of(half) for half in (CHOICE, REPORT)]
    named = [half.named() for half in halves]
    best = np.full(present.shape, -np.inf)
    label = np.zeros(present.shape, np.int64)
    rule = np.zeros(present.shape, np.int64)
    hits, at, words = (np.zeros((len(halves[REPORT].lengths), *present.shape)) for _ in range(3))
    for number in sorted({*halves[CHOICE].labels_asked()} & {*halves[REPORT].labels_asked()}):
        choice, report = map(counted, halves, named, (number, number))
        if min(map(effective_sentences, (choice.words, report.words))) < FEW:
            continue
        gain = choice.heads.sum(0) / choice.words.sum() - np.nan_to_num(uniform[:, number, None])
        better = gain > best
        best[better], label[better] = gain[better], number
        rule[better] = best_rule(choice.rules.sum(0))
        for table in (hits, at, words):
            table[:, better] = 0
        rows = report.sentences[:, None]
        chosen = np.flatnonzero(better)
        cells = np.unravel_index(chosen, present.shape)
        hits[rows, cells[0], cells[1]] = report.heads[:, better]
        at[rows, cells[0], cells[1]] = report.rules[:, rule[better]]
        words[rows, cells[0], cells[1]] = report.words[:, None]
    if np.isneginf(best).all():
        return None
    return HeadRelations(
        found.labels,
        label,
        np.array(found.rules)[rule],
        present,
        reported(hits, words, (0, 1)),
        reported(at, words, (0, 1)),
        reported(hits - at, words, (-1, 1)),
    )


class HeadRule(NamedTuple):
    """The surface rule that explains one head best, chosen on one half of the sentences.

    Attributes:
        rule: its name, one of `StrongestWords.rules`.
        chosen: share of words on the choice half for which the rule names the strongest word.
        agreement: that share on the reporting half.
        mean: mean of that share over all heads of the stack.
        margin: ``agreement`` minus ``mean``.
    """

    rule: str
    chosen: Estimate
    agreement: Estimate
    mean: Estimate
    margin: Estimate

    @property
    def names(self) -> bool:
        """Whether the head may be named by the rule: in half of the cases, above the mean head."""
        enough = self.agreement.effective >= FEW
        return bool(enough and self.agreement.value >= MOSTLY and self.margin.low > 0)


def head_rules(results: StackResults) -> dict[tuple[int, int], HeadRule]:
    """Return the rule that explains each head best, by layer and number; none without words."""
    words = results.study.corpus_sums.heads[results.stack.name].strongest_words
    there = [x for x in results.labels(ids.SURFACE_RULE) if results.has(ids.SURFACE_RULE, VIEW, x)]
    if results.stack.crosses or words is None or not there:
        return {}
    return rules_of(words, ~np.isnan(results.heads(ids.SURFACE_RULE, VIEW, there[0]).value))


def rules_of(found: StrongestWords, present: NDArray[np.bool_]) -> dict[tuple[int, int], HeadRule]:
    """Choose a rule for each head on one half of the sentences, report it on the other.

    Args:
        present: which heads there are. *Shape:* ``(layer, head)``.
    """
    halves = [found.of(half) for half in (CHOICE, REPORT)]
    looking = [np.bincount(h.sentence[h.looks], minlength=len(h.lengths)) for h in halves]
    if not all(words.any() for words in looking):
        return {}
    named = [half.named() for half in halves]
    totals = np.stack([_agreements(halves[CHOICE], word).sum(0) for word in named[CHOICE]], -1)
    best = np.apply_along_axis(best_rule, -1, totals)
    rules = {}
    for rule in np.unique(best[present]).tolist():
        choice, report = (_agreements(h, n[rule]) for h, n in zip(halves, named, strict=True))
        every = report[:, present].mean(1)
        mean = reported(every, looking[REPORT], (0, 1)).at()
        for layer, head in np.argwhere(present & (best == rule)).tolist():
            own = report[:, layer, head]
            rules[layer, head] = HeadRule(
                found.rules[rule],
                reported(choice[:, layer, head], looking[CHOICE], (0, 1)).at(),
                reported(own, looking[REPORT], (0, 1)).at(),
                mean,
                reported(own - every, looking[REPORT], (-1, 1)).at(),
            )
    return rules


def _agreements(found: StrongestWords, word: NDArray[np.int32]) -> Ints:
    """Return how many words of each sentence have the word that a rule names as strongest word.

    Args:
        word: what the rule names, negative for nothing. *Shape:* ``(word,)``.

    Returns:
        *Shape:* ``(sentence, layer, head)``.
    """
    starts = found.lengths.cumsum() - found.lengths
    wanted = np.where((word >= 0) & found.looks, word, NOTHING - 1)[:, None, None]
    return np.add.reduceat(found.strongest == wanted, starts, dtype=np.int64)
