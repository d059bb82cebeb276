"""The differences of every number of every head between two models of one shape.

From sums over the same sentences or buckets of sentences, pair by pair, so that a sentence that is
hard for both models widens no interval (`headbook.analysis.paired`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arithmetic import Ints
from headbook.analysis.paired import ClusterSums
from headbook.comparison.modeldifferences import (
    ComparedColumn,
    ModelDifferences,
    paired_buckets,
    rounding_floors,
)
from headbook.comparison.sides import Sides, StackPair
from headbook.metrics import all_metrics
from headbook.metrics.base import SampledMetric
from headbook.study.importancetables import EFFECT
from headbook.study.summaries.columns import HeadColumn
from headbook.study.summaries.finish import ABOUT, statistics
from headbook.study.summaries.removals import Removals, RemovedSet, SetKind
from headbook.study.summaries.sums import SampleSums


@dataclass(frozen=True, eq=False)
class HeadDifferences(ModelDifferences):
    """Numbers of the heads of one stack in both models; cells are ``(layer, head)``."""


class PairedSums(NamedTuple):
    """Numbers of heads over the same clusters of sentences, of one metric and view.

    Attributes:
        a, b: *Shape:* ``(cluster, layer, head, column)``, layers and heads those of each model.
        counted: of which columns of tables the sentences behind them are known; none stands for
            all clusters.
    """

    columns: Sequence[ComparedColumn]
    a: ClusterSums
    b: ClusterSums
    counted: Sequence[HeadColumn] = ()


def head_differences(sides: Sides, pair: StackPair) -> HeadDifferences:
    """All numbers that both studies have, for models whose heads correspond."""
    parts = []
    for each in head_sums(sides, pair):
        found = HeadDifferences.of(each.columns, each.a, each.b)
        if each.counted:
            found = replace(found, sentences=_sentences(sides, pair.a.name, each.counted))
        parts.append(found)
    parts += [HeadDifferences.of(*each[:3]) for each in _of_removals(sides, pair)]
    return HeadDifferences.beside(parts)


def head_floors(twice: Sides, pair: StackPair) -> dict[ComparedColumn, float]:
    """Return the rounding floors of the numbers of heads.

    Args:
        twice: the first model in two number formats, as if they were two models.
    """
    found = (*head_sums(twice, pair), *_of_removals(twice, pair))
    return rounding_floors(each[:3] for each in found)


def head_sums(sides: Sides, pair: StackPair) -> Iterator[PairedSums]:
    """All metrics that both studies have of the heads of a stack, of whatever shape."""
    yield from _of_buckets(sides, pair)
    yield from _of_samples(sides, pair)


def _of_buckets(sides: Sides, pair: StackPair) -> Iterator[PairedSums]:
    """Metrics that are taken on all sentences, on random sequences, or on what heads write."""
    theirs = sides.b.corpus_sums.buckets.get(pair.b.name, ())
    for mine in sides.a.corpus_sums.buckets.get(pair.a.name, ()):
        for other in theirs:
            for columns, one, another in paired_buckets(mine, other, mine.columns, other.columns):
                names = [ComparedColumn(c.metric, str(c.view), c.label) for c in columns]
                yield PairedSums(names, one, another, columns)


def _sentences(sides: Sides, stack: str, columns: Sequence[HeadColumn]) -> Ints:
    """Sentences behind the numbers of every head. *Shape:* ``(layer, head, column)``."""
    found = []
    for study in (sides.a, sides.b):
        table = study.head_tables[stack]
        places = {column: place for place, column in enumerate(table.columns)}
        found.append(table.heads[..., [places[column] for column in columns]].sentences)
    return np.minimum(*found)


def _of_samples(sides: Sides, pair: StackPair) -> Iterator[PairedSums]:
    """Metrics that are taken on a sample, sentence by sentence."""
    mine = sides.a.corpus_sums.sampled.get(pair.a.name)
    theirs = sides.b.corpus_sums.sampled.get(pair.b.name)
    if mine is None or theirs is None:
        return
    rows = _shared(mine.stats.content_hash, theirs.stats.content_hash)
    if not len(rows[0]):  # hashes are of tokens: there is none where models cut texts otherwise
        return
    for name, view, _ in mine.columns:
        metric = all_metrics()[name]
        assert isinstance(metric, SampledMetric)
        sums = [
            _finished(each, at, metric, str(view))
            for each, at in zip((mine, theirs), rows, strict=True)
        ]
        if sums[0] is not None and sums[1] is not None:
            columns = [ComparedColumn(name, str(view), label) for label in metric.listed]
            yield PairedSums(columns, sums[0], sums[1])


def _shared(mine: NDArray[np.uint64], theirs: NDArray[np.uint64]) -> tuple[Ints, Ints]:
    """Places of the sentences that two samples share, in one order; equal ones once."""
    _, one, other = np.intersect1d(mine, theirs, return_indices=True)
    return one, other


def _finished(sums: SampleSums, rows: Ints, metric: SampledMetric, view: str) -> ClusterSums | None:
    """A sampled metric of every sentence; None where it was not taken."""
    start = 0
    for name, its_view, width in sums.columns:
        if (name, str(its_view)) == (metric.id, view):
            place = slice(start, start + width)
            each_layer = (
                statistics(sums, metric, place, layer)[rows]
                for layer in range(sums.stats.payload.shape[1])
            )
            layers = [metric.finish(each[:, :ABOUT], each[:, ABOUT]) for each in each_layer]
            listed = [metric.labels.index(label) for label in metric.listed]
            n, d = (
                np.stack([getattr(layer, part)[:, :-1, listed] for layer in layers], 1)
                for part in ("numerator", "denominator")
            )
            return ClusterSums(np.where(d > 0, n, 0), np.broadcast_to(d, n.shape))
        start += width
    return None


def _of_removals(sides: Sides, pair: StackPair) -> Iterator[PairedSums]:
    """What each model loses without a head, where both were asked."""
    mine, theirs = (s.corpus_sums.removals for s in (sides.a, sides.b))
    if mine is None or theirs is None:
        return
    rows = _shared(mine.content_hash, theirs.content_hash)
    names = {(s.name, s.replacement) for s in mine.sets if s.kind is SetKind.HEAD}
    for replacement in sorted({replacement for _, replacement in names}):
        for target in (t for t in mine.changes if t in theirs.changes):
            one, another = (
                _effects(each, at, pair, replacement, target)
                for each, at in zip((mine, theirs), rows, strict=True)
            )
            yield PairedSums([ComparedColumn(EFFECT, "", f"{replacement}/{target}")], one, another)


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
