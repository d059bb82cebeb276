"""Pairs of heads sentence by sentence, and the sentences that both studies store.

If heads correspond, heads of one number are a pair; otherwise each head of the first model is
paired with its match or, without a counterpart, with the most similar head.

Each study lists the sentences that its own heads chose, so that two lists of a large corpus share
few. Compared are the sentences that both studies list, and those whose maps both store, which
depend on the texts alone.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from headbook.analysis.arrays import Floats, divide
from headbook.analysis.attention_divergence import AttentionRows, attention_divergence
from headbook.analysis.head_matching import UNMATCHED
from headbook.comparison.comparison import Comparison
from headbook.comparison.differences import HeadDifferences
from headbook.comparison.matching import MatchedHeads, Span, shared_words, token_rows, word_rows
from headbook.comparison.study_pair import StackPair, StudyPair
from headbook.report.results import StackResults, stack_results
from headbook.schema import SinkView
from headbook.study.sentence_data import (
    UINT8_STEPS,
    HeadName,
    MappedSentence,
    StoredSentence,
    StoredText,
    heads_of,
)
from headbook.study.study import Study

Both = tuple[MappedSentence, MappedSentence]


class HeadPair(NamedTuple):
    """A head of the first model and a head of the second.

    Attributes:
        a, b: the heads; ``b`` is None if no head is similar.
        counterpart: whether ``b`` is the counterpart of ``a``, not only the most similar head.
    """

    a: HeadName
    b: HeadName | None
    counterpart: bool


class PairMaps(NamedTuple):
    """The attention of two heads in one sentence, between the same tokens or words.

    Attributes:
        queries, keys: the texts.
        a, b: attention of both heads; 0 between words if one of the rows does not count.
            *Shape:* ``(query, key)``.
        counted: mask of the queries over which the divergence is taken. *Shape:* ``(query,)``.
    """

    queries: StoredText
    keys: StoredText
    a: Floats
    b: Floats
    counted: "np.typing.NDArray[np.bool_]"


@dataclass(frozen=True, eq=False)
class PairedStack:
    """One attention stack of two models, head by head and sentence by sentence.

    Attributes:
        names: names of the models.
        stack: the pair of stacks.
        a, b: results of both stacks.
        pairs: pairs of heads, in the order of the first model's heads.
        differences: differences of corresponding heads; None if heads do not correspond.
        matched: heads that attend alike; None in cross-attention.
        sentences: sentences whose maps both studies store.
        words: whether maps are compared between words, since tokens or visible keys differ.
    """

    names: tuple[str, str]
    stack: StackPair
    a: StackResults
    b: StackResults
    pairs: tuple[HeadPair, ...]
    differences: HeadDifferences | None
    matched: MatchedHeads | None
    sentences: tuple[Both, ...]
    words: bool

    @property
    def cut(self) -> bool:
        """Whether only one of the stacks is causal, so that both are compared on earlier keys."""
        return self.stack.a.causal != self.stack.b.causal

    @cached_property
    def drift(self) -> Floats:
        """Mean divergence of every pair in every sentence, in nats; NaN if no query counts.

        *Shape:* ``(sentence, pair)``. Between tokens all keys count; between words the sink is
        masked and rows are renormalised.
        """
        found = np.full((len(self.sentences), len(self.pairs)), np.nan)
        for number, both in enumerate(self.sentences):
            found[number] = self.apart(both)
        return found

    def apart(self, both: Both) -> Floats:
        """Return the mean divergence of every pair in one sentence. *Shape:* ``(pair,)``."""
        there = [n for n, pair in enumerate(self.pairs) if pair.b is not None]
        found: Floats = np.full(len(self.pairs), np.nan)
        if there:
            rows = self._rows(both)
            places = [self._places(side, there) for side in (0, 1)]
            chosen = [
                AttentionRows(each.weights[at], each.counted[at])
                for each, at in zip(rows, places, strict=True)
            ]
            found[there] = divide(*attention_divergence(*chosen))
        return found

    def maps(self, both: Both, pair: HeadPair) -> PairMaps:
        """Return the attention of a pair of heads in a sentence.

        Args:
            pair: a pair with two heads.
        """
        stacks = self.stack.a, self.stack.b
        assert pair.b is not None
        alone = _alone(both[0], stacks[0].name, pair.a), _alone(both[1], stacks[1].name, pair.b)
        rows = self._rows(alone)
        counted = rows[0].counted[0] & rows[1].counted[0]
        if self.words:
            text = _of_words(both[0].texts[stacks[0].keys], _spans(self.stack, both))
            a, b = (np.where(counted[:, None], each.weights[0], 0) for each in rows)
            return PairMaps(text, text, a, b, counted)
        queries, keys = (both[0].texts[side] for side in (stacks[0].queries, stacks[0].keys))
        a, b = (
            each.maps[stack.name][0, 0].astype(np.float64)
            for each, stack in zip(alone, stacks, strict=True)
        )
        return PairMaps(queries, keys, a, b, counted)

    def can_compare(self, both: Both) -> bool:
        """Check whether a sentence has maps of both stacks between shared tokens or words."""
        a, b = self.stack.a, self.stack.b
        if a.name not in both[0].maps or b.name not in both[1].maps:
            return False
        if self.words:
            return bool(_spans(self.stack, both))
        texts = [[each.texts[side] for each in both] for side in (a.queries, a.keys)]
        return all(same_tokens(one, other) for one, other in texts)

    def _rows(self, both: Both) -> tuple[AttentionRows, AttentionRows]:
        """Return the rows of all heads, layer by layer."""
        a, b = self.stack.a, self.stack.b
        if not self.words:
            return token_rows(both[0], a, SinkView.RAW), token_rows(both[1], b, SinkView.RAW)
        words = shared_words(*both, a.keys, (a.causal, b.causal))
        one, other = (
            word_rows(sentence, stack, words, causal=self.cut)
            for sentence, stack in zip(both, (a, b), strict=True)
        )
        return one, other

    def _places(self, side: int, there: Sequence[int]) -> list[int]:
        """Return the indices of one model's heads among all of its rows."""
        n_heads = (self.stack.a, self.stack.b)[side].n_heads
        heads = (self.pairs[n][side] for n in there)
        return [h.layer * n_heads + h.head for h in heads if isinstance(h, HeadName)]


def paired_stacks(comparison: Comparison) -> tuple[PairedStack, ...]:
    """Return all pairs of stacks that are compared head by head."""
    sides = comparison.sides
    numbers = stack_results(sides.a), stack_results(sides.b)
    return tuple(
        PairedStack(
            names=sides.names,
            stack=pair,
            a=numbers[0][pair.a.name],
            b=numbers[1][pair.b.name],
            pairs=tuple(_pairs(comparison, pair)),
            differences=comparison.heads.get(pair.name),
            matched=comparison.matched.get(pair.name),
            sentences=tuple(kept),
            words=between,
        )
        for pair in sides.stacks
        if pair.a.crosses == pair.b.crosses
        for kept, between in [_sentences(pair, [*sides.mapped()], same=sides.same_heads)]
    )


def same_tokens(one: StoredText, other: StoredText) -> bool:
    """Check whether two models read a text as the same tokens."""
    return one.pieces == other.pieces and one.spans == other.spans


def _sentences(pair: StackPair, kept: list[Both], *, same: bool) -> tuple[list[Both], bool]:
    """Return the sentences that can be compared, and whether between words.

    Args:
        same: whether heads correspond, so that both models read the same tokens.
    """
    sides = (pair.a.queries, pair.a.keys)
    equal = [
        both
        for both in kept
        if all(same_tokens(both[0].texts[side], both[1].texts[side]) for side in sides)
    ]
    if same or pair.a.crosses:  # words of two texts have no order that both models share
        return equal, False
    if pair.a.causal == pair.b.causal and len(equal) == len(kept):
        return kept, False
    return [both for both in kept if _spans(pair, both)], True


def _spans(pair: StackPair, both: Both) -> tuple[Span, ...]:
    """Return the words of one text that both models have read."""
    stacks = pair.a, pair.b
    texts = [each.texts[s.keys].text for each, s in zip(both, stacks, strict=True)]
    if texts[0] != texts[1]:
        return ()
    return shared_words(*both, stacks[0].keys, (stacks[0].causal, stacks[1].causal)).spans


def _pairs(comparison: Comparison, pair: StackPair) -> Iterator[HeadPair]:
    if comparison.sides.same_heads:
        for head in heads_of(pair.a):
            yield HeadPair(head, head._replace(stack=pair.b.name), counterpart=True)
        return
    matched = comparison.matched.get(pair.name)
    for place, head in enumerate(matched.a if matched else ()):
        assert matched is not None
        partner, best = matched.partner(place), matched.matching.best[place]
        nearest = None if best == UNMATCHED else matched.b[best]
        yield HeadPair(head, partner or nearest, counterpart=partner is not None)


def _alone(sentence: MappedSentence, stack: str, head: HeadName) -> MappedSentence:
    """Return a sentence with the map of one head."""
    maps = sentence.maps[stack][head.layer : head.layer + 1, head.head : head.head + 1]
    return MappedSentence(sentence.index, sentence.texts, sentence.ids, {stack: maps})


def _of_words(text: StoredText, spans: Sequence[Span]) -> StoredText:
    """Return a text whose tokens are some of its words."""
    return StoredText(
        text=text.text,
        pieces=tuple(text.text[start:stop] for start, stop in spans),
        spans=tuple(spans),
        special=(False,) * len(spans),
        words=tuple(range(len(spans))),
        tags=("",) * len(spans),
        lost=0,
        generated=text.generated,
    )


Stored = tuple[StoredSentence, StoredSentence]


@dataclass(frozen=True, eq=False)
class SharedSentence:
    """A sentence that both studies store.

    Attributes:
        a, b: the sentence as each study stores it.
        drift: mean divergence of every pair of heads in nats, by stack; without stacks whose maps
            are missing or cannot be compared. *Shape:* ``(pair,)``, NaN if no query counts.
        coarse: whether the divergence is of maps in steps of 1/255.
        followed: whether both studies list the sentence, so that its token states are stored.
    """

    a: StoredSentence
    b: StoredSentence
    drift: Mapping[str, Floats]
    coarse: bool
    followed: bool = True

    @property
    def mean(self) -> float:
        """Mean divergence over all pairs; NaN without any."""
        every = [each[~np.isnan(each)] for each in self.drift.values()]
        values = np.concatenate(every) if every else np.zeros(0)
        return float(values.mean()) if len(values) else float("nan")


def listed_sentences(sides: StudyPair, stacks: Sequence[PairedStack]) -> tuple[SharedSentence, ...]:
    """Return the sentences that both studies list or map, in the first study's order."""
    both_list = {pair[0].index: pair for pair in _both_list(sides)}
    both_map = {
        one.index: (_stored(sides.a, one), _stored(sides.b, other)) for one, other in sides.mapped()
    }
    found = []
    for index, pair in sorted({**both_map, **both_list}.items()):
        maps, coarse = maps_of(sides, pair)
        drift = {each.stack.name: each.apart(maps) for each in stacks if each.can_compare(maps)}
        found.append(SharedSentence(*pair, drift, coarse, followed=index in both_list))
    return tuple(found)


def _both_list(sides: StudyPair) -> Iterator[Stored]:
    """Yield the sentences that both studies list, by their texts; equal texts in their order."""
    by_text = defaultdict[tuple[str, ...], list[StoredSentence]](list)
    for each in sides.b.sentence_data.listed:
        by_text[_read(each)].append(each)
    for each in sides.a.sentence_data.listed:
        if by_text[_read(each)]:
            yield each, by_text[_read(each)].pop(0)


def _read(sentence: StoredSentence) -> tuple[str, ...]:
    """Return the texts of a sentence without generated ones; its number if there is no text."""
    texts = tuple(text.text for text in sentence.texts.values() if not text.generated)
    return texts if any(texts) else (str(sentence.number),)


def _stored(study: Study, mapped: MappedSentence) -> StoredSentence:
    known = study.sentence_data.sentences.get(mapped.index)
    return known or StoredSentence(mapped.index, "", {}, mapped.texts, listed=False)


def maps_of(sides: StudyPair, pair: Stored) -> tuple[Both, bool]:
    """Return the maps of a sentence in both studies, and whether they are in steps of 1/255.

    Stacks without stored maps are missing.
    """
    numbers = pair[0].index, pair[1].index
    one, other = _mapped(sides.a, numbers[0]), _mapped(sides.b, numbers[1])
    if one is not None and other is not None:
        return (one, other), False
    return (_coarse(sides.a, numbers[0]), _coarse(sides.b, numbers[1])), True


def _mapped(study: Study, index: int) -> MappedSentence | None:
    kept = study.map_sample.sentences.values()
    return next((each for each in kept if each.index == index), None)


def _coarse(study: Study, index: int) -> MappedSentence:
    data = study.sentence_data
    maps = {
        stack: (cells / UINT8_STEPS).astype(np.float16)
        for (stack, at), cells in data.maps.items()
        if at == index
    }
    return MappedSentence(index, data.sentences[index].texts, {}, maps)
