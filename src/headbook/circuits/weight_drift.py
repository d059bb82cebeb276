r"""Drift of the weights of each head between two models.

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

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from headbook.analysis.arrays import Floats
from headbook.model.architecture import Architecture
from headbook.model.head_weights import HeadWeights, find_head_weights, weight_matrix
from headbook.model.load import Model

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
