"""Which relations each head finds in each sentence, for tests that need sentences one by one."""

from collections.abc import Mapping

import numpy as np

from headbook.analysis.accumulators import Reservoir
from headbook.attention.layerattention import LayerAttention
from headbook.attention.relations import OFFSETS, asked, hits, offsets
from headbook.study.summaries.sums import RelationHits
from headbook.terms import RELATIONS, Stack
from headbook.text.batch import Batch

MOST = 1000  # sentences kept
ROOM = 1 << 26  # bytes that they may take


class RelationHitsTable:
    """The words that the heads of one stack find in one batch, filled layer by layer."""

    def __init__(self, stack: Stack, batch: Batch) -> None:
        self._batch = batch
        self._scheme = batch.texts[stack.queries].scheme
        n_labels = len(self._scheme.labels)
        cells = (stack.n_layers, stack.n_heads, n_labels)
        self._size = max(2, min(MOST, ROOM // (2 * int(np.prod(cells)))))
        self._hits = np.zeros((len(batch.items), *cells), np.uint16)
        self._asked = np.zeros((len(batch.items), n_labels, 1 + len(OFFSETS)), np.uint16)
        self._filled = False

    def add(self, layers: Mapping[int, slice], view: LayerAttention) -> None:
        """Count some layers, seen without the sink.

        Args:
            layers: the heads of each.
        """
        given = view.scope.once(asked).given
        found = view.once(hits).cpu().numpy()
        every = np.zeros((*found.shape[:2], self._hits.shape[-1]), self._hits.dtype)
        every[..., given] = found.round()
        for layer, heads in layers.items():
            self._hits[:, layer, : heads.stop - heads.start] = every[:, heads]
        if not self._filled:
            # The same for all layers; where some see less far than others, that of the first.
            self._asked[:, given] = view.scope.once(offsets).cpu().numpy().round()
            self._filled = True

    def sums(self) -> RelationHits:
        """What survives."""
        batch = self._batch
        return RelationHits(
            Reservoir.of(self._size, batch.content_hash, batch.index, self._hits),
            Reservoir.of(self._size, batch.content_hash, batch.index, self._asked),
            self._scheme.relations[len(RELATIONS) :],
        )
