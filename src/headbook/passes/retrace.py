"""Reads the queries and keys of sentences, and keeps them where weights follow from them.

What the model adds to scaled products is not guessed: it is the difference between them and what
its own softmax was given, whatever the model does with masks, position biases or soft caps. Where
the weights do not come out again, nothing is kept.
"""

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from headbook.attention.frame import Frame
from headbook.model.architecture import Architecture, Call
from headbook.model.hook import Attention
from headbook.study.gaps import Gap, Lack
from headbook.study.querykeys import MOST_BYTES, Place, QueriesAndKeys, size
from headbook.study.sentencedata import SentenceData, StoredSentence
from headbook.terms import Stack
from headbook.text.batch import Batch
from headbook.text.tokens import Encoded

TOLERANCE = 1e-5  # of a weight that is computed again
ROUNDING = 1e-5  # of a score, as a share of the largest; a smaller difference is not kept
SOFTMAX = frozenset({torch.softmax, torch.Tensor.softmax, torch.nn.functional.softmax})


class SoftmaxInput(TorchFunctionMode):
    """Remembers what the last softmax inside the block was given.

    Attributes:
        last: the scores that it was given; None before the first.
    """

    last: torch.Tensor | None = None

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any | None = None
    ) -> Any:
        """Look at a call and let it happen."""
        if func in SOFTMAX:
            self.last = args[0] if args else (kwargs or {})["input"]
        return func(*args, **(kwargs or {}))


def fits(stack: Stack, n_queries: int, n_keys: int) -> bool:
    """Whether the queries and keys of a sentence may be kept."""
    return size(stack, n_queries, n_keys) <= MOST_BYTES


def layer_queries_and_keys(
    place: Call,
    attention: Attention,
    given: torch.Tensor | None,
    frame: Frame,
    batch: Batch,
    *,
    wanted: Collection[int],
) -> Iterator[tuple[Place, QueriesAndKeys]]:
    """Queries and keys of one layer, of those sentences of a batch that are wanted.

    Args:
        given: what the softmax of this layer was given; ``(sentence, head, query, key)``.
    """
    query, key, weights = attention.query, attention.key, attention.weights
    if query is None or key is None or given is None or given.shape != weights.shape:
        return
    scaling = query.shape[-1] ** -0.5 if attention.scaling is None else attention.scaling
    for row, item in enumerate(batch.items):
        index, n, m = item.sentence.index, *_lengths(frame.stack, item)
        if index not in wanted or not fits(frame.stack, n, m):
            continue
        cells = row, slice(None), slice(n), slice(m)
        queries_and_keys = _traced(
            query[row, :, :n].float().cpu(),
            key[row, :, :m].float().cpu(),
            scaling,
            scores=given[cells].cpu().double(),
            weights=weights[cells].cpu().double(),
            hidden=~frame.seen[row, :n, :m].cpu(),
        )
        if queries_and_keys is not None:
            yield (place.stack, index, place.layer), queries_and_keys


def _lengths(stack: Stack, item: Encoded) -> tuple[int, int]:
    return len(item.tokens[stack.queries]), len(item.tokens[stack.keys])


def _traced(
    query: torch.Tensor,
    key: torch.Tensor,
    scaling: float,
    *,
    scores: torch.Tensor,
    weights: torch.Tensor,
    hidden: torch.Tensor,
) -> QueriesAndKeys | None:
    """One sentence of a batch; None where weights do not come out again."""
    groups = query.shape[0] // key.shape[0]
    products = query.double() @ key.double().repeat_interleave(groups, 0).mT * scaling
    added = (scores - products).masked_fill(hidden, 0).float()
    if added.abs().max() <= ROUNDING * max(1.0, float(products.abs().max())):
        added = added[:0]
    again = products + added.double() if len(added) else products
    error = (again.masked_fill(hidden, -torch.inf).softmax(-1) - weights).abs().max()
    if not error <= TOLERANCE:  # nor where it is not a number
        return None
    return QueriesAndKeys(
        queries=query.numpy().copy(),
        keys=key.numpy().copy(),
        scaling=np.array(scaling, np.float64),
        added=added.numpy().copy(),
        seen=(~hidden).numpy().astype(np.uint8),
    )


def untraced(
    architecture: Architecture, sentence_data: SentenceData, wanted: Collection[int]
) -> Iterator[Gap]:
    """The stacks whose weights do not follow from queries and keys, though they are known."""
    kept = {place[:2] for place in sentence_data.queries_and_keys}
    asked = [sentence_data.sentences[index] for index in sorted(wanted)]
    for name, stack in architecture.stacks.items() if architecture.hooked else ():
        sizes = {sentence.index: _sizes(stack, sentence) for sentence in asked}
        if any(fits(stack, *n) and (name, index) not in kept for index, n in sizes.items()):
            yield Gap(
                "how weights come about", name,
                f"weights computed again from queries and keys differ by more than {TOLERANCE:g}: "
                "numbers are coarser than float32, or the softmax holds more than the keys",
                Lack.WEIGHTS,
            )  # fmt: skip


def _sizes(stack: Stack, sentence: StoredSentence) -> tuple[int, int]:
    return len(sentence.texts[stack.queries].pieces), len(sentence.texts[stack.keys].pieces)
