"""Facts about cross-attention: which heads align the word that is read, or that is written.

A row of attention belongs to the word that the decoder reads there, and to the word that it
predicts there. A head is described by the row that serves it better, which one half of the
sentences chooses; its number is that of all sentences.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from headbook.analysis.paired import ClusterSums
from headbook.report.alignment import (
    AER,
    ALIGNMENTS,
    MONOTONE,
    SAME_FORM,
    Alignments,
    alignments,
)
from headbook.report.function_numbers import counts
from headbook.report.leaders import Leaders, alike_note, leaders_among
from headbook.report.results import StackResults
from headbook.report.thresholds import HALF
from headbook.results.fact import Fact, Tested
from headbook.results.formats import head_name
from headbook.results.number import PLAIN, SHARE, Number, RowAddress
from headbook.results.sentence import say
from headbook.schema import HIGHEST, LOWEST, HeadName, heads_of
from headbook.text.aligned_words import AlignmentRow

WORDS = {  # target word of a row
    AlignmentRow.READ: "the word that is read",
    AlignmentRow.WRITTEN: "the word about to be written",
}
MEASURES = {AER: "AER", SAME_FORM: "same form"}


def address(head: HeadName, row: AlignmentRow, measure: str) -> RowAddress:
    """Return the row of the table of alignments that holds a number."""
    key = (*head._asdict().items(), ("row", str(row)), ("measure", measure))
    return RowAddress(ALIGNMENTS.name, key)


def alignment_number(
    numbers: Alignments, head: HeadName, row: AlignmentRow, measure: str
) -> Number:
    """Return a number of a head over all sentences."""
    estimate = numbers.estimates[measure].at(head.layer, head.head)
    unit = PLAIN if measure == MONOTONE else SHARE
    return Number.of(estimate, unit, address(head, row, measure))


def better_row(results: StackResults, head: HeadName, measure: str) -> AlignmentRow | None:
    """Return the row by which a head aligns better on the half that chooses; None without one."""
    sign = -1 if measure == AER else 1
    values = {
        row: sign * float(numbers.chosen[measure][head.layer, head.head])
        for row, numbers in results.cached(alignments).items()
        if measure in numbers.chosen
    }
    known = {row: value for row, value in values.items() if not np.isnan(value)}
    return max(known, key=lambda row: known[row], default=None)


class Agreement(NamedTuple):
    """The share of target words that a head aligns rightly, by the row that serves it better."""

    row: AlignmentRow
    number: Number


def agreement(results: StackResults, head: HeadName, measure: str) -> Agreement | None:
    """Return the share of words that a head aligns rightly by a measure; None if unknown.

    Of the alignment error rate, that is 1 less the rate.
    """
    row = better_row(results, head, measure)
    if row is None:
        return None
    number = alignment_number(results.cached(alignments)[row], head, row, measure)
    if measure == AER:
        value, low, high = 1 - number.value, 1 - number.high, 1 - number.low
        number = replace(number, value=value, low=low, high=high)
    return Agreement(row, number)


def row_leaders(results: StackResults, row: AlignmentRow) -> Leaders | None:
    """Return the heads that align best by a row, from a test paired by sentence."""
    numbers = results.cached(alignments)[row]
    n, d = numbers.parts[numbers.measure]
    places = [
        (head.layer, head.head)
        for head in heads_of(results.stack)
        if d[:, head.layer, head.head].any()
    ]
    values = numbers.estimates[numbers.measure].value
    each = np.ones(len(n), np.int64)
    return leaders_among(places, values, ClusterSums(n, d), each, lowest=numbers.measure == AER)


TOO_FEW = (
    "Too few sentences to say which heads align the word written ({measure} {written_number}, "
    "{written}) or read ({read_number}, {read})."
)
TEXTS = {  # by the rows whose leading head is right for half of the words, at the lower end
    (True, True): "{written} aligns the word about to be written ({measure} {written_number}), "
    "{read} the word that is read ({read_number}).",
    (True, False): "{written} aligns the word about to be written ({measure} {written_number}); no "
    "head clearly aligns the word that is read (at best {read}: {read_number}).",
    (False, True): "{read} aligns the word that is read ({measure} {read_number}); no head clearly "
    "aligns the word about to be written (at best {written}: {written_number}).",
    (False, False): "No head clearly aligns source and target: {measure} {written_number} of "
    "{written} for the word about to be written, {read_number} of {read} for the word that is "
    "read.",
}


def aligned_heads(results: StackResults) -> Fact:
    """Return the heads that align the word that is written, and the word that is read.

    It holds if one of them is right for half of the words at the lower end of its interval, on as
    many sentences and words as functions of heads need.
    """
    by_row = results.cached(alignments)
    led = {row: leaders for row in by_row if (leaders := row_leaders(results, row))}
    if len(led) < len(AlignmentRow):
        return Fact("aligned_heads", say("Not known: no target word has a source."), holds=False)
    heads = {row: HeadName(results.stack.name, *led[row].first) for row in led}
    measure_name = by_row[AlignmentRow.READ].measure
    numbers = {row: alignment_number(by_row[row], heads[row], row, measure_name) for row in led}
    clear = {
        row: (1 - number.high if measure_name == AER else number.low) >= HALF.value
        for row, number in numbers.items()
    }
    enough = all(counts(number) for number in numbers.values())
    text = TEXTS[clear[AlignmentRow.WRITTEN], clear[AlignmentRow.READ]] if enough else TOO_FEW
    named = {
        str(row): say("{head}{note}", head=head, note=alike_note(results, led[row]))
        for row, head in heads.items()
    }
    values = {f"{row}_number": number for row, number in numbers.items()}
    return Fact(
        "aligned_heads",
        say(text, measure=MEASURES[measure_name], **named, **values),
        tuple(_tested(results, row, led[row]) for row in led),
        tuple(heads.values()),
        holds=enough and any(clear.values()),
    )


def _tested(results: StackResults, row: AlignmentRow, leaders: Leaders) -> Tested:
    """Return the row of the head that aligns best, beside the best head that is told from it."""
    numbers = results.cached(alignments)[row]
    values, (layer, head) = numbers.estimates[numbers.measure], leaders.first
    second = leaders.second
    return Tested(
        LOWEST if numbers.measure == AER else HIGHEST, results.stack.name, numbers.measure, "",
        str(row), values.at(layer, head), layer, head,
        baseline=head_name(HeadName(results.stack.name, *second)) if second else "",
        baseline_value=float(values.value[second]) if second else np.nan, p=leaders.p,
    )  # fmt: skip
