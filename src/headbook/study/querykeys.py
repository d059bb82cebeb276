"""The queries and keys that attention weights come from, as studies keep them. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headbook.terms import Stack

MOST_BYTES = 16_000_000  # of a sentence's queries and keys in one stack
NUMBER = np.dtype(np.float32).itemsize

Place = tuple[str, int, int]  # stack, index of the sentence, layer


@dataclass(frozen=True)
class QueriesAndKeys:
    """One layer of one stack over one sentence, so that its weights can be computed again.

    The weight of a pair is the softmax, over the keys that its query sees, of query times key
    times ``scaling`` plus ``added``.

    Attributes:
        queries: after rotary positions, in float32. *Shape:* ``(head, query, width)``.
        keys: likewise; key head ``head * n_key_heads // n_heads`` serves a head.
            *Shape:* ``(key_head, key, width)``.
        scaling: of the products, as the model has it. *Shape:* ``()``.
        added: by what the model changes scaled products before its softmax, such as a position
            bias; empty where it changes nothing. *Shape:* ``(head, query, key)``.
        seen: which keys a query sees, 0 or 1. *Shape:* ``(query, key)``.
    """

    queries: NDArray[np.float32]
    keys: NDArray[np.float32]
    scaling: NDArray[np.float64]
    added: NDArray[np.float32]
    seen: NDArray[np.uint8]


def size(stack: Stack, n_queries: int, n_keys: int) -> int:
    """Bytes of the queries and keys of a sentence with so many tokens, in all layers."""
    rows = stack.n_heads * n_queries + stack.n_key_heads * n_keys
    return len(stack.attention_layers) * rows * stack.head_width * NUMBER


def complete(
    kept: Mapping[Place, QueriesAndKeys], stacks: Mapping[str, Stack]
) -> dict[Place, QueriesAndKeys]:
    """Those of sentences of which a stack has all its layers."""
    known = {name: set(stack.attention_layers) for name, stack in stacks.items()}
    found: dict[tuple[str, int], set[int]] = {}
    for name, index, layer in kept:
        found.setdefault((name, index), set()).add(layer)
    return {
        place: queries_and_keys
        for place, queries_and_keys in kept.items()
        if found[place[:2]] == known[place[0]]
    }
