r"""Composition of heads: how well the output of a lower head fits the input of an upper head.

Elhage et al. (2021) compare the Frobenius norm of the product of two heads' matrices with the
product of their norms: W_OV of the lower head with W_QK (query, q), with its transpose (key, k) or
with W_OV (value, v) of the upper head. Composition looks at the path from head to head through the
residual stream alone. Random matrices have a small positive value, so that values are compared with
random ones and ranked among all pairs; `headbook.circuits.paths` measures what a pair does.

No matrix of width times width is formed. With W_V = Q_V R_V and W_K = Q_K R_K, whose Q have
orthonormal columns, ||W_V W_O W_Q W_K^T|| = ||R_V W_O W_Q R_K^T||.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from headbook.analysis.arrays import Floats, Ints
from headbook.circuits.weights import LayerFactors, StackWeights
from headbook.study.circuits import COMPOSITION

N_ROWS = 1000  # pairs of each kind in the table, the largest first
N_RANDOM = 50  # pairs of random heads
MIN_SCORE = 0.3  # of induction heads and of previous-token heads
PAIR_COLUMNS = ["layer", "head", "lower_layer", "lower_head"]


class ReadFactors(NamedTuple):
    """Factors of what the heads of a layer read in one input.

    The matrix of head h is inner[h // n] outer[h]^T up to rotation, if n heads share an inner one.

    Attributes:
        inner: *Shape:* ``(group, width, head width)``.
        outer: *Shape:* ``(head, head width, head width)``.
    """

    inner: torch.Tensor
    outer: torch.Tensor


def composition_table(weights: StackWeights, induction: Floats, previous: Floats) -> pd.DataFrame:
    """Return the compositions of all pairs of heads of different layers that the table keeps.

    Args:
        weights: weights of the stack.
        induction, previous: induction and previous-token scores; NaN without one. *Shape:*
            ``(layer, head)`` each.

    Returns:
        The largest pairs of each kind, and all pairs of an induction head and a lower
        previous-token head. Columns of `COMPOSITION`, without interventions.
    """
    tables = []
    pairs, values = compositions(weights)
    random = random_compositions(weights.factors(min(weights.layers)))
    of_circuit = induction_pairs(pairs, induction, previous)
    for kind, of_kind in values.items():
        order = np.argsort(-of_kind, kind="stable")  # NaN last
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(1, len(order) + 1)
        is_kept = (rank <= N_ROWS) | of_circuit
        kept = order[(is_kept & ~np.isnan(of_kind))[order]]
        table = pd.DataFrame(pairs[kept], columns=PAIR_COLUMNS)
        tables.append(
            table.assign(kind=kind, value=of_kind[kept], random=random[kind], rank=rank[kept])
        )
    table = pd.concat(tables, ignore_index=True).assign(stack=weights.stack)
    return table.reindex(columns=[*COMPOSITION.columns])


def induction_pairs(pairs: Ints, induction: Floats, previous: Floats) -> NDArray[np.bool_]:
    """Return a mask of pairs of an induction head and a previous-token head.

    Args:
        pairs: layer and head of the upper and of the lower head. *Shape:* ``(pair, 4)``.
        induction, previous: scores of heads; NaN without one. *Shape:* ``(layer, head)`` each.
    """
    layer, head, lower_layer, lower_head = pairs.T
    mask: NDArray[np.bool_] = (induction[layer, head] >= MIN_SCORE) & (
        previous[lower_layer, lower_head] >= MIN_SCORE
    )
    return mask


def compositions(weights: StackWeights) -> tuple[Ints, dict[str, Floats]]:
    """Return the compositions of all pairs of heads of different layers.

    Returns:
        Layer and head of the upper and of the lower head, ``(pair, 4)``; and values by kind,
        ``(pair,)`` each: q, k and v, but q alone for cross-attention, whose keys and values do not
        come from the residual stream. NaN in k and v if the upper layer takes keys and values of a
        layer that is not above the lower one.
    """
    kinds = "q" if weights.crosses else "qkv"
    pairs, values = [], {kind: [] for kind in kinds}  # type: ignore[var-annotated]
    written: dict[int, torch.Tensor] = {}
    for layer in sorted(weights.layers):
        factors = weights.factors(layer)
        n_heads, n_key_heads = len(factors.query), len(weights.layers[layer].value.rows)
        for kind in kinds if written else ():
            read = read_factors(factors, kind, n_heads // n_key_heads)
            source = layer if kind == "q" else weights.layers[layer].source
            for lower_layer, lower in written.items():
                norms = _norms(lower, read).flatten()
                reached = weights.crosses or lower_layer < source
                values[kind].append(norms if reached else torch.full_like(norms, torch.nan))
        for lower_layer, lower in written.items():
            upper_head, lower_head = np.indices((n_heads, len(lower))).reshape(2, -1)
            layers = np.full_like(upper_head, layer), np.full_like(upper_head, lower_layer)
            pairs.append(np.stack([layers[0], upper_head, layers[1], lower_head], 1))
        product = _root(factors.value) @ factors.output
        written[layer] = product / torch.linalg.matrix_norm(product, keepdim=True)
    found = np.concatenate(pairs) if pairs else np.zeros((0, 4), np.int64)
    return found, {
        kind: torch.cat(parts).double().numpy() if parts else np.zeros(0)
        for kind, parts in values.items()
    }


def read_factors(factors: LayerFactors, kind: str, shared: int = 1) -> ReadFactors:
    """Return the factors of one input of a layer's heads, over their norms.

    Args:
        kind: q, k or v.
        shared: number of consecutive heads with the same key and value weights.
    """
    if kind == "q":
        inner, outer, first = factors.query, _root(factors.key), _root(factors.query)
    elif kind == "k":
        inner, outer, first = factors.key, _root(factors.query), _root(factors.key)
    else:
        inner, outer, first = factors.value, _root(factors.output.mT), _root(factors.value)
    norm = torch.linalg.matrix_norm(first @ outer.mT, keepdim=True)
    return ReadFactors(inner[:: 1 if kind == "q" else shared], outer / norm)


def _root(weight: torch.Tensor) -> torch.Tensor:
    """Return R of W = Q R. *Shape:* ``(head, width of Q, n)``."""
    root: torch.Tensor = torch.linalg.qr(weight, mode="r").R
    return root


def _norms(written: torch.Tensor, read: ReadFactors) -> torch.Tensor:
    """Return the norms of products of all heads of two layers. *Shape:* ``(upper, lower)``.

    Args:
        written: R_V W_O of the lower heads. *Shape:* ``(lower, head width, width)``.
    """
    n_lower, width = written.shape[:2]
    inner = (written.flatten(0, 1) @ read.inner).repeat_interleave(
        len(read.outer) // len(read.inner), 0
    )
    products = (inner @ read.outer.mT).unflatten(1, (n_lower, width))
    norms: torch.Tensor = products.square().sum((-1, -2)).sqrt()
    return norms


def random_compositions(factors: LayerFactors) -> dict[str, float]:
    """Return the mean composition of pairs of heads with Gaussian weights of these shapes."""
    generator = torch.Generator().manual_seed(0)

    def draw() -> LayerFactors:
        return LayerFactors(*(torch.randn(x[:1].shape, generator=generator) for x in factors))

    sums = dict.fromkeys("qkv", 0.0)
    for _ in range(N_RANDOM):
        lower, upper = draw(), draw()
        written = _root(lower.value) @ lower.output
        written = written / torch.linalg.matrix_norm(written, keepdim=True)
        for kind in sums:
            sums[kind] += float(_norms(written, read_factors(upper, kind)))
    return {kind: total / N_RANDOM for kind, total in sums.items()}
