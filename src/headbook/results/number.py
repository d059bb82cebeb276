"""Numbers that know their unit, their interval and the row of the table that holds them.

A page prints no other numbers than these and whole counts, so that every printed estimate leads to
its row. A number is written by a format: ``share.as_text()`` gives ``12.3 %``,
``share.as_text("interval")`` gives ``12.3 % [11.0, 13.5]``; `FORMATS` has all of them.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from headbook.analysis.accumulators import Estimate
from headbook.analysis.intervals import MIN_EFFECTIVE
from headbook.metrics.base import LayerwiseMetric, Metric
from headbook.results.formats import (
    MISSING,
    THIN,
    in_hundred,
    interval_text,
    number,
    whole_percent,
)
from headbook.study.tables import RowKey


class RowAddress(NamedTuple):
    """A row of one of the site's tables: the table's name, and what identifies the row."""

    table: str
    key: RowKey


@dataclass(frozen=True)
class Unit:
    """Rules by which numbers of one kind are written.

    Attributes:
        name: what follows a value, with the space before it: `` nats``, ``×``; empty for none.
        digits: writes a value without its unit.
        factor: factor from values of the tables to written ones.
    """

    name: str = ""
    digits: Callable[[float], str] = number
    factor: float = 1.0

    @property
    def drawn_factor(self) -> float:
        """Factor from values of the tables to those of an axis: shares are drawn in per cent."""
        return 100.0 if self.digits is in_hundred else self.factor

    @property
    def without_name(self) -> "Unit":
        """The unit without its name, for columns whose title has it."""
        return replace(self, name="")

    def text(self, value: float) -> str:
        """Return a value with its unit."""
        return MISSING if math.isnan(value) else self.digits(value * self.factor) + self.name

    def ends(self, low: float, high: float) -> str:
        """Return an interval that follows a value; empty if an end is unknown."""
        if math.isnan(low) or math.isnan(high):
            return ""
        if self.digits is number:  # both ends in as many digits
            return interval_text(low * self.factor, high * self.factor)
        return f"[{self.digits(low * self.factor)}, {self.digits(high * self.factor)}]"


def thousandths(value: float) -> str:
    """Return a value in three decimals; a value above 0 is never written as 0."""
    return f"<{THIN}0.001" if 0 < value < 0.0005 else f"{value:.3f}"


def short_number(value: float) -> str:
    """Return a number in two or three digits, for cells: ``0.35``, ``2.1``, ``253``."""
    if not abs(value) >= 0.995:
        return number(value)
    return number(value, like=10.0 if abs(value) < 9.95 else 100.0)


def tenths(value: float) -> str:
    """Return a value in one decimal."""
    return f"{value:.1f}"


PLAIN = Unit()
RATIO = Unit(digits=tenths)  # of two effects: more digits would only follow the sample
SHARE = Unit(f"{THIN}%", in_hundred)
TIMES = Unit("×")
NATS = Unit(" nats", thousandths)


COSINE = "cosine"  # what a metric measures where it has no unit


def unit_of(metric: Metric) -> Unit:
    """Return the unit of a metric."""
    if metric.is_share:
        return SHARE
    return PLAIN if metric.unit in {"", COSINE} else Unit(f" {metric.unit}")


class FewSentences(NamedTuple):
    """Few sentences that hold more than a third of a number's numerator.

    Attributes:
        sentences: how many sentences.
        share: share of the numerator that they hold.
        without: the number without them.
    """

    sentences: int
    share: float
    without: float


def averaged_unit(metric: LayerwiseMetric) -> Unit:
    """Return the unit of averages of a metric over tokens."""
    averaged = metric.averaged.unit
    return Unit(f" {averaged}") if averaged else unit_of(metric)


@dataclass(frozen=True, slots=True)
class Number:
    """An estimate with its unit and the row that holds it; NaN where a part is unknown.

    Attributes:
        value, low, high: the estimate and the ends of its 95 % interval, as in the table.
        unit: how it is written.
        row: row of the table that holds it.
        sentences, observations: what it rests on.
        effective: effective number of sentences.
        sign: ``≤`` for an upper bound, ``≈`` for an estimate by another method; else empty.
        few: the few sentences that decide the number; None if none do.
    """

    value: float
    unit: Unit
    row: RowAddress
    low: float = math.nan
    high: float = math.nan
    sentences: int = 0
    observations: float = math.nan
    effective: float = math.nan
    sign: str = ""
    few: FewSentences | None = None

    @classmethod
    def of(cls, estimate: Estimate, unit: Unit, row: RowAddress) -> "Number":
        """Return an estimate as a number."""
        value, low, high, sentences, events, effective = estimate
        return cls(value, unit, row, low, high, sentences, events, effective)

    def place(self, column: str) -> int:
        """Return the number in a column of its row: ``layer`` or ``head``."""
        return int(dict(self.row.key)[column])

    @property
    def known(self) -> bool:
        """Whether there is a value."""
        return not math.isnan(self.value)

    @property
    def drawn(self) -> float:
        """The value on an axis with the name of its unit."""
        return self.value * self.unit.drawn_factor

    @property
    def is_thin(self) -> bool:
        """Whether there are too few sentences to trust the value."""
        return self.known and self.effective < MIN_EFFECTIVE

    @property
    def basis(self) -> str:
        """Numbers of sentences and observations, in words."""
        thin = "too few sentences: " if self.is_thin else ""
        note = f"; {self.few_note}" if self.few else ""
        return f"{thin}{self.sentences:,} sentences, {self.observations:,.0f} observations{note}"

    @property
    def few_note(self) -> str:
        """Words on the few sentences that decide the number; empty if none do."""
        if self.few is None:
            return ""
        verb = "sentence holds" if self.few.sentences == 1 else "sentences hold"
        return (
            f"{self.few.sentences:,} {verb} {whole_percent(self.few.share)} of it; without: "
            f"{self.unit.text(self.few.without)}"
        )

    @property
    def bare(self) -> "Number":
        """The number without the name of its unit, for columns whose title has it."""
        return replace(self, unit=self.unit.without_name)

    def printed(self, format_name: str) -> "Printed":
        """Return the number in a format, for a cell of a table."""
        return Printed(self, format_name)

    def as_text(self, format_name: str = "") -> str:
        """Return the number as text: ``""`` with its unit, or one of `FORMATS`, or ``.1f``."""
        if not self.known:
            return MISSING
        if format_name.startswith("."):
            text = format(self.value * self.unit.factor, f"z{format_name}").replace("-", "−")
        else:
            text = FORMATS[format_name](self)
        return f"{self.sign}{THIN}{text}" if self.sign and format_name != "ends" else text


class Printed(NamedTuple):
    """A number in one of its formats."""

    number: Number
    format_name: str = ""

    @property
    def text(self) -> str:
        """The number as text."""
        return self.number.as_text(self.format_name)


def _with_interval(number_: Number) -> str:
    return f"{number_.as_text()} {number_.as_text('ends')}".strip()


FORMATS: Mapping[str, Callable[[Number], str]] = {
    "": lambda n: n.unit.text(n.value),
    "bare": lambda n: n.unit.digits(n.value * n.unit.factor),
    "short": lambda n: short_number(n.value * n.unit.factor) + n.unit.name,
    "bare short": lambda n: short_number(n.value * n.unit.factor),
    "ends": lambda n: n.unit.ends(n.low, n.high),
    "interval": _with_interval,
    "whole": lambda n: whole_percent(n.value),
    "times": lambda n: f"{number(n.value)} times",
}


MOST_DIGITS = 6  # decimals of a difference


def difference(
    value: float, low: float, high: float, row: RowAddress, *, share: bool, sentences: int
) -> Number:
    """Return a difference of two numbers, with its sign; differences of shares are in points.

    The interval has two significant digits, and a value other than 0 at least one.
    """
    factor = 100.0 if share else 1.0
    places = [1 - _power(factor * (high - low) / 2), -_power(factor * value)]
    decimals = min(max(0, *places), MOST_DIGITS)
    unit = Unit(" points" * share, lambda each: _signed(each, decimals), factor)
    return Number(value, unit, row, low, high, sentences)


def _power(size: float) -> int:
    """Return the power of ten of a number's first digit; 0 for 0 and for NaN."""
    return math.floor(math.log10(abs(size))) if size and not math.isnan(size) else 0


def _signed(value: float, decimals: int) -> str:
    """Return a value with its sign; one that is not 0 is never written as 0."""
    text = f"{abs(value):,.{decimals}f}"
    if value and float(text.replace(",", "")) == 0:
        text = f"<{THIN}{10.0**-decimals:.{decimals}f}"
    return f"{'−' if value < 0 else '+' if value > 0 else ''}{text}"
