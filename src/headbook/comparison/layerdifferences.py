"""The differences of every number of the tokens of every layer, between two models of one shape.

From sums over the same buckets of sentences, as those of heads. Labels are those of ``layers.csv``:
state, space where there is one, and class of tokens, as in ``mid/positional/all``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headbook.analysis.arithmetic import Ints
from headbook.analysis.paired import ClusterSums
from headbook.comparison.modeldifferences import (
    ComparedColumn,
    ModelDifferences,
    paired_buckets,
    rounding_floors,
)
from headbook.comparison.sides import Sides, StackPair
from headbook.study.study import Study
from headbook.study.summaries.columns import TokenColumn


@dataclass(frozen=True, eq=False)
class LayerDifferences(ModelDifferences):
    """Numbers of the tokens of one stack in both models; cells are ``(layer,)``."""


def layer_differences(sides: Sides, pair: StackPair) -> LayerDifferences | None:
    """All numbers of tokens that both studies have by groups of sentences; None without any.

    Studies of earlier versions have none.
    """
    parts = []
    for columns, *sums in token_sums(sides, pair):
        found = LayerDifferences.of(_names(columns), *sums)
        parts.append(replace(found, sentences=_sentences(sides, pair, columns)))
    return LayerDifferences.beside(parts) if parts else None


def layer_floors(twice: Sides, pair: StackPair) -> dict[ComparedColumn, float]:
    """Return the rounding floors of the numbers of tokens.

    Args:
        twice: the first model in two number formats, as if they were two models.
    """
    return rounding_floors((_names(columns), a, b) for columns, a, b in token_sums(twice, pair))


def _names(columns: Sequence[TokenColumn]) -> list[ComparedColumn]:
    return [ComparedColumn(c.metric, "", c.words) for c in columns]


def token_sums(
    sides: Sides, pair: StackPair
) -> Iterator[tuple[Sequence[TokenColumn], ClusterSums, ClusterSums]]:
    """All metrics of tokens that both studies have, by metric.

    *Shape* of sums: ``(cluster, layer, column)``, layers those of each model.
    """
    theirs = sides.b.corpus_sums.token_buckets.get(pair.b.name, ())
    for mine in sides.a.corpus_sums.token_buckets.get(pair.a.name, ()):
        for other in theirs:
            yield from paired_buckets(mine, other, mine.columns, other.columns)


def _sentences(sides: Sides, pair: StackPair, columns: Sequence[TokenColumn]) -> Ints:
    """Sentences behind the numbers of every layer. *Shape:* ``(layer, column)``."""
    both = ((sides.a, pair.a.name), (sides.b, pair.b.name))
    return np.minimum(*(_of_study(study, stack, columns) for study, stack in both))


def _of_study(study: Study, stack: str, columns: Sequence[TokenColumn]) -> Ints:
    sums = study.corpus_sums
    for table in (sums.tokens, sums.lookups, sums.flows):
        there = table[stack].columns if stack in table else ()
        if columns[0] in there:
            places = [there.index(column) for column in columns]
            return table[stack].layers[:, places].sentences
    raise LookupError(columns[0])
