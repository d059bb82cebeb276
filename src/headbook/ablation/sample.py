"""Sample of sentences on which heads are ablated, in batches."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arrays import Ints
from headbook.schema import Side
from headbook.text.batch import Batch, batches_by_tokens, token_hash
from headbook.text.tokens import TokenizedSentence, TokenizedText


@dataclass(frozen=True, eq=False)
class AblationSample:
    """Sentences on which heads are ablated.

    Attributes:
        batches: batches of all sentences.
        reported: batches of the held-out half of the sentences.
        small: batches of all sentences that leave memory for a backward pass.
        batch: makes a batch of sentences.
    """

    batches: Sequence[Batch]
    reported: Sequence[Batch]
    small: Sequence[Batch]
    batch: Callable[[Sequence[TokenizedSentence]], Batch]

    @property
    def content_hash(self) -> NDArray[np.uint64]:
        """Hashes of the sentences, ascending."""
        return np.sort(np.concatenate([batch.content_hash for batch in self.batches]))

    def texts(self, side: Side) -> tuple[NDArray[np.uint64], Ints]:
        """Return the hash of each sentence's text, and the number of its scored characters.

        Args:
            side: side whose tokens, all but the first, are scored.
        """
        hashes = np.concatenate([batch.content_hash for batch in self.batches])
        order = np.argsort(hashes, kind="stable")
        items = [item for batch in self.batches for item in batch.items]
        texts = np.concatenate([batch.text_hash for batch in self.batches])
        scored = np.array([_scored(item.tokens[side]) for item in items], np.int64)
        return texts[order], scored[order]


def _scored(tokens: TokenizedText) -> int:
    """Return the number of characters of the scored tokens.

    Scored tokens are those after the first one, which is a special token or the first of the text.
    """
    spans = [(int(start), int(end)) for start, end in tokens.spans[1:] if start < end]
    return max(end for _, end in spans) - min(start for start, _ in spans) if spans else 0


BACKWARD_MEMORY_FACTOR = 3  # memory of a backward pass, in forward passes
# Batches into which a batch of a forward pass is split, since ablation copies each sentence for
# many sets of heads: copies of short sentences fill the memory instead of padding.
ABLATION_SPLITS = 16


def ablation_sample(
    items: Sequence[TokenizedSentence],
    budget: int,
    batch: Callable[[Sequence[TokenizedSentence]], Batch],
    *,
    alike: bool,
    shared_length: float = math.inf,
) -> AblationSample:
    """Return the sample of sentences in batches, independent of their order in the input.

    Args:
        items: sentences of the sample.
        budget: largest number of tokens of a batch.
        batch: makes a batch of sentences.
        alike: whether all sentences of a batch must have the same length.
        shared_length: tokens of the longest sentence that may share a batch.
    """
    items = sorted(items, key=token_hash)
    reported = [item for item in items if token_hash(item) & 1]

    def batches(sentences: Sequence[TokenizedSentence], tokens: int) -> list[Batch]:
        groups = batches_by_tokens(sentences, tokens, alike=alike, shared_length=shared_length)
        return [batch(group) for group in groups]

    small, fine = (max(1, budget // parts) for parts in (BACKWARD_MEMORY_FACTOR, ABLATION_SPLITS))
    return AblationSample(
        batches(items, fine), batches(reported, fine), batches(items, small), batch
    )
