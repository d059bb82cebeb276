"""Findings on token states, head outputs and the geometry of states."""

from collections.abc import Iterator

import numpy as np

from headbook.analysis.accumulators import Estimate
from headbook.metrics import ids
from headbook.report.findings.finding import (
    Finding,
    metric_link,
    sentence_start,
    sentence_start_with_link,
)
from headbook.report.results import StackResults
from headbook.report.wording import SPACES
from headbook.results.formats import interval_text, number
from headbook.schema import EmbeddingSpace, ResidualPoint, SinkView

SEGMENTATION_METRIC = ids.SEGMENTATION


def best_layer(results: StackResults, rule: str) -> tuple[int, Estimate]:
    """Return the layer whose heads together find sentence ends best, with its F1."""
    numbers = results.layers(SEGMENTATION_METRIC, SinkView.RAW, f"f1:{rule}")
    layer = int(np.nan_to_num(numbers.value, nan=-1).argmax())
    return layer, numbers.at(layer)


def drift_from_input(results: StackResults) -> Iterator[Finding]:
    """Yield a finding on how far the cosine to the input embedding changes over the layers."""
    numbers = results.tokens(ids.COSINE_TO_INPUT, ResidualPoint.POST, None, "all")
    if numbers is None or len(numbers.value) < 2:
        return
    first, last = numbers.at(0), numbers.at(len(numbers.value) - 1)
    if last.high < first.low or last.low > first.high:
        verb = "falls" if last.value < first.value else "rises"
        before = f"{_cosine(first.value)} {interval_text(first.low, first.high)}"
        after = f"{_cosine(last.value)} {interval_text(last.low, last.high)}"
        yield Finding(
            (
                *sentence_start_with_link(
                    results, metric_link(ids.COSINE_TO_INPUT, "Cosine to the input embedding")
                ),
                f" {verb} from {before} after layer 0 to {after} after layer "
                f"{len(numbers.value) - 1}.",
            ),
            last.sentences,
            noun=results.study.manifest.text_noun,
        )


def _cosine(value: float) -> str:
    """Return a cosine as text, with three digits near 0.

    0 is not an end of the range of cosines, so that ``> −0.01`` would not be a value.
    """
    return number(value) if abs(value) >= 0.005 else f"{value + 0.0:.3f}".replace("-", "−")


def own_word(results: StackResults) -> Iterator[Finding]:
    """Yield a finding on the layer up to which tokens are nearest to their own vocabulary token."""
    for space in EmbeddingSpace:
        numbers = results.tokens(ids.VOCABULARY_RANK, ResidualPoint.POST, space, "all")
        if numbers is None:
            continue
        last = numbers.at(len(numbers.value) - 1)
        nearest_layers = [layer for layer, high in enumerate(numbers.high) if high < np.log10(2)]
        if not nearest_layers or last.low <= np.log10(2):
            return
        yield Finding(
            (
                sentence_start(
                    results,
                    f"Up to layer {_end(nearest_layers)}, a typical token is nearest to its own ",
                ),
                "vocabulary token; after the last layer, ",
                metric_link(ids.VOCABULARY_RANK, "others are nearer"),
                f": {number(10**last.value - 1)} "
                f"{interval_text(10**last.low - 1, 10**last.high - 1)} "
                f"(geometric mean, compared with {SPACES[space]}).",
            ),
            last.sentences,
            noun=results.study.manifest.text_noun,
        )
        return


def _end(layers: list[int]) -> int:
    """Return the end of the run of consecutive layers that begins with the first."""
    end = layers[0]
    for layer in layers:
        if layer > end + 1:
            break
        end = layer
    return end
