"""Numbers that papers print about heads of a model, beside those of a study of that model.

No number is a target that a study must meet: texts, annotation and details of definitions differ.
``published.csv`` has a row for each; `docs/published-results.md` has them with what differs, with
commands, and with figures that no study computes. Heads and layers count from 0.
"""

import csv
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from headbook.metrics import all_metrics
from headbook.report.results import StackResults, heads_by_value
from headbook.results.number import Number, unit_of
from headbook.schema import HeadKey, HeadName, SinkView

FILE = Path(__file__).with_suffix(".csv")
HEAD = re.compile(r"L(\d+)·H(\d+)")
LAYERS = re.compile(r"mean of layers (\d+)–(\d+)")


class PublishedNumber(NamedTuple):
    """A number of a paper.

    Attributes:
        models: names of the model on the hub, with spaces between them.
        source: the paper, with its identifier.
        figure: description of the number.
        value: value as the paper prints it.
        place: place in the paper.
        heads: ``L4·H11``, ``mean``, ``mean of layers 5–9`` or ``highest``.
        key: column of the numbers of heads from which a study computes it.
    """

    models: str
    source: str
    figure: str
    value: str
    place: str
    heads: str
    key: HeadKey

    @property
    def head(self) -> tuple[int, int] | None:
        """Layer and head; None for a number of several heads."""
        match = HEAD.fullmatch(self.heads)
        return (int(match[1]), int(match[2])) if match else None

    def of_study(self, results: StackResults) -> Number | str:
        """Return the number of a study: a mean of heads, which has no row, as text; else empty."""
        if not results.has_value(*self.key):
            return ""
        values = results.heads(*self.key).value
        if self.heads == "highest":
            return results.number(self.key, *heads_by_value(values)[0])
        if self.head is None:
            match = LAYERS.fullmatch(self.heads)
            layers = range(int(match[1]), int(match[2]) + 1) if match else range(len(values))
            if layers[-1] >= len(values):
                return ""
            return unit_of(all_metrics()[self.key.metric]).text(float(np.nanmean(values[layers])))
        layer, head = self.head
        exists = layer < values.shape[0] and head < values.shape[1]
        number = results.number(self.key, layer, head) if exists else None
        return number if number is not None and number.known else ""


@cache
def all_published() -> tuple[PublishedNumber, ...]:
    """Return all published numbers, in the order of the file."""
    with FILE.open(encoding="utf-8", newline="") as stream:
        return tuple(
            PublishedNumber(
                row["models"],
                row["source"],
                row["figure"],
                row["value"],
                row["place"],
                row["heads"],
                HeadKey(row["metric"], SinkView(row["view"]), row["label"]),
            )
            for row in csv.DictReader(stream)
        )


def published_numbers(results: StackResults) -> dict[PublishedNumber, Number | str]:
    """Return the numbers that papers print about a study's model, with those of the study."""
    if results.stack.name != "self":
        return {}
    model = results.study.manifest.model.name
    of_model = (figure for figure in all_published() if model in figure.models.split())
    numbers = {published: published.of_study(results) for published in of_model}
    return {published: number for published, number in numbers.items() if number}


def published_of_head(
    results: StackResults, head: HeadName
) -> Iterator[tuple[PublishedNumber, Number | str]]:
    """Yield the published numbers of one head, with those of the study."""
    for published, number in results.cached(published_numbers).items():
        if published.head == (head.layer, head.head):
            yield published, number
