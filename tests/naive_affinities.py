"""What heads give from which tokens to which, by plain loops over one sentence at a time."""

from collections.abc import Sequence

from looks import HeadAttention, Viewed
from ratios import Estimate, Part, ratio

Item = tuple[str, int | None, int | None]
Values = tuple[Estimate, float]


def _uniform(look: HeadAttention) -> HeadAttention:
    """The same with equal weights on all visible keys."""
    rows = [
        [1 / len(seen) if j in seen else 0.0 for j in range(len(look.keys.tokens))]
        for seen in map(set, look.seen)
    ]
    return HeadAttention(rows, look.seen, look.queries, look.keys, look.causal, look.crosses)


def _given(look: HeadAttention) -> dict[Item, tuple[float, int]]:
    """By item the attention and the occurrences of one sentence, the sink masked."""
    found: dict[Item, tuple[float, int]] = {}
    received: dict[int, float] = {}

    def add(item: Item, weight: float) -> None:
        total, number = found.get(item, (0.0, 0))
        found[item] = total + weight, number + 1

    for row in Viewed(look, "nosink").rows:
        query = look.queries.tokens[row.query].id
        if row.weights:
            add(("query", query, None), row.mass)
        for key, weight in row.weights.items():
            add(("pair", query, look.keys.tokens[key].id), weight)
            received[key] = received.get(key, 0.0) + weight
    for key, weight in received.items():
        add(("key", None, look.keys.tokens[key].id), weight)
    return found


def affinities(looks: Sequence[HeadAttention]) -> dict[Item, Values]:
    """By item the mean attention with its interval, and that of uniform attention."""
    own, even = [_given(look) for look in looks], [_given(_uniform(look)) for look in looks]
    found = {}
    for item in {item for each in own for item in each}:
        parts = [Part(*each[item], each[item][1]) for each in own if item in each]
        chances = [each[item] for each in even if item in each]
        number = sum(count for _, count in chances)
        limits = (0.0, float("inf") if item[0] == "key" else 1.0)
        found[item] = ratio(parts, limits), sum(total for total, _ in chances) / number
    return found


def texts_with(looks: Sequence[HeadAttention]) -> dict[Item, int]:
    """By item the number of different sentences in which it occurs."""
    found: dict[Item, set[tuple[int, ...]]] = {}
    for look in looks:
        text = (*(t.id for t in look.queries.tokens), -1, *(t.id for t in look.keys.tokens))
        for item in _given(look):
            found.setdefault(item, set()).add(text)
    return {item: len(texts) for item, texts in found.items()}
