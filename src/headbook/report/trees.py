"""Scores of trees induced from attention, against trees that need no attention.

Trees without attention know the number of words alone. Some reach high scores: most dependencies
are between neighbours, and English phrases branch to the right. So heads are ranked by their trees
only if their interval lies above the best of these trees.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import HELD_OUT, SELECTION, Estimate, Estimates
from headbook.metrics import ids
from headbook.report.results import StackResults, heads_by_value
from headbook.schema import HeadName, SinkView

VIEW = SinkView.NOSINK
PLAIN_NAMES = {
    "right_branching": "right-branching trees",
    "left_branching": "left-branching trees",
    "balanced": "balanced trees",
    "chain": "linking neighbours",
}


class TreeLabels(NamedTuple):
    """Labels of a metric of induced trees.

    Attributes:
        own: the tree of one head.
        joint: the tree of all heads of a layer together; empty without one.
        plain: trees without attention.
        ceiling: the best possible tree of the kind; empty if its score is 1.
    """

    own: str
    joint: str
    plain: tuple[str, ...]
    ceiling: str

    @property
    def same_for_all_heads(self) -> frozenset[str]:
        """Labels with one number for all heads of a layer."""
        return frozenset({self.joint, *self.plain, self.ceiling} - {""})


TREES = {
    ids.PHRASE_TREES: TreeLabels(
        "f1", "joint", ("right_branching", "left_branching", "balanced"), "ceiling"
    ),
    ids.DEPENDENCY_TREES: TreeLabels("uas", "", ("chain",), ""),
}


class PlainTree(NamedTuple):
    """A tree without attention: its label and its score."""

    label: str
    score: Estimate

    @property
    def name(self) -> str:
        """Name of the tree in sentences."""
        return PLAIN_NAMES[self.label]

    @property
    def limit(self) -> float:
        """Upper end of the interval; the score itself if there is no interval."""
        return float(np.fmax(self.score.value, self.score.high))


def plain_trees(results: StackResults, metric: str, split: int | None = None) -> list[PlainTree]:
    """Return the trees without attention, the highest score first.

    Args:
        split: `SELECTION` or `HELD_OUT`; None for all sentences.
    """
    layer = results.stack.attention_layers[0]
    trees = [
        PlainTree(label, _scores(results, metric, label, split).at(layer, 0))
        for label in TREES[metric].plain
    ]
    return sorted(trees, key=lambda tree: -np.nan_to_num(tree.score.value))


def heads_above_plain_trees(
    results: StackResults, metric: str, split: int | None = None
) -> NDArray[np.bool_]:
    """Return the mask of heads whose interval lies above that of every tree without attention.

    *Shape:* ``(layer, head)``.
    """
    limit = max(tree.limit for tree in plain_trees(results, metric, split))
    with np.errstate(invalid="ignore"):
        above: NDArray[np.bool_] = _scores(results, metric, TREES[metric].own, split).low > limit
    return above


def is_ranked(results: StackResults, metric: str, place: tuple[int, int]) -> bool:
    """Check whether pages may rank a head, by layer and number, by a metric."""
    return metric not in TREES or bool(heads_above_plain_trees(results, metric)[place])


def best_heads_of_layers(results: StackResults, metric: str) -> dict[int, int]:
    """Return the head with the highest score on the selection split, by layer."""
    trusted = results.split(SELECTION, metric, VIEW, TREES[metric].own).trusted
    best: dict[int, int] = {}
    for layer, head in heads_by_value(trusted):
        best.setdefault(layer, head)
    return dict(sorted(best.items()))


def heads_with_better_trees(results: StackResults, metric: str) -> list[HeadName]:
    """Return the heads whose trees score clearly above every tree without attention.

    The best head of each layer is chosen on the selection split; intervals are those of the
    held-out split.
    """
    if not results.has_value(metric, VIEW, TREES[metric].own):
        return []
    above = heads_above_plain_trees(results, metric, HELD_OUT)
    best = best_heads_of_layers(results, metric)
    return [
        HeadName(results.stack.name, layer, head)
        for layer, head in best.items()
        if above[layer, head]
    ]


def _scores(results: StackResults, metric: str, label: str, split: int | None) -> Estimates:
    if split is None:
        return results.heads(metric, VIEW, label)
    return results.split(split, metric, VIEW, label)
