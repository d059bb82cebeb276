"""How each head of cross-attention aligns, as a table. No torch."""

import math
from collections.abc import Iterator, Mapping

import pandas as pd

from headbook.report.numbers.alignment import Alignments, alignments, f1
from headbook.report.numbers.results import Estimate, StackResults
from headbook.study.sentencedata import HeadName, heads_of

COLUMNS = (
    "stack", "layer", "head", "measure", "value", "low", "high", "sentences", "events", "even"
)  # fmt: skip


def alignment_table(results: Mapping[str, StackResults]) -> pd.DataFrame:
    """A row for each measure of each head that crosses; no rows where none does, or no sentences.

    Returns:
        Columns as in ``alignments.csv``; without gold alignments only the measures that need none.
    """
    rows = []
    for result in results.values():
        found = result.once(alignments) if result.stack.crosses else None
        if found is not None:
            rows += [row for head in heads_of(result.stack) for row in _rows(head, found)]
    return pd.DataFrame(rows, columns=[*COLUMNS])


def _rows(head: HeadName, found: Alignments) -> Iterator[tuple[object, ...]]:
    cell = head.layer, head.head
    even = {"same_form": found.even_copied.at().value, "diagonal": found.even_diagonal.at().value}
    estimates = {"monotone": found.monotone, "diagonal": found.diagonal, "same_form": found.copied}
    judged = {"aer": found.error, "precision": found.precision, "recall": found.recall}
    estimates |= {name: numbers for name, numbers in judged.items() if numbers}
    numbers = {name: table.at(*cell) for name, table in estimates.items()}
    if "precision" in numbers:
        precision, recall = numbers["precision"], numbers["recall"]
        mean = f1(precision.value, recall.value)
        numbers["f1"] = Estimate(mean, math.nan, math.nan, precision.sentences, precision.events)
    for name, number in numbers.items():
        yield (*head, name, *number[:5], even.get(name, math.nan))
