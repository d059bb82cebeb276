"""Facts on cross-attention: which head aligns the word that is read, or that is written."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from chosen_results import NO_ESTIMATES, fake_results
from headbook.analysis.accumulators import SELECTION, Estimates, RatioSums
from headbook.report.alignment import AER, SAME_FORM, Alignments, alignments
from headbook.report.facts.language.alignment import agreement, aligned_heads, better_row
from headbook.report.results import StackResults
from headbook.results.number import Printed
from headbook.schema import HeadName
from headbook.text.aligned_words import AlignmentRow

READ, WRITTEN = AlignmentRow
WORDS = 10  # of each sentence
Shares = Any  # by head: (layer, head)


def aligned(measure: str, shares: Shares, later: Shares, sentences: int) -> Alignments:
    """Alignments with these shares on the half that chooses, and others on the other half."""
    half = np.arange(sentences) % 2
    values = np.where(half[:, None, None] == SELECTION, np.array(shares), np.array(later))
    up_and_down = np.where(np.arange(sentences) // 2 % 2, 0.01, -0.01)[:, None, None]
    n, d = WORDS * (values + up_and_down), np.full(values.shape, float(WORDS))
    sums = RatioSums.of(n, d, d, half)
    return Alignments(
        {measure: (n, d)}, half, {measure: Estimates.of(sums, (0.0, 1.0))},
        {measure: sums.split(SELECTION).value}, {},
    )  # fmt: skip


def results(
    by_row: Mapping[AlignmentRow, Shares],
    *,
    measure: str = SAME_FORM,
    later: Mapping[AlignmentRow, Shares] | None = None,
    sentences: int = 60,
) -> StackResults:
    found = fake_results(NO_ESTIMATES, stack="cross")
    made = {
        row: aligned(measure, shares, (later or {}).get(row, shares), sentences)
        for row, shares in by_row.items()
    }
    object.__setattr__(found, "_made", {alignments: made})
    return found


LOW = [[0.1, 0.2], [0.1, 0.1]]


@pytest.mark.parametrize("measure", [SAME_FORM, AER])
def test_the_head_that_aligns_best_is_named_for_each_row(measure: str) -> None:
    shares = {READ: [[0.9, 0.2], [0.1, 0.1]], WRITTEN: [[0.1, 0.2], [0.1, 0.8]]}
    given = {row: np.array(of) if measure == SAME_FORM else 1 - np.array(of)
             for row, of in shares.items()}  # fmt: skip
    fact = aligned_heads(results(given, measure=measure))
    assert fact.holds
    assert {*fact.heads} == {HeadName("cross", 0, 0), HeadName("cross", 1, 1)}
    rows = {tested.label: (tested.layer, tested.head) for tested in fact.evidence}
    assert rows == {"read": (0, 0), "written": (1, 1)}
    assert all(tested.p < 0.05 for tested in fact.evidence)
    printed = [part.number for part in fact.text.parts if isinstance(part, Printed)]
    keys = [dict(number.row.key) for number in printed]
    assert [(key["row"], key["measure"]) for key in keys] == [
        ("written", measure), ("read", measure),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("read", "written", "n_clear"), [(0.9, 0.8, 0), (0.9, 0.2, 1), (0.2, 0.9, 1), (0.3, 0.2, 2)]
)
def test_only_what_is_right_for_half_of_the_words_is_said_to_align(
    read: float, written: float, n_clear: int
) -> None:
    shares = {READ: [[read, 0.0], [0.0, 0.0]], WRITTEN: [[written, 0.0], [0.0, 0.0]]}
    fact = aligned_heads(results(shares))
    assert fact.holds == (max(read, written) > 0.5)
    assert fact.text.text.lower().count("no head") == min(n_clear, 1)


def test_few_sentences_decide_nothing() -> None:
    fact = aligned_heads(results({READ: LOW, WRITTEN: [[0.9, 0.1], [0.1, 0.1]]}, sentences=4))
    assert not fact.holds
    assert fact.text.text.startswith("Too few sentences")


def test_a_row_is_chosen_on_one_half_and_its_number_is_that_of_all() -> None:
    head = HeadName("cross", 0, 1)
    later = {READ: [[0.1, 0.9], [0.1, 0.1]]}
    found = results({READ: LOW, WRITTEN: [[0.1, 0.6], [0.1, 0.1]]}, later=later)
    assert better_row(found, head, SAME_FORM) is WRITTEN
    share = agreement(found, head, SAME_FORM)
    assert share is not None
    assert share.row is WRITTEN
    assert share.number.value == pytest.approx(0.6)
    assert better_row(found, head, AER) is None
    assert agreement(found, head, AER) is None
    wrong = results({READ: LOW, WRITTEN: [[0.1, 0.6], [0.1, 0.1]]}, measure=AER)
    share = agreement(wrong, head, AER)
    assert share is not None
    assert (share.row, round(share.number.value, 6)) == (READ, 0.8)
    assert share.number.low < share.number.value < share.number.high
