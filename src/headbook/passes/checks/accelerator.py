"""Comparison of an accelerator with the processor, on a few texts, before a run believes it.

Accelerators have computed wrong numbers without an error: torch before 2.9 on Apple's MPS does
(TransformerLens, pull request 1271). A copy of the model on the processor reads the same texts,
alone and in one padded batch, for a fault may concern masks alone.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from headbook.errors import ModelError
from headbook.model.capture import inputs
from headbook.model.chains import first
from headbook.model.model import Model
from headbook.model.probe import own_code
from headbook.terms import Side
from headbook.text.batch import Batch
from headbook.text.tokens import Encoded

PROCESSOR = torch.device("cpu")
# Largest difference of last states that rounding explains, relative to their length. Sums are taken
# in another order on each device, and every layer passes on what the one before has rounded.
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-3}
COARSE = 0.1  # half precision


def check_accelerator(model: Model, items: Sequence[Encoded]) -> None:
    """Stop if the model gives other states on its device than on the processor.

    A model whose weights are loaded layer by layer (``--offload``) is not checked: it has no copy.

    Args:
        items: short texts of several lengths.

    Raises:
        ModelError: a difference is larger than rounding explains.
    """
    if model.device == PROCESSOR or any(weight.is_meta for weight in model.network.parameters()):
        return
    dtype = next(model.network.parameters()).dtype
    tolerance = TOLERANCES.get(dtype, COARSE)
    pairs = zip(_states(model, items), _states(on_processor(model), items), strict=True)
    for own, known in pairs:
        error = float((own - known).norm() / known.norm())
        if not error <= tolerance:  # nor where it is not a number
            raise ModelError(
                f"device '{model.device}': it computes other numbers than the processor; states of "
                f"the last layer differ by {error:.2g} of their length, and rounding to "
                f"{str(dtype).removeprefix('torch.')} explains {tolerance:g}; expected a device or "
                "a version of torch that computes right, or --device cpu"
            )


def on_processor(model: Model) -> Model:
    """Return a copy of a model whose weights are on the processor, in the same number format."""
    network = copy.deepcopy(model.network).to(PROCESSOR)
    return replace(model, network=network, device=PROCESSOR)


def _states(model: Model, items: Sequence[Encoded]) -> Iterator[torch.Tensor]:
    """Yield the last states of each text: alone, then in one padded batch, without padding."""
    groups = [[item] for item in items] + [[*items]]
    for group in groups:
        batch = Batch.of(group, model.device)
        with own_code(model), torch.inference_mode():
            states = first(model.body(**inputs(batch))).to(PROCESSOR, torch.float64)
        side = Side.TARGET if Side.TARGET in batch.texts else Side.SOURCE
        for row, item in zip(states, group, strict=True):
            yield row[: len(item.tokens[side])]
