"""What a model's answer would lose without each head, from slopes: one pass for all heads.

The slope of a target along what a head gives, times what stands in its place minus what it gives
(Michel et al. 2019; attribution patching). Estimates, which `headbook.passes.ablation.effects` has
exactly.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.attention.scopes import Scopes
from headbook.model import hook
from headbook.model.architecture import Call
from headbook.model.capture import inputs
from headbook.model.chains import first
from headbook.model.vocabulary.targets import DRAWS, Slope
from headbook.passes.ablation.effects import Ablator, Known, Means, instead_of
from headbook.study.sentencedata import HeadName
from headbook.terms import Replacement, Target, View
from headbook.text.batch import Batch

Floats = NDArray[np.float64]
Asked = tuple[Target, Replacement]


@dataclass(frozen=True, eq=False)
class Slopes:
    """Estimates of a batch; every table is ``(sentence, head)``, sums over scored tokens.

    Attributes:
        heads: all heads, by stack, layer and number.
        gradient: sum of outputs times slopes of the loss, empty without one: ``sentence`` over
            all query tokens, ``token`` of absolute values by query token.
        estimates: of how targets change.
    """

    heads: tuple[HeadName, ...]
    gradient: Mapping[str, Floats]
    estimates: Mapping[Asked, Floats]


class Watched:
    """The layers of one pass: their outputs, and what may stand in their place.

    Args:
        held: whether outputs are taken for constants, which do not depend on earlier layers.
    """

    def __init__(
        self,
        ablator: Ablator,
        batch: Batch,
        asked: Sequence[Replacement],
        means: Means,
        *,
        held: bool = False,
    ) -> None:
        self._asked, self._means, self._held = asked, means, held
        self._scopes = Scopes(batch, ablator.heads.architecture.stacks)
        self._half = torch.from_numpy(batch.half).to(ablator.heads.model.device)
        self._places = iter(ablator.heads.architecture.calls)
        self.added: dict[Call, torch.Tensor] = {}
        self.output: dict[Call, torch.Tensor] = {}
        self.change: dict[tuple[Call, Replacement], torch.Tensor] = {}

    def __call__(self, attention: hook.Attention) -> torch.Tensor:
        """Add nothing to the outputs, along which slopes are taken."""
        call, z = next(self._places), attention.output
        assert z is not None
        frame = self._scopes.get(call.stack, attention)[View.RAW].frame
        valid = frame.queries.valid[..., None, None]
        with torch.no_grad():
            self.output[call] = z * valid
            for replacement in self._asked:
                known = Known(self._means.classes[call], self._means.positions[call], self._half)
                r = instead_of(attention, frame, replacement, known)
                self.change[call, replacement] = (r.to(z) - z) * valid
        self.added[call] = torch.zeros_like(z, requires_grad=True)
        return (z.detach() if self._held else z) + self.added[call]


def slopes(
    ablator: Ablator,
    batch: Batch,
    asked: Sequence[Replacement],
    means: Means,
    without: Collection[Target] = (),
) -> Slopes:
    """Estimate what each head is needed for, in one pass and a few backward ones.

    Args:
        without: targets that nobody asks for; each saves backward passes.
    """
    read = ablator.judge.prepared(batch)
    watched = Watched(ablator, read, asked, means)
    heads = _heads(ablator)
    gradient: dict[str, Floats] = {}
    found: dict[Asked, Floats] = {}
    with torch.enable_grad():
        model_output, states = _pass(ablator, read, watched)
        for slope in ablator.judge.slopes(batch, model_output, states):
            if slope.target in without:
                continue
            along = dict(
                zip(
                    watched.added,
                    torch.autograd.grad(slope.value, [*watched.added.values()], retain_graph=True),
                    strict=True,
                )
            )
            if not slope.squared:
                gradient = _gradient(watched, along)
            for replacement in asked:
                rows = _rows(slope, {p: watched.change[p, replacement] for p in along}, along)
                key = slope.target, replacement
                found[key] = found.get(key, 0) + rows
    return Slopes(heads, gradient, found)


def _pass(ablator: Ablator, batch: Batch, watched: Watched) -> tuple[Any, torch.Tensor]:
    """What the model returns, and what leaves its last layer."""
    heads = ablator.heads
    left: list[torch.Tensor] = []
    last = heads.architecture.layers[heads.read][-1]
    handle = last.register_forward_hook(lambda _, __, output: left.append(first(output)))
    with ExitStack() as around:
        around.callback(handle.remove)
        around.enter_context(hook.watching(watched))
        network = heads.model.network if ablator.judge.speaks else heads.model.body
        model_output = network(**inputs(batch))
    return model_output, left[-1]


def _rows(
    slope: Slope, change: Mapping[Call, torch.Tensor], along: Mapping[Call, torch.Tensor]
) -> Floats:
    """What a slope tells of a target. *Shape:* ``(sentence, head)``."""
    sums = beside({call: (change[call] * along[call]).sum((1, 3)) for call in along})
    return sums**2 / 2 / DRAWS if slope.squared else sums


def _gradient(watched: Watched, along: Mapping[Call, torch.Tensor]) -> dict[str, Floats]:
    """Outputs times slopes."""
    by_token = {call: (watched.output[call] * along[call]).sum(-1) for call in along}
    return {
        "sentence": beside({call: each.sum(1) for call, each in by_token.items()}),
        "token": beside({call: each.abs().sum(1) for call, each in by_token.items()}),
    }


def _heads(ablator: Ablator) -> tuple[HeadName, ...]:
    """All heads, in the order of the tables."""
    stacks = ablator.heads.architecture.stacks
    return tuple(
        HeadName(call.stack, call.layer, head)
        for call in _order(ablator.heads.architecture.calls)
        for head in range(stacks[call.stack].n_heads)
    )


def _order(places: Sequence[Call]) -> list[Call]:
    return sorted(places, key=lambda place: (place.stack, place.layer))


def beside(tables: Mapping[Call, torch.Tensor]) -> Floats:
    """Tables of all layers side by side, in the order of `_heads`."""
    found = torch.cat([tables[call].double() for call in _order([*tables])], 1)
    numbers: Floats = found.cpu().numpy()
    return numbers
