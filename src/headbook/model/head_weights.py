"""Query, key, value and output weights of each head, and their drift between two models.

No architecture is known by name. The linear map whose output equals a head's values holds W_V;
queries and keys are compared at position 0, where rotary positions rotate nothing. A fused map is
read in both usual orders: all queries, then keys, then values; or head by head. If norms with
weights follow the maps, queries and keys are identified by the widths of the remaining maps. The
first map that takes the head outputs holds W_O.

Drift of a head is ||B - A|| / ||A|| (Frobenius) of two products: W_Q W_K^T, which determines its
attention, and W_V W_O, which determines its output. Each of the four matrices alone is arbitrary up
to a transformation that its partner undoes. Drift is 0 if nothing changed; two unrelated models of
equal scale have a drift of about sqrt(2). No data is needed.

Drift ignores biases, positions (rotary ones rotate queries and keys between both maps), and the
scales of norms before and between the maps.

The products are never formed: their rank is at most the head dimension k. For A = U_A V_A^T and
B = U_B V_B^T, the change is B - A = [U_B - U_A, U_A] [V_B, V_B - V_A]^T. Both factors have 2k
columns, and the norm is that of the product of the R factors of their two QR decompositions. No
large numbers are subtracted: equal weights give exactly 0.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import normalize

from headbook.analysis.arrays import Floats
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
    """

    query_key: tuple[WeightRows, WeightRows] | str
    value_output: tuple[WeightRows, str] | str


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
    observer = _WeightObserver(
        model, [architecture.stacks[call.stack].crosses for call in architecture.calls]
    )
    with ExitStack() as hooks:
        for name, module in linear_maps(model.base_model):
            hooks.callback(module.register_forward_hook(observer.linear_hook(name)).remove)
        hooks.enter_context(attention_hook.observing(observer.record_attention))
        hooks.enter_context(model_errors(model))
        hooks.enter_context(torch.inference_mode())
        model.base_model(**varied_texts(model))
    return dict(zip(architecture.calls, observer.found(), strict=True))


class _WeightObserver:
    """Records attention calls and the linear maps between them, in the order of the pass."""

    def __init__(self, model: Model, crosses: Iterable[bool]) -> None:
        self._crosses = iter(crosses)
        self._names = {module: name for name, module in model.base_model.named_modules()}
        self._linear_calls: list[_LinearCall] = []
        self._calls: list[tuple[tuple[WeightRows, WeightRows] | str, WeightRows | str]] = []
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
        prefix = self._names[call.module] + "."
        inner_calls = [
            linear_call for linear_call in self._linear_calls if linear_call.name.startswith(prefix)
        ]
        self._calls.append(_locate_weights(call, inner_calls, crosses=next(self._crosses)))
        self._outputs.append("")
        self._head_outputs, self._linear_calls = call.output.clone(), []

    def found(self) -> Iterator[HeadWeights]:
        """Yield the weights of each call."""
        for (query_key, value), output in zip(self._calls, self._outputs, strict=True):
            if isinstance(value, str):
                yield HeadWeights(query_key, value)
            else:
                yield HeadWeights(query_key, (value, output) if output else NO_OUTPUT_MAP)


def _locate_weights(
    call: attention_hook.AttentionCall, linear_calls: list[_LinearCall], *, crosses: bool
) -> tuple[tuple[WeightRows, WeightRows] | str, WeightRows | str]:
    """Return rows of queries and keys, and of values, or reasons why they are unknown."""
    assert call.query is not None
    assert call.key is not None
    assert call.value is not None
    n_heads = call.query.shape[1], call.key.shape[1]
    at_first_position = [
        linear_call._replace(output=linear_call.output[:, :1]) for linear_call in linear_calls
    ]
    value = _matching(call.value, linear_calls, *n_heads)
    query = _matching(call.query[:, :, :1], at_first_position, *n_heads)
    key = _matching(call.key[:, :, :1], at_first_position, *n_heads)
    if query is None and key is None and value is not None:
        remaining = [linear_call for linear_call in linear_calls if linear_call.name != value.name]
        query, key = _query_key_by_size(call, remaining)
    inputs = {linear_call.name: linear_call.input for linear_call in linear_calls}

    def same_input(first: WeightRows, second: WeightRows) -> bool:
        return crosses or torch.equal(inputs[first.name], inputs[second.name])

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

    Lengths differ by scaling or by norms without weights.

    Args:
        target: queries, keys or values. *Shape:* ``(text, head, token, width)``.
    """
    vectors = target.detach().cpu().double().transpose(1, 2)
    directions, width = normalize(vectors, dim=-1), vectors.shape[-1]
    for linear_call in reversed(linear_calls):
        if not vectors.any() or linear_call.output.shape[:2] != vectors.shape[:2]:
            continue
        for rows in _layouts(
            linear_call.output.shape[-1], vectors.shape[2], width, n_heads, n_key_heads
        ):
            errors = (normalize(linear_call.output[..., rows], dim=-1) - directions).abs()
            if errors.max() <= MAX_DIRECTION_ERROR:
                return WeightRows(linear_call.name, rows)
    return None


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


QUERY_KEY, VALUE_OUTPUT = "weights of queries and keys", "weights of values and outputs"
SHAPES_DIFFER = "the two models differ in shape"


class StackDrift(NamedTuple):
    """Drift of the heads of a stack; NaN if unknown or without a head.

    Attributes:
        query_key: drift of W_Q W_K^T. *Shape:* ``(layer, head)``.
        value_output: drift of W_V W_O. *Shape:* ``(layer, head)``.
    """

    query_key: Floats
    value_output: Floats


class UncomparedWeights(NamedTuple):
    """Weights without drift, with the reason.

    Attributes:
        what: description of the weights.
        stack: name of the stack.
        layers: layers of the stack.
        why: reason why the weights are not compared.
    """

    what: str
    stack: str
    layers: tuple[int, ...]
    why: str


@dataclass(frozen=True, eq=False)
class WeightDrift:
    """Weight drift of all heads.

    Attributes:
        stacks: drift by name of the stack.
        missing: weights whose drift is NaN, with reasons.
    """

    stacks: Mapping[str, StackDrift]
    missing: tuple[UncomparedWeights, ...]


def weight_drift(a: Model, b: Model, architecture: Architecture) -> WeightDrift:
    """Return how far the weights of each head moved from one model to another.

    Args:
        a: first model; runs once, on a few tokens, to locate its weights.
        b: second model with the configuration of ``a``; its weights have the locations of ``a``.
        architecture: architecture of ``a``.

    Raises:
        ModelError: ``a`` does not run.
    """
    shapes = {name: (stack.n_layers, stack.n_heads) for name, stack in architecture.stacks.items()}
    drift_by_stack = {
        name: StackDrift(np.full(shape, np.nan), np.full(shape, np.nan))
        for name, shape in shapes.items()
    }
    missing_layers: dict[tuple[str, str, str], list[int]] = {}
    for call, weights in find_head_weights(a, architecture).items():
        drifts = _query_key_drift(a, b, weights), _value_output_drift(a, b, weights)
        for description, table, drift in zip(
            (QUERY_KEY, VALUE_OUTPUT), drift_by_stack[call.stack], drifts, strict=True
        ):
            if isinstance(drift, str):
                missing_layers.setdefault((description, call.stack, drift), []).append(call.layer)
            else:
                table[call.layer, : len(drift)] = drift
    uncompared = (
        UncomparedWeights(description, stack, tuple(layers), reason)
        for (description, stack, reason), layers in missing_layers.items()
    )
    return WeightDrift(drift_by_stack, tuple(uncompared))


def _query_key_drift(a: Model, b: Model, weights: HeadWeights) -> Floats | str:
    """Return the drift of W_Q W_K^T by head, or the reason why it is unknown."""
    if isinstance(weights.query_key, str):
        return weights.query_key
    query, key = weights.query_key
    queries, keys = _weights_in_both(a, b, query.name), _weights_in_both(a, b, key.name)
    if queries is None or keys is None:
        return SHAPES_DIFFER
    return product_drift(
        [weight[query.rows].mT for weight in queries], [weight[key.rows].mT for weight in keys]
    )


def _value_output_drift(a: Model, b: Model, weights: HeadWeights) -> Floats | str:
    """Return the drift of W_V W_O by head, or the reason why it is unknown."""
    if isinstance(weights.value_output, str):
        return weights.value_output
    value, name = weights.value_output
    outputs, values = _weights_in_both(a, b, name), _weights_in_both(a, b, value.name)
    if outputs is None or values is None:
        return SHAPES_DIFFER
    width = value.rows.shape[1]
    output_heads = [weight.unflatten(1, (-1, width)).transpose(0, 1) for weight in outputs]
    return product_drift(output_heads, [weight[value.rows].mT for weight in values])


def _weights_in_both(a: Model, b: Model, name: str) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return a module's weight in both models, or None if it is missing or shapes differ."""
    try:
        weight_a, weight_b = (
            weight_matrix(model.base_model.get_submodule(name)) for model in (a, b)
        )
    except AttributeError:
        return None
    return (weight_a, weight_b) if weight_a.shape == weight_b.shape else None


def product_drift(left: list[torch.Tensor], right: list[torch.Tensor]) -> Floats:
    """Return the relative change of products, ||L_B R_B^T - L_A R_A^T|| / ||L_A R_A^T||, by head.

    Args:
        left: left factors of both models, in double precision. *Shape:* ``(head, n, k)``.
        right: right factors of both models, in double precision; several consecutive heads may
            share one. *Shape:* ``(key head, m, k)``.

    Returns:
        *Shape:* ``(head,)``; NaN where the first product is 0.
    """
    k, heads_per_key_head = left[0].shape[-1], len(left[0]) // len(right[0])
    left_r = torch.linalg.qr(torch.cat([left[1] - left[0], left[0]], -1), mode="r").R
    right_r = torch.linalg.qr(torch.cat([right[1], right[1] - right[0]], -1), mode="r").R
    right_r = right_r.repeat_interleave(heads_per_key_head, 0)
    change = torch.linalg.matrix_norm(left_r @ right_r.mT)
    right_a = right_r[..., :k] - right_r[..., k:]
    norm = torch.linalg.matrix_norm(left_r[..., k:] @ right_a.mT)
    drift: Floats = torch.where(norm > 0, change / norm, torch.nan).numpy()
    return drift
