"""Attention maps with known answers, for the examples of metrics. Plain numbers, no torch."""

from collections.abc import Mapping
from dataclasses import dataclass

Map = tuple[tuple[float, ...], ...]


def identity(n: int) -> Map:
    """Return a map in which each token attends to itself."""
    return tuple(tuple(float(i == j) for j in range(n)) for i in range(n))


def previous_token(n: int) -> Map:
    """Return a map in which each token attends to the previous one, and the first to itself."""
    return tuple(tuple(float(j == max(i - 1, 0)) for j in range(n)) for i in range(n))


def uniform(n: int) -> Map:
    """Return a map in which each token attends to all tokens equally."""
    return tuple(tuple(1 / n for _ in range(n)) for _ in range(n))


def to_token(n: int, key: int) -> Map:
    """Return a map in which each token attends to one key."""
    return tuple(tuple(float(j == key) for j in range(n)) for _ in range(n))


def causal_uniform(n: int) -> Map:
    """Return a map in which each token attends equally to itself and all earlier tokens."""
    return tuple(tuple(1 / (i + 1) if j <= i else 0.0 for j in range(n)) for i in range(n))


@dataclass(frozen=True)
class Example:
    """A small attention map with its answer worked by hand.

    Attributes:
        weights: attention weights; rows are queries, columns are keys, and each row sums to 1.
        tags, heads, relations: part of speech of each word, its head and the relation to the head;
            every token is a word.
        special: positions of special tokens.
        separator: positions of separators, the special tokens that end a sentence.
        ids: vocabulary id of each token; empty if all tokens differ.
        rarest: position of the rarest word; -1 if there is none.
        norms: norm of each key's value after the output projection; empty if not known.
        values: value of each key before the output projection; empty if not known.
        stops: positions of full stops, exclamation marks and question marks.
        sentences: sentence of a passage to which each token belongs; empty for a single sentence.
        regions: text of a pair to which each token belongs, 0 or 1; empty for a single text.
    """

    weights: tuple[tuple[float, ...], ...]
    tags: tuple[str, ...] = ()
    heads: tuple[int, ...] = ()
    relations: tuple[str, ...] = ()
    special: tuple[int, ...] = ()
    separator: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()
    rarest: int = -1
    norms: tuple[float, ...] = ()
    values: tuple[tuple[float, ...], ...] = ()
    stops: tuple[int, ...] = ()
    sentences: tuple[int, ...] = ()
    regions: tuple[int, ...] = ()


# Examples of one sentence or, for metrics that need several, of several sentences, by name.
Examples = Mapping[str, tuple[Example | tuple[Example, ...], float | Mapping[str, float]]]
