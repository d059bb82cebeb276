"""Cosines to all original encodings, without forming one, equal those of formed ones."""

from itertools import product

import pytest
import torch

from headbook.model import vocabulary
from headbook.model.vocabulary import LayerNormWeights, LinearWeights, VocabularyEmbeddings
from headbook.schema import EmbeddingSpace
from headbook.text.batch import PaddedTexts
from layers import Marks

ENTRIES, WIDTH, WIDE, TOKENS = 150, 24, 40, 19
KINDS = {
    "word + position, normed": (1.0, True, True),
    "scaled word + position, normed": (4.9, True, True),
    "word + position": (1.0, True, False),
    "scaled word + position": (4.9, True, False),
    "word alone": (1.0, False, False),
    "word + position, normed, through a map": (1.0, True, True),
    "scaled word + position, through a map": (4.9, True, False),
}


def make(kind: str, dtype: torch.dtype = torch.float64) -> VocabularyEmbeddings:
    """A random embedding block with a mean, gains and biases that all matter."""
    scale, positions, norm = KINDS[kind]
    torch.manual_seed(1)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64).to(dtype)

    return VocabularyEmbeddings(
        numbers(ENTRIES, WIDTH) + 0.3,
        scale,
        numbers(TOKENS + 5, WIDTH) - 0.2 if positions else None,
        LayerNormWeights(1 + 0.3 * numbers(WIDTH), 0.4 * numbers(WIDTH), 1e-3) if norm else None,
        LinearWeights(numbers(WIDE, WIDTH), 0.5 * numbers(WIDE)) if "map" in kind else None,
    )


def width(kind: str) -> int:
    """Of the states."""
    return WIDE if "map" in kind else WIDTH


def texts() -> PaddedTexts:
    """Two texts, one of them padded."""
    torch.manual_seed(2)
    rows = [
        Marks(n, ids=torch.randint(0, ENTRIES, (n,)).tolist()).tokens() for n in (TOKENS, 5)
    ]  # fmt: skip
    return PaddedTexts.of(rows, torch.device("cpu"), torch.float64)


def cosines(
    made: VocabularyEmbeddings,
    states: torch.Tensor,
    space: EmbeddingSpace,
    removed: tuple[int, ...] = (),
) -> torch.Tensor:
    """The direct way, without some dimensions. *Shape:* ``(state, sentence, token, entry)``."""
    kept = [dimension for dimension in range(states.shape[-1]) if dimension not in removed]
    places = range(states.shape[2])
    per_place = []
    for position in places:
        table = made.embedding
        if space is EmbeddingSpace.POSITIONAL:
            assert made.positions is not None
            table = table * made.scale + made.positions[position]
            if made.norm is not None:
                deviation = table - table.mean(1, keepdim=True)
                std = ((deviation**2).mean(1, keepdim=True) + made.norm.epsilon).sqrt()
                table = deviation / std * made.norm.gain + made.norm.bias
            if made.through is not None:
                table = table @ made.through.weight.T + made.through.bias
        x, table = states[:, :, position, kept], table[:, kept]
        lengths = x.norm(dim=-1, keepdim=True) * table.norm(dim=1)
        per_place.append(x @ table.T / lengths)
    return torch.stack(per_place, 2)


CASES = [
    (kind, space) for kind, space in product(KINDS, EmbeddingSpace) if space in make(kind).spaces
]


@pytest.fixture(params=["one block", "many blocks"], autouse=True)
def _blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes of blocks are of no account."""
    if request.param == "many blocks":
        monkeypatch.setattr(vocabulary, "MAX_BLOCK_SCORES", 16 * ENTRIES)
        monkeypatch.setattr(vocabulary, "BLOCK_ENTRIES", 32)
        monkeypatch.setattr(vocabulary, "BLOCK_POSITIONS", 4)


@pytest.mark.parametrize(("kind", "space"), CASES)
def test_all_cosines_equal_the_direct_computation(kind: str, space: EmbeddingSpace) -> None:
    made, given = make(kind), texts()
    states = torch.randn(3, 2, TOKENS, width(kind), dtype=torch.float64) + 0.5
    comparison = made.compare(states, given, space, ENTRIES)
    direct = cosines(made, states, space)
    valid = given.valid
    ordered = direct.sort(dim=-1, descending=True)
    torch.testing.assert_close(
        comparison.cosines[:, valid], ordered.values[:, valid], rtol=1e-10, atol=1e-12
    )
    assert torch.equal(comparison.ids[:, valid], ordered.indices[:, valid])
    assert bool(comparison.cosines[:, ~valid].isnan().all())


@pytest.mark.parametrize(("kind", "space"), CASES)
def test_dimensions_that_do_not_count_are_those_of_each_state(
    kind: str, space: EmbeddingSpace
) -> None:
    """A dimension that outweighs all others changes nothing in the states that lack it."""
    made, given = make(kind), texts()
    states = torch.randn(3, 2, TOKENS, width(kind), dtype=torch.float64) + 0.5
    states[..., 7] += 1e3
    made.embedding[:, 7] += 30
    removed = [(7,), (), (2, 7, 11)]
    comparison = made.compare(states, given, space, ENTRIES, removed)
    direct = torch.cat([
        cosines(made, states[[state]], space, removed[state]) for state in range(len(states))
    ])  # fmt: skip
    ordered, valid = direct.sort(dim=-1, descending=True), given.valid
    torch.testing.assert_close(
        comparison.cosines[:, valid], ordered.values[:, valid], rtol=1e-8, atol=1e-10
    )
    assert torch.equal(comparison.ids[::2, valid], ordered.indices[::2, valid])
    own = direct.gather(-1, given.ids.expand(3, -1, -1)[..., None])
    expected = (direct > own).sum(-1)
    assert torch.equal(comparison.ranks[::2, valid].long(), expected[::2, valid])


def test_an_encoding_without_any_dimension_that_counts_has_cosine_zero() -> None:
    made, given = make("word alone"), texts()
    made.embedding[3] = 0
    made.embedding[3, 5] = 2.0
    states = torch.randn(1, 2, TOKENS, WIDTH, dtype=torch.float64)
    comparison = made.compare(states, given, EmbeddingSpace.RAW, ENTRIES, [(5,)])
    alone = comparison.cosines[:, given.valid][comparison.ids[:, given.valid] == 3]
    assert bool((alone == 0).all())


@pytest.mark.parametrize(("kind", "space"), CASES)
def test_the_nearest_entries_are_the_head_of_a_full_sort(kind: str, space: EmbeddingSpace) -> None:
    made, given = make(kind), texts()
    states = torch.randn(2, 2, TOKENS, width(kind), dtype=torch.float64)
    few = made.compare(states, given, space, 7)
    ordered = cosines(made, states, space).argsort(dim=-1, descending=True)
    assert torch.equal(few.ids[:, given.valid], ordered[:, given.valid][..., :7])


@pytest.mark.parametrize(("kind", "space"), CASES)
def test_a_rank_counts_the_entries_strictly_nearer(kind: str, space: EmbeddingSpace) -> None:
    made, given = make(kind), texts()
    states = torch.randn(3, 2, TOKENS, width(kind), dtype=torch.float64)
    direct = cosines(made, states, space)
    own = direct.gather(-1, given.ids.expand(3, -1, -1)[..., None])
    expected = (direct > own).sum(-1)
    found = made.compare(states, given, space, 10).ranks
    assert torch.equal(found[:, given.valid].long(), expected[:, given.valid])
    assert bool(found[:, ~given.valid].isnan().all())
    assert float(found[:, given.valid].max()) > ENTRIES / 2


@pytest.mark.parametrize(("entries", "k"), [(320, 10), (333, 10), (333, 3), (40, 1), (10, 10)])
def test_ranks_and_nearest_entries_are_those_of_sorting(entries: int, k: int) -> None:
    """Some scores are equal, and some own entries are among the first."""
    torch.manual_seed(3)
    scores = (torch.randn(50, entries) * 20).round() / 20
    own = torch.randint(0, entries, (50,))
    own[::2] = scores.argmax(1)[::2]
    comparison = vocabulary.compare_with_vocabulary(scores, own, k)
    assert torch.equal(comparison.cosines, scores.sort(1, descending=True).values[:, :k])
    assert torch.equal(comparison.cosines, scores.gather(1, comparison.ids))
    assert all(len({*row}) == k for row in comparison.ids.tolist())
    mine = scores.gather(1, own[:, None])
    assert torch.equal(comparison.ranks.long(), (scores > mine).sum(1))


@pytest.mark.parametrize("kind", KINDS)
def test_the_input_state_is_nearest_to_its_own_encoding(kind: str) -> None:
    made, given = make(kind), texts()
    states = made.encode(given)[None]
    found = made.compare(states, given, made.spaces[0], 10).ranks
    assert bool((found[:, given.valid] == 0).all())
    near = made.compare(states, given, made.spaces[0], 1)
    assert torch.equal(near.ids[0, ..., 0][given.valid], given.ids[given.valid])
    torch.testing.assert_close(
        near.cosines[:, given.valid], torch.ones_like(near.cosines[:, given.valid])
    )


@pytest.mark.parametrize("kind", KINDS)
def test_entries_with_the_same_embedding_do_not_outrank_each_other(kind: str) -> None:
    made, given = make(kind), texts()
    made.embedding[given.ids[0, 0]] = made.embedding[given.ids[0, 1]]
    states = torch.randn(1, 2, TOKENS, width(kind), dtype=torch.float64)
    found = made.compare(states, given, made.spaces[0], 10).ranks
    direct = cosines(made, states, made.spaces[0])
    for token in (0, 1):
        mine = direct[0, 0, token, given.ids[0, token]]
        expected = int((direct[0, 0, token] > mine + 1e-12).sum())
        assert int(found[0, 0, token]) == expected


def test_an_entry_of_zeros_has_cosine_zero_and_no_nan() -> None:
    made, given = make("word alone"), texts()
    made.embedding[3] = 0
    states = torch.randn(1, 2, TOKENS, WIDTH, dtype=torch.float64)
    comparison = made.compare(states, given, EmbeddingSpace.RAW, ENTRIES)
    zero = comparison.cosines[:, given.valid][comparison.ids[:, given.valid] == 3]
    assert bool((zero == 0).all())
    assert not bool(comparison.cosines[:, given.valid].isnan().any())


@pytest.mark.parametrize("kind", KINDS)
def test_single_precision_keeps_five_digits(kind: str) -> None:
    exact, made, given = make(kind), make(kind, torch.float32), texts()
    states = torch.randn(2, 2, TOKENS, width(kind), dtype=torch.float64)
    space = made.spaces[0]
    found = made.compare(states.float(), given, space, 3).cosines[:, given.valid]
    wanted = exact.compare(states, given, space, 3).cosines[:, given.valid]
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)


def test_products_in_single_precision_round_equal_entries_alike() -> None:
    torch.manual_seed(3)
    embedding, states = torch.randn(5_000, 96), torch.randn(2, 2, TOKENS, 96)
    embedding[7] = embedding[4_000]  # in different blocks of any library
    given, made = texts(), VocabularyEmbeddings(embedding)
    exact = VocabularyEmbeddings(embedding.double()).compare(
        states.double(), given, EmbeddingSpace.RAW, 10
    )
    found = made.compare(states, given, EmbeddingSpace.RAW, 10)
    error = (found.cosines.double() - exact.cosines)[:, given.valid].abs().max()
    assert error < 5e-7
    scores = made._scores(states[0, 0], None)
    assert torch.equal(scores[:, 7], scores[:, 4_000])


def test_what_is_known_of_positions_does_not_grow_with_texts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vocabulary, "BLOCK_POSITIONS", 4)
    kind = "word + position, normed"
    whole, few = make(kind), make(kind)
    places = range(TOKENS)
    wanted = [whole.factors(position) for position in places]
    monkeypatch.setattr(vocabulary, "MAX_CACHED_FACTORS", 7 * ENTRIES)
    for place in [*places, *places]:
        torch.testing.assert_close(few.factors(place), wanted[place], rtol=0, atol=0)
        assert len(few._factors) * 4 <= 7 + 4  # one block beyond at most
