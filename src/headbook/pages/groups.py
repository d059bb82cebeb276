"""The page of groups of sentences and minimal pairs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from typing import ClassVar, NamedTuple

import numpy as np
import pandas as pd

from headbook.analysis.accumulators import Estimate
from headbook.charts import Figure, layer_curve
from headbook.metrics import all_metrics
from headbook.pages.parts.groups import (
    GroupMetric,
    difference_cell,
    group_row,
    groups_of,
    numbers_of,
    pair_cells,
    stack_headlines,
)
from headbook.pages.parts.page import StackSection, TemplatePage, gap_text
from headbook.pages.parts.table import (
    Content,
    MarkedText,
    NumberCell,
    PageTable,
    Row,
    layer_frame,
    words_cell,
)
from headbook.report.results import StackResults, study_of
from headbook.report.wording import STACKS, VIEWS, count_text, is_share, label_name, p_text, visible
from headbook.results.sentence import head_link
from headbook.schema import HeadName
from headbook.study.contrasts import PairDifferences, contrast
from headbook.study.groups import GroupSums
from headbook.study.manifest import Manifest, MissingPart

MOST_ROWS = 15  # rows of a table
SMALL = 0.05  # p below which a comparison is counted


@dataclass(frozen=True)
class Contrasts:
    """Heads with the smallest p, the number of comparisons, and how many have a small p."""

    table: PageTable
    family: int
    below: int


@dataclass(frozen=True)
class MinimalPairsSection:
    """Minimal pairs of sentences, and the heads that differ most within pairs.

    Attributes:
        pairs, left_out: number of pairs, and number of identifiers without two members.
        member_column: column that distinguishes the members; empty if their order does.
        members: value of that column for each member, else ``first`` and ``second``.
        table: heads with the smallest p.
        family: number of comparisons: heads times numbers.
        below: number of comparisons with a p below 0.05.
    """

    pairs: str
    left_out: int
    member_column: str
    members: tuple[str, str]
    table: PageTable
    family: int
    below: int


class _Found(NamedTuple):
    """The p of one comparison, with its head, number and groups."""

    p: float
    layer: int
    head: int
    headline: GroupMetric
    groups: tuple[GroupSums, GroupSums]


def head_contrasts(results: StackResults, groups: Sequence[GroupSums]) -> Contrasts:
    """Compare every two groups by every head and headline."""
    comparisons: list[_Found] = []
    layers = [*results.stack.attention_layers]
    for pair in combinations(groups, 2):
        for headline in results.cached(stack_headlines):
            one, other = (group.heads[..., headline.place] for group in pair)
            p = contrast(one, other, headline.metric.limits).p[layers]
            comparisons += [
                _Found(float(p[place]), layers[place[0]], int(place[1]), headline, pair)
                for place in zip(*np.nonzero(~np.isnan(p)), strict=True)
            ]
    first = sorted(comparisons, key=lambda each: each.p)[:MOST_ROWS]
    two = tuple(group.value for group in groups) if len(groups) == 2 else ()
    between = two or ("first", "its value", "second", "its value")
    rows = tuple(_contrast(results, each, len(comparisons), named=not two) for each in first)
    return Contrasts(
        table=PageTable(("Head", "Metric", *between, "difference", "uniform attention", "p"), rows),
        family=len(comparisons),
        below=sum(each.p * len(comparisons) < SMALL for each in comparisons),
    )


def _contrast(results: StackResults, comparison: _Found, family: int, *, named: bool) -> Row:
    """Return the row of a comparison: first group minus second, p times number of comparisons."""
    headline, (layer, head) = comparison.headline, (comparison.layer, comparison.head)
    one, other = (group.heads[layer, head, headline.place] for group in comparison.groups)
    apart, share = contrast(one, other, headline.metric.limits), is_share(headline.metric)
    value = Estimate(float(apart.value), float(apart.low), float(apart.high), 0, 0.0)
    even = [group.uniform[layer, headline.place].value for group in comparison.groups]
    name = HeadName(results.stack.name, layer, head)
    # Rounded, since most differences under uniform attention are 0 but for floating-point errors.
    uniform = Estimate(round(float(even[0] - even[1]), 9), np.nan, np.nan, 0, 0.0)
    values: list[Content] = []
    for group in comparison.groups:
        values += [words_cell(MarkedText(group.value, "bdi"))] if named else []
        cell = NumberCell.of(numbers_of(group, headline).at(layer, head), headline.metric)
        values.append(cell.with_row("groups", group_row(group, headline, name)))
    cells = (
        words_cell(headline.link, style="what"),
        *values,
        difference_cell(value, share=share, behind=f"p {p_text(comparison.p)}, uncorrected"),
        difference_cell(uniform, share=share, behind="").text,
        p_text(min(1.0, comparison.p * family)),
    )
    return Row(head_link(name), cells)


def minimal_pairs_section(
    results: StackResults, differences: PairDifferences
) -> MinimalPairsSection:
    """Return the heads and numbers with the smallest p within pairs.

    Of equal p, the largest difference in standard errors comes first.
    """
    places = [*zip(*np.nonzero(~np.isnan(differences.p)), strict=True)]
    places.sort(key=lambda place: (differences.p[place], -_size(differences, place)))
    return MinimalPairsSection(
        pairs=count_text(differences.pairs, "pair"),
        left_out=differences.left_out,
        member_column=differences.member_column,
        members=differences.members,
        table=PageTable(
            ("Head", "Metric", *differences.members, "difference", "p"),
            tuple(
                _pair_row(results, differences, *map(int, place)) for place in places[:MOST_ROWS]
            ),
        ),
        family=differences.family,
        below=int((differences.p < SMALL).sum()),
    )


def _size(differences: PairDifferences, place: tuple[int, ...]) -> float:
    """Return a difference in standard errors, without its sign; 0 without variance."""
    one = differences.difference[place]
    error = float(np.sqrt(one.variance()))
    return abs(float(one.value)) / error if error else 0.0


def _pair_row(
    results: StackResults, differences: PairDifferences, layer: int, head: int, column: int
) -> Row:
    name = HeadName(results.stack.name, layer, head)
    headline, cells = pair_cells(differences, name, column)
    return Row(head_link(name), (headline.link, *cells))


FEW_SENTENCES = 10  # sentences below which a group is not compared
MOST_LINES = 6  # groups of a figure
MOST_FIGURES = 8  # figures of the page
LETTERS = 24  # letters of a group's name in a figure


@dataclass(frozen=True)
class ColumnSection:
    """The groups of one metadata column.

    Attributes:
        title: the column's name.
        table: groups of the column.
        figures: curves over layers.
        contrasts: heads that differ most between two groups.
        heads, numbers, pairs: numbers of heads, of metrics and of pairs that were compared.
        small: groups with too few sentences to compare.
    """

    title: str
    table: PageTable
    figures: tuple[Figure, ...]
    contrasts: Contrasts
    heads: int
    numbers: int
    pairs: int
    small: tuple[str, ...]


@dataclass(frozen=True)
class GroupsSection(StackSection):
    """Groups and pairs in one stack: a section for each column, and the pairs."""

    columns: tuple[ColumnSection, ...]
    pairs: MinimalPairsSection | None


@dataclass(frozen=True, kw_only=True)
class GroupsPage(TemplatePage):
    """The page of groups and pairs in all stacks.

    Attributes:
        sections: by stack.
        few: sentences below which a group is not compared.
        remarks: columns that were left out, and why.
    """

    template: ClassVar[str] = "groups.html"
    styles = ("plots",)
    sections: tuple[GroupsSection, ...]
    few: int
    remarks: tuple[str, ...]


def has_groups(results: Mapping[str, StackResults]) -> bool:
    """Whether a study has groups of sentences or pairs to compare."""
    pairs = study_of(results).pair_differences
    return any(groups_of(r) for r in results.values()) or bool(pairs)


def groups_page(results: Mapping[str, StackResults]) -> GroupsPage:
    """Return the page of groups and of pairs."""
    each = [*results.values()]
    study = study_of(results)
    most = MOST_FIGURES // max(1, sum(len({g.column for g in groups_of(r)}) for r in each))
    return GroupsPage(
        path="groups.html",
        title="Groups of sentences",
        description=f"How heads of {study.manifest.model.name} differ between groups of sentences, "
        "and within pairs of them.",
        sections=tuple(_section(r, max(1, most)) for r in each),
        few=FEW_SENTENCES,
        remarks=tuple(_remarks(study.manifest)),
    )


def _remarks(manifest: Manifest) -> Iterator[str]:
    for gap in manifest.gaps:
        if gap.key == MissingPart.GROUPS:
            yield gap_text(gap)


def _section(results: StackResults, most: int) -> GroupsSection:
    by_column = groupby(groups_of(results), key=lambda group: group.column)
    pair_differences = results.study.pair_differences.get(results.stack.name)
    return GroupsSection(
        stack=results.stack.name,
        columns=tuple(
            _column(results, number, [*groups], most)
            for number, (_, groups) in enumerate(by_column)
        ),
        pairs=minimal_pairs_section(results, pair_differences)
        if pair_differences is not None
        else None,
    )


def _column(
    results: StackResults, number: int, groups: Sequence[GroupSums], most: int
) -> ColumnSection:
    headlines = results.cached(stack_headlines)
    compared = [group for group in groups if group.sentences >= FEW_SENTENCES]
    figures = number * most < MOST_FIGURES
    return ColumnSection(
        title=groups[0].column,
        table=PageTable(("Group", "sentences"), tuple(map(_row, groups))),
        figures=tuple(_figure(results, number, groups, h) for h in headlines[:most] if figures),
        contrasts=head_contrasts(results, compared),
        heads=len(results.stack.attention_layers) * results.stack.n_heads,
        numbers=len(headlines),
        pairs=len(compared) * (len(compared) - 1) // 2,
        small=tuple(group.value for group in groups if group not in compared),
    )


def _row(group: GroupSums) -> Row:
    return Row(words_cell(group.value, foreign=True), (f"{group.sentences:,}",))


def _figure(
    results: StackResults, number: int, groups: Sequence[GroupSums], headline: GroupMetric
) -> Figure:
    """Return the curves of a number by layer, a line for each of the largest groups."""
    measured = [g for g in groups if numbers_of(g, headline, "layers").sentences.any()]
    largest = sorted(measured, key=lambda group: -group.sentences)[:MOST_LINES]
    layers = [*results.stack.attention_layers]
    frames = []
    for name, group in zip(_names(largest), largest, strict=True):
        frame = layer_frame(numbers_of(group, headline, "layers"), name)
        frames.append(frame.iloc[layers])
    column = headline.column
    rows = pd.concat(frames, ignore_index=True).assign(view=str(column.view), label=column.label)
    which = f", the {len(largest)} largest groups" if len(largest) < len(groups) else ""
    stack = results.stack.name
    return layer_curve(
        f"groups-{stack}-{number + 1}-{column.metric}",
        f"{headline.title} of each layer, all heads, by {visible(groups[0].column)}{which}; "
        f"{VIEWS[column.view]}; bands: 95 % intervals. {STACKS[stack].capitalize()}.",
        rows.dropna(subset=["value"], ignore_index=True),
        title=label_name(column.label) or headline.title,
        share=is_share(all_metrics()[column.metric]),
    )


def _names(groups: Sequence[GroupSums]) -> list[str]:
    """Return names of groups that are short enough for a figure, no two alike."""
    names: list[str] = []
    for group in groups:
        whole = visible(group.value)
        name = whole if len(whole) <= LETTERS else f"{whole[: LETTERS - 1]}…"
        names.append(f"{name} ({len(names) + 1})" if name in names else name)
    return names
