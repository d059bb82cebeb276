"""Numbers of one head metric in one stack, view and label, with the rows that hold them."""

from typing import NamedTuple

import numpy as np

from headbook.analysis.accumulators import Estimates
from headbook.metrics.base import HeadMetric, Notable
from headbook.report.leaders import NOT_TESTED, Leaders, alike_note, head_leaders
from headbook.report.results import StackResults
from headbook.results.number import PLAIN, SHARE, Number, Unit, unit_of
from headbook.schema import HeadKey, HeadName, Place, SinkView


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
    def key(self) -> HeadKey:
        """Metric, view and label."""
        return HeadKey(self.metric.id, self.view, self.label)

    @property
    def heads(self) -> Estimates:
        """Number of each head. *Shape:* ``(layer, head)``."""
        return self.results.heads(*self.key)

    @property
    def known(self) -> bool:
        """Whether any head has a number."""
        return self.results.has_value(*self.key)

    @property
    def n_heads(self) -> int:
        """Number of heads of the stack."""
        return len(self.results.stack.attention_layers) * self.results.stack.n_heads

    @property
    def notable(self) -> Notable:
        """The end of the values that is notable."""
        return Notable.LOW if self.metric.is_low(self.label) else self.metric.notable

    @property
    def leaders(self) -> Leaders | None:
        """Heads that lead at the notable end; None without a number that is trusted."""
        return head_leaders(self.results, self.key, lowest=self.notable is Notable.LOW)

    def best(self) -> Place:
        """Return the head that leads; of those with enough observations if any have.

        One head must have a number.
        """
        if self.leaders is not None:
            first_layer, first_head = self.leaders.first
            return first_layer, first_head
        lowest, highest = self.ends()
        return lowest if self.notable is Notable.LOW else highest

    def ends(self) -> tuple[Place, Place]:
        """Return the heads of the lowest and of the highest number; one must have a number."""
        value = self.heads.value
        lowest, highest = (
            np.unravel_index(int(index), value.shape)
            for index in (np.nanargmin(value), np.nanargmax(value))
        )
        return (int(lowest[0]), int(lowest[1])), (int(highest[0]), int(highest[1]))

    @property
    def note(self) -> str:
        """Heads that a test does not tell from the best one, as a note after its name."""
        return alike_note(self.results, self.leaders) if self.leaders else NOT_TESTED

    def name(self, place: Place) -> HeadName:
        """Return a head of the stack by layer and head."""
        return HeadName(self.results.stack.name, *place)

    @property
    def unit(self) -> Unit:
        """Unit of the numbers: that of the metric, which is that of its first label."""
        unit, is_first = unit_of(self.metric), self.label in {"", self.metric.headline}
        return unit if is_first or unit == SHARE else PLAIN

    def number(self, place: Place) -> Number:
        """Return the number of a head."""
        return self.results.number(self.key, *place, unit=self.unit)

    def layer(self, layer: int) -> Number:
        """Return the number of a layer, all heads together."""
        return self.results.number(self.key, layer, unit=self.unit)

    def uniform(self, layer: int) -> Number:
        """Return the number of a layer under uniform attention."""
        return self.results.uniform_number(self.key, layer)


def drawn_numbers(results: StackResults, metric: HeadMetric) -> HeadMetricNumbers | None:
    """Return the numbers of a metric that the site's figures show; None without any."""
    metric = results.by_id.get(metric.id, metric)
    drawn = results.drawn(metric)
    return None if drawn is None else HeadMetricNumbers(results, metric, *drawn)
