"""Anchors: the token of each head whose pairs are similar most often."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from headbook.pages.parts.page import StackSection
from headbook.pages.parts.table import DASH, MarkedText, PageTable, Row, WordsCell, words_cell
from headbook.report.facts.outputs import ANCHORS, AnchorCounts, anchor_counts
from headbook.report.results import StackResults
from headbook.results.formats import MISSING, number
from headbook.results.sentence import head_link
from headbook.schema import SinkView, heads_of
from headbook.study.sums.token_sums import TRUE_ORDER, Anchors

MOST_HEADS = 150  # heads in the list
COLUMNS = (ANCHORS, ANCHORS._replace(view=SinkView.NOSINK))
TITLES = ("all keys", "sink masked")


@dataclass(frozen=True)
class AnchorSection(StackSection):
    """Anchors of one stack.

    Attributes:
        layers: number of different anchors by layer.
        heads: the anchors of heads.
    """

    layers: PageTable
    heads: PageTable


def anchor_sections(results: Mapping[str, StackResults]) -> Iterator[AnchorSection]:
    """Yield the anchors of each stack in which some were counted."""
    for name, result in results.items():
        layers, heads = anchors_by_layer(result), anchors_by_head(result)
        if layers is not None and heads is not None:
            yield AnchorSection(name, layers, heads)


def anchors_by_layer(results: StackResults) -> PageTable | None:
    """Return the number of different anchors of each layer; None if none were counted."""
    of_columns = [anchor_counts(results, column) for column in COLUMNS]
    rows = tuple(
        Row(str(counts[0].layer), tuple(_number(results.stack.n_heads, each) for each in counts))
        for counts in zip(*of_columns, strict=True)
    )
    caption = "Different anchors in a layer, of those with a lower end of the lift above 1."
    return PageTable(("Layer", *TITLES), rows, caption) if rows else None


def _number(n_heads: int, counts: AnchorCounts) -> WordsCell:
    if not counts.n_heads:
        return words_cell(MISSING, style="number")
    some = f" ({counts.n_heads} heads)" if counts.n_heads < n_heads else ""
    beside = MarkedText(f"shuffled {counts.permuted}{some}", "small")
    return words_cell(f"{counts.different} ", beside, style="number")


def anchors_by_head(results: StackResults) -> PageTable | None:
    """Return the anchors of heads, those with the largest lower ends; None if none were counted."""
    anchors = results.study.corpus_sums.anchors.get(results.stack.name)
    if anchors is None:
        return None
    columns = [anchors.columns.index(column) for column in COLUMNS]
    lift = np.nan_to_num(anchors.low[columns[0], TRUE_ORDER])
    heads = heads_of(results.stack)
    kept = sorted(heads, key=lambda name: -lift[name.layer, name.head])[:MOST_HEADS]
    which = "; heads with the largest lower ends" if len(kept) == MOST_HEADS else ""
    return PageTable(
        ("Head", *TITLES),
        tuple(
            Row(
                head_link(name),
                tuple(_anchor(anchors, (each, TRUE_ORDER, *name[1:])) for each in columns),
            )
            for name in sorted(kept)
        ),
        f"With lift and its lower end{which}.",
    )


def _anchor(anchors: Anchors, cell: tuple[int, ...]) -> WordsCell:
    token = int(anchors.token[cell])
    if token < 0:
        return DASH
    lift = f"{number(float(anchors.lift[cell]))}× (from {number(float(anchors.low[cell]))})"
    return words_cell(MarkedText(anchors.names[str(token)], "bdi"), " ", MarkedText(lift, "small"))
