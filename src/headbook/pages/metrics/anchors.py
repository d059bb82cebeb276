"""Anchors: the token of each head whose pairs are similar most often."""

from collections.abc import Iterator

import numpy as np

from headbook.pages.parts.blocks import Cell, Table, row
from headbook.report.facts.outputs import ANCHORS
from headbook.report.results import StackResults
from headbook.results.formats import MISSING, number
from headbook.results.sentence import Marked, say
from headbook.schema import SinkView, heads_of
from headbook.study.sums.token_sums import TRUE_ORDER, Anchors

MOST_HEADS = 150  # heads in the list
COLUMNS = (ANCHORS, ANCHORS._replace(view=SinkView.NOSINK))
TITLES = ("all keys", "sink masked")
ANSWER = "Each head has a token instead of a number; they are listed below."


def anchor_blocks(results: StackResults) -> Iterator[Table]:
    """Yield the anchors of heads, those with the largest lower ends; nothing without any."""
    anchors = results.study.corpus_sums.anchors.get(results.stack.name)
    if anchors is None:
        return
    columns = [anchors.columns.index(column) for column in COLUMNS]
    lift = np.nan_to_num(anchors.low[columns[0], TRUE_ORDER])
    heads = sorted(heads_of(results.stack), key=lambda head: -lift[head.layer, head.head])
    rows = tuple(
        row(head, *(_anchor(anchors, (each, TRUE_ORDER, *head[1:])) for each in columns))
        for head in sorted(heads[:MOST_HEADS])
    )
    some = "; heads with the largest lower ends" * (len(heads) > MOST_HEADS)
    yield Table(("head", *TITLES), rows, "Anchors of heads", f"with lift and its lower end{some}")


def _anchor(anchors: Anchors, cell: tuple[int, ...]) -> Cell:
    token = int(anchors.token[cell])
    if token < 0:
        return MISSING
    lift = f"{number(float(anchors.lift[cell]))}× (from {number(float(anchors.low[cell]))})"
    return say(
        "{token} {lift}", token=Marked(anchors.names[str(token)], "bdi"),
        lift=Marked(lift, "small"),
    )  # fmt: skip
