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
from headbook.model.output_projection import is_linear, matrix
from headbook.model.probe import hidden_states_of, model_errors, varied_texts

SAME = 0.02  # difference of unit vectors, due to rounding in half precision
NO_MAP = "no linear map gives them as attention takes them"
NO_OUTPUT = "what heads give does not go into a linear map as it is"
NOT_STATES = "they are not linear maps of the same states"


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
        nothing = HeadWeights(architecture.unhooked, architecture.unhooked)
        return dict.fromkeys(architecture.calls, nothing)
    observer = _WeightObserver(
        model, [architecture.stacks[call.stack].crosses for call in architecture.calls]
    )
    with ExitStack() as around:
        for name, module in model.base_model.named_modules():
            if is_linear(module):
                around.callback(module.register_forward_hook(observer.linear_hook(name)).remove)
        around.enter_context(attention_hook.observing(observer.record_attention))
        around.enter_context(model_errors(model))
        around.enter_context(torch.inference_mode())
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
                same = states.numel() == self._head_outputs.numel()
                if same and torch.equal(states.reshape(-1), self._head_outputs.reshape(-1)):
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
        inside = [each for each in self._linear_calls if each.name.startswith(prefix)]
        self._calls.append(_locate_weights(call, inside, crosses=next(self._crosses)))
        self._outputs.append("")
        self._head_outputs, self._linear_calls = call.output.clone(), []

    def found(self) -> Iterator[HeadWeights]:
        """Yield the weights of each call."""
        for (query_key, value), output in zip(self._calls, self._outputs, strict=True):
            if isinstance(value, str):
                yield HeadWeights(query_key, value)
            else:
                yield HeadWeights(query_key, (value, output) if output else NO_OUTPUT)


def _locate_weights(
    call: attention_hook.AttentionCall, linear_calls: list[_LinearCall], *, crosses: bool
) -> tuple[tuple[WeightRows, WeightRows] | str, WeightRows | str]:
    """Return rows of queries and keys, and of values, or reasons why they are unknown."""
    assert call.query is not None
    assert call.key is not None
    assert call.value is not None
    n_heads = call.query.shape[1], call.key.shape[1]
    at_0 = [each._replace(output=each.output[:, :1]) for each in linear_calls]
    value = _matching(call.value, linear_calls, *n_heads)
    query = _matching(call.query[:, :, :1], at_0, *n_heads)
    key = _matching(call.key[:, :, :1], at_0, *n_heads)
    if query is None and key is None and value is not None:
        remaining = [each for each in linear_calls if each.name != value.name]
        query, key = _query_key_by_size(call, remaining)
    inputs = {each.name: each.input for each in linear_calls}

    def same_input(a: WeightRows, b: WeightRows) -> bool:
        return crosses or torch.equal(inputs[a.name], inputs[b.name])

    query_key: tuple[WeightRows, WeightRows] | str = NO_MAP
    if query is not None and key is not None:
        query_key = (query, key) if same_input(query, key) else NOT_STATES
    if value is None:
        return query_key, NO_MAP
    return query_key, value if query is None or same_input(query, value) else NOT_STATES


def _matching(
    target: torch.Tensor, linear_calls: list[_LinearCall], heads: int, key_heads: int
) -> WeightRows | None:
    """Return the rows of a linear map whose output equals attention's input up to length, or None.

    Lengths differ by scaling or by norms without weights.

    Args:
        target: queries, keys or values. *Shape:* ``(text, head, token, width)``.
    """
    wanted = target.detach().cpu().double().transpose(1, 2)
    directions, width = normalize(wanted, dim=-1), wanted.shape[-1]
    for each in reversed(linear_calls):
        if not wanted.any() or each.output.shape[:2] != wanted.shape[:2]:
            continue
        for rows in _layouts(each.output.shape[-1], wanted.shape[2], width, heads, key_heads):
            if (normalize(each.output[..., rows], dim=-1) - directions).abs().max() <= SAME:
                return WeightRows(each.name, rows)
    return None


def _layouts(
    size: int, vectors: int, width: int, heads: int, key_heads: int
) -> Iterator[torch.Tensor]:
    """Yield rows in which vectors of heads may be stored. *Shape:* ``(head, width)`` each.

    Args:
        size: number of rows of the map.
        vectors: number of heads with rows: all heads or key heads.
    """
    within = torch.arange(width)
    for start in range(0, size - vectors * width + 1, width):
        yield start + torch.arange(vectors)[:, None] * width + within
    if heads == key_heads and size == 3 * heads * width:
        for member in range(3):
            yield (3 * torch.arange(heads)[:, None] + member) * width + within


def _query_key_by_size(
    call: attention_hook.AttentionCall, remaining: list[_LinearCall]
) -> tuple[WeightRows | None, WeightRows | None]:
    """Return rows of queries and keys by the widths of the only two remaining maps."""
    assert call.query is not None
    assert call.key is not None
    shapes = [(part.shape[1], part.shape[3]) for part in (call.query, call.key)]
    sizes = [heads * width for heads, width in shapes]
    if sorted(each.output.shape[-1] for each in remaining) != sorted(sizes):
        return None, None
    ordered = remaining if remaining[0].output.shape[-1] == sizes[0] else remaining[::-1]
    query, key = (
        WeightRows(each.name, torch.arange(heads * width).view(heads, width))
        for each, (heads, width) in zip(ordered, shapes, strict=True)
    )
    return query, key


QUERY_KEY, VALUE_OUTPUT = "weights of queries and keys", "weights of values and outputs"
OTHER_SHAPE = "the two models differ in shape"


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
    shapes = {name: (s.n_layers, s.n_heads) for name, s in architecture.stacks.items()}
    found = {
        name: StackDrift(np.full(shape, np.nan), np.full(shape, np.nan))
        for name, shape in shapes.items()
    }
    missing: dict[tuple[str, str, str], list[int]] = {}
    for call, weights in find_head_weights(a, architecture).items():
        both = _query_key_drift(a, b, weights), _value_output_drift(a, b, weights)
        for what, table, each in zip(
            (QUERY_KEY, VALUE_OUTPUT), found[call.stack], both, strict=True
        ):
            if isinstance(each, str):
                missing.setdefault((what, call.stack, each), []).append(call.layer)
            else:
                table[call.layer, : len(each)] = each
    noted = (
        UncomparedWeights(what, stack, tuple(n), why) for (what, stack, why), n in missing.items()
    )
    return WeightDrift(found, tuple(noted))


def _query_key_drift(a: Model, b: Model, weights: HeadWeights) -> Floats | str:
    """Return the drift of W_Q W_K^T by head, or the reason why it is unknown."""
    if isinstance(weights.query_key, str):
        return weights.query_key
    query, key = weights.query_key
    queries, keys = _weights_in_both(a, b, query.name), _weights_in_both(a, b, key.name)
    if queries is None or keys is None:
        return OTHER_SHAPE
    return product_drift(
        [each[query.rows].mT for each in queries], [each[key.rows].mT for each in keys]
    )


def _value_output_drift(a: Model, b: Model, weights: HeadWeights) -> Floats | str:
    """Return the drift of W_V W_O by head, or the reason why it is unknown."""
    if isinstance(weights.value_output, str):
        return weights.value_output
    value, name = weights.value_output
    outputs, values = _weights_in_both(a, b, name), _weights_in_both(a, b, value.name)
    if outputs is None or values is None:
        return OTHER_SHAPE
    width = value.rows.shape[1]
    left = [weight.unflatten(1, (-1, width)).transpose(0, 1) for weight in outputs]
    return product_drift(left, [weight[value.rows].mT for weight in values])


def _weights_in_both(a: Model, b: Model, name: str) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return a module's weight in both models, or None if it is missing or shapes differ."""
    try:
        one, other = (weight_matrix(model.base_model.get_submodule(name)) for model in (a, b))
    except AttributeError:
        return None
    return (one, other) if one.shape == other.shape else None


def product_drift(left: list[torch.Tensor], right: list[torch.Tensor]) -> Floats:
    """Return the relative change of products, ||L_B R_B^T - L_A R_A^T|| / ||L_A R_A^T||, by head.

    Args:
        left: left factors of both models, in double precision. *Shape:* ``(head, n, k)``.
        right: right factors of both models, in double precision; several consecutive heads may
            share one. *Shape:* ``(key head, m, k)``.

    Returns:
        *Shape:* ``(head,)``; NaN where the first product is 0.
    """
    k, shared = left[0].shape[-1], len(left[0]) // len(right[0])
    one = torch.linalg.qr(torch.cat([left[1] - left[0], left[0]], -1), mode="r").R
    other = torch.linalg.qr(torch.cat([right[1], right[1] - right[0]], -1), mode="r").R
    other = other.repeat_interleave(shared, 0)
    change = torch.linalg.matrix_norm(one @ other.mT)
    first = other[..., :k] - other[..., k:]
    size = torch.linalg.matrix_norm(one[..., k:] @ first.mT)
    found: Floats = torch.where(size > 0, change / size, torch.nan).numpy()
    return found
