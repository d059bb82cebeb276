"""Pairs of tokens: cosines by distance, equal tokens, and sentence ends proposed in passages.

A sentence end has the index of the token before it among the tokens of the passage that count.
Proposed ends are rated by the measures of text segmentation. Pk moves a window over the text and
counts how often proposed and true ends disagree on whether both window ends are in one segment.
WindowDiff counts windows with different numbers of ends. F1 compares ends, which agree within 0, 1
or 2 tokens; each end agrees with one other end at most.
"""

from functools import cached_property
from typing import NamedTuple

import torch
from torch.nn.functional import max_pool1d, pad

from headbook.attention.masks import BatchMask
from headbook.attention.pair_cells import SIMILARITY_DECIMALS
from headbook.schema import GAP_TOKENS, MAX_DISTANCE

MINIMUM_RADIUS = 5  # gaps on each side of a minimum that must not be lower
END_TOLERANCES = (0, 1, 2)  # tokens between a proposed and a true end that agree
MIN_PAIRS = 0.5  # below 1, since sums over corners of a table are rounded
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
    """Return the mean similarity between up to `GAP_TOKENS` tokens before and after each gap.

    Args:
        similarity: similarities of pairs, else 0. *Shape:* ``(sentence, head, n, n)``.
        pairs: 1 for pairs of tokens that count, the earlier first, else 0. *Shape:* ``(sentence,
            head, n, n)``.

    Returns:
        By the place before the gap, NaN without pairs. *Shape:* ``(sentence, head, place)``.
    """
    n = similarity.shape[-1]
    middle = torch.arange(1, n + 1, device=similarity.device)
    first, last = (middle - GAP_TOKENS).clamp(0), (middle + GAP_TOKENS).clamp(max=n)
    sums = []
    for table in (similarity, pairs):
        in_order = places.take(places.take(table).mT).mT
        corners = pad(in_order, (1, 0, 1, 0)).cumsum(-1).cumsum(-2)
        above = corners[..., middle, last] - corners[..., first, last]
        sums.append(above - corners[..., middle, middle] + corners[..., first, middle])
    return sums[0] / sums[1].masked_fill(sums[1] < MIN_PAIRS, torch.nan)


def depth_minima(places: TokenOrder, scores: torch.Tensor) -> torch.Tensor:
    """Return the gaps that are minima of their neighbours and well below the passage's mean.

    Args:
        scores: similarity across each gap, NaN for a gap in a run of one token. *Shape:*
            ``(sentence, head, place)``.

    Returns:
        Boolean mask. *Shape:* ``(sentence, head, place)``.
    """
    is_gap = places.ends(places.valid[:, 1:]).unsqueeze(1) & ~scores.isnan()
    scores = scores.nan_to_num()
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
    """Return the numerators and denominators of F1 within 0, 1 and 2 tokens, Pk and WindowDiff.

    Pk and WindowDiff as in NLTK: windows of half a mean true segment, moved token by token.

    Args:
        proposed: proposed ends. *Shape:* ``(sentence, head, place)``, boolean.
        true: true ends. *Shape:* ``(sentence, place)``, boolean.

    Returns:
        Numerators and denominators; *Shape:* ``(sentence, head, 5)`` each.
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
    hits = [2 * matched_ends(proposed, true, within) for within in END_TOLERANCES]
    pk_errors = (((n_proposed > 0) != (n_true > 0)) & windows).sum(-1)
    window_errors = ((n_proposed != n_true) & windows).sum(-1)
    total, ends = windows.sum(-1).expand_as(pk_errors), proposed.sum(-1) + gold.sum(-1)
    above = torch.stack([*hits, pk_errors, window_errors], -1)
    return above, torch.stack([*[ends] * len(hits), total, total], -1)


def matched_ends(proposed: torch.Tensor, true: torch.Tensor, within: int) -> torch.Tensor:
    """Return the largest number of pairs of proposed and true ends at most ``within`` places apart.

    True ends take the first free end in their reach, from left to right. No other choice gives more
    pairs, since reaches begin and end in the order of the true ends.

    Args:
        proposed: proposed ends. *Shape:* ``(sentence, head, place)``, boolean.
        true: true ends. *Shape:* ``(sentence, place)``, boolean.

    Returns:
        *Shape:* ``(sentence, head)``.
    """
    if within == 0:
        return (proposed & true.unsqueeze(1)).sum(-1)
    free = pad(proposed, (within, within))
    order = true.to(torch.uint8).sort(dim=1, descending=True, stable=True).indices
    found = proposed.new_zeros(proposed.shape[:2], dtype=torch.long)
    for number in range(int(true.sum(1).max())):
        place = order[:, number, None]  # of the end in the padded row: `within` places further
        waiting = true.gather(1, place)
        for step in range(2 * within + 1):
            at = (place + step).unsqueeze(1).expand(-1, free.shape[1], 1)
            taken = free.gather(-1, at).squeeze(-1) & waiting
            free.scatter_(-1, at, free.gather(-1, at) & ~taken.unsqueeze(-1))
            waiting = waiting & ~taken
            found += taken
    return found


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


class TokenPairs:
    """Pairs of the tokens that count as queries, in every sentence of a batch.

    Of a run of one and the same token only the first takes part: 78 ``=`` in a row would be more
    pairs than the rest of their text has.

    Attributes:
        frame: mask of the batch.
    """

    def __init__(self, frame: BatchMask) -> None:
        self.frame = frame

    @cached_property
    def counted(self) -> torch.Tensor:
        """Tokens that count. *Shape:* ``(sentence, 1, token)``, boolean."""
        return self.frame.counted_queries.unsqueeze(1)

    @cached_property
    def taking_part(self) -> torch.Tensor:
        """Tokens that count and do not repeat the token before. *Shape:* as `counted`, boolean."""
        ids, counted = self.frame.queries.ids.unsqueeze(1), self.counted
        repeats = counted[..., :-1] & (ids[..., 1:] == ids[..., :-1])
        return counted & ~pad(repeats, (1, 0))

    def pairs_of(self, chosen: torch.Tensor) -> torch.Tensor:
        """Return 1 for pairs of chosen tokens, the earlier token first, else 0.

        Args:
            chosen: chosen tokens. *Shape:* ``(sentence, head, token)``, boolean.

        Returns:
            *Shape:* ``(sentence, head, n, n)``; one head if all heads have the same tokens.
        """
        if bool((chosen == chosen[:, :1]).all()):
            chosen = chosen[:, :1]
        return (chosen.unsqueeze(-1) & chosen.unsqueeze(-2)).to(self.frame.dtype).triu(1)

    @cached_property
    def same_token(self) -> torch.Tensor:
        """Boolean mask of pairs of equal tokens. *Shape:* ``(sentence, n, n)``."""
        ids = self.frame.queries.ids
        return ids[:, :, None] == ids[:, None, :]

    @property
    def joined(self) -> torch.Tensor:
        """1 for passages of several sentences, else 0. *Shape:* ``(sentence, 1, 1)``."""
        return self.frame.queries.joined.unsqueeze(-1).to(self.frame.dtype)

    @cached_property
    def places(self) -> TokenOrder:
        """Tokens that count, in order."""
        return TokenOrder.of(self.frame.counted_queries)
