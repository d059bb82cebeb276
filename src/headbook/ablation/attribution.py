"""Attribution patching and direct logit attribution of all heads, from backward passes.

Attribution patching (Michel et al. 2019) estimates the effect of ablating a head as the gradient of
a target with respect to the head output, times the replacement minus the output.
`headbook.ablation.ablator` measures the exact effects.

Direct logit attribution holds everything after a head except the residual path: the outputs of
later attention and feed-forward blocks, and the scale by which norms divide. The path is then
linear, and one backward pass gives the effect of any change of any head on the logit of each true
token, relative to the mean of all logits. If a masked language-model head transforms states first,
the gradient of the transform is used.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from headbook.ablation.ablator import HeadAblator, LayerMeans, MeanOutputs, replacement_output
from headbook.ablation.targets import DRAWS, LogitTargets
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
    """Estimates of all heads on a batch, summed over scored tokens.

    Attributes:
        heads: all heads, sorted by stack, layer and number.
        gradient: summed products of outputs and gradients of the loss, empty without a loss:
            ``sentence`` over all query tokens, ``token`` of absolute values by query token.
            *Shape:* ``(sentence, head)`` each.
        estimates: estimated changes by target and replacement. *Shape:* ``(sentence, head)`` each.
    """

    heads: tuple[HeadName, ...]
    gradient: Mapping[str, Floats]
    estimates: Mapping[Asked, Floats]


class PatchedPass:
    """Observer of a pass with gradients: outputs of each layer, and changes by replacement.

    Args:
        ablator: ablates heads of the model.
        batch: batch of the pass.
        asked: replacements whose changes are computed.
        means: mean outputs over the sample.
        held: whether outputs are constants that do not depend on earlier layers.

    Attributes:
        added: zeros added to the outputs, for which gradients are computed, by layer.
        output: head outputs by layer.
        change: replacement minus output, by layer and replacement.
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
        """Add zeros to the head outputs, for which gradients are computed."""
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
    """Estimate the effects of ablating each head, by one forward and several backward passes.

    Args:
        ablator: ablates heads of the model.
        batch: batch of the passes.
        asked: replacements whose effects are estimated.
        means: mean outputs over the sample.
        without: targets to skip, which saves backward passes.
    """
    read = ablator.functions.prepare_batch(batch)
    watched = PatchedPass(ablator, read, asked, means)
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
                sums = concat_layers(
                    {p: (watched.change[p, replacement] * along[p]).sum((1, 3)) for p in along}
                )
                rows = sums**2 / 2 / DRAWS if slope.squared else sums
                key = slope.target, replacement
                found[key] = found.get(key, 0) + rows
    return GradientEstimates(ablator.head_names, gradient, found)


def _pass(ablator: HeadAblator, batch: Batch, watched: PatchedPass) -> tuple[Any, torch.Tensor]:
    """Run the model and return its output and the states of the last layer."""
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


def _gradient(
    watched: PatchedPass, along: Mapping[AttentionPlace, torch.Tensor]
) -> dict[str, Floats]:
    """Return products of outputs and gradients, as in `GradientEstimates.gradient`."""
    by_token = {call: (watched.output[call] * along[call]).sum(-1) for call in along}
    return {
        "sentence": concat_layers({call: each.sum(1) for call, each in by_token.items()}),
        "token": concat_layers({call: each.abs().sum(1) for call, each in by_token.items()}),
    }


def concat_layers(tables: Mapping[AttentionPlace, torch.Tensor]) -> Floats:
    """Concatenate tables of all layers along the heads, sorted by stack, layer and number."""
    calls = sorted(tables, key=lambda call: (call.stack, call.layer))
    found = torch.cat([tables[call].double() for call in calls], 1)
    numbers: Floats = found.cpu().numpy()
    return numbers


LINEAR = {"Linear", "Conv1D"}  # classes of the last module of a block; GPT-2 has Conv1D
TABLE = {"Embedding"}
NORMS = ("LayerNorm", "RMSNorm")  # endings of the class names of norms


def has_direct_path(heads: PatchableModel) -> bool:
    """Whether all modules beside the residual path can be held constant.

    Blocks are recognised by the linear map at their end. Models with weights of several experts in
    one tensor, and models with an unknown output projection of heads, have no direct path.
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
    """Whether the output of each head is added to the residual stream and to nothing else."""
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

    The output of a head reaches only the logits at its own position.

    Args:
        ablator: ablates heads of the model.
        batch: batch of the pass.
        replacement: replacement of the head outputs.
        means: mean outputs over the sample.

    Returns:
        The changes; 0 for heads of an encoder if a decoder computes the logits, since no residual
        path leads there. *Shape:* ``(scored token, head)``.
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
    """Hold the outputs of blocks and the scales of norms constant."""
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
    """Return the output of a norm whose scale is a constant."""
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
