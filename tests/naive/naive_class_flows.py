"""Attention between classes of words beside the mean head, by plain loops over sentences."""

from collections.abc import Mapping, Sequence
from math import log, sqrt

from single_head import HeadAttention, Viewed

UPOS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN",
    "PUNCT", "SCONJ", "SYM", "VERB", "X",
)  # fmt: skip
Place = tuple[int, int]  # layer and head
Flow = tuple[str, str]  # classes of query and key; empty for all


def _flow(attention: HeadAttention) -> dict[Flow, float]:
    """Attention of one sentence between different words by class, the sink masked."""
    found: dict[Flow, float] = {}
    rows: dict[int, list[dict[int, float]]] = {}
    for row in Viewed(attention, "nosink").rows:
        word = attention.queries.tokens[row.query].word
        if word is not None:
            rows.setdefault(word, []).append(row.weights)
    tag = {token.word: token.tag for token in attention.keys.tokens}
    for query, weights in rows.items():
        for row_weights in weights:
            for key, weight in row_weights.items():
                word = attention.keys.tokens[key].word
                classes = tag[query], tag[word] if word is not None else ""
                if word == query or not {*classes} <= {*UPOS}:
                    continue
                for flow in (classes, (classes[0], ""), ("", classes[1]), ("", "")):
                    found[flow] = found.get(flow, 0.0) + weight / len(weights)
    return found


def shares(
    attentions: Mapping[Place, Sequence[HeadAttention]],
) -> dict[Place, dict[Flow, tuple[float, float]]]:
    """By head and classes the share of its attention, and that of the sum of all heads."""
    of_heads = {
        place: [_flow(attention) for attention in each] for place, each in attentions.items()
    }
    every = [flow for flows in of_heads.values() for flow in flows]
    names = {name for flow in every for name in flow}

    def share(flows: Sequence[dict[Flow, float]], name: Flow) -> float:
        whole = sum(flow.get(("", ""), 0.0) for flow in flows)
        return sum(flow.get(name, 0.0) for flow in flows) / whole

    return {
        place: {name: (share(flows, name), share(every, name)) for name in names if any(name)}
        for place, flows in of_heads.items()
    }


def jackknife(
    attentions: Mapping[Place, Sequence[HeadAttention]], place: Place, name: Flow
) -> float:
    """Return the standard error of the logarithm of a ratio to the mean head, by sentence."""
    n = len(attentions[place])
    left_out = []
    for index in range(n):
        rest = {p: [a for k, a in enumerate(each) if k != index] for p, each in attentions.items()}
        own, mean = shares(rest)[place][name]
        left_out.append(log(own / mean))
    middle = sum(left_out) / n
    return sqrt((n - 1) / n * sum((value - middle) ** 2 for value in left_out))
