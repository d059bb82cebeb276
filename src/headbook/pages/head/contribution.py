"""What a head adds to its layer, and what of that comes from the sink, for its page."""

import math
from collections.abc import Iterator

from headbook.metrics import ids
from headbook.pages.parts.measured import Measured, measured
from headbook.report.numbers.results import StackResults
from headbook.report.numbers.roles import sink_words
from headbook.report.numbers.typeshares import share
from headbook.report.wording import percent
from headbook.study.sentencedata import HeadName
from headbook.terms import View

OUTPUT, GIVEN, BROUGHT = ids.OUTPUT_NORM_SHARE, ids.SINK_SHARE, ids.SINK_NORM_SHARE


def contributions(results: StackResults, head: HeadName) -> tuple[Measured, ...]:
    """Shares of the output norm beside what equal parts would be, and beside attention."""
    return tuple(_made(results, head))


def _made(results: StackResults, head: HeadName) -> Iterator[Measured]:
    cell = head.layer, head.head
    whole = share(results, OUTPUT, View.RAW, "", cell)
    if not math.isnan(whole.value):
        equal = 1 / results.stack.n_heads
        yield measured(
            f"share of the output norm of layer {head.layer}",
            f"equal shares: {percent(equal)}",
            whole,
            equal,
            supported=whole.low > equal or whole.high < equal,
        )
    given = share(results, GIVEN, View.RAW, "", cell)
    if math.isnan(given.value):
        return
    even = results.uniform(GIVEN, View.RAW).at(head.layer).value
    what = sink_words(results)
    yield measured(
        f"attention to {what}",
        f"uniform attention: {percent(even)}",
        given,
        even,
        supported=given.low > even or given.high < even,
    )
    brought = share(results, BROUGHT, View.RAW, "", cell)
    if not math.isnan(brought.value):
        yield measured(
            f"share of its own output norm from {what} (‖αvW_O‖)",
            f"their share of its attention: {percent(given.value)}",
            brought,
            given.value,
            supported=brought.high < given.low or brought.low > given.high,
        )
