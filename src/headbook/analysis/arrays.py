"""Types of arrays, and quotients that are NaN without observations. Imports no torch."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

MIN_NUMERATOR = 1e-6  # smaller numerators of a sentence differ from 0 by rounding only

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def divide(top: ArrayLike, bottom: ArrayLike) -> Floats:
    """Return the quotient of two arrays, broadcast; NaN where the denominator is not above 0."""
    top, bottom = np.broadcast_arrays(top, bottom)
    quotient: Floats = np.full(bottom.shape, np.nan)
    np.divide(top, bottom, out=quotient, where=bottom > 0)
    return quotient


def mean_ranks(values: Floats) -> Floats:
    """Return ranks from 0; equal values have their mean rank."""
    _, value_index, count = np.unique(values, return_inverse=True, return_counts=True)
    last_rank = np.cumsum(count)
    ranks: Floats = (last_rank - (count + 1) / 2)[value_index]
    return ranks


def effective_number(sizes: Floats) -> float:
    """Return the effective number of parts: the exponential of the entropy of their shares.

    Args:
        sizes: sizes of the parts, which need not sum to 1; zeros and NaN are ignored.
    """
    positive = sizes[sizes > 0]
    if not len(positive):
        return float("nan")
    shares = positive / positive.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))
