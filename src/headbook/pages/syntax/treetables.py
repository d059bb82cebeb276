"""Phrase trees and dependency trees by layer, and pieces of words: tables of the page of syntax."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from headbook.metrics import all_metrics, ids
from headbook.pages.parts.cells import Cell
from headbook.pages.parts.rows import layer_table
from headbook.pages.parts.table import DASH, Row, Table
from headbook.report.findings import CHOICE, REPORT
from headbook.report.findings.finding import head_link
from headbook.report.numbers.results import StackResults, descending
from headbook.report.wording import VIEWS, number
from headbook.study.sentencedata import HeadName
from headbook.terms import View

VIEW = View.NOSINK
PIECES, REST = ids.ATTENTION_TO, "rest_of_word"
TOP = 5  # heads of the table of pieces


@dataclass(frozen=True)
class Trees:
    """One kind of trees.

    Attributes:
        metric: its name in tables; ``title`` as pages call it.
        baselines: trees that no head made, by name.
        table: each layer's own tree, where there is one, and the head chosen on one half of the
            sentences, with its number on the other.
    """

    metric: str
    title: str
    baselines: tuple[tuple[str, Cell], ...]
    table: Table


@dataclass(frozen=True)
class Pieces:
    """Words that the tokenizer cuts.

    Attributes:
        words, split, share: all words, those of several pieces, and their share.
        view: of the numbers.
        heads: those that look most at the rest of the word; None where none has enough words.
        layers: heads together, by layer.
        compared: whether the study has the numbers of words by other rules.
    """

    words: str
    split: str
    share: str
    view: str
    heads: Table | None
    layers: Table
    compared: bool


SENSITIVITY = ids.PIECE_SENSITIVITY
KINDS = {
    ids.PHRASE_TREES: ("f1", "joint", ("right_branching", "left_branching", "balanced", "ceiling")),
    ids.DEPENDENCY_TREES: ("uas", "", ("chain",)),
}
CHOSEN = "Highest heads, chosen on one half of the sentences and reported on the other."
COUNTED = {"f1": "Bracket F1", "uas": "Undirected attachment score"}


def trees_of(results: StackResults) -> Iterator[Trees]:
    """The kinds of trees that the stack has numbers for, all from the reporting half."""
    for name, (own, joint, baselines) in KINDS.items():
        if not results.has(name, VIEW, own):
            continue
        metric, take = all_metrics()[name], partial(results.half, REPORT, name, VIEW)
        first = results.stack.attention_layers[0]
        yield Trees(
            metric=name,
            title=metric.title,
            baselines=tuple(
                (label.replace("_", "-"), Cell.of(take(label).at(first, 0), metric))
                for label in baselines
            ),
            table=Table(
                ("Layer", *["all heads, mean attention"][: len(joint)], "best head", "its score"),
                tuple(_layers(results, name, own, joint)),
                COUNTED[own],
                "numbers trees",
            ),
        )


def best_head(
    results: StackResults, name: str, label: str, layer: int | None = None
) -> HeadName | None:
    """The head with the highest number on the choice half, of a layer or of all."""
    every = descending(results.half(CHOICE, name, VIEW, label).trusted)
    cells = (cell for cell in every if layer is None or cell[0] == layer)
    return next((HeadName(results.stack.name, *cell) for cell in cells), None)


def _layers(results: StackResults, name: str, own: str, joint: str) -> Iterator[Row]:
    metric, take = all_metrics()[name], partial(results.half, REPORT, name, VIEW)
    for layer in results.stack.attention_layers:
        head = best_head(results, name, own, layer)
        together = [Cell.of(take(joint).at(layer, 0), metric)] if joint else []
        value = Cell.of(take(own).at(layer, head.head), metric) if head else DASH
        yield Row(f"L{layer}", (*together, head_link(head) if head else DASH, value))


def pieces_of(results: StackResults) -> Pieces | None:
    """What becomes of split words; None where no word is known or nothing was measured."""
    stack, view = results.stack, results.stack.default_view
    count = partial(results.study.manifest.count, stack.queries)
    if stack.crosses or not count("words") or not results.has(PIECES, view, REST):
        return None
    layers = results.layers(PIECES, view, REST)
    metric, heads = all_metrics()[PIECES], tuple(_piece_heads(results, view))
    return Pieces(
        words=f"{count('words'):,}",
        split=f"{count('split_words'):,}",
        share=number(count("split_words") / count("words"), share=True),
        view=VIEWS[view],
        heads=Table(("Head", "rest of word", "uniform attention"), heads, CHOSEN)
        if heads
        else None,
        layers=layer_table(
            stack.attention_layers,
            [("rest of word", layers, metric)],
            "All heads of a layer, all sentences.",
            "L",
        ),
        compared=SENSITIVITY in results.by_id,
    )


def _piece_heads(results: StackResults, view: View) -> Iterator[Row]:
    """Chosen on one half of the sentences, reported on the other."""
    first, other = (results.half(half, PIECES, view, REST) for half in (CHOICE, REPORT))
    even = results.half(REPORT, PIECES, view, REST, of="uniform").value
    for layer, position in descending(first.trusted)[:TOP]:
        value = Cell.of(other.at(layer, position), all_metrics()[PIECES])
        head = HeadName(results.stack.name, layer, position)
        yield Row(head_link(head), (value, number(float(even[layer]), share=True)))
