"""Groups of sentences: curves by group, heads that differ, and differences within pairs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

import pandas as pd

from headbook.charts import Figure, layer_curve
from headbook.metrics import all_metrics
from headbook.pages.groups.differences import Contrasts, PairSection, head_contrasts, pair_section
from headbook.pages.parts.across import across
from headbook.pages.parts.groupvalues import (
    Headline,
    groups_of,
    numbers_of,
    stack_headlines,
)
from headbook.pages.parts.page import Page, StackSection, gap_text
from headbook.pages.parts.rows import layer_frame
from headbook.pages.parts.table import Row, Table, words
from headbook.report.numbers.results import StackResults, study_of
from headbook.report.wording import STACKS, VIEWS, is_share, label_name, visible
from headbook.study.gaps import Lack
from headbook.study.manifest import Manifest
from headbook.study.summaries.grouped import Group

FEW_SENTENCES = 10  # groups with fewer are not compared
MOST_LINES = 6  # groups of a figure
MOST_FIGURES = 8  # of the page
LETTERS = 24  # of a group's name in a figure


@dataclass(frozen=True)
class ColumnSection:
    """One metadata column.

    Attributes:
        title: the column's name.
        table: its groups.
        figures: curves over layers.
        contrasts: heads that differ most between two of its groups.
        heads, numbers, pairs: how many were compared of each.
        small: groups with too few sentences to compare.
    """

    title: str
    table: Table
    figures: tuple[Figure, ...]
    contrasts: Contrasts
    heads: int
    numbers: int
    pairs: int
    small: tuple[str, ...]


@dataclass(frozen=True)
class GroupsSection(StackSection):
    """One kind of attention: its columns and its pairs."""

    columns: tuple[ColumnSection, ...]
    pairs: PairSection | None


@dataclass(frozen=True, kw_only=True)
class GroupsPage(Page):
    """Groups and pairs in all stacks.

    Attributes:
        sections: by stack.
        few: sentences below which a group is not compared.
        remarks: columns that were left out, and why.
    """

    template: ClassVar[str] = "groups.html"
    sections: tuple[GroupsSection, ...]
    few: int
    remarks: tuple[str, ...]


def _there(results: Mapping[str, StackResults]) -> bool:
    """Whether there are groups, or pairs."""
    pairs = study_of(results).pair_differences
    return any(groups_of(r) for r in results.values()) or bool(pairs)


@across("groups.html", _there)
def groups_page(results: Mapping[str, StackResults]) -> GroupsPage:
    """The page of groups and of pairs."""
    each = [*results.values()]
    study = study_of(results)
    room = MOST_FIGURES // max(1, sum(len({g.column for g in groups_of(r)}) for r in each))
    return GroupsPage(
        path="groups.html",
        title="Groups of sentences",
        description=f"How heads of {study.manifest.model.name} differ between groups of sentences, "
        "and within pairs of them.",
        sections=tuple(_section(r, max(1, room)) for r in each),
        few=FEW_SENTENCES,
        remarks=tuple(_remarks(study.manifest)),
    )


def _remarks(manifest: Manifest) -> Iterator[str]:
    for gap in manifest.gaps:
        if gap.key == Lack.GROUPS:
            yield gap_text(gap)


def _section(results: StackResults, room: int) -> GroupsSection:
    by_column = groupby(groups_of(results), key=lambda group: group.column)
    pair_differences = results.study.pair_differences.get(results.stack.name)
    return GroupsSection(
        stack=results.stack.name,
        columns=tuple(
            _column(results, number, [*groups], room)
            for number, (_, groups) in enumerate(by_column)
        ),
        pairs=pair_section(results, pair_differences) if pair_differences is not None else None,
    )


def _column(
    results: StackResults, number: int, groups: Sequence[Group], room: int
) -> ColumnSection:
    headlines = results.once(stack_headlines)
    compared = [group for group in groups if group.sentences >= FEW_SENTENCES]
    figures = number * room < MOST_FIGURES
    return ColumnSection(
        title=groups[0].column,
        table=Table(("Group", "sentences"), tuple(map(_row, groups))),
        figures=tuple(_figure(results, number, groups, h) for h in headlines[:room] if figures),
        contrasts=head_contrasts(results, compared),
        heads=len(results.stack.attention_layers) * results.stack.n_heads,
        numbers=len(headlines),
        pairs=len(compared) * (len(compared) - 1) // 2,
        small=tuple(group.value for group in groups if group not in compared),
    )


def _row(group: Group) -> Row:
    return Row(words(group.value, foreign=True), (f"{group.sentences:,}",))


def _figure(
    results: StackResults, number: int, groups: Sequence[Group], headline: Headline
) -> Figure:
    """A line for each group, the largest ones."""
    there = [g for g in groups if numbers_of(g, headline, "layers").sentences.any()]
    largest = sorted(there, key=lambda group: -group.sentences)[:MOST_LINES]
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
        show={"view": str(column.view), "label": column.label},
        share=is_share(all_metrics()[column.metric]),
    )


def _names(groups: Sequence[Group]) -> list[str]:
    """Names short enough for a figure, no two alike."""
    names: list[str] = []
    for group in groups:
        whole = visible(group.value)
        name = whole if len(whole) <= LETTERS else f"{whole[: LETTERS - 1]}…"
        names.append(f"{name} ({len(names) + 1})" if name in names else name)
    return names
