"""Facts: what a study shows, as sentences and numbers that pages print, each rule in one function.

A function of this folder takes the results of a stack and returns a `Fact`. Its `evidence` are rows
of the table ``tests``; that table (`headbook.report.tables.tests_table`) is made of the evidence of
all facts, and of the rows that `headbook.report.facts.tested` makes for tables, charts and cards. A
number of the table is printed by `Tested.number`, so that a printed number without a row cannot be
made. Facts are cached: pages and table get the same object.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headbook.analysis.accumulators import NO_ESTIMATE, Estimate
from headbook.results.formats import p_text
from headbook.results.number import Number, RowAddress, Unit, difference
from headbook.results.sentence import NOTHING, Sentence
from headbook.schema import ALL, HeadName

P = Unit(digits=p_text)


@dataclass(frozen=True)
class Tested:
    """A number that pages claim: a row of the table ``tests``.

    Attributes:
        claim: what is claimed.
        stack, layer, head: what it is about; None for several layers or heads.
        metric, view, label: the number, or another name of one.
        split: sentences behind it.
        value: the number.
        baseline, baseline_value: what it is compared with.
        difference: value minus baseline; by default without an interval.
        p: NaN if it was not tested.
        subtracted: whether value minus baseline is a number of the table; it is none of ratios.
    """

    claim: str
    stack: str
    metric: str
    view: str
    label: str
    value: Estimate
    layer: int | None = None
    head: int | None = None
    split: str = ALL
    baseline: str = ""
    baseline_value: float = math.nan
    difference: Estimate = NO_ESTIMATE
    p: float = math.nan
    subtracted: bool = True

    @property
    def columns(self) -> Mapping[str, Any]:
        """The row of the table, by column."""
        gap = self.difference
        if self.subtracted and math.isnan(gap.value):
            gap = gap._replace(value=self.value.value - self.baseline_value)
        sample = self.value if self.value.sentences else gap
        return {
            "claim": self.claim, "stack": self.stack, "layer": self.layer, "head": self.head,
            "metric": self.metric, "view": str(self.view), "label": str(self.label),
            "split": self.split,
            "value": self.value.value, "low": self.value.low, "high": self.value.high,
            "baseline": self.baseline, "baseline_value": self.baseline_value,
            "difference": gap.value, "difference_low": gap.low, "difference_high": gap.high,
            "p": self.p,
            "n_sentences": sample.sentences, "n_observations": sample.events,
        }  # fmt: skip

    @property
    def row(self) -> RowAddress:
        """Table, and columns that identify the row."""
        names = ("claim", "stack", "layer", "head", "metric", "view", "label", "split")
        known = ((name, getattr(self, name)) for name in names)
        key = ((name, str(x) if isinstance(x, str) else x) for name, x in known if x is not None)
        return RowAddress("tests", tuple(key))

    def number(self, unit: Unit) -> Number:
        """Return the value as pages print it."""
        return Number.of(self.value, unit, self.row)

    def baseline_number(self, unit: Unit) -> Number:
        """Return the value of the baseline as pages print it, without an interval."""
        return Number(self.baseline_value, unit, self.row)

    def change(self, *, share: bool, unit: str = "") -> Number:
        """Return value minus baseline with its sign; of shares in points.

        Args:
            share: whether the values are shares.
            unit: name of the unit, with the space before it.
        """
        value, low, high, sentences = self.difference[:4]
        number = difference(value, low, high, self.row, share=share, sentences=sentences)
        return replace(number, unit=replace(number.unit, name=number.unit.name or unit))

    @property
    def p_number(self) -> Number:
        """The p as pages print it."""
        return Number(self.p, P, self.row)

    def over_baseline(self, unit: Unit) -> Number:
        """Return the value as a multiple of the baseline, which is taken as given."""
        value, low, high = (part / self.baseline_value for part in self.value[:3])
        return replace(self.number(unit), value=value, low=low, high=high)


@dataclass(frozen=True)
class Fact:
    """A sentence that a study supports, with the numbers behind it.

    Attributes:
        id: name of the fact.
        text: one sentence; nothing if pages print its numbers as a table.
        evidence: rows of the table ``tests`` that it rests on.
        heads: heads that it names, the first one first.
        holds: whether the numbers support what the fact is about, by its rule.
    """

    id: str
    text: Sentence = NOTHING
    evidence: tuple[Tested, ...] = ()
    heads: tuple[HeadName, ...] = ()
    holds: bool = True
