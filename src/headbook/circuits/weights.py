r"""Weights of the heads of a stack as thin factors, in the coordinates of the residual stream.

With rows as vectors, a query is x W_Q and the output of a head is z W_O. The gain of the norm
before attention is folded into W_Q, W_K and W_V, with its centring; its scale, one number for each
token, is dropped. W_QK = W_Q W_K^T and W_OV = W_V W_O are never formed. Elhage et al. (2021), A
Mathematical Framework for Transformer Circuits.

Biases are left out: they add one vector, whatever a head reads.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from headbook.circuits.unembedding import (
    POST_NORM,
    Norm,
    RecordedCall,
    Unembedding,
    find_unembedding,
    read_norm,
    record_calls,
)
from headbook.model import attention_hook
from headbook.model.architecture import Architecture, AttentionPlace
from headbook.model.head_weights import (
    MAX_DIRECTION_ERROR,
    HeadWeights,
    WeightRows,
    direction_errors,
    find_head_weights,
)
from headbook.model.load import Model
from headbook.model.logit_lens import LogitLens, NoLogitLens
from headbook.model.output_projection import matrix
from headbook.model.probe import hidden_states_of, model_errors, some_token, varied_texts
from headbook.model.tokenizer import ordinary_and_added
from headbook.model.tokens.languages import decoder_start
from headbook.model.tokens.special import start_token
from headbook.text.batch import Batch

MAX_BATCH_TOKENS = 2048  # tokens of a pass over single tokens
ENCODER_HEADS = (
    "heads of an encoder reach the logits only through cross-attention of the decoder: they have "
    "no direct contribution"
)
GATED = "a gate or norm multiplies the outputs of heads before the output projection"
OTHER_INPUT = "heads read neither the residual stream nor a norm of it"
OUTPUT_NORM = (
    "approximate: scales between heads' output projection and residual stream are left out"
)
ROTARY = "positions turn queries and keys: products of both are taken at distance 0"
POSITIONS = "approximate: parts of scores that compare tokens with positions are left out"
HEAD_NORM = "approximate: norms of queries and keys are left out"


class NoCircuitWeights(NamedTuple):
    """Reason why the weights of a stack cannot be read as parts of its logits."""

    why: str


class LayerFactors(NamedTuple):
    """Thin factors of the heads of one layer, in float32; key heads repeated for query heads.

    Attributes:
        query, key, value: *Shape:* ``(head, width, head width)``.
        output: *Shape:* ``(head, head width, width)``.
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    output: torch.Tensor


class LayerMaps(NamedTuple):
    """Places of the weights of one layer.

    Attributes:
        query, key, value: rows of linear maps.
        output: name of the module of the output projection in the base model.
        factor: factor of the block's output in the residual stream.
        query_norm, value_norm: norms whose outputs the maps read; None if they read the residual
            stream itself.
        output_norm: norm of the block's output before it is added to the residual stream, whose
            gain is folded into W_O; None without one.
        source: layer whose residual stream keys and values come from: the layer itself, or an
            earlier one.
    """

    query: WeightRows
    key: WeightRows
    value: WeightRows
    output: str
    factor: float
    query_norm: Norm | None
    value_norm: Norm | None
    output_norm: Norm | None
    source: int


@dataclass(frozen=True, eq=False)
class StackWeights:
    """Weights of the heads of one stack, and the unembedding of its residual stream.

    Attributes:
        model, architecture: the model.
        stack: name of the stack.
        layers: places of the weights by layer, for layers with attention.
        unembedding: the unembedding.
        remarks: what is approximate, one sentence each.
    """

    model: Model
    architecture: Architecture
    stack: str
    layers: Mapping[int, LayerMaps]
    unembedding: Unembedding
    remarks: tuple[str, ...] = ()

    @property
    def crosses(self) -> bool:
        """Whether keys and values come from another text."""
        return self.architecture.stacks[self.stack].crosses

    def factors(self, layer: int) -> LayerFactors:
        """Return the factors of a layer, computed from the model's weights."""
        maps = self.layers[layer]
        norms = maps.query_norm, maps.value_norm, maps.value_norm
        n_heads = len(maps.query.rows)
        inputs = []
        for rows, norm in zip((maps.query, maps.key, maps.value), norms, strict=True):
            weight = self._matrix(rows.name)[rows.rows].mT
            folded = weight if norm is None else norm.fold(weight)
            inputs.append(folded.repeat_interleave(n_heads // len(rows.rows), 0))
        query, key, value = inputs
        width = maps.value.rows.shape[1]
        output = self._matrix(maps.output).T.unflatten(0, (-1, width)) * maps.factor
        if maps.output_norm is not None:
            output = maps.output_norm.fold_behind(output)
        return LayerFactors(query, key, value, output)

    def _matrix(self, name: str) -> torch.Tensor:
        return matrix(self.model.base_model.get_submodule(name)).cpu().float()

    def read_states(self, layer: int, states: torch.Tensor) -> torch.Tensor:
        """Return states as the values of a layer read them, gain left to the factors."""
        norm = self.layers[layer].value_norm
        return states if norm is None else norm.direction(states)

    def token_states(self, ids: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what heads of layer 0, and of later layers, can read of single tokens.

        Each token is run alone: after the start token, if the model has one, and between the
        special tokens of encoders.

        Returns:
            The residual stream that enters layer 0, and that after layer 0; for cross-attention
            both are the encoder's output. *Shape:* ``(token, width)`` each.
        """
        prefix, suffix = _surroundings(self.model, self.stack, causal=self._causal)
        n_tokens = len(prefix) + 1 + len(suffix)
        parts = []
        for some_ids in torch.tensor(ids).split(max(1, MAX_BATCH_TOKENS // n_tokens)):
            columns = [*prefix, some_ids, *suffix]
            rows = [torch.as_tensor(column).expand(len(some_ids)) for column in columns]
            parts.append(self._token_states(torch.stack(rows, 1), len(prefix)))
        entering, after = zip(*parts, strict=True)
        return torch.cat(entering), torch.cat(after)

    @property
    def _causal(self) -> bool:
        return not self.crosses and self.architecture.stacks[self.stack].causal

    def _token_states(self, ids: torch.Tensor, position: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Run a batch of single tokens through layer 0, or through the encoder."""
        seen: list[torch.Tensor] = []

        def enter(_: Any, args: Any, kwargs: Any) -> None:
            states = args[0] if args else kwargs["hidden_states"]
            seen.append(states[:, position].detach().clone())
            if self.crosses:
                raise _Done

        def leave(_: Any, __: Any, output: Any) -> None:
            seen.append(hidden_states_of(output)[:, position].detach().clone())
            raise _Done

        with ExitStack() as hooks, torch.inference_mode():
            if self.crosses:
                values = self.layers[min(self.layers)].value.name
                module = self.model.base_model.get_submodule(values)
            else:
                module = self.architecture.layers[self.stack][0]
                hooks.callback(module.register_forward_hook(leave).remove)
            handle = module.register_forward_pre_hook(enter, with_kwargs=True)
            hooks.callback(handle.remove)
            hooks.enter_context(model_errors(self.model))
            hooks.enter_context(suppress(_Done))
            self.model.base_model(**self._inputs(ids))
        return seen[0].float().cpu(), seen[-1].float().cpu()

    def _inputs(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the model's arguments for tokens on this stack's side of keys."""
        ids = ids.to(self.model.device)
        if not self.model.config.is_encoder_decoder:
            return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        start = torch.full_like(ids[:, :1], start_token(self.model))
        if self.crosses:
            return {"input_ids": ids, "decoder_input_ids": start}
        empty = torch.full_like(ids[:, :1], some_token(self.model))
        return {"input_ids": empty, "decoder_input_ids": ids}


class _Done(Exception):  # noqa: N818 - a signal, not a failure; hooks of modules still run
    """Ends a pass; no error, so that nothing explains it as one."""


def _surroundings(model: Model, stack: str, *, causal: bool) -> tuple[list[int], list[int]]:
    """Return the special tokens before and after a single token."""
    if stack == "decoder":
        return decoder_start(model), []
    _, prefix, suffix = ordinary_and_added(model)
    if not causal:
        return prefix, suffix
    start = model.tokenizer.bos_token_id
    return prefix or ([] if start is None else [start]), []


def find_circuit_weights(
    model: Model, architecture: Architecture, lens: LogitLens | NoLogitLens, batch: Batch
) -> dict[str, StackWeights | NoCircuitWeights]:
    """Return the weights of each stack, or the reason why they are not available.

    Args:
        batch: some sentences, at whose states transforms of masked language models are linearised.

    Raises:
        ModelError: the model does not run.
    """
    if isinstance(lens, NoLogitLens):
        return {name: NoCircuitWeights(lens.why) for name in architecture.stacks}
    if not architecture.hooked:
        return {name: NoCircuitWeights(architecture.unhooked) for name in architecture.stacks}
    states = lens.final_states(batch)[batch.texts[architecture.stacks[lens.stack].queries].valid]
    unembedding = find_unembedding(lens, states)
    if isinstance(unembedding, str):
        why = f"the language-model head of '{model.config.model_type}' is not linear: {unembedding}"
        return {name: NoCircuitWeights(why) for name in architecture.stacks}
    probe = _Probe(model, architecture)
    found: dict[str, StackWeights | NoCircuitWeights] = {}
    for name in architecture.stacks:
        layers = probe.maps(name)
        if name == "encoder":
            found[name] = NoCircuitWeights(ENCODER_HEADS)
        elif isinstance(layers, str):
            found[name] = NoCircuitWeights(layers)
        else:
            remarks = {unembedding.remark: None, **probe.remarks(name, layers)}
            remarks.pop("", None)
            found[name] = StackWeights(
                model, architecture, name, layers, unembedding, tuple(remarks)
            )
    return found


class _Probe:
    """One pass over a few tokens with the calls of all modules."""

    def __init__(self, model: Model, architecture: Architecture) -> None:
        self.model, self.architecture = model, architecture
        self.weights = find_head_weights(model, architecture)
        attention: list[attention_hook.AttentionCall] = []
        with attention_hook.observing(attention.append), model_errors(model):
            self.calls, _ = record_calls(
                model.base_model, lambda: model.base_model(**varied_texts(model))
            )
        self.attention = dict(zip(architecture.calls, attention, strict=True))
        self.norms: dict[torch.nn.Module, Norm | None] = {}

    def maps(self, stack: str) -> dict[int, LayerMaps] | str:
        """Return the places of a stack's weights by layer, or the reason why one is unknown."""
        found = {}
        for place, weights in self.weights.items():
            if place.stack == stack:
                maps = self._layer(place, weights)
                if isinstance(maps, str):
                    return maps
                found[place.layer] = maps
        return found

    def _layer(self, place: AttentionPlace, weights: HeadWeights) -> LayerMaps | str:
        if isinstance(weights.query_key, str):
            return weights.query_key
        if isinstance(weights.value_output, str):
            return weights.value_output
        key = place.stack, place.layer
        projection = self.architecture.ends.projections.get(key)
        if projection is not None and projection.gated:
            return GATED
        (query, key_rows), (value, output) = weights.query_key, weights.value_output
        source = weights.source or place
        if why := self._other_width(place, (query,) if place.stack == "cross" else (query, value)):
            return why
        norms: list[Norm | None] = []
        for reader, rows in ((place, query), (source, value)):
            norm = self._norm_before(reader, rows)
            if isinstance(norm, str):
                return norm
            norms.append(norm)
        site = self.architecture.ends.sites.get(key)
        factor = 1.0 if site is None else site.scale
        block = None if site is None else self._norm_behind(place, output, site.block)
        return LayerMaps(
            query, key_rows, value, output, factor, norms[0], norms[1], block, source.layer
        )

    def _other_width(self, place: AttentionPlace, read: Iterable[WeightRows]) -> str:
        """Return which linear map reads vectors of another width than the stream's, or ""."""
        layer = self._module(place)
        width = next(call.input.shape[-1] for call in self.calls if call.module is layer)
        for name in (rows.name for rows in read):
            own = self._called(name)[0].input.shape[-1]
            if own != width:
                return f"'{name}' reads vectors of {own} numbers, the residual stream has {width}"
        return ""

    def _module(self, place: AttentionPlace) -> torch.nn.Module:
        """Return the layer with an attention call."""
        side = "decoder" if place.stack == "cross" else place.stack
        return self.architecture.layers[side][place.layer]

    def _called(self, name: str) -> list[RecordedCall]:
        module = self.model.base_model.get_submodule(name)
        return [call for call in self.calls if call.module is module]

    def _norm_before(self, place: AttentionPlace, rows: WeightRows) -> Norm | str | None:
        """Return the norm whose output a linear map reads, or None without one; or a reason."""
        read = self._called(rows.name)[0].input
        if any(torch.equal(read, stream) for stream in self._streams(place, rows)):
            return None
        for call in self.calls:
            if torch.equal(call.output, read) and not torch.equal(call.input, read):
                if call.module not in self.norms:
                    self.norms[call.module] = read_norm(call.module, read.shape[-1])
                if (norm := self.norms[call.module]) is not None:
                    return norm
        return OTHER_INPUT

    def _norm_behind(self, place: AttentionPlace, output: str, block: str) -> Norm | None:
        """Return the norm between the output projection and the residual stream, if any."""
        module = self._module(place).get_submodule(block)
        projected = self._called(output)[0].output
        reads = any(
            call.module is module and torch.equal(call.input, projected) for call in self.calls
        )
        return read_norm(module, projected.shape[-1]) if reads else None

    def _streams(self, place: AttentionPlace, rows: WeightRows) -> Iterator[torch.Tensor]:
        """Yield the states that count as residual stream of a block.

        For keys and values of cross-attention, the encoder's output counts.
        """
        layer = self._module(place)
        yield from (call.input for call in self.calls if call.module is layer)
        maps = self.weights[place].query_key
        if place.stack == "cross" and not isinstance(maps, str) and rows.name != maps[0].name:
            yield self._called(rows.name)[0].input
        site = self.architecture.ends.sites.get((place.stack, place.layer))
        if site is not None and site.residual:
            module = layer.get_submodule(site.residual)
            for call in self.calls:
                if call.module is module:
                    yield call.input if site.enters else call.output

    def remarks(self, stack: str, layers: Mapping[int, LayerMaps]) -> dict[str, None]:
        """Return what is approximate in a stack, in the order of importance."""
        found: dict[str, None] = {}
        crosses = self.architecture.stacks[stack].crosses
        if any(self.attention[AttentionPlace(stack, layer)].positions for layer in layers):
            found[POSITIONS] = None
        if taking := [str(layer) for layer, maps in layers.items() if maps.source != layer]:
            found[f"layers {', '.join(taking)} take the keys and values of an earlier layer"] = None
        for layer, maps in layers.items():
            site = self.architecture.ends.sites.get((stack, layer))
            if site is None or site.closed is not False:
                found[POST_NORM] = None
            normed = maps.output_norm is not None
            if site is None or normed or not site.straight or site.weights is not None:
                found[OUTPUT_NORM] = None
            if not crosses:
                found.update(self._turned(AttentionPlace(stack, layer), maps))
        return found

    def _turned(self, place: AttentionPlace, maps: LayerMaps) -> dict[str, None]:
        """Return remarks on what happens to queries between their map and attention."""
        query = self.attention[place].query
        assert query is not None
        vectors = query.detach().cpu().double().transpose(1, 2)
        mapped = [
            call.output.cpu().double()[:, maps.query.rows].view(vectors.shape)
            for call in self._called(maps.query.name)
            if len(call.output) == vectors.shape[0] * vectors.shape[1]
        ]
        errors = [direction_errors(states, vectors) for states in mapped]
        if any(error.max() <= MAX_DIRECTION_ERROR for error in errors):
            return {}
        starts = any(error[0] <= MAX_DIRECTION_ERROR for error in errors)
        return {ROTARY: None} if starts else {HEAD_NORM: None, ROTARY: None}
