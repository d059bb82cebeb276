"""Attention seen in the products of models that do not ask transformers for it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import tiny
from headbook.model import attention_hook
from headbook.model.architecture import Architecture, probe_architecture
from headbook.model.load import Model, load_model
from headbook.model.matrix_products import MIN_PRECISE_WEIGHT, factor_of
from headbook.model.probe import varied_texts


@pytest.fixture(params=["gpt_neo", "mpnet"])
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
    assert call.scaling == pytest.approx(factor_of(call))
    assert factor_of(replace(call, query=call.query + torch.randn_like(call.query))) is None
    assert factor_of(replace(call, output=call.output + torch.randn_like(call.output))) is None


def test_a_factor_is_found_where_each_query_looks_at_one_token_alone() -> None:
    """Weights so small tell it only where no larger ones do."""
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 4, 2, 3, 8)
    for factor in (0.35, 8.0):
        weights = (factor * query @ key.mT).softmax(-1)
        output = (weights @ value).transpose(1, 2)
        call = attention_hook.AttentionCall(None, query, key, value, None, weights, output)
        assert factor_of(call) == pytest.approx(factor, rel=1e-5)
        assert factor_of(replace(call, key=torch.randn_like(key))) is None
    assert (weights > MIN_PRECISE_WEIGHT).all(0).sum(-1).max() < 2  # nothing to compare in a row
