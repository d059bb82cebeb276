"""Attention seen in the products of models that do not ask transformers for it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import tiny
from headbook.model import attention_hook
from headbook.model.architecture import Architecture, probe_architecture
from headbook.model.load import Model, load_model
from headbook.model.matrix_products import MIN_PRECISE_WEIGHT, factors_of
from headbook.model.probe import varied_texts


@pytest.fixture(params=["gpt_neo", "mpnet", "deberta", "deberta_v2", "deberta_v3"])
def looked_at(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Model, Architecture]:
    folder = tiny.write(request.param, tmp_path)
    model = load_model(str(folder), device="cpu", dtype="float64")
    return model, probe_architecture(model)


def calls(model: Model) -> list[attention_hook.AttentionCall]:
    found: list[attention_hook.AttentionCall] = []
    with attention_hook.observing(found.append), torch.inference_mode():
        model.base_model(**varied_texts(model))
    return found


def test_weights_are_those_that_the_model_returns(
    looked_at: tuple[Model, Architecture],
) -> None:
    model, architecture = looked_at
    assert architecture.products
    assert architecture.hooked
    with torch.inference_mode():
        theirs = model.base_model(**varied_texts(model), output_attentions=True).attentions
    for call, weights in zip(calls(model), theirs, strict=True):
        assert torch.equal(call.weights, weights)
        assert call.value is not None
        assert call.output is not None
        torch.testing.assert_close((weights @ call.value).transpose(1, 2), call.output)


def test_what_a_watcher_gives_goes_through_the_output_projection(
    looked_at: tuple[Model, Architecture],
) -> None:
    model, architecture = looked_at
    given: list[torch.Tensor] = []
    module = architecture.ends.projections["self", 0].module
    handle = module.register_forward_pre_hook(lambda _, args: given.append(args[0].clone()))
    numbers = torch.randn(4, 3, tiny.HEADS, 100, dtype=torch.float64)

    def other(call: attention_hook.AttentionCall) -> torch.Tensor:
        assert call.output is not None
        return numbers[..., : call.output.shape[-1]]

    with attention_hook.observing(other), torch.inference_mode():
        model.base_model(**varied_texts(model))
    handle.remove()
    width = given[0].shape[-1] // tiny.HEADS
    assert torch.equal(given[0].reshape(4, 3, -1), numbers[..., :width].flatten(2))


def test_weights_that_do_not_follow_from_queries_and_keys_are_not_taken(
    looked_at: tuple[Model, Architecture],
) -> None:
    model, _ = looked_at
    call = calls(model)[1]
    assert call.query is not None
    assert call.output is not None
    expected = [call.scaling, *[1.0] * len(call.positions)]  # parts have their factors already
    assert factors_of(call) == pytest.approx(expected)
    assert factors_of(replace(call, query=call.query + torch.randn_like(call.query))) is None
    assert factors_of(replace(call, output=call.output + torch.randn_like(call.output))) is None


def test_a_factor_is_found_where_each_query_looks_at_one_token_alone() -> None:
    """Weights so small tell it only where no larger ones do."""
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 4, 2, 3, 8)
    for factor in (0.35, 8.0):
        weights = (factor * query @ key.mT).softmax(-1)
        output = (weights @ value).transpose(1, 2)
        call = attention_hook.AttentionCall(None, query, key, value, None, weights, output)
        assert factors_of(call) == pytest.approx([factor], rel=1e-5)
        assert factors_of(replace(call, key=torch.randn_like(key))) is None
    assert (weights > MIN_PRECISE_WEIGHT).all(0).sum(-1).max() < 2  # nothing to compare in a row


def by_distance(vectors: torch.Tensor, span: int) -> torch.Tensor:
    """Vectors of positions by distance. *Shape:* ``(head, query, key, width)``."""
    distances = torch.arange(3)[:, None] - torch.arange(3)
    heads = vectors.view(len(vectors), tiny.HEADS, -1).transpose(0, 1)
    return heads[:, distances + span]


@pytest.mark.parametrize("name", ["deberta", "deberta_v3"])
def test_scores_are_products_of_tokens_and_of_positions(name: str, tmp_path: Path) -> None:
    """He et al. (2021), DeBERTa, eq. 4: content to content, content to position, and back."""
    model = load_model(str(tiny.write(name, tmp_path)), device="cpu", dtype="float64")
    architecture = probe_architecture(model)
    table = model.base_model.encoder.get_rel_embedding()
    for place, call in zip(architecture.calls, calls(model), strict=True):
        assert call.query is not None
        assert call.key is not None
        assert call.scaling is not None
        block = model.base_model.encoder.layer[place.layer].attention.self
        if name == "deberta":
            span, rows = 3, table[16 - 3 : 16 + 3]
            of_keys, of_queries = block.pos_proj(rows), block.pos_q_proj(rows)
            divisor = 1, (3 * 8) ** 0.5  # queries come divided, keys as they are
        else:
            span, rows = 16, table
            of_keys, of_queries = block.key_proj(rows), block.query_proj(rows)
            divisor = (3 * 8) ** 0.5, 1  # the other way round
        queries, keys = call.query.unsqueeze(3), call.key.unsqueeze(2)
        expected = [
            (queries * by_distance(of_keys, span)).sum(-1) / divisor[0],
            (keys * by_distance(of_queries, span)).sum(-1) / divisor[1],
        ]
        assert len(call.positions) == 2
        for part, direct in zip(call.positions, expected, strict=True):
            torch.testing.assert_close(part, direct)
        scores = call.query @ call.key.mT * call.scaling + sum(call.positions)
        torch.testing.assert_close(scores.softmax(-1), call.weights)
        assert (call.query @ call.key.mT * call.scaling).softmax(-1).sub(call.weights).max() > 0.01


@pytest.mark.parametrize("n_tokens", [31, 32, 33])
def test_a_text_of_as_many_tokens_as_positions_is_read_like_others(
    n_tokens: int, tmp_path: Path
) -> None:
    """Products with positions, 16 in each direction, then have the size of the scores."""
    model = load_model(str(tiny.write("deberta_v3", tmp_path)), device="cpu", dtype="float64")
    probe_architecture(model)
    found: list[attention_hook.AttentionCall] = []
    ids = torch.arange(n_tokens)[None] % 20 + 5
    with attention_hook.observing(found.append), torch.inference_mode():
        model.base_model(input_ids=ids)
    assert len(found) == tiny.LAYERS
    for call in found:
        assert call.query is not None
        assert call.key is not None
        assert call.scaling is not None
        scores = call.query @ call.key.mT * call.scaling + sum(call.positions)
        torch.testing.assert_close(scores.softmax(-1), call.weights)
