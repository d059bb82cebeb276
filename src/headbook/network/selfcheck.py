"""Checks that run in every collection: what was read is what the model computed."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from headbook.measures.flow import blocks, split
from headbook.network import hook
from headbook.network.anatomy import Anatomy, Call, first
from headbook.network.capture import forward, tapped
from headbook.network.embedding import Embedding
from headbook.network.families import Site
from headbook.network.lens import Lens, NoLens
from headbook.network.model import Model
from headbook.network.projection import Projection
from headbook.stored.manifest import Check
from headbook.terms import Side, State
from headbook.text.batch import Batch

ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-4}
COARSE = 0.05  # half precision
ALONE = 4  # sentences run without the hook
ROWS = "rows of attention sum to 1"
PARTS = "other tokens' part + own part + biases = state after attention"
Found = Iterator[tuple[str, str, float]]  # what should hold, in which stack, largest difference


def self_checks(
    model: Model,
    anatomy: Anatomy,
    batch: Batch,
    embeddings: Mapping[Side, Embedding],
    lens: Lens | NoLens,
) -> tuple[Check, ...]:
    """Run every check that applies to a model, on one batch."""
    tolerance = ROUNDING.get(next(model.network.parameters()).dtype, COARSE)
    attention: dict[Call, hook.Attention] = {}
    with _Record(anatomy) as record:
        forward(model, anatomy, batch, attention.__setitem__)
    found: list[tuple[str, str, float]] = [
        *_rows(anatomy, batch, attention),
        *_triangles(anatomy, batch, attention),
        *_blocks(record, attention),
        *_mids(record),
        *_parts(record, attention, anatomy),
        *_starts(model, anatomy, batch, embeddings),
        *_lens(lens, batch),
        ("final output = output of the model without the hook", "", _bare(model, anatomy, batch)),
    ]
    # Many models in float64 still take their softmax, or a norm, in float32.
    single = max(tolerance, ROUNDING[torch.float32])
    return tuple(
        Check(name, stack, error, single if name in {ROWS, PARTS} else tolerance)
        for name, stack, error in found
    )


def _difference(a: torch.Tensor, b: torch.Tensor) -> float:
    """Largest difference, relative to the largest value of ``b``."""
    scale = b.abs().max().clamp_min(torch.finfo(b.dtype).tiny)
    return float((a - b).abs().max() / scale)


def _largest(errors: Iterable[float]) -> float:
    """The largest; NaN, which `max` would pass over, where there is one."""
    return float(torch.tensor([*errors], dtype=torch.float64).max())


def _rows(anatomy: Anatomy, batch: Batch, attention: Mapping[Call, hook.Attention]) -> Found:
    for name, stack in anatomy.stacks.items():
        valid = batch.texts[stack.queries].valid
        sums = [a.weights.sum(-1).movedim(1, -1) for c, a in attention.items() if c.stack == name]
        yield (
            ROWS,
            name,
            _largest(float((each[valid] - 1).abs().max()) for each in sums),
        )


def _triangles(anatomy: Anatomy, batch: Batch, attention: Mapping[Call, hook.Attention]) -> Found:
    for name, stack in anatomy.stacks.items():
        if stack.causal:
            # Rows of padding may see no key at all, and then look everywhere alike.
            valid = batch.texts[stack.queries].valid
            maps = [a.weights.triu(1) for c, a in attention.items() if c.stack == name]
            later = _largest(float(each.movedim(1, -1)[valid].max()) for each in maps)
            yield "no attention to later positions", name, later


class _Record:
    """What the modules around each attention block took and gave in one pass."""

    def __init__(self, anatomy: Anatomy) -> None:
        self.sites: Mapping[str, Site] = {}
        if anatomy.family and anatomy.layers:
            self.sites = {
                s: site for s, site in anatomy.family.sites.items() if s in anatomy.stacks
            }
        self._layers = anatomy.layers
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
            errors.append(_difference(total + bias, block))
        if errors:
            yield "head outputs + bias = attention block output", stack, _largest(errors)


def _mids(record: _Record) -> Found:
    """Block output plus residual, put through the model's own next step."""
    for stack, site in record.sites.items():
        errors = []
        for layer, module in enumerate(record.layers(stack)):
            entered, left = record.of(stack, layer, "")
            residual = record.of(stack, layer, site.residual)[1] if site.residual else entered
            mid = residual + record.of(stack, layer, site.block or site.projection)[1]
            if site.after is None:
                errors.append(_difference(mid + record.of(stack, layer, site.parallel)[1], left))
                continue
            read, given = record.of(stack, layer, site.after)
            with torch.inference_mode():
                step = module.get_submodule(site.after)(mid.reshape(read.shape))
            errors.append(_difference(step, given))
        yield (
            "mid state through the model's own next step = its next state",
            stack,
            _largest(errors),
        )


def _parts(record: _Record, attention: Mapping[Call, hook.Attention], anatomy: Anatomy) -> Found:
    """What tokens bring and what they keep add up to the state after attention, norm included."""
    errors: dict[str, list[float]] = defaultdict(list)
    for (stack, layer), block in blocks(anatomy).items():
        site, call = record.sites[stack], attention[Call(stack, layer)]
        residual = record.of(stack, layer, site.residual)[int(bool(site.residual))]
        state = residual + record.of(stack, layer, site.block or site.projection)[1]
        if site.closed and site.after is not None:
            state = record.of(stack, layer, site.after)[1]
        parts = split(call, residual, block)
        errors[stack].append(_difference(parts.mixed + parts.kept + parts.bias, state))
    for stack, found in errors.items():
        yield PARTS, stack, _largest(found)


def _starts(
    model: Model, anatomy: Anatomy, batch: Batch, embeddings: Mapping[Side, Embedding]
) -> Found:
    """A token's original encoding at its own position is what enters layer 0."""
    entered: dict[str, torch.Tensor] = {}

    def keep(stack: str, _: int, state: State, vectors: torch.Tensor) -> None:
        if state is State.INPUT:
            entered[stack] = vectors

    with tapped(model, anatomy, keep):
        forward(model, anatomy, batch)
    for name, stack in anatomy.stacks.items():
        vocabulary = embeddings[stack.queries].vocabulary
        if name in entered and vocabulary is not None and vocabulary.positions is not None:
            texts = batch.texts[stack.queries]
            own = vocabulary.encode(texts.ids)
            error = _difference(own[texts.valid], entered[name].to(own)[texts.valid])
            yield "original encoding of a token = what enters layer 0", name, error


def _lens(lens: Lens | NoLens, batch: Batch) -> Found:
    """The last layer's output through norm and head gives what the model itself says."""
    if isinstance(lens, Lens):
        one = Batch.of(batch.items[:1], lens.model.device)  # logits of all would be many
        states, own = lens.final(one)[0], lens.model_logits(one)[0]
        error = _difference(lens.logits(states), own)
        yield "last layer through norm and head = the model's logits", lens.stack, error


def _bare(model: Model, anatomy: Anatomy, batch: Batch) -> float:
    """The same pass with the model's own attention.

    Each sentence alone: without padding both passes must agree to the last bit.
    """
    alone = [Batch.of([item], model.device) for item in batch.items[:ALONE]]
    seen = [forward(model, anatomy, each, lambda *_: None)[0] for each in alone]
    hooked = model.network.config._attn_implementation  # noqa: SLF001 - no public name
    model.network.set_attn_implementation("eager")
    try:
        bare = [forward(model, anatomy, each)[0] for each in alone]
    finally:
        model.network.set_attn_implementation(hooked)
    return _largest(_difference(a.float(), b.float()) for a, b in zip(seen, bare, strict=True))
