"""Outputs of heads for every token of a sentence, from which context similarity is computed.

Cosines do not change if all outputs are rotated, so outputs are stored in axes of their own: the
first axis is that of the mean output, and token t (from 0) has no number beyond axis t + 1.
Deviations from the mean are stored as integers, and the mean as a multiple of the first axis, so
that centred similarity keeps its digits where all outputs are nearly alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arrays import Floats
from headbook.schema import AttentionStack

MAX_COSINE_ERROR = 0.02  # largest error of a cosine that is computed from stored outputs
MAX_OUTPUT_BYTES = 16_000_000  # bytes of a sentence's outputs in one stack
DEVIATION_BITS = 14  # of the largest deviation, without the sign
NO_OUTPUT = np.iinfo(np.int16).min  # first deviation of a token that does not count
INT16_BYTES = np.dtype(np.int16).itemsize


@dataclass(frozen=True)
class TokenOutputs:
    """Outputs of the heads of one layer for one sentence, in steps of each head's own size.

    Attributes:
        mean: mean output of each head along the first axis; the mean is 0 along all others.
            *Shape:* ``(head,)``.
        deviations: deviation of each output from the mean; `NO_OUTPUT` in the first axis of tokens
            that do not count or have an output of 0. *Shape:* ``(head, token, axis)``.
    """

    mean: NDArray[np.float32]
    deviations: NDArray[np.int16]

    def similarity(self, *, centred: bool) -> NDArray[np.float32]:
        """Return the cosine of every two outputs of each head; NaN for tokens without an output.

        Args:
            centred: whether to compare deviations from the mean; NaN for a token without one.

        Returns:
            *Shape:* ``(head, token, token)``.
        """
        counted = self.deviations[..., 0] != NO_OUTPUT
        return cosines_of(self.mean, self.deviations, counted, centred=centred)


def cosines_of(
    mean: NDArray[Any], deviations: NDArray[Any], counted: NDArray[np.bool_], *, centred: bool
) -> NDArray[np.float32]:
    """Return the cosines of outputs or of deviations from the mean.

    Args:
        mean, deviations: numbers as in `TokenOutputs`, rounded or not.
        counted: whether a token has an output. *Shape:* ``(head, token)``.

    Returns:
        NaN for tokens without an output or without a deviation. *Shape:* ``(head, token, token)``.
    """
    vectors: Floats = deviations.astype(np.float64)
    if not centred:
        vectors[..., 0] += mean[:, None]
    lengths = np.linalg.norm(vectors, axis=-1)
    lengths[~counted | (lengths == 0)] = np.nan
    vectors /= lengths[..., None]
    cosines = np.clip(vectors @ vectors.swapaxes(-1, -2), -1, 1)
    return cosines.astype(np.float32)


def output_bytes(stack: AttentionStack, n_queries: int) -> int:
    """Return the largest possible size of a sentence's outputs in all layers, in bytes."""
    axes = min(n_queries, stack.head_width)
    return len(stack.attention_layers) * stack.n_heads * n_queries * axes * INT16_BYTES


def padded_outputs(
    stack: AttentionStack, by_layer: Mapping[int, TokenOutputs]
) -> tuple[NDArray[np.float32], NDArray[np.int16]]:
    """Return the outputs of all layers with attention as two arrays, 0 where layers are smaller.

    Args:
        by_layer: outputs of each layer with attention.

    Returns:
        Means, ``(layer, head)``, and deviations, ``(layer, head, token, axis)``.
    """
    layers = [by_layer[layer] for layer in stack.attention_layers]
    axes = max(each.deviations.shape[2] for each in layers)
    shape = len(layers), stack.n_heads, layers[0].deviations.shape[1], axes
    mean, deviations = np.zeros(shape[:2], np.float32), np.zeros(shape, np.int16)
    for place, each in enumerate(layers):
        n_heads, _, width = each.deviations.shape
        mean[place, :n_heads] = each.mean
        deviations[place, :n_heads, :, :width] = each.deviations
    return mean, deviations


def by_axis(deviations: NDArray[np.int16]) -> NDArray[np.int16]:
    """Return the deviations of all heads, axis by axis, without zeros of tokens before an axis.

    Numbers of one axis have similar sizes, so that this order compresses best.

    Args:
        deviations: deviations of tokens of which each has an output in some head; token ``t`` needs
            axes 0 to ``t + 1``. *Shape:* ``(..., token, axis)``.
    """
    return np.concatenate(
        [deviations[..., max(0, axis - 1) :, axis].ravel() for axis in range(deviations.shape[-1])]
    )
