"""Columns of the list of heads, and the data from which scripts draw it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headbook.analysis.accumulators import NO_ESTIMATE, Estimate, Estimates
from headbook.analysis.arrays import Floats
from headbook.analysis.intervals import MIN_EFFECTIVE
from headbook.charts.patterns import parts_of, widths
from headbook.metrics import all_metrics, head_metrics, ids
from headbook.metrics.base import ChartKind, HeadMetric
from headbook.pages.parts.atlas import map_style
from headbook.report.ablation import effect_unit, head_changes, short_target
from headbook.report.facts.functions import FunctionFamily
from headbook.report.facts.head_facts import HeadFacts, HeadWord, head_facts
from headbook.report.results import StackResults, study_of
from headbook.report.wording import STACKS, VIEWS, is_share, label_name
from headbook.schema import HeadName, SinkView, heads_of
from headbook.study.ablation_tables import EFFECT, EXACT

# Metrics of the columns that the list shows at first.
INITIAL_METRICS = (ids.SINK_SHARE, ids.RELATIVE_ENTROPY, ids.ATTENTION_DISTANCE)
# Views of metrics in the list: in the raw view, both metrics mostly follow the share of the sink.
PREFERRED_VIEWS = {
    ids.RELATIVE_ENTROPY: SinkView.RENORM,
    ids.ATTENTION_DISTANCE: SinkView.NOSINK,
}

Results = Mapping[str, StackResults]


@dataclass(frozen=True)
class Column:
    """A column of the list of heads: a metric with a label.

    Attributes:
        metric: metric whose numbers the column holds.
        label: label of the metric.
        views: view of each stack that has the number.
    """

    metric: HeadMetric
    label: str
    views: Mapping[str, SinkView]

    @property
    def key(self) -> str:
        """Name of the column in addresses and scripts."""
        return number_key(self.metric, self.label)

    @property
    def title(self) -> str:
        """Heading of the column."""
        about = label_name(self.label)
        return f"{self.metric.title}: {about}" if about else self.metric.title

    @property
    def unit(self) -> str:
        """Unit and keys, for a small line below the heading; shares have their own sign."""
        views = " or ".join(dict.fromkeys(VIEWS[view] for view in self.views.values()))
        return f"{self.metric.unit}, {views}" if self.metric.unit else views

    def at(self, results: Results, head: HeadName) -> Estimate:
        """Return the number of a head; NaN if it is missing."""
        if head.stack not in self.views:
            return NO_ESTIMATE
        return self.numbers(results[head.stack]).at(head.layer, head.head)

    def numbers(self, results: StackResults) -> Estimates:
        """Return the numbers of a stack. *Shape:* ``(layer, head)``."""
        return results.heads(self.metric.id, self.views[results.stack.name], self.label)


def number_key(metric: HeadMetric, label: str) -> str:
    """Return the key of a number in addresses and scripts."""
    return f"{metric.id}/{label}"


def offered_labels(metric: HeadMetric) -> Sequence[str]:
    """Return the labels that readers choose from; none for a metric that is drawn as a profile."""
    if metric.chart is ChartKind.PROFILE:
        return ()
    return (metric.headline,) if metric.chart is ChartKind.DISTANCES else metric.listed


def number_columns(results: Results) -> tuple[Column, ...]:
    """Return all columns that some stack has numbers for, in the order of metrics."""
    measured = {metric.id for r in results.values() for metric in r.metrics}
    order = head_metrics(metric for name, metric in all_metrics().items() if name in measured)
    pairs = ((metric, label) for metric in order for label in offered_labels(metric))
    columns = (Column(*pair, _views(results, *pair)) for pair in pairs)
    return tuple(column for column in columns if column.views)


def _views(results: Results, metric: HeadMetric, label: str) -> dict[str, SinkView]:
    views = {}
    for name, r in results.items():
        wanted = (PREFERRED_VIEWS.get(metric.id), r.view(metric, label))
        known = (v for v in wanted if v is not None and r.has_value(metric.id, v, label))
        view = next(known, None)
        if view is not None:
            views[name] = view
    return views


def initial_columns(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns that the list shows first; without any of them, the first one."""
    by_id = {column.metric.id: column for column in columns if not column.label}
    named = tuple(by_id[name] for name in INITIAL_METRICS if name in by_id)
    return named or tuple(columns[:1])


EFFECT_KEY = f"{EFFECT}/mean"
EFFECT_TITLE = "Change without the head"


class HeadEffects(NamedTuple):
    """Change of the output without each head, in the order of the list.

    Attributes:
        unit: unit of the numbers, with what changes.
        value, low, high: numbers; estimates have no interval. *Shape:* ``(head,)``.
        estimated: mask of heads that were not replaced. *Shape:* ``(head,)``.
    """

    unit: str
    value: Floats
    low: Floats
    high: Floats
    estimated: NDArray[np.bool_]


def head_effects(results: Results) -> HeadEffects | None:
    """Return the change without each head; None if no head was replaced."""
    ablation = study_of(results).corpus_sums.ablation
    if ablation is None:
        return None
    heads = [head for r in results.values() for head in heads_of(r.stack)]
    places = pd.MultiIndex.from_tuples(heads)
    frame = head_changes(ablation).set_index(["stack", "layer", "head"]).reindex(places)
    value, low, high = (frame[name].to_numpy(float) for name in ("value", "low", "high"))
    estimated = ~np.isnan(value) & (frame["method"] != EXACT).to_numpy()
    what = f"{short_target(ablation)}, {effect_unit(ablation)}"
    return HeadEffects(what, value, low, high, estimated)


def all_facts(results: Results) -> tuple[HeadFacts, ...]:
    """Return the facts about all heads, stack by stack and layer by layer."""
    return tuple(chain.from_iterable(head_facts(r) for r in results.values()))


def list_order(facts: Sequence[HeadFacts], effects: HeadEffects | None) -> list[int]:
    """Return the order of the list: by family, then by the change without the head."""
    changes = effects.value if effects else np.full(len(facts), np.nan)
    size = np.where(np.isnan(changes), -np.inf, changes)
    place = {family: number for number, family in enumerate(FunctionFamily)}
    families = [facts[i].function.family for i in range(len(facts))]
    family_places = [place[family] if family else len(place) for family in families]
    return sorted(range(len(facts)), key=lambda i: (family_places[i], -size[i]))


def list_data(results: Results) -> dict[str, Any]:
    """Return the data of the script of the list: heads in order, and the available numbers."""
    columns, facts, effects = number_columns(results), all_facts(results), head_effects(results)
    ranks = np.argsort(list_order(facts, effects)).tolist()
    metrics = [*_metrics(columns)]
    initial = [column.key for column in initial_columns(columns)]
    if effects:
        labels = [[EFFECT_KEY, EFFECT_TITLE, effects.unit]]
        about = {"id": EFFECT, "title": "Importance", "share": False, "table": "importance"}
        metrics.append(about | {"labels": labels})
        initial.append(EFFECT_KEY)
    rows = [
        [*_data_row(each, line_style(results, each), rank), *_bar(results[each.head.stack], each)]
        for each, rank in zip(facts, ranks, strict=True)
    ]
    return {
        "stacks": [[name, STACKS[name]] for name in results],
        "heads": rows,
        "metrics": metrics,
        "columns": initial,
    }


def line_style(results: Results, facts: HeadFacts) -> str:
    """Return the classes of the small map in a head's line, with the family's colour."""
    stack, layer, head = facts.head
    style = map_style(results[stack].stack, layer, head)
    return f"{style} {facts.function.style}".rstrip()


def _data_row(facts: HeadFacts, style: str, rank: int) -> list[Any]:
    place = (facts.name, facts.href, facts.head.stack, facts.head.layer)
    words = (facts.label, facts.relation, facts.verdict)
    marks = (facts.function.family or "", style, rank)
    return [*place, *map(_data_word, words), *marks]


def _bar(results: StackResults, facts: HeadFacts) -> list[float]:
    """Return the widths of the bar of parts, in per cent; nothing without them."""
    parts = parts_of(results, *facts.head[1:])
    return [round(width, 1) for width in widths(parts)] if parts else []


def _data_word(fact: HeadWord) -> list[Any]:
    if fact.number is None:
        return [fact.word, fact.detail, None]
    value = fact.number
    return [fact.word, fact.detail, value.value, value.as_text(), value.row.table]


def _metrics(columns: Sequence[Column]) -> Iterator[dict[str, Any]]:
    for metric, own in groupby(columns, key=lambda column: column.metric):
        yield {
            "id": metric.id,
            "title": metric.title,
            "share": is_share(metric),
            "labels": [[column.key, column.title, column.unit] for column in own],
        }


def values_data(results: Results) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a file for each metric: by column, the numbers of all heads in the order of the list.

    Values are 64-bit floats, ends of intervals 32-bit ones, little-endian, as bytes; NaN if a
    number is missing. ``thin`` has a 1 for numbers of few observations, and ``guess``, if there are
    estimates without an interval, a 1 for these.
    """
    for metric, own in groupby(number_columns(results), key=lambda column: column.metric):
        yield metric.id, {column.key: _packed_column(results, column) for column in own}
    effects = head_effects(results)
    if effects:
        guess = "".join(map(str, effects.estimated.astype(int)))
        packed = _packed(effects.value, effects.low, effects.high) | {
            "thin": "0" * len(guess), "guess": guess
        }  # fmt: skip
        yield EFFECT, {EFFECT_KEY: packed}


def _packed_column(results: Results, column: Column) -> dict[str, bytes | str]:
    parts = [_of_stack(r, column) for r in results.values()]
    value, low, high, effective = (np.concatenate(part) for part in zip(*parts, strict=True))
    thin = "".join(map(str, np.where(effective < MIN_EFFECTIVE, 1, 0)))
    return _packed(value, low, high) | {"thin": thin}


def _packed(value: Floats, low: Floats, high: Floats) -> dict[str, bytes | str]:
    return {
        "value": value.astype("<f8").tobytes(),
        "low": low.astype("<f4").tobytes(),
        "high": high.astype("<f4").tobytes(),
    }


def _of_stack(results: StackResults, column: Column) -> tuple[Floats, ...]:
    stack = results.stack
    if stack.name not in column.views:
        return (np.full(len(stack.attention_layers) * stack.n_heads, np.nan),) * 4
    layers = [*stack.attention_layers]
    numbers = column.numbers(results)
    parts = (numbers.value, numbers.low, numbers.high, numbers.effective)
    return tuple(part[layers].ravel().astype(np.float64) for part in parts)
