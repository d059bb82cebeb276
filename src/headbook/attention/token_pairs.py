"""Pairs of tokens: cosines by distance, equal tokens, and sentence ends proposed in passages.

A sentence end has the index of the token before it among the tokens of the passage that count.
Proposed ends are rated by the measures of text segmentation. Pk moves a window over the text and
counts how often proposed and true ends disagree on whether both window ends are in one segment.
WindowDiff counts windows with different numbers of ends. F1 compares ends.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import max_pool1d, pad

from headbook.attention.masks import BatchMask
from headbook.schema import MAX_DISTANCE, TOP_PAIR_SHARES

WINDOW_TOKENS = 10  # compared on each side of a gap
MINIMUM_RADIUS = 5  # gaps on each side of a minimum that must not be lower
SIMILARITY_DECIMALS = 6  # of compared similarities
MIN_DEPTH = 0.5  # standard deviations of a minimum below the mean of a passage's gaps


class TokenOrder(NamedTuple):
    """Tokens of passages that count, in order and padded.

    Attributes:
        order: positions of the tokens. *Shape:* ``(sentence, place)``.
        valid: whether a place holds a token. *Shape:* ``(sentence, place)``.
    """

    order: torch.Tensor
    valid: torch.Tensor

    @classmethod
    def of(cls, counted: torch.Tensor) -> "TokenOrder":
        """Return the order of the tokens that count, ``(sentence, token)``, boolean."""
        valid, order = counted.to(torch.uint8).sort(dim=1, descending=True, stable=True)
        return cls(order, valid.bool())

    def take(self, values: torch.Tensor) -> torch.Tensor:
        """Rearrange values in the last dimension by place; the first dimension is the sentence."""
        shape = (len(values), *[1] * (values.ndim - 2), -1)
        return values.gather(-1, self.order.view(shape).expand(*values.shape[:-1], -1))

    def ends(self, after: torch.Tensor) -> torch.Tensor:
        """Return ends after all places but the last, except ends that no token follows."""
        return pad(after & self.valid[:, 1:], (0, 1))


def true_ends(places: TokenOrder, part: torch.Tensor) -> torch.Tensor:
    """Return the ends of sentences except the last, from each token's sentence."""
    part = places.take(part)
    return places.ends(part[:, 1:] != part[:, :-1])


def after_stops(places: TokenOrder, stop: torch.Tensor) -> torch.Tensor:
    """Return an end after each ``.``, ``!`` and ``?``; after the last of several in a row."""
    stop = places.take(stop)
    return places.ends(stop[:, :-1] & ~stop[:, 1:])


def evenly_spaced_ends(places: TokenOrder, true: torch.Tensor) -> torch.Tensor:
    """Return as many ends as the true ones, at even distances."""
    segments = true.sum(1, keepdim=True) + 1
    tokens = places.valid.sum(1, keepdim=True).clamp(1)
    numbers = torch.arange(true.shape[1], device=true.device) * segments // tokens
    return places.ends(numbers[:, 1:] != numbers[:, :-1])


def attended_stops(places: TokenOrder, stops: torch.Tensor, received: torch.Tensor) -> torch.Tensor:
    """Return the ends after stops that receive more attention than the mean token.

    Args:
        stops: ends after stops. *Shape:* ``(sentence, place)``, boolean.
        received: attention received by each token. *Shape:* ``(sentence, head, token)``.
    """
    valid = places.valid.unsqueeze(1)
    received = places.take(received) * valid
    mean = received.sum(-1, keepdim=True) / valid.sum(-1, keepdim=True).clamp(1)
    return stops.unsqueeze(1) & (received > mean)


def similarity_across_gaps(
    places: TokenOrder, similarity: torch.Tensor, pairs: torch.Tensor
) -> torch.Tensor:
    """Return the mean similarity between up to `WINDOW_TOKENS` tokens before and after each gap.

    Args:
        similarity: similarities of pairs, else 0. *Shape:* ``(sentence, head, n, n)``.
        pairs: 1 for pairs of tokens that count, the earlier first, else 0. *Shape:* ``(sentence,
            head, n, n)``.

    Returns:
        By the place before the gap, 0 without pairs. *Shape:* ``(sentence, head, place)``.
    """
    n = similarity.shape[-1]
    middle = torch.arange(1, n + 1, device=similarity.device)
    first, last = (middle - WINDOW_TOKENS).clamp(0), (middle + WINDOW_TOKENS).clamp(max=n)
    sums = []
    for table in (similarity, pairs):
        in_order = places.take(places.take(table).mT).mT
        corners = pad(in_order, (1, 0, 1, 0)).cumsum(-1).cumsum(-2)
        above = corners[..., middle, last] - corners[..., first, last]
        sums.append(above - corners[..., middle, middle] + corners[..., first, middle])
    return sums[0] / sums[1].clamp(1)


def depth_minima(places: TokenOrder, scores: torch.Tensor) -> torch.Tensor:
    """Return the gaps that are minima of their neighbours and well below the passage's mean.

    Args:
        scores: similarity across each gap. *Shape:* ``(sentence, head, place)``.

    Returns:
        Boolean mask. *Shape:* ``(sentence, head, place)``.
    """
    is_gap = places.ends(places.valid[:, 1:]).unsqueeze(1)
    scores = scores.round(decimals=SIMILARITY_DECIMALS)  # equal scores differ by rounding only
    n = is_gap.sum(-1, keepdim=True).clamp(1)
    mean = (scores * is_gap).sum(-1, keepdim=True) / n
    spread = (((scores - mean) ** 2 * is_gap).sum(-1, keepdim=True) / n).sqrt()
    high = scores.masked_fill(~is_gap, torch.inf)
    lowest = -max_pool1d(-high, 2 * MINIMUM_RADIUS + 1, 1, MINIMUM_RADIUS)
    return is_gap & (high == lowest) & (high < mean - MIN_DEPTH * spread)


def segmentation_counts(
    places: TokenOrder, proposed: torch.Tensor, true: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the numerators and denominators of F1, Pk and WindowDiff.

    Pk and WindowDiff as in NLTK: windows of half a mean true segment, moved token by token.

    Args:
        proposed: proposed ends. *Shape:* ``(sentence, head, place)``, boolean.
        true: true ends. *Shape:* ``(sentence, place)``, boolean.

    Returns:
        Numerators and denominators; *Shape:* ``(sentence, head, 3)`` each.
    """
    tokens, gold = places.valid.sum(1), true.unsqueeze(1)
    segments = true.sum(1) + 1
    width = (tokens / (2 * segments)).round().long().clamp(1)
    n = true.shape[1]
    starts = torch.arange(n, device=true.device)
    windows = (starts[None, :] + width[:, None] <= tokens[:, None]).unsqueeze(1)
    last = (starts[None, :] + width[:, None]).clamp(max=n).unsqueeze(1)

    def ends_within(ends: torch.Tensor) -> torch.Tensor:
        counts = pad(ends.long().cumsum(-1), (1, 0))
        return counts.gather(-1, last.expand(-1, ends.shape[1], -1)) - counts[..., :n]

    n_proposed, n_true = ends_within(proposed), ends_within(gold)
    hits = 2 * (proposed & gold).sum(-1)
    pk_errors = (((n_proposed > 0) != (n_true > 0)) & windows).sum(-1)
    window_errors = ((n_proposed != n_true) & windows).sum(-1)
    total = windows.sum(-1).expand_as(hits)
    above = torch.stack([hits, pk_errors, window_errors], -1)
    return above, torch.stack([proposed.sum(-1) + gold.sum(-1), total, total], -1)


def vector_norms(vectors: torch.Tensor) -> torch.Tensor:
    """Return the norms of vectors; 0 if too small to divide by."""
    norms = vectors.norm(dim=-1)
    usable: torch.Tensor = norms * (norms > torch.finfo(vectors.dtype).tiny)
    return usable


def cosines(vectors: torch.Tensor) -> torch.Tensor:
    """Return the cosines of every two vectors; 0 if one has norm 0.

    Args:
        vectors: the vectors. *Shape:* ``(..., n, width)``.

    Returns:
        *Shape:* ``(..., n, n)``.
    """
    length = vector_norms(vectors)
    units = vectors / length.masked_fill(length == 0, 1).unsqueeze(-1)
    units = units * (length > 0).unsqueeze(-1)
    products: torch.Tensor = (units @ units.mT).clamp(-1, 1)
    return products


def by_distance(values: torch.Tensor) -> torch.Tensor:
    """Return the sums over pairs at each distance, from 1. *Shape:* ``(..., n - 1)``.

    Args:
        values: values of pairs, the earlier token first, else 0. *Shape:* ``(..., n, n)``.
    """
    n = values.shape[-1]
    # Flipped and read in rows of 2n - 1, each diagonal becomes a column.
    wide = pad(values.flip(-2), (0, n)).flatten(-2)
    rows: torch.Tensor = wide[..., : n * (2 * n - 1)].unflatten(-1, (n, 2 * n - 1))
    return rows.sum(-2)[..., n:]


def sums_by_distance_label(values: torch.Tensor) -> torch.Tensor:
    """Return the sums over all pairs, at distances 1 to `MAX_DISTANCE` - 1, and beyond.

    Returns:
        *Shape:* ``(..., MAX_DISTANCE + 1)``.
    """
    sums = by_distance(values)
    near = pad(sums[..., : MAX_DISTANCE - 1], (0, max(MAX_DISTANCE - 1 - sums.shape[-1], 0)))
    far = sums[..., MAX_DISTANCE - 1 :].sum(-1, keepdim=True)
    return torch.cat([sums.sum(-1, keepdim=True), near, far], -1)


def odds(
    high: torch.Tensor, pairs: torch.Tensor, same: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return Mantel and Haenszel's two sums over distances; their ratio is an odds ratio.

    Args:
        high: 1 for pairs of high similarity, else 0. *Shape:* ``(..., n, n)``.
        pairs: 1 for all pairs, the earlier token first, else 0. *Shape:* ``(..., n, n)``.
        same: 1 for pairs of a kind, such as equal tokens. *Shape:* ``(..., n, n)``.

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
    """Return the similarity threshold of each top share of pairs, for each head.

    A threshold lies halfway between the lowest similarity of the share and the next lower one.

    Args:
        similarities: similarities of pairs; NaN without. *Shape:* ``(head, pair)``.

    Returns:
        *Shape:* ``(share, head)``; NaN without pairs.
    """
    rounded = similarities.astype(np.float64).round(SIMILARITY_DECIMALS)
    ordered = np.sort(rounded, -1)  # NaN is sorted last
    n_known = (~np.isnan(ordered)).sum(-1)
    limits = np.full((len(TOP_PAIR_SHARES), len(ordered)), np.nan)
    for number, share in enumerate(TOP_PAIR_SHARES.values()):
        has_pairs = n_known > 0
        index = n_known - np.ceil(n_known * share).astype(np.int64)
        heads = np.arange(len(ordered))[has_pairs]
        lowest = ordered[heads, index[has_pairs]]
        next_lower = ordered[heads, np.maximum(index[has_pairs] - 1, 0)]
        limits[number, has_pairs] = (lowest + next_lower) / 2
    return limits


class TokenPairs:
    """Pairs of the tokens that count as queries, in every sentence of a batch.

    Attributes:
        frame: mask of the batch.
    """

    def __init__(self, frame: BatchMask) -> None:
        self.frame = frame

    @cached_property
    def counted(self) -> torch.Tensor:
        """Tokens that count. *Shape:* ``(sentence, 1, token)``, boolean."""
        return self.frame.counted_queries.unsqueeze(1)

    def pairs_of(self, chosen: torch.Tensor) -> torch.Tensor:
        """Return 1 for pairs of chosen tokens, the earlier token first, else 0.

        Args:
            chosen: chosen tokens. *Shape:* ``(sentence, head, token)``, boolean.

        Returns:
            *Shape:* ``(sentence, head, n, n)``.
        """
        return (chosen.unsqueeze(-1) & chosen.unsqueeze(-2)).to(self.frame.dtype).triu(1)

    @cached_property
    def distance(self) -> torch.Tensor:
        """Distances of tokens. *Shape:* ``(n, n)``."""
        places = torch.arange(self.frame.queries.n_tokens, device=self.frame.attention_mask.device)
        return (places[None, :] - places[:, None]).abs().to(self.frame.dtype)

    @cached_property
    def same_token(self) -> torch.Tensor:
        """1 for pairs of equal tokens, else 0. *Shape:* ``(sentence, 1, n, n)``."""
        ids = self.frame.queries.ids
        return (ids[:, :, None] == ids[:, None, :]).unsqueeze(1).to(self.frame.dtype)

    @cached_property
    def same_sentence(self) -> torch.Tensor:
        """1 for tokens of one sentence of a passage, else 0. *Shape:* ``(sentence, 1, n, n)``."""
        part = self.frame.queries.part
        return (part[:, :, None] == part[:, None, :]).unsqueeze(1).to(self.frame.dtype)

    @property
    def joined(self) -> torch.Tensor:
        """1 for passages of several sentences, else 0. *Shape:* ``(sentence, 1, 1)``."""
        return self.frame.queries.joined.unsqueeze(-1).to(self.frame.dtype)

    @cached_property
    def places(self) -> TokenOrder:
        """Tokens that count, in order."""
        return TokenOrder.of(self.frame.counted_queries)
