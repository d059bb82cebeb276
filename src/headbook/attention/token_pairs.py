"""Pairs of tokens: cosines by distance, equal tokens, and sentence ends proposed in passages.

Ends stand after tokens, numbered through the tokens of a passage that count. Measures are those of
text segmentation: Pk slides two probes over the text and counts how often they disagree on whether
they stand in one segment; WindowDiff counts windows with another number of ends; F1 compares ends.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import max_pool1d, pad

from headbook.attention.masks import BatchMask
from headbook.schema import MAX_DISTANCE, TOP_PAIR_SHARES

SIDE = 10  # tokens on each side of a gap that are compared
NEAR = 5  # gaps on each side among which a dip is the lowest
DECIMALS = 6
DEPTH = 0.5  # standard deviations of a passage's gaps by which it lies below their mean


class TokenOrder(NamedTuple):
    """The tokens of passages that count, in order and padded.

    Attributes:
        order: their positions. *Shape:* ``(sentence, place)``.
        there: whether there is one; the same shape.
    """

    order: torch.Tensor
    there: torch.Tensor

    @classmethod
    def of(cls, counted: torch.Tensor) -> "TokenOrder":
        """From what counts, ``(sentence, token)``, boolean."""
        there, order = counted.to(torch.uint8).sort(dim=1, descending=True, stable=True)
        return cls(order, there.bool())

    def take(self, values: torch.Tensor) -> torch.Tensor:
        """Values of tokens, their last dimension, by place; sentences are the first one."""
        shape = (len(values), *[1] * (values.ndim - 2), -1)
        return values.gather(-1, self.order.view(shape).expand(*values.shape[:-1], -1))

    def ends(self, after: torch.Tensor) -> torch.Tensor:
        """What is said of all but the last place, where there is a token behind it."""
        return pad(after & self.there[:, 1:], (0, 1))


def true_ends(places: TokenOrder, part: torch.Tensor) -> torch.Tensor:
    """Ends of sentences, the last one left out, by the sentence of each token."""
    part = places.take(part)
    return places.ends(part[:, 1:] != part[:, :-1])


def after_stops(places: TokenOrder, stop: torch.Tensor) -> torch.Tensor:
    """An end after every ``.``, ``!`` and ``?``; after the last one of several in a row."""
    stop = places.take(stop)
    return places.ends(stop[:, :-1] & ~stop[:, 1:])


def evenly_spaced_ends(places: TokenOrder, true: torch.Tensor) -> torch.Tensor:
    """As many ends as there are, at even distances."""
    segments = true.sum(1, keepdim=True) + 1
    tokens = places.there.sum(1, keepdim=True).clamp(1)
    numbers = torch.arange(true.shape[1], device=true.device) * segments // tokens
    return places.ends(numbers[:, 1:] != numbers[:, :-1])


def attended_stops(places: TokenOrder, stops: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    """Of the ends after stops those whose token gets more attention than the mean token.

    Args:
        stops: *Shape:* ``(sentence, place)``, boolean.
        given: attention that each token gets. *Shape:* ``(sentence, head, token)``.
    """
    there = places.there.unsqueeze(1)
    given = places.take(given) * there
    mean = given.sum(-1, keepdim=True) / there.sum(-1, keepdim=True).clamp(1)
    return stops.unsqueeze(1) & (given > mean)


def similarity_across_gaps(
    places: TokenOrder, similarity: torch.Tensor, pairs: torch.Tensor
) -> torch.Tensor:
    """Mean similarity across each gap, of up to `SIDE` tokens before with as many after.

    Args:
        similarity: 0 but for pairs. *Shape:* ``(sentence, head, n, n)``.
        pairs: 1 for each two tokens that count, the earlier one first; the same shape.

    Returns:
        By the place before the gap, 0 without pairs. *Shape:* ``(sentence, head, place)``.
    """
    n = similarity.shape[-1]
    middle = torch.arange(1, n + 1, device=similarity.device)
    first, last = (middle - SIDE).clamp(0), (middle + SIDE).clamp(max=n)
    sums = []
    for table in (similarity, pairs):
        in_order = places.take(places.take(table).mT).mT
        corners = pad(in_order, (1, 0, 1, 0)).cumsum(-1).cumsum(-2)
        above = corners[..., middle, last] - corners[..., first, last]
        sums.append(above - corners[..., middle, middle] + corners[..., first, middle])
    return sums[0] / sums[1].clamp(1)


def depth_minima(places: TokenOrder, scores: torch.Tensor) -> torch.Tensor:
    """Gaps that are the lowest of their neighbours and well below the mean of the passage.

    Args:
        scores: *Shape:* ``(sentence, head, place)``.

    Returns:
        The same shape, boolean.
    """
    known = places.ends(places.there[:, 1:]).unsqueeze(1)
    scores = scores.round(decimals=DECIMALS)  # where all are equal, rounding decides nothing
    n = known.sum(-1, keepdim=True).clamp(1)
    mean = (scores * known).sum(-1, keepdim=True) / n
    spread = (((scores - mean) ** 2 * known).sum(-1, keepdim=True) / n).sqrt()
    high = scores.masked_fill(~known, torch.inf)
    lowest = -max_pool1d(-high, 2 * NEAR + 1, 1, NEAR)
    return known & (high == lowest) & (high < mean - DEPTH * spread)


def segmentation_counts(
    places: TokenOrder, proposed: torch.Tensor, true: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """What F1, Pk and WindowDiff are ratios of.

    Pk and WindowDiff as in NLTK: windows of half a mean true segment, moved token by token.

    Args:
        proposed: *Shape:* ``(sentence, head, place)``, boolean.
        true: *Shape:* ``(sentence, place)``, boolean.

    Returns:
        Numerators and denominators; *Shape:* ``(sentence, head, 3)`` each.
    """
    tokens, gold = places.there.sum(1), true.unsqueeze(1)
    segments = true.sum(1) + 1
    width = (tokens / (2 * segments)).round().long().clamp(1)
    n = true.shape[1]
    starts = torch.arange(n, device=true.device)
    windows = (starts[None, :] + width[:, None] <= tokens[:, None]).unsqueeze(1)
    last = (starts[None, :] + width[:, None]).clamp(max=n).unsqueeze(1)

    def ends_within(ends: torch.Tensor) -> torch.Tensor:
        counts = pad(ends.long().cumsum(-1), (1, 0))
        return counts.gather(-1, last.expand(-1, ends.shape[1], -1)) - counts[..., :n]

    ours, theirs = ends_within(proposed), ends_within(gold)
    hits = 2 * (proposed & gold).sum(-1)
    apart = (((ours > 0) != (theirs > 0)) & windows).sum(-1)
    other = ((ours != theirs) & windows).sum(-1)
    total = windows.sum(-1).expand_as(hits)
    above = torch.stack([hits, apart, other], -1)
    return above, torch.stack([proposed.sum(-1) + gold.sum(-1), total, total], -1)


def vector_norms(vectors: torch.Tensor) -> torch.Tensor:
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
    length = vector_norms(vectors)
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


def sums_by_distance_label(values: torch.Tensor) -> torch.Tensor:
    """The same over all pairs, at distances 1 to `MAX_DISTANCE` - 1, and beyond.

    Returns:
        *Shape:* ``(..., REACH + 1)``.
    """
    sums = by_distance(values)
    near = pad(sums[..., : MAX_DISTANCE - 1], (0, max(MAX_DISTANCE - 1 - sums.shape[-1], 0)))
    far = sums[..., MAX_DISTANCE - 1 :].sum(-1, keepdim=True)
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
    """Return the least similarity of the top shares of each head, halfway to the next lower one.

    Args:
        similarities: NaN where there is none. *Shape:* ``(head, pair)``.

    Returns:
        *Shape:* ``(share, head)``; NaN without pairs.
    """
    ordered = np.sort(similarities.astype(np.float64).round(DECIMALS), -1)  # NaN comes last
    known = (~np.isnan(ordered)).sum(-1)
    found = np.full((len(TOP_PAIR_SHARES), len(ordered)), np.nan)
    for number, share in enumerate(TOP_PAIR_SHARES.values()):
        some = known > 0
        least = known - np.ceil(known * share).astype(np.int64)
        heads = np.arange(len(ordered))[some]
        above = ordered[heads, least[some]]
        below = ordered[heads, np.maximum(least[some] - 1, 0)]
        found[number, some] = (above + below) / 2
    return found


class TokenPairs:
    """The tokens that look, of every sentence of a batch.

    Attributes:
        frame: the sentences.
    """

    def __init__(self, frame: BatchMask) -> None:
        self.frame = frame

    @cached_property
    def counted(self) -> torch.Tensor:
        """Tokens that count. *Shape:* ``(sentence, 1, token)``, boolean."""
        return self.frame.counted_queries.unsqueeze(1)

    def pairs_of(self, there: torch.Tensor) -> torch.Tensor:
        """1 for every two of some tokens, the earlier one first.

        Args:
            there: *Shape:* ``(sentence, head, token)``, boolean.

        Returns:
            *Shape:* ``(sentence, head, n, n)``.
        """
        return (there.unsqueeze(-1) & there.unsqueeze(-2)).to(self.frame.dtype).triu(1)

    @cached_property
    def distance(self) -> torch.Tensor:
        """How far tokens are apart. *Shape:* ``(n, n)``."""
        places = torch.arange(self.frame.queries.n_tokens, device=self.frame.attention_mask.device)
        return (places[None, :] - places[:, None]).abs().to(self.frame.dtype)

    @cached_property
    def same_token(self) -> torch.Tensor:
        """1 where the same token stands twice. *Shape:* ``(sentence, 1, n, n)``."""
        ids = self.frame.queries.ids
        return (ids[:, :, None] == ids[:, None, :]).unsqueeze(1).to(self.frame.dtype)

    @cached_property
    def same_sentence(self) -> torch.Tensor:
        """1 where both tokens are of one sentence. *Shape:* ``(sentence, 1, n, n)``."""
        part = self.frame.queries.part
        return (part[:, :, None] == part[:, None, :]).unsqueeze(1).to(self.frame.dtype)

    @property
    def joined(self) -> torch.Tensor:
        """1 for passages of several sentences, else 0. *Shape:* ``(sentence, 1, 1)``."""
        return self.frame.queries.joined.unsqueeze(-1).to(self.frame.dtype)

    @cached_property
    def places(self) -> TokenOrder:
        """The tokens that count, in order."""
        return TokenOrder.of(self.frame.counted_queries)
