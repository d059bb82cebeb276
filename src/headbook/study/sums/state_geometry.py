"""Sums that describe the geometry of a stack's states, and names of states. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import FIELDS, N_SPLITS, RatioSums, add_fields
from headbook.analysis.arrays import Floats, divide
from headbook.analysis.state_vectors import Jackknife, largest_dimensions, outliers_by_mean
from headbook.metrics import ids, interval_rules
from headbook.schema import ResidualPoint
from headbook.study.sums.token_sums import PATH_STATES

CKA, OUTLIERS = ids.LAYER_CKA, ids.OUTLIER_DIMENSIONS  # metrics with numbers outside `columns`


class StateColumn(NamedTuple):
    """Metric and label of one number of a state."""

    metric: str
    label: str


@dataclass(frozen=True, eq=False)
class GeometrySums:
    """Geometry of the states of one stack, on a sample of sentences.

    States are the input of the first layer and the output of each layer. Tokens are compared with
    each other, so that the numbers of two samples do not add up to those of both.

    Attributes:
        columns: keys of the last dimension of ``states``.
        states: *Shape:* ``(state, column)``; all sentences count in the first half.
        products: similarities of every two states, summed over minibatches. *Shape:* ``(state,
            state)``, or ``(0, 0)`` if not measured.
        minibatches: number of minibatches.
        dimensions: contribution of each dimension to the mean cosine, times ``weights``. *Shape:*
            ``(state, width)``.
        weights: sentences behind ``dimensions``; 0 without a mean cosine. *Shape:* ``(state,)``.
        sentences, tokens: numbers of sentences and of tokens in the sample.
    """

    columns: tuple[StateColumn, ...]
    states: RatioSums
    products: Floats
    minibatches: int
    dimensions: Floats
    weights: Floats
    sentences: int
    tokens: int

    @cached_property
    def cka(self) -> Floats:
        """Linear CKA of every two states; NaN if not measured. *Shape:* ``(state, state)``."""
        if not self.products.size:
            return np.full((len(self.weights),) * 2, np.nan)
        norms = np.sqrt(np.diag(self.products))
        return divide(self.products, norms[:, None] * norms)

    @cached_property
    def contributions(self) -> Floats:
        """Contribution of each dimension to the mean cosine. *Shape:* ``(state, width)``."""
        return divide(self.dimensions, self.weights[:, None])

    def largest(self, state: int, number: int) -> list[int]:
        """Return the dimensions that add most to the mean cosine of a state, if it has one."""
        return (
            largest_dimensions(self.contributions[state], number).tolist()
            if self.weights[state]
            else []
        )

    def of(self, metric: str, label: str) -> RatioSums:
        """Return the sums of a number of every state; zero sentences if it was not measured."""
        column = StateColumn(metric, label)
        if column not in self.columns:
            return RatioSums.zero(len(self.weights))
        return self.states[:, self.columns.index(column)]

    @cached_property
    def ends(self) -> tuple[Floats, Floats]:
        """Ends of the intervals of all numbers, within bounds. *Shape:* ``(state, column)``."""
        return self.states.interval(*interval_rules(self.columns))

    def above(self, metric: str, label: str) -> NDArray[np.bool_]:
        """Whether the interval of a number lies above 0, for every state."""
        column = StateColumn(metric, label)
        if column not in self.columns:
            return np.zeros(len(self.weights), np.bool_)
        return np.asarray(self.ends[0][:, self.columns.index(column)] > 0)


@dataclass(frozen=True, eq=False)
class StateMeans:
    """Sums of the states of one stack over all tokens of text, from which means follow.

    Attributes:
        input: sum of the vectors that enter layer 0. *Shape:* ``(width,)``.
        total: sums of vectors over tokens; the second dimension is that of `PATH_STATES`, and
            states that a stack lacks are 0. *Shape:* ``(layer, 2, width)``.
        tokens: number of tokens.
    """

    input: Floats
    total: Floats
    tokens: int

    __add__ = add_fields

    def mean(self, layer: int, state: ResidualPoint) -> Floats:
        """Return the mean of each dimension of a state; NaN without tokens.

        *Shape:* ``(width,)``.
        """
        is_input = state is ResidualPoint.PRE
        total = self.input if is_input else self.total[layer, PATH_STATES.index(state)]
        return divide(total, self.tokens)

    def outliers(self, layer: int, state: ResidualPoint) -> tuple[int, ...]:
        """Return the outlier dimensions of a state; see `outliers_by_mean`."""
        return tuple(outliers_by_mean(self.mean(layer, state)).tolist())


def to_ratio_sums(estimates: Sequence[Sequence[Jackknife]], sentences: int) -> RatioSums:
    """Return the numbers of a sample as sums, each weighted by the number of sentences.

    The deviations of the jackknife take the place of those of sentences in `RatioSums`, so that
    the interval is that of the jackknife.

    Args:
        estimates: jackknife estimates by state and column.
    """
    sums = np.zeros((len(FIELDS), N_SPLITS, len(estimates), len(estimates[0])))
    for state, row in enumerate(estimates):
        for column, estimate in enumerate(row):
            sums[:, 0, state, column] = _jackknife_sums(estimate, sentences)
    return RatioSums(sums)


def _jackknife_sums(estimate: Jackknife, sentences: int) -> tuple[float, ...]:
    """Return the sums `FIELDS` of one estimate; zeros if the estimate is missing."""
    value, leave_one_out, events = estimate
    if not np.isfinite(value):
        return (0.0,) * len(FIELDS)
    # The jackknife has (n - 1) / n before its squares, a ratio's interval n / (n - 1).
    deviations = (sentences - 1) * (leave_one_out - leave_one_out.mean())
    squares = float(deviations @ deviations)
    return sentences * value, sentences, squares, 0.0, 0.0, sentences, events, sentences


def state_names(states: int) -> list[tuple[int | None, ResidualPoint]]:
    """Return layer and state: the input, which has no layer, and the output of each layer."""
    return [
        (None, ResidualPoint.PRE),
        *((layer, ResidualPoint.POST) for layer in range(states - 1)),
    ]


def short_names(states: int) -> list[str]:
    """Return the names of states in figures: ``input`` and the numbers of the layers."""
    return [str(state if layer is None else layer) for layer, state in state_names(states)]
