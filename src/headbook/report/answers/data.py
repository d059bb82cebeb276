"""A number as an example of where numbers come from, for the page of a site's files."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from headbook.metrics import all_metrics, ids
from headbook.report.linked_rows import LinkedNumber, Parts
from headbook.report.results import StackResults
from headbook.report.sink import sink_tokens
from headbook.report.wording import is_share, with_unit
from headbook.results.formats import head_name, number
from headbook.schema import HeadKey, HeadName, SinkView
from headbook.study.tables import TableSpec, row_of_head


class NumberExample(NamedTuple):
    """A number of one head as an example.

    Attributes:
        sentence: words with the number.
        number: the number.
        column: column of its table that holds the number.
        worked: how the number is computed, with its sums over sentences; empty if unknown.
    """

    sentence: Parts
    number: LinkedNumber
    column: str
    worked: str = ""


def number_example(results: Mapping[str, StackResults]) -> NumberExample | None:
    """Return the largest share of the sink of any head, or else the first number of a head.

    Returns:
        None if no head has a number.
    """
    for stack_results in results.values():
        for key in _columns(stack_results):
            if stack_results.has_value(*key):
                return _example(stack_results, key)
    return None


def _columns(results: StackResults) -> Iterator[HeadKey]:
    yield HeadKey(ids.SINK_SHARE, SinkView.RAW, "")
    for metric in results.metrics:
        drawn = results.drawn(metric)
        if drawn is not None:
            yield HeadKey(metric.id, *drawn)


def _example(results: StackResults, key: HeadKey) -> NumberExample:
    values = results.heads(*key).value
    layer, head = map(int, np.unravel_index(np.nanargmax(values), values.shape))
    name, value = HeadName(results.stack.name, layer, head), float(values[layer, head])
    metric = results.by_id[key.metric]
    text = with_unit(number(value, share=is_share(metric)), metric.unit)
    printed = LinkedNumber(text, "heads", row_of_head(name, key))
    sentence: Parts = (f"{head_name(name)}, {metric.title}: ", printed)
    if key.metric == ids.SINK_SHARE:
        tokens = sink_tokens(results)
        sentence = (f"{head_name(name)} gives ", printed, f" of its attention to {tokens}.")
    table = results.study.head_tables[results.stack.name]
    sums = table.heads[layer, head, table.columns.index(key)].total
    worked = (
        f"{metric.title}, {head_name(name)}: sum of numerators {sums['n']:,.6g}, of denominators "
        f"{sums['d']:,.6g}, over {int(sums['sentences']):,} sentences; their ratio is {value:.6g}."
    )
    return NumberExample(sentence, printed, "value", worked)


def first_number(table: TableSpec[Any], frame: pd.DataFrame, column: str) -> NumberExample | None:
    """Return the first number of a head in a table of several models.

    Args:
        frame: rows of the table.
        column: column of the number, behind those that identify a row.

    Returns:
        None if no head has a number there.
    """
    if frame.empty or frame[[column, "head"]].dropna().empty:
        return None
    row = frame.loc[frame[[column, "head"]].dropna().index[0]]
    keys = [name for name in [*frame][: [*frame].index(column)] if frame[name].dtype.kind != "f"]
    metric = all_metrics().get(row["metric"])
    title, unit = (metric.title, metric.unit) if metric else (row["metric"], "")
    share = metric is not None and is_share(metric)
    text = with_unit(number(float(row[column]), share=share), unit)
    printed = LinkedNumber(text, table.name, tuple((name, row[name]) for name in keys))
    name = head_name(HeadName(row["stack"], int(row["layer"]), int(row["head"])))
    return NumberExample((f"{title}, {name}, {column}: ", printed), printed, column)
