"""Arrays of one sentence for callers: attention weights and context similarity, with tokens."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.errors import ConfigError
from headbook.schema import AttentionStack
from headbook.study.sentence_data import UINT8_STEPS, SentenceData
from headbook.study.token_outputs import MAX_OUTPUT_BYTES, output_bytes

MAX_NAMED_SENTENCES = 8  # indices that the message on an unknown sentence names


class AttentionWeights(NamedTuple):
    """Attention of one head, or of all heads of a layer, in a sentence.

    Attributes:
        weights: weights in the steps of 1/255 in which a study stores them. *Shape:* ``(query,
            key)``, or ``(head, query, key)`` for all heads of a layer.
        queries: tokens of the queries.
        keys: tokens of the keys.
    """

    weights: "NDArray[np.float32]"
    queries: tuple[str, ...]
    keys: tuple[str, ...]


class ContextSimilarity(NamedTuple):
    """Context similarity of one head, or of all heads of a layer, in a sentence.

    Attributes:
        cosines: cosine of every two outputs, within 0.02; NaN for tokens that do not count.
            *Shape:* ``(token, token)``, or ``(head, token, token)`` for all heads of a layer.
        tokens: tokens whose outputs are compared: the queries.
    """

    cosines: "NDArray[np.float32]"
    tokens: tuple[str, ...]


def some_sentences(indices: Sequence[int]) -> str:
    """Return the first indices of sentences with stored maps, and how to store more."""
    some = ", ".join(map(str, indices[:MAX_NAMED_SENTENCES])) or "none: the study has no maps"
    more = ", …" if len(indices) > MAX_NAMED_SENTENCES else ""
    return f"{some}{more}; sentence_pages= of collect stores more"


def chosen_stack(stacks: Sequence[AttentionStack], name: str | None, caller: str) -> AttentionStack:
    """Return a stack by its name, the first one without a name.

    Args:
        caller: function of a study that the message names.

    Raises:
        ConfigError: there is no such stack.
    """
    names = [stack.name for stack in stacks]
    if name is not None and name not in names:
        raise ConfigError(f"study.{caller}: got stack {name!r}, expected {' or '.join(names)}")
    return stacks[0 if name is None else names.index(name)]


def attention_weights(
    data: SentenceData, index: int, stack: AttentionStack, layer: int, head: int | None
) -> AttentionWeights:
    """Return the stored attention of a head, or of all heads of a layer, in a listed sentence.

    Raises:
        ConfigError: the sentence has no stored maps, or the stack no such layer or head.
    """
    _check_place(data, index, stack, layer, head, caller="attention")
    texts = data.sentences[index].texts
    maps = data.maps[stack.name, index]
    weights = maps[layer if head is None else (layer, head)] / np.float32(UINT8_STEPS)
    return AttentionWeights(weights, texts[stack.queries].pieces, texts[stack.keys].pieces)


def context_similarity(
    data: SentenceData,
    index: int,
    stack: AttentionStack,
    layer: int,
    head: int | None,
    *,
    centred: bool,
) -> ContextSimilarity:
    """Return the context similarity of a head, or of all heads of a layer, in a listed sentence.

    Raises:
        ConfigError: the sentence has no stored maps or outputs, or the stack no such layer or head.
    """
    _check_place(data, index, stack, layer, head, caller="similarity")
    tokens = data.sentences[index].texts[stack.queries].pieces
    outputs = data.outputs.get((stack.name, index, layer))
    if outputs is None:
        if output_bytes(stack, len(tokens)) > MAX_OUTPUT_BYTES:
            got, expected = "a longer one", f"at most {MAX_OUTPUT_BYTES / 1e6:.0f} MB of outputs"
        else:
            got, expected = "none", "head outputs, which this model does not show"
        raise ConfigError(
            f"study.similarity: stack {stack.name}, sentence {index}: got {got}, expected "
            f"{expected}"
        )
    cosines = outputs.similarity(centred=centred)
    return ContextSimilarity(cosines if head is None else cosines[head], tokens)


def _check_place(
    data: SentenceData,
    index: int,
    stack: AttentionStack,
    layer: int,
    head: int | None,
    *,
    caller: str,
) -> None:
    """Check that a sentence has stored maps, and a stack a layer and a head.

    Raises:
        ConfigError: the sentence has no stored maps, or the stack no such layer or head.
    """
    if (stack.name, index) not in data.maps:
        raise ConfigError(
            f"study.{caller}: got sentence {index!r}, expected one whose maps are stored, "
            f"counted from 0: {some_sentences(_mapped(data.maps, stack.name))}"
        )
    if layer not in stack.attention_layers or (
        head is not None and head not in range(stack.n_heads)
    ):
        at = f"layer {layer!r}" + ("" if head is None else f", head {head!r}")
        layers = ", ".join(map(str, stack.attention_layers))
        raise ConfigError(
            f"study.{caller}: got {at}, expected one of the layers {layers} and a head from 0 "
            f"to {stack.n_heads - 1}"
        )


def _mapped(places: Iterable[tuple[str, int]], name: str) -> list[int]:
    """Return the indices of the sentences with maps of a stack, ascending."""
    return sorted(index for stack, index in places if stack == name)
