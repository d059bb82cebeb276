"""Cosines of vectors of tokens, by distance and by rank."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import pad

from headbook.terms import REACH, TOP

DECIMALS = 6  # to which cosines are compared, so that rounding decides nothing


def lengths(vectors: torch.Tensor) -> torch.Tensor:
    """Their lengths; what is too short to divide by counts as nothing."""
    found = vectors.norm(dim=-1)
    known: torch.Tensor = found * (found > torch.finfo(vectors.dtype).tiny)
    return known


def cosines(vectors: torch.Tensor) -> torch.Tensor:
    """Of every two vectors, 0 where one has no length.

    Args:
        vectors: *Shape:* ``(..., n, width)``.

    Returns:
        *Shape:* ``(..., n, n)``.
    """
    length = lengths(vectors)
    units = vectors / length.masked_fill(length == 0, 1).unsqueeze(-1)
    units = units * (length > 0).unsqueeze(-1)
    found: torch.Tensor = (units @ units.mT).clamp(-1, 1)
    return found


def by_distance(values: torch.Tensor) -> torch.Tensor:
    """Sums over pairs at each distance, 1 first. *Shape:* ``(..., n - 1)``.

    Args:
        values: 0 but for pairs, the earlier token first. *Shape:* ``(..., n, n)``.
    """
    n = values.shape[-1]
    # Upside down and read in rows of 2n - 1, what stands on one diagonal stands in a column.
    wide = pad(values.flip(-2), (0, n)).flatten(-2)
    rows: torch.Tensor = wide[..., : n * (2 * n - 1)].unflatten(-1, (n, 2 * n - 1))
    return rows.sum(-2)[..., n:]


def pooled(values: torch.Tensor) -> torch.Tensor:
    """The same over all pairs, at distances 1 to `REACH` - 1, and beyond.

    Returns:
        *Shape:* ``(..., REACH + 1)``.
    """
    sums = by_distance(values)
    near = pad(sums[..., : REACH - 1], (0, max(REACH - 1 - sums.shape[-1], 0)))
    far = sums[..., REACH - 1 :].sum(-1, keepdim=True)
    return torch.cat([sums.sum(-1, keepdim=True), near, far], -1)


def odds(
    high: torch.Tensor, pairs: torch.Tensor, same: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mantel and Haenszel's two sums over distances; their ratio is an odds ratio.

    Args:
        high: 1 for some of the pairs, else 0.
        pairs: 1 for all pairs, the earlier token first.
        same: 1 for pairs of one kind. *Shape:* ``(..., n, n)`` each.

    Returns:
        *Shape:* ``(...)`` each.
    """
    every, all_same = by_distance(pairs), by_distance(pairs * same)
    high_every, high_same = by_distance(high), by_distance(high * same)
    low_same, high_other = all_same - high_same, high_every - high_same
    low_other = every - all_same - high_other
    every = every.clamp(1)
    above, below = high_same * low_other / every, high_other * low_same / every
    return above.sum(-1), below.sum(-1)


def thresholds(similarities: NDArray[np.floating]) -> NDArray[np.float64]:
    """The least similarity of the top shares `TOP` of each head, halfway to the next lower one.

    Args:
        similarities: NaN where there is none. *Shape:* ``(head, pair)``.

    Returns:
        *Shape:* ``(share, head)``; NaN without pairs.
    """
    ordered = np.sort(similarities.astype(np.float64).round(DECIMALS), -1)  # NaN comes last
    known = (~np.isnan(ordered)).sum(-1)
    found = np.full((len(TOP), len(ordered)), np.nan)
    for number, share in enumerate(TOP.values()):
        some = known > 0
        least = known - np.ceil(known * share).astype(np.int64)
        heads = np.arange(len(ordered))[some]
        above = ordered[heads, least[some]]
        below = ordered[heads, np.maximum(least[some] - 1, 0)]
        found[number, some] = (above + below) / 2
    return found
