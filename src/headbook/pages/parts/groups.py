"""Tables of a head's numbers in groups of sentences and in minimal pairs."""

from headbook.analysis.accumulators import Estimate
from headbook.pages.parts.blocks import Row, Table, row
from headbook.pages.parts.table import NumberCell
from headbook.report.facts.columns.contrasts import (
    PairContrast,
    compared_metrics,
    group_number,
    groups_of,
    pair_numbers,
)
from headbook.report.results import StackResults
from headbook.results.formats import MISSING
from headbook.results.number import Number, RowAddress, difference
from headbook.results.sentence import Link, Marked, say
from headbook.schema import HeadName

MOST_GROUPS = 8  # groups on a head's page


def group_table(results: StackResults, head: HeadName) -> Table | None:
    """Return the numbers of one head in the largest groups; None without groups."""
    metrics = results.cached(compared_metrics)
    groups = sorted(groups_of(results), key=lambda group: -group.sentences)[:MOST_GROUPS]
    rows = tuple(
        row(
            say("{column}: {value}", column=Marked(group.column, "bdi"),
                value=Marked(group.value, "bdi")),
            group.sentences,
            *(known(group_number(group, metric, head)) for metric in metrics),
        )
        for group in sorted(groups, key=lambda group: (group.column, group.value))
    )  # fmt: skip
    columns: Row = ("Group", "sentences", *(metric.link for metric in metrics))
    caption = say(
        "By columns of the input, the largest groups; see {page} for all heads.",
        page=Link("Groups", "groups.html"),
    )
    return Table(columns, rows, caption) if rows else None


def pair_table(results: StackResults, head: HeadName) -> Table | None:
    """Return the differences of one head between the members of pairs; None without pairs."""
    differences = results.study.pair_differences.get(results.stack.name)
    if differences is None:
        return None
    of_head = (
        pair_numbers(differences, head, index)
        for index in range(len(differences.columns))
        if differences.difference[head.layer, head.head, index].n_sentences
    )
    rows = tuple(row(pair.compared.link, *pair_cells(pair)) for pair in of_head)
    columns = ("Metric", *differences.members, "difference", "p")
    caption = say(
        "Within {page}: first minus second, with its interval over pairs. p: family-wise over all "
        "heads and metrics.",
        page=Link("minimal pairs", "groups.html"),
    )
    return Table(columns, rows, caption) if rows else None


def pair_cells(pair: PairContrast) -> tuple[Number | str, ...]:
    """Return the mean of each member, their difference and its p."""
    return tuple(known(number) for number in (pair.first, pair.second, pair.change, pair.p))


def known(number: Number) -> Number | str:
    """Return a number, or a dash if it is not known, which has no row."""
    return number if number.known else MISSING


def difference_cell(value: Estimate, *, share: bool, behind: str) -> NumberCell:
    """Return a difference with its interval as a cell of a table of two studies."""
    number = difference(*value[:3], RowAddress("", ()), share=share, sentences=0)
    if not number.known:
        return NumberCell(MISSING, "", "no data", too_few=False)
    return NumberCell(number.as_text(), number.as_text("ends"), behind, too_few=False)
