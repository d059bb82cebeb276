"""Tests of relations as their definition reads: loops over sentences, words, heads and rules."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from headbook.analysis.multiple_testing import FLIPS
from headbook.attention.word_pairs import HAS_OTHERS, SEEN, TO_DEPENDENT, TO_HEAD
from headbook.schema import RELATIONS, UPOS
from headbook.study.sums.word_samples import StrongestWords
from naive import RULES, rule_word
from naive_ratios import Part

Place = tuple[int, int]


class Annotated(NamedTuple):
    """One sentence: all words are seen, and each sees all others, or the earlier ones.

    Attributes:
        key: hash of the sentence; its last bit is the half.
        heads: place of each word's head, or None.
        strongest: by head, each word's strongest other word, or None.
    """

    key: int
    tags: list[str]
    heads: list[int | None]
    relations: list[str]
    strongest: dict[Place, list[int | None]]
    causal: bool = False

    def sees(self, query: int, key: int) -> bool:
        """Whether one word can attend to another."""
        return query > key or (query != key and not self.causal)

    def cases(self, label: str) -> Iterator[tuple[int, int]]:
        """Query and right answer of each word of a relation in one direction."""
        relation, direction = label.rsplit(":", 1)
        for word, head in enumerate(self.heads):
            if self.relations[word] == relation and head is not None:
                query, key = (word, head) if direction == "to_head" else (head, word)
                if self.sees(query, key):
                    yield query, key

    def querying(self, label: str) -> set[int]:
        """Words whose strongest word a relation asks for."""
        relation, direction = label.rsplit(":", 1)
        pairs = [(w, h) for w, h in enumerate(self.heads) if self.relations[w] == relation]
        return {w if direction == "to_head" else h for w, h in pairs if h is not None}

    def named(self, rule: str, word: int) -> int | None:
        """Return the word that a rule names for a word."""
        may = {w for w in range(len(self.tags)) if w < word or not self.causal}
        return rule_word(rule, word, may, dict(enumerate(self.tags)))

    def taken(self, rule: str, word: int) -> int | None:
        """Return the word that a rule takes as a baseline: a neighbour where it names none."""
        named = self.named(rule, word)
        for neighbour in (word + 1, word - 1):
            if named is None and 0 <= neighbour < len(self.tags) and self.sees(word, neighbour):
                named = neighbour
        return named

    def looks(self, word: int) -> bool:
        """Whether a word sees any other."""
        return any(self.sees(word, other) for other in range(len(self.tags)))


def half(sentences: Sequence[Annotated], number: int) -> list[Annotated]:
    return sorted((s for s in sentences if s.key % 2 == number), key=lambda s: s.key)


def head_hits(sentence: Annotated, label: str, head: Place) -> int:
    return sum(sentence.strongest[head][q] == k for q, k in sentence.cases(label))


def rule_hits(sentence: Annotated, label: str, rule: str) -> int:
    return sum(sentence.taken(rule, q) == k for q, k in sentence.cases(label))


SIMPLEST = sorted(RULES, key=lambda r: abs(int(r[7:])) if r.startswith("offset") else 9)


def chosen(sentences: Sequence[Annotated], label: str) -> tuple[Place, str]:
    """Return the best head and rule on the selection split; of equal rules the simplest."""
    first = half(sentences, 0)
    places = [*sentences[0].strongest]
    best = max(places, key=lambda place: sum(head_hits(s, label, place) for s in first))
    rule = max(SIMPLEST, key=lambda rule: sum(rule_hits(s, label, rule) for s in first))
    return best, rule


def where_wrong(sentences: Sequence[Annotated], label: str, head: Place, rule: str) -> list[Part]:
    """Return the part of each sentence in the accuracy on words that the rule misses."""
    parts = []
    for s in sentences:
        missed = [(q, k) for q, k in s.cases(label) if s.taken(rule, q) != k]
        hits = sum(s.strongest[head][q] == k for q, k in missed)
        parts.append(Part(hits, len(missed), len(missed)))
    return parts


def preference(
    sentences: Sequence[Annotated], weights: Sequence[float], label: str, head: Place
) -> tuple[float, float]:
    """Share of querying words whose strongest word has the answer's tag, and of other words.

    Args:
        weights: how often each sentence counts.
    """

    def tag(s: Annotated, word: int) -> str | None:
        found = s.strongest[head][word]
        return None if found is None else s.tags[found]

    inside = outside = total = 0.0
    others = [
        (weight, s.tags[w], tag(s, w))
        for s, weight in zip(sentences, weights, strict=True)
        for w in range(len(s.tags))
        if w not in s.querying(label) and s.looks(w)
    ]
    for s, weight in zip(sentences, weights, strict=True):
        for query, key in s.cases(label):
            same = [(w, found) for w, own, found in others if own == s.tags[query]]
            count = sum(w for w, _ in same)
            if count:
                total += weight
                inside += weight * (tag(s, query) == s.tags[key])
                outside += weight * sum(w for w, f in same if f == s.tags[key]) / count
    return (inside / total, outside / total) if total else (math.nan, math.nan)


def n_others(sentences: Sequence[Annotated], label: str) -> int:
    """Words outside the relation with the part of speech of a word that queries in it."""
    asking = {s.tags[q] for s in sentences for q, _ in s.cases(label)}
    words = [
        s.tags[w] in asking and w not in s.querying(label) and s.looks(w)
        for s in sentences
        for w in range(len(s.tags))
    ]
    return sum(words)


def influences(sentences: Sequence[Annotated], label: str, head: Place) -> list[float]:
    """How much the difference of both shares moves with each sentence's weight."""
    found = []
    for place in range(len(sentences)):
        ends = []
        for step in (1e-5, -1e-5):
            weights = [1 + step * (n == place) for n in range(len(sentences))]
            inside, outside = preference(sentences, weights, label, head)
            ends.append(inside - outside)
        found.append((ends[0] - ends[1]) / 2e-5)
    return found


def signs_of(key: int) -> list[int]:
    """Signs of a sentence in all flips: splitmix64 seeded with its hash, lowest bits first."""
    whole, state = 2**64, key
    signs: list[int] = []
    while len(signs) < FLIPS:
        state = (state + 0x9E3779B97F4A7C15) % whole
        z = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % whole
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % whole
        z ^= z >> 31
        signs += [1 if z >> bit & 1 else -1 for bit in range(64)]
    return signs[:FLIPS]


def statistic(differences: Sequence[int], signs: Sequence[int]) -> float:
    root = math.sqrt(sum(d * d for d in differences))
    return sum(s * d for s, d in zip(signs, differences, strict=True)) / root if root else 0.0


def stored(sentences: Sequence[Annotated], size: int = 10**6) -> StrongestWords:
    """Return the sentences as a study keeps them."""
    places = [*sentences[0].strongest] if sentences else [(0, 0)]
    shape = tuple(max(axis) + 1 for axis in zip(*places, strict=True))
    words = [(s, w) for s in sentences for w in range(len(s.tags))]
    strongest = np.full((len(words), *shape), -1, np.int16)
    asked = np.zeros(len(words), np.uint8)
    for row, (s, w) in enumerate(words):
        for place in places:
            found = s.strongest[place][w]
            strongest[row, *place] = -1 if found is None else found
        head = s.heads[w]
        asked[row] = SEEN | HAS_OTHERS * s.looks(w)
        if head is not None:
            asked[row] |= TO_HEAD * s.sees(w, head) | TO_DEPENDENT * s.sees(head, w)
    number = {name: place for place, name in enumerate(RELATIONS)}
    return StrongestWords(
        size=size,
        causal=bool(sentences) and sentences[0].causal,
        content_hash=np.array([s.key for s in sentences], np.uint64),
        index=np.arange(len(sentences)),
        lengths=np.array([len(s.tags) for s in sentences], np.int64),
        strongest=strongest,
        tag=np.array([UPOS.index(s.tags[w]) for s, w in words], np.int16),
        relation=np.array([number.get(s.relations[w], -1) for s, w in words], np.int16),
        head=np.array([-1 if s.heads[w] is None else s.heads[w] for s, w in words], np.int16),
        asked=asked,
    ).smallest()


def drawn(
    seed: int, sentences: int = 60, shape: Place = (2, 3), *, causal: bool = False
) -> list[Annotated]:
    """Sentences with random trees, and heads that find heads of words more or less often."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    places = [(layer, head) for layer in range(shape[0]) for head in range(shape[1])]
    skill = {place: draw.uniform(0, 0.6) for place in places}
    found = []
    for _ in range(sentences):
        n = draw.randint(2, 9)
        root = draw.randrange(n)
        others = [[h for h in range(n) if h != w] for w in range(n)]
        heads = [None if w == root else draw.choice(others[w]) for w in range(n)]
        strongest: dict[Place, list[int | None]] = {}
        for place in places:
            row: list[int | None] = []
            for w in range(n):
                seen = [o for o in others[w] if o < w or not causal]
                head = heads[w]
                if not seen or draw.random() < 0.05:
                    row.append(None)
                elif head in seen and draw.random() < skill[place]:
                    row.append(head)
                else:
                    row.append(draw.choice(seen))
            strongest[place] = row
        tags = draw.choices(["NOUN", "VERB", "PRON", "ADJ", "PUNCT"], k=n)
        relations = ["root" if h is None else draw.choice(["obj", "nsubj", "amod"]) for h in heads]
        key = draw.randrange(2**63)
        found.append(Annotated(key, tags, heads, relations, strongest, causal))
    return found


class Grammar:
    """A small grammar: no rule of word order finds all of its subjects, verbs and nouns.

    Relative clauses and phrases stand between subjects and verbs, and a prepositional phrase
    belongs to a noun or to the verb.
    """

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.words: list[list[Any]] = []  # tag, relation, and the word above as such a list

    def add(self, tag: str, relation: str, above: list[Any] | None) -> None:
        """Add a word."""
        self.words.append([tag, relation, above])

    def noun(self, relation: str, above: list[Any], *, clause: float) -> None:
        """Add a noun with what belongs to it; ``clause``: how probable a relative clause is."""
        word = ["NOUN", relation, above]
        self.add("DET", "det", word)
        for _ in range(self.draw.randrange(3)):
            self.add("ADJ", "amod", word)
        self.words.append(word)
        if self.draw.random() < 0.4:
            self.phrase(word, "nmod")
        if self.draw.random() < clause:
            verb = ["VERB", "acl:relcl", word]
            self.add("PRON", "nsubj", verb)
            self.words.append(verb)
            self.noun("obj", verb, clause=0)

    def phrase(self, above: list[Any], relation: str) -> None:
        """Add a prepositional phrase."""
        word = ["NOUN", relation, above]
        self.add("ADP", "case", word)
        if self.draw.random() < 0.5:
            self.add("NOUN", "compound", word)
        self.words.append(word)

    def sentence(self) -> Annotated:
        """Return a whole sentence, without heads of a model."""
        verb = ["VERB", "root", None]
        self.noun("nsubj", verb, clause=0.5)
        if self.draw.random() < 0.5:
            self.add("ADV", "advmod", verb)
        self.words.append(verb)
        self.noun("obj", verb, clause=0.2)
        if self.draw.random() < 0.6:
            self.phrase(verb, "obl")
        self.add("PUNCT", "punct", verb)
        place = {id(word): n for n, word in enumerate(self.words)}
        heads = [None if above is None else place[id(above)] for _, _, above in self.words]
        tags, relations = ([str(word[n]) for word in self.words] for n in (0, 1))
        return Annotated(self.draw.randrange(2**63), tags, heads, relations, {})


def grammatical(seed: int, sentences: int) -> list[Annotated]:
    """Sentences of the grammar."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    return [Grammar(draw).sentence() for _ in range(sentences)]


def looking(
    sentences: Sequence[Annotated], *heads: Callable[[Annotated, int], int | None]
) -> list[Annotated]:
    """Return the sentences with heads made by hand, all in one layer."""
    return [
        s._replace(
            strongest={
                (0, n): [head(s, w) for w in range(len(s.tags))] for n, head in enumerate(heads)
            }
        )
        for s in sentences
    ]
