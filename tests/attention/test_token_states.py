"""Token metrics without dimensions that outweigh all others, and beside hubs of the vocabulary."""

from dataclasses import replace

import torch

from headbook.attention.token_states import TokenStates
from headbook.metrics import all_metrics, metrics_without_outliers
from headbook.model.vocabulary import VocabularyEmbeddings
from headbook.schema import EmbeddingSpace, ResidualPoint
from headbook.text.batch import PaddedTexts
from layers import Marks

ENTRIES, WIDTH, TOKENS, PLANTED = 300, 24, 9, 7
KINDS = (ResidualPoint.MID, ResidualPoint.POST) * 2


def states(*, planted: bool) -> TokenStates:
    """States of two layers near their embeddings; planted, all have a huge coordinate."""
    torch.manual_seed(0)
    ids = torch.randint(0, ENTRIES, (TOKENS,)).tolist()
    texts = PaddedTexts.of([Marks(TOKENS, ids=ids).tokens()], torch.device("cpu"), torch.float64)
    embedding = torch.randn(ENTRIES, WIDTH, dtype=torch.float64)
    start = embedding[texts.ids]
    vectors = start + torch.randn(4, *start.shape, dtype=torch.float64).cumsum(0)
    if planted:
        for each in (embedding, start, vectors):
            each[..., PLANTED] += 1000
    return TokenStates(vectors, start, texts, VocabularyEmbeddings(embedding), KINDS, near=100)


def test_a_planted_dimension_changes_no_number_without_it() -> None:
    removed = [(PLANTED,)] * len(KINDS)
    for metric in metrics_without_outliers(all_metrics().values()):
        space = EmbeddingSpace.RAW if metric.spaces else None
        plain, planted = states(planted=False), states(planted=True)
        without = [
            metric.measure(each.without(removed, (PLANTED,), {}), space)
            for each in (plain, planted)
        ]
        torch.testing.assert_close(*without, rtol=1e-9, atol=1e-9)
        whole = metric.measure(planted, space)
        assert bool(((whole - without[1]).abs() > 0.05).any())


def test_a_planted_hub_changes_kept_neighbours_by_one_of_them_at_most() -> None:
    """Of 100 neighbours it takes the place of one; so no share moves by more than a point."""
    plain = states(planted=False)
    assert plain.vocabulary is not None
    entries = plain.vocabulary.embedding
    mean = torch.cat([plain.states, plain.input[None]]).mean((0, 1, 2))
    plain = replace(plain, states=plain.states + 8 * mean, input=plain.input + 8 * mean, earlier={})
    embedding = torch.cat([entries, mean[None]])
    hub = replace(plain, vocabulary=VocabularyEmbeddings(embedding), earlier={}, _compared={})
    without, beside = plain.kept(EmbeddingSpace.RAW), hub.kept(EmbeddingSpace.RAW)
    near = hub.compared(EmbeddingSpace.RAW).ids[..., :10] == ENTRIES
    assert bool(near.any(-1).all())
    assert float((beside - without).abs().max()) <= 1 / 100 + 1e-12
    assert bool((beside > 0.02).all())
    ranks = [view.compared(EmbeddingSpace.RAW).ranks for view in (plain, hub)]
    assert torch.equal(ranks[1], ranks[0] + 1)
