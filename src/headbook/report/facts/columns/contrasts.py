"""Facts on groups of sentences and on minimal pairs: which heads differ between them."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, groupby
from typing import NamedTuple

import numpy as np

from headbook.analysis.accumulators import Estimates
from headbook.metrics import all_metrics
from headbook.metrics.base import HeadMetric
from headbook.report.results import StackResults
from headbook.report.wording import count_text, label_name
from headbook.results.fact import Fact
from headbook.results.formats import p_text
from headbook.results.number import PLAIN, Number, RowAddress, Unit, difference, unit_of
from headbook.results.sentence import NOTHING, Link, Marked, metric_link, say
from headbook.schema import HeadKey, HeadName
from headbook.study.contrasts import PairDifferences, contrast
from headbook.study.groups import GroupSums, compared_keys
from headbook.study.tables import row_of_head

SMALL = 0.05  # p below which a comparison is counted
MIN_SENTENCES = 10  # of a group that is compared
P_VALUE = Unit("", p_text)


class GroupMetric(NamedTuple):
    """A number by which groups and pairs are compared.

    Attributes:
        metric: metric of the number.
        key: key of the number.
        place: index of the key among those of a stack.
    """

    metric: HeadMetric
    key: HeadKey
    place: int

    @classmethod
    def of(cls, key: HeadKey, place: int) -> "GroupMetric":
        """Return the number of a key."""
        metric = all_metrics()[key.metric]
        assert isinstance(metric, HeadMetric)
        return cls(metric, key, place)

    @property
    def title(self) -> str:
        """Name on pages, with the unit."""
        label = f": {label_name(self.key.label)}" if self.key.label else ""
        unit = f" ({self.metric.unit})" if self.metric.unit else ""
        return f"{self.metric.title}{label}{unit}"

    @property
    def unit(self) -> Unit:
        """Unit of the number; its name stands in the title, but for per cent."""
        return unit_of(self.metric) if self.metric.is_share else PLAIN

    @property
    def link(self) -> Link:
        """Link to the page of the metric."""
        return metric_link(self.metric.id, self.title)


def compared_metrics(results: StackResults) -> tuple[GroupMetric, ...]:
    """Return the numbers of a stack by which its groups are compared."""
    columns = results.study.corpus_sums.heads[results.stack.name].table.columns
    return tuple(
        GroupMetric.of(columns[place], place)
        for place in compared_keys(results.metrics, columns, results.stack)
        if results.has_value(*columns[place])
    )


def groups_of(results: StackResults) -> tuple[GroupSums, ...]:
    """Return the groups of a stack, by column and value."""
    return results.study.corpus_sums.heads[results.stack.name].groups


def large_groups(groups: Sequence[GroupSums]) -> list[GroupSums]:
    """Return the groups with enough sentences to be compared."""
    return [group for group in groups if group.sentences >= MIN_SENTENCES]


def numbers_of(group: GroupSums, compared: GroupMetric, what: str = "heads") -> Estimates:
    """Return the numbers of a group: those of heads, or of another field of the group."""
    ratios, metric = getattr(group, what)[..., compared.place], compared.metric
    return Estimates.of(ratios, metric.limits, metric.spread(compared.key.label))


def group_number(group: GroupSums, compared: GroupMetric, head: HeadName) -> Number:
    """Return the number of a head in a group, with its row."""
    key = ("facet", group.column), ("group", group.value), *row_of_head(head, compared.key)
    estimate = numbers_of(group, compared).at(head.layer, head.head)
    return Number.of(estimate, compared.unit, RowAddress("groups", key))


class GroupContrast(NamedTuple):
    """A number of a head in two groups, with the p of their difference.

    No table holds differences of groups, so they are texts.
    """

    p: float
    head: HeadName
    compared: GroupMetric
    groups: tuple[GroupSums, GroupSums]

    @property
    def numbers(self) -> tuple[Number, ...]:
        """Number of the head in each group."""
        return tuple(group_number(group, self.compared, self.head) for group in self.groups)

    @property
    def change(self) -> str:
        """First minus second group, with its interval."""
        one, other = (
            group.heads[self.head.layer, self.head.head, self.compared.place]
            for group in self.groups
        )
        result = contrast(one, other, self.compared.metric.limits)
        return self._text(float(result.value), float(result.low), float(result.high))

    @property
    def uniform_change(self) -> str:
        """First minus second group under uniform attention."""
        one, other = (
            float(group.uniform[self.head.layer, self.compared.place].value)
            for group in self.groups
        )
        # Rounded: most of these differences are 0 but for floating-point errors.
        return self._text(round(one - other, 9), np.nan, np.nan)

    def _text(self, value: float, low: float, high: float) -> str:
        row, share = self.numbers[0].row, self.compared.metric.is_share
        return difference(value, low, high, row, share=share, sentences=0).as_text("interval")


def comparisons(results: StackResults, groups: Sequence[GroupSums]) -> list[GroupContrast]:
    """Compare every two groups by every head and number; the smallest p comes first."""
    layers, stack = [*results.stack.attention_layers], results.stack.name
    compared = []
    for pair in combinations(groups, 2):
        for metric in results.cached(compared_metrics):
            one, other = (group.heads[..., metric.place] for group in pair)
            p = contrast(one, other, metric.metric.limits).p[layers]
            compared += [
                GroupContrast(float(p[n, head]), HeadName(stack, layers[n], head), metric, pair)
                for n, head in np.argwhere(~np.isnan(p)).tolist()
            ]
    return sorted(compared, key=lambda comparison: comparison.p)


def groups_by_column(results: StackResults) -> Mapping[str, list[GroupSums]]:
    """Return the groups of each metadata column."""
    groups = groupby(groups_of(results), key=lambda group: group.column)
    return {column: [*of_column] for column, of_column in groups}


def comparisons_by_column(results: StackResults) -> Mapping[str, list[GroupContrast]]:
    """Return the comparisons of the large groups of each metadata column."""
    return {
        column: comparisons(results, large_groups(groups))
        for column, groups in groups_by_column(results).items()
    }


def answer(results: StackResults) -> Fact:
    """Return how many comparisons have a small p, of each column and of minimal pairs."""
    compared = results.cached(comparisons_by_column)
    facts = [small_p(column, of_column) for column, of_column in compared.items()]
    if (differences := results.study.pair_differences.get(results.stack.name)) is not None:
        facts.append(small_p_of_pairs(differences))
    text = sum((fact.text for fact in facts), NOTHING)
    return Fact("groups", text, holds=any(fact.holds for fact in facts))


def small_p(column: str, compared: Sequence[GroupContrast]) -> Fact:
    """Return how many comparisons of the groups of a column have a small p, by Bonferroni."""
    if not compared:
        text = say("By {column}, no two groups can be compared.", column=Marked(column, "bdi"))
        return Fact("small_p", text, holds=False)
    below = sum(comparison.p * len(compared) < SMALL for comparison in compared)
    text = say(
        "By {column}, {below} of {family} comparisons of heads have p < 0.05 (Bonferroni).",
        column=Marked(column, "bdi"), below=f"{below:,}" if below else "none",
        family=len(compared),
    )  # fmt: skip
    return Fact("small_p", text, holds=below > 0)


def small_p_of_pairs(differences: PairDifferences) -> Fact:
    """Return how many comparisons within pairs have a small p, family-wise."""
    below = int((differences.p < SMALL).sum())
    text = say(
        "Within {pairs}, {below} of {family} comparisons of heads have p < 0.05 (family-wise).",
        pairs=count_text(differences.pairs, "minimal pair"), family=differences.family,
        below=f"{below:,}" if below else "none",
    )  # fmt: skip
    return Fact("small_p_of_pairs", text, holds=below > 0)


class PairContrast(NamedTuple):
    """Numbers of a head in minimal pairs: mean of each member, their difference, and its p."""

    head: HeadName
    compared: GroupMetric
    first: Number
    second: Number
    change: Number
    p: Number


def pair_numbers(differences: PairDifferences, head: HeadName, index: int) -> PairContrast:
    """Return the numbers of a head in one column of the differences."""
    at, key = (head.layer, head.head, index), differences.columns[index]
    compared, row = (
        GroupMetric.of(key, index),
        RowAddress("minimal_pairs", row_of_head(head, key)),
    )
    unit = compared.unit
    low, high = (float(end[at]) for end in differences.ends)
    change = difference(
        float(differences.difference[at].value), low, high, row,
        share=compared.metric.is_share, sentences=0,
    )  # fmt: skip
    return PairContrast(
        head, compared, Number(float(differences.first[at]), unit, row),
        Number(float(differences.second[at]), unit, row), change,
        Number(float(differences.p[at]), P_VALUE, row),
    )  # fmt: skip


def pairs_by_p(
    results: StackResults, differences: PairDifferences, most: int
) -> Iterator[PairContrast]:
    """Yield heads and numbers of smallest p; of equal p, the most standard errors come first."""
    places = np.argwhere(~np.isnan(differences.p)).tolist()
    places.sort(key=lambda place: (differences.p[*place], -_standard_errors(differences, place)))
    for layer, head, index in places[:most]:
        yield pair_numbers(differences, HeadName(results.stack.name, layer, head), index)


def _standard_errors(differences: PairDifferences, place: Sequence[int]) -> float:
    """Return a difference in standard errors, without its sign; 0 without variance."""
    of_place = differences.difference[*place]
    error = float(np.sqrt(of_place.variance()))
    return abs(float(of_place.value)) / error if error else 0.0
