"""Which heads of one model attend like which heads of another, whatever their shapes are.

Taken between the words that both have read, on the sentences whose maps both studies keep. Where
one of the two sees earlier words only, both are compared on these alone.
"""

from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import CHOICE, REPORT
from headbook.analysis.arithmetic import Floats
from headbook.analysis.matching import (
    NONE,
    Matching,
    Similarities,
    found_again,
    match,
    null_threshold,
)
from headbook.comparison.maprows import shared_words, word_rows
from headbook.comparison.sides import Sides, StackPair
from headbook.study.sentencedata import HeadName, heads_of
from headbook.terms import Stack

LEAST = 30  # words that two heads need to be compared


@dataclass(frozen=True, eq=False)
class MatchedHeads:
    """The heads of two stacks held against each other by where they look.

    Attributes:
        a, b: the heads of both, layer by layer.
        similarity: of every two; NaN below `LEAST` words. *Shape:* ``(head of A, head of B)``.
        matching: one to one.
        stability: share of the counterparts of one half of the sentences that the other half gives
            again; NaN without any.
        sentences: how many were compared.
        tested: whether a model without training tells what a counterpart needs.
        cut: whether both were compared on earlier words alone.
    """

    a: tuple[HeadName, ...]
    b: tuple[HeadName, ...]
    similarity: Floats
    matching: Matching
    stability: float
    sentences: int
    tested: bool
    cut: bool

    def partner(self, place: int) -> HeadName | None:
        """The head that a head of A is matched with, where that is a counterpart."""
        matched = self.matching
        there = matched.counterpart[place] and matched.partner[place] != NONE
        return self.b[matched.partner[place]] if there else None


def matched_heads(sides: Sides, pair: StackPair, null: Sides | None = None) -> MatchedHeads:
    """Match the heads of two stacks.

    Args:
        null: the first model and the second with random weights.
    """
    sums = similarities(sides, pair)
    below = similarities(null, null.stacks[sides.stacks.index(pair)]) if null is not None else None
    halves = [
        _matched(sums.half(number), below and below.half(number), LEAST // 2)
        for number in (CHOICE, REPORT)
    ]
    return MatchedHeads(
        tuple(heads_of(pair.a)),
        tuple(heads_of(pair.b)),
        sums.value(LEAST),
        _matched(sums, below, LEAST),
        found_again(*halves),
        int(sums.sentences.sum()),
        null is not None,
        pair.a.causal != pair.b.causal,
    )


def _matched(sums: Similarities, below: Similarities | None, least: int) -> Matching:
    """One to one; every pair is a counterpart where no model without training was compared."""
    threshold = null_threshold(below.value(least)) if below is not None else 0.0
    return match(sums.value(least), threshold)


def similarities(sides: Sides, pair: StackPair) -> Similarities:
    """Sums over the sentences whose maps both studies keep."""
    zero = Similarities.zero(len(heads_of(pair.a)), len(heads_of(pair.b)))
    cut = pair.a.causal != pair.b.causal
    parts = []
    keys = sorted(sides.a.map_sample.sentences.keys() & sides.b.map_sample.sentences.keys())
    for key, (one, other) in zip(keys, sides.mapped(), strict=True):
        words = shared_words(one, other, pair.a.keys, (pair.a.causal, pair.b.causal))
        if not words.spans or one.texts[pair.a.keys].text != other.texts[pair.b.keys].text:
            continue
        rows = [
            word_rows(sentence, stack, words, causal=cut)
            for sentence, stack in ((one, pair.a), (other, pair.b))
        ]
        kept = [_present(pair.a), _present(pair.b)]
        some = [
            type(each)(each.weights[there], each.counted[there])
            for each, there in zip(rows, kept, strict=True)
        ]
        parts.append(Similarities.of(some[0], some[1], key & 1))
    return reduce(add, parts, zero)


def _present(stack: Stack) -> NDArray[np.bool_]:
    """Which heads, layer by layer, are in layers with attention."""
    there = np.zeros((stack.n_layers, stack.n_heads), bool)
    there[[*stack.attention_layers]] = True
    return there.reshape(-1)
