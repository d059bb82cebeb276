"""Test of whether a head attends from other words to the next noun or verb, and the like.

A *target* is the nearest word of some classes to one side, such as the next noun or verb. A word is
a case of it if it has such a word, is of another class itself, and is no punctuation. The best
fixed offset is the one at which most targets stand; always attending to it would find that many.

For each head the target is chosen on the selection split, by the margin over the best fixed
offset, and reported on the held-out split. *Null hypothesis:* the vector of differences of a
sentence (cases that a head finds minus cases that the offset finds), over all heads and targets, is
as likely as the vector with the opposite sign. p-values are family-wise over all heads and targets,
as in `headbook.report.relation_tests`.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import HELD_OUT, SELECTION, Estimate
from headbook.analysis.arrays import Ints
from headbook.analysis.multiple_testing import ALPHA, sign_flip_p
from headbook.attention.surface_rules import NO_SELECTION, OFFSETS
from headbook.report.relation_counts import best_rule, held_out_estimates, words_of
from headbook.report.relation_tests import sign_clusters
from headbook.report.results import StackResults
from headbook.study.sums.word_samples import StrongestWords

MIN_SHARE = 0.5  # share of the cases that a head has to find
MIN_CASES = 50  # words of the held-out split
MIN_CASE_SENTENCES = 20  # sentences of the held-out split with a case
Place = tuple[int, int]  # layer and head


class Target(NamedTuple):
    """The nearest word of some classes to one side.

    Attributes:
        side: ``next`` or ``previous``.
        tags: parts of speech.
        noun: name of such a word on pages.
    """

    side: str
    tags: tuple[str, ...]
    noun: str

    @property
    def phrase(self) -> str:
        """Name of the target on pages: ``the next noun or verb``."""
        return f"the {self.side} {self.noun}"


CLASSES = {"noun or verb": ("NOUN", "PROPN", "VERB"), "punctuation mark": ("PUNCT",)}
TARGETS = tuple(
    Target(side, tags, noun) for side in ("next", "previous") for noun, tags in CLASSES.items()
)


class NextWordTest(NamedTuple):
    """Cases of its best target that one head finds, on the held-out split.

    Attributes:
        target: the target.
        share: share of the cases whose strongest other word is the target.
        offset: the best fixed offset, in words.
        at_offset: share of the same cases whose target stands at the offset.
        mean: mean of ``share`` over all heads.
        margin: ``share`` minus ``at_offset``.
        p: family-wise p-value.
        chosen: margin on the selection split, by which the target is chosen.
    """

    target: Target
    share: Estimate
    offset: int
    at_offset: Estimate
    mean: Estimate
    margin: Estimate
    p: float
    chosen: float

    @property
    def supported(self) -> bool:
        """Whether the head finds half of the cases, and more than the offset, on enough words."""
        enough = self.share.events >= MIN_CASES and self.share.sentences >= MIN_CASE_SENTENCES
        above = self.p < ALPHA and self.margin.low > 0
        return bool(enough and above and self.share.value >= MIN_SHARE)


class TargetCounts(NamedTuple):
    """Cases of one target, and those that offsets and heads find, by sentence.

    Attributes:
        cases: number of cases. *Shape:* ``(sentence,)``.
        heads: cases that each head finds. *Shape:* ``(sentence, layer, head)``.
        offsets: cases whose target stands at each of `OFFSETS`. *Shape:* ``(sentence, offset)``.
    """

    cases: Ints
    heads: Ints
    offsets: Ints


def next_word_tests(results: StackResults) -> Mapping[Place, NextWordTest]:
    """Return the test of each head, by layer and number; empty without parts of speech."""
    return results.cached(_tests)


def _tests(results: StackResults) -> dict[Place, NextWordTest]:
    words_and_heads = words_of(results)
    if words_and_heads is None:
        return {}
    words, present = words_and_heads
    halves = words.of(SELECTION), words.of(HELD_OUT)
    named = [half.named() for half in halves]
    found: list[tuple[Target, TargetCounts, TargetCounts]] = []
    for target in TARGETS:
        counts = [count_target(*half, target) for half in zip(halves, named, strict=True)]
        if all(half.cases.any() for half in counts):
            found.append((target, counts[0], counts[1]))
    if not found:
        return {}
    offsets = [best_rule(selection.offsets.sum(0)) for _, selection, _ in found]
    margins = [
        (selection.heads.sum(0) - selection.offsets[:, offset].sum()) / selection.cases.sum()
        for (_, selection, _), offset in zip(found, offsets, strict=True)
    ]
    best = np.argmax(margins, 0)
    beyond = [
        held_out.heads - held_out.offsets[:, offset, None, None]
        for (_, _, held_out), offset in zip(found, offsets, strict=True)
    ]
    keys, clusters = sign_clusters(halves[1], len(words.index))
    differences = np.zeros((len(keys), *present.shape, len(found)), np.float32)
    for number, difference in enumerate(beyond):
        np.add.at(differences[..., number], clusters, difference)
    p = sign_flip_p(differences, present, keys)
    tests = {}
    for layer, head in np.argwhere(present).tolist():
        number = int(best[layer, head])
        target, _, held_out = found[number]
        parts = (
            held_out_estimates(numerators, held_out.cases, limits).at()
            for numerators, limits in (
                (held_out.heads[:, layer, head], (0, 1)),
                (held_out.offsets[:, offsets[number]], (0, 1)),
                (held_out.heads[:, present].mean(1), (0, 1)),
                (beyond[number][:, layer, head], (-1, 1)),
            )
        )
        share, at_offset, mean, margin = parts
        tests[layer, head] = NextWordTest(
            target, share, OFFSETS[offsets[number]], at_offset, mean, margin,
            float(p[layer, head, number]), float(margins[number][layer, head]),
        )  # fmt: skip
    return tests


def count_target(words: StrongestWords, named: NDArray[np.int32], target: Target) -> TargetCounts:
    """Count the cases of a target, and those that heads and offsets find.

    Args:
        named: the word that each rule names, see `StrongestWords.named`.
    """
    numbers = [words.rules.index(f"{target.side}:{tag}") for tag in target.tags]
    candidates = named[numbers].astype(np.int64)
    far = np.int64(len(words.tag))
    if target.side == "next":
        nearest = np.where(candidates < 0, far, candidates).min(0)
        nearest = np.where(nearest == far, NO_SELECTION, nearest)
    else:
        nearest = candidates.max(0)
    apart = [words.scheme.tags.index(tag) for tag in {*target.tags, "PUNCT"}]
    is_case = words.has_others & (nearest >= 0) & (words.tag >= 0) & ~np.isin(words.tag, apart)
    cases = np.flatnonzero(is_case)
    sentence, n_sentences = words.sentence[cases], len(words.lengths)
    hits = words.strongest[cases] == nearest[cases, None, None]
    heads = np.zeros((n_sentences, *hits.shape[1:]), np.int64)
    np.add.at(heads, sentence, hits)
    distance = nearest - (np.arange(len(nearest)) - words.first)
    offsets = np.zeros((n_sentences, len(OFFSETS)), np.int64)
    np.add.at(offsets, sentence, distance[cases, None] == np.array(OFFSETS))
    return TargetCounts(np.bincount(sentence, minlength=n_sentences), heads, offsets)
