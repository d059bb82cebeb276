"""Rows of the table of tests on heads and layers: quantiles, medians, extremes, trees.

Lists and charts of pages name the head with the highest number of many, with a paired test
against the others. The number of the largest of many is inflated by the choice. So the table also
has the head that one half of the sentences chooses, with its numbers on both halves.
"""

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from headbook.analysis.accumulators import (
    HELD_OUT,
    SELECTION,
    Estimate,
    without_interval,
)
from headbook.metrics import ids
from headbook.metrics.base import HeadMetric
from headbook.report.leaders import Leaders, head_leaders, highest, layer_leaders
from headbook.report.results import StackResults
from headbook.report.trees import TREES, best_heads_of_layers, plain_trees
from headbook.results.fact import Tested
from headbook.results.formats import head_name
from headbook.schema import (
    HELD_OUT_SPLIT,
    HIGHEST,
    LOWEST,
    ON_CHOICE,
    Baseline,
    HeadKey,
    HeadName,
    SinkView,
    heads_of,
)
from headbook.study.exemplars import rank_by_weight
from headbook.study.sentence_data import Ranking

SPLITS = {SELECTION: "choice", HELD_OUT: HELD_OUT_SPLIT}
UNIFORM = "uniform attention"
MAX_LAYER_LABELS = 4  # labels of a metric each of which has rows of the layers that lead
MEDIAN = "median of all heads"  # claim
LARGEST_WEIGHT = "largest weight of a sentence"  # claim
QUANTILES = {Ranking.STRONGEST: 1.0, Ranking.Q90: 0.9, Ranking.Q75: 0.75, Ranking.MEDIAN: 0.5}


def quantiles(results: StackResults) -> Iterator[Tested]:
    """Yield quantiles over sentences of every head's largest weight, which exemplars represent."""
    for head in heads_of(results.stack):
        sample = results.study.corpus_sums.heads[head.stack].sample
        scores = rank_by_weight(sample, head).score
        for ranking, share in QUANTILES.items() if len(scores) else ():
            weight = without_interval(float(np.quantile(scores, share)), len(scores))
            yield Tested(
                LARGEST_WEIGHT, head.stack, "exemplars", "", ranking, weight, head.layer, head.head
            )


def median_rows(results: StackResults) -> Iterator[Tested]:
    """Yield the median over all heads of every metric and label, in the view of pages."""
    for metric in results.metrics:
        for label in metric.labels:
            column = HeadKey(metric.id, results.view(metric, label), label)
            if results.has_value(*column):
                numbers = results.heads(*column)
                median = without_interval(
                    float(np.nanmedian(numbers.value)),
                    int(numbers.sentences.max()),
                    float(np.nansum(numbers.events)),
                )
                yield Tested(MEDIAN, results.stack.name, *column, median)


BEST_TREE = "highest of its layer"  # claim
HIGHEST_LAYER, LOWEST_LAYER = "highest of all layers", "lowest of all layers"  # claims
Cell = tuple[int, int]


def extreme_heads(results: StackResults) -> Iterator[Tested]:
    """Yield the head that leads every metric, view and label, and the head that one half chooses.

    The first is tested against all others on all sentences, in the view of pages. For each metric's
    first label, also yield the head with the lowest value.
    """
    for column in _columns(results):
        metric = results.by_id[column.metric]
        of_pages = column.view == results.view(metric, column.label)
        is_headline = metric.headline == column.label
        notable = LOWEST if metric.is_low(column.label) else HIGHEST
        for claim in (HIGHEST, LOWEST) if is_headline else (notable,):
            leaders = head_leaders(results, column, lowest=claim == LOWEST) if of_pages else None
            if leaders is not None:
                yield _leader_row(results, claim, column, leaders)
            cell = highest(results.split(SELECTION, *column), lowest=claim == LOWEST)
            for half in (SELECTION, HELD_OUT) if cell else ():
                assert cell is not None
                yield _head_row(results, f"{claim}, {ON_CHOICE}", column, cell, half)


def _leader_row(results: StackResults, claim: str, column: HeadKey, leaders: Leaders) -> Tested:
    """Return the row of the head or layer that leads a metric, beside the best one told from it."""
    layer, *head = leaders.first
    numbers, second = results.heads(*column) if head else results.layers(*column), leaders.second
    name = f"layer {second[0]}" if second else ""
    if head and second:
        name = head_name(HeadName(results.stack.name, *second))
    return Tested(
        claim, results.stack.name, *column, numbers.at(*leaders.first), layer,
        head[0] if head else None, baseline=name,
        baseline_value=float(numbers.value[second]) if second else math.nan, p=leaders.p,
    )  # fmt: skip


def _columns(results: StackResults) -> Iterator[HeadKey]:
    """Yield every column whose numbers differ between heads."""
    for metric in results.metrics:
        tree = TREES.get(metric.id)
        left_out = tree.same_for_all_heads if tree else metric.of_no_head
        for view in metric.views:
            for label in metric.labels:
                if label not in left_out and results.has_value(metric.id, view, label):
                    yield HeadKey(metric.id, view, label)


def _head_row(results: StackResults, claim: str, column: HeadKey, cell: Cell, half: int) -> Tested:
    """Return a head's row on one split, with uniform attention or the best plain tree beside it."""
    baseline = UNIFORM
    baseline_value = results.split(half, *column, of="uniform").at(cell[0]).value
    if column.metric in TREES:
        best, *_ = plain_trees(results, column.metric, half)
        baseline, baseline_value = best.label.replace("_", " "), best.score.value
    return Tested(
        claim, results.stack.name, *column, results.split(half, *column).at(*cell), *cell,
        SPLITS[half], baseline, baseline_value,
    )  # fmt: skip


def extreme_layers(results: StackResults) -> Iterator[Tested]:
    """Yield the layers that lead every metric, in the view and label of its page.

    Of attention to the sink and attention distance, also yield the number of the layer beside
    uniform attention and random weights.
    """
    for column, claim in _layer_claims(results):
        leaders = layer_leaders(results, column, lowest=claim == LOWEST_LAYER)
        if leaders is None or leaders.candidates < 2:
            continue
        yield _leader_row(results, claim, column, leaders)
        if column.metric in {ids.SINK_SHARE, ids.ATTENTION_DISTANCE}:
            yield from _beside_controls(results, claim, column, leaders.first[0])


def _layer_claims(results: StackResults) -> Iterator[tuple[HeadKey, str]]:
    """Yield each number by whose ends layers are named, with the claim.

    Of a metric with up to `MAX_LAYER_LABELS` labels each one, else the one of its page.
    """
    for metric in results.metrics:
        drawn = results.drawn(metric) if metric.has_layer_value else None
        if drawn is not None:
            labels = results.drawable(metric)
            for label in labels if len(metric.labels) <= MAX_LAYER_LABELS else drawn[1:]:
                column = HeadKey(metric.id, results.view(metric, label), label)
                yield from ((column, claim) for claim in (LOWEST_LAYER, HIGHEST_LAYER))


def _beside_controls(
    results: StackResults, claim: str, column: HeadKey, layer: int
) -> Iterator[Tested]:
    """Yield a layer's held-out number and that of controls."""
    stack, half = results.stack.name, partial(results.split, HELD_OUT, *column)
    yield Tested(
        claim, stack, *column, half(of="layers").at(layer), layer, split=HELD_OUT_SPLIT,
        baseline=UNIFORM, baseline_value=half(of="uniform").at(layer).value,
    )  # fmt: skip
    companion = HeadKey(ids.SINK_NORM_SHARE, column.view, "")
    if column.metric == ids.SINK_SHARE and results.has_value(*companion):
        yield Tested(claim, stack, *companion, results.layers(*companion).at(layer), layer)
    random = _untrained_layer(results, layer, results.by_id[column.metric], column.view)
    if random is not None:
        yield Tested(f"{claim}, untrained", stack, *column, random, layer)


def _untrained_layer(
    results: StackResults, layer: int, metric: HeadMetric, view: SinkView
) -> Estimate | None:
    """Return a metric of a layer with random weights; None without any.

    With several seeds: the mean over seeds, with the smallest and the largest value as ends. With
    one seed: its value and interval.
    """
    baseline_runs = results.baselines.get(Baseline.UNTRAINED, ())
    estimates = [run.layers(metric.id, view).at(layer) for run in baseline_runs]
    if len(estimates) < 2:
        return estimates[0] if estimates else None
    values = [estimate.value for estimate in estimates]
    return estimates[0]._replace(value=float(np.mean(values)), low=min(values), high=max(values))


def trees_of_layers(results: StackResults) -> Iterator[Tested]:
    """Yield the best head of each layer by its trees, on the half that did not choose it."""
    for metric, labels in TREES.items():
        if not results.has_value(metric, SinkView.NOSINK, labels.own):
            continue
        column = HeadKey(metric, SinkView.NOSINK, labels.own)
        for layer, head in best_heads_of_layers(results, metric).items():
            yield _head_row(results, BEST_TREE, column, (layer, head), HELD_OUT)
