"""Pairs of words and tokens in metrics: dependency relations, word trees, repeated tokens.

Imports no torch.

Two properties of each word with a head are tested. *To head*: the head is the word's strongest key.
*To dependent*: the word is its head's strongest key. Only visible words are tested, which are
earlier words in a causal stack.

Punctuation is removed from the attention and from the gold tree, since its attachment is a
convention; its dependents get the head of the punctuation mark. Words without a token, at the end
of a text that was cut off, are removed, too, and their dependents become roots.
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
# Properties of a word that make it testable, as bits.
HAS_OTHERS = 1  # the word sees another word
SEEN = 2  # another word sees the word
TO_HEAD = 4  # the word has a head and sees the head
TO_DEPENDENT = 8  # the word has a head that sees the word
MIN_FAR_DISTANCE = 3  # distance in words from which on a head is no neighbour


class RelationQueries(NamedTuple):
    """Words whose relations are tested, with their heads.

    Attributes:
        head: index of each word's head; 0 without one. *Shape:* ``(sentence, word)``.
        given: indices, in the scheme's labels, of the labels that occur in the batch; the first
            half is to the head.
        labels: 1 if a word is tested under a label, else 0. *Shape:* ``(sentence, word, given)``.
        far: 1 if the word's head is also at least `MIN_FAR_DISTANCE` words away, else 0. *Shape:*
            ``(sentence, word, given)``.
    """

    head: "torch.Tensor"
    given: list[int]
    labels: "torch.Tensor"
    far: "torch.Tensor"


def relation_queries(scope: "ViewMask") -> RelationQueries:
    """Return the words of a batch whose relations can be tested."""
    texts, dtype = scope.frame.queries, scope.frame.dtype
    head = texts.by_word(texts.head, NO_HEAD)
    relation = texts.by_word(texts.relation, -1)
    numbers = relation.unique()
    numbers = numbers[numbers >= 0]
    has_relation = (relation.unsqueeze(-1) == numbers) & (head != NO_HEAD).unsqueeze(-1)
    words = head.new_tensor(range(texts.n_words)).expand_as(head)
    # A head whose pieces were all cut off does not count.
    has_head = (head >= 0) & (head < texts.n_words) & (head != words)
    head = head.masked_fill(~has_head, 0)
    visible = scope.word_visible
    up = has_head & visible.gather(2, head.unsqueeze(-1)).squeeze(-1)
    down = has_head & visible.mT.gather(2, head.unsqueeze(-1)).squeeze(-1)
    n_relations = len(numbers)
    labels = has_relation.new_empty((*has_relation.shape[:2], 2 * n_relations))
    labels[..., :n_relations] = has_relation & up.unsqueeze(-1)
    labels[..., n_relations:] = has_relation & down.unsqueeze(-1)
    far = labels & ((head - words).abs() >= MIN_FAR_DISTANCE).unsqueeze(-1)
    present = numbers.tolist()
    present_labels = [*present, *(len(texts.scheme.relations) + number for number in present)]
    return RelationQueries(head, present_labels, labels.to(dtype), far.to(dtype))


def finds_head_or_dependent(layer: "LayerAttention") -> "tuple[torch.Tensor, torch.Tensor]":
    """Return which words find their head, and which words their head finds, as 0 and 1.

    *Shape:* ``(sentence, head, word)`` each, 0 or 1.
    """
    word = layer.cached(strongest_words)
    head = layer.scope.cached(relation_queries).head.unsqueeze(1)
    up = word == head
    words = word.new_tensor(range(word.shape[-1]))
    down = word.gather(-1, head.expand_as(word)) == words
    return up.to(layer.frame.dtype), down.to(layer.frame.dtype)


def relation_hits(layer: "LayerAttention") -> "torch.Tensor":
    """Count the words that are found, by label. *Shape:* ``(sentence, head, given)``."""
    return _counted(layer, layer.scope.cached(relation_queries).labels)


def far_hits(layer: "LayerAttention") -> "torch.Tensor":
    """Count the found words whose head is far away. *Shape:* ``(sentence, head, given)``."""
    return _counted(layer, layer.scope.cached(relation_queries).far)


def _counted(layer: "LayerAttention", labels: "torch.Tensor") -> "torch.Tensor":
    half = labels.shape[-1] // 2
    up, down = layer.cached(finds_head_or_dependent)
    counts = up.new_empty((*up.shape[:2], labels.shape[-1]))
    counts[..., :half] = up @ labels[..., :half]
    counts[..., half:] = down @ labels[..., half:]
    return counts


def relation_chance(scope: "ViewMask", labels: "torch.Tensor") -> "torch.Tensor":
    """Return the expected number of found words for a random choice among visible others.

    *Shape:* ``(sentence, 1, given)``.

    Args:
        labels: `labels` or `far` of `RelationQueries`.
    """
    queries, half = scope.cached(relation_queries), labels.shape[-1] // 2
    words = queries.head.new_tensor(range(queries.head.shape[1]))
    choices = (scope.word_visible & (words[:, None] != words)).sum(-1).clamp(min=1)
    up = 1 / choices.to(labels.dtype)
    down = up.gather(1, queries.head)
    counts = labels.new_empty((len(labels), 1, labels.shape[-1]))
    counts[:, 0, :half] = (labels[..., :half] * up.unsqueeze(-1)).sum(1)
    counts[:, 0, half:] = (labels[..., half:] * down.unsqueeze(-1)).sum(1)
    return counts


def testable_properties(scope: "ViewMask") -> "torch.Tensor":
    """Return the testable properties of each word, as bits. *Shape:* ``(sentence, word)``."""
    visible = scope.word_visible
    words = visible.new_zeros(()).long().new_tensor(range(visible.shape[-1]))
    others = (visible & (words[:, None] != words)).any(-1)
    labels = scope.cached(relation_queries).labels
    half = labels.shape[-1] // 2
    up, down = (part.any(-1) for part in (labels[..., :half] > 0, labels[..., half:] > 0))
    return HAS_OTHERS * others + SEEN * visible.any(1) + TO_HEAD * up + TO_DEPENDENT * down


Table = Callable[[Any], Any]  # returns a boolean table of pairs (sentence, query, key)


def same_token(frame: "BatchMask") -> "torch.Tensor":
    """Return the pairs whose key is an earlier occurrence of the query's token."""
    same = frame.queries.ids[:, :, None] == frame.keys.ids[:, None, :]
    return same & (frame.offset < 0) & frame.attention_mask & _ordinary(frame)


def after_same_token(frame: "BatchMask") -> "torch.Tensor":
    """Return the pairs whose key follows an earlier occurrence of the query's token."""
    earlier = frame.cached(same_token)
    after = earlier.new_zeros(earlier.shape)
    after[..., 1:] = earlier[..., :-1]
    return after & frame.attention_mask


def previous_token_pairs(frame: "BatchMask") -> "torch.Tensor":
    """Return the pairs whose key is at the position before the query."""
    return (frame.offset == -1) & frame.attention_mask & _ordinary(frame)


def _ordinary(frame: "BatchMask") -> "torch.Tensor":
    return ~frame.keys.special[:, None, :]


def on_pairs(layer: "LayerAttention", table: Table) -> "tuple[torch.Tensor, torch.Tensor]":
    """Return the mass on chosen pairs, and the number of queries with such a pair.

    *Shape:* ``(sentence, head)``.
    """
    chosen = layer.frame.cached(table)
    counted = (chosen.any(-1) & layer.frame.counted_queries).sum(-1, keepdim=True)
    return layer.mass_on_pairs(layer.frame.cached(pairs_of(table))).squeeze(-1), counted


@cache
def pairs_of(table: Table) -> Table:
    """Return the function that makes pairs from a table, cached so that masks cache by it."""

    def pairs(frame: "BatchMask") -> Any:
        return frame.pairs([frame.cached(table)])

    return pairs


Flags = NDArray[np.bool_]
Indices = NDArray[np.int64]

MAX_TREE_WORDS = 100  # words of a tree, whose cost grows with the cube of their number
MAX_WEIGHTS = 2**21  # attention weights at a time, since long texts need many tables of that size
WEIGHT_BITS = 16  # binary digits to which weights are rounded


class WordTrees(NamedTuple):
    """Words of each sentence without punctuation, with their gold tree.

    A sentence without a tree, or with words in a circle, has no words here. Nor has a text with
    more than `MAX_TREE_WORDS` remaining words, which is hardly one sentence.

    Attributes:
        place: index of each word among all words of its sentence; arbitrary in the padding.
            *Shape:* ``(sentence, word)``.
        heads: index of each word's head among the remaining words; `NO_HEAD` in the padding and
            for roots, of which a tree may have several. *Shape:* ``(sentence, word)``.
        lengths: number of remaining words. *Shape:* ``(sentence,)``.
    """

    place: Indices
    heads: Indices
    lengths: Indices


def word_trees(scope: "ViewMask") -> WordTrees:
    """Return the words and gold trees of a batch."""
    texts = scope.frame.queries
    heads = texts.by_word(texts.head, NO_HEAD).cpu().numpy()
    kept = _tree_words(texts) & texts.parsed.cpu().numpy()
    return prune_tree(heads, kept, MAX_TREE_WORDS)


def prune_tree(heads: Indices, kept: Flags, max_words: int) -> WordTrees:
    """Return trees of the kept words; a sentence with a circle or too many words has no words.

    Args:
        heads: index of each word's head, `NO_HEAD` without one. *Shape:* ``(sentence, word)``.
        kept: words of the pruned tree. *Shape:* ``(sentence, word)``.
        max_words: largest number of remaining words in a sentence.
    """
    heads = np.where(heads < heads.shape[1], heads, NO_HEAD)
    tree = (_leads_to_root(heads) | ~kept).all(1) & (kept.sum(1) <= max_words)
    kept = kept & tree[:, None]
    number = np.where(kept, kept.cumsum(1) - 1, NO_HEAD)
    heads = _nearest_kept_ancestors(heads, kept)
    heads = np.where(heads == NO_HEAD, NO_HEAD, np.take_along_axis(number, heads, 1))
    lengths = kept.sum(1)
    place = np.argsort(~kept, axis=1, kind="stable")[:, : lengths.max()]
    heads = np.take_along_axis(np.where(kept, heads, NO_HEAD), place, 1)
    return WordTrees(place, heads, lengths)


def attention_parts(layer: "LayerAttention") -> Iterator[tuple[slice, Floats]]:
    """Yield attention between the words of `WordTrees`, a few sentences at a time.

    Weights are rounded to about five digits, so that weights that differ by rounding errors of the
    model's number format only become equal, and sums of weights become exact.

    Yields:
        Slice of the sentences, and weights, 0 in the padding. *Shape:* ``(sentence, head, word,
        word)``, for as many words as the longest sentence of the slice has.
    """
    trees, weights = layer.scope.cached(word_trees), layer.maps.by_word
    n_sentences, n_heads = weights.shape[:2]
    step = max(MAX_WEIGHTS // max(n_heads * trees.place.shape[1] ** 2, 1), 1)
    for start in range(0, n_sentences, step):
        part = slice(start, start + step)
        n_words = int(trees.lengths[part].max())
        place = trees.place[part, None, :n_words]
        inside = np.arange(n_words) < trees.lengths[part, None, None]
        table = np.take_along_axis(weights[part].cpu().numpy(), place[..., None], 2)
        table = np.take_along_axis(table, place[:, :, None], 3)
        yield part, _rounded(table * (inside[..., None] & inside[:, :, None]))


def _tree_words(texts: "PaddedTexts") -> Flags:
    """Return the words with a token that are no punctuation by tag or, without tag, relation."""
    word, tag, relation = (
        texts.by_word(values, NO_WORD).cpu().numpy()
        for values in (texts.word, texts.tag, texts.relation)
    )
    by_relation = ((tag < 0) | (tag >= len(UPOS))) & (relation == RELATIONS.index("punct"))
    words_of_tree: Flags = (word != NO_WORD) & (tag != UPOS.index("PUNCT")) & ~by_relation
    return words_of_tree


def _leads_to_root(heads: Indices) -> Flags:
    """Return whether each word leads to a root by its heads. *Shape:* ``(sentence, word)``."""
    top = heads
    for _ in range(heads.shape[1]):
        if (top == NO_HEAD).all():
            break
        top = np.where(top == NO_HEAD, NO_HEAD, np.take_along_axis(heads, top, 1))
    leads_to_root: Flags = top == NO_HEAD
    return leads_to_root


def _nearest_kept_ancestors(heads: Indices, kept: Flags) -> Indices:
    """Return the nearest kept ancestor of each word. *Shape:* ``(sentence, word)``."""
    for _ in range(heads.shape[1]):
        dropped = (heads != NO_HEAD) & ~np.take_along_axis(kept, heads, 1)
        if not dropped.any():
            break
        heads = np.where(dropped, np.take_along_axis(heads, heads, 1), heads)
    return heads


def _rounded(weights: NDArray[np.floating]) -> Floats:
    """Return weights rounded to `WEIGHT_BITS` binary digits each."""
    fraction, exponent = np.frexp(weights.astype(np.float64))
    rounded: Floats = np.ldexp(np.round(np.ldexp(fraction, WEIGHT_BITS)), exponent - WEIGHT_BITS)
    return rounded
