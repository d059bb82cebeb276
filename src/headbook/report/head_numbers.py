"""Numbers of one head metric in one stack, view and label, with the rows that hold them."""

from typing import NamedTuple

import numpy as np

from headbook.analysis.accumulators import Estimate, Estimates
from headbook.metrics.base import HeadMetric, Metric
from headbook.report.leaders import NOT_TESTED, alike_note, head_leaders
from headbook.report.linked_rows import LinkedNumber
from headbook.report.results import StackResults
from headbook.report.wording import is_share, with_unit
from headbook.results.formats import MISSING, in_hundred, interval_text, number
from headbook.results.number import COSINE
from headbook.results.sentence import Link, head_link
from headbook.schema import HeadKey, HeadName, SinkView
from headbook.study.tables import RowKey

Place = tuple[int, int]  # layer and head


def cell_number(value: float, *, share: bool) -> str:
    """Return a number for a cell of a heat map: shares in per cent without its sign."""
    if np.isnan(value):
        return MISSING
    if share:
        return in_hundred(value)
    if abs(value) < 0.995:
        return number(value)
    return number(value, like=10.0 if abs(value) < 99.5 else 100.0)


def printed(value: float, metric: Metric) -> str:
    """Return a number of a metric with its unit; a cosine has none."""
    share = is_share(metric)
    return with_unit(number(value, share=share), "" if metric.unit == COSINE else metric.unit)


class HeadMetricNumbers(NamedTuple):
    """Numbers of a head metric in one stack, view and label.

    Attributes:
        results: results of the stack.
        metric: the metric.
        view: view of the attention.
        label: label of the metric; empty if it has one number a head.
    """

    results: StackResults
    metric: HeadMetric
    view: SinkView
    label: str = ""

    @property
    def heads(self) -> Estimates:
        """Number of each head. *Shape:* ``(layer, head)``."""
        return self.results.heads(self.metric.id, self.view, self.label)

    @property
    def layers(self) -> Estimates:
        """Number of each layer, all heads together. *Shape:* ``(layer,)``."""
        return self.results.layers(self.metric.id, self.view, self.label)

    @property
    def uniform(self) -> Estimates:
        """Number of each layer under uniform attention. *Shape:* ``(layer,)``."""
        return self.results.uniform(self.metric.id, self.view, self.label)

    @property
    def known(self) -> bool:
        """Whether any head has a number."""
        return self.results.has_value(self.metric.id, self.view, self.label)

    @property
    def n_heads(self) -> int:
        """Number of heads of the stack."""
        return len(self.results.stack.attention_layers) * self.results.stack.n_heads

    @property
    def share(self) -> bool:
        """Whether the numbers are shares, printed in per cent."""
        return is_share(self.metric)

    def best(self) -> Place:
        """Return the head that leads; of those with enough observations if any have.

        One head must have a number.
        """
        leaders = head_leaders(self.results, self.key, lowest=self.lowest)
        if leaders is not None:
            first_layer, first_head = leaders.first
            return first_layer, first_head
        value = self.heads.value * (-1 if self.lowest else 1)
        layer, head = np.unravel_index(int(np.nanargmax(value)), value.shape)
        return int(layer), int(head)

    @property
    def note(self) -> str:
        """Heads that a test does not tell from the best one, as a note after its name."""
        leaders = head_leaders(self.results, self.key, lowest=self.lowest)
        return alike_note(self.results, leaders) if leaders else NOT_TESTED

    @property
    def key(self) -> HeadKey:
        """Metric, view and label."""
        return HeadKey(self.metric.id, self.view, self.label)

    @property
    def lowest(self) -> bool:
        """Whether the lowest number is the notable one."""
        return self.metric.is_low(self.label)

    def at(self, place: Place) -> Estimate:
        """Return the number of a head."""
        return self.heads.at(*place)

    def name(self, place: Place) -> HeadName:
        """Return a head of the stack by layer and head."""
        return HeadName(self.results.stack.name, *place)

    def link(self, place: Place) -> Link:
        """Return a link to the page of a head."""
        return head_link(self.name(place))

    def printed(self, value: float) -> str:
        """Return a number with its unit."""
        return printed(value, self.metric)

    def interval(self, place: Place) -> str:
        """Return the interval of a head's number; empty without one."""
        estimate = self.at(place)
        return interval_text(estimate.low, estimate.high, share=self.share)

    def head_row(self, place: Place) -> RowKey:
        """Return the row of a head's number in the table of heads."""
        layer, head = place
        own = (("stack", self.results.stack.name), ("layer", layer), ("head", head))
        return *own, *self._column

    def head_number(self, place: Place, text: str) -> LinkedNumber:
        """Return a text about the number of a head with its row in the table of heads."""
        return LinkedNumber(text, "heads", self.head_row(place))

    def layer_row(self, layer: int) -> RowKey:
        """Return the row of a layer's number in the table of layers."""
        return ("stack", self.results.stack.name), ("layer", layer), *self._column

    def layer_number(self, layer: int, text: str) -> LinkedNumber:
        """Return a text about the number of a layer with its row in the table of layers."""
        return LinkedNumber(text, "layers", self.layer_row(layer))

    @property
    def _column(self) -> RowKey:
        return ("metric", self.metric.id), ("view", str(self.view)), ("label", self.label)


def drawn_numbers(results: StackResults, metric: HeadMetric) -> HeadMetricNumbers | None:
    """Return the numbers of a metric that the site's figures show; None without any."""
    metric = results.by_id.get(metric.id, metric)
    drawn = results.drawn(metric)
    return None if drawn is None else HeadMetricNumbers(results, metric, *drawn)
