"""Keeps the attention maps by which two models are compared."""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from headbook.attention.scopes import Scopes
from headbook.model import hook
from headbook.model.architecture import Call
from headbook.passes.watch import PassResults, Watch
from headbook.study.mapsample import MOST_BYTES, SENTENCES, MappedSentence, MapSample
from headbook.study.sentencedata import StoredText
from headbook.terms import Stack
from headbook.text.batch import Batch, text_hash
from headbook.text.tokens import Encoded

HALF = 2  # bytes of a weight


class MapSampler:
    """Keeps whole maps of chosen sentences, over all batches of a pass.

    Args:
        items: the sentences that may be chosen; those with the smallest hashes are, as many as
            there is room for.
    """

    def __init__(self, stacks: Mapping[str, Stack], items: Iterable[Encoded]) -> None:
        self._stacks = stacks
        by_key = {text_hash(item.texts): item for item in items}
        self._keys: dict[int, int] = {}  # by index
        self._maps: dict[tuple[int, str], NDArray[np.float16]] = {}
        self._items: dict[int, Encoded] = {}
        room = MOST_BYTES
        for key in sorted(by_key)[:SENTENCES]:
            item = by_key[key]
            room -= sum(HALF * int(np.prod(self._shape(s, item))) for s in stacks.values())
            if room < 0:
                break
            self._keys[item.sentence.index] = key

    @property
    def indices(self) -> frozenset[int]:
        """Places of the chosen sentences in the input."""
        return frozenset(self._keys)

    def watch(self, batch: Batch) -> Watch | None:
        """Keep what a batch has of them."""
        rows = {
            row: item for row, item in enumerate(batch.items) if item.sentence.index in self._keys
        }
        self._items.update({item.sentence.index: item for item in rows.values()})

        def attend(place: Call, attention: hook.Attention, _: Scopes) -> None:
            stack = self._stacks[place.stack]
            weights = attention.weights.float().cpu().numpy()
            for row, item in rows.items():
                shape = self._shape(stack, item)
                part = weights[row, :, : shape[2], : shape[3]]
                name = item.sentence.index, place.stack
                room = self._maps.setdefault(name, np.zeros(shape, np.float16))
                room[place.layer, : len(part)] = part

        return Watch(PassResults, attend) if rows else None

    def sample(self) -> MapSample:
        """What was kept."""
        by_key = {key: index for index, key in self._keys.items()}
        return MapSample({key: self._sentence(by_key[key]) for key in sorted(by_key)})

    def _sentence(self, index: int) -> MappedSentence:
        tokens = self._items[index].tokens
        return MappedSentence(
            index,
            {side: StoredText.of(each) for side, each in tokens.items()},
            {side: each.ids for side, each in tokens.items()},
            {name: self._maps[index, name] for name in self._stacks if (index, name) in self._maps},
        )

    @staticmethod
    def _shape(stack: Stack, item: Encoded) -> tuple[int, int, int, int]:
        queries, keys = item.tokens[stack.queries], item.tokens[stack.keys]
        return stack.n_layers, stack.n_heads, len(queries), len(keys)
