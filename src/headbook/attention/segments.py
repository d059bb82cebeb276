"""Where passages fall apart into sentences: proposed ends, and how far they are from the true ones.

Ends stand after tokens, numbered through the tokens of a passage that count. Measures are those of
text segmentation: Pk slides two probes over the text and counts how often they disagree on whether
they stand in one segment; WindowDiff counts windows with another number of ends; F1 compares ends.
"""

from typing import NamedTuple

import torch
from torch.nn.functional import max_pool1d, pad

SIDE = 10  # tokens on each side of a gap that are compared
NEAR = 5  # gaps on each side among which a dip is the lowest
DECIMALS = 6
DEPTH = 0.5  # standard deviations of a passage's gaps by which it lies below their mean


class Places(NamedTuple):
    """The tokens of passages that count, in order and padded.

    Attributes:
        order: their positions. *Shape:* ``(sentence, place)``.
        there: whether there is one; the same shape.
    """

    order: torch.Tensor
    there: torch.Tensor

    @classmethod
    def of(cls, counted: torch.Tensor) -> "Places":
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


def true_ends(places: Places, part: torch.Tensor) -> torch.Tensor:
    """Ends of sentences, the last one left out, by the sentence of each token."""
    part = places.take(part)
    return places.ends(part[:, 1:] != part[:, :-1])


def after_stops(places: Places, stop: torch.Tensor) -> torch.Tensor:
    """An end after every ``.``, ``!`` and ``?``; after the last one of several in a row."""
    stop = places.take(stop)
    return places.ends(stop[:, :-1] & ~stop[:, 1:])


def even(places: Places, true: torch.Tensor) -> torch.Tensor:
    """As many ends as there are, at even distances."""
    segments = true.sum(1, keepdim=True) + 1
    tokens = places.there.sum(1, keepdim=True).clamp(1)
    numbers = torch.arange(true.shape[1], device=true.device) * segments // tokens
    return places.ends(numbers[:, 1:] != numbers[:, :-1])


def favoured(places: Places, stops: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    """Of the ends after stops those whose token gets more attention than the mean token.

    Args:
        stops: *Shape:* ``(sentence, place)``, boolean.
        given: attention that each token gets. *Shape:* ``(sentence, head, token)``.
    """
    there = places.there.unsqueeze(1)
    given = places.take(given) * there
    mean = given.sum(-1, keepdim=True) / there.sum(-1, keepdim=True).clamp(1)
    return stops.unsqueeze(1) & (given > mean)


def across(places: Places, similarity: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
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


def dips(places: Places, scores: torch.Tensor) -> torch.Tensor:
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


def compare(
    places: Places, proposed: torch.Tensor, true: torch.Tensor
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
