"""Facts about the same architecture with random weights: in which metrics no layer differs."""

import numpy as np

from headbook.report.results import StackResults, sentence_start
from headbook.report.wording import count_text, number_word
from headbook.results.fact import Fact
from headbook.results.sentence import listed, metric_link, say
from headbook.schema import Baseline, HeadKey

MAX_NAMED_METRICS = 4  # in one sentence


def no_layer_differs(results: StackResults, key: HeadKey) -> bool:
    """Check whether the interval of no layer lies outside the band of random weights.

    False without random weights, or if no layer has a number.
    """
    if Baseline.UNTRAINED not in results.baselines or not results.has_value(*key):
        return False
    model, band = results.layers(*key), results.baseline_band(Baseline.UNTRAINED, *key)
    is_known = ~np.isnan(model.low + band.low + band.high)
    is_apart = (model.low > band.high) | (model.high < band.low)
    return bool(is_known.any() and not is_apart[is_known].any())


def like_random_weights(results: StackResults) -> Fact:
    """Return the metrics, each by its headline, in which no layer differs from random weights."""
    alike = [
        metric
        for metric in results.metrics
        if no_layer_differs(results, HeadKey(metric.id, results.view(metric), metric.headline))
    ]
    if not alike:
        return Fact("like_random_weights", holds=False)
    links = [
        metric_link(metric.id, metric.title.lower() + headline)
        for metric in alike[:MAX_NAMED_METRICS]
        for headline in [f" ({metric.headline.replace('_', ' ')})" if metric.headline else ""]
    ]
    n_unnamed = len(alike) - len(links)
    more = [f"{number_word(n_unnamed)} more metrics"] if n_unnamed else []
    text = sentence_start(
        results,
        "No clear difference from the same architecture with random weights ({seeds}), in any "
        "layer: {metrics}.",
    )
    seeds = count_text(len(results.baselines[Baseline.UNTRAINED]), "seed")
    return Fact("like_random_weights", say(text, seeds=seeds, metrics=listed([*links, *more])))
