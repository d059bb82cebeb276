"""The columns of the table of tests, and one of its rows."""

import math
from collections.abc import Mapping
from typing import Any

from headbook.analysis.accumulators import CHOICE, REPORT
from headbook.report.numbers.results import NO_ESTIMATE, Estimate

COLUMNS = (
    "claim", "stack", "layer", "head", "metric", "view", "label", "split", "value", "low", "high",
    "baseline", "baseline_value", "difference", "difference_low", "difference_high", "p",
    "n_sentences", "n_observations",
)  # fmt: skip
ALL, HELD_OUT = "all", "held_out"
SPLITS = {CHOICE: "choice", REPORT: HELD_OUT}
UNIFORM = "uniform attention"
Row = Mapping[str, Any]


def row(
    claim: str,
    stack: str,
    column: tuple[str, str, str],
    *,
    layer: int | None = None,
    head: int | None = None,
    split: str = ALL,
    value: Estimate = NO_ESTIMATE,
    baseline: str = "",
    baseline_value: float = math.nan,
    difference: Estimate = NO_ESTIMATE,
    p: float = math.nan,
) -> Row:
    """Return a row of the table, by column.

    Args:
        column: metric, view and label.
        layer: None for a number of several layers.
        head: None for a number of several heads.
        baseline_value: NaN without a baseline.
        difference: by default value minus baseline, without an interval.
    """
    if math.isnan(difference.value):
        difference = difference._replace(value=value.value - baseline_value)
    behind = value if value.sentences else difference
    numbers = (
        claim, stack, layer, head, *map(str, column), split, *value[:3], baseline, baseline_value,
        *difference[:3], p, behind.sentences, behind.events,
    )  # fmt: skip
    return dict(zip(COLUMNS, numbers, strict=True))


def without_interval(value: float, sentences: int, events: float) -> Estimate:
    """Return a value without an interval."""
    return Estimate(value, math.nan, math.nan, sentences, events)
