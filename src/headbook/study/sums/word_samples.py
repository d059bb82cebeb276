"""Attention between words: strongest words of sampled sentences, and sums by part of speech.

From the strongest word of every word and head follow the accuracy of heads for every relation, the
accuracy of every surface rule, and the words on which only one of head and rule is right. Storing
the strongest words takes less memory than sums for every head, relation and rule.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import add_fields, split_of
from headbook.analysis.arrays import Floats, Ints, divide
from headbook.analysis.intervals import MIN_EFFECTIVE, critical_value
from headbook.attention.surface_rules import (
    NO_SELECTION,
    neighbours,
    rule_names,
    rule_words,
)
from headbook.attention.word_pairs import HAS_OTHERS, SEEN, TO_DEPENDENT, TO_HEAD
from headbook.schema import DIRECTIONS, RELATIONS, UPOS, AnnotationScheme

MAX_SENTENCE_WORDS = np.iinfo(np.int16).max  # words of a sentence, so that their places fit


class RelationCases(NamedTuple):
    """Words of one relation and direction.

    Attributes:
        sentence: the sentence of each case; ascending. *Shape:* ``(case,)``.
        query, key: the querying word and the right answer, as places among all words. *Shape:*
            ``(case,)`` each.
        right: place of the right answer inside the sentence. *Shape:* ``(case,)``.
    """

    sentence: Ints
    query: Ints
    key: Ints
    right: Ints


@dataclass(frozen=True, eq=False)
class StrongestWords:
    """Annotated sentences with the smallest hashes, word by word, in the order of their hashes.

    A sentence is kept if the sentences of smaller hash have fewer than ``size`` words together, so
    that merging the samples of two parts gives the sample of the whole corpus.

    Attributes:
        size: number of words from which on no further sentence is kept.
        causal: whether words see earlier words only.
        content_hash, index, lengths: of each sentence, with its place in the input and its number
            of words. *Shape:* ``(sentence,)``.
        strongest: place of each word's strongest other word in its sentence, sink masked;
            `NOTHING` without one. *Shape:* ``(word, layer, head)``.
        tag, relation: numbers in the scheme, negative without one. *Shape:* ``(word,)``.
        head: place of each word's head in its sentence. *Shape:* ``(word,)``.
        asked: bits `HAS_OTHERS`, `SEEN`, `TO_HEAD`, `TO_DEPENDENT`. *Shape:* ``(word,)``.
        own_tags, own: the corpus's own tags and relations, which come after those of Universal
            Dependencies.
    """

    size: int
    causal: bool
    content_hash: NDArray[np.uint64]
    index: Ints
    lengths: Ints
    strongest: NDArray[np.int16]
    tag: NDArray[np.int16]
    relation: NDArray[np.int16]
    head: NDArray[np.int16]
    asked: NDArray[np.uint8]
    own_tags: tuple[str, ...] = ()
    own: tuple[str, ...] = ()

    @property
    def scheme(self) -> AnnotationScheme:
        """Names of parts of speech and relations."""
        return AnnotationScheme((*UPOS, *self.own_tags), (*RELATIONS, *self.own))

    @property
    def labels(self) -> tuple[str, ...]:
        """Relation and direction of each label."""
        return self.scheme.labels

    @property
    def rules(self) -> tuple[str, ...]:
        """Names of the surface rules."""
        return rule_names(self.scheme.tags)

    @property
    def half(self) -> Ints:
        """The half of the corpus that each sentence belongs to."""
        return split_of(self.content_hash)

    @property
    def sentence(self) -> Ints:
        """The sentence of each word. *Shape:* ``(word,)``."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @property
    def has_others(self) -> NDArray[np.bool_]:
        """Whether each word sees another word. *Shape:* ``(word,)``."""
        mask: NDArray[np.bool_] = (self.asked & HAS_OTHERS) > 0
        return mask

    @property
    def first(self) -> Ints:
        """Place of the first word of each word's sentence. *Shape:* ``(word,)``."""
        return np.repeat(self.lengths.cumsum() - self.lengths, self.lengths)

    def of(self, half: int) -> "StrongestWords":
        """Return the sentences of one half."""
        return self.select(np.flatnonzero(self.half == half))

    def named(self) -> NDArray[np.int32]:
        """Return the word that each rule names. *Shape:* ``(rule, word)``; see `rule_words`."""
        seen = (self.asked & SEEN) > 0
        return rule_words(self.tag, seen, self.lengths, self.scheme.tags, causal=self.causal)

    def taken(self) -> NDArray[np.int32]:
        """Return the word that each rule takes as a baseline: a neighbour if it names none.

        *Shape:* ``(rule, word)``; see `headbook.attention.surface_rules.neighbours`.
        """
        named = self.named()
        neighbour = neighbours((self.asked & SEEN) > 0, self.lengths, causal=self.causal)
        return np.where(named == NO_SELECTION, neighbour, named)

    def cases(self, label: int) -> RelationCases:
        """Return the words of one label, those whose answer can be seen from the query."""
        direction, relation = divmod(label, len(self.scheme.relations))
        to_head = DIRECTIONS[direction] == "to_head"
        bit = TO_HEAD if to_head else TO_DEPENDENT
        words = np.flatnonzero((self.relation == relation) & ((self.asked & bit) > 0))
        first = self.first[words]
        heads = first + self.head[words]
        query, key = (words, heads) if to_head else (heads, words)
        return RelationCases(self.sentence[words], query, key, key - first)

    def querying(self, label: int) -> Ints:
        """Return the querying words of one label, whether they see the right answer or not."""
        direction, relation = divmod(label, len(self.scheme.relations))
        inside = (self.head >= 0) & (self.head < np.repeat(self.lengths, self.lengths))
        words = np.flatnonzero((self.relation == relation) & inside)
        to_head = DIRECTIONS[direction] == "to_head"
        return words if to_head else self.first[words] + self.head[words]

    def labels_asked(self) -> Iterator[int]:
        """Yield the labels that any word has."""
        for direction, bit in enumerate((TO_HEAD, TO_DEPENDENT)):
            relations = np.unique(self.relation[(self.asked & bit) > 0])
            yield from (relations[relations >= 0] + direction * len(self.scheme.relations)).tolist()

    def __add__(self, other: "StrongestWords") -> "StrongestWords":
        full = int(self.lengths.sum()) >= self.size
        if full and len(other.index) and other._order[0] > self._order[-1]:
            return self  # all hashes of the other part are larger: avoids copies
        names = ("content_hash", "index", "lengths", *WORD_FIELDS)
        arrays: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in names
        }
        return replace(self, **arrays).smallest()

    @property
    def _order(self) -> list[tuple[int, int]]:
        ends = [0, -1] if len(self.index) else []
        return [(int(self.content_hash[end]), int(self.index[end])) for end in ends]

    def smallest(self) -> "StrongestWords":
        """Return the sentences with the smallest hashes, as many as are kept."""
        order = np.lexsort((self.index, self.content_hash))
        before = self.lengths[order].cumsum() - self.lengths[order]
        return self.select(order[before < self.size])

    def shifted(self, by: int) -> "StrongestWords":
        """Return the sample with sentence indices increased by ``by``."""
        return replace(self, index=self.index + by)

    def select(self, sentences: Ints) -> "StrongestWords":
        """Return some of the sentences, given by their places in the sample."""
        starts = (self.lengths.cumsum() - self.lengths)[sentences]
        lengths = self.lengths[sentences]
        inside = np.arange(lengths.sum()) - np.repeat(lengths.cumsum() - lengths, lengths)
        words = np.repeat(starts, lengths) + inside
        return replace(
            self,
            **{n: getattr(self, n)[sentences] for n in ("content_hash", "index", "lengths")},
            **{name: getattr(self, name)[words] for name in WORD_FIELDS},
        )


# Fields of `StrongestWords` with a row for each word.
WORD_FIELDS = ("strongest", "tag", "relation", "head", "asked")


CLASS_PAIRS = tuple((query, key) for query in UPOS for key in UPOS)
# Cells of `ClassFlows`: each pair of classes, then each class of queries and each class of keys;
# an empty text stands for all classes.
FLOW_CELLS = (*CLASS_PAIRS, *((query, "") for query in UPOS), *(("", key) for key in UPOS))


class FlowEstimates(NamedTuple):
    """Shares of attention between classes of words, beside those of the mean head.

    All arrays have the shape ``(layer, head, cell)``; cells as in `FLOW_CELLS`.

    Attributes:
        share: share of the head's attention between different words; NaN without any.
        mean_share: share of the mean head's attention between different words.
        ratio: ``share`` over ``mean_share``.
        low, high: 95 % confidence interval of ``ratio``; NaN without one.
        sentences: sentences that hold such words.
    """

    share: Floats
    mean_share: Floats
    ratio: Floats
    low: Floats
    high: Floats
    sentences: Ints


@dataclass(frozen=True, eq=False)
class ClassFlows:
    """Attention between different words of one stack by their parts of speech, the sink masked.

    Attention to a word is the sum over its tokens, attention from a word the mean. The mean head is
    the sum of the weights of all heads; shares of a sum and of a mean are equal. Each field is a
    sum over sentences, in which n is a head's attention in a cell, m that of the mean head, d a
    head's attention between all words, and e that of the mean head. Words count if they have a part
    of speech of Universal Dependencies.

    Attributes:
        cells: n, n², n d, n m, n e and d m. *Shape:* ``(6, layer, head, cell)``.
        totals: d, d² and d e. *Shape:* ``(3, layer, head)``.
        mean_cells: m, m² and m e. *Shape:* ``(3, cell)``.
        mean_totals: e and e². *Shape:* ``(2,)``.
        sentences: sentences in which the mean head has attention in a cell. *Shape:* ``(cell,)``.
    """

    cells: Floats
    totals: Floats
    mean_cells: Floats
    mean_totals: Floats
    sentences: Ints

    __add__ = add_fields

    def estimates(self) -> FlowEstimates:
        """Return all shares, with intervals of their ratios to the mean head.

        The interval is that of the logarithm of the ratio, linearised (the infinitesimal jackknife
        over sentences), with Student's t of the number of sentences of the cell. There is none
        below `MIN_EFFECTIVE` sentences.
        """
        n, nn, nd, nm, ne, dm = self.cells
        d, dd, de = self.totals[..., None]
        m, mm, me = self.mean_cells
        e, ee = (np.full_like(m, total) for total in self.mean_totals)
        share, mean_share = divide(n, d), np.broadcast_to(divide(m, e), n.shape)
        # The influence of a sentence on log(n d⁻¹ m⁻¹ e) is n/N − d/D − m/M + e/E.
        variance = (
            divide(nn, n**2) + divide(dd, d**2) + divide(mm, m**2) + divide(ee, e**2)
            - 2 * divide(nd, n * d) - 2 * divide(nm, n * m) + 2 * divide(ne, n * e)
            + 2 * divide(dm, d * m) - 2 * divide(de, d * e) - 2 * divide(me, m * e)
        )  # fmt: skip
        count = self.sentences.astype(np.float64)
        ratio = divide(share, mean_share)
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.sqrt(np.maximum(variance, 0) * count / np.maximum(count - 1, 1))
            reach = np.where(count >= MIN_EFFECTIVE, critical_value(count) * error, np.nan)
            low, high = ratio * np.exp(-reach), ratio * np.exp(reach)
        sentences = np.broadcast_to(self.sentences, n.shape)
        return FlowEstimates(share, mean_share, ratio, low, high, sentences)
