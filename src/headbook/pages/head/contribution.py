"""What a head adds to its layer, and what of that comes from the sink, for its page."""

import math
from collections.abc import Iterator

from headbook.metrics import ids
from headbook.pages.parts.measured import Measured, measured
from headbook.report.numbers.results import Estimate, StackResults
from headbook.report.numbers.roles import sink_words
from headbook.report.numbers.typeshares import share
from headbook.report.wording import percent
from headbook.study.sentencedata import HeadName
from headbook.terms import View

OUTPUT, GIVEN, BROUGHT = ids.OUTPUT_NORM_SHARE, ids.SINK_SHARE, ids.SINK_NORM_SHARE


def contributions(results: StackResults, head: HeadName) -> Iterator[Measured]:
    """Shares of the output norm beside what equal parts would be, and beside attention."""
    cell = head.layer, head.head
    whole, given, brought = (
        share(results, x, View.RAW, "", cell) for x in (OUTPUT, GIVEN, BROUGHT)
    )
    if not math.isnan(whole.value):
        equal, layer = 1 / results.stack.n_heads, f"the output norm of layer {head.layer}"
        yield _beside(f"share of {layer}", f"equal shares: {percent(equal)}", whole, equal)
    if math.isnan(given.value):
        return
    even = results.uniform(GIVEN, View.RAW).at(head.layer).value
    what = sink_words(results)
    yield _beside(f"attention to {what}", f"uniform attention: {percent(even)}", given, even)
    if not math.isnan(brought.value):
        yield measured(
            f"share of its own output norm from {what} (‖αvW_O‖)",
            f"their share of its attention: {percent(given.value)}",
            brought,
            given.value,
            supported=brought.high < given.low or brought.low > given.high,
        )


def _beside(text: str, baseline: str, value: Estimate, other: float) -> Measured:
    """A share beside a baseline without an interval, which its own should leave out."""
    supported = value.low > other or value.high < other
    return measured(text, baseline, value, other, supported=supported)
