"""What hooks show is what the model computed, and nothing of them stays behind."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

import tiny
from bare_model import Bare
from headbook.model.architecture import Architecture, AttentionPlace, probe_architecture
from headbook.model.attention_hook import AttentionCall
from headbook.model.forward import model_inputs, observe_states, run_forward
from headbook.model.load import Model, load_model
from headbook.schema import ResidualPoint, Side
from headbook.text.batch import Batch, PaddedTexts
from layers import Marks

Folder = Callable[[str], Path]


@pytest.fixture(scope="module")
def loaded(tiny_folder: Folder) -> Callable[[str], tuple[Model, Architecture]]:
    """A family's model, in float64, and how it attends."""

    @cache
    def of(name: str) -> tuple[Model, Architecture]:
        model = load_model(str(tiny_folder(name)), dtype="float64")
        return model, probe_architecture(model)

    return of


def batch_of(bare: Bare, *, pairs: bool) -> Batch:
    """Two sentences of different length, padded; on the target side a single token and more."""
    pair = [("the old dog sees", "a bird sings , the"), ("water", "red")]
    rows = [bare.ids(*each) if pairs else bare.ids(each[0]) for each in pair]
    texts = {
        side: PaddedTexts.of(
            [Marks(len(row[number]), ids=row[number]).tokens() for row in rows],
            torch.device("cpu"),
            torch.float64,
        )
        for number, side in enumerate(list(Side)[: len(rows[0])])
    }
    return Batch((), texts, torch.zeros(2).numpy(), torch.zeros(2).numpy())


@pytest.mark.parametrize("name", tiny.by_level(tiny.ALL))
def test_hooked_attention_equals_output_attentions(
    name: str, tiny_folder: Folder, loaded: Callable[[str], tuple[Model, Architecture]]
) -> None:
    model, architecture = loaded(name)
    bare = Bare.load(tiny_folder(name), pairs=tiny.ALL[name].pairs)
    batch = batch_of(bare, pairs=tiny.ALL[name].pairs)
    seen: dict[AttentionPlace, AttentionCall] = {}
    run_forward(model, architecture, batch, seen.__setitem__)
    assert len(seen) == len(architecture.calls) == len(set(architecture.calls))
    for row in range(2):
        # Alone, since the models' own float64 masks make NaN of padding in windows.
        lengths = {side: int(texts.valid[row].sum()) for side, texts in batch.texts.items()}
        alone = {
            key: value[row : row + 1, : lengths[Side.TARGET if "decoder" in key else Side.SOURCE]]
            for key, value in model_inputs(batch).items()
        }
        with torch.no_grad():
            output = bare.network(**alone, output_attentions=True)
        for call, attention in seen.items():
            field = {"self": "attentions"}.get(call.stack, f"{call.stack}_attentions")
            theirs = output[field][call.layer][0]
            n, m = theirs.shape[-2:]
            torch.testing.assert_close(
                attention.weights[row, :, :n, :m].to(theirs), theirs, rtol=0, atol=1e-5
            )
            assert float(theirs.std()) > 0.01 or m == 1  # nothing is proved by even weights


@pytest.mark.parametrize("name", tiny.by_level(tiny.ALL))
def test_states_equal_hidden_states(
    name: str, tiny_folder: Folder, loaded: Callable[[str], tuple[Model, Architecture]]
) -> None:
    model, architecture = loaded(name)
    pairs = tiny.ALL[name].pairs
    batch = batch_of(Bare.load(tiny_folder(name), pairs=pairs), pairs=pairs)
    states: dict[tuple[str, int, ResidualPoint], torch.Tensor] = {}

    def keep(stack: str, layer: int, state: ResidualPoint, vectors: torch.Tensor) -> None:
        assert (stack, layer, state) not in states
        states[stack, layer, state] = vectors.clone()

    with observe_states(model, architecture, keep):
        output = model.base_model(**model_inputs(batch), output_hidden_states=True)
    for stack in architecture.layers:
        theirs = output["hidden_states" if stack == "self" else f"{stack}_hidden_states"]
        torch.testing.assert_close(states[stack, 0, ResidualPoint.PRE], theirs[0], rtol=0, atol=0)
        # The last one may have gone through the model's final norm.
        torch.testing.assert_close(states[stack, 0, ResidualPoint.POST], theirs[1], rtol=0, atol=0)
        assert {s for n, layer, s in states if n == stack and layer == 1} == {
            ResidualPoint.MID,
            ResidualPoint.POST,
        }
    if pairs:
        assert ("cross", 1, ResidualPoint.MID) in states
        assert ("cross", 1, ResidualPoint.POST) not in states


@pytest.mark.parametrize("name", tiny.by_level(["bert", "albert", "gpt_neox", "t5", "mpnet"]))
def test_an_exception_leaves_no_hook_behind(
    name: str, tiny_folder: Folder, loaded: Callable[[str], tuple[Model, Architecture]]
) -> None:
    model, architecture = loaded(name)
    pairs = tiny.ALL[name].pairs
    batch = batch_of(Bare.load(tiny_folder(name), pairs=pairs), pairs=pairs)
    before = hooks(model)
    displayed: list[AttentionPlace] = []

    def fail_late(_: str, layer: int, state: ResidualPoint, __: torch.Tensor) -> None:
        if (layer, state) == (1, ResidualPoint.POST):
            raise RuntimeError("told to fail")

    def fail(place: AttentionPlace, _: AttentionCall) -> None:
        displayed.append(place)
        raise RuntimeError("told to fail")

    with (
        pytest.raises(RuntimeError, match="told to fail"),
        observe_states(model, architecture, fail_late),
    ):
        run_forward(model, architecture, batch)
    with pytest.raises(RuntimeError, match="told to fail"):
        run_forward(model, architecture, batch, fail)
    assert len(displayed) == 1
    run_forward(model, architecture, batch)
    assert len(displayed) == 1  # nobody is watching any more
    assert hooks(model) == before


def hooks(model: Model) -> list[list[int]]:
    """The ids of the hooks of every module; transformers may have some of its own."""
    return [
        [*module._forward_hooks, *module._forward_pre_hooks] for module in model.network.modules()
    ]
