"""The parts of findings: sentences with links."""

from dataclasses import dataclass

from headbook.analysis.accumulators import Estimate
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
        noun: ``passage`` if sentences were joined.
    """

    parts: Parts
    sentences: int
    source: Source = Source.ALL
    size: int = 0
    noun: str = "sentence"

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
            return f"{count_text(self.sentences, self.noun)} of a sample of {self.size:,}"
        return count_text(self.sentences, self.noun)


def finding(results: StackResults, metric_id: str, parts: Parts, sentences: int) -> Finding:
    """Return a finding about a metric, with the metric's source."""
    metric = all_metrics()[metric_id]
    source = metric.source if isinstance(metric, HeadMetric) else Source.ALL
    noun = results.study.manifest.text_noun
    return Finding(parts, sentences, source, sample_size(results), noun)


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
