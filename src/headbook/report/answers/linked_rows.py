"""Numbers of pages with the row of the table that holds each."""

from headbook.report.findings.finding import LinkedNumber
from headbook.report.wording import THIN
from headbook.schema import HeadKey
from headbook.study.sentence_data import HeadName

Column = HeadKey | tuple[str, str, str]  # metric, view and label
Row = tuple[tuple[str, str | int], ...]  # columns and values
ALL, HELD_OUT_SPLIT = "all", "held_out"  # splits in the table of tests


def head_number(text: str, head: HeadName, column: Column) -> LinkedNumber:
    """Return a number of one head, from the table of heads."""
    return LinkedNumber(text, "heads", (*_head(head), *_column(column)))


def claim_number(
    text: str,
    claim: str,
    stack: str,
    column: Column,
    *,
    split: str = ALL,
    layer: int | None = None,
    head: int | None = None,
) -> LinkedNumber:
    """Return a number from the table of tests.

    Args:
        column: metric, view and label.
        layer: None for a number of several layers.
        head: None for a number of several heads.
    """
    places = (("layer", layer), ("head", head))
    known: Row = tuple((name, place) for name, place in places if place is not None)
    row: Row = (("claim", claim), ("stack", stack), *known, *_column(column), ("split", split))
    return LinkedNumber(text, "tests", row)


def _head(head: HeadName) -> Row:
    return (("stack", head.stack), ("layer", head.layer), ("head", head.head))


def _column(column: Column) -> Row:
    metric, view, label = map(str, column)
    return (("metric", metric), ("view", view), ("label", label))


def whole_percent(value: float) -> str:
    """Return a share in whole per cent; no share but 0 is printed as 0, and none but 1 as 100."""
    if 0 < value < 0.005:
        return f"<{THIN}1{THIN}%"
    if 0.995 <= value < 1:
        return f">{THIN}99{THIN}%"
    return f"{100 * value:.0f}{THIN}%"
