"""Numbers of pages that lead to their rows in the tables of heads, layers and controls."""

from headbook.report.findings.finding import LinkedNumber
from headbook.report.head_types import Place
from headbook.report.results import StackResults
from headbook.schema import HeadKey
from headbook.study.tables import UNIFORM

Columns = tuple[tuple[str, str | int], ...]  # columns with the values that identify a row


def head_row(results: StackResults, key: HeadKey, place: Place, text: str) -> LinkedNumber:
    """Return a number of a head that leads to its row."""
    layer, head = place
    row: Columns = (("stack", results.stack.name), ("layer", layer), ("head", head), *_columns(key))
    return LinkedNumber(text, "heads", row)


def layer_row(results: StackResults, key: HeadKey, layer: int, text: str) -> LinkedNumber:
    """Return a number of a layer, all heads together, that leads to its row."""
    row: Columns = (("stack", results.stack.name), ("layer", layer), *_columns(key))
    return LinkedNumber(text, "layers", row)


def uniform_row(results: StackResults, key: HeadKey, layer: int, text: str) -> LinkedNumber:
    """Return a number of a layer under uniform attention that leads to its row."""
    stack = results.stack.name
    row: Columns = (("control", UNIFORM), ("stack", stack), ("layer", layer), *_columns(key))
    return LinkedNumber(text, "controls", row)


def _columns(key: HeadKey) -> Columns:
    return ("metric", key.metric), ("view", str(key.view)), ("label", key.label)
