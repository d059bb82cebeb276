"""A share as a dot with its interval and its baseline, as wide as its place on the page."""

import math

MARGIN = 2.0  # per cent at either end
TICK = 'width="2" height="16"'


def interval_dot(value: float, low: float, high: float, baseline: float, *, supported: bool) -> str:
    """A dot between 0 and 1, places in per cent of the width, so that the dot stays round.

    Heights that SVG does not ask for stand in the style of pages, and the axis, too.

    Args:
        low, high, baseline: NaN where there is none.
        supported: else hollow, the interval dashed.
    """
    kind = "dot" if supported else "dot weak"
    parts = "" if math.isnan(baseline) else f'<rect x="{_at(baseline)}" {TICK}/>'
    if not math.isnan(low):
        parts += f'<line x1="{_at(low)}" x2="{_at(high)}"/>'
    return (
        f'<svg class="{kind}" aria-hidden="true">{parts}<circle cx="{_at(value)}" r="4.5"/></svg>'
    )


def _at(value: float) -> str:
    return f"{MARGIN + (100 - 2 * MARGIN) * min(max(value, 0.0), 1.0):.1f}%"
