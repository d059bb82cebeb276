"""One word for what a head's maps look like, from its spread, residuals and block ratio."""

from dataclasses import dataclass
from enum import StrEnum
from math import isnan, nan


class Label(StrEnum):
    """What a head's maps look like, in a word."""

    VERTICAL = "vertical"
    DIAGONAL = "diagonal"
    WINDOW = "window"
    BLOCK = "block"
    BROAD = "broad"
    CONTENT = "content"


@dataclass(frozen=True)
class Thresholds:
    """Where one label ends and the next begins; examples are for full attention to 24 keys.

    Attributes:
        residual: up to here columns or offsets explain a head. Maps with one target per query
            leave 0 to 0.01 if their targets follow columns or offsets, half sink and half
            previous token at least 0.25, random targets over 0.6, and even attention within two
            halves 0.22 in the columns.
        lead: offsets must leave this much less than columns. Uniform attention leaves 0 in
            both, noise (weights e^N(0, 1)) about 0.12 in both.
        spread: from here the spread is high. Even attention to seven keys has 0.61, to five
            0.51; 70 % on one key and the rest even has 0.49 and still is a line.
        block: mass inside the own segment over what even attention would put there, at least.
            Two equal segments allow 2 at most, so that only a pure block head reaches it there.
    """

    residual: float = 0.2
    lead: float = 0.02
    spread: float = 0.6
    block: float = 2.0


DEFAULT = Thresholds()


def classify(
    spread: float,
    column: float,
    offset: float,
    block: float = nan,
    limits: Thresholds = DEFAULT,
) -> Label | None:
    """The label of a head from its mean spread and residuals and its block ratio.

    The first that holds: offsets explain it better than columns: *diagonal*, or *window* if the
    spread is high; columns explain it: *vertical*, or *broad* if the spread is high; it keeps
    to its segment: *block*; otherwise *content*. Only *broad* yields to *block*, since even
    attention within segments looks broad, the more so the longer the text.

    A missing number (NaN) satisfies no condition: without a block ratio nothing is a block,
    without an offset residual nothing a diagonal. None without spread or column residual.
    """
    if isnan(spread) or isnan(column):
        return None
    high = spread >= limits.spread
    if offset <= limits.residual and offset <= column - limits.lead:
        return Label.WINDOW if high else Label.DIAGONAL
    if column <= limits.residual and not high:
        return Label.VERTICAL
    if block >= limits.block * (1 - 1e-9):  # a ratio of sums may fall short by rounding
        return Label.BLOCK
    return Label.BROAD if column <= limits.residual else Label.CONTENT
