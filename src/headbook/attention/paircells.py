"""Pairs of words by surface: parts of speech of query and key, and the distance between them."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headbook.inputs import NO_HEAD

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from headbook.attention.frame import Scope
    from headbook.attention.layerattention import LayerAttention

NEAR = 8  # words; pairs farther apart are counted together, on either side
BINS = 2 * (NEAR + 1) + 1
MOST_LINKS = 256  # pairs of head and dependent in a text, in both directions
NO_CELL = np.iinfo(np.uint16).max


class PairsBySurface(NamedTuple):
    """The pairs of words of a batch.

    Attributes:
        cell: number of each pair's cell. *Shape:* ``(sentence, word, word)``.
        visible: whether the query sees the key; the same shape.
        linked: whether one is the other's head, and seen; the same shape.
        counted: whether a sentence takes part: with a tree, and at most `MOST_LINKS` linked pairs.
            *Shape:* ``(sentence,)``.
    """

    cell: "torch.Tensor"
    visible: "torch.Tensor"
    linked: "torch.Tensor"
    counted: "torch.Tensor"


def n_cells(n_tags: int) -> int:
    """Return the number of cells for that many parts of speech, words without one included."""
    return (n_tags + 1) ** 2 * BINS


def pairs_by_surface(scope: "Scope") -> PairsBySurface:
    """Return the cells of all pairs of words of a batch."""
    texts = scope.frame.queries
    n_tags = len(texts.scheme.tags)
    tag = texts.by_word(texts.tag, -1)
    tag = tag.masked_fill(tag < 0, n_tags)
    words = tag.new_tensor(range(texts.n_words))
    away = (words - words[:, None]).clamp(-NEAR - 1, NEAR + 1) + NEAR + 1
    cell = (tag[:, :, None] * (n_tags + 1) + tag[:, None, :]) * BINS + away
    head = texts.by_word(texts.head, NO_HEAD)
    # In all layers alike, whatever their windows: as many links as there are trees.
    few = 2 * (head != NO_HEAD).sum(1) <= MOST_LINKS
    to_head = texts.to_head
    linked = (to_head | to_head.mT) & scope.word_visible
    return PairsBySurface(cell, scope.word_visible, linked, few & texts.parsed.squeeze(1))


def mass_by_cell(layer: "LayerAttention", chosen: "NDArray[np.bool_]") -> "NDArray[np.float64]":
    """Return the attention of each head in each cell, added up over chosen sentences.

    Args:
        chosen: *Shape:* ``(sentence,)``.

    Returns:
        *Shape:* ``(head, cell)``.
    """
    pairs = layer.scope.once(pairs_by_surface)
    cell = pairs.cell.cpu().numpy()[chosen].ravel()
    weights = layer.maps.by_word.double().cpu().numpy()[chosen]
    size = n_cells(len(layer.frame.queries.scheme.tags))
    return np.stack([np.bincount(cell, part.ravel(), size) for part in np.moveaxis(weights, 1, 0)])


def pairs_in_cells(scope: "Scope", chosen: "NDArray[np.bool_]") -> "NDArray[np.float64]":
    """Return the number of visible pairs in each cell of chosen sentences. *Shape:* ``(cell,)``."""
    pairs = scope.once(pairs_by_surface)
    visible = pairs.visible.cpu().numpy()[chosen]
    size = n_cells(len(scope.frame.queries.scheme.tags))
    return np.bincount(pairs.cell.cpu().numpy()[chosen][visible], minlength=size).astype(float)


def linked_cells(scope: "Scope") -> "NDArray[np.uint16]":
    """Return the cells of each sentence's linked pairs, `NO_CELL` behind the last.

    *Shape:* ``(sentence, MOST_LINKS)``.
    """
    pairs = scope.once(pairs_by_surface)
    there = (pairs.linked & pairs.counted[:, None, None]).cpu().numpy()
    found = np.full((len(there), MOST_LINKS), NO_CELL, np.uint16)
    sentence = np.nonzero(there)[0]
    number = there.sum((1, 2))
    place = np.arange(len(sentence)) - np.repeat(number.cumsum() - number, number)
    found[sentence, place] = pairs.cell.cpu().numpy()[there]
    return found
