"""Differences of heads between groups of sentences, and within pairs of sentences. No torch.

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


def contrast(first: RatioSums, second: RatioSums, limits: Limits = UNBOUNDED) -> Contrast:
    """Return the difference of two independent samples; NaN if the variance is 0.

    Args:
        first, second: sums of the two samples; the difference is ``first`` minus ``second``.
        limits: least and largest possible value of each sample.
    """
    variances = [ratios.variance(limits) for ratios in (first, second)]
    sizes = [
        np.where(ratios.n_effective >= MIN_EFFECTIVE, ratios.n_effective, np.nan)
        for ratios in (first, second)
    ]
    variance = sum(variances)
    squares = (divide(v**2, n - 1) for v, n in zip(variances, sizes, strict=True))
    degrees_of_freedom = divide(variance**2, sum(squares))
    value = np.where(np.isnan(degrees_of_freedom), np.nan, first.value - second.value)
    standard_error = np.sqrt(variance)
    half_width = stdtrit(degrees_of_freedom, 0.975) * standard_error
    p = 2 * stdtr(degrees_of_freedom, -np.abs(divide(value, standard_error)))
    return Contrast(
        value, *clipped(value - half_width, value + half_width, of_difference(limits)), p
    )


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
        metrics = [all_metrics().get(column.metric) for column in self.columns]
        limits = np.array([UNBOUNDED if m is None else m.limits for m in metrics]).reshape(-1, 2).T
        return clipped(*self.difference.interval(), of_difference((limits[0], limits[1])))


def pair_differences(
    sums: HeadSums, present: NDArray[np.bool_], member_column: str | None = None
) -> PairDifferences | None:
    """Compare the members of all stored pairs; None without pairs.

    Args:
        sums: sums of one stack, with the stored members of pairs.
        present: mask of the heads that the model has. *Shape:* ``(layer, head)``.
        member_column: the column that tells members apart; None to find one.
    """
    members = sums.members
    if members is None or not len(members.pair):
        return None
    column, member_values, rows = _match_members(members, member_column)
    if not len(rows):
        return None
    values = members.values.astype(np.float64)[rows.T]  # (member, pair, layer, head, column)
    differences = values[0] - values[1]
    in_both = ~np.isnan(differences)
    counted = in_both.astype(np.float64)
    known_differences = np.where(in_both, differences, 0.0)
    first, second = (
        divide(np.where(in_both, of_member, 0.0).sum(0), counted.sum(0)) for of_member in values
    )
    p = sign_flip_p(known_differences, present, members.pair[rows[:, 0]], two_sided=True)
    tested = present[..., None] & in_both.any(0)
    return PairDifferences(
        tuple(sums.table.columns[position] for position in members.places),
        column,
        member_values,
        len(rows),
        len(np.unique(members.pair)) - len(rows),
        first,
        second,
        RatioSums.of(known_differences, counted, counted, np.zeros(len(rows), np.int64)),
        np.where(tested & (counted.sum(0) >= 2), p, np.nan),
        int(tested.sum()),
    )


def _match_members(
    stored: PairMembers, member_column: str | None
) -> tuple[str, tuple[str, str], Ints]:
    """Return the column that tells members apart, its two values, and the rows of each pair.

    *Shape* of the rows: ``(pair, 2)``, the member of the first value first.
    """
    order = np.lexsort((stored.index, stored.pair))
    _, starts, sizes = np.unique(stored.pair[order], return_index=True, return_counts=True)
    rows = order[starts[sizes == 2][:, None] + np.arange(2)]
    candidates = sorted(stored.labels, key=lambda name: (name != "label", name))
    for column in candidates if member_column is None else [member_column]:
        distinguished = _split_by_column(stored, column, rows)
        if distinguished is not None and (member_column or len(distinguished[1]) == len(rows)):
            return column, *distinguished
    return (
        ("", (FIRST, SECOND), rows)
        if member_column is None
        else (member_column, ("", ""), rows[:0])
    )


def _split_by_column(
    stored: PairMembers, column: str, rows: Ints
) -> tuple[tuple[str, str], Ints] | None:
    """Return the two values of a column and the pairs that have both.

    The first value is that of the first sentence. None if the column has not exactly two values.
    """
    texts = np.array(stored.texts(column))
    ordered = rows.ravel()[np.argsort(stored.index[rows.ravel()])]
    values = [*dict.fromkeys(text for text in texts[ordered].tolist() if text)]
    if len(values) != 2:
        return None
    first, second = values
    in_order = (texts[rows] == (first, second)).all(1)
    reversed_order = (texts[rows] == (second, first)).all(1)
    pair_rows = np.where(reversed_order[:, None], rows[:, ::-1], rows)[in_order | reversed_order]
    return (first, second), pair_rows
