"""Anchors: the tokens that are most frequent among the similar pairs of each head."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from headbook.analysis.arrays import divide
from headbook.pages.parts.page import StackSection
from headbook.pages.parts.table import DASH, MarkedText, PageTable, Row, WordsCell, words_cell
from headbook.report.findings.states import ANCHOR_COLUMNS, anchor_layers
from headbook.report.results import StackResults
from headbook.report.wording import unbroken
from headbook.results.formats import MISSING, number
from headbook.results.sentence import head_link
from headbook.schema import heads_of
from headbook.study.sums.token_sums import TRUE_ORDER, Anchors, TopAnchor

MOST_HEADS = 150  # heads in the list
TITLES = (
    "cosine ≥ 0.9, all keys",
    "cosine ≥ 0.9, sink masked",
    unbroken("top 1 %, all keys"),
    unbroken("top 1 %, sink masked"),
)


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
    caption = "Different anchors in a layer."
    return PageTable(("Layer", *TITLES), tuple(rows), caption) if layers else None


def _number(n_heads: int, own: int, mixed: int, heads: int) -> WordsCell:
    some = f" ({heads} heads)" if heads < n_heads else ""
    counted = (f"{own} ", MarkedText(f"shuffled {mixed}{some}", "small")) if heads else (MISSING,)
    return words_cell(*counted, style="number")


def anchors_by_head(results: StackResults) -> PageTable | None:
    """Return the anchors of heads, those with the largest shares; None if none were counted."""
    anchors = results.study.corpus_sums.anchors.get(results.stack.name)
    if anchors is None:
        return None
    best = [anchors.best(column, TRUE_ORDER) for column in ANCHOR_COLUMNS]
    share = np.nan_to_num(divide(best[-1].ends, best[-1].total))
    heads = heads_of(results.stack)
    kept = sorted(heads, key=lambda name: -share[name.layer, name.head])[:MOST_HEADS]
    which = "; heads with the largest shares" if len(kept) == MOST_HEADS else ""
    return PageTable(
        ("Head", *TITLES),
        tuple(
            Row(head_link(name), tuple(_anchor(anchors, each, name[1:]) for each in best))
            for name in sorted(kept)
        ),
        f"With share of all ends of such pairs{which}.",
    )


def _anchor(anchors: Anchors, best: TopAnchor, cell: tuple[int, int]) -> WordsCell:
    if not best.total[cell]:
        return DASH
    share = number(best.ends[cell] / best.total[cell], share=True)
    return words_cell(
        MarkedText(anchors.names[str(best.token[cell])], "bdi"), " ", MarkedText(share, "small")
    )
