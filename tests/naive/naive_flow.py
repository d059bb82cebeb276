"""What attention carries, as its definitions read: plain loops over a bare model's own numbers."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bare_model import STACKS, Bare
from naive_tokens import PLACES, paths, record
from naive_written_vectors import Written

Floats = NDArray[np.float64]

# By model type and stack, inside a layer: the norm that the sum goes through, and the norm of the
# block's own output; "" without one.
NORMS = {
    ("bert", "self"): ("attention.output.LayerNorm", ""),
    ("bart", "encoder"): ("self_attn_layer_norm", ""),
    ("bart", "decoder"): ("self_attn_layer_norm", ""),
    ("gpt2", "self"): ("", ""),
    ("llama", "self"): ("", ""),
    ("t5", "encoder"): ("", ""),
    ("t5", "decoder"): ("", ""),
    ("gemma3_text", "self"): ("", "post_attention_layernorm"),
}


class Layer(NamedTuple):
    """One layer of one stack in one sentence.

    Attributes:
        attention: mean over heads. *Shape:* ``(token, token)``.
        mixing: ratio of each token.
    """

    stack: str
    layer: int
    attention: Floats
    mixing: list[float]


def layers(bare: Bare, rows: Sequence[Sequence[int]]) -> Iterator[Layer]:
    """Every layer of every stack whose queries and keys are one text."""
    family = bare.network.config.model_type
    taken, _ = record(bare, rows)
    states = paths(bare, rows)
    with Written(bare.network) as written:
        output = bare.run(rows, output_attentions=True)
    for stack, (field, queries, keys) in STACKS.items():
        if queries != keys or (family, stack) not in NORMS:
            continue
        for layer, maps in enumerate(getattr(output, field)):
            attention = maps[0].numpy()
            name = f"{PLACES[family, stack][0]}.{layer}"
            brought = [
                np.array(written.vectors(stack, layer, head, len(attention)))
                for head in range(len(attention))
            ]
            mid = states[stack].states[layer, "mid"]
            outer, inner = (
                bare.network.base_model.get_submodule(f"{name}.{norm}") if norm else None
                for norm in NORMS[family, stack]
            )
            tokens = [
                Token(i, attention[:, i], brought, taken[name][i], mid[i]) for i in range(len(mid))
            ]
            ratios = [ratio(token, outer, inner) for token in tokens]
            yield Layer(stack, layer, attention.mean(0), ratios)


class Token(NamedTuple):
    """One token in one layer.

    Attributes:
        attention: its rows. *Shape:* ``(head, key)``.
        brought: by head, what each key brings. *Shape:* ``(key, width)`` each.
        residual: what is added to the block's output.
        mid: the sum.
    """

    i: int
    attention: Floats
    brought: list[Floats]
    residual: Floats
    mid: Floats


def ratio(token: Token, outer: Any, inner: Any) -> float:
    """Return the mixing ratio, with the norms of sum and block if known."""
    mixed, kept = np.zeros_like(token.mid), np.zeros_like(token.mid)
    for head, weights in enumerate(token.attention):
        for j, weight in enumerate(weights):
            if j == token.i:
                kept = kept + weight * token.brought[head][j]
            else:
                mixed = mixed + weight * token.brought[head][j]
    if inner is not None:  # an RMS norm that keeps its gain less 1; no bias before it
        root = np.sqrt(np.mean((mixed + kept) ** 2) + inner.eps)
        gain = 1 + inner.weight.detach().numpy()
        mixed, kept = (gain * part / root for part in (mixed, kept))
    kept = kept + token.residual
    if outer is not None:
        root = np.sqrt(np.var(token.mid) + outer.eps)
        gain = outer.weight.detach().numpy()
        mixed, kept = (gain * (part - part.mean()) / root for part in (mixed, kept))
    lengths = np.linalg.norm(mixed), np.linalg.norm(kept)
    return float(lengths[0] / sum(lengths))


def half(found: Sequence[Layer]) -> list[Floats]:
    """Rollout with one half after each layer of one stack."""
    return chained([0.5 * layer.attention + 0.5 * np.eye(len(layer.mixing)) for layer in found])


def measured(found: Sequence[Layer]) -> list[Floats]:
    """Rollout with measured ratios: to other tokens the mixing ratio, the rest to the token."""
    steps = []
    for layer in found:
        step = np.zeros_like(layer.attention)
        for i, mixing in enumerate(layer.mixing):
            others = [j for j in range(len(step)) if j != i]
            total = sum(layer.attention[i, j] for j in others)
            for j in others:
                step[i, j] = mixing * layer.attention[i, j] / total if total else 0.0
            step[i, i] = 1 - sum(step[i])
        steps.append(step)
    return chained(steps)


def chained(steps: Sequence[Floats]) -> list[Floats]:
    """Return the shares of input tokens in states after each layer."""
    found: list[Floats] = []
    for step in steps:
        before = found[-1] if found else np.eye(len(step))
        n = len(step)
        found.append(
            np.array(
                [
                    [sum(step[i, k] * before[k, j] for k in range(n)) for j in range(n)]
                    for i in range(n)
                ]
            )
        )
    return found
