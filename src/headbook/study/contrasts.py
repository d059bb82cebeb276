"""Differences: of heads between groups of sentences, and within pairs of sentences. No torch.

*Groups* are independent samples: variances, clustered by sentence, add up, with the degrees of
freedom of Welch and Satterthwaite. *Pairs* are their own clusters: the difference of the two
sentences' values is one observation. For pairs p is family-wise over all heads and numbers that are
compared, by flips of signs (`headbook.analysis.multiple_testing`); for groups it is for one
comparison.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from headbook.analysis.accumulators import RatioSums
from headbook.analysis.arrays import Floats, Ints, divide
from headbook.analysis.intervals import MIN_EFFECTIVE, UNBOUNDED, Limits, clipped, of_difference
from headbook.analysis.multiple_testing import sign_flip_p
from headbook.metrics import all_metrics
from headbook.schema import HeadKey
from headbook.study.corpus_sums import HeadSums
from headbook.study.groups import PairMembers

FIRST, SECOND = "first", "second"  # names of members that only their order tells apart


class Contrast(NamedTuple):
    """Differences of two values; NaN if either has no interval. All arrays have one shape.

    Attributes:
        value: difference of the two values.
        low, high: ends of its 95 % confidence interval.
        p: two-sided p value of this comparison alone.
    """

    value: Floats
    low: Floats
    high: Floats
    p: Floats


def contrast(one: RatioSums, other: RatioSums, limits: Limits = UNBOUNDED) -> Contrast:
    """Return the difference of two independent samples; NaN if the variance is 0.

    Args:
        limits: least and largest possible value of each sample.
    """
    parts = [
        (r.variance(limits), np.where(r.n_effective >= MIN_EFFECTIVE, r.n_effective, np.nan))
        for r in (one, other)
    ]
    variance = sum(spread for spread, _ in parts)
    freedom = divide(variance**2, sum(divide(v**2, n - 1) for v, n in parts))
    value = np.where(np.isnan(freedom), np.nan, one.value - other.value)
    error = np.sqrt(variance)
    reach = stdtrit(freedom, 0.975) * error
    p = 2 * stdtr(freedom, -np.abs(divide(value, error)))
    return Contrast(value, *clipped(value - reach, value + reach, of_difference(limits)), p)


@dataclass(frozen=True, eq=False)
class PairDifferences:
    """Differences within pairs of sentences: the first member minus the second.

    Attributes:
        columns: keys of the last dimension of the numbers.
        member_column: the metadata column that tells members apart; empty if their order does.
        members: values of both members in ``member_column``.
        pairs: number of pairs with two members.
        left_out: number of pairs with fewer or more members.
        first, second: means over pairs in which both members have a value. *Shape:*
            ``(layer, head, column)``.
        difference: sums of the differences, clustered by pair. *Shape:* ``(layer, head, column)``.
        p: p values, family-wise over ``family`` heads and columns. *Shape:*
            ``(layer, head, column)``.
        family: number of heads and columns that were tested together.
    """

    columns: tuple[HeadKey, ...]
    member_column: str
    members: tuple[str, str]
    pairs: int
    left_out: int
    first: Floats
    second: Floats
    difference: RatioSums
    p: Floats
    family: int

    @cached_property
    def ends(self) -> tuple[Floats, Floats]:
        """Ends of the intervals of ``difference``, within bounds, in arrays of its shape."""
        known = [all_metrics().get(column.metric) for column in self.columns]
        limits = np.array([UNBOUNDED if m is None else m.limits for m in known]).reshape(-1, 2).T
        return clipped(*self.difference.interval(), of_difference((limits[0], limits[1])))


def pair_differences(
    sums: HeadSums, present: NDArray[np.bool_], member_column: str | None = None
) -> PairDifferences | None:
    """Compare the members of all stored pairs; None without pairs.

    Args:
        present: mask of the heads that the model has. *Shape:* ``(layer, head)``.
        member_column: the column that tells members apart; None to find one.
    """
    kept = sums.members
    if kept is None or not len(kept.pair):
        return None
    column, names, rows = _matched(kept, member_column)
    if not len(rows):
        return None
    values = kept.values.astype(np.float64)[rows.T]  # (member, pair, layer, head, column)
    differences = values[0] - values[1]
    both = ~np.isnan(differences)
    counted = both.astype(np.float64)
    ahead = np.where(both, differences, 0.0)
    first, second = (divide(np.where(both, v, 0.0).sum(0), counted.sum(0)) for v in values)
    p = sign_flip_p(ahead, present, kept.pair[rows[:, 0]], two_sided=True)
    takes_part = present[..., None] & both.any(0)
    return PairDifferences(
        tuple(sums.table.columns[position] for position in kept.places),
        column,
        names,
        len(rows),
        len(np.unique(kept.pair)) - len(rows),
        first,
        second,
        RatioSums.of(ahead, counted, counted, np.zeros(len(rows), np.int64)),
        np.where(takes_part & (counted.sum(0) >= 2), p, np.nan),
        int(takes_part.sum()),
    )


def _matched(kept: PairMembers, member_column: str | None) -> tuple[str, tuple[str, str], Ints]:
    """Return the column that tells members apart, its two values, and the rows of each pair.

    *Shape* of the rows: ``(pair, 2)``, the member of the first value first.
    """
    order = np.lexsort((kept.index, kept.pair))
    _, starts, sizes = np.unique(kept.pair[order], return_index=True, return_counts=True)
    rows = order[starts[sizes == 2][:, None] + np.arange(2)]
    by_name = sorted(kept.labels, key=lambda name: (name != "label", name))
    for column in by_name if member_column is None else [member_column]:
        members = _set_apart(kept, column, rows)
        if members is not None and (member_column or len(members[1]) == len(rows)):
            return column, *members
    return (
        ("", (FIRST, SECOND), rows)
        if member_column is None
        else (member_column, ("", ""), rows[:0])
    )


def _set_apart(kept: PairMembers, column: str, rows: Ints) -> tuple[tuple[str, str], Ints] | None:
    """Return the two values of a column and the pairs that have both.

    The first value is that of the first sentence. None if the column has not exactly two values.
    """
    texts = np.array(kept.texts(column))
    ordered = rows.ravel()[np.argsort(kept.index[rows.ravel()])]
    values = [*dict.fromkeys(text for text in texts[ordered].tolist() if text)]
    if len(values) != 2:
        return None
    first, second = values
    straight = (texts[rows] == (first, second)).all(1)
    turned = (texts[rows] == (second, first)).all(1)
    found = np.where(turned[:, None], rows[:, ::-1], rows)[straight | turned]
    return (first, second), found
