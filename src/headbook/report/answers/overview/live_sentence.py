"""The live sentence of the overview: attention of families of heads in one sentence of the study.

The sentence is the one that holds the strongest exemplars of most families, among those of at most
`MAX_TOKENS` tokens; sentences without split words come first, because readers point at words. Of
equal ones it is the first. Without such a sentence it is the shortest one, and its first
`MAX_TOKENS` tokens are shown. The word is the content word that receives most attention
from other tokens, over all heads.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arrays import Floats
from headbook.report.facts.functions import FunctionFamily, families_of, functions_of
from headbook.report.results import StackResults, study_of
from headbook.schema import CONTENT, HeadName, Place, heads_of
from headbook.study.sentence_data import UINT8_STEPS, Ranking, StoredSentence, StoredText

MAX_TOKENS = 20


@dataclass(frozen=True, eq=False)
class FamilyAttention:
    """Attention of the heads of one family in a sentence.

    Attributes:
        family: the family.
        heads: number of heads of the family in the stack.
        mean: mean weight over these heads. *Shape:* ``(query, key)``.
        strongest: place among all heads of the stack of the head with the largest weight.
            *Shape:* ``(query, key)``.
        weight: weight of that head. *Shape:* ``(query, key)``.
    """

    family: FunctionFamily
    heads: int
    mean: Floats
    strongest: NDArray[np.uint16]
    weight: Floats


@dataclass(frozen=True, eq=False)
class LiveSentence:
    """Attention of families of one stack in a sentence.

    Attributes:
        stack: the stack.
        number: number of the sentence.
        queries, keys: texts that queries and keys are tokens of.
        sizes: numbers of tokens that are shown of queries and of keys.
        word: place of the key that is chosen first.
        families: families that have heads, in their order.
        heads: all heads of the stack, by which `FamilyAttention.strongest` counts.
    """

    stack: str
    number: int
    queries: StoredText
    keys: StoredText
    sizes: tuple[int, int]
    word: int
    families: tuple[FamilyAttention, ...]
    heads: tuple[HeadName, ...]

    @property
    def crosses(self) -> bool:
        """Whether queries and keys are of two texts."""
        return self.queries is not self.keys

    @property
    def cut(self) -> bool:
        """Whether some tokens are not shown."""
        texts = (self.queries, self.keys)
        return any(n < len(text.pieces) for n, text in zip(self.sizes, texts, strict=True))

    @property
    def strongest(self) -> tuple[HeadName, int, float] | None:
        """Head and query that give the chosen word the largest weight; None without another token.

        Special tokens, and the word itself, do not count as queries.
        """
        others = [
            query
            for query in range(self.sizes[0])
            if not self.queries.special[query] and (self.crosses or query != self.word)
        ]
        ranked = [
            (
                float(family.weight[query, self.word]),
                -query,
                int(family.strongest[query, self.word]),
            )
            for family in self.families
            for query in others
        ]
        if not ranked:
            return None
        weight, query, head = max(ranked)
        return self.heads[head], -query, weight


def live_sentences(results: Mapping[str, StackResults]) -> tuple[LiveSentence, ...]:
    """Return the live sentence of each stack; empty without stored maps or measured families."""
    chosen = _choose(results)
    if chosen is None:
        return ()
    live = (_live(result, chosen) for result in results.values())
    return tuple(sentence for sentence in live if sentence is not None)


def _choose(results: Mapping[str, StackResults]) -> StoredSentence | None:
    """Return the sentence with the strongest exemplars of most families."""
    data = study_of(results).sentence_data
    mapped = {index for _, index in data.maps}
    sentences = [sentence for sentence in data.listed if sentence.index in mapped]
    lengths = {s.index: max(len(t.pieces) for t in s.texts.values()) for s in sentences}
    if not sentences:
        return None
    short = [s for s in sentences if lengths[s.index] <= MAX_TOKENS]
    if not short:
        return min(sentences, key=lambda s: (lengths[s.index], s.index))
    seen: dict[int, set[tuple[str, FunctionFamily]]] = {}
    for exemplar in data.exemplars:
        head = exemplar.head
        if exemplar.ranking is Ranking.STRONGEST and exemplar.rank == 1 and head.stack in results:
            family = functions_of(results[head.stack])[head].family
            if family is not None:
                seen.setdefault(exemplar.index, set()).add((head.stack, family))

    def rank(sentence: StoredSentence) -> tuple[bool, int, int]:
        whole = not any(map(_has_split_word, sentence.texts.values()))
        return whole, len(seen.get(sentence.index, ())), -sentence.index

    return max(short, key=rank)


def _has_split_word(text: StoredText) -> bool:
    words = [word for word in text.words if word >= 0]
    return len({*words}) < len(words)


def _live(results: StackResults, sentence: StoredSentence) -> LiveSentence | None:
    """Return the attention of a stack's families in one sentence; None without maps or families."""
    stack = results.stack
    maps = results.study.sentence_data.maps.get((stack.name, sentence.index))
    families, functions = [*families_of(results)], functions_of(results)
    if maps is None or not families:
        return None
    queries, keys = sentence.texts[stack.queries], sentence.texts[stack.keys]
    sizes = min(len(queries.pieces), MAX_TOKENS), min(len(keys.pieces), MAX_TOKENS)
    heads = heads_of(stack)
    weights = np.array([maps[head.layer, head.head] for head in heads], np.float64) / UINT8_STEPS
    received = weights.mean(0)
    if not stack.crosses:
        np.fill_diagonal(received, 0)
    weights = weights[:, : sizes[0], : sizes[1]]
    return LiveSentence(
        stack=stack.name,
        number=sentence.number,
        queries=queries,
        keys=keys,
        sizes=sizes,
        word=first_word(keys, received.sum(0)[: sizes[1]]),
        families=tuple(
            _of_family(
                family,
                weights,
                [n for n, head in enumerate(heads) if functions[head].family is family],
            )
            for family in families
        ),
        heads=tuple(heads),
    )


def _of_family(family: FunctionFamily, weights: Floats, members: Sequence[int]) -> FamilyAttention:
    of_members = weights[members]
    best = of_members.argmax(0)
    return FamilyAttention(
        family,
        len(members),
        of_members.mean(0),
        np.array(members, np.uint16)[best],
        np.take_along_axis(of_members, best[None], 0)[0],
    )


def first_word(text: StoredText, received: Floats) -> int:
    """Return the content word that receives most; without tags, the word; else the first token.

    Args:
        received: attention from other tokens. *Shape:* ``(key,)``.
    """
    sizes = range(len(received))
    words = [n for n in sizes if not text.special[n] and any(map(str.isalnum, text.pieces[n]))]
    content = [n for n in words if text.tags[n] in CONTENT]
    chosen = content or words or [n for n in sizes if not text.special[n]] or [*sizes]
    return max(chosen, key=lambda n: (float(received[n]), -n))


def claim_word(live: LiveSentence, maps: Floats, *, special: bool) -> int:
    """Return the key that the heads of a claim attend to most.

    Args:
        maps: mean weights of these heads. *Shape:* ``(query, key)``.
        special: whether to search special tokens, or the first token, alone.
    """
    received = maps[: live.sizes[0], : live.sizes[1]].copy()
    if not live.crosses:
        np.fill_diagonal(received, 0)
    total = received.sum(0)
    if not special:
        return first_word(live.keys, total)
    tokens = [n for n in range(live.sizes[1]) if live.keys.special[n]] or [0]
    return max(tokens, key=lambda n: float(total[n]))


def mean_map(results: StackResults, live: LiveSentence, heads: Sequence[Place]) -> Floats:
    """Return the mean weights of some heads in the live sentence. *Shape:* ``(query, key)``."""
    maps = results.study.sentence_data.maps[live.stack, live.number - 1]
    mean: Floats = np.mean([maps[place] for place in heads], axis=0) / UINT8_STEPS
    return mean


def is_right_to_left(text: str) -> bool:
    """Return whether the first letter with a direction is written from right to left."""
    directions = (unicodedata.bidirectional(letter) for letter in text)
    return next(
        (direction in {"R", "AL"} for direction in directions if direction in {"L", "R", "AL"}),
        False,
    )
