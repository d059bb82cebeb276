"""Estimates from slopes, against small steps of single heads."""

from collections.abc import Callable
from itertools import chain

import numpy as np
import pytest
import torch
from test_ablator import Case, batch_of, case

from bare_model import Bare
from headbook.ablation import attribution, logit_targets, targets
from headbook.ablation.attribution import GradientEstimates, gradient_estimates
from headbook.ablation.replacements import LayerMeans, replacement_output
from headbook.attention.views import ViewMasks
from headbook.model.architecture import AttentionPlace
from headbook.model.attention_hook import AttentionCall
from headbook.model.intervention import HeadAblation
from headbook.schema import AblationTarget, HeadName, Replacement, SinkView

__all__ = ["case"]

FAMILIES = ("bert", "gpt2", "llama", "bart")
ASKED = (Replacement.MEAN, Replacement.ZERO, Replacement.UNIFORM, Replacement.WITHOUT_SINK)
STEP, COARSE = 1e-4, 3e-3
SINGLE = "llama"  # its own softmax is in single precision


def stepped(
    it: Case, number: int, head: HeadName, replacement: Replacement, step: float
) -> dict[AblationTarget, np.ndarray]:
    """How targets change where a head goes a part of the way to what replaces it."""
    batch, ablator, means = it.batches[number], it.ablator, it.means
    read = ablator.functions.prepare_batch(batch)
    scopes = ViewMasks(read, ablator.heads.architecture.stacks)
    half = torch.from_numpy(batch.half)

    def towards(place: AttentionPlace, attention: AttentionCall) -> torch.Tensor:
        frame = scopes.get(place.stack, attention)[SinkView.RAW].frame
        known = LayerMeans(means.classes[place], means.positions[place], half)
        z = attention.output
        assert z is not None
        return z + step * (replacement_output(attention, frame, replacement, known).to(z) - z)

    stack = ablator.heads.architecture.stacks[head.stack]
    table = torch.zeros(len(batch.content_hash), stack.n_heads, dtype=torch.bool)
    table[:, head.head] = True
    clean = ablator.heads.states(read).after[ablator.heads.read][-1]
    other = ablator.heads.run(
        read, HeadAblation({AttentionPlace(head.stack, head.layer): table}, towards)
    )
    changes = ablator.functions.changes(batch, clean, other[None])
    return {target: change[0].numpy() for target, change in changes.sums.items()}


def estimated(it: Case, number: int) -> GradientEstimates:
    return gradient_estimates(it.ablator, it.batches[number], ASKED, it.means)


@pytest.mark.parametrize("family", FAMILIES)
def test_slopes_are_what_small_steps_say(family: str, case: Callable[..., Case]) -> None:
    it = case(family)
    found = estimated(it, 0)
    loss = it.ablator.functions.targets[0]
    step, error = (COARSE, 0.02) if family == SINGLE else (STEP, 1e-5)
    places = [(c.stack, c.layer) for c in it.ablator.heads.architecture.calls]
    assert {(h.stack, h.layer) for h in found.heads} == {*places}
    for place in places:
        head = HeadName(*place, 2)
        column = found.heads.index(head)
        for replacement in ASKED:
            one, other = (stepped(it, 0, head, replacement, s)[loss] for s in (step, -step))
            slope = (one - other) / 2 / step
            mine = found.estimates[loss, replacement][:, column]
            np.testing.assert_allclose(mine, slope, rtol=error, atol=error)
        zero = found.estimates[loss, Replacement.ZERO][:, column]
        np.testing.assert_allclose(found.gradient["sentence"][:, column], -zero, atol=1e-12)
    assert (found.gradient["token"] >= np.abs(found.gradient["sentence"]) - 1e-12).all()
    assert np.abs(found.gradient["sentence"]).max() > 1e-3


@pytest.mark.parametrize(("family", "head"), [("gpt2", True), ("bert", True), ("bert", False)])
def test_divergences_are_halves_of_squares_on_average(
    family: str, head: bool, case: Callable[..., Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To second order, over many draws."""
    draws = 600
    for module in (targets, logit_targets, attribution):
        monkeypatch.setattr(module, "N_DRAWS", draws)
    it = case(family, head=head)
    found = estimated(it, 0)
    square = [
        target
        for target in it.ablator.functions.targets
        if target not in {AblationTarget.LOSS, AblationTarget.MASKED_LOSS}
    ]
    assert square
    step, name = 1e-2, HeadName("self", 1, 1)
    exact = stepped(it, 0, name, Replacement.ZERO, step)
    for target in square:
        mine = found.estimates[target, Replacement.ZERO][:, found.heads.index(name)]
        wanted = exact[target] / step**2
        assert wanted.min() > 0
        np.testing.assert_allclose(mine, wanted, rtol=0.25)


def test_estimates_do_not_depend_on_the_batch(case: Callable[..., Case]) -> None:
    """Draws come from the content of a sentence."""
    it = case("gpt2")
    alone = gradient_estimates(it.ablator, it.batches[1], ASKED, it.means)
    bare = Bare.load(it.folder)
    together = batch_of(bare, "gpt2", (0, 3, 4))
    more = gradient_estimates(it.ablator, together, ASKED, it.means)
    for key, table in chain(alone.estimates.items()):
        np.testing.assert_allclose(table, more.estimates[key][1:], atol=1e-9)


def test_nothing_of_slopes_stays_behind(case: Callable[..., Case]) -> None:
    it = case("gpt2")
    estimated(it, 0)
    assert not torch.is_inference_mode_enabled()
    assert all(
        p.grad is None and not p.requires_grad for p in it.ablator.heads.model.network.parameters()
    )
    assert not any(m._forward_hooks for m in it.ablator.heads.model.network.modules())
