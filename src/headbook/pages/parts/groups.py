"""Numbers of groups of sentences and of pairs, for the pages of groups and of heads."""

import math
from dataclasses import dataclass

from headbook.analysis.accumulators import Estimate, Estimates
from headbook.metrics import all_metrics
from headbook.metrics.base import HeadMetric
from headbook.pages.parts.table import (
    Content,
    MarkedText,
    NumberCell,
    PageTable,
    Row,
    Title,
    words_cell,
)
from headbook.report.results import StackResults
from headbook.report.wording import count_text, is_share, label_name, p_text
from headbook.results.formats import MISSING, THIN, number
from headbook.results.sentence import Link, metric_link
from headbook.schema import HeadKey, HeadName
from headbook.study.contrasts import PairDifferences
from headbook.study.groups import GroupSums, compared_keys
from headbook.study.tables import RowKey, row_of_head

MOST_GROUPS = 8  # groups on a head's page
MOST_DIGITS = 6  # digits after the decimal point


@dataclass(frozen=True)
class GroupMetric:
    """A number by which groups and pairs are compared.

    Attributes:
        metric: metric of the number.
        column: key of the number; ``place`` is its index among the keys of a stack.
        title: name on pages, with the unit.
    """

    metric: HeadMetric
    column: HeadKey
    place: int
    title: str

    @property
    def link(self) -> Link:
        """Link to the metric's page."""
        return metric_link(self.metric.id, self.title)


def stack_headlines(results: StackResults) -> tuple[GroupMetric, ...]:
    """Return the numbers of a stack by which its groups are compared."""
    columns = results.study.corpus_sums.heads[results.stack.name].table.columns
    return tuple(
        _headline(columns[headline], headline)
        for headline in compared_keys(results.metrics, columns, results.stack)
        if results.has_value(*columns[headline])
    )


def _headline(column: HeadKey, place: int) -> GroupMetric:
    metric = all_metrics()[column.metric]
    assert isinstance(metric, HeadMetric)
    label = f": {label_name(column.label)}" if column.label else ""
    unit = f" ({metric.unit})" if metric.unit else ""
    return GroupMetric(metric, column, place, f"{metric.title}{label}{unit}")


def groups_of(results: StackResults) -> tuple[GroupSums, ...]:
    """Return the groups of a stack, by column and value."""
    return results.study.corpus_sums.heads[results.stack.name].groups


def numbers_of(group: GroupSums, headline: GroupMetric, what: str = "heads") -> Estimates:
    """Return the numbers of a group: those of heads, or of another field of the group."""
    ratios, metric = getattr(group, what)[..., headline.place], headline.metric
    return Estimates.of(ratios, metric.limits, metric.spread(headline.column.label))


def group_table(results: StackResults, layer: int, head: int) -> PageTable | None:
    """Return the numbers of one head in the largest groups; None without groups."""
    headlines = results.cached(stack_headlines)
    groups = sorted(groups_of(results), key=lambda group: -group.sentences)[:MOST_GROUPS]
    rows = []
    for group in sorted(groups, key=lambda group: (group.column, group.value)):
        cells = (NumberCell.of(numbers_of(group, h).at(layer, head), h.metric) for h in headlines)
        name = words_cell(MarkedText(group.column, "bdi"), ": ", MarkedText(group.value, "bdi"))
        rows.append(Row(name, (f"{group.sentences:,}", *cells)))
    columns: tuple[Title, ...] = ("Group", "sentences", *(headline.link for headline in headlines))
    return PageTable(columns, tuple(rows)) if rows else None


def pair_table(results: StackResults, layer: int, head: int) -> PageTable | None:
    """Return the differences of one head between the members of pairs; None without pairs."""
    differences = results.study.pair_differences.get(results.stack.name)
    if differences is None:
        return None
    name = HeadName(results.stack.name, layer, head)
    rows = tuple(
        Row(headline.link, cells)
        for index in range(len(differences.columns))
        if differences.difference[layer, head, index].n_sentences
        for headline, cells in [pair_cells(differences, name, index)]
    )
    return PageTable(("Metric", *differences.members, "difference", "p"), rows) if rows else None


def group_row(group: GroupSums, headline: GroupMetric, head: HeadName) -> RowKey:
    """Return the row of a head's number in the table of groups."""
    return ("facet", group.column), ("group", group.value), *row_of_head(head, headline.column)


def pair_cells(
    differences: PairDifferences, head: HeadName, index: int
) -> tuple[GroupMetric, tuple[Content, ...]]:
    """Return the number of a row and its cells: mean of each member, difference, family-wise p."""
    at, column = (head.layer, head.head, index), differences.columns[index]
    pairs, share = differences.difference[at], is_share(all_metrics()[column.metric])
    low, high = (float(end[at]) for end in differences.ends)
    behind = int(pairs.n_sentences), float(pairs.n_observations), float(pairs.n_effective)
    value = Estimate(float(pairs.value), low, high, *behind)
    cells = [
        NumberCell(number(float(mean[at]), share=share), "", "", too_few=False)
        for mean in (differences.first, differences.second)
    ]
    cells.append(difference_cell(value, share=share, behind=count_text(value.sentences, "pair")))
    row = row_of_head(head, column)
    linked = (cell.with_row("minimal_pairs", row) for cell in cells)
    return _headline(column, index), (*linked, p_text(float(differences.p[at])))


def difference_cell(value: Estimate, *, share: bool, behind: str) -> NumberCell:
    """Return a difference with its interval; differences of shares are in points.

    The interval has two significant digits, and a value other than 0 at least one.
    """
    if math.isnan(value.value):
        return NumberCell(MISSING, "", "no data", too_few=False)
    times, unit = (100, " points") if share else (1, "")
    parts = [times * part for part in (value.value, value.low, value.high)]
    reach = (parts[2] - parts[1]) / 2
    places = [1 - _power(reach), -_power(parts[0])]
    digits = min(max(0, *places), MOST_DIGITS)
    middle, low, high = (_signed(part, digits) for part in parts)
    ends = "" if math.isnan(reach) else f"[{low}, {high}]"
    return NumberCell(f"{middle}{unit}", ends, behind, too_few=False)


def _power(size: float) -> int:
    """Return the power of ten of a number's first digit; 0 for 0 and for NaN."""
    return math.floor(math.log10(abs(size))) if size and not math.isnan(size) else 0


def _signed(value: float, digits: int) -> str:
    text = f"{abs(value):,.{digits}f}"
    least = 10.0**-digits
    if value and float(text.replace(",", "")) == 0:
        text = f"<{THIN}{least:.{digits}f}"
    return f"{'−' if value < 0 else '+' if value > 0 else ''}{text}"
