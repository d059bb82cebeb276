"""Pairs of words that metrics ask for: dependency relations, word trees, repeated tokens.

Imports no torch.

Two questions are asked of each word with a head. *To head*: is the head the word's strongest key?
*To dependent*: is the word its head's strongest key? Only words that may be looked at from there
are asked for: in a causal stack, those that come before.

Punctuation is dropped from the attention and from the gold tree: where it hangs is a convention. A
word below it hangs on the head of the punctuation mark instead. Words without a token are dropped,
too; those below them become roots, for a tree ends where the text was cut off.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arrays import Floats
from headbook.analysis.trees import NO_HEAD
from headbook.attention.surface_rules import strongest_words
from headbook.schema import RELATIONS, UPOS, AnnotationScheme
from headbook.text.tokens import NO_WORD

if TYPE_CHECKING:
    import torch

    from headbook.attention.masks import BatchMask, ViewMask
    from headbook.attention.views import LayerAttention
    from headbook.text.batch import PaddedTexts


LABELS = AnnotationScheme().labels
# What can be asked of a word, as bits.
HAS_OTHERS = 1  # it sees another word
SEEN = 2  # others see it
TO_HEAD = 4  # it has a head, which it sees
TO_DEPENDENT = 8  # it has a head, which sees it
FAR = 3  # words apart: what is no matter of neighbourhood


class RelationQueries(NamedTuple):
    """The words that are asked for, and whom.

    Attributes:
        head: index of each word's head; 0 without one. *Shape:* ``(sentence, word)``.
        given: places among the scheme's labels of those that the sentences have at all; the
            first half of them to the head.
        labels: 1 where a word is asked for under one of these, all and far ones only.
            *Shape:* ``(sentence, word, given)``.
    """

    head: "torch.Tensor"
    given: list[int]
    labels: "torch.Tensor"
    far: "torch.Tensor"


def relation_queries(scope: "ViewMask") -> RelationQueries:
    """What can be asked of a batch's sentences."""
    texts, dtype = scope.frame.queries, scope.frame.dtype
    head = texts.by_word(texts.head, NO_HEAD)
    relation = texts.by_word(texts.relation, -1)
    numbers = relation.unique()
    numbers = numbers[numbers >= 0]
    of = (relation.unsqueeze(-1) == numbers) & (head != NO_HEAD).unsqueeze(-1)
    words = head.new_tensor(range(texts.n_words)).expand_as(head)
    # A head whose pieces were all cut off is no longer there.
    there = (head >= 0) & (head < texts.n_words) & (head != words)
    head = head.masked_fill(~there, 0)
    visible = scope.word_visible
    up = there & visible.gather(2, head.unsqueeze(-1)).squeeze(-1)
    down = there & visible.mT.gather(2, head.unsqueeze(-1)).squeeze(-1)
    half = len(numbers)
    labels = of.new_empty((*of.shape[:2], 2 * half))
    labels[..., :half] = of & up.unsqueeze(-1)
    labels[..., half:] = of & down.unsqueeze(-1)
    far = labels & ((head - words).abs() >= FAR).unsqueeze(-1)
    present = numbers.tolist()
    given = [*present, *(len(texts.scheme.relations) + number for number in present)]
    return RelationQueries(head, given, labels.to(dtype), far.to(dtype))


def finds_head_or_dependent(layer: "LayerAttention") -> "tuple[torch.Tensor, torch.Tensor]":
    """Whether each word finds its head, and whether its head finds it.

    *Shape:* ``(sentence, head, word)`` each, 0 or 1.
    """
    word = layer.cached(strongest_words)
    head = layer.scope.cached(relation_queries).head.unsqueeze(1)
    up = word == head
    words = word.new_tensor(range(word.shape[-1]))
    down = word.gather(-1, head.expand_as(word)) == words
    return up.to(layer.frame.dtype), down.to(layer.frame.dtype)


def relation_hits(layer: "LayerAttention") -> "torch.Tensor":
    """Return the words that are found, by label. *Shape:* ``(sentence, head, given)``."""
    return _counted(layer, layer.scope.cached(relation_queries).labels)


def far_hits(layer: "LayerAttention") -> "torch.Tensor":
    """The same for words that stand at least `FAR` from their head."""
    return _counted(layer, layer.scope.cached(relation_queries).far)


def _counted(layer: "LayerAttention", labels: "torch.Tensor") -> "torch.Tensor":
    half = labels.shape[-1] // 2
    up, down = layer.cached(finds_head_or_dependent)
    counts = up.new_empty((*up.shape[:2], labels.shape[-1]))
    counts[..., :half] = up @ labels[..., :half]
    counts[..., half:] = down @ labels[..., half:]
    return counts


def relation_chance(scope: "ViewMask", labels: "torch.Tensor") -> "torch.Tensor":
    """What a look at any other visible word alike would find. *Shape:* ``(sentence, 1, given)``.

    Args:
        labels: of `RelationQueries`, all or far ones only.
    """
    questions, half = scope.cached(relation_queries), labels.shape[-1] // 2
    words = questions.head.new_tensor(range(questions.head.shape[1]))
    choices = (scope.word_visible & (words[:, None] != words)).sum(-1).clamp(min=1)
    up = 1 / choices.to(labels.dtype)
    down = up.gather(1, questions.head)
    counts = labels.new_empty((len(labels), 1, labels.shape[-1]))
    counts[:, 0, :half] = (labels[..., :half] * up.unsqueeze(-1)).sum(1)
    counts[:, 0, half:] = (labels[..., half:] * down.unsqueeze(-1)).sum(1)
    return counts


def asked_of_words(scope: "ViewMask") -> "torch.Tensor":
    """Return what can be asked of each word, as bits.

    *Shape:* ``(sentence, word)``.
    """
    visible = scope.word_visible
    words = visible.new_zeros(()).long().new_tensor(range(visible.shape[-1]))
    others = (visible & (words[:, None] != words)).any(-1)
    labels = scope.cached(relation_queries).labels
    half = labels.shape[-1] // 2
    up, down = (part.any(-1) for part in (labels[..., :half] > 0, labels[..., half:] > 0))
    return HAS_OTHERS * others + SEEN * visible.any(1) + TO_HEAD * up + TO_DEPENDENT * down


Table = Callable[[Any], Any]  # which pairs: (sentence, query, key), boolean


def same_token(frame: "BatchMask") -> "torch.Tensor":
    """The key is an earlier place of the query's token."""
    same = frame.queries.ids[:, :, None] == frame.keys.ids[:, None, :]
    return same & (frame.offset < 0) & frame.attention_mask & _ordinary(frame)


def after_same_token(frame: "BatchMask") -> "torch.Tensor":
    """The key comes after an earlier place of the query's token."""
    earlier = frame.cached(same_token)
    after = earlier.new_zeros(earlier.shape)
    after[..., 1:] = earlier[..., :-1]
    return after & frame.attention_mask


def previous_token_pairs(frame: "BatchMask") -> "torch.Tensor":
    """The key stands just before the query."""
    return (frame.offset == -1) & frame.attention_mask & _ordinary(frame)


def _ordinary(frame: "BatchMask") -> "torch.Tensor":
    return ~frame.keys.special[:, None, :]


def on_pairs(layer: "LayerAttention", table: Table) -> "tuple[torch.Tensor, torch.Tensor]":
    """Mass on some pairs, and queries that have one. *Shape:* ``(sentence, head)``."""
    chosen = layer.frame.cached(table)
    counted = (chosen.any(-1) & layer.frame.counted_queries).sum(-1, keepdim=True)
    return layer.mass_on_pairs(layer.frame.cached(pairs_of(table))).squeeze(-1), counted


@cache
def pairs_of(table: Table) -> Table:
    """What makes pairs of a table: the same function each time, by which frames remember them."""

    def pairs(frame: "BatchMask") -> Any:
        return frame.pairs([frame.cached(table)])

    return pairs


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


def word_trees(scope: "ViewMask") -> WordTrees:
    """The words and gold trees of a batch; see `WordTrees`."""
    texts = scope.frame.queries
    heads = texts.by_word(texts.head, NO_HEAD).cpu().numpy()
    kept = _kept(texts) & texts.parsed.cpu().numpy()
    return prune_tree(heads, kept, MOST_WORDS)


def prune_tree(heads: Indices, kept: Flags, most: int) -> WordTrees:
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
    trees, weights = layer.scope.cached(word_trees), layer.maps.by_word
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


def _kept(texts: "PaddedTexts") -> Flags:
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
