"""Head outputs of sentences with pages, rounded as coarsely as their cosines allow."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headbook.attention.head_outputs import HeadOutputs
from headbook.study.token_outputs import (
    DEVIATION_BITS,
    MAX_COSINE_ERROR,
    NO_OUTPUT,
    TokenOutputs,
    cosines_of,
)

# Bits of the largest deviation of a head without the sign; thirds of a bit save 4 % of the bytes.
BITS = np.arange(3 * 5, 3 * DEVIATION_BITS + 1) / 3
ABSENT = 9.0  # no cosine; a token that rounding leaves without one counts as an error


def token_outputs(outputs: HeadOutputs, row: int, n_tokens: int) -> TokenOutputs | None:
    """Return the outputs of one sentence of a batch, or None if the layer shows no values.

    Args:
        row: place of the sentence in the batch.
        n_tokens: number of its queries.
    """
    if outputs.outputs is None:
        return None
    return rounded_outputs(
        outputs.outputs[row, :, :n_tokens].cpu().double().numpy(),
        outputs.centred_outputs[row, :, :n_tokens].cpu().double().numpy(),
        outputs.has_output[row, :, :n_tokens].cpu().numpy(),
    )


def rounded_outputs(
    outputs: NDArray[np.float64], centred: NDArray[np.float64], counted: NDArray[np.bool_]
) -> TokenOutputs:
    """Return outputs in the fewest bits with which no cosine is off by more than the tolerance.

    Args:
        outputs: head outputs; 0 where they do not count. *Shape:* ``(head, token, width)``.
        centred: outputs minus their mean, likewise. *Shape:* that of ``outputs``.
        counted: whether an output counts. *Shape:* ``(head, token)``.
    """
    mean, deviations = _in_own_axes(outputs, centred, counted)
    # Without deviations any step will do, such as one that makes the mean the largest number.
    largest = np.abs(deviations).max((1, 2), initial=0)
    largest = np.where(largest > 0, largest, np.where(mean == 0, 1, np.abs(mean)))
    exact = _both_cosines(mean, deviations, counted)
    rounded_mean = np.zeros(len(mean), np.float32)
    rounded = np.zeros(deviations.shape, np.int16)
    heads = np.arange(len(mean))
    for bits in BITS:
        scale = (2**bits - 1) / largest[heads]
        rounded_mean[heads] = mean[heads] * scale
        rounded[heads] = np.rint(deviations[heads] * scale[:, None, None])
        found = _both_cosines(rounded_mean[heads], rounded[heads], counted[heads])
        heads = heads[np.abs(found - exact[:, heads]).max((0, 2, 3)) > MAX_COSINE_ERROR]
        if not len(heads):
            break
    rounded[..., 0][~counted] = NO_OUTPUT
    return TokenOutputs(rounded_mean, rounded)


def _in_own_axes(
    outputs: NDArray[np.float64], centred: NDArray[np.float64], counted: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the means of heads along their first axis, and deviations in the axes of each head.

    Returns:
        Means, ``(head,)``, and deviations, ``(head, token, axis)``.
    """
    n_counted = counted.sum(1)[:, None]
    mean = (outputs * counted[..., None]).sum(1) / np.maximum(n_counted, 1)
    places = np.flatnonzero(counted.any(0))
    rows = np.concatenate([mean[:, None], centred[:, places]], 1)
    # The triangular factor of the rows as columns has their coordinates in axes of their own.
    turned = np.swapaxes(np.asarray(np.linalg.qr(np.swapaxes(rows, 1, 2), mode="r")), 1, 2)
    # Deviations add up to 0, so that the last token needs no axis of its own.
    n_axes = max(1, min(outputs.shape[2], len(places)))
    deviations = np.zeros((*counted.shape, n_axes))
    deviations[:, places] = turned[:, 1:, :n_axes]
    return turned[:, 0, 0], deviations


def _both_cosines(
    mean: NDArray[Any], deviations: NDArray[Any], counted: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """Return the cosines of outputs and of deviations; `ABSENT` for tokens without one.

    *Shape:* ``(2, head, token, token)``.
    """
    both = [cosines_of(mean, deviations, counted, centred=centred) for centred in (False, True)]
    return np.nan_to_num(np.stack(both), nan=ABSENT)
