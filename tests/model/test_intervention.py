"""A head that is replaced changes what it should, and nothing else; against plain hooks."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from test_forward import batch_of

import tiny
from bare_model import Bare
from headbook.errors import ModelError
from headbook.model.architecture import Architecture, AttentionPlace, probe_architecture
from headbook.model.attention_hook import AttentionCall
from headbook.model.forward import model_inputs, run_forward
from headbook.model.intervention import HeadAblation, PatchableModel, make_patchable
from headbook.model.load import Model, load_model
from headbook.schema import Side
from headbook.text.batch import Batch

# Encoder, causal, grouped queries, pairs, and scores with products of positions.
KINDS = ("bert", "gpt2", "llama", "bart", "t5", "deberta", "deberta_v3")
ALL = sorted(tiny.ALL)
# A convolution between layers, keys of earlier layers and heads of two widths, groups of layers.
UNUSUAL = ("deberta_v2", "gemma4", "gemma4_large", "albert_inner")
FAMILIES = {**tiny.ALL, **tiny.OTHERS}


class Case(NamedTuple):
    """A tiny model whose heads can be replaced, and two sentences."""

    model: Model
    architecture: Architecture
    heads: PatchableModel
    batch: Batch


Cases = Callable[[str], Case]


@pytest.fixture(scope="module")
def case(tiny_folder: Callable[[str], Path]) -> Cases:
    @cache
    def of(name: str) -> Case:
        model = load_model(str(tiny_folder(name)), dtype="float64")
        architecture = probe_architecture(model)
        bare = Bare.load(tiny_folder(name), pairs=FAMILIES[name].pairs)
        batch = batch_of(bare, pairs=FAMILIES[name].pairs)
        return Case(model, architecture, make_patchable(model, architecture, batch), batch)

    return of


def rows(
    case: Case, call: AttentionPlace, *chosen: tuple[int, int], copies: int = 1
) -> torch.Tensor:
    """Which heads of which rows, by number."""
    n_heads = case.architecture.stacks[call.stack].n_heads
    table = torch.zeros(copies * len(case.batch.index), n_heads, dtype=torch.bool)
    for row, head in chosen:
        table[row, head] = True
    return table


def noise(call: AttentionPlace, attention: AttentionCall) -> torch.Tensor:
    """Something else for every head, the same in every copy of a batch."""
    assert attention.output is not None
    _, *sizes = attention.output.shape
    seed = torch.Generator().manual_seed(97 + 7 * call.layer + len(call.stack))
    drawn = torch.randn(2, *sizes, generator=seed, dtype=torch.float64)
    return drawn.repeat(len(attention.output) // 2, 1, 1, 1)


def itself(_: AttentionPlace, attention: AttentionCall) -> torch.Tensor:
    assert attention.output is not None
    return attention.output


def clean(case: Case) -> torch.Tensor:
    return case.heads.states(case.batch).after[case.heads.read][-1]


def real(case: Case, states: torch.Tensor) -> torch.Tensor:
    """States without the padding."""
    side = case.architecture.stacks[case.heads.read].queries
    valid = case.batch.texts[side].valid
    return states[valid.repeat(len(states) // len(valid), 1)]


def naive(case: Case, changed: dict[tuple[AttentionPlace, int], torch.Tensor]) -> torch.Tensor:
    """The last states of one pass with plain hooks before output projections, for every row."""
    calls: dict[torch.nn.Module, list[AttentionPlace]] = {}
    for call in case.architecture.calls:
        end = case.architecture.ends.projections[call.stack, call.layer].module
        calls.setdefault(end, []).append(call)
    handles, turn = [], dict.fromkeys(calls, 0)

    def change(module: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
        call = calls[module][turn[module]]
        turn[module] += 1
        z = given[0].clone()
        width = case.architecture.stacks[call.stack].head_width
        for (where, head), r in changed.items():
            if where == call:
                flat = z.view(*r.shape[:2], -1)
                flat[:, :, head * width : (head + 1) * width] = r[:, :, head]
        return (z, *given[1:])

    left: list[Any] = []
    last = case.architecture.layers[case.heads.read][-1]
    handles = [end.register_forward_pre_hook(change) for end in calls]
    handles.append(last.register_forward_hook(lambda _, __, out: left.append(out)))
    try:
        with torch.no_grad():
            case.model.base_model(**model_inputs(case.batch))
    finally:
        for handle in handles:
            handle.remove()
    found: torch.Tensor = left[-1] if isinstance(left[-1], torch.Tensor) else left[-1][0]
    return found


@pytest.mark.parametrize("name", tiny.by_level([*ALL, *UNUSUAL]))
def test_a_head_replaced_by_itself_changes_no_bit(name: str, case: Cases) -> None:
    try:
        it = case(name)
    except ModelError:
        pytest.skip("refused; said in one line, see below")
    expected = clean(it)
    for call in it.architecture.calls:
        table = torch.ones_like(rows(it, call))
        found = it.heads.run(it.batch, HeadAblation({call: table}, itself))
        assert torch.equal(real(it, found), real(it, expected)), call


@pytest.mark.parametrize("name", tiny.by_level(KINDS))
def test_a_replaced_head_is_what_plain_hooks_make_of_it(name: str, case: Cases) -> None:
    it = case(name)
    for call in it.architecture.calls:
        attention: dict[AttentionPlace, AttentionCall] = {}

        def see(
            place: AttentionPlace,
            seen: AttentionCall,
            found: dict[AttentionPlace, AttentionCall] = attention,
        ) -> None:
            found[place] = seen

        run_forward(it.model, it.architecture, it.batch, see)
        given = noise(call, attention[call])
        expected = naive(it, {(call, 1): given})
        table = rows(it, call, (0, 1), (1, 1))
        found = it.heads.run(it.batch, HeadAblation({call: table}, noise))
        torch.testing.assert_close(real(it, found), real(it, expected), rtol=0, atol=1e-9)
        assert (real(it, found) - real(it, clean(it))).abs().max() > 1e-4


@pytest.mark.parametrize("name", tiny.by_level([*KINDS, *UNUSUAL]))
def test_the_block_changes_by_what_the_projection_makes_of_the_difference(
    name: str, case: Cases
) -> None:
    """By (r - z) W_O; the other heads of the layer do not move."""
    it = case(name)
    for call in it.architecture.calls:
        end = it.architecture.ends.projections[call.stack, call.layer]
        before, after = [_around(it, end.module, call, change) for change in (itself, noise)]
        z, r = (
            pair[0].unflatten(-1, (it.architecture.stacks[call.stack].n_heads, -1))
            for pair in (before, after)
        )
        assert torch.equal(z[:, :, [0, 1, 3]], r[:, :, [0, 1, 3]])
        slices = end.slices(z.shape[-1])
        expected = (r - z)[:, :, 2] @ slices[2].T
        torch.testing.assert_close(after[1] - before[1], expected, rtol=0, atol=1e-9)
        assert expected.abs().max() > 1e-4


def _around(
    it: Case, module: torch.nn.Module, call: AttentionPlace, change: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """What a projection takes and gives while head 2 is replaced in both rows."""
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    handle = module.register_forward_hook(
        lambda _, given, out: seen.append((given[0].reshape(*out.shape[:2], -1), out))
    )
    turn = [
        c
        for c in it.architecture.calls
        if it.architecture.ends.projections[c.stack, c.layer].module is module
    ]
    try:
        it.heads.run(it.batch, HeadAblation({call: rows(it, call, (0, 2), (1, 2))}, change))
    finally:
        handle.remove()
    z, out = seen[turn.index(call)]
    shape = (len(it.batch.index), -1, z.shape[-1])
    return z.reshape(shape), out.reshape(*shape[:2], out.shape[-1])


@pytest.mark.parametrize("name", tiny.by_level(KINDS))
def test_two_ablations_in_one_pass_are_two_passes(name: str, case: Cases) -> None:
    """Copies of a batch with a head each, and passes that begin at the first of them."""
    it = case(name)
    states, two = it.heads.states(it.batch), it.batch.repeated(2)
    for call in it.architecture.calls:
        single = [
            it.heads.run(
                it.batch, HeadAblation({call: rows(it, call, (0, head), (1, head))}, noise)
            )
            for head in (0, 3)
        ]
        table = rows(it, call, (0, 0), (1, 0), (2, 3), (3, 3), copies=2)
        ablation = HeadAblation({call: table}, noise)
        for given in (None, states.repeated(2)):
            found = it.heads.run(two, ablation, given)
            expected = torch.cat(single)
            torch.testing.assert_close(real(it, found), real(it, expected), rtol=0, atol=1e-9)


def test_a_pass_begins_at_the_first_layer_that_is_ablated(case: Cases) -> None:
    """Layers below are not computed, where that gives the same; else all are."""
    for name, begins in (
        ("bert", True),
        ("gpt2", True),
        ("llama", True),
        ("bart", True),
        ("albert", False),
        ("t5", False),
    ):
        it = case(name)
        assert bool(it.heads.slots) is begins, name
        states, stack = it.heads.states(it.batch), it.heads.read
        call = next(c for c in it.architecture.calls if (c.stack, c.layer) == (stack, 1))
        ran: list[int] = []
        first = it.architecture.layers[stack][0]
        handle = first.register_forward_hook(lambda *_, ran=ran: ran.append(1))
        try:
            it.heads.run(it.batch, HeadAblation({call: rows(it, call, (0, 0))}, noise), states)
        finally:
            handle.remove()
        assert bool(ran) is not begins, name


@pytest.mark.parametrize("name", ["gpt2", "bart"])
def test_nothing_stays_behind_after_an_error(name: str, case: Cases) -> None:
    it = case(name)
    expected, states = clean(it), it.heads.states(it.batch)
    modules = {path: type(module) for path, module in it.model.network.named_modules()}
    call = it.architecture.calls[-1]

    def fails(_: AttentionPlace, __: AttentionCall) -> torch.Tensor:
        raise KeyError("a replacement that fails")

    with pytest.raises(KeyError):
        it.heads.run(it.batch, HeadAblation({call: rows(it, call, (0, 0))}, fails), states)
    assert {path: type(module) for path, module in it.model.network.named_modules()} == modules
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in it.model.network.modules())
    assert torch.equal(real(it, clean(it)), real(it, expected))


def test_a_model_outside_the_hook_is_refused_in_one_line(
    tiny_folder: Callable[[str], Path],
) -> None:
    model = load_model(str(tiny_folder("bert")))
    architecture = probe_architecture(model, "asked for by a test")
    bare = Bare.load(tiny_folder("bert"))
    with pytest.raises(ModelError, match="asked for by a test; its heads cannot be replaced"):
        make_patchable(model, architecture, batch_of(bare, pairs=False))


def test_a_batch_repeated_is_the_same_sentences_below_each_other(case: Cases) -> None:
    it = case("bart")
    two = it.batch.repeated(2)
    for side in Side:
        ids = two.texts[side].ids
        assert torch.equal(ids[:2], ids[2:])
        assert torch.equal(ids[:2], it.batch.texts[side].ids)
