"""Quantities that a study computes for the figures of `headbook.report.published`.

A quantity is NaN if a number is missing, and the ends of its interval are NaN if no interval is
defined. Heads and layers count from 0.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from headbook.analysis.accumulators import NO_ESTIMATE, Estimate, without_interval
from headbook.metrics import all_metrics
from headbook.report.relation_counts import best_offsets
from headbook.report.results import StackResults
from headbook.report.wording import head_name, is_share, number, percent, with_unit
from headbook.schema import UPOS, AblationTarget, HeadKey, HeadName, Replacement, SinkView
from headbook.study.ablation import effect_tests
from headbook.study.ablation_tables import DIRECT, EFFECT, REPAIR
from headbook.study.tables import RowKey, row_of_head

TableRow = tuple[str, RowKey]  # name of a table, and what identifies a row


class Quantity(ABC):
    """A quantity that can be computed from the results of a stack."""

    @property
    @abstractmethod
    def columns(self) -> tuple[HeadKey, ...]:
        """Columns of head numbers from which the quantity is computed."""

    @property
    @abstractmethod
    def how(self) -> str:
        """Description of the computation, as printed on the page."""

    @abstractmethod
    def compute(self, results: StackResults) -> Estimate:
        """Return the value, given that all columns have values."""

    def number(self, results: StackResults) -> Estimate:
        """Return the value; NaN if a column is missing."""
        return (
            self.compute(results)
            if all(results.has_value(*column) for column in self.columns)
            else NO_ESTIMATE
        )

    def row(self, results: StackResults) -> TableRow | None:
        """Return table and row that hold the value; None if the value is computed from several."""
        return None

    @property
    def share(self) -> bool:
        """Whether values are shares, printed in per cent."""
        return is_share(all_metrics()[self.columns[0].metric])

    def written(self, value: float) -> str:
        """Return a value as text, with the unit of its metric."""
        metric = all_metrics()[self.columns[0].metric]
        return with_unit(number(value, share=self.share), metric.unit)


class Count(Quantity):
    """A quantity that is a number of heads or labels."""

    def written(self, value: float) -> str:
        """Return a whole number as text."""
        return number(value) if math.isnan(value) else f"{value:.0f}"


@dataclass(frozen=True)
class OfColumn(Quantity):
    """A quantity computed from one column."""

    column: HeadKey

    @property
    def columns(self) -> tuple[HeadKey, ...]:
        """The column from which the quantity is computed."""
        return (self.column,)


@dataclass(frozen=True)
class AtHead(OfColumn):
    """The number of one head, with its interval over sentences; layer and head count from 0."""

    layer: int
    head: int

    @property
    def how(self) -> str:
        """Name of the head."""
        return f"L{self.layer}·H{self.head}"

    def compute(self, results: StackResults) -> Estimate:
        """Return the head's number; NaN if the stack has no such head."""
        heads = results.heads(*self.column)
        exists = self.layer < heads.value.shape[0] and self.head < heads.value.shape[1]
        return heads.at(self.layer, self.head) if exists else NO_ESTIMATE

    def row(self, results: StackResults) -> TableRow:
        """Return the head's row in the table of heads."""
        head = HeadName(results.stack.name, self.layer, self.head)
        return "heads", row_of_head(head, self.column)


@dataclass(frozen=True)
class MeanOver(OfColumn):
    """The mean over the heads of some layers, or of all layers; every head has the same weight.

    The interval of the mean is the mean of the heads' intervals, which is wide enough, since no
    mean varies more than its parts do on average.
    """

    layers: tuple[int, ...] = ()

    @property
    def how(self) -> str:
        """Layers whose heads are averaged, in words."""
        layers = f"layers {self.layers[0]}–{self.layers[-1]}" if self.layers else "all layers"
        return f"mean over the heads of {layers}"

    def compute(self, results: StackResults) -> Estimate:
        """Return the mean; NaN if the stack lacks one of the layers."""
        heads = results.heads(*self.column)
        if self.layers and max(self.layers) >= len(heads.value):
            return NO_ESTIMATE
        layers = [*self.layers] or slice(None)
        known = ~np.isnan(heads.value[layers])
        if not known.any():
            return NO_ESTIMATE
        value, low, high = (float(numbers[layers][known].mean()) for numbers in heads[:3])
        return Estimate(value, low, high, int(heads.sentences.max()), math.nan)


@dataclass(frozen=True)
class Largest(OfColumn):
    """The largest number of any head, with that head's interval."""

    how = "largest of all heads"

    def compute(self, results: StackResults) -> Estimate:
        """Return the largest number of any head."""
        return results.heads(*self.column).at(*self._place(results))

    def row(self, results: StackResults) -> TableRow:
        """Return the row of the head with the largest number."""
        head = HeadName(results.stack.name, *self._place(results))
        return "heads", row_of_head(head, self.column)

    def _place(self, results: StackResults) -> tuple[int, int]:
        values = results.heads(*self.column).value
        layer, head = np.unravel_index(np.nanargmax(values), values.shape)
        return int(layer), int(head)


@dataclass(frozen=True)
class SpreadOver(OfColumn):
    """The standard deviation over all heads, with the number of heads as divisor."""

    how = "standard deviation over all heads"

    def compute(self, results: StackResults) -> Estimate:
        """Return the standard deviation, without an interval."""
        heads = results.heads(*self.column)
        return without_interval(float(np.nanstd(heads.value)), int(heads.sentences.max()))


@dataclass(frozen=True)
class HeadsAbove(OfColumn, Count):
    """The number of heads above a threshold."""

    threshold: float

    @property
    def how(self) -> str:
        """Description of the heads that are counted."""
        return f"number of heads above {OfColumn.written(self, self.threshold)}"

    def compute(self, results: StackResults) -> Estimate:
        """Return the number of heads, without an interval."""
        heads = results.heads(*self.column)
        return without_interval(
            float((heads.value > self.threshold).sum()), int(heads.sentences.max())
        )


@dataclass(frozen=True)
class AtOffset(OfColumn):
    """The accuracy of the best fixed offset for the column's relation, on the sample."""

    how = "best fixed offset, −5 to +5"

    def compute(self, results: StackResults) -> Estimate:
        """Return the accuracy, without an interval; NaN if the study kept no relations."""
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

    There is no interval and no p, because heads of one model are not independent.
    """

    how = "Pearson correlation over all heads"
    first: HeadKey
    second: HeadKey

    @property
    def columns(self) -> tuple[HeadKey, ...]:
        """The two correlated columns."""
        return self.first, self.second

    def compute(self, results: StackResults) -> Estimate:
        """Return the correlation; NaN if one of the two numbers does not vary."""
        numbers = [results.heads(*column) for column in self.columns]
        first, second = (estimates.value.ravel() for estimates in numbers)
        known = ~np.isnan(first + second)
        if known.sum() < 2 or not first[known].std() * second[known].std():
            return NO_ESTIMATE
        return without_interval(
            float(np.corrcoef(first[known], second[known])[0, 1]), int(numbers[0].sentences.max())
        )

    def written(self, value: float) -> str:
        """Return a correlation as text with two decimals, without a unit."""
        return number(value)


@dataclass(frozen=True)
class TagsAbove(Count):
    """The number of parts of speech for which some head lies above a multiple of the mean head."""

    metric: str
    view: SinkView
    times: float

    @property
    def columns(self) -> tuple[HeadKey, ...]:
        """The columns of all parts of speech."""
        return tuple(HeadKey(self.metric, self.view, tag) for tag in UPOS)

    @property
    def how(self) -> str:
        """Description of the tags that are counted."""
        return f"number of tags for which some head is above {self.times:g} times the mean head"

    def number(self, results: StackResults) -> Estimate:
        """Return the number of tags among the tags of the texts; NaN if the texts have none."""
        return (
            self.compute(results)
            if any(results.has_value(*column) for column in self.columns)
            else NO_ESTIMATE
        )

    def compute(self, results: StackResults) -> Estimate:
        """Return the number of tags, without an interval."""
        estimates = [
            results.heads(*column) for column in self.columns if results.has_value(*column)
        ]
        values = [numbers.value for numbers in estimates]
        count = sum(bool(np.nanmax(heads) > self.times * np.nanmean(heads)) for heads in values)
        return without_interval(float(count), int(estimates[0].sentences.max()))


EFFECT_NAMES = {  # numbers of ablated heads, in words
    EFFECT: "change of the true token's logit",
    DIRECT: "change of the true token's logit by the residual path alone",
    REPAIR: "self-repair over direct effect",
}


class AblationQuantity(Quantity):
    """A quantity computed from heads whose output was replaced by its mean."""

    share = False
    columns: ClassVar[tuple[HeadKey, ...]] = ()  # no metric is involved

    def written(self, value: float) -> str:
        """Return a value as a plain number."""
        return number(value)


@dataclass(frozen=True)
class AtReplaced(AblationQuantity):
    """A number of one ablated head, on the logit of the true token.

    Attributes:
        metric: name of the number, as in the table of importance.
        layer, head: place of the head, counted from 0.
        label: label of the number; empty for numbers over all tokens.
    """

    metric: str
    layer: int
    head: int
    label: str = ""

    @property
    def how(self) -> str:
        """Name of the number and of the head."""
        name = head_name(HeadName("self", self.layer, self.head))
        return f"{EFFECT_NAMES[self.metric]}, {name} replaced by its mean"

    def compute(self, results: StackResults) -> Estimate:
        """Return the head's number; NaN if the head was not replaced or has none."""
        rows = _logits(results, self.metric, self.label)
        rows = rows[(rows["layer"] == self.layer) & (rows["head"] == self.head)]
        if rows.empty:
            return NO_ESTIMATE
        row = rows.iloc[0]
        interval = float(row["value"]), float(row["low"]), float(row["high"])
        return Estimate(*interval, int(row["n_sentences"]), float(row["n_observations"]))

    def row(self, results: StackResults) -> TableRow:
        """Return the head's row in the table of importance."""
        head = HeadName(results.stack.name, self.layer, self.head)._asdict()
        keys = {"metric": self.metric, "replacement": str(Replacement.MEAN)}
        keys |= {"target": str(AblationTarget.LOGIT), "label": self.label}
        return "importance", (*head.items(), *keys.items())


@dataclass(frozen=True)
class RankReplaced(Count, AblationQuantity):
    """The rank of a head by how much the true token's logit falls without the head."""

    layer: int
    head: int

    @property
    def how(self) -> str:
        """Name of the ranked head and of the number that ranks it."""
        name = head_name(HeadName("self", self.layer, self.head))
        return f"rank of {name} by the {EFFECT_NAMES[EFFECT]}, largest fall first"

    def compute(self, results: StackResults) -> Estimate:
        """Return the rank, from 1; NaN if not all heads were replaced."""
        rows = _logits(results, EFFECT, "")
        effect = rows[(rows["layer"] == self.layer) & (rows["head"] == self.head)]["value"]
        stack = results.stack
        if len(rows) < len(stack.attention_layers) * stack.n_heads or effect.empty:
            return NO_ESTIMATE
        rank = float((rows["value"] < effect.iloc[0]).sum() + 1)
        return Estimate(rank, math.nan, math.nan, int(rows["n_sentences"].max()), math.nan)


@dataclass(frozen=True)
class RemovableShare(AblationQuantity):
    """The share of heads that can be removed together for at most 1 % of the loss.

    Attributes:
        order: order in which heads are removed, as in ``pruning.csv``.
    """

    order: str

    @property
    def how(self) -> str:
        """Order of removal and limit, in words."""
        return (
            f"share of heads that can be removed, {self.order.replace('_', ' ')} in ascending "
            "order, before the loss may rise by more than 1\u00a0%"
        )

    def written(self, value: float) -> str:
        """Return a share in per cent as text."""
        return number(value) if math.isnan(value) else percent(value)

    def compute(self, results: StackResults) -> Estimate:
        """Return the share; NaN if heads were not removed in that order."""
        ablation, steps = results.study.corpus_sums.ablation, results.study.pruning
        if ablation is None:
            return NO_ESTIMATE
        steps = steps[(steps["order"] == self.order) & (steps["target"] == ablation.targets[0])]
        if steps.empty:
            return NO_ESTIMATE
        shares, _ = effect_tests.removable_shares(ablation, steps)
        share = shares[self.order]
        return Estimate(share, math.nan, math.nan, int((ablation.half == 1).sum()), math.nan)


def _logits(results: StackResults, metric: str, label: str) -> pd.DataFrame:
    """Return a metric's rows on the logit of the true token, with heads replaced by their mean."""
    table = results.study.importance
    return table[
        (table["stack"] == results.stack.name)
        & (table["metric"] == metric)
        & (table["target"] == AblationTarget.LOGIT)
        & (table["replacement"] == Replacement.MEAN)
        & (table["label"] == label)
    ]
