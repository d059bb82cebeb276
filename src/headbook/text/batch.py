"""Batches by token budget, and their padded arrays."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.analysis.accumulators import half_of
from headbook.terms import Scheme, Side
from headbook.text.texts import STANDARD, Texts
from headbook.text.tokens import Encoded

WINDOW = 1024  # sentences sorted by length at a time; bounds what waits in memory


@dataclass(frozen=True, eq=False)
class Batch:
    """Sentences of similar length.

    Attributes:
        texts: padded tokens by side.
        index: each sentence's place in the input. *Shape:* ``(sentence,)``.
        content_hash: of each sentence's tokens.
        half: 0 or 1, from the hash, so that equal sentences fall into the same half.
    """

    items: tuple[Encoded, ...]
    texts: dict[Side, Texts]
    index: NDArray[np.int64]
    content_hash: NDArray[np.uint64]

    @property
    def half(self) -> NDArray[np.int64]:
        """The half of the corpus that each sentence belongs to."""
        return half_of(self.content_hash)

    @property
    def text_hash(self) -> NDArray[np.uint64]:
        """Hash of each sentence's texts, the same for every model."""
        return np.array([text_hash(item.texts) for item in self.items], dtype=np.uint64)

    def repeated(self, times: int) -> "Batch":
        """The same sentences several times, one copy of the batch below the other."""
        return Batch(
            items=self.items * times,
            texts={side: texts.repeated(times) for side, texts in self.texts.items()},
            index=np.tile(self.index, times),
            content_hash=np.tile(self.content_hash, times),
        )

    @classmethod
    def of(
        cls,
        items: Sequence[Encoded],
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        scheme: Scheme = STANDARD,
    ) -> "Batch":
        """Pad sentences to one batch, those of one half before those of the other."""
        sides = items[0].tokens
        hashes = np.array([content_hash(item) for item in items], dtype=np.uint64)
        order = np.argsort(half_of(hashes), kind="stable")
        items = [items[place] for place in order]
        return cls(
            items=tuple(items),
            texts={
                side: Texts.of([item.tokens[side] for item in items], device, dtype, scheme)
                for side in sides
            },
            index=np.array([item.sentence.index for item in items]),
            content_hash=hashes[order],
        )


def text_hash(texts: Iterable[str]) -> int:
    """Hash of a sentence's texts, by which models that read the same ones are compared."""
    joined = "\0".join(texts).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(joined, digest_size=8).digest(), "big")


def content_hash(item: Encoded) -> int:
    """Hash of a sentence's tokens, by which samples and halves are chosen."""
    return int.from_bytes(hashlib.blake2b(item.content, digest_size=8).digest(), "big")


def by_budget(
    items: Iterable[Encoded], budget: int, *, alike: bool = False
) -> Iterator[list[Encoded]]:
    """Group sentences so that a padded batch holds at most ``budget`` tokens.

    Sentences are sorted by length within a window of `WINDOW`, so that little is padding. A
    sentence longer than the budget is a batch of its own.

    Args:
        alike: whether a batch may hold sentences of one length only, so that nothing is padded.
    """
    stream = iter(items)
    while window := sorted(
        islice(stream, WINDOW), key=lambda item: (item.length, item.lengths if alike else ())
    ):
        group: list[Encoded] = []
        for item in window:
            other = alike and bool(group) and item.lengths != group[0].lengths
            if group and (other or item.length * (len(group) + 1) > budget):
                yield group
                group = []
            group.append(item)
        yield group
