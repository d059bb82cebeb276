"""How well both models predict the same texts, in one sentence."""

import numpy as np

from headbook.comparison.comparison import Comparison
from headbook.report.wording import counted, interval, number


def losses_text(comparison: Comparison) -> str:
    """Loss of both by character; empty where one of them predicts no text."""
    found = comparison.losses
    if found is None or np.isnan(found.bits.value).any():
        return ""
    names = comparison.sides.names
    a, b, gap, low, high = (
        float(np.ravel(part)[0])
        for part in (
            found.bits.a, found.bits.b, found.bits.value, found.bits.low, found.bits.high,
        )
    )  # fmt: skip
    begin = (
        f"Loss of the next token: {number(a)} bits per character in {names[0]}, {number(b)} in "
        f"{names[1]}"
    )
    behind = f"({counted(found.sentences, 'sentence')})"
    if gap == 0:
        return f"{begin}, exactly equal {behind}."
    ends = interval(low, high)
    signed = ("+" if gap > 0 else "") + number(gap)
    return f"{begin}, a difference of {signed}{f' {ends}' if ends else ''} {behind}."
