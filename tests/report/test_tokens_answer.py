"""The answer of the page of tokens, by numbers that support it and that do not."""

import math
import re

import numpy as np
import pytest

from chosen_results import NO_ESTIMATES, fake_results
from headbook.analysis.accumulators import Estimates
from headbook.pages.parts.page import plain_text
from headbook.report import token_neighbours as module
from headbook.report.answers.tokens import sameness_answer
from headbook.report.token_neighbours import SharedNeighbours, mean_shared
from headbook.schema import EmbeddingSpace

NEAREST = "of their ten nearest vocabulary tokens"
START = "after the last layer, two occurrences of a"


def estimates(last: float, half: float) -> Estimates:
    """Ten shared tokens after the first layer, and a number with its interval after the last."""
    value, count = np.array([10.0, last]), np.full(2, 12)
    return Estimates(value, value - half, value + half, count, count * 1.0, count * 1.0)


def answered(different: float = 0.5, half: float = 0.5, **means: float) -> str:
    results = fake_results(NO_ESTIMATES)
    by_class = {kind: estimates(last, half) for kind, last in means.items()}
    results._made[module._shared_neighbours] = SharedNeighbours(
        EmbeddingSpace.RAW, (), by_class, np.array([0.5, different]), (), {}
    )
    text = plain_text(sameness_answer(results))
    assert len(text.split()) <= 30
    return text


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        (
            {"content": 8.2, "function": 8.0},
            f"Yes: {START} content word still share 8.2 {NEAREST}, of a function word about as "
            "many.",
        ),
        (
            {"content": 4.9, "function": 2.2},
            f"Partly: {START} content word still share 4.9 {NEAREST}, of a function word less than "
            "half as many.",
        ),
        (
            {"content": 4.9, "function": 3.2},
            f"Partly: {START} content word still share 4.9 {NEAREST}, of a function word fewer.",
        ),
        (
            {"content": 2.1, "function": 6.0},
            f"No: {START} content word share 2.1 {NEAREST}, of a function word more.",
        ),
        ({"content": 3.9}, f"No: {START} content word share 3.9 {NEAREST}."),
        ({"function": 4.0}, f"Partly: {START} function word still share 4.0 {NEAREST}."),
        ({"all": 8.0}, f"Yes: {START} word still share 8.0 {NEAREST}."),
        ({"punctuation": 8.0}, f"Yes: {START} punctuation mark still share 8.0 {NEAREST}."),
    ],
)
def test_the_answer_follows_from_the_mean_of_content_words(
    means: dict[str, float], expected: str
) -> None:
    found = answered(**means)
    assert found == expected
    assert len(re.findall(r"\d", found)) == 2  # one number with one decimal


def test_words_that_share_no_more_than_others_are_not_measurably_the_same() -> None:
    found = answered(different=2.0, content=3.9)
    assert found.startswith("Not measurably: ")
    assert found.endswith(f"share 3.9 {NEAREST}, hardly more than different words.")
    assert answered(different=4.0, content=3.9).endswith("no more than different words.")
    assert answered(different=2.0, content=4.0).startswith("Partly: ")


def test_without_intervals_classes_are_called_about_the_same() -> None:
    assert answered(half=math.nan, content=6.0, function=2.0).endswith("word about as many.")


def test_without_recurring_words_nothing_is_claimed() -> None:
    found = plain_text(sameness_answer(fake_results(NO_ESTIMATES)))
    assert found.startswith("Not known here: ")
    assert not re.search(r"\d", found)


def test_shared_tokens_of_occurrences_without_any_are_none() -> None:
    nearest = np.array([[[0, 1, -1]], [[1, 2, -1]], [[-1, -1, -1]]])
    assert mean_shared(nearest).tolist() == [pytest.approx(1 / 3)]
    assert np.isnan(mean_shared(nearest[:1])).all()
