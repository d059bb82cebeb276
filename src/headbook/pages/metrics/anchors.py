"""Anchors: the token of each head whose pairs are similar most often."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from headbook.pages.parts.page import StackSection
from headbook.pages.parts.table import DASH, MarkedText, PageTable, Row, WordsCell, words_cell
from headbook.report.findings.states import ANCHOR_COLUMNS, anchor_layers
from headbook.report.results import StackResults
from headbook.results.formats import MISSING, number
from headbook.results.sentence import head_link
from headbook.schema import heads_of
from headbook.study.sums.token_sums import TRUE_ORDER, Anchors

MOST_HEADS = 150  # heads in the list
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
    layers = results.cached(anchor_layers)
    rows = (
        Row(str(layer), tuple(_number(results.stack.n_heads, *each) for each in counts))
        for layer, counts in layers.items()
    )
    caption = "Different anchors in a layer, of those with a lower end of the lift above 1."
    return PageTable(("Layer", *TITLES), tuple(rows), caption) if layers else None


def _number(n_heads: int, own: int, mixed: int, heads: int) -> WordsCell:
    some = f" ({heads} heads)" if heads < n_heads else ""
    counted = (f"{own} ", MarkedText(f"shuffled {mixed}{some}", "small")) if heads else (MISSING,)
    return words_cell(*counted, style="number")


def anchors_by_head(results: StackResults) -> PageTable | None:
    """Return the anchors of heads, those with the largest lower ends; None if none were counted."""
    anchors = results.study.corpus_sums.anchors.get(results.stack.name)
    if anchors is None:
        return None
    columns = [anchors.columns.index(column) for column in ANCHOR_COLUMNS]
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
