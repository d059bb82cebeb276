"""Heads that differ most: between groups of sentences, and within pairs of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from headbook.pages.parts.cells import Cell
from headbook.pages.parts.groupvalues import (
    Headline,
    difference_cell,
    numbers_of,
    pair_cells,
    stack_headlines,
)
from headbook.pages.parts.table import Content, Mark, Row, Table, words
from headbook.report.findings.finding import head_link
from headbook.report.numbers.results import Estimate, StackResults
from headbook.report.wording import counted, is_share, p_text
from headbook.study.sentencedata import HeadName
from headbook.study.summaries.contrasts import PairDifferences, contrast
from headbook.study.summaries.grouped import Group

MOST_ROWS = 15  # of a table
SMALL = 0.05  # a p below it is counted


@dataclass(frozen=True)
class Contrasts:
    """Heads with the smallest p, of how many comparisons, and how many have a small one."""

    table: Table
    family: int
    below: int


@dataclass(frozen=True)
class PairSection:
    """Pairs of sentences.

    Attributes:
        pairs, left_out: how many have two members, and how many identifiers have not.
        member_column: the column that tells members apart; empty where their order does.
        members: what it says of them.
        table: heads with the smallest p.
        family: heads and numbers that were compared.
        below: how many of them have a p below 0.05.
    """

    pairs: str
    left_out: int
    member_column: str
    members: tuple[str, str]
    table: Table
    family: int
    below: int


class _Found(NamedTuple):
    """The p of one comparison, and where it stands."""

    p: float
    layer: int
    head: int
    headline: Headline
    groups: tuple[Group, Group]


def head_contrasts(results: StackResults, groups: Sequence[Group]) -> Contrasts:
    """Compare every two groups by every head and headline."""
    found: list[_Found] = []
    layers = [*results.stack.attention_layers]
    for pair in combinations(groups, 2):
        for headline in results.once(stack_headlines):
            one, other = (group.heads[..., headline.place] for group in pair)
            p = contrast(one, other, headline.metric.limits).p[layers]
            found += [
                _Found(float(p[place]), layers[place[0]], int(place[1]), headline, pair)
                for place in zip(*np.nonzero(~np.isnan(p)), strict=True)
            ]
    first = sorted(found, key=lambda each: each.p)[:MOST_ROWS]
    two = tuple(group.value for group in groups) if len(groups) == 2 else ()
    between = two or ("first", "its value", "second", "its value")
    rows = tuple(_contrast(results, each, len(found), named=not two) for each in first)
    return Contrasts(
        table=Table(("Head", "Metric", *between, "difference", "uniform attention", "p"), rows),
        family=len(found),
        below=sum(each.p * len(found) < SMALL for each in found),
    )


def _contrast(results: StackResults, found: _Found, family: int, *, named: bool) -> Row:
    """The first group minus the second; the p of this comparison, times the number of all."""
    headline, (layer, head) = found.headline, (found.layer, found.head)
    one, other = (group.heads[layer, head, headline.place] for group in found.groups)
    apart, share = contrast(one, other, headline.metric.limits), is_share(headline.metric)
    value = Estimate(float(apart.value), float(apart.low), float(apart.high), 0, 0.0)
    even = [group.uniform[layer, headline.place].value for group in found.groups]
    name = HeadName(results.stack.name, layer, head)
    # Most are equal but for rounding.
    uniform = Estimate(round(float(even[0] - even[1]), 9), np.nan, np.nan, 0, 0.0)
    values: list[Content] = []
    for group in found.groups:
        values += [words(Mark(group.value, "bdi"))] if named else []
        values.append(Cell.of(numbers_of(group, headline).at(layer, head), headline.metric))
    cells = (
        words(headline.link, style="what"),
        *values,
        difference_cell(value, share=share, behind=f"p {p_text(found.p)}, uncorrected"),
        difference_cell(uniform, share=share, behind="").text,
        p_text(min(1.0, found.p * family)),
    )
    return Row(head_link(name), cells)


def pair_section(results: StackResults, found: PairDifferences) -> PairSection:
    """Heads and numbers with the smallest p; of equal ones the largest in standard errors."""
    places = [*zip(*np.nonzero(~np.isnan(found.p)), strict=True)]
    places.sort(key=lambda place: (found.p[place], -_size(found, place)))
    return PairSection(
        pairs=counted(found.pairs, "pair"),
        left_out=found.left_out,
        member_column=found.member_column,
        members=found.members,
        table=Table(
            ("Head", "Metric", *found.members, "difference", "p"),
            tuple(_pair_row(results, found, *map(int, place)) for place in places[:MOST_ROWS]),
        ),
        family=found.family,
        below=int((found.p < SMALL).sum()),
    )


def _size(found: PairDifferences, place: tuple[int, ...]) -> float:
    """A difference in standard errors."""
    one = found.difference[place]
    error = float(np.sqrt(one.variance()))
    return abs(float(one.value)) / error if error else 0.0


def _pair_row(
    results: StackResults, found: PairDifferences, layer: int, head: int, column: int
) -> Row:
    headline, cells = pair_cells(found, layer, head, column)
    return Row(head_link(HeadName(results.stack.name, layer, head)), (headline.link, *cells))
