"""What heads give from which tokens to which, by plain loops over one sentence at a time."""

from collections.abc import Sequence

from naive_ratios import Estimate, Part, ratio
from single_head import HeadAttention, Viewed

Item = tuple[str, int | None, int | None]
Values = tuple[Estimate, float]


def _uniform(attention: HeadAttention) -> HeadAttention:
    """Return the affinities with equal weights on all visible keys."""
    rows = [
        [1 / len(seen) if j in seen else 0.0 for j in range(len(attention.keys.tokens))]
        for seen in map(set, attention.seen)
    ]
    return HeadAttention(
        rows, attention.seen, attention.queries, attention.keys, attention.causal, attention.crosses
    )


def _given(attention: HeadAttention) -> dict[Item, tuple[float, int]]:
    """By item the attention and the occurrences of one sentence, the sink masked."""
    found: dict[Item, tuple[float, int]] = {}
    received: dict[int, float] = {}

    def add(item: Item, weight: float) -> None:
        total, number = found.get(item, (0.0, 0))
        found[item] = total + weight, number + 1

    for row in Viewed(attention, "nosink").rows:
        query = attention.queries.tokens[row.query].id
        if row.weights:
            add(("query", query, None), row.mass)
        for key, weight in row.weights.items():
            add(("pair", query, attention.keys.tokens[key].id), weight)
            received[key] = received.get(key, 0.0) + weight
    for key, weight in received.items():
        add(("key", None, attention.keys.tokens[key].id), weight)
    return found


def affinities(attentions: Sequence[HeadAttention]) -> dict[Item, Values]:
    """By item the mean attention with its interval, and that of uniform attention."""
    own, even = (
        [_given(attention) for attention in attentions],
        [_given(_uniform(attention)) for attention in attentions],
    )
    found = {}
    for item in {item for each in own for item in each}:
        parts = [Part(*each[item], each[item][1]) for each in own if item in each]
        chances = [each[item] for each in even if item in each]
        number = sum(count for _, count in chances)
        limits = (0.0, float("inf") if item[0] == "key" else 1.0)
        found[item] = ratio(parts, limits), sum(total for total, _ in chances) / number
    return found


def texts_with(attentions: Sequence[HeadAttention]) -> dict[Item, int]:
    """By item the number of different sentences in which it occurs."""
    found: dict[Item, set[tuple[int, ...]]] = {}
    for attention in attentions:
        text = (
            *(t.id for t in attention.queries.tokens),
            -1,
            *(t.id for t in attention.keys.tokens),
        )
        for item in _given(attention):
            found.setdefault(item, set()).add(text)
    return {item: len(texts) for item, texts in found.items()}
