"""Ranks and nearest entries, taken from a block of scores without sorting it."""

from typing import NamedTuple

import torch


class Comparison(NamedTuple):
    """States compared with the original encodings of the vocabulary.

    Attributes:
        ranks: number of entries with a strictly higher cosine to a state than the token's own; 0:
            still nearest. *Shape:* ``(state, sentence, token)``; NaN in the padding.
        ids: the nearest entries, nearest first. *Shape:* ``(state, sentence, token, k)``; 0 in the
            padding.
        cosines: theirs, of the same shape; NaN in the padding.
    """

    ranks: torch.Tensor
    ids: torch.Tensor
    cosines: torch.Tensor

    @classmethod
    def empty(cls, states: torch.Tensor, k: int) -> "Comparison":
        """Nothing compared yet."""
        cosines = states.new_full((*states.shape[:3], k), torch.nan)
        ranks = states.new_full(states.shape[:3], torch.nan)
        return cls(ranks, torch.zeros_like(cosines, dtype=torch.long), cosines)


def compared(scores: torch.Tensor, own: torch.Tensor, k: int) -> Comparison:
    """Find the rank of each row's own entry and the row's k nearest entries.

    Args:
        scores: *Shape:* ``(row, entry)``.
        own: the row's own entry. *Shape:* ``(row,)``.
    """
    nearest = scores.topk(k)
    nearer = scores > scores.gather(1, own.unsqueeze(1))
    # Counted as int32: the default int64 takes three times as long.
    ranks = nearer.sum(1, dtype=torch.int32).to(scores.dtype)
    return Comparison(ranks, nearest.indices, nearest.values)
