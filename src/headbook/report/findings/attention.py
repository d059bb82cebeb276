"""Findings on attention itself: distance, sink, positions, repetition, and random weights."""

from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import HELD_OUT, Estimate, Estimates
from headbook.metrics import ids
from headbook.metrics.base import HeadMetric, Source
from headbook.report.findings import finding
from headbook.report.leaders import Leaders, alike_note, chosen_head, layer_leaders
from headbook.report.results import StackResults
from headbook.report.sink import sink_words
from headbook.report.wording import count_text, is_share, number_word
from headbook.results.formats import interval_text, number
from headbook.results.sentence import Link, head_link
from headbook.schema import Baseline, HeadKey, SinkView

MAX_NAMED_METRICS = 4  # in one sentence


def untrained_layer(
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


def with_ends(value: Estimate, metric: HeadMetric) -> str:
    """Return a number of random weights as text, with its ends."""
    share = is_share(metric)
    return f"{number(value.value, share=share)} {interval_text(value.low, value.high, share=share)}"


def seeds(results: StackResults) -> str:
    """Return the number of models with random weights and the meaning of the brackets."""
    amount = len(results.baselines[Baseline.UNTRAINED])
    return f"{amount} seeds, range in brackets" if amount > 1 else "one seed"


def like_untrained(results: StackResults) -> Iterator[finding.Finding]:
    """Yield the metrics in which no layer differs clearly from random weights."""
    if Baseline.UNTRAINED not in results.baselines:
        return
    alike: list[HeadMetric] = []
    sentences = 0
    for metric in results.metrics:
        view = results.view(metric)
        if results.has_value(metric.id, view, metric.headline):
            model = results.layers(metric.id, view, metric.headline)
            band = results.baseline_band(Baseline.UNTRAINED, metric.id, view, metric.headline)
            is_apart = _apart(model, band)
            if is_apart is not None and not is_apart.any():
                alike.append(metric)
                sentences = max(sentences, int(model.sentences.max()))
    if alike:
        named = alike[:MAX_NAMED_METRICS]
        links = [part for metric in named for part in (", ", *_named(results, metric))][1:]
        n_unnamed = len(alike) - len(named)
        yield finding.Finding(
            (
                finding.sentence_start(
                    results, "No clear difference from the same architecture with random weights "
                ),
                f"({count_text(len(results.baselines[Baseline.UNTRAINED]), 'seed')}), in any "
                "layer: ",
                *links,
                f" and {number_word(n_unnamed)} more metrics." if n_unnamed else ".",
            ),
            sentences,
            noun=results.study.manifest.text_noun,
        )


def _apart(model: Estimates, band: Estimates) -> NDArray[np.bool_] | None:
    """Return in which layers the model's interval lies outside a band; None without layers."""
    is_known = ~np.isnan(model.low + band.low + band.high)
    return ((model.low > band.high) | (model.high < band.low))[is_known] if is_known.any() else None


def _named(results: StackResults, metric: HeadMetric) -> Iterator[str | Link]:
    label = f" ({metric.headline.replace('_', ' ')})" if metric.headline else ""
    yield finding.metric_link(metric.id, metric.title.lower() + label)
    if metric.source is Source.SAMPLE:
        yield f" (sample of {finding.sample_size(results):,})"
    if metric.source is Source.RANDOM:
        yield " (random sequences)"


def distance_trend(results: StackResults) -> Iterator[finding.Finding]:
    """Yield the layers with the longest and shortest distances, compared with random weights."""
    key = HeadKey(ids.ATTENTION_DISTANCE, results.stack.default_view, "")
    far, near = (layer_leaders(results, key, lowest=lowest) for lowest in (False, True))
    if far is None or near is None or not _are_apart(far, near):
        return
    layers = results.layers(*key)
    longest, shortest = (layers.at(*leaders.first) for leaders in (far, near))
    uniform = number(results.uniform(*key).at(*far.first).value)
    yield finding.finding(
        results,
        key.metric,
        (
            finding.sentence_start(results, f"Layer {_layer_text(results, far)} attends "),
            finding.metric_link(key.metric, "farthest"),
            f": {finding.estimate_with_unit(longest, key.metric)} on average; layer "
            f"{_layer_text(results, near)}: {finding.estimate_with_unit(shortest, key.metric)}; "
            f"uniform attention: {uniform} tokens.",
            *_untrained_trend(results, near.first[0], far.first[0]),
        ),
        min(longest.sentences, shortest.sentences),
    )


def _are_apart(most: Leaders, least: Leaders) -> bool:
    """Return whether a test tells the lowest layer from the highest one."""
    return most.is_tested and least.first not in most.places


def _layer_text(results: StackResults, leaders: Leaders) -> str:
    """Return the number of a layer that leads, with those that a test does not tell from it."""
    return f"{leaders.first[0]}{alike_note(results, leaders)}"


def _untrained_trend(results: StackResults, low: int, high: int) -> Iterator[str]:
    """Yield a sentence on the distances of two layers with random weights."""
    metric, view = finding.head_metric(ids.ATTENTION_DISTANCE), results.stack.default_view
    near, far = (untrained_layer(results, layer, metric, view) for layer in (low, high))
    if near is None or far is None:
        return
    distances = f"{with_ends(far, metric)} and {with_ends(near, metric)} tokens, {seeds(results)}"
    if far.low > near.high:
        yield f" The same architecture with random weights differs likewise: {distances}."
    else:
        yield f" The same architecture with random weights shows no such difference: {distances}."


def sink_layers(results: StackResults) -> Iterator[finding.Finding]:
    """Yield the layers that attend most to the sink, and how much of their output comes from it."""
    key = HeadKey(ids.SINK_SHARE, SinkView.RAW, "")
    leaders, last = (layer_leaders(results, key, lowest=lowest) for lowest in (False, True))
    if leaders is None or last is None or leaders.none_differs or not leaders.is_tested:
        return
    (layer,) = leaders.first
    held_out = results.split(HELD_OUT, *key, of="layers").at(layer)
    if not held_out.low > results.split(HELD_OUT, *key, of="uniform").at(layer).value:
        return
    most, least = (results.layers(*key).at(*place.first) for place in (leaders, last))
    least_note = (
        f"; layer {_layer_text(results, last)}: {finding.estimate_with_unit(least, key.metric)}"
        if _are_apart(leaders, last)
        else ""
    )
    yield finding.finding(
        results,
        key.metric,
        (
            finding.sentence_start(
                results, f"Layer {_layer_text(results, leaders)} attends most to "
            ),
            finding.metric_link(key.metric, sink_words(results)),
            f": {finding.estimate_with_unit(most, key.metric)} of its attention{least_note}; "
            f"uniform attention: {number(results.uniform(*key).at(layer).value, share=True)}.",
            *_contributed(results, layer, most),
        ),
        most.sentences,
    )


def _contributed(results: StackResults, layer: int, attention: Estimate) -> finding.Parts:
    """Return a sentence on the sink's share of the output, if it differs from its attention."""
    name = ids.SINK_NORM_SHARE
    if not results.has_value(name, SinkView.RAW):
        return ()
    norm_share = results.layers(name, SinkView.RAW).at(layer)
    if norm_share.low <= attention.high and norm_share.high >= attention.low:
        return ()
    link = finding.metric_link(name, "value-weighted norm ‖αvW_O‖")
    written = finding.estimate_with_unit(norm_share, name)
    return (f" The sink contributes {written} of that layer's ", link, ".")


def variability(results: StackResults) -> Iterator[finding.Finding]:
    """Yield a finding on the heads with the lowest and the highest attention variability."""
    key = HeadKey(ids.VARIABILITY, results.stack.default_view, "")
    most, least = (chosen_head(results, key, lowest=lowest) for lowest in (False, True))
    if most is None or least is None or not most.held_out.low > least.held_out.high:
        return
    written = partial(finding.estimate_with_unit, name=key.metric)
    share = is_share(finding.head_metric(key.metric))
    yield finding.finding(
        results,
        key.metric,
        (
            finding.metric_link(key.metric, "Attention variability"),
            " (0: position only) is lowest in ",
            head_link(least.head),
            f"{least.note}, {written(least.value)}, and highest in ",
            head_link(most.head),
            f"{most.note}, {written(most.value)}; uniform attention: "
            f"{number(most.uniform.value, share=share)}.",
        ),
        min(least.value.sentences, most.value.sentences),
    )
