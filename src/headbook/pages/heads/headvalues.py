"""Every number of every head that the list of heads offers, as columns and as data files."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.intervals import FEW
from headbook.metrics import all_metrics, head_metrics
from headbook.metrics.base import HeadMetric
from headbook.pages.heads.headfacts import Fact, HeadFacts, head_facts
from headbook.pages.parts.grid import FIRST, key, offered_labels
from headbook.report.numbers.results import NO_ESTIMATE, Estimate, Estimates, StackResults
from headbook.report.wording import STACKS, VIEWS, is_share, label_name
from headbook.study.sentencedata import HeadName
from headbook.terms import View

AXES = FIRST[:2]  # what the list's picture shows first

Results = Mapping[str, StackResults]


@dataclass(frozen=True)
class Column:
    """A metric and a label as a column.

    Attributes:
        metric: whose numbers it holds; ``label`` which of them.
        views: by stack; a stack that lacks the number is missing.
    """

    metric: HeadMetric
    label: str
    views: Mapping[str, View]

    @property
    def key(self) -> str:
        """How addresses and scripts call it."""
        return key(self.metric, self.label)

    @property
    def title(self) -> str:
        """Heading."""
        about = label_name(self.label)
        return f"{self.metric.title}: {about}" if about else self.metric.title

    @property
    def unit(self) -> str:
        """Unit and keys, for a small line below the heading; shares say % themselves."""
        views = " or ".join(dict.fromkeys(VIEWS[view] for view in self.views.values()))
        return f"{self.metric.unit}, {views}" if self.metric.unit else views

    def at(self, results: Results, head: HeadName) -> Estimate:
        """A head's number; NaN where there is none."""
        if head.stack not in self.views:
            return NO_ESTIMATE
        return self.numbers(results[head.stack]).at(head.layer, head.head)

    def numbers(self, results: StackResults) -> Estimates:
        """The numbers of a stack that has them. *Shape:* ``(layer, head)``."""
        return results.heads(self.metric.id, self.views[results.stack.name], self.label)


def columns(results: Results) -> tuple[Column, ...]:
    """All columns that some stack has numbers for, in the order of metrics."""
    there = {metric.id for r in results.values() for metric in r.metrics}
    order = head_metrics(metric for name, metric in all_metrics().items() if name in there)
    asked = ((metric, label) for metric in order for label in offered_labels(metric))
    made = (Column(*pair, _views(results, *pair)) for pair in asked)
    return tuple(column for column in made if column.views)


def _views(results: Results, metric: HeadMetric, label: str) -> dict[str, View]:
    views = {name: r.view(metric, label) for name, r in results.items()}
    return {name: v for name, v in views.items() if results[name].has(metric.id, v, label)}


def first_columns(offered: Sequence[Column]) -> tuple[Column, ...]:
    """Those that the page shows first; without any of them, the first one."""
    return _named(offered, FIRST) or tuple(offered[:1])


def axes(offered: Sequence[Column]) -> tuple[Column, ...]:
    """The two columns that the picture shows first; the first two where a study lacks them."""
    named = _named(offered, AXES)
    if len(named) == len(AXES):
        return named
    return tuple(offered[:2]) if len(offered) > 1 else ()


def _named(offered: Sequence[Column], metrics: Sequence[str]) -> tuple[Column, ...]:
    """The columns of some metrics that have one number a head."""
    there = {column.metric.id: column for column in offered if not column.label}
    return tuple(there[name] for name in metrics if name in there)


def list_data(results: Results) -> dict[str, Any]:
    """What the script of the list needs at once: heads in order, and which numbers there are."""
    offered = columns(results)
    return {
        "stacks": [[name, STACKS[name]] for name in results],
        "heads": [_row(facts) for r in results.values() for facts in head_facts(r)],
        "metrics": [*_metrics(offered)],
        "columns": [column.key for column in first_columns(offered)],
        "axes": [column.key for column in axes(offered)],
    }


def _row(facts: HeadFacts) -> list[Any]:
    summary = (facts.label, facts.looks, facts.relation)
    place = (facts.name, facts.href, facts.head.stack, facts.head.layer)
    return [*place, *map(_written, summary), int(facts.beats)]


def _written(fact: Fact) -> list[Any]:
    return [fact.word, fact.behind, fact.size]


def _metrics(offered: Sequence[Column]) -> Iterator[dict[str, Any]]:
    for metric, own in groupby(offered, key=lambda column: column.metric):
        yield {
            "id": metric.id,
            "title": metric.title,
            "share": is_share(metric),
            "labels": [[column.key, column.title, column.unit] for column in own],
        }


def values_data(results: Results) -> Iterator[tuple[str, dict[str, Any]]]:
    """For each metric a file: by column, the numbers of all heads in the order of the list.

    Values are 64-bit floats, ends of intervals 32-bit ones, little-endian, as bytes; NaN where
    there is no number. ``thin`` has a 1 where few observations stand behind the value.
    """
    for metric, own in groupby(columns(results), key=lambda column: column.metric):
        yield metric.id, {column.key: _packed(results, column) for column in own}


def _packed(results: Results, column: Column) -> dict[str, bytes | str]:
    parts = [_of_stack(r, column) for r in results.values()]
    value, low, high, effective = (np.concatenate(part) for part in zip(*parts, strict=True))
    return {
        "value": value.astype("<f8").tobytes(),
        "low": low.astype("<f4").tobytes(),
        "high": high.astype("<f4").tobytes(),
        "thin": "".join(map(str, np.where(effective < FEW, 1, 0))),
    }


def _of_stack(results: StackResults, column: Column) -> tuple[NDArray[np.float64], ...]:
    stack = results.stack
    if stack.name not in column.views:
        return (np.full(len(stack.attention_layers) * stack.n_heads, np.nan),) * 4
    layers = [*stack.attention_layers]
    numbers = column.numbers(results)
    parts = (numbers.value, numbers.low, numbers.high, numbers.effective)
    return tuple(part[layers].ravel().astype(np.float64) for part in parts)
