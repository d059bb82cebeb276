"""What heads say to the logits themselves: the residual path alone, everything else as it was.

All that follows a head but the residual path is held: what later attention and feed-forward blocks
give, and the scale that norms divide by. So the path is linear, and one backward pass tells what
any change of any head does to the logit of each true token, above the mean of all logits. Where a
masked language-model head transforms states first, it is the slope of that transform.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from headbook.analysis.arithmetic import Floats
from headbook.model import hook
from headbook.model.architecture import Architecture
from headbook.model.capture import inputs
from headbook.model.intervention import Intervened
from headbook.model.vocabulary.judges import Words
from headbook.model.weights.offload import parameter
from headbook.passes.ablation.effects import Ablator, Means
from headbook.passes.ablation.slopes import Watched, beside
from headbook.terms import Replacement
from headbook.text.batch import Batch

LINEAR = {"Linear", "Conv1D"}  # classes that end blocks; the latter is GPT-2's
TABLE = {"Embedding"}
NORMS = ("LayerNorm", "RMSNorm")  # what names of norms end with


def has_direct(heads: Intervened) -> bool:
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


def direct_tokens(ablator: Ablator, batch: Batch, replacement: Replacement, means: Means) -> Floats:
    """Compute the change of each scored token's centred logit by the residual path alone.

    A head's output reaches no logit but that of its own place.

    Returns:
        0 for heads of an encoder whose logits a decoder says, since no such path leads there.
        *Shape:* ``(scored token, head)``.
    """
    judge = ablator.judge
    assert isinstance(judge, Words)
    read = judge.prepared(batch)
    watched = Watched(ablator, read, [replacement], means, held=True)
    with torch.enable_grad(), _held(ablator.heads), hook.watching(watched):
        logits = ablator.heads.model.network(**inputs(read)).logits
        message = judge.centred(batch, logits).sum()
        places = [*watched.added]
        along = torch.autograd.grad(message, [*watched.added.values()], allow_unused=True)
    row, named = judge.scored(batch).T
    query = named - int(judge.mask is None)
    tables = {}
    for call, slope in zip(places, along, strict=True):
        change = watched.change[call, replacement]
        none = slope is None
        tables[call] = (
            change.new_zeros(len(row), change.shape[2]) if none
            else (change * slope).sum(3)[row, query]
        )  # fmt: skip
    return beside(tables)


@contextmanager
def _held(heads: Intervened) -> Iterator[None]:
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
        own = parameter(module, "bias")
        bias = 0 if own is None else own
    with torch.no_grad():
        scale = torch.where(x == 0, 0, (output - bias) / torch.where(x == 0, 1, x))
    held: torch.Tensor = (x * scale + bias).to(output.dtype)
    return held
