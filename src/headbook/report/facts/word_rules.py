"""Test of whether a head attends to a word of some class rather than to a fixed offset.

A *class rule* names the next, the previous or the nearest word of a class for each word
(`headbook.attention.surface_rules`). For each head, the class rule that names most of its strongest
words on the selection split is compared on the held-out split with every fixed offset, which takes
a neighbour where it leaves the sentence. A head that chooses by distance alone agrees with some
offset at least as often as with any class rule.

*Null hypothesis:* the vector of differences of a sentence (words that the class rule names minus
words that an offset takes), over all heads and offsets, is as likely as the vector with the
opposite sign. p-values are family-wise over all heads and offsets, as in
`headbook.report.relation_tests`; the rule is chosen on the other split, so rules are no part of the
family.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import HELD_OUT, SELECTION, Estimate
from headbook.analysis.arrays import Ints
from headbook.analysis.multiple_testing import sign_flip_p
from headbook.attention.surface_rules import OFFSETS, SIDES
from headbook.metrics import ids
from headbook.report.relation_counts import VIEW, best_rule, held_out_estimates
from headbook.report.relation_tests import is_supported, sign_clusters
from headbook.report.relations import rule_hits
from headbook.report.results import StackResults
from headbook.schema import Place
from headbook.study.sums.word_samples import StrongestWords


class WordRule(NamedTuple):
    """The class rule that names most of a head's strongest words.

    Attributes:
        rule: name of the rule, one of `StrongestWords.rules`.
        offset: the fixed offset with the smallest margin, in words.
        margin: share of words that the rule names minus the share that ``offset`` takes, on the
            held-out split.
        p: family-wise p-value, the largest of all offsets.
        supported: whether the rule names more words than every fixed offset.
    """

    rule: str
    offset: int
    margin: Estimate
    p: float
    supported: bool


def word_rules(results: StackResults) -> Mapping[Place, WordRule]:
    """Return the class rule of each head, by layer and number; empty without parts of speech."""
    return results.cached(_word_rules)


def _word_rules(results: StackResults) -> dict[Place, WordRule]:
    words = results.study.corpus_sums.heads[results.stack.name].strongest_words
    labels = [
        label
        for label in results.labels(ids.SURFACE_RULE)
        if results.has_value(ids.SURFACE_RULE, VIEW, label)
    ]
    if results.stack.crosses or results.baseline or words is None or not labels:
        return {}
    present = ~np.isnan(results.heads(ids.SURFACE_RULE, VIEW, labels[0]).value)
    return tested_rules(words, present)


def tested_rules(words: StrongestWords, present: NDArray[np.bool_]) -> dict[Place, WordRule]:
    """Choose a class rule for each head on one split, and test it on the other.

    Args:
        words: strongest words of all heads.
        present: mask of the stack's heads. *Shape:* ``(layer, head)``.
    """
    selection, held_out = words.of(SELECTION), words.of(HELD_OUT)
    n_words = np.bincount(held_out.sentence[held_out.has_others], minlength=len(held_out.lengths))
    if not selection.has_others.any() or not n_words.any():
        return {}
    best = _chosen(selection)
    named, taken = held_out.named(), held_out.taken()
    hits = np.zeros((len(held_out.lengths), *present.shape), np.int64)
    for rule in np.unique(best[present]).tolist():
        hits = np.where(best == rule, rule_hits(held_out, named[rule]), hits)
    beyond = [hits - rule_hits(held_out, taken[place]) for place in range(len(OFFSETS))]
    margins = [held_out_estimates(more, n_words[:, None, None], (-1, 1)) for more in beyond]
    keys, clusters = sign_clusters(held_out, len(words.index))
    differences = np.zeros((len(keys), *present.shape, len(OFFSETS)), np.float32)
    for number, difference in enumerate(beyond):
        np.add.at(differences[..., number], clusters, difference)
    p = sign_flip_p(differences, present, keys)
    supported = [is_supported(p[..., place], margins[place]) for place in range(len(OFFSETS))]
    tests = {}
    for layer, head in np.argwhere(present).tolist():
        of_offsets = [margin.at(layer, head) for margin in margins]
        nearest = min(range(len(OFFSETS)), key=lambda place: of_offsets[place].value)
        tests[layer, head] = WordRule(
            words.rules[best[layer, head]], OFFSETS[nearest], of_offsets[nearest],
            float(p[layer, head].max()), all(bool(beats[layer, head]) for beats in supported),
        )  # fmt: skip
    return tests


def _chosen(selection: StrongestWords) -> Ints:
    """Return the class rule that names most strongest words of each head, of equal ones the first.

    *Shape:* ``(layer, head)``, indices of `StrongestWords.rules`.
    """
    totals = []
    for rule, word in zip(selection.rules, selection.named(), strict=True):
        total = rule_hits(selection, word).sum(0)
        totals.append(total if rule.partition(":")[0] in SIDES else np.full_like(total, -1))
    best: Ints = np.apply_along_axis(best_rule, -1, np.stack(totals, -1))
    return best
