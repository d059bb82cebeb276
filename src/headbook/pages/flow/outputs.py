"""Which heads a layer's output comes from."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from headbook.analysis.arithmetic import effective_number
from headbook.charts import Figure, heat_map
from headbook.metrics import all_metrics, ids
from headbook.pages.parts.cells import Cell, domain
from headbook.pages.parts.table import DASH, Content, Row, Table
from headbook.report.findings import CHOICE, REPORT
from headbook.report.findings.finding import head_link
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
        table: by layer, the heads chosen on one half of the sentences, with their shares on the
            other.
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
    chosen = results.half(CHOICE, OUTPUT, VIEW).value[layer]
    heads: tuple[Content, ...] = (DASH,) * 4
    if not np.isnan(chosen).all():
        heads = tuple(
            each
            for place in (np.nanargmax(chosen), np.nanargmin(chosen))
            for each in _head(results, layer, int(place))
        )
    return Row(f"L{layer}", (number(count), *heads))


def _head(results: StackResults, layer: int, head: int) -> tuple[Content, Content]:
    share = results.half(REPORT, OUTPUT, VIEW).at(layer, head)
    name = HeadName(results.stack.name, layer, head)
    return head_link(name), Cell.of(share, all_metrics()[OUTPUT])


def _sentences(results: StackResults, numbers: Estimates) -> Iterator[str]:
    stack = results.stack
    counts = np.array([effective_number(shares) for shares in numbers.value])
    if np.isnan(counts).all() or stack.n_heads < 2:
        return
    least, most = int(np.nanargmin(counts)), int(np.nanargmax(counts))
    yield (
        f"Effective heads: fewest in layer {least} ({number(counts[least])}), most in layer {most} "
        f"({number(counts[most])}), of {stack.n_heads} heads per layer."
    )
    chosen, report = (results.half(half, OUTPUT, VIEW).value for half in (CHOICE, REPORT))
    if np.isnan(chosen).all() or np.isnan(report).all():
        return
    strongest, weakest = (
        np.unravel_index(int(pick(chosen)), chosen.shape) for pick in (np.nanargmax, np.nanargmin)
    )
    ends = [
        f"{head_name(HeadName(stack.name, int(at[0]), int(at[1])))}, {percent(report[at])}"
        for at in (strongest, weakest)
    ]
    yield (
        f"Largest share of a layer's output norm: {ends[0]}; smallest: {ends[1]}; equal heads: "
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
