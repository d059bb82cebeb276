"""What the same architecture with random weights shows of a model's numbers."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from headbook.metrics.base import HeadMetric, Source
from headbook.report.findings.finding import Finding, Link, begun, metric_link, sample_size
from headbook.report.findings.layers import mean
from headbook.report.numbers.results import Estimate, Estimates, StackResults
from headbook.report.wording import counted, interval, is_share, number, small
from headbook.terms import Baseline, View

NAMED = 4  # metrics that the sentence names


def untrained(
    results: StackResults, run: Sequence[int], metric: HeadMetric, view: View
) -> Estimate | None:
    """The mean over a run of layers with random weights.

    With several seeds the mean over them with the smallest and the largest as ends, with one its
    interval; None without any.
    """
    twins = results.twins.get(Baseline.UNTRAINED, ())
    estimates = [mean(twin.layers(metric.id, view), run) for twin in twins]
    if len(estimates) < 2:
        return estimates[0] if estimates else None
    values = [one.value for one in estimates]
    return estimates[0]._replace(value=float(np.mean(values)), low=min(values), high=max(values))


def with_ends(value: Estimate, metric: HeadMetric) -> str:
    """A number with random weights, with its ends."""
    share = is_share(metric)
    return f"{number(value.value, share=share)} {interval(value.low, value.high, share=share)}"


def seeds(results: StackResults) -> str:
    """How many models with random weights there are, and what the ends of their numbers are."""
    amount = len(results.twins[Baseline.UNTRAINED])
    return f"{amount} seeds, range in brackets" if amount > 1 else "one seed"


def like_untrained(results: StackResults) -> Iterator[Finding]:
    """Metrics in which no layer lies outside the band of the same model with random weights."""
    if Baseline.UNTRAINED not in results.twins:
        return
    alike: list[HeadMetric] = []
    sentences = 0
    for metric in results.metrics:
        view = results.view(metric)
        if results.has(metric.id, view, metric.headline):
            model = results.layers(metric.id, view, metric.headline)
            band = results.band(Baseline.UNTRAINED, metric.id, view, metric.headline)
            apart = _apart(model, band)
            if apart is not None and not apart.any():
                alike.append(metric)
                sentences = max(sentences, int(model.sentences.max()))
    if alike:
        named = alike[:NAMED]
        links = [part for metric in named for part in (", ", *_named(results, metric))][1:]
        more = len(alike) - len(named)
        yield Finding(
            (
                begun(
                    results, "No clear difference from the same architecture with random weights "
                ),
                f"({counted(len(results.twins[Baseline.UNTRAINED]), 'seed')}), in any layer: ",
                *links,
                f" and {small(more)} more metrics." if more else ".",
            ),
            sentences,
        )


def _apart(model: Estimates, band: Estimates) -> NDArray[np.bool_] | None:
    """In which layers the model's interval lies outside a band; None without layers."""
    known = ~np.isnan(model.low + band.low + band.high)
    return ((model.low > band.high) | (model.high < band.low))[known] if known.any() else None


def _named(results: StackResults, metric: HeadMetric) -> Iterator[str | Link]:
    label = f" ({metric.headline.replace('_', ' ')})" if metric.headline else ""
    yield metric_link(metric.id, metric.title.lower() + label)
    if metric.source is Source.SAMPLE:
        yield f" (sample of {sample_size(results):,})"
    if metric.source is Source.RANDOM:
        yield " (random sequences)"
