"""Dependency trees from attention are the heaviest there are, and are compared as edges."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from headbook import inputs
from headbook.analysis.trees import NO_HEAD, chain, spanning_trees, undirected_matches

networkx = pytest.importorskip("networkx")

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

# Few values make ties; sums of such numbers are exact.
WEIGHTS = st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0, 3.0])
GOLD = (1, 4, 1, 2, -1)  # the heads of five words


def is_root(n: int, *roots: int) -> Flags:
    return np.isin(np.arange(n), roots)


def one_tree(weights: Floats, *roots: int) -> list[int]:
    return list(map(int, spanning_trees(weights, is_root(len(weights), *roots))))


def reaches_root(heads: tuple[int, ...] | list[int]) -> bool:
    """Whether every word comes to a root by going up."""
    for word in range(len(heads)):
        above = word
        for _ in heads:
            above = heads[above] if above >= 0 else above
        if above >= 0:
            return False
    return True


def total(weights: Floats, heads: tuple[int, ...] | list[int]) -> float:
    return sum(float(weights[word, head]) for word, head in enumerate(heads) if head >= 0)


def heaviest_of_all(weights: Floats, roots: set[int]) -> float:
    """Weight of the best of all ways to give each word a head, tried one by one."""
    n = len(weights)
    choices = [[-1] if i in roots else [j for j in range(n) if j != i] for i in range(n)]
    return max(total(weights, heads) for heads in product(*choices) if reaches_root(heads))


def heaviest_of_networkx(weights: Floats, root: int) -> float:
    n = len(weights)
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(n))
    graph.add_weighted_edges_from(
        (head, word, float(weights[word, head]))
        for word, head in product(range(n), repeat=2)
        if word not in {head, root}
    )
    tree = networkx.maximum_spanning_arborescence(graph)
    return float(sum(data["weight"] for _, _, data in tree.edges(data=True)))


def test_words_that_prefer_each_other_are_entered_where_it_costs_least() -> None:
    weights = np.array([[0.0, 0.0, 0.0], [0.1, 0.0, 0.9], [0.3, 0.8, 0.0]])
    # 1 under 0 and 2 under 1 weigh 0.1 + 0.8; 2 under 0 and 1 under 2 weigh 0.3 + 0.9.
    assert one_tree(weights, 0) == [-1, 2, 0]


def test_a_circle_inside_a_circle_is_undone_from_the_outside() -> None:
    weights = np.zeros((4, 4))
    weights[1, 2], weights[2, 1] = 10, 9  # the inner circle
    weights[3, 2], weights[1, 3] = 8, 7  # 3 under the inner circle, which prefers to be under 3
    weights[3, 0] = 3
    # Entered at 3: 3 under 0, 1 under 3, 2 under 1 weigh 3 + 7 + 9; entered at 2, 0 + 10 + 8.
    assert one_tree(weights, 0) == [-1, 3, 1, 0]


@given(st.data())
def test_no_tree_or_forest_with_these_roots_is_heavier(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 6))
    weights = data.draw(hnp.arrays(np.float64, (n, n), elements=WEIGHTS))
    roots = data.draw(st.sets(st.integers(0, n - 1), min_size=1))
    heads = one_tree(weights, *roots)
    assert {word for word, head in enumerate(heads) if head == NO_HEAD} == roots
    assert reaches_root(heads)
    assert total(weights, heads) == heaviest_of_all(weights, roots)


@pytest.mark.parametrize("kind", ["attention", "ties", "any sign", "sparse"])
@pytest.mark.parametrize("n", [2, 7, 16, pytest.param(30, marks=pytest.mark.slow)])
def test_trees_weigh_what_those_of_networkx_weigh(kind: str, n: int) -> None:
    random = np.random.default_rng(n)
    batch = {
        "attention": random.dirichlet(np.full(n, 0.2), (12, n)),
        "ties": random.integers(0, 3, (12, n, n)).astype(float),
        "any sign": random.normal(size=(12, n, n)),
        "sparse": random.random((12, n, n)) * (random.random((12, n, n)) < 2 / n),
    }[kind]
    for root, weights in zip(random.integers(0, n, 12), batch, strict=True):
        heads = one_tree(weights, int(root))
        assert reaches_root(heads)
        assert heads.index(NO_HEAD) == root
        expected = heaviest_of_networkx(weights, int(root))
        assert total(weights, heads) == pytest.approx(expected, abs=1e-9)


def test_circles_nested_through_a_whole_sentence_still_make_a_tree() -> None:
    n = 40
    # Each word prefers the next, and the next prefers what comes before it a little less.
    weights = np.tril(np.arange(n, dtype=float)[None, :].repeat(n, 0)) + np.eye(n, k=1) * 2 * n
    heads = one_tree(weights, 0)
    assert reaches_root(heads)
    assert total(weights, heads) == heaviest_of_networkx(weights, 0)


def test_without_any_attention_the_first_words_win() -> None:
    assert one_tree(np.zeros((4, 4)), 2) == [2, 0, -1, 0]


def test_a_word_that_looks_nowhere_hangs_where_it_costs_nothing() -> None:
    weights = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    assert one_tree(weights, 0) == [-1, 0, 0]


def test_a_single_word_is_its_own_tree() -> None:
    assert one_tree(np.ones((1, 1)), 0) == [-1]
    assert spanning_trees(np.zeros((12, 0, 0)), np.zeros(0, dtype=bool)).shape == (12, 0)


def test_neither_the_diagonal_nor_the_row_of_the_root_matters() -> None:
    random = np.random.default_rng(3)
    weights = random.random((6, 6))
    changed = weights + 100 * np.eye(6)
    changed[2] = random.random(6)
    assert one_tree(weights, 2) == one_tree(changed, 2)


def test_renumbering_the_words_renumbers_the_tree() -> None:
    random = np.random.default_rng(4)
    weights, order = random.random((9, 9)), random.permutation(9)
    place = np.argsort(order)
    renumbered = one_tree(weights[np.ix_(order, order)], int(place[5]))
    heads = one_tree(weights, 5)
    assert renumbered == [place[heads[w]] if heads[w] >= 0 else -1 for w in order]


def test_a_batch_with_padding_gives_each_sentence_the_tree_it_has_alone() -> None:
    random = np.random.default_rng(5)
    lengths = np.array([4, 9, 1, 6, 0])
    weights = np.round(random.random((5, 3, 9, 9)), 1)  # (sentence, head, word, word)
    roots = np.arange(9) == np.array([3, 0, 0, 2, 0])[:, None]
    heads = spanning_trees(weights, roots[:, None], lengths[:, None])
    for sentence, n in enumerate(lengths):
        assert (heads[sentence, :, n:] == NO_HEAD).all()
        for head in range(3):
            alone = weights[sentence, head, :n, :n]
            expected = spanning_trees(alone, roots[sentence, :n])
            assert (heads[sentence, head, :n] == expected).all()


@pytest.mark.parametrize("roots", [is_root(3), is_root(3, 2)])
def test_words_without_a_root_are_refused(roots: Flags) -> None:
    """A root in the padding is none."""
    with pytest.raises(ValueError, match="without a root"):
        spanning_trees(np.ones((2, 3, 3)), roots, np.array([2, 2]))


@pytest.mark.parametrize("turned", [False, True])
def test_a_head_that_attends_along_the_gold_tree_finds_all_of_it(*, turned: bool) -> None:
    """Whichever of head and dependent looks at the other, read in the direction meant."""
    gold = np.array(GOLD)
    attention = np.full((5, 5), 0.01)
    for word, head in enumerate(GOLD):
        if head >= 0:
            attention[(head, word) if turned else (word, head)] = 0.9
    weights = attention.T if turned else attention
    heads = spanning_trees(weights, gold == NO_HEAD)
    assert list(heads) == list(GOLD)
    assert tuple(map(int, undirected_matches(heads, gold))) == (4, 4)


def test_edges_match_whichever_end_is_the_head() -> None:
    turned = np.array([-1, 0, 1, 2, 1])  # the edges of GOLD, seen from word 0
    assert tuple(map(int, undirected_matches(turned, np.array(GOLD)))) == (4, 4)
    assert tuple(map(int, undirected_matches(np.array([4, 4, 4, 4, -1]), np.array(GOLD)))) == (1, 4)


def edges(heads: NDArray[np.int64]) -> set[frozenset[int]]:
    return {frozenset((i, int(head))) for i, head in enumerate(heads) if head >= 0}


@given(st.data())
def test_matches_are_counted_as_sets_of_edges(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 6))
    pair = data.draw(hnp.arrays(np.float64, (2, n, n), elements=WEIGHTS))
    root = data.draw(st.integers(0, n - 1))
    heads, gold = spanning_trees(pair, is_root(n, root))
    correct, words = undirected_matches(np.stack([heads, chain(n)]), gold)
    assert list(correct) == [len(edges(tree) & edges(gold)) for tree in (heads, chain(n))]
    assert list(words) == [n - 1, n - 1]


def test_padding_and_second_roots_are_no_edges() -> None:
    gold = np.array([-1, 0, -1, 2, NO_HEAD])
    correct, words = undirected_matches(np.array([1, -1, 3, -1, NO_HEAD]), gold)
    assert (int(correct), int(words)) == (2, 2)


def test_the_chain_links_each_word_to_the_next() -> None:
    assert edges(chain(4)) == {frozenset(pair) for pair in ((0, 1), (1, 2), (2, 3))}
    assert list(chain(1)) == [NO_HEAD]


def test_no_head_is_what_sentences_use() -> None:
    assert NO_HEAD == inputs.NO_HEAD
