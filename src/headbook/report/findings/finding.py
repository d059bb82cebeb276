"""The parts of findings: sentences with links, selection on one split, and runs of layers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from headbook.analysis.accumulators import HELD_OUT, SELECTION, Estimate, Estimates
from headbook.metrics import all_metrics
from headbook.metrics.base import HeadMetric, Metric, Source
from headbook.report.linked_rows import LinkedNumber
from headbook.report.results import StackResults
from headbook.report.wording import (
    STACKS,
    count_text,
    is_share,
)
from headbook.results.formats import interval_text, metric_page, number
from headbook.results.sentence import Link
from headbook.schema import SinkView

Part = str | Link | LinkedNumber
Parts = tuple[Part, ...]


@dataclass(frozen=True)
class Finding:
    """One sentence computed from numbers.

    Attributes:
        parts: words and links in order.
        sentences: number of sentences behind the finding.
        source: where these sentences come from: all sentences, a sample, or random sequences.
        size: number of sentences in the sample, if these sentences come from a sample.
    """

    parts: Parts
    sentences: int
    source: Source = Source.ALL
    size: int = 0

    @property
    def text(self) -> str:
        """The finding without its links."""
        return "".join(part if isinstance(part, str) else part.text for part in self.parts)

    @property
    def behind(self) -> str:
        """The number of sentences behind the finding, in words."""
        if self.source is Source.RANDOM:
            return count_text(self.sentences, "random sequence")
        if self.source in {Source.SAMPLE, Source.CONTEXT}:
            return f"{count_text(self.sentences, 'sentence')} of a sample of {self.size:,}"
        return count_text(self.sentences, "sentence")


def finding(results: StackResults, metric_id: str, parts: Parts, sentences: int) -> Finding:
    """Return a finding about a metric, with the metric's source."""
    metric = all_metrics()[metric_id]
    source = metric.source if isinstance(metric, HeadMetric) else Source.ALL
    return Finding(parts, sentences, source, sample_size(results))


def sample_size(results: StackResults) -> int:
    """Return the number of sentences in the sample."""
    manifest = results.study.manifest
    return min(int(manifest.options["sample_sentences"]), manifest.counts["sentences"])


def head_metric(metric_id: str) -> HeadMetric:
    """Return a head metric by id."""
    metric = all_metrics()[metric_id]
    assert isinstance(metric, HeadMetric)
    return metric


def estimate_with_unit(value: Estimate, name: str) -> str:
    """Return a number as text, with its interval and unit."""
    metric: Metric = all_metrics()[name]
    share = is_share(metric)
    unit = f" {metric.unit}" if metric.unit else ""
    interval = interval_text(value.low, value.high, share=share)
    return f"{number(value.value, share=share)}{unit} {interval}"


def metric_link(name: str, text: str) -> Link:
    """Return a link to a metric's page."""
    return Link(text, metric_page(name))


def sentence_start(results: StackResults, text: str) -> str:
    """Return the beginning of a sentence; it names the stack if the model has several."""
    if results.stack.name == "self":
        return text
    return f"In {STACKS[results.stack.name]}, {text[0].lower()}{text[1:]}"


def sentence_start_with_link(results: StackResults, link: Link) -> Parts:
    """Return a link as the beginning of a sentence, after the stack if the model has several."""
    if results.stack.name == "self":
        return (link,)
    text = f"{link.text[0].lower()}{link.text[1:]}"
    return (f"In {STACKS[results.stack.name]}, ", link._replace(text=text))


RUN_DIVISOR = 4  # a run has a quarter of the layers that have attention


class Runs(NamedTuple):
    """The runs of layers with the lowest and the highest mean of a number."""

    low: tuple[int, ...]
    high: tuple[int, ...]


def layer_runs(results: StackResults, name: str, view: SinkView, label: str = "") -> Runs | None:
    """Return the lowest and the highest run of layers on the selection split; None if they overlap.

    A run has one layer in `RUN_DIVISOR` of those with attention, at least one.
    """
    numbers = results.split(SELECTION, name, view, label, of="layers")
    layers = [n for n in results.stack.attention_layers if not np.isnan(numbers.value[n])]
    width = max(1, len(results.stack.attention_layers) // RUN_DIVISOR)
    windows = [tuple(layers[at : at + width]) for at in range(len(layers) - width + 1)]
    if not windows:
        return None
    means = [float(numbers.value[[*window]].mean()) for window in windows]
    runs = Runs(windows[int(np.argmin(means))], windows[int(np.argmax(means))])
    return None if set(runs.low) & set(runs.high) else runs


def run_mean(numbers: Estimates, run: Sequence[int]) -> Estimate:
    """Return the mean of a number over layers.

    The interval of the mean is the mean of the layers' intervals, which is wide enough however
    layers are correlated, since no mean varies more than its parts do on average.
    """
    value, low, high = (
        float(part[[*run]].mean()) for part in (numbers.value, numbers.low, numbers.high)
    )
    sentences, events = numbers.sentences[[*run]].min(), numbers.events[[*run]].sum()
    return Estimate(value, low, high, int(sentences), float(events))


def layer_run_mean(
    results: StackResults, run: Sequence[int], name: str, view: SinkView, *, held_out: bool = False
) -> Estimate:
    """Return the mean of a metric over a run of layers, on all sentences or the held-out split."""
    if held_out:
        return run_mean(results.split(HELD_OUT, name, view, of="layers"), run)
    return run_mean(results.layers(name, view), run)


def uniform_run_mean(
    results: StackResults, run: Sequence[int], name: str, view: SinkView, *, held_out: bool = False
) -> Estimate:
    """Return the mean over a run of layers under uniform attention, as `layer_run_mean` does."""
    if held_out:
        return run_mean(results.split(HELD_OUT, name, view, of="uniform"), run)
    return run_mean(results.uniform(name, view), run)


def run_text(run: Sequence[int]) -> str:
    """Return a run of layers in words: ``layer 3``, ``layers 9–11``."""
    if len(run) == 1:
        return f"layer {run[0]}"
    if run[-1] - run[0] == len(run) - 1:
        return f"layers {run[0]}–{run[-1]}"
    return f"layers {', '.join(map(str, run))}"
