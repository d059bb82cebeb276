"""Which heads a layer's output comes from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from headbook.analysis.arithmetic import effective_number
from headbook.charts import Figure, heat_map
from headbook.metrics import all_metrics, ids
from headbook.pages.parts.cells import Cell, domain
from headbook.pages.parts.table import DASH, Content, Row, Table, words
from headbook.report.findings.finding import head_link
from headbook.report.numbers.extremes import quoted, tie_note, tied_places
from headbook.report.numbers.results import Estimates, StackResults
from headbook.report.wording import STACKS, head_name, number, percent
from headbook.study.sentencedata import HeadName
from headbook.terms import View

OUTPUT = ids.OUTPUT_NORM_SHARE
VIEW = View.RAW
COLUMNS = ("Layer", "effective heads", "largest", "share", "smallest", "share")


@dataclass(frozen=True)
class Outputs:
    """The heads of a stack by what they write.

    Attributes:
        sentences: what the numbers say, in sentences.
        n_heads: heads of a layer.
        figure: share of every head.
        table: by layer, the heads with the largest and the smallest share.
    """

    sentences: tuple[str, ...]
    n_heads: int
    figure: Figure
    table: Table


def outputs(results: StackResults) -> Outputs | None:
    """What the heads of a stack write; None where that was not measured."""
    if not results.has(OUTPUT, VIEW):
        return None
    numbers = results.heads(OUTPUT, VIEW)
    rows = tuple(
        _row(results, layer, effective_number(numbers.value[layer]))
        for layer in results.stack.attention_layers
    )
    return Outputs(
        sentences=tuple(_sentences(results, numbers)),
        n_heads=results.stack.n_heads,
        figure=_figure(results, numbers),
        table=Table(COLUMNS, rows, "Heads of each layer by share of the output norm."),
    )


def _row(results: StackResults, layer: int, count: float) -> Row:
    values = results.heads(OUTPUT, VIEW).value[layer]
    heads: tuple[Content, ...] = (DASH,) * 4
    if not np.isnan(values).all():
        heads = tuple(
            each
            for lowest in (False, True)
            for each in _extreme(results, layer, tied_places(values, percent, lowest=lowest))
        )
    return Row(f"L{layer}", (number(count), *heads))


def _extreme(
    results: StackResults, layer: int, heads: Sequence[tuple[int, ...]]
) -> tuple[Content, Content]:
    """Return the cells of the head of a layer with an extreme share, and of that share."""
    (first,), *others = heads
    name = HeadName(results.stack.name, layer, first)
    note = tie_note([head_name(name._replace(head=other)) for (other,) in others])
    share = Cell.of(results.heads(OUTPUT, VIEW).at(layer, first), all_metrics()[OUTPUT])
    return words(head_link(name), note) if note else head_link(name), share


def _sentences(results: StackResults, numbers: Estimates) -> Iterator[str]:
    stack = results.stack
    counts = np.array([effective_number(shares) for shares in numbers.value])
    if np.isnan(counts).all() or stack.n_heads < 2:
        return
    fewest, most = (
        quoted(counts, number, lambda layer: f"layer {layer}", lowest=lowest)
        for lowest in (True, False)
    )
    yield f"Effective heads: fewest in {fewest}; most in {most}; {stack.n_heads} heads per layer."

    def head(layer: int, head: int) -> str:
        return head_name(HeadName(stack.name, layer, head))

    largest, smallest = (quoted(numbers.value, percent, head, lowest=low) for low in (False, True))
    yield (
        f"Largest share of a layer's output norm: {largest}; smallest: {smallest}; equal heads: "
        f"{percent(1 / stack.n_heads)} each."
    )


def _figure(results: StackResults, numbers: Estimates) -> Figure:
    there = np.nonzero(~np.isnan(numbers.value))
    columns = dict(zip(("layer", "head"), there, strict=True))
    values = {n: getattr(numbers, n)[there] for n in ("value", "low", "high")}
    caption = (
        f"Share of each head in its layer's output norm ({STACKS[results.stack.name]}), all keys. "
        "Rows: layers, columns: heads."
    )
    return heat_map(
        f"flow-outputs-{results.stack.name}",
        caption,
        pd.DataFrame({**columns, **values}).assign(view=str(VIEW), label=""),
        title="share of the layer's output norm",
        domain=domain(numbers.value, all_metrics()[OUTPUT].limits),
        show={"view": str(VIEW), "label": ""},
        share=True,
    )
