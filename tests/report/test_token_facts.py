"""Facts on words in several sentences, by numbers that support them and that do not."""

import math

import numpy as np
import pytest

from chosen_results import NO_ESTIMATES, fake_results
from headbook.analysis.accumulators import Estimates
from headbook.report import token_neighbours as module
from headbook.report.facts.states.tokens import (
    differ_from,
    different_uses,
    last_layer_apart,
    same_word,
    shared_numbers,
)
from headbook.report.results import StackResults
from headbook.report.token_neighbours import RecurringWord, SharedNeighbours, mean_shared
from headbook.results.fact import Fact
from headbook.results.number import PLAIN, Number, RowAddress
from headbook.schema import EmbeddingSpace


def estimates(last: float, half: float) -> Estimates:
    """Ten shared tokens after the first layer, and a number with its interval after the last."""
    value, count = np.array([10.0, last]), np.full(2, 12)
    return Estimates(value, value - half, value + half, count, count * 1.0, count * 1.0)


def sharing(different: float = 0.5, half: float = 0.5, **means: float) -> StackResults:
    results = fake_results(NO_ESTIMATES)
    by_class = {kind: estimates(last, half) for kind, last in means.items()}
    results._made[module._shared_neighbours] = SharedNeighbours(
        EmbeddingSpace.RAW, (), by_class, np.array([0.5, different]), (), frozenset(), {}
    )
    return results


def answered(different: float = 0.5, half: float = 0.5, **means: float) -> Fact:
    fact = same_word(sharing(different, half, **means))
    assert len(fact.text.text.split()) <= 30
    return fact


@pytest.mark.parametrize(
    ("means", "holds", "words"),
    [
        ({"content": 8.2, "function": 8.0}, True, "about as many"),
        ({"content": 4.9, "function": 2.2}, True, "less than half as many"),
        ({"content": 4.9, "function": 3.2}, True, "fewer"),
        ({"content": 2.1, "function": 6.0}, False, "more"),
        ({"content": 3.9}, False, "content word"),
        ({"function": 4.0}, True, "function word"),
        ({"all": 8.0}, True, "a word"),
        ({"punctuation": 8.0}, True, "punctuation mark"),
    ],
)
def test_the_answer_follows_from_the_mean_of_content_words(
    means: dict[str, float], holds: bool, words: str
) -> None:
    fact = answered(**means)
    assert fact.holds is holds
    assert words in fact.text.text
    kind = next(iter(means))
    assert shared_numbers(sharing(**means), kind)[-1].value == means[kind]


def test_words_that_share_no_more_than_others_in_the_end_are_told_apart_up_to_a_layer() -> None:
    """They share ten tokens after layer 0, different words half of one."""
    fact = answered(different=2.0, content=3.9)
    assert not fact.holds
    assert fact.text.text.startswith("Up to layer 0")
    assert answered(different=2.0, content=4.0).holds


def numbers(values: list[float]) -> list[Number]:
    return [Number(value, PLAIN, RowAddress("tests", ())) for value in values]


@pytest.mark.parametrize(
    ("values", "different", "layer"),
    [
        ([9.0, 2.3, 0.4], [1.0, 0.3, 0.3], 1),
        ([9.0, 8.0, 7.0], [1.0, 1.0, 1.0], 2),
        ([1.0, 8.0, 7.0], [1.0, 1.0, 1.0], None),
    ],
)
def test_words_are_told_apart_up_to_the_first_layer_in_which_they_are_not(
    values: list[float], different: list[float], layer: int | None
) -> None:
    assert last_layer_apart(numbers(values), numbers(different)) == layer


def test_without_intervals_classes_are_called_about_the_same() -> None:
    assert "about as many" in answered(half=math.nan, content=6.0, function=2.0).text.text


def test_without_recurring_words_nothing_is_claimed() -> None:
    fact = same_word(fake_results(NO_ESTIMATES))
    assert not fact.holds
    assert not any(letter.isdigit() for letter in fact.text.text)


@pytest.mark.parametrize(
    ("shared", "layer"),
    [
        ([10, 8, 5], None), ([10, 8, 4], 2), ([10, 4, 4], 1), ([4, 3, 2], 0), ([4, 6, 4], 2),
        ([10, 4, 5], None),
    ],
)  # fmt: skip
def test_uses_differ_from_the_layer_after_which_they_never_share_half(
    shared: list[int], layer: int | None
) -> None:
    """The layer from which on, up to the last, fewer than five of ten are shared."""
    wanted = next((n for n in range(3) if all(each < 5 for each in shared[n:])), None)
    assert differ_from(np.array(shared)) == wanted == layer


def test_words_with_different_uses_are_named_with_their_layer() -> None:
    results = fake_results(NO_ESTIMATES)
    apart, alike = np.array([[0, 1], [0, 1]]), np.array([[0, 1], [2, 3]])
    nearest = {(1, 1): apart, (2, 1): alike, (1, 2): apart, (2, 2): apart}
    words = tuple(
        RecurringWord(name, "content", "NOUN", ((1, place), (2, place)), np.array([2.0, 0.0]))
        for name, place in (("bat", 1), ("dog", 2))
    )
    means = {"content": estimates(3.0, 0.5)}
    results._made[module._shared_neighbours] = SharedNeighbours(
        EmbeddingSpace.RAW,
        words,
        means,
        np.array([0.5, 0.5]),
        ("a", "b", "c", "d"),
        frozenset(),
        nearest,
    )
    fact = different_uses(results)
    assert fact.holds
    assert "2 recurring words, 2 have" in fact.text.text
    assert "“bat” from layer 0" in fact.text.text


def test_shared_tokens_of_occurrences_without_any_are_none() -> None:
    nearest = np.array([[[0, 1, -1]], [[1, 2, -1]], [[-1, -1, -1]]])
    assert mean_shared(nearest).tolist() == [pytest.approx(1 / 3)]
    assert np.isnan(mean_shared(nearest[:1])).all()
