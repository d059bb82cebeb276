"""Shares of attention by part of speech: one rule for all pages, and the sink's share beside it.

Shares are taken among ordinary keys: the sink is masked and rows are renormalised. Among all keys
each share of a head that gives most of its attention to the sink is small, and so is its ratio to
uniform attention, whatever the head prefers of the rest: a head that gives half of its attention to
the sink and the rest evenly would seem to avoid every part of speech.
"""

import math

from headbook.report.numbers.headtypes import SOME_SINK
from headbook.report.numbers.results import StackResults
from headbook.report.numbers.typeshares import Place, sink_share
from headbook.report.wording import percent
from headbook.terms import View

TAG_VIEW = View.RENORM  # of attention that words of a part of speech receive


def much_to_sink(results: StackResults, place: Place) -> float:
    """Return the share of its attention that a head gives to the sink, if that is much.

    NaN below `SOME_SINK`, corrected for uniform attention as in the types of heads, and where the
    share is not measured.
    """
    given = sink_share(results, place)
    return given.value if given.corrected >= SOME_SINK else math.nan


def sink_remark(results: StackResults, place: Place) -> str:
    """Return a sentence on what shares by part of speech leave out; empty if that is little."""
    given = much_to_sink(results, place)
    return "" if math.isnan(given) else f"{percent(given)} of all its attention goes to the sink."
