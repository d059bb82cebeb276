"""Small divergences in two digits that count."""

import math

from headbook.report.wording import MISSING, THIN

LEAST = 1e-4  # nats; smaller ones are not told apart


def nats(value: float) -> str:
    """A divergence: two digits behind the point, or two that count."""
    if math.isnan(value):
        return MISSING
    if value == 0:
        return "0"
    if value < LEAST:
        return f"<{THIN}{LEAST:.4f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def nats_interval(low: float, high: float) -> str:
    """Its interval; empty where there is none."""
    return "" if math.isnan(low) or math.isnan(high) else f"[{nats(low)}, {nats(high)}]"
