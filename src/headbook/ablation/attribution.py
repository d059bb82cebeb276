"""Attribution patching and direct logit attribution.

Estimates of every head from gradients and the residual path.

The slope of a target along what a head gives, times what stands in its place minus what it gives
(Michel et al. 2019; attribution patching). Estimates, which `headbook.ablation.ablator` has
exactly.

All that follows a head but the residual path is held: what later attention and feed-forward blocks
give, and the scale that norms divide by. So the path is linear, and one backward pass tells what
any change of any head does to the logit of each true token, above the mean of all logits. Where a
masked language-model head transforms states first, it is the slope of that transform.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from headbook.ablation.ablator import HeadAblator, LayerMeans, MeanOutputs, replacement_output
from headbook.ablation.targets import DRAWS, DifferentiableTarget, LogitTargets
from headbook.analysis.arrays import Floats
from headbook.attention.views import ViewMasks
from headbook.model import attention_hook
from headbook.model.architecture import Architecture, AttentionPlace
from headbook.model.devices import read_parameter
from headbook.model.forward import model_inputs
from headbook.model.intervention import PatchableModel
from headbook.model.probe import hidden_states_of
from headbook.schema import AblationTarget, Replacement, SinkView
from headbook.study.sentence_data import HeadName
from headbook.text.batch import Batch

Asked = tuple[AblationTarget, Replacement]


@dataclass(frozen=True, eq=False)
class GradientEstimates:
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


class PatchedPass:
    """The layers of one pass: their outputs, and what may stand in their place.

    Args:
        held: whether outputs are taken for constants, which do not depend on earlier layers.
    """

    def __init__(
        self,
        ablator: HeadAblator,
        batch: Batch,
        asked: Sequence[Replacement],
        means: MeanOutputs,
        *,
        held: bool = False,
    ) -> None:
        self._asked, self._means, self._held = asked, means, held
        self._scopes = ViewMasks(batch, ablator.heads.architecture.stacks)
        self._half = torch.from_numpy(batch.half).to(ablator.heads.model.device)
        self._places = iter(ablator.heads.architecture.calls)
        self.added: dict[AttentionPlace, torch.Tensor] = {}
        self.output: dict[AttentionPlace, torch.Tensor] = {}
        self.change: dict[tuple[AttentionPlace, Replacement], torch.Tensor] = {}

    def __call__(self, attention: attention_hook.AttentionCall) -> torch.Tensor:
        """Add nothing to the outputs, along which slopes are taken."""
        call, z = next(self._places), attention.output
        assert z is not None
        frame = self._scopes.get(call.stack, attention)[SinkView.RAW].frame
        valid = frame.queries.valid[..., None, None]
        with torch.no_grad():
            self.output[call] = z * valid
            for replacement in self._asked:
                known = LayerMeans(
                    self._means.classes[call], self._means.positions[call], self._half
                )
                r = replacement_output(attention, frame, replacement, known)
                self.change[call, replacement] = (r.to(z) - z) * valid
        self.added[call] = torch.zeros_like(z, requires_grad=True)
        return (z.detach() if self._held else z) + self.added[call]


def gradient_estimates(
    ablator: HeadAblator,
    batch: Batch,
    asked: Sequence[Replacement],
    means: MeanOutputs,
    without: Collection[AblationTarget] = (),
) -> GradientEstimates:
    """Estimate what each head is needed for, in one pass and a few backward ones.

    Args:
        without: targets that nobody asks for; each saves backward passes.
    """
    read = ablator.functions.prepare_batch(batch)
    watched = PatchedPass(ablator, read, asked, means)
    heads = _heads(ablator)
    gradient: dict[str, Floats] = {}
    found: dict[Asked, Floats] = {}
    with torch.enable_grad():
        model_output, states = _pass(ablator, read, watched)
        for slope in ablator.functions.differentiable(batch, model_output, states):
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
    return GradientEstimates(heads, gradient, found)


def _pass(ablator: HeadAblator, batch: Batch, watched: PatchedPass) -> tuple[Any, torch.Tensor]:
    """What the model returns, and what leaves its last layer."""
    heads = ablator.heads
    left: list[torch.Tensor] = []
    last = heads.architecture.layers[heads.read][-1]
    handle = last.register_forward_hook(lambda _, __, output: left.append(hidden_states_of(output)))
    with ExitStack() as around:
        around.callback(handle.remove)
        around.enter_context(attention_hook.observing(watched))
        network = heads.model.network if ablator.functions.needs_lm_head else heads.model.base_model
        model_output = network(**model_inputs(batch))
    return model_output, left[-1]


def _rows(
    slope: DifferentiableTarget,
    change: Mapping[AttentionPlace, torch.Tensor],
    along: Mapping[AttentionPlace, torch.Tensor],
) -> Floats:
    """What a slope tells of a target. *Shape:* ``(sentence, head)``."""
    sums = concat_layers({call: (change[call] * along[call]).sum((1, 3)) for call in along})
    return sums**2 / 2 / DRAWS if slope.squared else sums


def _gradient(
    watched: PatchedPass, along: Mapping[AttentionPlace, torch.Tensor]
) -> dict[str, Floats]:
    """Outputs times slopes."""
    by_token = {call: (watched.output[call] * along[call]).sum(-1) for call in along}
    return {
        "sentence": concat_layers({call: each.sum(1) for call, each in by_token.items()}),
        "token": concat_layers({call: each.abs().sum(1) for call, each in by_token.items()}),
    }


def _heads(ablator: HeadAblator) -> tuple[HeadName, ...]:
    """All heads, in the order of the tables."""
    stacks = ablator.heads.architecture.stacks
    return tuple(
        HeadName(call.stack, call.layer, head)
        for call in _order(ablator.heads.architecture.calls)
        for head in range(stacks[call.stack].n_heads)
    )


def _order(places: Sequence[AttentionPlace]) -> list[AttentionPlace]:
    return sorted(places, key=lambda place: (place.stack, place.layer))


def concat_layers(tables: Mapping[AttentionPlace, torch.Tensor]) -> Floats:
    """Tables of all layers side by side, in the order of `_heads`."""
    found = torch.cat([tables[call].double() for call in _order([*tables])], 1)
    numbers: Floats = found.cpu().numpy()
    return numbers


LINEAR = {"Linear", "Conv1D"}  # classes that end blocks; the latter is GPT-2's
TABLE = {"Embedding"}
NORMS = ("LayerNorm", "RMSNorm")  # what names of norms end with


def has_direct_path(heads: PatchableModel) -> bool:
    """Whether everything beside the residual path can be held.

    Blocks are known by the linear maps that end them: not where weights of several experts stand
    side by side, nor where it is not known which map is that of the heads.
    """
    layers = [layer for each in heads.architecture.layers.values() for layer in each]
    known = {
        id(parameter)
        for layer in layers
        for module in layer.modules()
        if type(module).__name__ in LINEAR | TABLE
        for parameter in module.parameters(recurse=False)
    }
    return _residual_path(heads.architecture) and all(
        id(parameter) in known or parameter.ndim < 2
        for layer in layers
        for parameter in layer.parameters()
    )


def _residual_path(architecture: Architecture) -> bool:
    """Whether what each head gives is added to what goes on from layer to layer, and to that."""
    ends = architecture.ends
    for call in architecture.calls:
        site = ends.sites.get((call.stack, call.layer))
        if site is None or (call.stack, call.layer) not in ends.projections:
            return False
        if site.closed is None or (site.residual and not architecture.stacks[call.stack].crosses):
            return False
    return True


def direct_effects_by_token(
    ablator: HeadAblator, batch: Batch, replacement: Replacement, means: MeanOutputs
) -> Floats:
    """Compute the change of each scored token's centred logit by the residual path alone.

    A head's output reaches no logit but that of its own place.

    Returns:
        0 for heads of an encoder whose logits a decoder says, since no such path leads there.
        *Shape:* ``(scored token, head)``.
    """
    functions = ablator.functions
    assert isinstance(functions, LogitTargets)
    read = functions.prepare_batch(batch)
    watched = PatchedPass(ablator, read, [replacement], means, held=True)
    with torch.enable_grad(), _held(ablator.heads), attention_hook.observing(watched):
        logits = ablator.heads.model.network(**model_inputs(read)).logits
        message = functions.centred(batch, logits).sum()
        places = [*watched.added]
        along = torch.autograd.grad(message, [*watched.added.values()], allow_unused=True)
    row, named = functions.scored(batch).T
    query = named - int(functions.mask is None)
    tables = {}
    for call, slope in zip(places, along, strict=True):
        change = watched.change[call, replacement]
        none = slope is None
        tables[call] = (
            change.new_zeros(len(row), change.shape[2]) if none
            else (change * slope).sum(3)[row, query]
        )  # fmt: skip
    return concat_layers(tables)


@contextmanager
def _held(heads: PatchableModel) -> Iterator[None]:
    """Hold what blocks give and what norms divide by."""
    ends = {id(projection.module) for projection in heads.architecture.ends.projections.values()}
    with ExitStack() as hooks:
        for layer in {
            id(m): m for each in heads.architecture.layers.values() for m in each
        }.values():
            for module in layer.modules():
                if type(module).__name__ in LINEAR and id(module) not in ends:
                    hooks.callback(module.register_forward_hook(_detached).remove)
        for module in heads.model.network.modules():
            if type(module).__name__.endswith(NORMS):
                hooks.callback(module.register_forward_hook(_scaled).remove)
        yield


def _detached(_: Any, __: Any, output: torch.Tensor) -> torch.Tensor:
    return output.detach()


def _scaled(module: Any, given: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
    """A norm whose scale is a constant."""
    x = given[0]
    bias: Any = 0
    if isinstance(module, torch.nn.LayerNorm):
        x = x - x.mean(-1, keepdim=True)
        own = read_parameter(module, "bias")
        bias = 0 if own is None else own
    with torch.no_grad():
        scale = torch.where(x == 0, 0, (output - bias) / torch.where(x == 0, 1, x))
    held: torch.Tensor = (x * scale + bias).to(output.dtype)
    return held
