"""Heads that differ most: between groups of sentences, and within pairs of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from headbook.pages.parts.cells import Cell
from headbook.pages.parts.groupvalues import (
    Headline,
    PairRow,
    difference_cell,
    numbers_of,
    pair_rows,
    stack_headlines,
)
from headbook.report.numbers.results import Estimate, StackResults
from headbook.report.wording import counted, head_name, head_page, is_share, p_text
from headbook.study.sentencedata import HeadName
from headbook.study.summaries.contrasts import PairDifferences, contrast
from headbook.study.summaries.grouped import Group

MOST_ROWS = 15  # of a table
SMALL = 0.05  # a p below it is counted


@dataclass(frozen=True)
class HeadContrast:
    """A head that differs between two groups.

    Attributes:
        name, href: the head and its page.
        headline: the number that differs.
        groups: the two groups' names.
        cells: their numbers.
        difference: the first minus the second.
        uniform: the same difference of uniform attention.
        p: of this comparison, times the number of all.
    """

    name: str
    href: str
    headline: Headline
    groups: tuple[str, str]
    cells: tuple[Cell, Cell]
    difference: Cell
    uniform: str
    p: str


@dataclass(frozen=True)
class Contrasts:
    """Heads with the smallest p, of how many comparisons, and how many have a small one."""

    rows: tuple[HeadContrast, ...]
    family: int
    below: int


@dataclass(frozen=True)
class PairHead:
    """A head that differs within pairs: its name, its page and what differs."""

    name: str
    href: str
    row: PairRow


@dataclass(frozen=True)
class PairSection:
    """Pairs of sentences.

    Attributes:
        pairs, left_out: how many have two members, and how many identifiers have not.
        member_column: the column that tells members apart; empty where their order does.
        members: what it says of them.
        rows: heads with the smallest p.
        family: heads and numbers that were compared.
        below: how many of them have a p below 0.05.
    """

    pairs: str
    left_out: int
    member_column: str
    members: tuple[str, str]
    rows: tuple[PairHead, ...]
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
    return Contrasts(
        rows=tuple(_contrast(results, each, len(found)) for each in first),
        family=len(found),
        below=sum(each.p * len(found) < SMALL for each in found),
    )


def _contrast(results: StackResults, found: _Found, family: int) -> HeadContrast:
    headline, (layer, head) = found.headline, (found.layer, found.head)
    one, other = (group.heads[layer, head, headline.place] for group in found.groups)
    apart, share = contrast(one, other, headline.metric.limits), is_share(headline.metric)
    value = Estimate(float(apart.value), float(apart.low), float(apart.high), 0, 0.0)
    even = [group.uniform[layer, headline.place].value for group in found.groups]
    name = HeadName(results.stack.name, layer, head)
    # Most are equal but for rounding.
    uniform = Estimate(round(float(even[0] - even[1]), 9), np.nan, np.nan, 0, 0.0)
    cells = (numbers_of(group, headline).at(layer, head) for group in found.groups)
    first, second = (Cell.of(cell, headline.metric) for cell in cells)
    return HeadContrast(
        name=head_name(name),
        href=head_page(name),
        headline=headline,
        groups=(found.groups[0].value, found.groups[1].value),
        cells=(first, second),
        difference=difference_cell(value, share=share, behind=f"p {p_text(found.p)}, uncorrected"),
        uniform=difference_cell(uniform, share=share, behind="").text,
        p=p_text(min(1.0, found.p * family)),
    )


def pair_section(results: StackResults, found: PairDifferences) -> PairSection:
    """Heads and numbers with the smallest p; of equal ones the largest in standard errors."""
    places = [*zip(*np.nonzero(~np.isnan(found.p)), strict=True)]
    places.sort(key=lambda place: (found.p[place], -_size(found, place)))
    return PairSection(
        pairs=counted(found.pairs, "pair"),
        left_out=found.left_out,
        member_column=found.member_column,
        members=found.members,
        rows=tuple(_pair_head(results, found, place) for place in places[:MOST_ROWS]),
        family=found.family,
        below=int((found.p < SMALL).sum()),
    )


def _size(found: PairDifferences, place: tuple[int, ...]) -> float:
    """A difference in standard errors."""
    one = found.difference[place]
    error = float(np.sqrt(one.variance()))
    return abs(float(one.value)) / error if error else 0.0


def _pair_head(results: StackResults, found: PairDifferences, place: tuple[int, ...]) -> PairHead:
    layer, head, column = map(int, place)
    name = HeadName(results.stack.name, layer, head)
    rows = {row.headline.column: row for row in pair_rows(results, layer, head)}
    return PairHead(head_name(name), head_page(name), rows[found.columns[column]])
