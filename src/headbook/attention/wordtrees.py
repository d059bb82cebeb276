"""What trees from attention are made of and compared with: words without punctuation.

Punctuation is dropped from the attention and from the gold tree: where it hangs is a convention. A
word below it hangs on the head of the punctuation mark instead. Words without a token are dropped,
too; those below them become roots, for a tree ends where the text was cut off.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arithmetic import Floats
from headbook.analysis.trees import NO_HEAD
from headbook.terms import RELATIONS, UPOS
from headbook.text.tokens import NO_WORD

if TYPE_CHECKING:
    from headbook.attention.frame import Scope
    from headbook.attention.layerattention import LayerAttention
    from headbook.text.texts import Texts

Flags = NDArray[np.bool_]
Indices = NDArray[np.int64]

MOST_WORDS = 100  # the cost of a tree grows with the cube of their number
CELLS = 2**21  # of attention at a time: long texts need many tables of that size
DIGITS = 16  # of the binary fraction


class WordTrees(NamedTuple):
    """The words that are left of each sentence, and their gold tree.

    A sentence without a tree has no words here; words in a circle are no tree, either. Nor has a
    text of which more than `MOST_WORDS` are left, which is hardly one sentence.

    Attributes:
        place: number of each word among all words of its sentence; any in the padding.
            *Shape:* ``(sentence, word)``.
        heads: index of each word's head among those left, `NO_HEAD` for roots, of which there may
            be several, and in the padding. *Shape:* ``(sentence, word)``.
        lengths: words that are left. *Shape:* ``(sentence,)``.
    """

    place: Indices
    heads: Indices
    lengths: Indices


def word_trees(scope: "Scope") -> WordTrees:
    """The words and gold trees of a batch; see `WordTrees`."""
    texts = scope.frame.queries
    heads = texts.by_word(texts.head, NO_HEAD).cpu().numpy()
    kept = _kept(texts) & texts.parsed.cpu().numpy()
    return pruned(heads, kept, MOST_WORDS)


def pruned(heads: Indices, kept: Flags, most: int) -> WordTrees:
    """Trees without the words that are not kept; none of words in a circle, or of too many.

    Args:
        heads: index of each word's head, `NO_HEAD` without one. *Shape:* ``(sentence, word)``.
        kept: words that stay; the same shape.
        most: of them in a sentence.
    """
    heads = np.where(heads < heads.shape[1], heads, NO_HEAD)
    tree = (_climbs(heads) | ~kept).all(1) & (kept.sum(1) <= most)
    kept = kept & tree[:, None]
    number = np.where(kept, kept.cumsum(1) - 1, NO_HEAD)
    heads = _lifted(heads, kept)
    heads = np.where(heads == NO_HEAD, NO_HEAD, np.take_along_axis(number, heads, 1))
    lengths = kept.sum(1)
    place = np.argsort(~kept, axis=1, kind="stable")[:, : lengths.max()]
    heads = np.take_along_axis(np.where(kept, heads, NO_HEAD), place, 1)
    return WordTrees(place, heads, lengths)


def attention_parts(layer: "LayerAttention") -> Iterator[tuple[slice, Floats]]:
    """Attention between the words of `WordTrees`, a few sentences at a time, and which these are.

    Weights are rounded to some five digits, so that those that are equal but for rounding errors of
    the model's number format are equal, and sums of them exact.

    Yields:
        Sentences, and weights, 0 in the padding. *Shape:* ``(sentence, head, word, word)``, for as
        many words as the longest of them has.
    """
    trees, weights = layer.scope.once(word_trees), layer.maps.by_word
    n_sentences, n_heads = weights.shape[:2]
    step = max(CELLS // max(n_heads * trees.place.shape[1] ** 2, 1), 1)
    for start in range(0, n_sentences, step):
        part = slice(start, start + step)
        n_words = int(trees.lengths[part].max())
        place = trees.place[part, None, :n_words]
        inside = np.arange(n_words) < trees.lengths[part, None, None]
        table = np.take_along_axis(weights[part].cpu().numpy(), place[..., None], 2)
        table = np.take_along_axis(table, place[:, :, None], 3)
        yield part, _rounded(table * (inside[..., None] & inside[:, :, None]))


def _kept(texts: "Texts") -> Flags:
    """Words that have a token and are no punctuation, by their tag or, without one, relation."""
    word, tag, relation = (
        texts.by_word(values, NO_WORD).cpu().numpy()
        for values in (texts.word, texts.tag, texts.relation)
    )
    named = ((tag < 0) | (tag >= len(UPOS))) & (relation == RELATIONS.index("punct"))
    kept: Flags = (word != NO_WORD) & (tag != UPOS.index("PUNCT")) & ~named
    return kept


def _climbs(heads: Indices) -> Flags:
    """Whether a word comes to a root by going up. *Shape:* ``(sentence, word)``."""
    top = heads
    for _ in range(heads.shape[1]):
        if (top == NO_HEAD).all():
            break
        top = np.where(top == NO_HEAD, NO_HEAD, np.take_along_axis(heads, top, 1))
    climbs: Flags = top == NO_HEAD
    return climbs


def _lifted(heads: Indices, kept: Flags) -> Indices:
    """The nearest word above each word that is kept. *Shape:* ``(sentence, word)``."""
    for _ in range(heads.shape[1]):
        dropped = (heads != NO_HEAD) & ~np.take_along_axis(kept, heads, 1)
        if not dropped.any():
            break
        heads = np.where(dropped, np.take_along_axis(heads, heads, 1), heads)
    return heads


def _rounded(weights: NDArray[np.floating]) -> Floats:
    """Weights to `DIGITS` binary digits each."""
    fraction, exponent = np.frexp(weights.astype(np.float64))
    rounded: Floats = np.ldexp(np.round(np.ldexp(fraction, DIGITS)), exponent - DIGITS)
    return rounded
