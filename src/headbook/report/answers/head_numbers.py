"""Parts of the sentences on heads: a head's numbers, their rows in tables, and their wording."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from headbook.analysis.accumulators import NO_ESTIMATE, Estimate
from headbook.report.findings.finding import Part, Parts
from headbook.report.head_types import HeadType
from headbook.report.linked_rows import LinkedNumber
from headbook.report.results import StackResults, share_of_head
from headbook.report.wording import count_text, estimate, point_estimate
from headbook.results.formats import number, percent, whole_percent
from headbook.schema import HeadKey, HeadName

CLAIM = "role of a head"  # claim of its rows in the table ``tests``
MEAN_HEAD, UNIFORM = "mean of all heads", "uniform attention"


class Evidence(NamedTuple):
    """A number behind a sentence, beside a baseline.

    Attributes:
        value: the number with its interval.
        column: metric, view and label.
        baseline: name of the baseline; empty without one.
        baseline_value: the baseline's number.
        difference: value minus baseline, where it was tested.
        p: family-wise p-value; NaN without a test.
    """

    value: Estimate
    column: HeadKey
    baseline: str = ""
    baseline_value: float = math.nan
    difference: Estimate = NO_ESTIMATE
    p: float = math.nan


@dataclass(frozen=True)
class RoleSentence:
    """A sentence on what a head does.

    Attributes:
        kind: the rule that gave the sentence.
        text: the sentence, without its subject.
        line: the evidence in one line with at most three numbers.
        details: intervals, baselines and tests, a sentence each.
        evidence: the numbers, as rows of the table ``tests``.
    """

    kind: str
    text: Parts
    line: Parts = ()
    details: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()

    @property
    def plain(self) -> str:
        """The sentence without links."""
        return "".join(part if isinstance(part, str) else part.text for part in self.text)


@dataclass(frozen=True)
class HeadNumbers:
    """Numbers of one head by name.

    Attributes:
        results: results of the head's stack.
        head: the head.
        type: type of the head; None if it was not measured.
        sink: the stack's sink tokens in words.
    """

    results: StackResults
    head: HeadName
    type: HeadType | None
    sink: str

    def __call__(self, column: HeadKey) -> Estimate:
        """Return a number of the head; NaN if it was not measured."""
        return share_of_head(self.results, *column, (self.head.layer, self.head.head))

    def mean(self, column: HeadKey) -> float:
        """Return the mean of a number over all heads of the stack; NaN if it was not measured."""
        if not self.results.has_value(*column):
            return math.nan
        return float(np.nanmean(self.results.heads(*column).value))

    def even(self, column: HeadKey) -> float:
        """Return a number of uniform attention in the head's layer; NaN if it is not known."""
        if not self.results.has_value(*column):
            return math.nan
        return float(self.results.uniform(*column).value[self.head.layer])

    def cell(self, found: Evidence, *, baseline: bool = False, share: bool = True) -> Part:
        """Return a number of the evidence, or its baseline, that leads to its row."""
        value = found.baseline_value if baseline else found.value.value
        text = whole_percent(value) if share else number(value)
        return evidence_number(self.head, found, text)

    @property
    def off_sink(self) -> str:
        """End of a sentence about a share of the attention outside the sink."""
        return f"of its attention off {self.sink}"


def evidence_number(head: HeadName, found: Evidence, text: str) -> LinkedNumber:
    """Return a number of a head's sentence that leads to its row."""
    row = (
        ("claim", CLAIM), ("stack", head.stack), ("layer", head.layer), ("head", head.head),
        ("metric", found.column.metric), ("label", found.column.label),
        ("baseline", found.baseline),
    )  # fmt: skip
    return LinkedNumber(text, "tests", row)


def share_detail(found: Evidence, what: str) -> str:
    """Return a share with its interval and its baseline as a sentence."""
    behind = count_text(found.value.sentences, "sentence")
    baseline = "" if math.isnan(found.baseline_value) else (
        f"; {found.baseline}: {percent(found.baseline_value)}"
    )  # fmt: skip
    return f"{estimate(found.value)} {what} ({behind}){baseline}."


def against_mean(numbers: HeadNumbers, share: Evidence) -> Parts:
    """Return a share outside the sink beside that of the mean of all heads."""
    return (
        numbers.cell(share), f" {numbers.off_sink}; mean of all heads: ",
        numbers.cell(share, baseline=True), ".",
    )  # fmt: skip


def tested_detail(found: Evidence, p: str) -> str:
    """Return a tested share with its margin over the baseline as a sentence."""
    cases = count_text(round(found.value.events), "case")
    return (
        f"{estimate(found.value)} of {cases} in {count_text(found.value.sentences, 'sentence')}; "
        f"{found.baseline}: {percent(found.baseline_value)}; difference "
        f"{point_estimate(found.difference)}, {p}. Chosen on one half of the sentences, measured "
        "on the other."
    )
