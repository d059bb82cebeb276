"""The overview of a comparison: which heads and layers differ most between two models."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headbook.comparison.comparison import Comparison
from headbook.comparison.drift import PATTERN_DRIFT, ROUNDED, SHUFFLED
from headbook.comparison.headdifferences import HeadDifferences
from headbook.pages.parts.page import Page
from headbook.pages.parts.table import Row, Table
from headbook.report.numbers.results import descending
from headbook.report.wording import head_name, interval, number
from headbook.study.sentencedata import HeadName
from headbook.terms import View

MOST = 10  # heads that the table lists


@dataclass(frozen=True, kw_only=True)
class ComparisonPage(Page):
    """Two models side by side.

    Attributes:
        names: of the models.
        apart: why heads do not correspond; empty where they do.
        tables: by stack, the heads whose attention differs most.
    """

    template: ClassVar[str] = "comparison.html"
    names: tuple[str, str]
    apart: str
    tables: tuple[Table, ...]


def comparison_page(comparison: Comparison) -> ComparisonPage:
    """The overview."""
    sides = comparison.sides
    return ComparisonPage(
        path="index.html",
        title=f"{sides.names[0]} and {sides.names[1]}",
        description="How the attention heads of two models differ on the same sentences.",
        names=sides.names,
        apart=sides.apart,
        tables=tuple(_most(stack, found) for stack, found in comparison.heads.items()),
    )


def _most(stack: str, found: HeadDifferences) -> Table:
    column = found.column(PATTERN_DRIFT, str(View.RAW))
    rows = () if column is None else tuple(_rows(stack, found, column))
    return Table(("Head", "Divergence (nats)", "95 %", "Rounding", "Other heads"), rows)


def _rows(stack: str, found: HeadDifferences, column: int) -> Iterator[Row]:
    beside = [found.column(PATTERN_DRIFT, str(View.RAW), label) for label in (ROUNDED, SHUFFLED)]
    for place in descending(found.value[..., column])[:MOST]:
        values = [np.nan if each is None else float(found.value[*place, each]) for each in beside]
        yield Row(
            head_name(HeadName(stack, *place)),
            (
                number(float(found.value[*place, column])),
                interval(float(found.low[*place, column]), float(found.high[*place, column])),
                *map(number, values),
            ),
        )
