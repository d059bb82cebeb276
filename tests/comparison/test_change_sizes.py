"""Sizes of differences beside those of other heads, and the claim on the largest of them."""

import statistics
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from headbook.comparison.change_sizes import change_sizes, largest_changes, number_title, value_text
from headbook.comparison.comparison import Comparison
from headbook.comparison.differences import ComparedColumn, HeadDifferences
from headbook.comparison.number_claims import number_claims, supported_numbers
from headbook.comparison.study_pair import StackPair
from headbook.metrics import ids
from headbook.report.linked_rows import LinkedNumber
from headbook.schema import HeadName
from layers import SELF

COLUMNS = (
    ComparedColumn(ids.RELATION_ACCURACY, "raw", "obj:to_head"),
    ComparedColumn(ids.RELATION_ACCURACY, "raw", "amod:to_head"),
    ComparedColumn(ids.RELATION_ACCURACY, "renorm", "obj:to_head"),
    ComparedColumn(ids.ATTENTION_DISTANCE, "raw", ""),
)


def differences(q: float = 0.01) -> HeadDifferences:
    """Three heads of one layer; the second one's relation changes, all distances a little."""
    a = np.array([
        [0.10, 0.50, 0.10, 3.0], [0.15, 0.52, 0.15, 4.0], [0.20, 0.50, 0.20, 5.0],
    ])[None]  # fmt: skip
    b = np.array([
        [0.12, 0.50, 0.12, 3.1], [0.54, 0.52, 0.60, 4.1], [0.20, 0.54, 0.20, 5.1],
    ])[None]  # fmt: skip
    value = b - a
    qs = np.where(value == 0, np.nan, q)
    return HeadDifferences(
        COLUMNS, a, b, value, value - 0.001, value + 0.001, qs, qs, np.full(a.shape, 50)
    )


def test_a_size_is_the_difference_beside_those_of_all_heads() -> None:
    """In standard deviations among the heads of both models, at least those of a typical label."""
    found = differences()
    deviations = [
        statistics.pstdev([*found.a[0, :, n].tolist(), *found.b[0, :, n].tolist()])
        for n in range(len(COLUMNS))
    ]
    least = statistics.median(deviations[:2])  # of the two labels of one view
    assert deviations[1] < least
    scales = [max(deviations[0], least), least, *deviations[2:]]
    expected = np.abs(found.value[0]) / scales
    np.testing.assert_allclose(change_sizes(found)[0], expected, rtol=1e-12)


def test_the_largest_supported_change_of_each_head_comes_in_order() -> None:
    changes = [*largest_changes(differences(), SELF)]
    assert changes[0].place == (0, 1)
    first_view = COLUMNS[changes[0].column].view
    assert first_view == str(SELF.default_view)
    assert [change.size for change in changes] == sorted(
        (change.size for change in changes), reverse=True
    )
    assert len({change.place for change in changes}) == len(changes) == 3
    assert not [*largest_changes(differences(q=0.2), SELF)]


def test_the_claim_names_head_number_and_function() -> None:
    found = differences()
    comparison = cast("Comparison", SimpleNamespace(
        sides=SimpleNamespace(stacks=[StackPair(SELF, SELF)]), heads={"self": found}, layers={},
    ))  # fmt: skip
    head = HeadName("self", 0, 1)
    nouns = tuple({head: SimpleNamespace(noun=noun)} for noun in ("mixed", "verb → object"))
    (claim,) = number_claims(comparison, {"self": nouns})  # type: ignore[dict-item]
    assert claim.claim.heads == {HeadName("self", 0, n) for n in range(3)}
    sentence, evidence = (words.text for words in (claim.claim.sentence, claim.claim.evidence))
    numbers = [part for part in claim.claim.sentence.parts if isinstance(part, LinkedNumber)]
    column = ComparedColumn(*(str(dict(numbers[0].row)[name]) for name in ComparedColumn._fields))
    index = COLUMNS.index(column)
    assert [number.text for number in numbers] == [
        value_text(column, float(part[0, 1, index])) for part in (found.a, found.b)
    ]
    assert "L0·H1" in sentence
    assert "mixed → verb → object" in evidence
    assert "q 0.010" in evidence
    assert supported_numbers(comparison) == int((found.value != 0).sum())


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [(COLUMNS[0], 0.541, "54.1\u202f%"), (COLUMNS[3], 4.1, "4.10")],
)
def test_shares_are_in_per_cent(column: ComparedColumn, value: float, text: str) -> None:
    assert value_text(column, value) == text
    assert number_title(COLUMNS[3]).endswith("(tokens)")
