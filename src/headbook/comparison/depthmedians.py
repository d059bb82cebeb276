"""Medians over the heads, or over the layers, of two models that do not correspond."""

from collections.abc import Iterator, Mapping
from math import prod

from headbook.analysis.medians import Medians, medians
from headbook.analysis.paired import ClusterSums
from headbook.comparison.headdifferences import head_sums
from headbook.comparison.layerdifferences import token_sums
from headbook.comparison.modeldifferences import ComparedColumn
from headbook.comparison.sides import Sides, StackPair
from headbook.metrics import all_metrics

DepthMedians = Mapping[ComparedColumn, Medians]


def depth_medians(sides: Sides, pair: StackPair) -> DepthMedians:
    """All numbers that both models have.

    Labels of those of tokens are as in ``layers.csv``, without a view.
    """
    return dict(_medians(sides, pair))


def _medians(sides: Sides, pair: StackPair) -> Iterator[tuple[ComparedColumn, Medians]]:
    for each in head_sums(sides, pair):
        for place, column in enumerate(each.columns):
            yield column, _of(column, *(_cells(sums, place) for sums in (each.a, each.b)))
    for columns, *sums in token_sums(sides, pair):
        for place, token in enumerate(columns):
            column = ComparedColumn(token.metric, "", token.words)
            yield column, _of(column, *(_cells(each, place) for each in sums))


def _cells(sums: ClusterSums, place: int) -> ClusterSums:
    """One column of all cells."""
    size = prod(sums.n.shape[1:-1])
    return ClusterSums(*(part[..., place].reshape(len(part), size) for part in sums))


def _of(column: ComparedColumn, a: ClusterSums, b: ClusterSums) -> Medians:
    """Medians inside the bounds of a metric."""
    metric = all_metrics()[column.metric]
    return medians(a, b, metric.spread(column.label), metric.limits)
