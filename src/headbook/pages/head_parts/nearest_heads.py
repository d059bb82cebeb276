"""Tables of the heads nearest to each head."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from headbook.pages.parts.table import NumberCell, PageTable, Row
from headbook.report.results import StackResults
from headbook.report.similar_heads import HeadDistanceMatrix, head_distances
from headbook.report.wording import FEW_WORDS, VIEWS
from headbook.results.formats import MISSING, THIN
from headbook.results.sentence import head_link
from headbook.schema import HeadName, SinkView

NEAREST = 5


@dataclass(frozen=True)
class Neighbours:
    """The heads nearest to one head in a view, with their distances in each view."""

    view: SinkView
    table: PageTable


def nearest_heads(results: StackResults) -> Mapping[HeadName, tuple[Neighbours, ...]]:
    """Return the nearest heads of every head, by view; empty if distances were not measured."""
    matrices = results.cached(head_distances)
    heads = next(iter(matrices.values())).heads if matrices else ()
    return {
        head: tuple(
            Neighbours(
                view,
                PageTable(
                    ("Head", *(VIEWS[each] for each in matrices)),
                    tuple(
                        Row(head_link(heads[other]), distances(matrices, index, other))
                        for other in near
                    ),
                    f"Most similar, {VIEWS[view]}.",
                ),
            )
            for view, each in matrices.items()
            if (near := each.nearest(index, NEAREST))
        )
        for index, head in enumerate(heads)
    }


def distances(
    matrices: Mapping[SinkView, HeadDistanceMatrix], one: int, other: int
) -> tuple[NumberCell, ...]:
    """Return the distance of two heads in each view; thin if few rows count for both heads."""
    return tuple(_distance(each, one, other) for each in matrices.values())


def _distance(matrix: HeadDistanceMatrix, one: int, other: int) -> NumberCell:
    value, rows = matrix.value[one, other], int(matrix.rows[one, other])
    behind = f"{matrix.sentences:,} sentences, {rows:,} rows that count for both heads"
    return NumberCell(
        nats_text(value), "", behind, too_few=not np.isnan(value) and rows < FEW_WORDS
    )


def nats_text(value: float) -> str:
    """Return a divergence in three decimals; a value above 0 is never printed as 0."""
    if np.isnan(value):
        return MISSING
    return f"<{THIN}0.001" if 0 < value < 0.0005 else f"{value:.3f}"
