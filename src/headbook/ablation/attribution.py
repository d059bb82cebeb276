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

import numpy as np
import torch

from headbook.ablation.ablator import HeadAblator
from headbook.ablation.logit_targets import LogitTargets
from headbook.ablation.replacements import LayerMeans, MeanOutputs, replacement_output
from headbook.ablation.targets import N_DRAWS
from headbook.analysis.arrays import Floats
from headbook.attention.views import ViewMasks
from headbook.model import attention_hook
from headbook.model.architecture import Architecture, AttentionPlace
from headbook.model.devices import read_parameter
from headbook.model.forward import model_inputs
from headbook.model.intervention import PatchableModel
from headbook.model.probe import hidden_states_of
from headbook.schema import AblationTarget, HeadName, Replacement, SinkView
from headbook.text.batch import Batch

EstimateKey = tuple[AblationTarget, Replacement]


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
    estimates: Mapping[EstimateKey, Floats]


class PatchedPass:
    """Observer of a pass with gradients: outputs of each layer, and changes by replacement.

    Args:
        ablator: ablates heads of the model.
        batch: batch of the pass.
        replacements: replacements whose changes are computed.
        means: mean outputs over the sample.
        detached: whether outputs are constants that do not depend on earlier layers.

    Attributes:
        added: zeros added to the outputs, for which gradients are computed, by layer.
        output: head outputs by layer.
        change: replacement minus output, by layer and replacement.
    """

    def __init__(
        self,
        ablator: HeadAblator,
        batch: Batch,
        replacements: Sequence[Replacement],
        means: MeanOutputs,
        *,
        detached: bool = False,
    ) -> None:
        self._replacements, self._means, self._detached = replacements, means, detached
        self._view_masks = ViewMasks(batch, ablator.heads.architecture.stacks)
        self._half = torch.from_numpy(batch.half).to(ablator.heads.model.device)
        self._places = iter(ablator.heads.architecture.calls)
        self.added: dict[AttentionPlace, torch.Tensor] = {}
        self.output: dict[AttentionPlace, torch.Tensor] = {}
        self.change: dict[tuple[AttentionPlace, Replacement], torch.Tensor] = {}

    def __call__(self, attention: attention_hook.AttentionCall) -> torch.Tensor:
        """Add zeros to the head outputs, for which gradients are computed."""
        call, output = next(self._places), attention.output
        assert output is not None
        frame = self._view_masks.get(call.stack, attention)[SinkView.RAW].frame
        valid = frame.queries.valid[..., None, None]
        with torch.no_grad():
            self.output[call] = output * valid
            for replacement in self._replacements:
                layer_means = LayerMeans(
                    self._means.classes[call], self._means.positions[call], self._half
                )
                replaced = replacement_output(attention, frame, replacement, layer_means)
                self.change[call, replacement] = (replaced.to(output) - output) * valid
        self.added[call] = torch.zeros_like(output, requires_grad=True)
        return (output.detach() if self._detached else output) + self.added[call]


def gradient_estimates(
    ablator: HeadAblator,
    batch: Batch,
    replacements: Sequence[Replacement],
    means: MeanOutputs,
    skipped_targets: Collection[AblationTarget] = (),
) -> GradientEstimates:
    """Estimate the effects of ablating each head, by one forward and several backward passes.

    Args:
        ablator: ablates heads of the model.
        batch: batch of the passes.
        replacements: replacements whose effects are estimated.
        means: mean outputs over the sample.
        skipped_targets: targets to skip, which saves backward passes.
    """
    masked = ablator.functions.prepare_batch(batch)
    patched = PatchedPass(ablator, masked, replacements, means)
    gradient: dict[str, Floats] = {}
    estimates_by_target: dict[EstimateKey, Floats] = {}
    with torch.enable_grad():
        model_output, states = _pass(ablator, masked, patched)
        for target in ablator.functions.differentiable(batch, model_output, states):
            if target.target in skipped_targets:
                continue
            grads = torch.autograd.grad(target.value, [*patched.added.values()], retain_graph=True)
            gradients = dict(zip(patched.added, grads, strict=True))
            if not target.squared:
                gradient = _gradient(patched, gradients, masked, batch)
            for replacement in replacements:
                sums = concat_layers(
                    {
                        place: (patched.change[place, replacement] * gradients[place]).sum((1, 3))
                        for place in gradients
                    }
                )
                sums = sums**2 / 2 / N_DRAWS if target.squared else sums
                key, estimates = (target.target, replacement), _by_sentence(sums, masked, batch)
                estimates_by_target[key] = estimates_by_target.get(key, 0) + estimates
    return GradientEstimates(ablator.head_names, gradient, estimates_by_target)


def _by_sentence(table: Floats, prepared: Batch, batch: Batch) -> Floats:
    """Sum the rows of a prepared batch by sentence.

    Args:
        table: numbers of each row. *Shape:* ``(row, head)``.
        prepared: batch after `TargetFunctions.prepare_batch`.
        batch: batch before.

    Returns:
        *Shape:* ``(sentence, head)``.
    """
    if len(prepared.index) == len(batch.index):
        return table
    sums = np.zeros((len(batch.index), table.shape[1]))
    np.add.at(sums, (prepared.index[:, None] == batch.index).argmax(1), table)
    return sums


def _pass(ablator: HeadAblator, batch: Batch, patched: PatchedPass) -> tuple[Any, torch.Tensor]:
    """Run the model and return its output and the states of the last layer."""
    heads = ablator.heads
    outputs: list[torch.Tensor] = []
    last_layer = heads.architecture.layers[heads.read][-1]
    handle = last_layer.register_forward_hook(
        lambda _, __, output: outputs.append(hidden_states_of(output))
    )
    with ExitStack() as hooks:
        hooks.callback(handle.remove)
        hooks.enter_context(attention_hook.observing(patched))
        network = heads.model.network if ablator.functions.needs_lm_head else heads.model.base_model
        model_output = network(**model_inputs(batch))
    return model_output, outputs[-1]


def _gradient(
    patched: PatchedPass,
    gradients: Mapping[AttentionPlace, torch.Tensor],
    prepared: Batch,
    batch: Batch,
) -> dict[str, Floats]:
    """Return products of outputs and gradients, as in `GradientEstimates.gradient`."""
    by_token = {call: (patched.output[call] * gradients[call]).sum(-1) for call in gradients}
    sums = {
        "sentence": {call: products.sum(1) for call, products in by_token.items()},
        "token": {call: products.abs().sum(1) for call, products in by_token.items()},
    }
    return {
        name: _by_sentence(concat_layers(table), prepared, batch) for name, table in sums.items()
    }


def concat_layers(tables: Mapping[AttentionPlace, torch.Tensor]) -> Floats:
    """Concatenate tables of all layers along the heads, sorted by stack, layer and number."""
    calls = sorted(tables, key=lambda call: (call.stack, call.layer))
    concatenated = torch.cat([tables[call].double() for call in calls], 1)
    numbers: Floats = concatenated.cpu().numpy()
    return numbers


LINEAR_CLASSES = {"Linear", "Conv1D"}  # classes of the last module of a block; GPT-2 has Conv1D
EMBEDDING_CLASSES = {"Embedding"}
NORM_SUFFIXES = ("LayerNorm", "RMSNorm")  # endings of the class names of norms


def has_direct_path(heads: PatchableModel) -> bool:
    """Whether all modules beside the residual path can be held constant.

    Blocks are recognised by the linear map at their end. Models with weights of several experts in
    one tensor, and models with an unknown output projection of heads, have no direct path.
    """
    layers = [
        layer for stack_layers in heads.architecture.layers.values() for layer in stack_layers
    ]
    known = {
        id(parameter)
        for layer in layers
        for module in layer.modules()
        if type(module).__name__ in LINEAR_CLASSES | EMBEDDING_CLASSES
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
    masked = functions.prepare_batch(batch)
    patched = PatchedPass(ablator, masked, [replacement], means, detached=True)
    with torch.enable_grad(), _constant_blocks(ablator.heads), attention_hook.observing(patched):
        logits = ablator.heads.model.network(**model_inputs(masked)).logits
        total = functions.centred(batch, logits).sum()
        places = [*patched.added]
        gradients: Sequence[torch.Tensor | None] = torch.autograd.grad(
            total, [*patched.added.values()], allow_unused=True
        )
    row, positions = functions.scored(batch).T
    query = positions - int(functions.mask is None)
    tables = {}
    for call, gradient in zip(places, gradients, strict=True):
        change = patched.change[call, replacement]
        if gradient is None:  # the logits do not depend on this layer's outputs
            tables[call] = change.new_zeros(len(row), change.shape[2])
        else:
            tables[call] = (change * gradient).sum(3)[row, query]
    return concat_layers(tables)


@contextmanager
def _constant_blocks(heads: PatchableModel) -> Iterator[None]:
    """Hold the outputs of blocks and the scales of norms constant."""
    ends = {id(projection.module) for projection in heads.architecture.ends.projections.values()}
    with ExitStack() as hooks:
        for layer in {
            id(layer): layer
            for stack_layers in heads.architecture.layers.values()
            for layer in stack_layers
        }.values():
            for module in layer.modules():
                if type(module).__name__ in LINEAR_CLASSES and id(module) not in ends:
                    hooks.callback(module.register_forward_hook(_detached).remove)
        for module in heads.model.network.modules():
            if type(module).__name__.endswith(NORM_SUFFIXES):
                hooks.callback(module.register_forward_hook(_with_constant_scale).remove)
        yield


def _detached(_: Any, __: Any, output: torch.Tensor) -> torch.Tensor:
    return output.detach()


def _with_constant_scale(
    module: Any, args: tuple[torch.Tensor, ...], output: torch.Tensor
) -> torch.Tensor:
    """Return the output of a norm whose scale is a constant."""
    x = args[0]
    bias: Any = 0
    if isinstance(module, torch.nn.LayerNorm):
        x = x - x.mean(-1, keepdim=True)
        module_bias = read_parameter(module, "bias")
        bias = 0 if module_bias is None else module_bias
    with torch.no_grad():
        scale = torch.where(x == 0, 0, (output - bias) / torch.where(x == 0, 1, x))
    scaled: torch.Tensor = (x * scale + bias).to(output.dtype)
    return scaled
