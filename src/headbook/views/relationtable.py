"""The relations that one head finds, for its page."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headbook.measures.relations import LABELS
from headbook.metrics import all_metrics
from headbook.numbers.inference import best_offsets
from headbook.numbers.results import StackResults
from headbook.stored.shown import HeadName
from headbook.summaries.intervals import FEW
from headbook.terms import View
from headbook.views.answers import offset_name
from headbook.views.cells import Cell
from headbook.wording import MISSING, number

METRIC = "relation_accuracy"
VIEW = View.NOSINK
MOST = 8


@dataclass(frozen=True)
class FoundRelation:
    """A relation and a direction.

    Attributes:
        relation, way: the label in two parts, as words.
        words: how many were asked for.
        accuracy: share of the words that the head finds.
        uniform: what a look at any other visible word alike would find.
        offset, at_offset: the best fixed offset and what it finds; – where it is not known.
    """

    relation: str
    way: str
    words: str
    accuracy: Cell
    uniform: str
    offset: str
    at_offset: str


def found_relations(results: StackResults, head: HeadName) -> tuple[FoundRelation, ...]:
    """The relations that the head finds most above uniform attention."""
    rows = []
    for label in LABELS if METRIC in {metric.id for metric in results.metrics} else ():
        accuracy = results.heads(METRIC, VIEW, label).at(head.layer, head.head)
        if accuracy.effective >= FEW:
            even = results.uniform(METRIC, VIEW, label).at(head.layer).value
            rows.append((accuracy.value - even, label, accuracy, even))
    rows.sort(key=lambda row: -row[0])
    offsets = results.once(_offsets) if rows else {}
    return tuple(
        FoundRelation(
            relation=label.rpartition(":")[0],
            way=label.rpartition(":")[2].replace("_", " "),
            words=f"{accuracy.events:,.0f}",
            accuracy=Cell.of(accuracy, all_metrics()[METRIC]),
            uniform=number(even, share=True),
            offset=offsets.get(label, (MISSING, MISSING))[0],
            at_offset=offsets.get(label, (MISSING, MISSING))[1],
        )
        for _, label, accuracy, even in rows[:MOST]
    )


def _offsets(results: StackResults) -> dict[str, tuple[str, str]]:
    """The best fixed offset of each label and what it finds."""
    found = results.study.survey.heads[results.stack.name].found
    return {} if found is None else dict(_named(*best_offsets(found)))


def _named(
    offsets: "np.ndarray[tuple[int, ...], np.dtype[np.int64]]",
    shares: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]",
) -> Iterator[tuple[str, tuple[str, str]]]:
    for label, offset, share in zip(LABELS, offsets, shares, strict=True):
        if not np.isnan(share):
            yield label, (offset_name(int(offset)), number(float(share), share=True))
