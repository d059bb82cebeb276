"""How far the attention of corresponding heads is apart, with what rounding and chance would give.

Taken on the sentences whose maps both studies keep and which both read as the same tokens: not on
targets that each model wrote for itself. *Floor:* the same of the first model and itself
in bfloat16, where such a study is given: what rounding alone does. *Ceiling:* the same of each head
of the first model and another head of its layer in the second, the next one: what heads that do
not correspond differ by.
"""

from collections.abc import Iterator
from math import log

import numpy as np

from headbook.analysis.accumulators import Ratios
from headbook.analysis.arithmetic import Floats
from headbook.analysis.divergence import Drift, pattern_drift
from headbook.comparison.headdifferences import HeadDifferences
from headbook.comparison.maprows import token_rows
from headbook.comparison.modeldifferences import ComparedColumn
from headbook.comparison.sides import Sides, StackPair, same_ids
from headbook.report.numbers.results import Estimates
from headbook.study.mapsample import MappedSentence
from headbook.terms import View

PATTERN_DRIFT = "pattern_drift"
SHUFFLED = "heads shuffled"  # labels of the same number for what it is compared with
ROUNDED = "bfloat16"
LIMITS = (0.0, log(2))


def drifts(sides: Sides, pair: StackPair) -> Iterator[HeadDifferences]:
    """Divergence of corresponding heads in all views, and the ceiling, for models of one shape."""
    asked = {pair.a.queries, pair.a.keys}
    sentences = [(one, other) for one, other in sides.mapped() if same_ids(one, other, asked)]
    if not sentences:
        return
    for label, shift in (("", 0), (SHUFFLED, 1)):
        if shift and pair.a.n_heads == 1:
            continue
        for view in View:
            found = [_drift(one, other, pair, view, shift) for one, other in sentences]
            yield _numbers(ComparedColumn(PATTERN_DRIFT, str(view), label), found, pair)


def floor(sides: Sides, pair: StackPair) -> Iterator[HeadDifferences]:
    """The same of the first model and itself with rounded weights.

    Args:
        sides: the two, as if they were different models.
    """
    for each in drifts(sides, pair):
        (column,) = each.columns
        if not column.label:
            yield each.named((column._replace(label=ROUNDED),))


def _drift(
    one: MappedSentence, other: MappedSentence, pair: StackPair, view: View, shift: int
) -> Drift:
    """Of one sentence; of heads that do not correspond, where they are shifted."""
    mine, theirs = token_rows(one, pair.a, view), token_rows(other, pair.b, view)
    if shift:
        numbers = np.arange(len(theirs.weights)).reshape(-1, pair.b.n_heads)
        order = np.roll(numbers, -shift, 1).reshape(-1)
        theirs = type(theirs)(theirs.weights[order], theirs.counted[order])
    return pattern_drift(mine, theirs)


def _numbers(column: ComparedColumn, found: list[Drift], pair: StackPair) -> HeadDifferences:
    """Means over queries with intervals clustered by sentence, of heads that there are."""
    shape = (len(found), pair.a.n_layers, pair.a.n_heads, 1)
    n, d = (np.stack(parts).reshape(shape) for parts in zip(*found, strict=True))
    there = np.zeros((pair.a.n_layers, 1, 1), bool)
    there[[*pair.a.attention_layers]] = True
    d = np.where(there, d, 0)
    numbers = Estimates.of(Ratios.of(n, d, d, np.zeros(len(n), np.int64)), LIMITS)
    nothing: Floats = np.full(shape[1:], np.nan)
    values = numbers.value, numbers.low, numbers.high
    return HeadDifferences((column,), nothing, nothing, *values, nothing, numbers.sentences)
