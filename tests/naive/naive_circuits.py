"""What heads read and write, from whole matrices of width times width, in double precision."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Head:
    """A head's two matrices, rows as vectors: x QK y is a score, x OV what is written."""

    qk: Matrix
    ov: Matrix


def array(tensor: torch.Tensor) -> Matrix:
    return tensor.detach().double().numpy()


def head(four: Sequence[torch.Tensor], gain: Matrix, number: int, *, centres: bool) -> Head:
    """Return a head's matrices from the weights of a block, ``(out, in)``, heads in turn.

    Args:
        gain: of the norm before the block; 1 without one.
        number: of the query head; keys and values may have fewer heads.
    """
    width = len(gain)
    before = np.diag(gain)
    if centres:
        before = (np.eye(width) - 1 / width) @ before
    query, key, value, output = (array(weight) for weight in four)
    e = 8
    shared = len(query) // len(key)
    q, k = (
        slice(number * e, (number + 1) * e),
        slice(number // shared * e, (number // shared + 1) * e),
    )
    return Head(before @ query[q].T @ key[k] @ before.T, before @ value[k].T @ output[:, q].T)


def composition(lower: Head, upper: Head, kind: str) -> float:
    """Return the norm of the product over the product of the norms."""
    read = {"q": upper.qk, "k": upper.qk.T, "v": upper.ov}[kind]
    norm = np.linalg.norm
    return float(norm(lower.ov @ read) / (norm(lower.ov) * norm(read)))


def copying(states: Matrix, ov: Matrix, unembedding: Matrix) -> float:
    """Return the copying score from all eigenvalues of the map from types to types."""
    columns = unembedding - unembedding.mean(1, keepdims=True)
    values = np.linalg.eigvals(states @ ov @ columns)
    return float(values.sum().real / np.abs(values).sum())


def rate(states: Matrix, ids: Sequence[int], ov: Matrix, unembedding: Matrix) -> float:
    """Return the share of tokens among the five largest of their own logits."""
    logits = states @ ov @ unembedding
    best = np.argsort(-logits, 1)[:, :5]
    return float(np.mean([token in row for token, row in zip(ids, best, strict=True)]))


def gain_of(norm: Any) -> Matrix:
    """Return the weights of a norm."""
    return array(norm.weight)
