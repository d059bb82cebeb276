"""Sums of buckets of sentences, added up in place over all batches of a pass."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arithmetic import Floats
from headbook.metrics.base import HeadMetric
from headbook.study.summaries.buckets import FEWER, MANY_HEADS, MOST, Buckets, bucket_of
from headbook.study.summaries.columns import HeadColumn
from headbook.study.summaries.reduce import Parts
from headbook.study.summaries.sums import CorpusSums
from headbook.terms import Stack


def head_columns(metrics: Sequence[HeadMetric]) -> list[HeadColumn]:
    """The numbers of each head, in the order in which they are measured."""
    return [
        HeadColumn(metric.id, view, label)
        for metric in metrics
        for view in metric.views
        for label in metric.labels
    ]


class BucketTable:
    """The sums of one stack, filled layer by layer, batch by batch.

    Sums over batches are made here and not by adding tables, which would copy all of them for
    every batch.

    Args:
        once: whether the sentences are random sequences, the same in every study.
    """

    def __init__(self, stack: Stack, metrics: Sequence[HeadMetric], *, once: bool = False) -> None:
        asked = [metric for metric in metrics if metric.applies(stack)]
        labels = {metric.id: metric.compared for metric in asked}
        columns = head_columns(asked)
        self._kept = np.array(
            [place for place, c in enumerate(columns) if c.label in labels[c.metric]], np.int64
        )
        self._columns = [columns[place] for place in self._kept]
        self._once = once
        self._size = MOST if stack.n_layers * stack.n_heads <= MANY_HEADS else FEWER
        shape = (self._size, stack.n_layers, stack.n_heads, len(self._kept))
        self._n = np.zeros(shape)
        self._shared = np.zeros((*shape[:2], 1, shape[3]))
        self._own = np.zeros(shape)  # denominators that each head has for itself
        self._is_own = np.zeros(len(self._kept), bool)
        self._there = np.zeros(self._size, bool)

    def add(self, layers: Mapping[int, slice], parts: Parts, hashes: NDArray[np.uint64]) -> None:
        """Take in layers of one batch.

        Args:
            layers: where the heads of each layer stand in ``parts``.
            hashes: of the sentences' texts.
        """
        given, columns = self._given(parts)
        d_of, width = parts.d_of[self._kept], parts.shared.shape[1]
        own = np.flatnonzero(d_of >= width)
        self._is_own[own] = True
        buckets = bucket_of(hashes, self._size)
        self._there[buckets] = True
        shared = np.where(d_of < width, parts.shared[:, np.minimum(d_of, width - 1)], 0)
        for layer, heads in layers.items():
            size = heads.stop - heads.start
            d = np.zeros((len(buckets), size, len(self._kept)))
            d[..., own] = parts.own[:, heads][..., d_of[own] - width]
            n = np.zeros(d.shape)
            known = (d + shared[:, None])[..., columns] > 0
            n[..., columns] = parts.n[:, heads][..., given] * known
            for sentence, bucket in enumerate(buckets):
                self._shared[bucket, layer, 0] += shared[sentence]
                self._own[bucket, layer, :size] += d[sentence]
                self._n[bucket, layer, :size] += n[sentence]

    def _given(self, parts: Parts) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Numerators that are kept: where they stand among those given, and their columns."""
        place = np.full(len(parts.d_of), -1)
        place[self._kept] = np.arange(len(self._kept))
        column = place[parts.given]
        given = np.flatnonzero(column >= 0)
        return given, column[given]

    def sums(self) -> tuple[Buckets, ...]:
        """What survives: columns whose denominators all heads share, and the others."""
        keys = np.flatnonzero(self._there)
        shared = self._part(keys, np.flatnonzero(~self._is_own), self._shared)
        if not self._is_own.any():
            return (shared,)
        return shared, self._part(keys, np.flatnonzero(self._is_own), self._own)

    def _part(self, keys: NDArray[np.int64], columns: NDArray[np.int64], d: Floats) -> Buckets:
        return Buckets(
            self._size,
            keys,
            self._n[keys][..., columns],
            d[keys][..., columns],
            self._once,
            tuple(self._columns[column] for column in columns),
        )


def sums_of(tables: Mapping[str, BucketTable]) -> CorpusSums:
    """What tables hold, by stack."""
    return CorpusSums(buckets={name: table.sums() for name, table in tables.items()})
