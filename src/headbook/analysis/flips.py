"""Tests by flips of signs, for all heads at once.

*Null hypothesis:* in each sentence, or pair of sentences, the differences of all heads and labels
together are as likely as the same with the opposite sign. So the signs of whole sentences are
flipped at random, and the largest statistic among all heads and labels is noted each time. A head's
p is the share of flips whose largest statistic reaches the head's own: family-wise over all heads
and labels (Westfall & Young 1993; Nichols & Holmes 2002, doi:10.1002/hbm.1058).
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arithmetic import Floats

FLIPS = 2000
CHUNK = 64  # flips at a time: as many bits as a hash has
TOLERANCE = 1e-9  # relative; statistics that differ by less are equal
LEVEL = 0.05  # of the family-wise p below which pages take a difference as shown
GOLDEN, MIX = 0x9E3779B97F4A7C15, (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def family_wise(
    differences: NDArray[np.floating],
    present: NDArray[np.bool_],
    keys: NDArray[np.uint64],
    *,
    two_sided: bool = False,
) -> Floats:
    """Family-wise p of each head and label by the largest statistic under flips of signs.

    The statistic is the sum of the differences over the root of the sum of their squares, which
    flips leave as it is; p = (1 + flips that reach it) / (1 + flips).

    Args:
        differences: whole numbers in single precision, others in double; 0 where a sentence has
            none. *Shape:* ``(sentence, layer, head, label)``.
        present: heads that take part. *Shape:* ``(layer, head)``.
        keys: hashes of the sentences, from which the signs come. *Shape:* ``(sentence,)``.
        two_sided: whether large statistics below 0 count as well.

    Returns:
        *Shape:* ``(layer, head, label)``; NaN where a head does not take part.
    """
    found = np.full(differences.shape[1:], np.nan)
    family = found[present].shape  # (head, label)
    flat = differences[:, present].reshape(len(keys), family[0] * family[1])
    root = np.sqrt(np.square(flat).sum(0, dtype=np.float64))
    scale = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)
    size = np.abs if two_sided else np.positive
    observed = size(flat.sum(0, dtype=np.float64) * scale)
    most = np.concatenate(
        # Sums of whole numbers are exact, in whatever order a machine adds them.
        [size(signs @ flat * scale).max(1, initial=0.0) for signs in _signs(keys)]
    )
    reached = np.sort(most) * (1 + TOLERANCE)
    above = len(most) - np.searchsorted(reached, observed)
    found[present] = ((1 + above) / (1 + len(most))).reshape(family)
    return found


def _signs(keys: NDArray[np.uint64]) -> Iterator[NDArray[np.float32]]:
    """Signs of the sentences in each flip, from their hashes (splitmix64, one bit a flip).

    *Shape:* ``(flip, sentence)``, `CHUNK` flips or what is left at a time.
    """
    for start in range(0, FLIPS, CHUNK):
        z = keys + np.uint64(GOLDEN * (start // CHUNK + 1) % 2**64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(MIX[0])
        z = (z ^ (z >> np.uint64(27))) * np.uint64(MIX[1])
        z ^= z >> np.uint64(31)
        flips = np.arange(min(CHUNK, FLIPS - start), dtype=np.uint64)
        bits = (z >> flips[:, None]) & np.uint64(1)
        yield np.where(bits, np.float32(1), np.float32(-1))
