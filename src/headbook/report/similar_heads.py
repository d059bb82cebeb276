"""Similarity of the heads of a stack: nearest heads, a map in the plane, and an order. No torch.

The map is classical scaling (Torgerson 1952) of the square roots of the divergences. These roots
are Euclidean distances, so that a map without distortion exists in enough dimensions; the
divergences themselves have no such map (Fuglede & Topsøe 2004, doi:10.1109/ISIT.2004.1365067). In
stacks of so many heads that not all pairs were compared, squared Hellinger distances replace the
divergences; their roots are Euclidean by construction.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from headbook.analysis.arrays import Floats, Ints
from headbook.metrics import ids
from headbook.report.results import StackResults
from headbook.report.wording import FEW_WORDS
from headbook.schema import SinkView
from headbook.study.corpus_sums import HeadDistances
from headbook.study.sentence_data import HeadName

METRIC = ids.HEAD_DISTANCE


class HeadPlane(NamedTuple):
    """A map of heads in the plane.

    Attributes:
        heads: indices of the heads. *Shape:* ``(head,)``.
        points: coordinates. *Shape:* ``(head, 2)``.
        share: share of the variation of all squared distances in the two dimensions.
    """

    heads: Ints
    points: Floats
    share: float


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
    def apart(self) -> Floats:
        """Distances behind the map, the order and the matrix. *Shape:* ``(head, head)``."""
        return self.value if self.roots is None else self.roots

    @property
    def layers(self) -> Ints:
        """Layer of each head. *Shape:* ``(head,)``."""
        return np.array([head.layer for head in self.heads])

    @cached_property
    def complete(self) -> Ints:
        """Indices of heads with all distances, after dropping those with most missing distances."""
        kept = np.arange(len(self.heads))
        missing = np.isnan(self.apart)
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
    def plane(self) -> HeadPlane:
        """Map of all heads whose distances are known."""
        kept = self.complete
        points, share = classical_scaling(self.apart[np.ix_(kept, kept)])
        return HeadPlane(kept, points, share)

    @cached_property
    def order(self) -> Ints:
        """Indices of all heads, similar heads side by side; heads with missing distances come last.

        The order is that of the leaves of an average-linkage tree, in which neighbours are as near
        as the tree allows.
        """
        kept = self.complete
        incomplete = np.setdiff1d(np.arange(len(self.heads)), kept)
        if len(kept) > 2:
            distances = squareform(self.apart[np.ix_(kept, kept)], checks=False)
            tree = hierarchy.linkage(distances, "average", optimal_ordering=True)
            kept = kept[hierarchy.leaves_list(tree)]
            kept = kept[::-1] if kept[0] > kept[-1] else kept
        return np.concatenate([kept, incomplete])


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


def classical_scaling(squared: Floats) -> tuple[Floats, float]:
    """Compute classical scaling: points in a plane whose squared distances are near those given.

    The signs of the axes are chosen so that later points lie further to the right and further up.

    Args:
        squared: squared distances. *Shape:* ``(point, point)``.

    Returns:
        Points ``(point, 2)``, and their share of the variation; NaN without any variation.
    """
    n = len(squared)
    points = np.zeros((n, 2))
    if n < 2:
        return points, float("nan")
    centring = np.eye(n) - 1 / n
    values, vectors = np.linalg.eigh(-centring @ squared @ centring / 2)
    total = float(abs(values).sum())
    eigenvalues = np.maximum(values[::-1][:2], 0)
    points[:, : len(eigenvalues)] = vectors[:, ::-1][:, :2] * np.sqrt(eigenvalues)
    ranks = np.arange(n) - (n - 1) / 2
    points *= np.where(ranks @ points < 0, -1, 1)
    return points + 0.0, float(eigenvalues.sum()) / total if total > 0 else float("nan")


def procrustes_aligned(plane: HeadPlane, target: HeadPlane) -> Floats:
    """Rotate or mirror the points of a map towards another map's points of the same heads.

    This is an orthogonal Procrustes rotation about the origin; distances do not change.
    """
    _, moved, fixed = np.intersect1d(plane.heads, target.heads, return_indices=True)
    left, _, right = np.linalg.svd(plane.points[moved].T @ target.points[fixed])
    rotated: Floats = plane.points @ (left @ right)
    return rotated
