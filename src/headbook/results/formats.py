"""Values and names of heads as text: few digits, per cent, intervals."""

import math
from collections.abc import Sequence

from headbook.metrics import all_metrics
from headbook.metrics.base import LayerMetric, LayerPairMetric, PairMetric
from headbook.schema import HeadName

MISSING = "–"
THIN = "\u202f"  # narrow no-break space


def number(value: float, *, share: bool = False, like: float | None = None) -> str:
    """Return a value in few digits; no value but 0 is printed as 0, and none but 1 as 100 %.

    Args:
        share: whether to print a share in per cent.
        like: another value whose number of decimals is used.
    """
    if math.isnan(value):
        return MISSING
    if share:
        return percent(value)
    if 0 < abs(value) < 0.005:
        return f"<{THIN}0.01" if value > 0 else f">{THIN}−0.01"
    size = abs(value if like is None or math.isnan(like) else like)
    digits = 2 if size < 9.995 else 1 if size < 99.95 else 0
    return f"{value + 0.0:,.{digits}f}".replace("-", "−")  # + 0.0: no minus before 0


def percent(value: float) -> str:
    """Return a share in per cent, with one decimal."""
    return f"{in_hundred(value)}{THIN}%"


def whole_percent(value: float) -> str:
    """Return a share in whole per cent; only 0 is printed as 0 %, and only 1 as 100 %."""
    if math.isnan(value):
        return MISSING
    if 0 < value < 0.005:
        return f"<{THIN}1{THIN}%"
    if 0.995 <= value < 1:
        return f">{THIN}99{THIN}%"
    return f"{100 * value + 0.0:.0f}{THIN}%".replace("-", "−")


def in_hundred(value: float) -> str:
    """Return a share in per cent with one decimal, without the per cent sign."""
    if 0 < value < 0.0005:
        return f"<{THIN}0.1"
    if -0.0005 < value < 0:
        return f">{THIN}−0.1"
    if 0.9995 <= value < 1:
        return f">{THIN}99.9"
    return f"{100 * value + 0.0:.1f}".replace("-", "−")


def interval_text(low: float, high: float, *, share: bool = False) -> str:
    """Return a confidence interval that follows a value with its unit; empty without one."""
    if math.isnan(low) or math.isnan(high):
        return ""
    if share:
        return f"[{in_hundred(low)}, {in_hundred(high)}]"
    return f"[{number(low, like=high)}, {number(high)}]"


def head_name(head: HeadName) -> str:
    """Return the name of a head, ``L4·H11``, with the stack if the model has several."""
    prefix = "" if head.stack == "self" else f"{head.stack} "
    return f"{prefix}L{head.layer}·H{head.head}"


def head_page(head: HeadName) -> str:
    """Return the address of a head's page, from the root of the site."""
    return f"heads/{head_file(head)}.html"


def head_file(head: HeadName) -> str:
    """Return the name of a head's page and data files, without suffix."""
    prefix = "" if head.stack == "self" else f"{head.stack}-"
    return f"{prefix}L{head.layer:02d}-H{head.head:02d}"


def signed(value: float) -> str:
    """Return an offset or a whole difference as text, with its sign."""
    return f"{value:+d}".replace("-", "−") if value else "0"


def metric_page(name: str) -> str:
    """Return the address of the page that shows a metric, and of a variant's place on it."""
    metric = all_metrics()[name]
    if isinstance(metric, PairMetric):
        return "similar.html"
    if isinstance(metric, LayerMetric | LayerPairMetric):
        return "geometry.html"
    variant_of = metric.variant_of
    return f"metrics/{variant_of}.html#{name}" if variant_of else f"metrics/{name}.html"


def word_list(words: Sequence[str]) -> str:
    """Return words as a list in a sentence: ``a``, ``a and b``, ``a, b and c``."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def p_text(p: float) -> str:
    """Return a p with three decimals, or ``< 0.001``."""
    if math.isnan(p):
        return MISSING
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
