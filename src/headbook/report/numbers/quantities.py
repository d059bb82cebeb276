"""Numbers that papers print about a model's heads: of one head, or an aggregate over heads.

Where something is missing, the value is NaN; where no interval is defined, its ends are.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from headbook.metrics import all_metrics
from headbook.report.numbers.inference import best_offsets
from headbook.report.numbers.results import NO_ESTIMATE, Estimate, Estimates, StackResults
from headbook.report.wording import is_share, number, with_unit
from headbook.study.summaries.columns import HeadColumn
from headbook.terms import UPOS, View


def alone(value: float, numbers: Estimates) -> Estimate:
    """A value without an interval, and how many sentences are behind it."""
    return Estimate(value, math.nan, math.nan, int(numbers.sentences.max()), math.nan)


class Quantity(ABC):
    """What can be computed from the results of a stack."""

    @property
    @abstractmethod
    def columns(self) -> tuple[HeadColumn, ...]:
        """Which numbers of heads it is computed from."""

    @property
    @abstractmethod
    def how(self) -> str:
        """What of them it takes, in words."""

    @abstractmethod
    def compute(self, results: StackResults) -> Estimate:
        """The value, given that all columns are there."""

    def number(self, results: StackResults) -> Estimate:
        """The value; NaN where a column is missing."""
        return self.compute(results) if all(results.has(*c) for c in self.columns) else NO_ESTIMATE

    @property
    def share(self) -> bool:
        """Whether values are parts of a whole."""
        return is_share(all_metrics()[self.columns[0].metric])

    def written(self, value: float) -> str:
        """A value the way its metric wants."""
        metric = all_metrics()[self.columns[0].metric]
        return with_unit(number(value, share=self.share), metric.unit)


class Count(Quantity):
    """What is counted."""

    def written(self, value: float) -> str:
        """A whole number."""
        return number(value) if math.isnan(value) else f"{value:.0f}"


@dataclass(frozen=True)
class OfColumn(Quantity):
    """What is computed from one column."""

    column: HeadColumn

    @property
    def columns(self) -> tuple[HeadColumn, ...]:
        """The one column."""
        return (self.column,)


@dataclass(frozen=True)
class AtHead(OfColumn):
    """The number of one head, with its interval over sentences; counted from 0."""

    layer: int
    head: int

    @property
    def how(self) -> str:
        """The head's name."""
        return f"L{self.layer}·H{self.head}"

    def compute(self, results: StackResults) -> Estimate:
        """The head's number; NaN where the stack has no such head."""
        heads = results.heads(*self.column)
        there = self.layer < heads.value.shape[0] and self.head < heads.value.shape[1]
        return heads.at(self.layer, self.head) if there else NO_ESTIMATE


@dataclass(frozen=True)
class MeanOver(OfColumn):
    """The mean over the heads of some layers, or of all; every head counts the same.

    Its interval is the mean of theirs: at least as wide as it need be, since no mean varies more
    than its parts do on average.
    """

    layers: tuple[int, ...] = ()

    @property
    def how(self) -> str:
        """Which heads."""
        where = f"layers {self.layers[0]}–{self.layers[-1]}" if self.layers else "all layers"
        return f"mean over the heads of {where}"

    def compute(self, results: StackResults) -> Estimate:
        """The mean; NaN where the stack lacks a layer."""
        heads = results.heads(*self.column)
        if self.layers and max(self.layers) >= len(heads.value):
            return NO_ESTIMATE
        chosen = [*self.layers] or slice(None)
        there = ~np.isnan(heads.value[chosen])
        if not there.any():
            return NO_ESTIMATE
        value, low, high = (float(part[chosen][there].mean()) for part in heads[:3])
        return Estimate(value, low, high, int(heads.sentences.max()), math.nan)


@dataclass(frozen=True)
class Largest(OfColumn):
    """The largest number of any head, with that head's own interval."""

    how = "largest of all heads"

    def compute(self, results: StackResults) -> Estimate:
        """The number of that head."""
        heads = results.heads(*self.column)
        return heads.at(*divmod(int(np.nanargmax(heads.value)), heads.value.shape[1]))


@dataclass(frozen=True)
class SpreadOver(OfColumn):
    """The standard deviation over all heads, their number as divisor."""

    how = "standard deviation over all heads"

    def compute(self, results: StackResults) -> Estimate:
        """The deviation, without an interval."""
        heads = results.heads(*self.column)
        return alone(float(np.nanstd(heads.value)), heads)


@dataclass(frozen=True)
class HeadsAbove(OfColumn, Count):
    """How many heads lie above a threshold."""

    least: float

    @property
    def how(self) -> str:
        """Which heads."""
        return f"number of heads above {OfColumn.written(self, self.least)}"

    def compute(self, results: StackResults) -> Estimate:
        """The number of heads, without an interval."""
        heads = results.heads(*self.column)
        return alone(float((heads.value > self.least).sum()), heads)


@dataclass(frozen=True)
class AtOffset(OfColumn):
    """The share that the best fixed offset finds of the column's relation, on the sample."""

    how = "best fixed offset, −5 to +5"

    def compute(self, results: StackResults) -> Estimate:
        """The share, without an interval; NaN where the study kept no relations."""
        sums = results.study.corpus_sums.heads[results.stack.name]
        words = sums.strongest_words
        if words is None:
            return NO_ESTIMATE
        _, shares = best_offsets(words)
        share = float(shares[words.labels.index(self.column.label)])
        return Estimate(share, math.nan, math.nan, len(words.index), math.nan)


@dataclass(frozen=True)
class Correlation(Quantity):
    """Pearson's correlation of two numbers over the heads that have both.

    No interval and no p: heads of one model are not independent.
    """

    how = "Pearson correlation over all heads"
    one: HeadColumn
    other: HeadColumn

    @property
    def columns(self) -> tuple[HeadColumn, ...]:
        """Both."""
        return self.one, self.other

    def compute(self, results: StackResults) -> Estimate:
        """The correlation; NaN where one of the two does not vary."""
        numbers = [results.heads(*column) for column in self.columns]
        one, other = (each.value.ravel() for each in numbers)
        both = ~np.isnan(one + other)
        if both.sum() < 2 or not one[both].std() * other[both].std():
            return NO_ESTIMATE
        return alone(float(np.corrcoef(one[both], other[both])[0, 1]), numbers[0])

    def written(self, value: float) -> str:
        """Two decimals, without a unit."""
        return number(value)


@dataclass(frozen=True)
class TagsAbove(Count):
    """For how many parts of speech some head lies above so many times the mean of all heads."""

    metric: str
    view: View
    times: float

    @property
    def columns(self) -> tuple[HeadColumn, ...]:
        """Every part of speech."""
        return tuple(HeadColumn(self.metric, self.view, tag) for tag in UPOS)

    @property
    def how(self) -> str:
        """What is counted."""
        return f"number of tags for which some head is above {self.times:g} times the mean head"

    def number(self, results: StackResults) -> Estimate:
        """The number of tags among those that the texts have."""
        return self.compute(results) if any(results.has(*c) for c in self.columns) else NO_ESTIMATE

    def compute(self, results: StackResults) -> Estimate:
        """The number of tags, without an interval."""
        estimates = [results.heads(*column) for column in self.columns if results.has(*column)]
        values = [heads.value for heads in estimates]
        count = sum(bool(np.nanmax(v) > self.times * np.nanmean(v)) for v in values)
        return alone(float(count), estimates[0])
