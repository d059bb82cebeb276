"""What a pass over attention maps sums up, as tensor operations: for any device.

`headbook.attention.compiled` takes the same sums on the processor, many times as fast.
"""

from typing import NamedTuple

import torch

from headbook.attention.frame import Pairs, Scope


class RowSums(NamedTuple):
    """Sums of rows, columns and diagonals of one layer's maps.

    Attributes:
        mass: what each query gives to keys outside the sink; 0 where it is too small to divide by.
            *Shape:* ``(sentence, head, query)``.
        sink_mass: what it gives to the sink; the same shape.
        best, best_key: largest weight of each row outside the sink, and its key, the first of
            equals; the same shape.
        best_any, best_any_key: the same of all keys.
        columns: what each key receives: by token, by word, and both with renormalised rows.
            *Shape:* ``(sentence, head, 4, key)``.
        diagonals: mass at each offset, as it is, without the sink, and with renormalised rows;
            offset -(n-1) first. *Shape:* ``(sentence, head, 3, 2 n - 1)``; nothing for two texts.
    """

    mass: torch.Tensor
    sink_mass: torch.Tensor
    best: torch.Tensor
    best_key: torch.Tensor
    best_any: torch.Tensor
    best_any_key: torch.Tensor
    columns: torch.Tensor
    diagonals: torch.Tensor


class WordSums(NamedTuple):
    """Attention between words without the sink, to a word the sum, from a word the mean.

    Attributes:
        own: from each word to itself; 0 for two texts. *Shape:* ``(sentence, head, word)``.
        best, best_word: largest weight to any other word, and that word, the first of equals; for
            two texts to any word.
    """

    own: torch.Tensor
    best: torch.Tensor
    best_word: torch.Tensor


def row_sums(attention: torch.Tensor, scope: Scope) -> RowSums:
    """Sum up rows, columns and diagonals.

    Args:
        attention: *Shape:* ``(sentence, head, query, key)``.
        scope: of the view without the sink.
    """
    frame = scope.frame
    weights, kept = attention * frame.rows.unsqueeze(-1), attention * scope.mask
    mass = kept.sum(-1)
    # What is too small to divide by counts as nothing.
    mass = mass.masked_fill(mass < torch.finfo(mass.dtype).tiny, 0)
    scale = 1 / mass.masked_fill(mass == 0, 1)
    by_token = frame.rows.expand_as(scale)
    by_word = frame.words.unsqueeze(1).expand_as(scale)
    rows = [by_token, by_word, by_token * scale, by_word * scale]
    columns = torch.stack(rows, 2) @ weights
    maps = [weights, kept, kept * scale.unsqueeze(-1)]
    found = [] if frame.stack.crosses else [_diagonals(each) for each in maps]
    diagonals = torch.stack(found, 2) if found else mass.new_zeros(*mass.shape[:2], 3, 0)
    sink_mass = (weights - kept).sum(-1)
    return RowSums(mass, sink_mass, *kept.max(-1), *weights.max(-1), columns, diagonals)


def _diagonals(maps: torch.Tensor) -> torch.Tensor:
    """Sums along diagonals. *Shape:* ``(sentence, head, 2 n - 1)``."""
    sentences, heads, n, _ = maps.shape
    # Written into rows of 2n - 1 and read back in rows of 2n, each row stands one step further
    # left than the one above, so that a column holds a diagonal.
    flat = maps.new_zeros(sentences, heads, n * 2 * n)
    flat[..., : n * (2 * n - 1)].view(sentences, heads, n, 2 * n - 1)[..., n - 1 :] = maps
    return flat.view(sentences, heads, n, 2 * n).sum(2)[..., : 2 * n - 1]


def by_word(attention: torch.Tensor, scope: Scope) -> torch.Tensor:
    """Attention between words without the sink: to a word the sum, from a word the mean.

    *Shape:* ``(sentence, head, word, word)``; special tokens are no words.
    """
    kept = attention * scope.mask
    sentences, heads, n, m = kept.shape
    to_words = kept.reshape(sentences, heads * n, m) @ scope.frame.word_columns
    return scope.frame.word_rows.unsqueeze(1) @ to_words.view(sentences, heads, n, -1)


def word_sums(attention: torch.Tensor, scope: Scope) -> WordSums:
    """The strongest of each word's weights to words."""
    words = by_word(attention, scope)
    if scope.frame.stack.crosses:
        best, place = words.max(-1)
        return WordSums(torch.zeros_like(best), best, place)
    own = words.diagonal(dim1=-2, dim2=-1).clone()
    words.diagonal(dim1=-2, dim2=-1).zero_()
    return WordSums(own, *words.max(-1))


def pair_sums(attention: torch.Tensor, mass: torch.Tensor, pairs: Pairs) -> torch.Tensor:
    """Mass on chosen pairs: as it is, without the sink, and renormalised.

    Args:
        mass: what each row is divided by where it is not 0. *Shape:* ``(sentence, head, query)``.

    Returns:
        *Shape:* ``(3, sentence, head, measure)``.
    """
    heads = attention.shape[1]
    at = attention.flatten(2).gather(-1, pairs.place.unsqueeze(1).expand(-1, heads, -1))
    left = mass.masked_fill(mass == 0, 1)
    scaled = at / left.gather(-1, pairs.query.unsqueeze(1).expand(-1, heads, -1))
    return torch.stack([at @ pairs.counts, at @ pairs.kept, scaled @ pairs.kept])
