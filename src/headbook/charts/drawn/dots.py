"""A share as a dot with its interval and its baseline, as wide as its place on the page."""

import math

HEIGHT = 18
MARGIN = 2.0  # per cent at either end


def interval_dot(value: float, low: float, high: float, baseline: float, *, supported: bool) -> str:
    """A dot between 0 and 1, places in per cent of the width, so that the dot stays round.

    Args:
        low, high, baseline: NaN where there is none.
        supported: else hollow, the interval dashed.
    """
    kind = "dot" if supported else "dot weak"
    parts = [_line("axis", 0, 1, HEIGHT / 2, HEIGHT / 2)]
    if not math.isnan(baseline):
        parts.append(_line("base", baseline, baseline, 1, HEIGHT - 1))
    if not math.isnan(low):
        parts.append(_line("ends", low, high, HEIGHT / 2, HEIGHT / 2))
    parts.append(f'<circle cx="{_at(value)}" cy="{HEIGHT // 2}" r="4.5"/>')
    return f'<svg class="{kind}" aria-hidden="true">{"".join(parts)}</svg>'


def _line(kind: str, start: float, end: float, top: float, bottom: float) -> str:
    return (
        f'<line class="{kind}" x1="{_at(start)}" x2="{_at(end)}" y1="{top:.0f}" y2="{bottom:.0f}"/>'
    )


def _at(value: float) -> str:
    return f"{MARGIN + (100 - 2 * MARGIN) * min(max(value, 0.0), 1.0):.1f}%"
