"""Which heads of a stack are alike: nearest heads, a map in the plane, an order. No torch.

The map is classical scaling (Torgerson 1952) of the square roots of the divergences. The root is a
distance as in ordinary space, so that a map without any distortion exists in enough dimensions; of
the divergences themselves there is none (Fuglede & Topsøe 2004, doi:10.1109/ISIT.2004.1365067).
In stacks of so many heads that not all pairs were compared, squared Hellinger distances take the
place of the divergences; their roots are Euclidean by construction.
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
    """Heads as points of a plane.

    Attributes:
        heads: their places. *Shape:* ``(head,)``.
        points: *Shape:* ``(head, 2)``.
        share: part of all squared distances that two dimensions hold.
    """

    heads: Ints
    points: Floats
    share: float


@dataclass(frozen=True, eq=False)
class HeadDistanceMatrix:
    """The distances of all heads of a stack in one view; heads go by their place in ``heads``.

    Attributes:
        heads: layer by layer.
        value: NaN for pairs with too few rows in common to be judged. *Shape:* ``(head, head)``.
        rows: rows that count in both; the same shape.
        sentences: that were compared.
        roots: squared Hellinger distances of all pairs, where not all were compared; likewise.
    """

    heads: tuple[HeadName, ...]
    value: Floats
    rows: Floats
    sentences: int
    roots: Floats | None = None

    @property
    def apart(self) -> Floats:
        """What map, order and matrix rest on. *Shape:* ``(head, head)``."""
        return self.value if self.roots is None else self.roots

    @property
    def layers(self) -> Ints:
        """The layer of each head."""
        return np.array([head.layer for head in self.heads])

    @cached_property
    def complete(self) -> Ints:
        """Heads left when those that lack most distances are taken out until none is lacking."""
        left = np.arange(len(self.heads))
        lacking = np.isnan(self.apart)
        np.fill_diagonal(lacking, val=False)
        while len(left) and (counts := lacking[np.ix_(left, left)].sum(1)).any():
            left = np.delete(left, int(counts.argmax()))
        return left

    def nearest(self, head: int, most: int) -> list[int]:
        """The heads nearest to one, those with few rows in common left out."""
        others = self.value[head].copy()
        others[head] = np.nan
        order = np.argsort(others, kind="stable")  # NaN goes to the end
        return [int(place) for place in order[: min(most, int((~np.isnan(others)).sum()))]]

    def closest(self, most: int) -> list[tuple[int, int]]:
        """The pairs of heads that are nearest to each other."""
        one, other = np.triu_indices(len(self.heads), 1)
        values = self.value[one, other]
        order = np.argsort(values, kind="stable")[: min(most, int((~np.isnan(values)).sum()))]
        return [(int(one[place]), int(other[place])) for place in order]

    @cached_property
    def plane(self) -> HeadPlane:
        """The map of all heads whose distances are known."""
        kept = self.complete
        points, share = classical_scaling(self.apart[np.ix_(kept, kept)])
        return HeadPlane(kept, points, share)

    @cached_property
    def order(self) -> Ints:
        """All heads, like beside like; at the end those whose distances are not all known.

        Average linkage, leaves ordered so that neighbours are as near as the tree allows.
        """
        kept = self.complete
        rest = np.setdiff1d(np.arange(len(self.heads)), kept)
        if len(kept) > 2:
            distances = squareform(self.apart[np.ix_(kept, kept)], checks=False)
            tree = hierarchy.linkage(distances, "average", optimal_ordering=True)
            kept = kept[hierarchy.leaves_list(tree)]
            kept = kept[::-1] if kept[0] > kept[-1] else kept
        return np.concatenate([kept, rest])


def head_distances(results: StackResults) -> Mapping[SinkView, HeadDistanceMatrix]:
    """How alike the heads of a stack are, by view; nothing where it was not measured."""
    stack = results.stack
    sums = results.study.corpus_sums.distances.get(stack.name)
    heads = tuple(
        HeadName(stack.name, layer, head)
        for layer in stack.attention_layers
        for head in range(stack.n_heads)
    )
    if sums is None or len(heads) < 2:
        return {}
    found = {
        column.view: _likeness(heads, sums, index)
        for index, column in enumerate(sums.columns)
        if column.metric == METRIC
    }
    known = np.triu_indices(len(heads), 1)
    return {view: each for view, each in found.items() if not np.isnan(each.value[known]).all()}


def _likeness(heads: tuple[HeadName, ...], sums: HeadDistances, place: int) -> HeadDistanceMatrix:
    value = _known(sums.total[place], sums.rows[place])
    roots = None
    if sums.alike is not None:
        rows = sums.alike.rows[place]
        roots = 1 - _known(sums.alike.total[place], rows)
        np.fill_diagonal(roots, 0.0)
        roots = roots.clip(0, 1)
    return HeadDistanceMatrix(heads, value, sums.rows[place], sums.sentences, roots)


def _known(total: Floats, rows: Floats) -> Floats:
    """Means over rows; NaN where there are few."""
    # Small studies have no more than a few rows, and are shown all the same.
    least = max(1.0, min(FEW_WORDS, float(rows.max())))
    value: Floats = np.divide(total, rows, out=np.full(total.shape, np.nan), where=rows >= least)
    np.fill_diagonal(value, 0.0)
    return value


def classical_scaling(squared: Floats) -> tuple[Floats, float]:
    """Classical scaling: points of a plane whose squared distances are near those given.

    Points are turned so that later ones lie further to the right and further up.

    Args:
        squared: *Shape:* ``(point, point)``.

    Returns:
        Points ``(point, 2)``, and the part of the variation that they hold; NaN without any.
    """
    n = len(squared)
    points = np.zeros((n, 2))
    if n < 2:
        return points, float("nan")
    middle = np.eye(n) - 1 / n
    values, vectors = np.linalg.eigh(-middle @ squared @ middle / 2)
    total = float(abs(values).sum())
    best = np.maximum(values[::-1][:2], 0)
    points[:, : len(best)] = vectors[:, ::-1][:, :2] * np.sqrt(best)
    places = np.arange(n) - (n - 1) / 2
    points *= np.where(places @ points < 0, -1, 1)
    return points + 0.0, float(best.sum()) / total if total > 0 else float("nan")


def procrustes_aligned(plane: HeadPlane, like: HeadPlane) -> Floats:
    """Points turned or mirrored so as to lie near another map's points of the same heads.

    Orthogonal Procrustes rotation about the origin; distances stay as they are.
    """
    _, mine, theirs = np.intersect1d(plane.heads, like.heads, return_indices=True)
    left, _, right = np.linalg.svd(plane.points[mine].T @ like.points[theirs])
    found: Floats = plane.points @ (left @ right)
    return found
