"""Checks before a run: the device computes as the processor, and attention is the model's own.

Accelerators have computed wrong numbers without an error: torch before 2.9 on Apple's MPS does
(TransformerLens, pull request 1271). A copy of the model on the processor reads the same texts,
alone and in one padded batch, because a fault may concern masks alone.

A few texts go through the model in one padded batch and each alone, both as a run reads attention
and by the model's own eager attention with ``output_attentions``. If these differ, the run reads
attention in another way that agrees, or stops with one line.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from headbook.errors import ModelError
from headbook.model import attention_hook
from headbook.model.architecture import Architecture, AttentionPlace, probe_architecture
from headbook.model.forward import check_shape, model_inputs, returned_attentions, run_forward
from headbook.model.load import Model
from headbook.model.probe import hidden_states_of, model_errors
from headbook.schema import Side
from headbook.text.batch import Batch
from headbook.text.tokens import TokenizedSentence

PROCESSOR = torch.device("cpu")
# Largest difference of last states that rounding explains, relative to their norm. Each device adds
# up in another order, and rounding errors grow from layer to layer. Float64 has more than its own
# rounding, because many norms, rotary positions and softmaxes run in float32 there, too.
TOLERANCES = {torch.float64: 1e-4, torch.float32: 1e-3}
HALF_PRECISION_TOLERANCE = 0.1  # of last states, relative to their norm


def check_accelerator(model: Model, items: Sequence[TokenizedSentence]) -> None:
    """Check that the model gives equal states on its device and on the processor.

    A model whose weights are loaded layer by layer (``--offload``) is not checked: it has no copy.

    Args:
        items: short texts of several lengths.

    Raises:
        ModelError: a difference is larger than rounding explains.
    """
    if model.device == PROCESSOR or any(weight.is_meta for weight in model.network.parameters()):
        return
    dtype = next(model.network.parameters()).dtype
    tolerance = TOLERANCES.get(dtype, HALF_PRECISION_TOLERANCE)
    pairs = zip(_states(model, items), _states(on_processor(model), items), strict=True)
    for device_states, processor_states in pairs:
        error = float((device_states - processor_states).norm() / processor_states.norm())
        if not error <= tolerance:  # true for NaN, too
            raise ModelError(
                f"device '{model.device}': it computes other numbers than the processor; states of "
                f"the last layer differ by {error:.2g} of their length, and rounding to "
                f"{str(dtype).removeprefix('torch.')} explains {tolerance:g}; expected a device or "
                "a version of torch that computes right, or --device cpu"
            )


def on_processor(model: Model) -> Model:
    """Return a copy of a model with its weights on the processor, in the model's number format."""
    network = copy.deepcopy(model.network).to(PROCESSOR)
    return replace(model, network=network, device=PROCESSOR)


def _states(model: Model, items: Sequence[TokenizedSentence]) -> Iterator[torch.Tensor]:
    """Yield the last states of each text: alone, then in one padded batch, without padding."""
    groups = [[item] for item in items] + [[*items]]
    for group in groups:
        batch = Batch.of(group, model.device)
        with model_errors(model), torch.inference_mode():
            states = hidden_states_of(model.base_model(**model_inputs(batch))).to(
                PROCESSOR, torch.float64
            )
        side = Side.TARGET if Side.TARGET in batch.texts else Side.SOURCE
        for row, item in zip(states, group, strict=True):
            yield row[: len(item.tokens[side])]


# Largest difference of attention weights that rounding explains. Models in float64 have the
# tolerance of float32, because many of their softmaxes run in float32.
WEIGHT_TOLERANCE = 1e-4
HALF_PRECISION_WEIGHT_TOLERANCE = 0.05

Weights = dict[AttentionPlace, torch.Tensor]
Seen = dict[AttentionPlace, attention_hook.AttentionCall]


def verify_attention(
    model: Model, architecture: Architecture, items: Sequence[TokenizedSentence]
) -> Architecture:
    """Return the architecture with a way of reading that gives the model's own attention.

    Args:
        items: texts of different lengths, and among them several of one length.

    Raises:
        ModelError: no way of reading gives the model's own attention (with the layer and the
            difference), or an accelerator computes other numbers than the processor.
    """
    check_accelerator(model, items)
    batches = [Batch.of([item], model.device) for item in items]
    alone = [_seen(model, architecture, batch) for batch in batches]
    if architecture.hooked:
        disagreement = _unlike(model, architecture, batches, alone)
        if disagreement:
            architecture = probe_architecture(model, why_not_hook=disagreement)
            alone = [_seen(model, architecture, batch) for batch in batches]
    stacks_with_sink = _learned(model, architecture, alone)
    stacks = {
        name: replace(stack, learned_sink=name in stacks_with_sink)
        for name, stack in architecture.stacks.items()
    }
    architecture = replace(architecture, stacks=stacks)
    # Longer texts never share a batch.
    shared = [i for i, item in enumerate(items) if item.length <= architecture.shared_length]
    if not shared:
        return architecture
    items, alone = [items[i] for i in shared], [alone[i] for i in shared]
    padding_error = _apart(model, architecture, items, alone)
    if not padding_error:
        return architecture
    same_length = [i for i, item in enumerate(items) if item.lengths == items[-1].lengths]
    batch_error = _apart(
        model, architecture, [items[i] for i in same_length], [alone[i] for i in same_length]
    )
    if batch_error:
        raise ModelError(
            f"model '{model.name}': {batch_error}, even without padding; such attention cannot be "
            "read in batches: give one sentence a batch with --batch-tokens 1"
        )
    return replace(architecture, padded=False)


def tolerance(model: Model) -> float:
    """Return the largest difference of attention weights that rounding explains."""
    wide = next(model.network.parameters()).dtype in {torch.float32, torch.float64}
    return WEIGHT_TOLERANCE if wide else HALF_PRECISION_WEIGHT_TOLERANCE


def differences_when_alone(
    architecture: Architecture, batch: Batch, seen: Seen, alone: Sequence[Seen]
) -> Iterator[tuple[AttentionPlace, float]]:
    """Yield the largest difference of weights in a batch from those of each text alone, by layer.

    Args:
        alone: attention of each text of the batch alone, in the order of the batch.
    """
    for call, attention in seen.items():
        stack = architecture.stacks[call.stack]
        queries = batch.texts[stack.queries].valid.sum(1).tolist()
        keys = batch.texts[stack.keys].valid.sum(1).tolist()
        pairs = zip(
            attention.weights,
            (attentions[call].weights[0] for attentions in alone),
            queries,
            keys,
            strict=True,
        )
        yield (
            call,
            max(
                difference(
                    batch_weights[:, :n_queries, :n_keys], alone_weights[:, :n_queries, :n_keys]
                )
                for batch_weights, alone_weights, n_queries, n_keys in pairs
            ),
        )


def read_attention(
    model: Model, architecture: Architecture, batch: Batch
) -> dict[AttentionPlace, attention_hook.AttentionCall]:
    """Run the model and return all attention of a batch, as a run reads it."""
    attentions: dict[AttentionPlace, attention_hook.AttentionCall] = {}
    run_forward(model, architecture, batch, attentions.__setitem__)
    return attentions


@contextmanager
def eager(model: Model, architecture: Architecture) -> Iterator[None]:
    """Switch the model to its own eager attention inside the block."""
    by_hook = architecture.hooked and not architecture.products
    model.network.set_attn_implementation("eager")
    try:
        yield
    finally:
        # Set by name, because parts of a model may each have an implementation of their own.
        if by_hook:
            model.network.set_attn_implementation(attention_hook.NAME)


def eager_attention(model: Model, architecture: Architecture, batch: Batch) -> Weights:
    """Return the model's own eager attention, for the layers where the model returns it."""
    with eager(model, architecture), torch.inference_mode():
        output = model.base_model(**model_inputs(batch), output_attentions=True)
    weights: Weights = {}
    for name in architecture.stacks:
        calls = [call for call in architecture.calls if call.stack == name]
        returned = returned_attentions(output, name)
        if len(returned) == len(calls):
            weights |= dict(zip(calls, returned, strict=True))
    return weights


def _seen(model: Model, architecture: Architecture, batch: Batch) -> Seen:
    """Return the attention of `read_attention`, with errors of the model's code in one line."""
    with model_errors(model):
        attentions = read_attention(model, architecture, batch)
    for call, attention in attentions.items():
        check_shape(model, architecture.stacks[call.stack], call, attention.weights, batch)
    return attentions


def _unlike(
    model: Model, architecture: Architecture, batches: Sequence[Batch], alone: Sequence[Seen]
) -> str:
    """Return why the hook's attention is not the model's own; empty if they agree."""
    for batch, seen in zip(batches, alone, strict=True):
        with model_errors(model):
            returned = eager_attention(model, architecture, batch)
        for call, weights in returned.items():
            if weights.shape != seen[call].weights.shape:
                continue  # the model returns no attention map, but applies one
            error = difference(seen[call].weights, weights)
            if not error <= tolerance(model):
                return (
                    f"in {_place(call)} what transformers' attention interface computes differs "
                    f"by {error:.2g} from what the model returns"
                )
    return ""


def _learned(model: Model, architecture: Architecture, alone: Sequence[Seen]) -> set[str]:
    """Return the stacks whose softmax has a learned sink.

    Raises:
        ModelError: rows do not sum to 1, or the model does not apply the weights to its values.
    """
    stacks, max_error = set(), tolerance(model)
    for call, attention in (pair for seen in alone for pair in seen.items()):
        if not attention.weights.isfinite().all():
            raise ModelError(
                f"model '{model.name}': weights of attention in {_place(call)} are NaN; expected "
                "numbers: check that the model's weights are whole, or try --dtype float32"
            )
        sums = attention.weights.double().sum(-1)
        worst = float(sums.flatten()[(sums - 1).abs().argmax()])
        product, output = applied(attention), attention.output
        contradicts = False
        if product is not None and output is not None:
            contradicts = not difference(product, output) <= max_error * float(
                output.abs().max().clamp(1)
            )
        if contradicts or not float(attention.weights.min()) >= -max_error:
            raise ModelError(_message(model, call, "are not what it applies to its values"))
        if abs(worst - 1) <= max_error:
            continue
        if not (worst < 1 and product is not None):  # the missing mass must contribute nothing
            raise ModelError(_message(model, call, f"add up to {worst:.3g} in a row, not 1"))
        stacks.add(call.stack)
    return stacks


def applied(attention: attention_hook.AttentionCall) -> torch.Tensor | None:
    """Return weights times values; None if values are unknown or are not mixed key by key.

    *Shape:* that of the output.
    """
    weights, value, output = attention.weights, attention.value, attention.output
    if value is None or output is None or value.ndim != 4 or output.ndim != 4:
        return None
    groups = weights.shape[1] // value.shape[1]
    mixed = (weights.to(value.dtype) @ value.repeat_interleave(groups, 1)).transpose(1, 2)
    return mixed if mixed.shape == output.shape else None


def _message(model: Model, call: AttentionPlace, fault: str) -> str:
    return (
        f"model '{model.name}': the weights of attention that '{model.config.model_type}' gives in "
        f"{_place(call)} {fault}; expected the shares of each query's attention, so Headbook "
        "cannot show this model"
    )


def _apart(
    model: Model,
    architecture: Architecture,
    items: Sequence[TokenizedSentence],
    alone: Sequence[Seen],
) -> str:
    """Return how weights in one batch differ from those of each text alone; empty if they agree."""
    batch = Batch.of(items, model.device)
    alone_by_item = {id(item): attentions for item, attentions in zip(items, alone, strict=True)}
    seen = _seen(model, architecture, batch)
    pairs = differences_when_alone(
        architecture, batch, seen, [alone_by_item[id(item)] for item in batch.items]
    )
    for call, error in pairs:
        if not error <= tolerance(model):
            return (
                f"attention in {_place(call)} changes by {error:.2g} with the other sentences of "
                "its batch"
            )
    return ""


def _place(call: AttentionPlace) -> str:
    return f"stack {call.stack}, layer {call.layer}"


def difference(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return the largest difference; infinite if a number is missing on one side."""
    differences = (a.double() - b.double()).abs().nan_to_num(torch.inf)
    return float(differences.max()) if differences.numel() else 0.0
