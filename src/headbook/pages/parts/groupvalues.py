"""Numbers of groups of sentences and of pairs, as the pages of groups and of heads print them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from headbook.metrics import all_metrics
from headbook.metrics.base import HeadMetric
from headbook.pages.parts.cells import Cell
from headbook.report.numbers.results import Estimate, Estimates, StackResults
from headbook.report.wording import MISSING, THIN, counted, is_share, label_name, number, p_text
from headbook.study.facets import headlines
from headbook.study.summaries.grouped import Group
from headbook.study.summaries.sums import HeadColumn

MOST_GROUPS = 8  # of a head's page
MOST_DIGITS = 6  # behind the point


@dataclass(frozen=True)
class Headline:
    """A number that groups and pairs are compared by.

    Attributes:
        metric: whose number it is.
        column: which of its numbers; ``place`` among those of a stack.
        title, href: how pages call it, with the unit, and the metric's page.
    """

    metric: HeadMetric
    column: HeadColumn
    place: int
    title: str
    href: str


@dataclass(frozen=True)
class GroupRow:
    """A group with its numbers.

    Attributes:
        column, value: what the sentences share.
        sentences: how many there are.
        cells: the numbers of a head, by headline.
    """

    column: str
    value: str
    sentences: str
    cells: tuple[Cell, ...] = ()


@dataclass(frozen=True)
class PairRow:
    """A number of a head that differs within pairs.

    Attributes:
        headline: which number.
        first, second: the members' means.
        difference: of the two.
        p: family-wise.
    """

    headline: Headline
    first: str
    second: str
    difference: Cell
    p: str


def stack_headlines(results: StackResults) -> tuple[Headline, ...]:
    """The numbers that the groups of a stack are compared by, those that it has."""
    columns = results.study.corpus_sums.heads[results.stack.name].table.columns
    return tuple(
        _headline(columns[headline], headline)
        for headline in headlines(results.metrics, columns, results.stack)
        if results.has(*columns[headline])
    )


def _headline(column: HeadColumn, place: int) -> Headline:
    metric = all_metrics()[column.metric]
    assert isinstance(metric, HeadMetric)
    label = f": {label_name(column.label)}" if column.label else ""
    unit = f" ({metric.unit})" if metric.unit else ""
    return Headline(
        metric, column, place, f"{metric.title}{label}{unit}", f"metrics/{metric.id}.html"
    )


def groups_of(results: StackResults) -> tuple[Group, ...]:
    """The groups of a stack, by column and value."""
    return results.study.corpus_sums.heads[results.stack.name].groups


def numbers_of(group: Group, headline: Headline, what: str = "heads") -> Estimates:
    """Numbers of the heads of a group, or of what else it has."""
    return Estimates.of(getattr(group, what)[..., headline.place], headline.metric.limits)


def group_rows(results: StackResults, layer: int, head: int) -> Iterator[GroupRow]:
    """The numbers of one head by group, the largest groups."""
    headlines = results.once(stack_headlines)
    groups = sorted(groups_of(results), key=lambda group: -group.sentences)[:MOST_GROUPS]
    for group in sorted(groups, key=lambda group: (group.column, group.value)):
        cells = (Cell.of(numbers_of(group, h).at(layer, head), h.metric) for h in headlines)
        yield GroupRow(group.column, group.value, f"{group.sentences:,}", tuple(cells))


def pair_rows(results: StackResults, layer: int, head: int) -> Iterator[PairRow]:
    """What one head does otherwise in one member of pairs than in the other."""
    pair_differences = results.study.pair_differences.get(results.stack.name)
    for index, column in enumerate(pair_differences.columns if pair_differences else ()):
        assert pair_differences is not None
        at = (layer, head, index)
        pairs = pair_differences.difference[at]
        low, high = pairs.interval()
        headline, share = _headline(column, index), is_share(all_metrics()[column.metric])
        value = Estimate(
            float(pairs.value),
            float(low),
            float(high),
            int(pairs.sentences),
            float(pairs.events),
            float(pairs.effective),
        )
        if pairs.sentences:
            yield PairRow(
                headline,
                number(float(pair_differences.first[at]), share=share),
                number(float(pair_differences.second[at]), share=share),
                difference_cell(value, share=share, behind=counted(value.sentences, "pair")),
                p_text(float(pair_differences.p[at])),
            )


def members_of(results: StackResults) -> tuple[str, ...]:
    """What tells the members of pairs apart; empty without pairs."""
    pair_differences = results.study.pair_differences.get(results.stack.name)
    return pair_differences.members if pair_differences else ()


def difference_cell(value: Estimate, *, share: bool, behind: str) -> Cell:
    """A difference with its interval; of shares in points.

    The interval has two digits that count, and a value that is not nothing at least one.
    """
    if math.isnan(value.value):
        return Cell(MISSING, "", "no data", thin=False)
    times, unit = (100, " points") if share else (1, "")
    parts = [times * part for part in (value.value, value.low, value.high)]
    reach = (parts[2] - parts[1]) / 2
    places = [1 - _power(reach), -_power(parts[0])]
    digits = min(max(0, *places), MOST_DIGITS)
    middle, low, high = (_signed(part, digits) for part in parts)
    ends = "" if math.isnan(reach) else f"[{low}, {high}]"
    return Cell(f"{middle}{unit}", ends, behind, thin=False)


def _power(size: float) -> int:
    """The power of ten of a number's first digit; that of 1 for 0 and for what is missing."""
    return math.floor(math.log10(abs(size))) if size and not math.isnan(size) else 0


def _signed(value: float, digits: int) -> str:
    text = f"{abs(value):,.{digits}f}"
    least = 10.0**-digits
    if value and float(text.replace(",", "")) == 0:
        text = f"<{THIN}{least:.{digits}f}"
    return f"{'−' if value < 0 else '+' if value > 0 else ''}{text}"
