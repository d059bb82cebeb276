"""Around which tokens the heads of each layer build their pairs of high similarity."""

import numpy as np

from headbook.analysis.arithmetic import divide
from headbook.metrics import ids
from headbook.pages.parts.table import DASH, Mark, Row, Table, Words, words
from headbook.report.findings.finding import head_link
from headbook.report.numbers.results import StackResults
from headbook.report.wording import MISSING, number, unbroken
from headbook.study.sentencedata import heads_of
from headbook.study.summaries.anchors import SHUFFLED, TRUE, AnchorColumn, Anchors, Best
from headbook.terms import View

METRIC = ids.ANCHOR_TOKEN
COLUMNS = tuple(
    AnchorColumn(METRIC, view, label)
    for label in ("0.9", "top 1 %")
    for view in (View.RAW, View.NOSINK)
)
MOST_HEADS = 150  # that are listed


TITLES = (
    "cosine ≥ 0.9, all keys",
    "cosine ≥ 0.9, sink masked",
    unbroken("top 1 %, all keys"),
    unbroken("top 1 %, sink masked"),
)


def anchor_layers(results: StackResults) -> dict[int, list[tuple[int, int, int]]]:
    """How many anchors the heads of each layer have, by `COLUMNS`; empty where none were counted.

    Beside it the same for shuffled tokens, and the number of heads that have an anchor.
    """
    anchors = results.study.corpus_sums.anchors.get(results.stack.name)
    if anchors is None:
        return {}
    true, mixed = ([anchors.best(c, order) for c in COLUMNS] for order in (TRUE, SHUFFLED))
    return {
        layer: [
            (distinct(a, layer), distinct(b, layer), int((a.token[layer] >= 0).sum()))
            for a, b in zip(true, mixed, strict=True)
        ]
        for layer in results.stack.attention_layers
    }


def anchors_by_layer(results: StackResults) -> Table | None:
    """The numbers of anchors; None where none were counted."""
    layers = results.once(anchor_layers)
    rows = (
        Row(str(layer), tuple(_number(results.stack.n_heads, *each) for each in counts))
        for layer, counts in layers.items()
    )
    caption = "Different anchors in a layer."
    return Table(("Layer", *TITLES), tuple(rows), caption) if layers else None


def _number(n_heads: int, own: int, mixed: int, heads: int) -> Words:
    some = f" ({heads} heads)" if heads < n_heads else ""
    counted = (f"{own} ", Mark(f"shuffled {mixed}{some}", "small")) if heads else (MISSING,)
    return words(*counted, style="number")


def anchors_by_head(results: StackResults) -> Table | None:
    """Heads with their anchors, layer by layer: those whose last one has the largest share."""
    anchors = results.study.corpus_sums.anchors.get(results.stack.name)
    if anchors is None:
        return None
    best = [anchors.best(column, TRUE) for column in COLUMNS]
    share = np.nan_to_num(divide(best[-1].ends, best[-1].total))
    heads = heads_of(results.stack)
    kept = sorted(heads, key=lambda name: -share[name.layer, name.head])[:MOST_HEADS]
    which = "; heads with the largest shares" if len(kept) == MOST_HEADS else ""
    return Table(
        ("Head", *TITLES),
        tuple(
            Row(head_link(name), tuple(_anchor(anchors, each, name[1:]) for each in best))
            for name in sorted(kept)
        ),
        f"With share of all ends of such pairs{which}.",
    )


def _anchor(anchors: Anchors, best: Best, cell: tuple[int, int]) -> Words:
    if not best.total[cell]:
        return DASH
    share = number(best.ends[cell] / best.total[cell], share=True)
    return words(Mark(anchors.names[str(best.token[cell])], "bdi"), " ", Mark(share, "small"))


def distinct(best: Best, layer: int) -> int:
    """How many different anchors the heads of a layer have."""
    return len({*best.token[layer].tolist()} - {-1})
