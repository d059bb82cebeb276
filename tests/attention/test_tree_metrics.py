"""Trees from attention: what takes part in them, and what cannot change them."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from headbook.attention import word_pairs
from headbook.attention.maps import AttentionMaps
from headbook.attention.masks import BatchMask, ViewMask
from headbook.attention.views import LayerAttention, layer_views
from headbook.attention.word_pairs import attention_parts, word_trees
from headbook.metrics.base import SampledMetric
from headbook.metrics.language import dependency_trees, phrase_trees
from headbook.model.attention_hook import AttentionCall
from headbook.schema import SinkView
from headbook.text.batch import PaddedTexts
from layers import SELF, Marks, views_of

networkx = pytest.importorskip("networkx")

Floats = NDArray[np.float64]
BOTH = (phrase_trees.METRIC, dependency_trees.METRIC)


def looks(n: int, heads: int = 3, seed: int = 0) -> torch.Tensor:
    """Random attention. *Shape:* ``(head, query, key)``."""
    return torch.from_numpy(np.random.default_rng(seed).dirichlet(np.full(n, 0.3), (heads, n)))


def tree(n: int, seed: int = 0) -> tuple[int, ...]:
    """The heads of a random dependency tree."""
    random = np.random.default_rng(seed)
    order = random.permutation(n)
    heads = np.full(n, -1)
    for position in range(1, n):
        heads[order[position]] = order[random.integers(position)]
    return tuple(int(head) for head in heads)


def layer_of(weights: torch.Tensor, marks: Marks) -> LayerAttention:
    return views_of(weights, marks)[SinkView.NOSINK]


def shares(metric: SampledMetric, layer: LayerAttention) -> tuple[dict[str, Floats], Floats]:
    """Numerators by label, and denominators. *Shape:* ``(head,)`` each."""
    stats = metric.measure(layer).numpy()
    finished = metric.finish(stats, np.zeros(stats.shape[::2]))
    return dict(zip(metric.labels, finished.numerator[0].T, strict=True)), finished.denominator[
        0, :, 0
    ]


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_heads_does_not_change_their_joint_tree(seed: int) -> None:
    weights, marks = looks(12, 5, seed), Marks(12, heads=tree(12, seed))
    found, _ = shares(phrase_trees.METRIC, layer_of(weights, marks))
    turned, _ = shares(phrase_trees.METRIC, layer_of(weights.flip(0), marks))
    assert len({*found["joint"], *turned["joint"]}) == 1
    np.testing.assert_array_equal(found["f1"], turned["f1"][::-1])


def test_the_joint_tree_of_one_head_is_its_own() -> None:
    for seed in range(5):
        layer = layer_of(looks(10, 1, seed), Marks(10, heads=tree(10, seed)))
        found, _ = shares(phrase_trees.METRIC, layer)
        assert found["joint"] == found["f1"]


@pytest.mark.parametrize("n", [3, 4, 9, 16])
def test_phrases_of_a_head_that_looks_one_back_branch_to_the_left(n: int) -> None:
    one_back = torch.eye(n)[[max(i - 1, 0) for i in range(n)]][None]
    for seed in range(5):
        found, _ = shares(phrase_trees.METRIC, layer_of(one_back, Marks(n, heads=tree(n, seed))))
        assert found["f1"] == found["left_branching"]


@pytest.mark.parametrize("n", [3, 4, 9, 16])
def test_the_dependencies_of_a_head_that_looks_one_back_are_a_chain(n: int) -> None:
    one_back = torch.eye(n)[[max(i - 1, 0) for i in range(n)]][None]
    chained = (-1, *range(n - 1))
    found, edges = shares(dependency_trees.METRIC, layer_of(one_back, Marks(n, heads=chained)))
    assert found["uas"] == found["chain"] == edges == n - 1


def test_no_tree_is_better_than_the_ceiling_and_one_that_draws_the_phrases_reaches_it() -> None:
    for seed in range(20):
        heads = tree(9, seed)
        found, _ = shares(phrase_trees.METRIC, layer_of(looks(9, 8, seed), Marks(9, heads=heads)))
        for label, numbers in found.items():
            assert (numbers <= found["ceiling"]).all(), label
    # Words 0 and 1 look at 1, 2 to 4 at 4: the phrases of words 1 and 4 below word 5.
    drawn = torch.eye(6)[[1, 1, 4, 4, 4, 5]][None]
    found, _ = shares(phrase_trees.METRIC, layer_of(drawn, Marks(6, heads=(1, 5, 4, 4, 5, -1))))
    assert found["f1"] == found["ceiling"] == 4


def test_one_word_has_no_tree_and_two_have_no_phrases() -> None:
    for n, edges in ((1, 0), (2, 1)):
        layer = layer_of(looks(n), Marks(n, heads=(-1, 0)[:n]))
        assert (shares(phrase_trees.METRIC, layer)[1] == 0).all()
        assert (shares(dependency_trees.METRIC, layer)[1] == edges).all()


NO_TREE = {
    "nothing but punctuation": Marks(4, tags=("PUNCT",) * 4, heads=(-1, 0, 0, 0)),
    "no annotation": Marks(4),
    "tags alone": Marks(4, tags=("NOUN",) * 4),
    "all words go round in a circle": Marks(4, heads=(1, 2, 3, 0)),
    "two words of four go round in a circle": Marks(4, heads=(-1, 0, 3, 2)),
    "a word is its own head": Marks(4, heads=(-1, 0, 2, 2)),
    "words go round through punctuation": Marks(
        4, tags=("NOUN", "NOUN", "PUNCT", "NOUN"), heads=(-1, 2, 1, 0)
    ),
    "nothing but special tokens": Marks(4, special=range(4)),
}


@pytest.mark.parametrize("marks", NO_TREE.values(), ids=NO_TREE)
@pytest.mark.parametrize("metric", BOTH, ids=lambda metric: metric.id)
def test_a_sentence_without_a_tree_takes_no_part(metric: SampledMetric, marks: Marks) -> None:
    found, whole = shares(metric, layer_of(looks(4), marks))
    assert (whole == 0).all()
    assert not any(numbers.any() for numbers in found.values())


@pytest.mark.parametrize("tagged", [True, False])
@pytest.mark.parametrize("metric", BOTH, ids=lambda metric: metric.id)
def test_punctuation_might_as_well_not_be_there(metric: SampledMetric, tagged: bool) -> None:
    """It is known by its tag or, without tags, by its relation."""
    n, marks_at = 12, [0, 4, 5, 11]
    words = [i for i in range(n) if i not in marks_at]
    for seed in range(5):
        weights, below = looks(n, seed=seed), tree(len(words), seed)
        heads = np.full(n, words[0])
        heads[words] = [words[head] if head >= 0 else -1 for head in below]
        named = ["PUNCT" if i in marks_at else "NOUN" for i in range(n)]
        full = Marks(
            n,
            heads=[int(head) for head in heads],
            tags=named if tagged else (),
            relations=[] if tagged else [name.lower() for name in named],
        )
        found, whole = shares(metric, layer_of(weights, full))
        alone, expected = shares(
            metric, layer_of(weights[:, words][:, :, words], Marks(len(words), heads=below))
        )
        np.testing.assert_array_equal(whole, expected)
        for label, numbers in found.items():
            np.testing.assert_array_equal(numbers, alone[label], err_msg=label)


def kept(marks: Marks) -> tuple[list[int], list[int]]:
    """Which words are left of a sentence, and their heads, numbered anew."""
    words = word_trees(layer_of(looks(marks.n), marks).scope)
    return words.place[0].tolist(), words.heads[0].tolist()


def test_a_word_below_punctuation_hangs_on_its_head() -> None:
    tags = ("NOUN", "PUNCT", "PUNCT", "VERB")
    assert kept(Marks(4, tags=tags, heads=(1, 2, 3, -1))) == ([0, 3], [1, -1])
    assert kept(Marks(4, tags=tags, heads=(1, -1, 1, 1))) == ([0, 3], [-1, -1])


def test_words_without_a_token_are_dropped_and_those_below_become_roots() -> None:
    # Word 1 has no token, and word 4 was cut off with the end of the text.
    marks = Marks(4, word=(0, 2, 2, 3), heads=(2, 3, -1, 1))
    assert kept(marks) == ([0, 2, 3], [1, -1, -1])
    assert kept(Marks(3, word=(0, 1, 2), heads=(1, -1, 4))) == ([0, 1, 2], [1, -1, -1])


@pytest.mark.parametrize(("n", "edges"), [(100, 99), (101, 0)])
def test_more_than_a_hundred_words_are_no_sentence(n: int, edges: int) -> None:
    layer = layer_of(torch.eye(n)[None], Marks(n, heads=(-1, *range(n - 1))))
    assert shares(dependency_trees.METRIC, layer)[1] == edges


@pytest.mark.parametrize("n", [2, 6, 15])
def test_without_equal_weights_the_tree_is_that_of_networkx(n: int) -> None:
    gold, weights = tree(n, n), looks(n, 6, n)
    found, edges = shares(dependency_trees.METRIC, layer_of(weights, Marks(n, heads=gold)))
    assert (edges == n - 1).all()
    for head, correct in enumerate(found["uas"]):
        graph = networkx.DiGraph()
        graph.add_weighted_edges_from(
            (j, i, float(weights[head, i, j]))
            for i in range(n)
            for j in range(n)
            if i != j and gold[i] >= 0
        )
        best = networkx.maximum_spanning_arborescence(graph)
        linked = {frozenset((i, j)) for i, j in enumerate(gold) if j >= 0}
        assert correct == len({frozenset(edge) for edge in best.edges} & linked)


@pytest.mark.parametrize("metric", BOTH, ids=lambda metric: metric.id)
def test_rounding_errors_decide_nothing(metric: SampledMetric) -> None:
    n = 14
    even = torch.full((1, n, n), 1 / n, dtype=torch.float64)
    noisy = even * (1 + 1e-7 * torch.from_numpy(np.random.default_rng(0).normal(size=(40, n, n))))
    marks = Marks(n, heads=tree(n))
    exact, _ = shares(metric, layer_of(even, marks))
    found, _ = shares(metric, layer_of(noisy, marks))
    for label, numbers in found.items():
        assert (numbers == exact[label]).all(), label


def batch(lengths: list[int]) -> LayerAttention:
    """Several sentences at once, padded."""
    n = max(lengths)
    marks = [Marks(k, heads=tree(k, seed=k)) for k in lengths]
    texts = PaddedTexts.of([m.tokens() for m in marks], torch.device("cpu"), torch.float64)
    seen = texts.valid[:, :, None] & texts.valid[:, None, :]
    frame = BatchMask(SELF, texts, texts, seen)
    scopes = {view: ViewMask(frame, view) for view in SinkView}
    weights = torch.stack([looks(n, seed=k) for k in range(len(lengths))])
    call = AttentionCall(None, None, None, None, None, weights, None, None)
    return layer_views(scopes, AttentionMaps(scopes[SinkView.NOSINK], call))[SinkView.NOSINK]


@pytest.mark.parametrize("metric", BOTH, ids=lambda metric: metric.id)
def test_how_many_sentences_are_taken_at_a_time_changes_nothing(
    metric: SampledMetric, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = [5, 1, 9, 2, 7]
    whole = metric.measure(batch(lengths))
    assert len(list(attention_parts(batch(lengths)))) == 1
    for cells, parts in ((1, 5), (2 * 3 * 9 * 9, 3)):
        monkeypatch.setattr(word_pairs, "MAX_WEIGHTS", cells)
        assert len(list(attention_parts(batch(lengths)))) == parts
        torch.testing.assert_close(metric.measure(batch(lengths)), whole, rtol=0, atol=0)
