"""Queries and keys of sentences with pages, from which their weights can be computed again.

The numbers that a model adds to scaled products of queries and keys are not assumed: they are the
difference between these products and the input of the model's own softmax, whatever the model does
with masks, position biases or soft caps. If the stored numbers do not reproduce the weights, no
queries and keys are stored.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from headbook.attention.masks import BatchMask
from headbook.model.architecture import Architecture, AttentionPlace
from headbook.model.attention_hook import AttentionCall
from headbook.schema import AttentionStack
from headbook.study.manifest import MissingPart, NotAvailable
from headbook.study.sentence_data import (
    BASE64,
    FLOAT32_BYTES,
    MAX_QUERY_KEY_BYTES,
    LayerKey,
    QueriesAndKeys,
    SentenceData,
    bytes_needed,
)
from headbook.text.batch import Batch
from headbook.text.tokens import TokenizedSentence

MAX_WEIGHT_ERROR = 1e-5  # largest difference of a weight recomputed from queries and keys
MIN_ADDED_SHARE = 1e-5  # smallest added score that is stored, as a share of the largest product
SOFTMAX_FUNCTIONS = frozenset({torch.softmax, torch.Tensor.softmax, torch.nn.functional.softmax})


class SoftmaxInput(TorchFunctionMode):
    """A torch function mode that keeps the input of the last softmax inside the block.

    Attributes:
        last: the input scores; None before the first softmax.
    """

    last: torch.Tensor | None = None

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any | None = None
    ) -> Any:
        """Keep the input if the call is a softmax, and run the call."""
        if func in SOFTMAX_FUNCTIONS:
            self.last = args[0] if args else (kwargs or {})["input"]
        return func(*args, **(kwargs or {}))


def fits_in_memory(stack: AttentionStack, n_queries: int, n_keys: int) -> bool:
    """Check whether the queries and keys of a sentence are small enough to be stored."""
    return bytes_needed(stack, n_queries, n_keys) <= MAX_QUERY_KEY_BYTES


def layer_queries_and_keys(
    place: AttentionPlace,
    attention: AttentionCall,
    softmax_input: torch.Tensor | None,
    frame: BatchMask,
    batch: Batch,
    *,
    wanted: Collection[int],
) -> Iterator[tuple[LayerKey, QueriesAndKeys]]:
    """Yield queries and keys of one layer for the requested sentences of a batch.

    Args:
        softmax_input: input of the layer's softmax. *Shape:* ``(sentence, head, query, key)``.
        wanted: indices of the requested sentences.
    """
    query, key, weights = attention.query, attention.key, attention.weights
    if (
        query is None
        or key is None
        or softmax_input is None
        or softmax_input.shape != weights.shape
    ):
        return
    scaling = query.shape[-1] ** -0.5 if attention.scaling is None else attention.scaling
    for row, item in enumerate(batch.items):
        index, stack = item.sentence.index, frame.stack
        n_queries, n_keys = len(item.tokens[stack.queries]), len(item.tokens[stack.keys])
        if index not in wanted or not fits_in_memory(stack, n_queries, n_keys):
            continue
        cells = row, slice(None), slice(n_queries), slice(n_keys)
        queries_and_keys = _traced(
            query[row, :, :n_queries].float().cpu(),
            key[row, :, :n_keys].float().cpu(),
            scaling,
            scores=softmax_input[cells].cpu().double(),
            weights=weights[cells].cpu().double(),
            hidden=~frame.attention_mask[row, :n_queries, :n_keys].cpu(),
        )
        if queries_and_keys is not None:
            yield (place.stack, index, place.layer), queries_and_keys


def _traced(
    query: torch.Tensor,
    key: torch.Tensor,
    scaling: float,
    *,
    scores: torch.Tensor,
    weights: torch.Tensor,
    hidden: torch.Tensor,
) -> QueriesAndKeys | None:
    """Return queries and keys of one sentence, or None if they do not reproduce the weights."""
    groups = query.shape[0] // key.shape[0]
    products = query.double() @ key.double().repeat_interleave(groups, 0).mT * scaling
    added = (scores - products).masked_fill(hidden, 0).float()
    if added.abs().max() <= MIN_ADDED_SHARE * max(1.0, float(products.abs().max())):
        added = added[:0]
    recomputed = products + added.double() if len(added) else products
    error = (recomputed.masked_fill(hidden, -torch.inf).softmax(-1) - weights).abs().max()
    if not error <= MAX_WEIGHT_ERROR:  # true for NaN, too
        return None
    return QueriesAndKeys(
        queries=query.numpy().copy(),
        keys=key.numpy().copy(),
        scaling=np.array(scaling, np.float64),
        added=added.numpy().copy(),
        seen=(~hidden).numpy().astype(np.uint8),
    )


def first_within(
    indices: Iterable[int],
    sentences: Mapping[int, TokenizedSentence],
    stacks: Iterable[AttentionStack],
    most: float,
) -> tuple[int, ...]:
    """Return the first sentences whose queries and keys fill at most so many bytes of a site.

    Args:
        indices: indices of sentences, in order.
        sentences: sentences by index.
        stacks: stacks of the model.
        most: bytes of files with 8 bits a number.
    """
    stacks, used, first = tuple(stacks), 0.0, list[int]()
    for index in indices:
        tokens = sentences[index].tokens
        for stack in stacks:
            sizes = len(tokens[stack.queries]), len(tokens[stack.keys])
            if fits_in_memory(stack, *sizes):
                used += BASE64 * bytes_needed(stack, *sizes) / FLOAT32_BYTES
        if used > most:
            break
        first.append(index)
    return tuple(first)


def within_site(data: SentenceData, most: float) -> SentenceData:
    """Return the data without queries and keys beyond those that fill so many bytes of a site."""
    used, kept = 0.0, dict[LayerKey, QueriesAndKeys]()
    by_sentence = sorted({index for _, index, _ in data.queries_and_keys})
    for index in by_sentence:
        of_sentence = {key: each for key, each in data.queries_and_keys.items() if key[1] == index}
        used += sum(each.site_bytes for each in of_sentence.values())
        if used > most:
            break
        kept |= of_sentence
    return replace(data, queries_and_keys=kept)


def stacks_without_queries_keys(
    architecture: Architecture, sentence_data: SentenceData, wanted: Collection[int]
) -> Iterator[NotAvailable]:
    """Yield the stacks whose queries and keys are known but do not reproduce the weights."""
    kept = {place[:2] for place in sentence_data.queries_and_keys}
    sentences = [sentence_data.sentences[index] for index in sorted(wanted)]
    for name, stack in architecture.stacks.items() if architecture.hooked else ():
        sizes = {
            sentence.index: (
                len(sentence.texts[stack.queries].pieces),
                len(sentence.texts[stack.keys].pieces),
            )
            for sentence in sentences
        }
        if any(
            fits_in_memory(stack, *n) and (name, index) not in kept for index, n in sizes.items()
        ):
            yield NotAvailable(
                "how weights come about", name,
                "weights computed again from queries and keys differ by more than "
                f"{MAX_WEIGHT_ERROR:g}: "
                "numbers are coarser than float32, or the softmax holds more than the keys",
                MissingPart.WEIGHTS,
            )  # fmt: skip
