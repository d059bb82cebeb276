"""One head over one sentence, and what a view leaves of it; naive, and shared by naive twins."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Token(NamedTuple):
    """One token; ``word`` and ``head`` are numbers of words, None without one."""

    id: int
    special: bool
    separator: bool
    punctuation: bool
    word: int | None = None
    tag: str = ""
    head: int | None = None
    relation: str = ""
    stop: bool = False


class Text(NamedTuple):
    """One text; whether it came with tags and with a tree; the number of its rarest word."""

    tokens: Sequence[Token]
    tagged: bool
    parsed: bool
    rarest: int | None = None


@dataclass(frozen=True)
class HeadAttention:
    """One head over one sentence.

    Attributes:
        weights: rows look, columns are looked at.
        seen: for each query the keys that the model's mask lets it see.
        crosses: whether queries and keys are two texts.
        norms: by key, the length of what it brings to the output of the attention block.
        brought: by key, that itself.
        values: by key, what it is before the output projection.
        learned: whether what a row lacks went to a sink that is no key.
        half: the half of the sentences that it belongs to.
    """

    weights: Sequence[Sequence[float]]
    seen: Sequence[Sequence[int]]
    queries: Text
    keys: Text
    causal: bool
    crosses: bool
    norms: Sequence[float] = ()
    brought: Sequence[Sequence[float]] = ()
    values: Sequence[Sequence[float]] = ()
    learned: bool = False
    half: int = 0


class Row(NamedTuple):
    """One query that counts.

    Attributes:
        weights: by key; keys that the view removes are left out.
        sink: mass on the sink before any view.
        trusted: whether the row's shape means something.
    """

    query: int
    weights: dict[int, float]
    sink: float
    trusted: bool

    @property
    def mass(self) -> float:
        """What it gives in all."""
        return sum(self.weights.values())


def _sink(attention: HeadAttention) -> set[int]:
    """Where attention is parked."""
    return {
        j
        for j, key in enumerate(attention.keys.tokens)
        if key.special or (attention.causal and j == 0)
    }


class Viewed:
    """A look in one view: special tokens ask nothing; the sink goes, or goes and is made up for."""

    def __init__(self, attention: HeadAttention, view: str) -> None:
        self.look = attention
        self.queries, self.keys = attention.queries, attention.keys
        self.causal, self.crosses, self.norms = attention.causal, attention.crosses, attention.norms
        self.brought = attention.brought
        self.sink = _sink(attention)
        self.tagged: dict[str, list[int]] = {}
        for j, key in enumerate(attention.keys.tokens):
            self.tagged.setdefault(key.tag, []).append(j)
        self.rows = [
            self._row(attention, view, i)
            for i, token in enumerate(attention.queries.tokens)
            if not token.special and not (attention.causal and len(attention.seen[i]) == 1)
        ]

    def _row(self, attention: HeadAttention, view: str, i: int) -> Row:
        removed = set() if view == "raw" else self.sink
        weights = {j: float(attention.weights[i][j]) for j in attention.seen[i] if j not in removed}
        on_sink = sum(float(attention.weights[i][j]) for j in attention.seen[i] if j in self.sink)
        if attention.learned:
            on_sink += 1 - sum(map(float, attention.weights[i]))
        trusted = bool(weights)
        total = sum(weights.values())
        if view == "renorm":
            trusted = trusted and on_sink <= 0.9
            weights = {j: w / total if total else 0.0 for j, w in weights.items()}
        return Row(i, weights, on_sink, trusted)

    def continues(self, query: int) -> bool:
        """Whether a token goes on with the word of the token before it."""
        word = self.queries.tokens[query].word
        return query > 0 and word is not None and self.queries.tokens[query - 1].word == word

    def per_word(self, measure: Callable[[Row], float]) -> float:
        """Return the mean over the rows of each word that looks, summed over words."""
        words: dict[int, list[float]] = {}
        for row in self.rows:
            word = self.queries.tokens[row.query].word
            if word is not None:
                words.setdefault(word, []).append(measure(row))
        return sum(sum(each) / len(each) for each in words.values())

    def between_words(self) -> dict[int, dict[int, float]]:
        """Attention from each word that looks, the mean, to each word that it sees, the sum."""
        between_words: dict[int, dict[int, float]] = {}
        for w in {t.word for t in self.queries.tokens if t.word is not None}:
            rows = [r for r in self.rows if self.queries.tokens[r.query].word == w]
            seen: dict[int, float] = {}
            for row in rows:
                for j, weight in row.weights.items():
                    word = self.keys.tokens[j].word
                    if word is not None:
                        seen[word] = seen.get(word, 0.0) + weight / len(rows)
            if rows:
                between_words[w] = seen
        return between_words
