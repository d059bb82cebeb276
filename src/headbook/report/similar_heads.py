"""Similarity of the heads of a stack: nearest heads, groups of near doubles, and an order.

Groups and order follow from complete linkage: the distance of two groups is the largest divergence
between their heads. In stacks of so many heads that not all pairs were compared, squared Hellinger
distances replace the missing divergences. In nats a divergence is at most as large as the squared
Hellinger distance (1 minus the sum of √(A·B)), so that heads of a group are as near as pages say.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from headbook.analysis.arrays import Floats, Ints
from headbook.metrics import ids
from headbook.report.results import StackResults
from headbook.report.wording import FEW_WORDS
from headbook.schema import HeadName, SinkView
from headbook.study.corpus_sums import HeadDistances

METRIC = ids.HEAD_DISTANCE


MAX_DOUBLE_DISTANCE = 0.1  # nats; every two heads of a group are closer


class DoubleGroup(NamedTuple):
    """Heads of which every two are near doubles.

    Attributes:
        heads: indices of the heads, in the order of the matrix.
        pair: indices of the two heads that are furthest apart.
        distance: distance of these two heads.
    """

    heads: tuple[int, ...]
    pair: tuple[int, int]
    distance: float


@dataclass(frozen=True, eq=False)
class HeadDistanceMatrix:
    """The distances of all heads of a stack in one view; methods take indices of ``heads``.

    Attributes:
        heads: the heads, layer by layer.
        value: mean divergence; NaN for pairs with too few rows in common. *Shape:*
            ``(head, head)``.
        rows: number of rows that count in both heads. *Shape:* ``(head, head)``.
        sentences: number of sentences that were compared.
        roots: squared Hellinger distances of all pairs if not all pairs were compared; else None.
            *Shape:* ``(head, head)``.
    """

    heads: tuple[HeadName, ...]
    value: Floats
    rows: Floats
    sentences: int
    roots: Floats | None = None

    @property
    def bounds(self) -> Floats:
        """Divergences, and upper bounds of those that are missing. *Shape:* ``(head, head)``."""
        if self.roots is None:
            return self.value
        return np.where(np.isnan(self.value), self.roots, self.value)

    @property
    def layers(self) -> Ints:
        """Layer of each head. *Shape:* ``(head,)``."""
        return np.array([head.layer for head in self.heads])

    @cached_property
    def complete(self) -> Ints:
        """Indices of heads with all distances, after dropping those with most missing distances."""
        kept = np.arange(len(self.heads))
        missing = np.isnan(self.bounds)
        np.fill_diagonal(missing, val=False)
        while len(kept) and (counts := missing[np.ix_(kept, kept)].sum(1)).any():
            kept = np.delete(kept, int(counts.argmax()))
        return kept

    def nearest(self, head: int, most: int) -> list[int]:
        """Return the heads nearest to one head, without heads that share too few rows."""
        distances = self.value[head].copy()
        distances[head] = np.nan
        order = np.argsort(distances, kind="stable")  # NaN goes to the end
        return [int(index) for index in order[: min(most, int((~np.isnan(distances)).sum()))]]

    def closest(self, most: int) -> list[tuple[int, int]]:
        """Return the pairs of heads that are nearest to each other, at most ``most``."""
        first, second = np.triu_indices(len(self.heads), 1)
        values = self.value[first, second]
        order = np.argsort(values, kind="stable")[: min(most, int((~np.isnan(values)).sum()))]
        return [(int(first[pair]), int(second[pair])) for pair in order]

    @cached_property
    def _tree(self) -> Floats:
        """Complete linkage of the heads of `complete`, as `scipy.cluster.hierarchy.linkage`."""
        kept = self.complete
        distances = squareform(self.bounds[np.ix_(kept, kept)], checks=False)
        tree: Floats = hierarchy.linkage(distances, "complete")
        return tree

    @cached_property
    def doubles(self) -> tuple[DoubleGroup, ...]:
        """Groups of near doubles, the tightest first."""
        kept, bounds = self.complete, self.bounds
        if len(kept) < 2:
            return ()
        below = np.nextafter(MAX_DOUBLE_DISTANCE, 0)
        labels = dict(
            zip(kept.tolist(), hierarchy.fcluster(self._tree, below, "distance"), strict=True)
        )
        members: dict[int, list[int]] = {}
        for head, label in labels.items():
            members.setdefault(int(label), []).append(head)
        groups = []
        for heads in members.values():
            pairs = list(combinations(sorted(heads), 2))
            if pairs:
                pair = max(pairs, key=lambda places: bounds[places])
                groups.append(DoubleGroup(tuple(heads), pair, float(bounds[pair])))
        return tuple(sorted(groups, key=lambda group: group.distance))


def head_distances(results: StackResults) -> Mapping[SinkView, HeadDistanceMatrix]:
    """Return the distances of the heads of a stack, by view; empty if they were not measured."""
    stack = results.stack
    sums = results.study.corpus_sums.distances.get(stack.name)
    heads = tuple(
        HeadName(stack.name, layer, head)
        for layer in stack.attention_layers
        for head in range(stack.n_heads)
    )
    if sums is None or len(heads) < 2:
        return {}
    matrices = {
        column.view: _distance_matrix(heads, sums, index)
        for index, column in enumerate(sums.columns)
        if column.metric == METRIC
    }
    pairs = np.triu_indices(len(heads), 1)
    return {
        view: matrix for view, matrix in matrices.items() if not np.isnan(matrix.value[pairs]).all()
    }


def compared_view(matrices: Mapping[SinkView, HeadDistanceMatrix]) -> SinkView:
    """Return the view by which heads are grouped: with the sink masked, if it was measured."""
    return SinkView.RENORM if SinkView.RENORM in matrices else next(iter(matrices))


def mean_distances(matrix: HeadDistanceMatrix) -> dict[str, float]:
    """Return the mean over all pairs of heads, over pairs within a layer, and between layers.

    NaN without such a pair. If not all pairs were compared, squared Hellinger distances are taken.
    """
    first, second = np.triu_indices(len(matrix.heads), 1)
    distances = (matrix.value if matrix.roots is None else matrix.roots)[first, second]
    in_layer = matrix.layers[first] == matrix.layers[second]
    parts = {
        "": distances,
        "within a layer": distances[in_layer],
        "between layers": distances[~in_layer],
    }
    return {
        name: float(np.nanmean(part)) if (~np.isnan(part)).any() else np.nan
        for name, part in parts.items()
    }


def _distance_matrix(
    heads: tuple[HeadName, ...], sums: HeadDistances, index: int
) -> HeadDistanceMatrix:
    value = _mean_distances(sums.total[index], sums.rows[index])
    roots = None
    if sums.alike is not None:
        rows = sums.alike.rows[index]
        roots = 1 - _mean_distances(sums.alike.total[index], rows)
        np.fill_diagonal(roots, 0.0)
        roots = roots.clip(0, 1)
    return HeadDistanceMatrix(heads, value, sums.rows[index], sums.sentences, roots)


def _mean_distances(total: Floats, rows: Floats) -> Floats:
    """Return means over rows; NaN for pairs with too few rows."""
    # If no pair has that many rows, as in small studies, the pairs with most rows count.
    min_rows = max(1.0, min(FEW_WORDS, float(rows.max())))
    means: Floats = np.divide(total, rows, out=np.full(total.shape, np.nan), where=rows >= min_rows)
    np.fill_diagonal(means, 0.0)
    return means
