"""What is kept of the shape of a stack's states: sums that add, and their table. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import FIELDS, N_SPLITS, RatioSums, add_fields
from headbook.analysis.arrays import Floats, divide
from headbook.analysis.state_vectors import Jackknife, largest_dimensions
from headbook.metrics import all_metrics, ids
from headbook.schema import ResidualPoint

CKA, OUTLIERS = ids.LAYER_CKA, ids.OUTLIER_DIMENSIONS  # metrics with numbers beyond the columns


class StateColumn(NamedTuple):
    """What one number of a state is."""

    metric: str
    label: str


@dataclass(frozen=True, eq=False)
class GeometrySums:
    """The shape of the states of one stack, on a sample; the samples of two studies add up.

    A number of both is the mean of theirs, weighted by sentences: tokens of different samples are
    not compared with each other. States are the input and the output of each layer.

    Attributes:
        columns: what the last dimension of ``states`` holds.
        states: *Shape:* ``(state, column)``; all sentences stand in the first half.
        products: how alike every two states are, added up over minibatches. *Shape:* ``(state,
            state)``, or ``(0, 0)`` where nobody asked.
        minibatches: how many there were.
        dimensions: what each dimension adds to the mean cosine, times ``weights``. *Shape:*
            ``(state, width)``.
        weights: sentences behind that; 0 where there is no mean cosine. *Shape:* ``(state,)``.
        sentences, tokens: how many were looked at.
    """

    columns: tuple[StateColumn, ...]
    states: RatioSums
    products: Floats
    minibatches: int
    dimensions: Floats
    weights: Floats
    sentences: int
    tokens: int

    __add__ = add_fields

    @cached_property
    def cka(self) -> Floats:
        """Linear CKA of every two states; NaN where there is none. *Shape:* ``(state, state)``."""
        if not self.products.size:
            return np.full((len(self.weights),) * 2, np.nan)
        own = np.sqrt(np.diag(self.products))
        return divide(self.products, own[:, None] * own)

    @cached_property
    def contributions(self) -> Floats:
        """What each dimension adds to the mean cosine; else NaN. *Shape:* ``(state, width)``."""
        return divide(self.dimensions, self.weights[:, None])

    def largest(self, state: int, most: int) -> list[int]:
        """The dimensions that add most to the mean cosine of a state; none where it has none."""
        return (
            largest_dimensions(self.contributions[state], most).tolist()
            if self.weights[state]
            else []
        )

    def of(self, metric: str, label: str) -> RatioSums:
        """A number of every state; no sentences, and so NaN, where nobody asked for it."""
        column = StateColumn(metric, label)
        if column not in self.columns:
            return RatioSums.zero(len(self.weights))
        return self.states[:, self.columns.index(column)]

    @cached_property
    def ends(self) -> tuple[Floats, Floats]:
        """Ends of the intervals of all numbers, within bounds. *Shape:* ``(state, column)``."""
        metrics = [all_metrics()[column.metric] for column in self.columns]
        least, most = np.array([metric.limits for metric in metrics]).reshape(-1, 2).T
        spread = [m.spread(c.label) for m, c in zip(metrics, self.columns, strict=True)]
        return self.states.interval((least, most), spread)

    def above(self, metric: str, label: str) -> NDArray[np.bool_]:
        """Whether the interval of a number lies above 0, for every state."""
        column = StateColumn(metric, label)
        if column not in self.columns:
            return np.zeros(len(self.weights), np.bool_)
        return np.asarray(self.ends[0][:, self.columns.index(column)] > 0)


def to_ratio_sums(estimates: Sequence[Sequence[Jackknife]], sentences: int) -> RatioSums:
    """Numbers of a sample as sums that add, each weighted by the number of sentences.

    The deviations of the jackknife stand where `RatioSums` has those of sentences, so that its
    interval is the jackknife's.

    Args:
        estimates: by state and column.
    """
    sums = np.zeros((len(FIELDS), N_SPLITS, len(estimates), len(estimates[0])))
    for state, row in enumerate(estimates):
        for column, estimate in enumerate(row):
            sums[:, 0, state, column] = _sums(estimate, sentences)
    return RatioSums(sums)


def _sums(estimate: Jackknife, sentences: int) -> tuple[float, ...]:
    """As in `FIELDS`; nothing where the number is missing."""
    value, without, events = estimate
    if not np.isfinite(value):
        return (0.0,) * len(FIELDS)
    # The jackknife has (n - 1) / n before its squares, a ratio's interval n / (n - 1).
    reach = (sentences - 1) * (without - without.mean())
    squares = float(reach @ reach)
    return sentences * value, sentences, squares, 0.0, 0.0, sentences, events, sentences


def state_names(states: int) -> list[tuple[int | None, ResidualPoint]]:
    """Layer and state: the input, which has no layer, and the output of each layer."""
    return [
        (None, ResidualPoint.PRE),
        *((layer, ResidualPoint.POST) for layer in range(states - 1)),
    ]


def short_names(states: int) -> list[str]:
    """How figures call the states: ``input`` and the numbers of the layers."""
    return [str(state if layer is None else layer) for layer, state in state_names(states)]
