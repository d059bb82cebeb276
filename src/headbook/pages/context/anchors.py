"""Around which tokens the heads of each layer build their pairs of high similarity."""

from dataclasses import dataclass

import numpy as np

from headbook.analysis.arithmetic import divide
from headbook.report.numbers.results import StackResults
from headbook.report.wording import MISSING, head_name, head_page, number
from headbook.study.sentencedata import HeadName, heads_of
from headbook.study.summaries.anchors import SHUFFLED, TRUE, AnchorColumn, Anchors, Best
from headbook.terms import View

METRIC = "anchor_token"
COLUMNS = tuple(
    AnchorColumn(METRIC, view, label)
    for label in ("0.9", "top 1 %")
    for view in (View.RAW, View.NOSINK)
)
MOST_HEADS = 150  # that are listed


@dataclass(frozen=True)
class Anchor:
    """The anchor of a head in one view and label, and its share of all ends."""

    token: str
    share: str


@dataclass(frozen=True)
class AnchorHead:
    """A head with its anchors, in the order of the table's columns."""

    name: str
    href: str
    anchors: tuple[Anchor, ...]


@dataclass(frozen=True)
class AnchorLayer:
    """A layer.

    Attributes:
        layer: its number.
        distinct: how many anchors its heads have, with the same for shuffled tokens and the number
            of heads that have one; in the order of the table's columns.
        heads: how many heads it has.
    """

    layer: int
    distinct: tuple[tuple[int, int, int], ...]
    heads: int


def anchor_layers(results: StackResults) -> tuple[AnchorLayer, ...]:
    """The anchors of a stack; empty where they were not counted."""
    anchors = results.study.corpus_sums.anchors.get(results.stack.name)
    if anchors is None:
        return ()
    true, mixed = ([anchors.best(c, order) for c in COLUMNS] for order in (TRUE, SHUFFLED))
    return tuple(
        AnchorLayer(
            layer,
            tuple(
                (distinct(a, layer), distinct(b, layer), int((a.token[layer] >= 0).sum()))
                for a, b in zip(true, mixed, strict=True)
            ),
            results.stack.n_heads,
        )
        for layer in results.stack.attention_layers
    )


def anchor_heads(results: StackResults) -> tuple[AnchorHead, ...]:
    """Heads with their anchors, layer by layer: those whose last one has the largest share."""
    anchors = results.study.corpus_sums.anchors.get(results.stack.name)
    if anchors is None:
        return ()
    best = [anchors.best(column, TRUE) for column in COLUMNS]
    share = np.nan_to_num(divide(best[-1].ends, best[-1].total))
    heads = heads_of(results.stack)
    kept = sorted(heads, key=lambda name: -share[name.layer, name.head])[:MOST_HEADS]
    return tuple(_head(anchors, name, best) for name in sorted(kept))


def distinct(best: Best, layer: int) -> int:
    """How many different anchors the heads of a layer have."""
    return len({*best.token[layer].tolist()} - {-1})


def _head(anchors: Anchors, name: HeadName, best: list[Best]) -> AnchorHead:
    cell = name.layer, name.head
    return AnchorHead(
        head_name(name),
        head_page(name),
        tuple(
            Anchor(
                anchors.names[str(each.token[cell])],
                number(each.ends[cell] / each.total[cell], share=True),
            )
            if each.total[cell]
            else Anchor(MISSING, "")
            for each in best
        ),
    )
