"""Query, key, value and output weights of each head, and their drift between two models.

No architecture is known by name. The linear map whose output equals a head's values holds W_V;
queries and keys are compared at position 0, where rotary positions rotate nothing. A fused map is
read in both usual orders: all queries, then keys, then values; or head by head. If norms with
weights follow the maps, queries and keys are identified by the widths of the remaining maps. A
layer may take keys and values of an earlier layer (Gemma 3n and 4): W_K and W_V are then those of
that layer. The first map that takes the head outputs holds W_O.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch.nn.functional import normalize

from headbook.model import attention_hook
from headbook.model.architecture import Architecture, AttentionPlace
from headbook.model.load import Model
from headbook.model.output_projection import linear_maps, matrix
from headbook.model.probe import hidden_states_of, model_errors, varied_texts

MAX_DIRECTION_ERROR = 0.02  # difference of unit vectors that rounding to half precision explains
NO_MAP = "no linear map gives them as attention takes them"
NO_OUTPUT_MAP = "what heads give does not go into a linear map as it is"
STATES_DIFFER = "they are not linear maps of the same states"


class WeightRows(NamedTuple):
    """Rows of a linear map's weight that belong to heads.

    Attributes:
        name: name of the module in the base model.
        rows: row indices of each head. *Shape:* ``(head, width)``.
    """

    name: str
    rows: torch.Tensor


@dataclass(frozen=True)
class HeadWeights:
    """Weights of the heads of one attention call.

    Attributes:
        query_key: rows of W_Q and W_K; or the reason why they are unknown.
        value_output: rows of W_V and the name of the module of W_O; or the reason why they are
            unknown.
        source: earlier attention call whose keys and values this one takes; None if it has its own.
    """

    query_key: tuple[WeightRows, WeightRows] | str
    value_output: tuple[WeightRows, str] | str
    source: AttentionPlace | None = None


class _LinearCall(NamedTuple):
    """A call of a linear map.

    Attributes:
        name: name of the module in the base model.
        input, output: vectors of the tokens. *Shape:* ``(text, token, width)``.
    """

    name: str
    input: torch.Tensor
    output: torch.Tensor


def weight_matrix(module: Any) -> torch.Tensor:
    """Return a linear map's weight in double precision on the CPU. *Shape:* ``(out, in)``."""
    return matrix(module).cpu().double()


def find_head_weights(
    model: Model, architecture: Architecture
) -> dict[AttentionPlace, HeadWeights]:
    """Find the weights of all heads, by attention call.

    Raises:
        ModelError: the model does not run.
    """
    if not architecture.hooked:
        unknown = HeadWeights(architecture.unhooked, architecture.unhooked)
        return dict.fromkeys(architecture.calls, unknown)
    observer = _WeightObserver(model, architecture)
    with ExitStack() as hooks:
        for name, module in linear_maps(model.base_model):
            hooks.callback(module.register_forward_hook(observer.linear_hook(name)).remove)
        hooks.enter_context(attention_hook.observing(observer.record_attention))
        hooks.enter_context(model_errors(model))
        hooks.enter_context(torch.inference_mode())
        model.base_model(**varied_texts(model))
    return dict(zip(architecture.calls, observer.found(), strict=True))


class _Located(NamedTuple):
    """An attention call with the rows of its weights.

    Attributes:
        call: the attention call.
        query, key, value: rows; None if unknown.
        inputs: states that each linear map reads, by name.
        source: number of the earlier call whose keys and values this one takes, or None.
    """

    call: attention_hook.AttentionCall
    query: WeightRows | None
    key: WeightRows | None
    value: WeightRows | None
    inputs: Mapping[str, torch.Tensor]
    source: int | None = None


class _WeightObserver:
    """Records attention calls and the linear maps between them, in the order of the pass."""

    def __init__(self, model: Model, architecture: Architecture) -> None:
        self._places, self._stacks = architecture.calls, architecture.stacks
        self._names = {module: name for name, module in model.base_model.named_modules()}
        self._linear_calls: list[_LinearCall] = []
        self._calls: list[_Located] = []
        self._outputs: list[str] = []
        self._head_outputs: torch.Tensor | None = None

    def linear_hook(self, name: str) -> Any:
        """Return a forward hook for one linear map."""

        def record(_: Any, args: tuple[Any, ...], result: Any) -> None:
            output = hidden_states_of(result)
            if not args or output.ndim != 3:
                return
            states = args[0].detach()
            if self._head_outputs is not None and self._outputs[-1] == "":
                same_size = states.numel() == self._head_outputs.numel()
                if same_size and torch.equal(states.reshape(-1), self._head_outputs.reshape(-1)):
                    self._outputs[-1] = name
            self._linear_calls.append(
                _LinearCall(name, states.cpu().double(), output.detach().cpu().double())
            )

        return record

    def record_attention(self, call: attention_hook.AttentionCall) -> None:
        """Record one attention call."""
        assert call.module is not None
        assert call.output is not None
        assert call.query is not None
        assert call.key is not None
        prefix = self._names[call.module] + "."
        # Maps of vectors of positions have other sizes: they read no text.
        sizes = {(len(call.query), vectors.shape[2]) for vectors in (call.query, call.key)}
        inner_calls = [
            linear_call
            for linear_call in self._linear_calls
            if linear_call.name.startswith(prefix) and (*linear_call.output.shape[:2],) in sizes
        ]
        self._calls.append(_locate_weights(call, inner_calls, self._calls))
        self._outputs.append("")
        self._head_outputs, self._linear_calls = call.output.clone(), []

    def found(self) -> Iterator[HeadWeights]:
        """Yield the weights of each call."""
        for place, located, output in zip(self._places, self._calls, self._outputs, strict=True):
            query_key, value = _of_same_states(located, crosses=self._stacks[place.stack].crosses)
            source = None if located.source is None else self._places[located.source]
            if isinstance(value, str):
                yield HeadWeights(query_key, value, source)
            else:
                yield HeadWeights(query_key, (value, output) if output else NO_OUTPUT_MAP, source)


def _locate_weights(
    call: attention_hook.AttentionCall, linear_calls: list[_LinearCall], earlier: Sequence[_Located]
) -> _Located:
    """Return an attention call with the rows of queries, keys and values.

    Args:
        linear_calls: calls of the linear maps in its module.
        earlier: earlier attention calls of the pass.
    """
    assert call.query is not None
    assert call.key is not None
    assert call.value is not None
    # Copies, since a model may change its tensors in place.
    kept = replace(call, key=call.key.clone(), value=call.value.clone())
    inputs = {linear_call.name: linear_call.input for linear_call in linear_calls}
    n_heads = call.query.shape[1], call.key.shape[1]
    at_first_position = [
        linear_call._replace(output=linear_call.output[:, :1]) for linear_call in linear_calls
    ]
    query = _matching(call.query[:, :, :1], at_first_position, *n_heads)
    source = _source_of(call, earlier)
    if source is not None:
        found = earlier[source]
        if query is None:
            query = _query_by_size(call, linear_calls)
        return _Located(kept, query, found.key, found.value, {**inputs, **found.inputs}, source)
    value = _matching(call.value, linear_calls, *n_heads)
    key = _matching(call.key[:, :, :1], at_first_position, *n_heads)
    if query is None and key is None and value is not None:
        remaining = [linear_call for linear_call in linear_calls if linear_call.name != value.name]
        query, key = _query_key_by_size(call, remaining)
        # Without another map, keys are what values are before their norms.
        if query is None and (query := _query_by_size(call, remaining)) is not None:
            key = value
    return _Located(kept, query, key, value, inputs)


def _source_of(call: attention_hook.AttentionCall, earlier: Sequence[_Located]) -> int | None:
    """Return the number of the first call with the same keys and values, or None."""
    for number, located in enumerate(earlier):
        pairs = (call.key, located.call.key), (call.value, located.call.value)
        if all(
            vectors is not None and others is not None and torch.equal(vectors, others)
            for vectors, others in pairs
        ):
            return number
    return None


def _of_same_states(
    located: _Located, *, crosses: bool
) -> tuple[tuple[WeightRows, WeightRows] | str, WeightRows | str]:
    """Return rows of queries and keys, and of values, or reasons why they are unknown."""
    query, key, value, inputs = located.query, located.key, located.value, located.inputs

    def same_input(first: WeightRows, second: WeightRows) -> bool:
        may_differ = crosses or located.source is not None
        return may_differ or torch.equal(inputs[first.name], inputs[second.name])

    query_key: tuple[WeightRows, WeightRows] | str = NO_MAP
    if query is not None and key is not None:
        query_key = (query, key) if same_input(query, key) else STATES_DIFFER
    if value is None:
        return query_key, NO_MAP
    return query_key, value if query is None or same_input(query, value) else STATES_DIFFER


def _matching(
    target: torch.Tensor, linear_calls: list[_LinearCall], n_heads: int, n_key_heads: int
) -> WeightRows | None:
    """Return the rows of a linear map whose output equals attention's input up to length, or None.

    Lengths differ by scaling or by norms without weights. A bias may be added outside the map.

    Args:
        target: queries, keys or values. *Shape:* ``(text, head, token, width)``.
    """
    vectors = target.detach().cpu().double().transpose(1, 2)
    width = vectors.shape[-1]
    for linear_call in reversed(linear_calls):
        if not vectors.any() or linear_call.output.shape[:2] != vectors.shape[:2]:
            continue
        for rows in _layouts(
            linear_call.output.shape[-1], vectors.shape[2], width, n_heads, n_key_heads
        ):
            if (
                direction_errors(linear_call.output[..., rows], vectors).max()
                <= MAX_DIRECTION_ERROR
            ):
                return WeightRows(linear_call.name, rows)
    return None


def direction_errors(mapped: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    """Return the differences of directions, of vectors or of their differences from the first text.

    The latter do not change if one vector is added everywhere.

    Args:
        mapped: part of a linear map's output. *Shape:* ``(text, token, head, width)``.
        vectors: queries, keys or values of the same shape.

    Returns:
        The smaller of the two errors of each token, over its text and heads. *Shape:* ``(token,)``.
    """
    errors = _direction_errors(mapped, vectors)
    if len(vectors) < 2:
        return errors
    moved, moves = mapped[1:] - mapped[:1], vectors[1:] - vectors[:1]
    has_moves = moves.any(-1).all(-1).all(0)
    of_moves = _direction_errors(moved, moves).masked_fill(~has_moves, torch.inf)
    return torch.minimum(errors, of_moves)


def _direction_errors(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (normalize(a, dim=-1) - normalize(b, dim=-1)).abs().amax((0, 2, 3))


def _layouts(
    n_rows: int, n_vectors: int, width: int, n_heads: int, n_key_heads: int
) -> Iterator[torch.Tensor]:
    """Yield rows in which vectors of heads may be stored. *Shape:* ``(head, width)`` each.

    Args:
        n_rows: number of rows of the map.
        n_vectors: number of heads with rows: all heads or key heads.
    """
    columns = torch.arange(width)
    for start in range(0, n_rows - n_vectors * width + 1, width):
        yield start + torch.arange(n_vectors)[:, None] * width + columns
    if n_heads == n_key_heads and n_rows == 3 * n_heads * width:
        for part in range(3):
            yield (3 * torch.arange(n_heads)[:, None] + part) * width + columns


def _query_by_size(
    call: attention_hook.AttentionCall, linear_calls: list[_LinearCall]
) -> WeightRows | None:
    """Return rows of queries if there is one map, and it has their width; else None."""
    assert call.query is not None
    n_heads, width = call.query.shape[1], call.query.shape[3]
    if [linear_call.output.shape[-1] for linear_call in linear_calls] != [n_heads * width]:
        return None
    return WeightRows(linear_calls[0].name, torch.arange(n_heads * width).view(n_heads, width))


def _query_key_by_size(
    call: attention_hook.AttentionCall, other_calls: list[_LinearCall]
) -> tuple[WeightRows | None, WeightRows | None]:
    """Return rows of queries and keys by the widths of the only two remaining maps."""
    assert call.query is not None
    assert call.key is not None
    shapes = [(vectors.shape[1], vectors.shape[3]) for vectors in (call.query, call.key)]
    output_widths = [n_heads * width for n_heads, width in shapes]
    if sorted(linear_call.output.shape[-1] for linear_call in other_calls) != sorted(output_widths):
        return None, None
    query_key_calls = (
        other_calls if other_calls[0].output.shape[-1] == output_widths[0] else other_calls[::-1]
    )
    query, key = (
        WeightRows(linear_call.name, torch.arange(n_heads * width).view(n_heads, width))
        for linear_call, (n_heads, width) in zip(query_key_calls, shapes, strict=True)
    )
    return query, key
