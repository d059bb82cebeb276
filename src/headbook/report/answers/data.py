"""A number as an example of where numbers come from, for the page of a site's files."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from headbook.metrics import all_metrics, ids
from headbook.report.results import StackResults
from headbook.report.sink import sink_tokens
from headbook.results.formats import head_name
from headbook.results.number import PLAIN, Number, RowAddress, unit_of
from headbook.results.sentence import Sentence, say
from headbook.schema import HeadKey, HeadName, SinkView
from headbook.study.tables import TableSpec


class NumberExample(NamedTuple):
    """A number of one head as an example.

    Attributes:
        sentence: words with the number.
        number: the number.
        column: column of its table that holds the number.
        worked: how the number is computed, with its sums over sentences; empty if unknown.
    """

    sentence: Sentence
    number: Number
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
    metric, printed = results.by_id[key.metric], results.number(key, layer, head)
    sentence = say("{head}, {metric}: {n}", head=head_name(name), metric=metric.title, n=printed)
    if key.metric == ids.SINK_SHARE:
        sentence = say(
            "{head} gives {n} of its attention to {tokens}.",
            head=head_name(name), n=printed, tokens=sink_tokens(results),
        )  # fmt: skip
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
    address = RowAddress(table.name, tuple((name, row[name]) for name in keys))
    printed = Number(float(row[column]), unit_of(metric) if metric else PLAIN, address)
    sentence = say(
        "{metric}, {head}, {column}: {n}", metric=metric.title if metric else row["metric"],
        head=head_name(HeadName(row["stack"], int(row["layer"]), int(row["head"]))), column=column,
        n=printed,
    )  # fmt: skip
    return NumberExample(sentence, printed, column)
