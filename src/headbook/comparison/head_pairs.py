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
from headbook.schema import HeadName, SinkView, heads_of
from headbook.study.sentence_data import UINT8_STEPS, MappedSentence, StoredSentence, StoredText
from headbook.study.study import Study

SentenceMaps = tuple[MappedSentence, MappedSentence]


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
    sentences: tuple[SentenceMaps, ...]
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
        drift = np.full((len(self.sentences), len(self.pairs)), np.nan)
        for row, maps in enumerate(self.sentences):
            drift[row] = self.apart(maps)
        return drift

    def apart(self, maps: SentenceMaps) -> Floats:
        """Return the mean divergence of every pair in one sentence. *Shape:* ``(pair,)``."""
        paired = [index for index, pair in enumerate(self.pairs) if pair.b is not None]
        divergences: Floats = np.full(len(self.pairs), np.nan)
        if paired:
            rows = self._rows(maps)
            head_rows = [self._places(side, paired) for side in (0, 1)]
            chosen = [
                AttentionRows(of_model.weights[indices], of_model.counted[indices])
                for of_model, indices in zip(rows, head_rows, strict=True)
            ]
            divergences[paired] = divide(*attention_divergence(*chosen))
        return divergences

    def maps(self, sentence_maps: SentenceMaps, pair: HeadPair) -> PairMaps:
        """Return the attention of a pair of heads in a sentence.

        Args:
            pair: a pair with two heads.
        """
        stacks = self.stack.a, self.stack.b
        assert pair.b is not None
        single_head_maps = (
            _single_head(sentence_maps[0], stacks[0].name, pair.a),
            _single_head(sentence_maps[1], stacks[1].name, pair.b),
        )
        rows = self._rows(single_head_maps)
        counted = rows[0].counted[0] & rows[1].counted[0]
        if self.words:
            text = _text_of_words(
                sentence_maps[0].texts[stacks[0].keys], _shared_spans(self.stack, sentence_maps)
            )
            a, b = (np.where(counted[:, None], of_model.weights[0], 0) for of_model in rows)
            return PairMaps(text, text, a, b, counted)
        queries, keys = (
            sentence_maps[0].texts[side] for side in (stacks[0].queries, stacks[0].keys)
        )
        a, b = (
            of_model.maps[stack.name][0, 0].astype(np.float64)
            for of_model, stack in zip(single_head_maps, stacks, strict=True)
        )
        return PairMaps(queries, keys, a, b, counted)

    def can_compare(self, sentence_maps: SentenceMaps) -> bool:
        """Check whether a sentence has maps of both stacks between shared tokens or words."""
        a, b = self.stack.a, self.stack.b
        if a.name not in sentence_maps[0].maps or b.name not in sentence_maps[1].maps:
            return False
        if self.words:
            return bool(_shared_spans(self.stack, sentence_maps))
        first, second = sentence_maps
        return all(
            same_tokens(first.texts[side], second.texts[side]) for side in (a.queries, a.keys)
        )

    def _rows(self, sentence_maps: SentenceMaps) -> tuple[AttentionRows, AttentionRows]:
        """Return the rows of all heads, layer by layer."""
        a, b = self.stack.a, self.stack.b
        if not self.words:
            rows_a = token_rows(sentence_maps[0], a, SinkView.RAW)
            rows_b = token_rows(sentence_maps[1], b, SinkView.RAW)
            return rows_a, rows_b
        words = shared_words(*sentence_maps, a.keys, (a.causal, b.causal))
        rows_a, rows_b = (
            word_rows(sentence, stack, words, causal=self.cut)
            for sentence, stack in zip(sentence_maps, (a, b), strict=True)
        )
        return rows_a, rows_b

    def _places(self, model: int, pairs: Sequence[int]) -> list[int]:
        """Return the indices of one model's heads among all of its rows."""
        n_heads = (self.stack.a, self.stack.b)[model].n_heads
        heads = (self.pairs[index][model] for index in pairs)
        return [head.layer * n_heads + head.head for head in heads if isinstance(head, HeadName)]


def paired_stacks(comparison: Comparison) -> tuple[PairedStack, ...]:
    """Return all pairs of stacks that are compared head by head."""
    sides = comparison.sides
    results = stack_results(sides.a), stack_results(sides.b)
    return tuple(
        PairedStack(
            names=sides.names,
            stack=pair,
            a=results[0][pair.a.name],
            b=results[1][pair.b.name],
            pairs=tuple(_head_pairs(comparison, pair)),
            differences=comparison.heads.get(pair.name),
            matched=comparison.matched.get(pair.name),
            sentences=tuple(sentences),
            words=by_words,
        )
        for pair in sides.stacks
        if pair.a.crosses == pair.b.crosses
        for sentences, by_words in [
            _comparable_sentences(pair, [*sides.mapped()], same=sides.same_heads)
        ]
    )


def same_tokens(a: StoredText, b: StoredText) -> bool:
    """Check whether two models read a text as the same tokens."""
    return a.pieces == b.pieces and a.spans == b.spans


def _comparable_sentences(
    pair: StackPair, mapped: list[SentenceMaps], *, same: bool
) -> tuple[list[SentenceMaps], bool]:
    """Return the sentences that can be compared, and whether between words.

    Args:
        same: whether heads correspond, so that both models read the same tokens.
    """
    sides = (pair.a.queries, pair.a.keys)
    same_tokens_in_both = [
        maps
        for maps in mapped
        if all(same_tokens(maps[0].texts[side], maps[1].texts[side]) for side in sides)
    ]
    if same or pair.a.crosses:  # words of two texts have no order that both models share
        return same_tokens_in_both, False
    if pair.a.causal == pair.b.causal and len(same_tokens_in_both) == len(mapped):
        return mapped, False
    return [maps for maps in mapped if _shared_spans(pair, maps)], True


def _shared_spans(pair: StackPair, maps: SentenceMaps) -> tuple[Span, ...]:
    """Return the words of one text that both models have read."""
    stacks = pair.a, pair.b
    texts = [sentence.texts[stack.keys].text for sentence, stack in zip(maps, stacks, strict=True)]
    if texts[0] != texts[1]:
        return ()
    return shared_words(*maps, stacks[0].keys, (stacks[0].causal, stacks[1].causal)).spans


def _head_pairs(comparison: Comparison, pair: StackPair) -> Iterator[HeadPair]:
    if comparison.sides.same_heads:
        for head in heads_of(pair.a):
            yield HeadPair(head, head._replace(stack=pair.b.name), counterpart=True)
        return
    matched = comparison.matched.get(pair.name)
    for index, head in enumerate(matched.a if matched else ()):
        assert matched is not None
        partner, best = matched.partner(index), matched.matching.best[index]
        nearest = None if best == UNMATCHED else matched.b[best]
        yield HeadPair(head, partner or nearest, counterpart=partner is not None)


def _single_head(sentence: MappedSentence, stack: str, head: HeadName) -> MappedSentence:
    """Return a sentence with the map of one head."""
    maps = sentence.maps[stack][head.layer : head.layer + 1, head.head : head.head + 1]
    return MappedSentence(sentence.index, sentence.texts, sentence.ids, {stack: maps})


def _text_of_words(text: StoredText, spans: Sequence[Span]) -> StoredText:
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


StoredPair = tuple[StoredSentence, StoredSentence]


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
        known_drifts = [of_stack[~np.isnan(of_stack)] for of_stack in self.drift.values()]
        values = np.concatenate(known_drifts) if known_drifts else np.zeros(0)
        return float(values.mean()) if len(values) else float("nan")


def listed_sentences(sides: StudyPair, stacks: Sequence[PairedStack]) -> tuple[SharedSentence, ...]:
    """Return the sentences that both studies list or map, in the first study's order."""
    listed = {pair[0].index: pair for pair in _listed_by_both(sides)}
    mapped = {
        first.index: (_stored_sentence(sides.a, first), _stored_sentence(sides.b, second))
        for first, second in sides.mapped()
    }
    shared = []
    for index, pair in sorted({**mapped, **listed}.items()):
        maps, coarse = maps_of(sides, pair)
        drift = {stack.stack.name: stack.apart(maps) for stack in stacks if stack.can_compare(maps)}
        shared.append(SharedSentence(*pair, drift, coarse, followed=index in listed))
    return tuple(shared)


def _listed_by_both(sides: StudyPair) -> Iterator[StoredPair]:
    """Yield the sentences that both studies list, by their texts; equal texts in their order."""
    by_text = defaultdict[tuple[str, ...], list[StoredSentence]](list)
    for sentence in sides.b.sentence_data.listed:
        by_text[_given_texts(sentence)].append(sentence)
    for sentence in sides.a.sentence_data.listed:
        if by_text[_given_texts(sentence)]:
            yield sentence, by_text[_given_texts(sentence)].pop(0)


def _given_texts(sentence: StoredSentence) -> tuple[str, ...]:
    """Return the texts of a sentence without generated ones; its number if there is no text."""
    texts = tuple(text.text for text in sentence.texts.values() if not text.generated)
    return texts if any(texts) else (str(sentence.number),)


def _stored_sentence(study: Study, mapped: MappedSentence) -> StoredSentence:
    stored = study.sentence_data.sentences.get(mapped.index)
    return stored or StoredSentence(mapped.index, "", {}, mapped.texts, listed=False)


def maps_of(sides: StudyPair, pair: StoredPair) -> tuple[SentenceMaps, bool]:
    """Return the maps of a sentence in both studies, and whether they are in steps of 1/255.

    Stacks without stored maps are missing.
    """
    indices = pair[0].index, pair[1].index
    maps_a, maps_b = _sampled_maps(sides.a, indices[0]), _sampled_maps(sides.b, indices[1])
    if maps_a is not None and maps_b is not None:
        return (maps_a, maps_b), False
    return (_stored_maps(sides.a, indices[0]), _stored_maps(sides.b, indices[1])), True


def _sampled_maps(study: Study, index: int) -> MappedSentence | None:
    sampled = study.map_sample.sentences.values()
    return next((sentence for sentence in sampled if sentence.index == index), None)


def _stored_maps(study: Study, index: int) -> MappedSentence:
    data = study.sentence_data
    maps = {
        stack: (cells / UINT8_STEPS).astype(np.float16)
        for (stack, sentence), cells in data.maps.items()
        if sentence == index
    }
    return MappedSentence(index, data.sentences[index].texts, {}, maps)
