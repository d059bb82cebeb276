"""How far the weights of heads moved from one model to another of the same shape.

Of a head, ||B - A|| / ||A|| (Frobenius) of two products, W_Q W_K^T, which decides where it looks,
and W_V W_O, which decides what it carries. Alone none of the four says anything: any of them may be
turned if its partner is turned back. 0 if nothing changed; two models that have nothing in common
but their scale come near the root of 2. No data is needed.

Not part of it are biases, positions (rotary ones turn queries and keys between both maps), and the
scales of norms before and between.

Products are never made: they have the rank of a head's width k, and with U V^T = A the change is
[U_B - U_A, U_A] [V_B, V_B - V_A]^T, whose norm is that of the triangular factors of both, 2k wide.
Nothing large is taken from anything large: equal weights give 0 exactly.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.model.architecture import Architecture
from headbook.model.headweights import HeadWeights, find_head_weights, straight
from headbook.model.model import Model

QUERY_KEY, VALUE_OUTPUT = "weights of queries and keys", "weights of values and outputs"
OTHER_SHAPE = "the two models differ in shape"

Floats = NDArray[np.float64]


class StackDrift(NamedTuple):
    """Drift of the heads of a stack; NaN where it is not known or there is no such head.

    Attributes:
        query_key: of W_Q W_K^T. *Shape:* ``(layer, head)``.
        value_output: of W_V W_O. The same shape.
    """

    query_key: Floats
    value_output: Floats


class Missing(NamedTuple):
    """Weights that are not compared, and why.

    Attributes:
        what: in words.
        layers: of the stack.
    """

    what: str
    stack: str
    layers: tuple[int, ...]
    why: str


@dataclass(frozen=True, eq=False)
class WeightDrift:
    """Drift of all heads.

    Attributes:
        stacks: by name.
        missing: what is NaN there, and why.
    """

    stacks: Mapping[str, StackDrift]
    missing: tuple[Missing, ...]


def weight_drift(a: Model, b: Model, architecture: Architecture) -> WeightDrift:
    """How far the weights of each head moved from one model to another.

    Args:
        a: the model that runs once, on a few tokens, to find where its weights are.
        b: another of the same configuration; its weights are looked for at the same places.
        architecture: of ``a``.

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
        both = _query_key(a, b, weights), _value_output(a, b, weights)
        for what, table, each in zip(
            (QUERY_KEY, VALUE_OUTPUT), found[call.stack], both, strict=True
        ):
            if isinstance(each, str):
                missing.setdefault((what, call.stack, each), []).append(call.layer)
            else:
                table[call.layer, : len(each)] = each
    noted = (Missing(what, stack, tuple(n), why) for (what, stack, why), n in missing.items())
    return WeightDrift(found, tuple(noted))


def _query_key(a: Model, b: Model, weights: HeadWeights) -> Floats | str:
    """Drift of W_Q W_K^T by head, or why there is none."""
    if isinstance(weights.query_key, str):
        return weights.query_key
    query, key = weights.query_key
    queries, keys = _both(a, b, query.name), _both(a, b, key.name)
    if queries is None or keys is None:
        return OTHER_SHAPE
    return drift([each[query.rows].mT for each in queries], [each[key.rows].mT for each in keys])


def _value_output(a: Model, b: Model, weights: HeadWeights) -> Floats | str:
    """Drift of W_V W_O by head, or why there is none."""
    if isinstance(weights.value_output, str):
        return weights.value_output
    value, name = weights.value_output
    outputs, values = _both(a, b, name), _both(a, b, value.name)
    if outputs is None or values is None:
        return OTHER_SHAPE
    width = value.rows.shape[1]
    left = [weight.unflatten(1, (-1, width)).transpose(0, 1) for weight in outputs]
    return drift(left, [weight[value.rows].mT for weight in values])


def _both(a: Model, b: Model, name: str) -> tuple[torch.Tensor, torch.Tensor] | None:
    """A module's weight in both models; None where it differs in shape or is not there."""
    try:
        one, other = (straight(model.body.get_submodule(name)) for model in (a, b))
    except AttributeError:
        return None
    return (one, other) if one.shape == other.shape else None


def drift(left: list[torch.Tensor], right: list[torch.Tensor]) -> Floats:
    """Change of products over the first, ||L_B R_B^T - L_A R_A^T|| / ||L_A R_A^T||, by head.

    Args:
        left: of both models, in double precision. *Shape:* ``(head, n, k)``.
        right: the same; several heads in a row may share one. *Shape:* ``(key head, m, k)``.

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
