"""Evidence for the function of a head: its number, uniform attention, threshold, and tests.

Each function with a number has a row in the table ``tests``, with the threshold as its baseline. A
function by the nearest word of a class has a second row: its margin over fixed offsets.
"""

import math
from collections.abc import Iterator

from headbook.analysis.accumulators import NO_ESTIMATE, Estimate
from headbook.metrics import ids
from headbook.report.facts.functions import HeadFunction, functions_of
from headbook.report.facts.tested.relations import relation_test
from headbook.report.facts.texts import regions
from headbook.report.facts.word_rules import word_rules
from headbook.report.relation_counts import VIEW
from headbook.report.relation_tests import best_relation, tests_of_stack
from headbook.report.results import StackResults
from headbook.report.wording import p_family_wise_text, rule_phrase
from headbook.results.fact import Tested
from headbook.results.sentence import NOTHING, Sentence, say
from headbook.schema import HELD_OUT_SPLIT

FUNCTION, AGAINST_OFFSETS = "function", "next word"  # claims
THRESHOLD = "threshold"
OF_SINK = "{number:interval} of its attention"
OFF_SINK = "{number:interval} of its attention off the sink"
ON_RANDOM = "{number:interval} of its attention on repeated random tokens"
EVIDENCE = {
    "alignment": "Right for {number:interval} of target words",
    "same_token": OFF_SINK + ", of tokens that occur elsewhere",
    "induction": ON_RANDOM,
    "duplicate": ON_RANDOM,
    "sink_only": OF_SINK,
    "offset": OFF_SINK,
    "relation": "In {number:interval} of cases",
    "region": OFF_SINK + ", of tokens that see the other part",
    "next_word": "The other word with the largest weight, for {number:interval} of words",
    "punctuation": OFF_SINK,
    "even": "Normalised entropy off the sink {number:interval}",
    "same_keys": "The key explains {number:interval} of its departure from even attention",
    "nearby": OFF_SINK,
    "own_sentence": OFF_SINK,
    "sink_mostly": OF_SINK,
}


def evidence_of(results: StackResults, function: HeadFunction) -> Sentence:
    """Return the number of a function beside uniform attention, its threshold, and its test."""
    number, tested = function.number, function_test(function)
    if number is None or tested is None:
        return NOTHING
    what = say(EVIDENCE[function.id], number=number)
    even, threshold = NOTHING, NOTHING
    if function.even is not None:
        even = say("; uniform attention: {even}", even=function.even)
    if not math.isnan(function.threshold):
        least = tested.baseline_number(number.unit)
        threshold = say("; the interval has to begin at {least} or above", least=least)
    text = say("{what}{even}{threshold}.", what=what, even=even, threshold=threshold)
    return text + _held_out(results, function)


def function_test(function: HeadFunction) -> Tested | None:
    """Return the row of a function with its threshold; None for a function without a number."""
    number, (stack, layer, head) = function.number, function.head
    if number is None:
        return None
    metric, view, label = function.column
    value = Estimate(number.value, number.low, number.high, number.sentences, number.observations)
    return Tested(
        FUNCTION, stack, metric, view, label, value, layer, head, baseline=THRESHOLD,
        baseline_value=function.threshold,
    )  # fmt: skip


def function_tests(results: StackResults) -> Iterator[Tested]:
    """Yield the rows of the functions of all heads of a stack."""
    for function in functions_of(results).values():
        for tested in (function_test(function), _against_offsets(results, function)):
            if tested is not None:
                yield tested


def _against_offsets(results: StackResults, function: HeadFunction) -> Tested | None:
    """Return the margin of a head's class rule over the nearest fixed offset; None without one."""
    stack, layer, head = function.head
    if function.id != "next_word":
        return None
    test = word_rules(results)[layer, head]
    offset = f"fixed offset {test.offset:+d}".replace("-", "−")
    return Tested(
        AGAINST_OFFSETS, stack, ids.SURFACE_RULE, VIEW, test.rule, NO_ESTIMATE, layer, head,
        HELD_OUT_SPLIT, offset, difference=test.margin, p=test.p,
    )  # fmt: skip


def _held_out(results: StackResults, function: HeadFunction) -> Sentence:
    """Return what was tested on the held-out half, for functions that rest on a test."""
    tested = _against_offsets(results, function)
    phrase = f"any {tested.baseline}" if tested else ""
    if function.id == "region":
        tested = regions.tested(results, function.column[2], function.head)
        phrase = tested.baseline
    if tested is None:
        tests = results.cached(tests_of_stack) if function.id == "relation" else None
        best = best_relation(tests, function.head[1:])
        if tests is None or best is None:
            return NOTHING
        phrase = f"the best surface rule ({rule_phrase(tests.rule[best])})"
        tested = relation_test(results, tests, best, HELD_OUT_SPLIT)
    return say(
        "On the held-out half {beyond:interval} over {phrase}, {p}.",
        beyond=tested.change(share=True), phrase=phrase, p=p_family_wise_text(tested.p),
    )  # fmt: skip
