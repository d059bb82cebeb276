"""The differences of every number of every head between two models of one shape.

From sums over the same sentences or buckets of sentences, pair by pair, so that a sentence that is
hard for both models widens no interval (`headbook.analysis.paired`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arithmetic import Floats, Ints
from headbook.analysis.flips import LEVEL
from headbook.analysis.paired import ClusterSums, differences, family_wise
from headbook.comparison.sides import Sides, StackPair
from headbook.metrics import all_metrics
from headbook.metrics.base import SampledMetric
from headbook.study.importancetables import EFFECT
from headbook.study.summaries.buckets import Buckets
from headbook.study.summaries.columns import HeadColumn
from headbook.study.summaries.finish import ABOUT
from headbook.study.summaries.removals import Removals, RemovedSet, SetKind
from headbook.study.summaries.sums import SampleSums
from headbook.terms import Spread


class ComparedColumn(NamedTuple):
    """What one number of two heads is; ``view`` is empty where there is none."""

    metric: str
    view: str
    label: str


@dataclass(frozen=True, eq=False)
class HeadDifferences:
    """Numbers of the heads of one stack in both models. *Shape* of all: ``(layer, head, column)``.

    Attributes:
        columns: what the last dimension holds.
        a, b: values; NaN where a head has none, or where a number is of both models at once.
        value: what ``b`` has more, or how far the two are apart.
        low, high: ends of its 95 % interval; NaN where there is none.
        p: family-wise over all heads and labels of a metric and view; NaN without interval, 1
            where both models are exactly equal.
        sentences: how many stand behind it, in the model where they are fewer.
    """

    columns: tuple[ComparedColumn, ...]
    a: Floats
    b: Floats
    value: Floats
    low: Floats
    high: Floats
    p: Floats
    sentences: Ints

    @property
    def supported(self) -> NDArray[np.bool_]:
        """Where the models differ: family-wise p below `LEVEL`, and an interval without 0."""
        with np.errstate(invalid="ignore"):
            found: NDArray[np.bool_] = (self.p < LEVEL) & ((self.low > 0) | (self.high < 0))
        return found

    def column(self, metric: str, view: str = "", label: str = "") -> int | None:
        """Where a number stands; None where there is none."""
        wanted = ComparedColumn(metric, view, label)
        return self.columns.index(wanted) if wanted in self.columns else None

    def named(self, columns: tuple[ComparedColumn, ...]) -> "HeadDifferences":
        """The same numbers under other names."""
        return replace(self, columns=columns)

    @classmethod
    def beside(cls, parts: "Sequence[HeadDifferences]") -> "HeadDifferences":
        """Several, column by column."""
        names = ("a", "b", "value", "low", "high", "p", "sentences")
        return cls(
            tuple(column for part in parts for column in part.columns),
            *(np.concatenate([getattr(part, name) for part in parts], -1) for name in names),
        )


def head_differences(sides: Sides, pair: StackPair) -> HeadDifferences:
    """All numbers that both studies have, for models whose heads correspond."""
    parts = [
        *_of_buckets(sides, pair.a.name),
        *_of_samples(sides, pair.a.name),
        *_of_removals(sides, pair),
    ]
    return HeadDifferences.beside(parts)


def compared(columns: Sequence[ComparedColumn], a: ClusterSums, b: ClusterSums) -> HeadDifferences:
    """Differences of the columns of one metric and view, tested together.

    Args:
        a, b: *Shape:* ``(cluster, layer, head, column)``.
    """
    known = all_metrics().get(columns[0].metric)
    spread = [known.spread(c.label) if known else Spread.USUAL for c in columns]
    found = differences(a, b, np.array(spread))
    p = family_wise(a, b, found)
    values = found.a, found.b, found.value, found.low, found.high
    return HeadDifferences(tuple(columns), *values, p, found.clusters)


def _of_buckets(sides: Sides, stack: str) -> Iterator[HeadDifferences]:
    """Metrics that are taken on all sentences, on random sequences, or on what heads write."""
    theirs = sides.b.corpus_sums.buckets.get(stack, ())
    for mine in sides.a.corpus_sums.buckets.get(stack, ()):
        for other in theirs:
            yield from _of_two(mine, other, partial(_sentences, sides, stack))


def _sentences(sides: Sides, stack: str, columns: Sequence[HeadColumn]) -> Ints:
    """Sentences behind the numbers of every head. *Shape:* ``(layer, head, column)``."""
    found = []
    for study in (sides.a, sides.b):
        table = study.head_tables[stack]
        places = {column: place for place, column in enumerate(table.columns)}
        found.append(table.heads[..., [places[column] for column in columns]].sentences)
    return np.minimum(*found)


def _of_two(
    mine: Buckets, other: Buckets, sentences: Callable[[Sequence[HeadColumn]], Ints]
) -> Iterator[HeadDifferences]:
    places = {column: place for place, column in enumerate(other.columns)}
    both = [column for column in mine.columns if column in places]
    if not both or mine.once != other.once:
        return
    size = min(mine.size, other.size)
    one, another = (part if part.size == size else part.of_size(size) for part in (mine, other))
    keys = np.union1d(one.keys, another.keys)
    for (metric, view), group in groupby(both, key=lambda column: (column.metric, column.view)):
        columns = [*group]
        sums = [
            _some(part, keys, [part.columns.index(column) for column in columns])
            for part in (one, another)
        ]
        names = [ComparedColumn(metric, str(view), column.label) for column in columns]
        yield replace(compared(names, *sums), sentences=sentences(columns))


def _some(part: Buckets, keys: Ints, at: Sequence[int]) -> ClusterSums:
    """Some columns in all of the buckets."""
    place = np.searchsorted(keys, part.keys)
    n = np.zeros((len(keys), *part.n.shape[1:3], len(at)))
    d = np.zeros_like(n)
    n[place], d[place] = part.n[..., at], part.d[..., at]
    return ClusterSums(n, d)


def _of_samples(sides: Sides, stack: str) -> Iterator[HeadDifferences]:
    """Metrics that are taken on a sample, sentence by sentence."""
    mine, theirs = (s.corpus_sums.sampled.get(stack) for s in (sides.a, sides.b))
    if mine is None or theirs is None:
        return
    rows = _shared(mine.stats.content_hash, theirs.stats.content_hash)
    for name, view, _ in mine.columns:
        metric = all_metrics()[name]
        assert isinstance(metric, SampledMetric)
        sums = [
            _finished(each, at, metric, str(view))
            for each, at in zip((mine, theirs), rows, strict=True)
        ]
        if sums[0] is not None and sums[1] is not None:
            columns = [ComparedColumn(name, str(view), label) for label in metric.labels]
            yield compared(columns, sums[0], sums[1])


def _shared(mine: NDArray[np.uint64], theirs: NDArray[np.uint64]) -> tuple[Ints, Ints]:
    """Places of the sentences that two samples share, in one order; equal ones once."""
    _, one, other = np.intersect1d(mine, theirs, return_indices=True)
    return one, other


def _finished(sums: SampleSums, rows: Ints, metric: SampledMetric, view: str) -> ClusterSums | None:
    """A sampled metric of every sentence; None where it was not taken."""
    start = 0
    for name, its_view, width in sums.columns:
        if (name, str(its_view)) == (metric.id, view):
            stats = sums.stats.payload[rows][..., start : start + width]
            layers = [
                metric.finish(each[:, :ABOUT], each[:, ABOUT])
                for each in (stats[:, layer].astype(np.float64) for layer in range(stats.shape[1]))
            ]
            n, d = (
                np.stack([getattr(layer, part)[:, :-1] for layer in layers], 1)
                for part in ("numerator", "denominator")
            )
            return ClusterSums(np.where(d > 0, n, 0), np.broadcast_to(d, n.shape))
        start += width
    return None


def _of_removals(sides: Sides, pair: StackPair) -> Iterator[HeadDifferences]:
    """What each model loses without a head, where both were asked."""
    mine, theirs = (s.corpus_sums.removals for s in (sides.a, sides.b))
    if mine is None or theirs is None:
        return
    rows = _shared(mine.content_hash, theirs.content_hash)
    names = {(s.name, s.replacement) for s in mine.sets if s.kind is SetKind.HEAD}
    for replacement in sorted({replacement for _, replacement in names}):
        for target in mine.changes.keys() & theirs.changes.keys():
            sums = [
                _effects(each, at, pair, replacement, target)
                for each, at in zip((mine, theirs), rows, strict=True)
            ]
            yield compared([ComparedColumn(EFFECT, "", f"{replacement}/{target}")], *sums)


def _effects(
    removals: Removals, rows: Ints, pair: StackPair, replacement: str, target: str
) -> ClusterSums:
    """Changes of a target without each head; 0 over 0 where a head was not taken away alone."""
    stack = pair.a
    n = np.zeros((len(rows), stack.n_layers, stack.n_heads, 1))
    d = np.zeros_like(n)
    for place, removed in enumerate(removals.sets):
        if not _alone(removed, replacement):
            continue
        head = removals.heads[int(np.flatnonzero(removals.members[place])[0])]
        if head.stack == stack.name:
            change = removals.changes[target][rows, place]
            n[:, head.layer, head.head, 0] = np.nan_to_num(change)
            d[:, head.layer, head.head, 0] = np.where(
                np.isnan(change), 0, removals.counts[target][rows]
            )
    return ClusterSums(n, d)


def _alone(removed: RemovedSet, replacement: str) -> bool:
    return removed.kind is SetKind.HEAD and removed.replacement == replacement
