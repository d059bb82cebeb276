"""Ranks and nearest entries, taken from a block of scores without sorting it."""

from typing import NamedTuple

import numpy as np
import torch

from headbook.model.vocabulary.nearestloop import SPAN, nearest_loop, rank_loop
from headbook.threads import share_out

CHUNK = 1 << 8  # entries of which the largest score is found first
MANY = 4  # chunks for each entry that is looked for, below which they save nothing


class Nearest(NamedTuple):
    """The largest scores of each row, largest first, and their entries; ``(row, k)``."""

    values: torch.Tensor
    indices: torch.Tensor


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
    """Rank of each row's own entry, and its k nearest.

    Args:
        scores: *Shape:* ``(row, entry)``.
        own: the row's own entry. *Shape:* ``(row,)``.
    """
    if scores.device.type == "cpu" and scores.shape[1] >= k * SPAN:
        return _by_loop(scores, own, k)
    best = _largest(scores, k)
    mine = scores.gather(1, own.unsqueeze(1))
    ranks = (best.values > mine).sum(1)
    # Whose own entry is not among the k has to be counted over all entries.
    far = (best.values[:, -1:] > mine).squeeze(1)
    if far.any():
        nearer = scores[far] > mine[far]
        ranks[far] = nearer.sum(1, dtype=torch.int32).long()
    return Comparison(ranks.to(scores.dtype), best.indices, best.values)


def _by_loop(scores: torch.Tensor, own: torch.Tensor, k: int) -> Comparison:
    """The same in one reading of each row; equal scores in the order of entries.

    The k largest lie in the k chunks with the largest maxima, and are no smaller than the least of
    these.
    """
    rows, mine = scores.numpy(), own.numpy()
    n_chunks = -(-rows.shape[1] // SPAN)
    ranks = np.empty(len(own), np.int64)
    entries = np.empty((len(own), k), np.int64)
    values = np.empty((len(own), k), rows.dtype)

    def run(first: int, last: int) -> None:
        part = slice(first, last)
        largest = np.empty((last - first, n_chunks), rows.dtype)
        rank_loop(rows[part], mine[part], largest, ranks[part])
        limits = np.partition(largest, n_chunks - k)[:, n_chunks - k].copy()
        nearest_loop(rows[part], largest, limits, entries[part], values[part])

    share_out(run, len(own), torch.get_num_threads())
    rank, ids, cosines = (torch.from_numpy(each) for each in (ranks, entries, values))
    return Comparison(rank.to(scores.dtype), ids, cosines)


def _largest(scores: torch.Tensor, k: int) -> Nearest:
    """``scores.topk(k)`` along long rows: the k largest lie in the k chunks with largest maxima."""
    n_chunks = scores.shape[1] // CHUNK
    if n_chunks < MANY * k:
        return Nearest(*scores.topk(k))
    chunks, tail = scores.split([n_chunks * CHUNK, scores.shape[1] - n_chunks * CHUNK], 1)
    chunks = chunks.unflatten(1, (n_chunks, CHUNK))
    chosen = chunks.amax(-1).topk(k).indices.unsqueeze(-1)
    there = torch.arange(CHUNK, device=scores.device)
    last = torch.arange(n_chunks * CHUNK, scores.shape[1], device=scores.device)
    entries = torch.cat([(chosen * CHUNK + there).flatten(1), last.expand(len(scores), -1)], 1)
    candidates = chunks.gather(1, chosen.expand(-1, -1, CHUNK)).flatten(1)
    best = torch.cat([candidates, tail], 1).topk(k)
    return Nearest(best.values, entries.gather(1, best.indices))
