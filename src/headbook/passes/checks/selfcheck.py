"""Checks that run in every collection: what was read is what the model computed."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch

from headbook.attention.flow import blocks, split
from headbook.model import hook
from headbook.model.architecture import Architecture, Call
from headbook.model.capture import forward, tapped
from headbook.model.chains import first
from headbook.model.families import Site
from headbook.model.model import Model
from headbook.model.projection import Projection
from headbook.model.vocabulary.embedding import Embedding
from headbook.model.vocabulary.lens import Lens, NoLens
from headbook.passes.checks.mapcheck import (
    ALONE,
    APPLIED,
    OWN,
    ROWS,
    WITH_SINK,
    Found,
    as_returned,
    largest,
    nothing_lost,
    relative,
    rows,
    triangles,
)
from headbook.passes.checks.ownattention import eager
from headbook.study.manifest import Check
from headbook.terms import Side, State
from headbook.text.batch import Batch

ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-4}
COARSE = 0.05  # half precision
PARTS = "other tokens' part + own part + biases = state after attention"
LOOSE = {ROWS, WITH_SINK, APPLIED, OWN, PARTS}


def self_checks(
    model: Model,
    architecture: Architecture,
    batch: Batch,
    embeddings: Mapping[Side, Embedding],
    lens: Lens | NoLens,
) -> tuple[Check, ...]:
    """Run every check that applies to a model, on one batch."""
    tolerance = ROUNDING.get(next(model.network.parameters()).dtype, COARSE)
    attention: dict[Call, hook.Attention] = {}
    with _Record(architecture) as record:
        forward(model, architecture, batch, attention.__setitem__)
    found: list[tuple[str, str, float]] = [
        *rows(architecture, batch, attention),
        *nothing_lost(architecture, batch, attention),
        *as_returned(model, architecture, batch, attention),
        *triangles(architecture, batch, attention),
        *_blocks(record, attention),
        *_mids(record),
        *_parts(record, attention, architecture),
        *_starts(model, architecture, batch, embeddings),
        *_lens(lens, batch),
        (
            "final output = output of the model without the hook",
            "",
            _bare(model, architecture, batch),
        ),
    ]
    # Many models in float64 still take their softmax, or a norm, in float32.
    single = max(tolerance, ROUNDING[torch.float32])
    return tuple(
        Check(name, stack, error, single if name in LOOSE else tolerance)
        for name, stack, error in found
    )


class _Record:
    """What the modules around each attention block took and gave in one pass."""

    def __init__(self, architecture: Architecture) -> None:
        self.sites: Mapping[str, Site] = {}
        if architecture.family and architecture.layers:
            self.sites = {
                s: site for s, site in architecture.family.sites.items() if s in architecture.stacks
            }
        self._layers = architecture.layers
        self._calls: dict[torch.nn.Module, list[tuple[torch.Tensor, torch.Tensor]]]
        self._calls = defaultdict(list)
        self._handles: list[Any] = []

    def layers(self, stack: str) -> tuple[torch.nn.Module, ...]:
        """The layers in which a stack's attention stands."""
        return self._layers["decoder" if stack == "cross" else stack]

    def of(self, stack: str, layer: int, path: str) -> tuple[torch.Tensor, torch.Tensor]:
        """What a module inside a layer took and gave; the layer itself for an empty path."""
        layers = self.layers(stack)
        # A module that several layers share was called once for each.
        earlier = layers[:layer].count(layers[layer])
        return self._calls[layers[layer].get_submodule(path)][earlier]

    def __enter__(self) -> "_Record":
        modules = {
            module.get_submodule(path)
            for stack, site in self.sites.items()
            for module in self.layers(stack)
            for path in ("", site.projection, site.block, site.residual, site.after, site.parallel)
            if path is not None
        }
        self._handles = [m.register_forward_hook(self._keep, with_kwargs=True) for m in modules]
        return self

    def _keep(self, module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        taken = args[0] if args else kwargs.get("hidden_states")
        self._calls[module].append((taken, first(output)))

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()


def _blocks(record: _Record, attention: Mapping[Call, hook.Attention]) -> Found:
    """Heads' outputs, each through its own slice of W_O, add up to the projection's output."""
    for stack, site in record.sites.items():
        errors = []
        for layer, module in enumerate(record.layers(stack)):
            call = attention.get(Call(stack, layer))
            if call is None or call.output is None:
                continue
            projection: Any = module.get_submodule(site.projection)
            block = record.of(stack, layer, site.projection)[1]
            slices = Projection(projection).slices(call.output.shape[-1])
            heads = call.output.unbind(2)
            total = sum(o @ w.T for o, w in zip(heads, slices, strict=True))
            bias = 0 if projection.bias is None else projection.bias
            errors.append(relative(total + bias, block))
        if errors:
            yield "head outputs + bias = attention block output", stack, largest(errors)


def _mids(record: _Record) -> Found:
    """Block output plus residual, put through the model's own next step."""
    for stack, site in record.sites.items():
        errors = []
        for layer, module in enumerate(record.layers(stack)):
            entered, left = record.of(stack, layer, "")
            residual = record.of(stack, layer, site.residual)[1] if site.residual else entered
            mid = residual + record.of(stack, layer, site.block or site.projection)[1]
            if site.after is None:
                errors.append(relative(mid + record.of(stack, layer, site.parallel)[1], left))
                continue
            read, given = record.of(stack, layer, site.after)
            with torch.inference_mode():
                step = module.get_submodule(site.after)(mid.reshape(read.shape))
            errors.append(relative(step, given))
        yield (
            "mid state through the model's own next step = its next state",
            stack,
            largest(errors),
        )


def _parts(
    record: _Record, attention: Mapping[Call, hook.Attention], architecture: Architecture
) -> Found:
    """What tokens bring and what they keep add up to the state after attention, norm included."""
    errors: dict[str, list[float]] = defaultdict(list)
    for (stack, layer), block in blocks(architecture).items():
        site, call = record.sites[stack], attention[Call(stack, layer)]
        residual = record.of(stack, layer, site.residual)[int(bool(site.residual))]
        state = residual + record.of(stack, layer, site.block or site.projection)[1]
        if site.closed and site.after is not None:
            state = record.of(stack, layer, site.after)[1]
        parts = split(call, residual, block)
        errors[stack].append(relative(parts.mixed + parts.kept + parts.bias, state))
    for stack, error in errors.items():
        yield PARTS, stack, largest(error)


def _starts(
    model: Model, architecture: Architecture, batch: Batch, embeddings: Mapping[Side, Embedding]
) -> Found:
    """A token's original encoding at its own position is what enters layer 0."""
    entered: dict[str, torch.Tensor] = {}

    def keep(stack: str, _: int, state: State, vectors: torch.Tensor) -> None:
        if state is State.INPUT:
            entered[stack] = vectors

    with tapped(model, architecture, keep):
        forward(model, architecture, batch)
    for name, stack in architecture.stacks.items():
        vocabulary = embeddings[stack.queries].vocabulary
        if name in entered and vocabulary is not None and vocabulary.positions is not None:
            texts = batch.texts[stack.queries]
            own = vocabulary.encode(texts.ids)
            error = relative(own[texts.valid], entered[name].to(own)[texts.valid])
            yield "original encoding of a token = what enters layer 0", name, error


def _lens(lens: Lens | NoLens, batch: Batch) -> Found:
    """The last layer's output through norm and head gives what the model itself says."""
    if isinstance(lens, Lens):
        one = Batch.of(batch.items[:1], lens.model.device)  # logits of all would be many
        states, own = lens.final(one)[0], lens.model_logits(one)[0]
        error = relative(lens.logits(states), own)
        yield "last layer through norm and head = the model's logits", lens.stack, error


def _bare(model: Model, architecture: Architecture, batch: Batch) -> float:
    """The same pass with the model's own attention.

    Each sentence alone: without padding both passes must agree to the last bit.
    """
    alone = [Batch.of([item], model.device) for item in batch.items[:ALONE]]
    seen = [forward(model, architecture, each, lambda *_: None)[0] for each in alone]
    with eager(model, architecture):
        bare = [forward(model, architecture, each)[0] for each in alone]
    return largest(relative(a.float(), b.float()) for a, b in zip(seen, bare, strict=True))
