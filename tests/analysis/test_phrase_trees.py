"""Phrase trees from attention follow their definition, and so do gold trees and baselines."""

from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from headbook.analysis.trees import (
    balanced,
    best_trees,
    bracket_counts,
    equalised,
    gold_phrases,
    left_branching,
    phrase_scores,
    right_branching,
)

Floats = NDArray[np.float64]
Span = tuple[int, int]

# Few values make ties; sums, and quarters of sums, of such numbers are exact.
WEIGHTS = st.sampled_from([0.0, 0.25, 0.5, 1.0])


TABLES = st.integers(1, 6).flatmap(lambda n: hnp.arrays(np.float64, (n, n), elements=WEIGHTS))


def spans(brackets: NDArray[np.bool_]) -> set[Span]:
    return {(int(a), int(b)) for a, b in np.argwhere(brackets)}


def balusters(attention: Floats) -> Floats:
    """Phrase scores of one head, cell by cell."""
    n = len(attention)
    kept = [[0 < attention[o, i] == max(attention[o]) for i in range(n)] for o in range(n)]
    scores = np.zeros((n, n))
    for column in range(n):
        for a in range(n):
            for b in range(a, n):
                inside = all(kept[row][column] for row in range(a, b + 1))
                longer = any(kept[row][column] for row in (a - 1, b + 1) if 0 <= row < n)
                if inside and not longer:
                    scores[a, b] += sum(attention[a : b + 1, column]) / (b - a + 1)
    return scores


def parsed(scores: Floats, *, late: bool) -> set[Span]:
    """Brackets of the best tree, by recursion in exact numbers."""
    w = [[Fraction(float(value)) for value in row] for row in scores]

    @cache
    def best(a: int, b: int) -> tuple[Fraction, int]:
        if a == b:
            return Fraction(1), a
        ends = range(b - 1, a - 1, -1) if late else range(a, b)
        sums = {k: best(a, k)[0] + best(k + 1, b)[0] + w[a][k] + w[k + 1][b] for k in ends}
        k = max(sums, key=lambda end: sums[end])  # the first of equal ones
        return sums[k] / 4, k

    def below(a: int, b: int) -> set[Span]:
        if a == b:
            return set()
        k = best(a, b)[1]
        return {(a, b)} | below(a, k) | below(k + 1, b)

    return below(0, len(w) - 1) - {(0, len(w) - 1)}


def yields(heads: list[int]) -> set[Span]:
    """Brackets of a dependency tree, by recursion over dependents."""

    def below(word: int) -> set[int]:
        return {word}.union(*(below(i) for i, head in enumerate(heads) if head == word))

    phrases = map(below, range(len(heads)))
    return {
        (min(words), max(words))
        for words in phrases
        if 1 < len(words) < len(heads) and words == set(range(min(words), max(words) + 1))
    }


def test_a_run_down_a_column_scores_its_mean_weight() -> None:
    attention = np.array([[0.1, 0.1, 0.6], [0.0, 0.2, 0.8], [0.3, 0.5, 0.2]])
    scores = phrase_scores(attention)
    # Words 0 and 1 look most at word 2, word 2 alone at word 1.
    assert spans(scores > 0) == {(0, 1), (2, 2)}
    assert scores[0, 1] == pytest.approx(0.7)
    assert scores[2, 2] == 0.5


def test_equal_maxima_all_stay_and_an_empty_row_keeps_nothing() -> None:
    attention = np.array([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 0]])
    scores = phrase_scores(attention)
    assert spans(scores > 0) == {(0, 1)}
    assert scores[0, 1] == 1.0  # a run in each of two columns


def test_only_whole_runs_are_phrases() -> None:
    assert spans(phrase_scores(np.eye(5)[[0, 0, 3, 0, 0]]) > 0) == {(0, 1), (2, 2), (3, 4)}


@given(TABLES)
def test_phrase_scores_are_those_of_plain_loops(attention: Floats) -> None:
    np.testing.assert_allclose(phrase_scores(attention), balusters(attention))


def test_each_head_scores_alone() -> None:
    random = np.random.default_rng(0)
    attention = random.dirichlet(np.full(8, 0.2), (2, 5, 8))  # (sentence, head, word, word)
    attention[0, 0, :, 3] = 0
    scores = phrase_scores(attention)
    assert scores.shape == attention.shape
    for place in np.ndindex(2, 5):
        np.testing.assert_allclose(scores[place], balusters(attention[place]))


@given(TABLES)
def test_equalised_scores_average_one_over_the_phrases_of_a_length(scores: Floats) -> None:
    scores = np.triu(scores)
    found = equalised(np.stack([scores, 3 * scores]))
    np.testing.assert_allclose(found[0], found[1])
    assert ((found[0] > 0) == (scores > 0)).all()
    for reach in range(len(scores)):
        line, before = np.diagonal(found[0], reach), np.diagonal(scores, reach)
        if before.any():
            assert line.sum() / (line > 0).sum() == pytest.approx(1)
            np.testing.assert_allclose(line * before.sum(), before * line.sum())


def test_strong_spans_become_brackets() -> None:
    scores = np.zeros((5, 5))
    scores[1, 3] = scores[2, 3] = 1
    # Words 0 and 4 join the span 1 to 3 in either order, both for 0.4140625.
    assert spans(best_trees(scores)) == {(2, 3), (1, 3), (1, 4)}
    assert spans(best_trees(scores, late=True)) == {(2, 3), (1, 3), (0, 3)}


@given(TABLES, st.booleans())
def test_trees_are_those_of_the_recursion(scores: Floats, late: bool) -> None:
    scores = np.triu(scores)
    assert spans(best_trees(scores, late=late)) == parsed(scores, late=late)


@pytest.mark.parametrize("n", [2, 3, 9, 40])
def test_a_tree_has_two_brackets_less_than_words_and_none_cross(n: int) -> None:
    random = np.random.default_rng(n)
    scores = equalised(phrase_scores(random.dirichlet(np.full(n, 0.1), (7, n))))
    for tree in [*best_trees(scores), right_branching(n), left_branching(n), balanced(n)]:
        pairs = spans(tree)
        assert len(pairs) == n - 2
        assert (0, n - 1) not in pairs
        assert all(a < b for a, b in pairs)
        assert not any(a < c <= b < d for a, b in pairs for c, d in pairs)


def test_the_joint_tree_does_not_depend_on_the_order_of_heads() -> None:
    random = np.random.default_rng(1)
    for _ in range(20):
        scores = phrase_scores(random.dirichlet(np.full(12, 0.3), (6, 12)))
        expected = best_trees(equalised(scores.sum(0)))
        for _ in range(5):
            assert (best_trees(equalised(random.permutation(scores).sum(0))) == expected).all()


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_a_head_that_attends_in_perfect_blocks_gives_those_brackets(sizes: list[int]) -> None:
    ends = np.cumsum(sizes)
    n = int(ends[-1])
    attention = np.zeros((n, n))
    for size, end in zip(sizes, ends, strict=True):
        attention[end - size : end, end - 1] = 1
    pairs = spans(best_trees(equalised(phrase_scores(attention))))
    blocks = {(int(end) - size, int(end) - 1) for size, end in zip(sizes, ends, strict=True)}
    assert {(a, b) for a, b in blocks if 1 < b - a + 1 < n} <= pairs


@pytest.mark.parametrize("n", range(1, 9))
def test_without_phrases_early_splits_branch_right_and_late_ones_left(n: int) -> None:
    nothing = np.zeros((n, n))
    assert (best_trees(nothing) == right_branching(n)).all()
    assert (best_trees(nothing, late=True) == left_branching(n)).all()


def test_a_batch_with_padding_gives_each_sentence_the_tree_it_has_alone() -> None:
    random = np.random.default_rng(2)
    lengths = np.array([4, 9, 1, 6, 0, 2])
    attention = random.dirichlet(np.full(9, 0.2), (6, 3, 9))  # (sentence, head, word, word)
    inside = np.arange(9) < lengths[:, None]
    attention *= (inside[:, :, None] & inside[:, None, :])[:, None]
    together = best_trees(equalised(phrase_scores(attention)), lengths[:, None])
    for sentence, n in enumerate(lengths):
        alone = best_trees(equalised(phrase_scores(attention[sentence, :, :n, :n])))
        assert (together[sentence, :, :n, :n] == alone).all()
        assert together[sentence].sum() == alone.sum()


def test_gold_phrases_of_a_sentence() -> None:
    """The old cat sat on the mat: (the old cat), (on the mat)."""
    assert spans(gold_phrases(np.array([2, 2, 3, -1, 6, 6, 3]))) == {(0, 2), (4, 6)}


def test_words_below_a_crossing_edge_are_no_bracket() -> None:
    """A hearing is scheduled on the issue today: "a hearing … on the issue" is torn apart."""
    heads = np.array([1, 3, 3, -1, 6, 6, 1, 3])
    assert spans(gold_phrases(heads)) == {(4, 6)}


@given(st.data())
def test_gold_phrases_are_those_of_the_recursion(data: st.DataObject) -> None:
    """Any tree or forest, projective or not."""
    n = data.draw(st.integers(1, 6))
    order = data.draw(st.permutations(range(n)))
    heads = [-1] * n
    for position in range(1, n):
        heads[order[position]] = data.draw(st.sampled_from([-1, *order[:position]]))
    assert spans(gold_phrases(np.array(heads))) == yields(heads)


def test_a_circle_in_the_annotation_ends() -> None:
    assert spans(gold_phrases(np.array([1, 0, -1]))) == {(0, 1)}


def test_baselines_of_five_words() -> None:
    assert spans(right_branching(5)) == {(1, 4), (2, 4), (3, 4)}
    assert spans(left_branching(5)) == {(0, 3), (0, 2), (0, 1)}
    assert spans(balanced(5)) == {(0, 2), (0, 1), (3, 4)}


def test_brackets_in_both_trees_are_counted() -> None:
    gold = gold_phrases(np.array([2, 2, 3, -1, 6, 6, 3]))
    found = np.stack([right_branching(7), left_branching(7), balanced(7), gold])
    matched, predicted, expected = bracket_counts(found, gold)
    assert list(matched) == [1, 1, 1, 2]
    assert list(predicted) == [5, 5, 5, 2]
    assert list(expected) == [2, 2, 2, 2]


@pytest.mark.parametrize("n", [0, 1, 2])
def test_two_words_have_no_brackets(n: int) -> None:
    gold = gold_phrases(np.arange(n) - 1)
    scores = equalised(phrase_scores(np.ones((3, n, n))))
    for tree in (*best_trees(scores), right_branching(n), left_branching(n), balanced(n)):
        assert tuple(map(int, bracket_counts(tree, gold))) == (0, 0, 0)
