"""Heads of one model beside those of another."""

from itertools import permutations

import numpy as np
import pytest
from numpy.typing import NDArray

from headbook.analysis.accumulators import HELD_OUT, SELECTION
from headbook.analysis.attention_divergence import AttentionRows, rows_between_words
from headbook.analysis.head_matching import (
    UNMATCHED,
    SimilaritySums,
    match,
    null_threshold,
    split_half_agreement,
)
from naive_comparison import affinity

WORDS = (4, 6, 5, 7, 3, 6)
Maps = NDArray[np.float64]


def maps(seed: int, heads: int, words: int, kinds: NDArray[np.float64]) -> Maps:
    """Heads that prefer an offset each, with noise; a little of each row is lost to the sink."""
    rng = np.random.default_rng(seed)
    offset = np.arange(words) - np.arange(words)[:, None]
    scores = -2 * np.abs(offset - kinds[:heads, None, None])
    weights = np.exp(scores + 0.3 * rng.normal(size=(heads, words, words)))
    found: Maps = 0.9 * weights / weights.sum(-1, keepdims=True)
    return found


def keys(words: int) -> NDArray[np.bool_]:
    """All but the last, which is the sink of one of the models."""
    return np.arange(words) < words - 1


KINDS = np.array([-2.0, 1.0, 0.0, -1.0, 3.0])


def similarities(kinds_a: Maps, kinds_b: Maps, noise: int = 100, **options: bool) -> SimilaritySums:
    found = SimilaritySums.zero(len(kinds_a), len(kinds_b))
    for index, words in enumerate(WORDS):
        a, b = (
            rows_between_words(maps(seed + index, len(kinds), words, kinds), keys(words), **options)
            for seed, kinds in ((0, kinds_a), (noise, kinds_b))
        )
        found += SimilaritySums.of(a, b, index % 2)
    return found


@pytest.mark.parametrize("causal", [False, True])
def test_similarity_is_that_of_plain_loops(causal: bool) -> None:
    found = similarities(KINDS, KINDS[1:4], causal=causal)
    for one in range(5):
        for other in range(3):
            values = []
            for index, words in enumerate(WORDS):
                a = maps(index, 5, words, KINDS)[one].tolist()
                b = maps(100 + index, 3, words, KINDS[1:4])[other].tolist()
                for i in range(words):
                    allowed = [j for j in range(words - 1) if not causal or j <= i]
                    p, q = ([row[i][j] for j in allowed] for row in (a, b))
                    if len(allowed) > 1 and sum(p) >= 0.1 and sum(q) >= 0.1:
                        p, q = ([x / sum(row) for x in row] for row in (p, q))
                        values.append(affinity(p, q))
            assert found.words.sum(0)[one, other] == len(values)
            assert found.value()[one, other] == pytest.approx(sum(values) / len(values))


def test_rows_with_little_left_or_no_choice_do_not_count() -> None:
    words = np.array([[[0.05, 0.04, 0.9], [0.3, 0.3, 0.4], [0.0, 0.1, 0.9]]])
    rows = rows_between_words(words, np.array([True, True, False]))
    assert rows.counted.tolist() == [[False, True, True]]
    assert rows.weights[0, 1:].tolist() == [[0.5, 0.5, 0], [0, 1, 0]]
    causal = rows_between_words(words, np.array([True, True, False]), causal=True)
    assert causal.counted.tolist() == [[False, True, True]]
    alone = rows_between_words(words, np.array([True, False, False]))
    assert not alone.counted.any()


def test_sums_of_halves_add_to_the_whole() -> None:
    found = similarities(KINDS, KINDS)
    whole = found.split(SELECTION) + found.split(HELD_OUT)
    np.testing.assert_array_equal(whole.total, found.total)
    assert found.sentences.tolist() == [3, 3]
    assert found.split(SELECTION).sentences.tolist() == [3, 0]
    few = found.value(min_words=10_000)
    assert np.isnan(few).all()


def test_a_model_is_matched_with_itself_head_by_head() -> None:
    """Though some of its heads are the same, and one is like no other."""
    kinds = np.array([0.0, 1.0, 0.0, 0.0, -3.0])
    found = SimilaritySums.zero(5, 5)
    for index, words in enumerate(WORDS):
        each = maps(index, 5, words, kinds)
        each[2] = each[3] = each[0]
        rows = rows_between_words(each, keys(words))
        found += SimilaritySums.of(rows, rows, 0)
    matching = match(found.value(), 0.5)
    assert matching.partner.tolist() == matching.best.tolist() == [0, 1, 2, 3, 4]
    assert matching.mutual.all()
    assert matching.counterpart.all()
    assert matching.similarity.tolist() == pytest.approx([1] * 5)
    assert matching.margin[[0, 2, 3]].tolist() == pytest.approx([0] * 3, abs=1e-12)
    assert matching.margin[[1, 4]].min() > 0.01
    same = match(np.full((40, 40), 0.7), 0.5)
    assert same.partner.tolist() == [*range(40)]


def test_a_model_whose_heads_changed_places_is_found() -> None:
    order = np.array([3, 0, 4, 1, 2])
    found = similarities(KINDS, KINDS[order])
    matching = match(found.value(), 0.5)
    assert order[matching.partner].tolist() == [*range(5)]
    assert matching.mutual.all()
    halves = [match(found.split(half).value(), 0.5) for half in (SELECTION, HELD_OUT)]
    assert split_half_agreement(*halves) == 1


def test_matchings_have_the_largest_sum_of_all() -> None:
    rng = np.random.default_rng(1)
    for shape in ((4, 4), (3, 5), (5, 3)):
        values = rng.random(shape)
        matching = match(values, 0)
        few, many = min(shape), max(shape)
        wide = values if shape[0] <= shape[1] else values.T
        most = max(
            sum(wide[i, j] for i, j in enumerate(places))
            for places in permutations(range(many), few)
        )
        assert np.nansum(matching.similarity) == pytest.approx(most, abs=1e-5)
        assert (matching.partner == UNMATCHED).sum() == shape[0] - few
        assert np.isnan(matching.similarity).sum() == shape[0] - few
        for head, row in enumerate(values.tolist()):
            first, second = sorted(row, reverse=True)[:2]
            assert matching.best[head] == row.index(first)
            assert matching.margin[head] == pytest.approx(first - second)
            column = values[:, row.index(first)].tolist()
            assert matching.mutual[head] == (first == max(column))


def test_small_differences_beat_ties_at_the_same_place() -> None:
    values = np.full((3, 3), 0.5)
    values[0, 2] = values[1, 0] = values[2, 1] = 0.500002
    assert match(values, 0).partner.tolist() == [2, 0, 1]


def test_heads_no_more_alike_than_to_an_untrained_model_have_no_counterpart() -> None:
    null = similarities(KINDS, np.zeros(5), noise=300).value()
    threshold = null_threshold(null)
    assert threshold == pytest.approx(np.quantile(null.max(1), 0.95))
    assert null_threshold(null, null) == pytest.approx(threshold, abs=0.05)
    values = np.array([[0.9, 0.2, np.nan], [0.3, 0.4, np.nan], [np.nan, np.nan, np.nan]])
    matching = match(values, 0.5)
    assert matching.partner.tolist() == [0, 1, UNMATCHED]
    assert matching.counterpart.tolist() == [True, False, False]
    assert matching.best.tolist() == [0, 1, UNMATCHED]
    assert matching.margin.tolist() == pytest.approx([0.7, 0.1, np.nan], nan_ok=True)
    assert not match(values, null_threshold(np.full((3, 2), np.nan))).counterpart.any()
    assert split_half_agreement(matching, match(values[[1, 0, 2]], 0.5)) == 0
    assert np.isnan(split_half_agreement(match(values, 0.95), matching))


def test_a_model_without_heads_has_no_matches() -> None:
    matching = match(np.zeros((3, 0)), 0)
    assert matching.partner.tolist() == matching.best.tolist() == [UNMATCHED] * 3
    assert not matching.mutual.any()
    assert match(np.zeros((0, 3)), 0).partner.shape == (0,)


def test_rows_of_both_models_must_be_of_the_same_words() -> None:
    a, b = (AttentionRows(np.ones((2, n, n)) / n, np.ones((2, n), dtype=bool)) for n in (3, 4))
    with pytest.raises(ValueError, match="matmul"):
        SimilaritySums.of(a, b, 0)
