"""Numbers of one head that decide its function, beside what uniform attention gives.

Shares are taken among ordinary keys: the sink is masked and rows are renormalised. Among all keys
each share of a head that gives most of its attention to the sink is small, whatever the head
prefers of the rest. A share that decides is corrected for chance, (share − u) / (1 − u), where u is
the share of uniform attention over the same keys: 0 for uniform attention at any length.
"""

import math
from typing import NamedTuple

from headbook.metrics import ids
from headbook.metrics.patterns.type_shares import EVEN, ONE_OFFSET, PARTS, REACH, WITHIN
from headbook.report.results import StackResults
from headbook.report.thresholds import (
    HALF,
    MIN_OFF_UNIFORM,
    MIN_QUERIES,
    MIN_SENTENCES,
    Threshold,
)
from headbook.results.number import Number
from headbook.schema import HeadKey, HeadName, SinkView

METRIC, RENORM = ids.TYPE_SHARES, SinkView.RENORM
SINK = HeadKey(ids.SINK_SHARE, SinkView.RAW, "")
ENTROPY = HeadKey(ids.RELATIVE_ENTROPY, RENORM, "")
PUNCTUATION = HeadKey(ids.POS_RECEIVED, RENORM, "PUNCT")
SAME_TOKEN = HeadKey(METRIC, RENORM, "same_token")
NEARBY = HeadKey(METRIC, RENORM, WITHIN)
INDUCTION = HeadKey(ids.INDUCTION_SCORE, SinkView.RAW, "")
DUPLICATE = HeadKey(ids.DUPLICATE_SCORE, SinkView.RAW, "")
OWN_SENTENCE = HeadKey(METRIC, RENORM, "own_sentence")
LABEL_OF_OFFSET = {offset: label for label, offset in ONE_OFFSET.items()} | {
    offset: str(offset) for offset in range(-REACH, REACH + 1) if abs(offset) > 1
}
ROUNDING = 1e-9  # of corrected shares and entropies
MAX_PARTS = 2  # shares that the sentence of a mixed head names


class ShareOverEven(NamedTuple):
    """A share of a head's attention beside the share that uniform attention gives.

    Attributes:
        number: share of the head.
        even: share of uniform attention over the keys that remain.
    """

    number: Number
    even: Number

    @property
    def corrected(self) -> float:
        """Share corrected for chance; NaN if uniform attention gives nearly all."""
        off_uniform = 1 - self.even.value
        if not off_uniform >= MIN_OFF_UNIFORM.value:
            return math.nan
        return (self.number.value - self.even.value) / off_uniform

    def least(self, threshold: Threshold = HALF) -> float:
        """Return the share whose corrected share is a threshold; NaN if none can be."""
        off_uniform = 1 - self.even.value
        if not off_uniform >= MIN_OFF_UNIFORM.value:
            return math.nan
        return self.even.value + threshold.value * off_uniform

    def least_by_odds(self, threshold: Threshold) -> float:
        """Return the share whose odds are a multiple of those of uniform attention, or NaN."""
        even = self.even.value
        if not 0 < even < 1:
            return math.nan
        return threshold.value * even / (1 - even + threshold.value * even)


def counts(number: Number) -> bool:
    """Check whether enough sentences and query tokens stand behind a number."""
    has_queries = number.observations >= MIN_QUERIES.value
    return bool(number.sentences >= MIN_SENTENCES.value and has_queries)


def reaches(number: Number, least: float) -> bool:
    """Check whether the lower end of a number that counts reaches a value."""
    return counts(number) and number.low >= least


def number_of(results: StackResults, key: HeadKey, head: HeadName) -> Number | None:
    """Return a number of a head; None if it was not measured."""
    if not results.has_value(*key):
        return None
    number = results.number(key, head.layer, head.head)
    return number if number.known else None


def share_of(results: StackResults, key: HeadKey, head: HeadName) -> ShareOverEven | None:
    """Return a share of a head beside that of uniform attention; None if it was not measured."""
    number = number_of(results, key, head)
    if number is None:
        return None
    if key.metric == METRIC:  # uniform attention of the very queries of this head
        even = key._replace(label=EVEN[key.label])
        return ShareOverEven(number, results.number(even, head.layer, head.head))
    return ShareOverEven(number, results.uniform_number(key, head.layer))


def best_offset(results: StackResults, head: HeadName) -> tuple[int, ShareOverEven] | None:
    """Return the offset of the largest corrected share, or None without any."""
    shares = (
        (offset, share_of(results, HeadKey(METRIC, RENORM, label), head))
        for offset, label in LABEL_OF_OFFSET.items()
    )
    known = [(o, share) for o, share in shares if share and not math.isnan(share.corrected)]
    return max(known, key=lambda named: named[1].corrected, default=None)


def is_uneven(results: StackResults, head: HeadName) -> bool:
    """Check whether half of the attention is on the same token, at one offset, or the like."""
    shares = [share_of(results, key, head) for key in (SAME_TOKEN, PUNCTUATION, NEARBY)]
    offset = best_offset(results, head)
    shares += [offset[1]] if offset else []
    return any(s and counts(s.number) and s.corrected >= HALF.value for s in shares)


def largest_parts(results: StackResults, head: HeadName) -> list[tuple[str, ShareOverEven]]:
    """Return the shares furthest above uniform attention, of the parts that sum to 1."""
    shares = ((part, share_of(results, HeadKey(METRIC, RENORM, part), head)) for part in PARTS)
    above = [(part, share) for part, share in shares if share and share.corrected > ROUNDING]
    return sorted(above, key=lambda named: -named[1].corrected)[:MAX_PARTS]
