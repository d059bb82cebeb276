"""The strongest words of each sentence, for tests that need sentences one by one."""

from collections.abc import Mapping

import numpy as np

from headbook.attention.layerattention import LayerAttention
from headbook.attention.relations import asked_of_words
from headbook.attention.surfacerules import NOTHING, strongest_words
from headbook.inputs import NO_HEAD
from headbook.study.summaries.strongestwords import LONGEST, StrongestWords
from headbook.terms import RELATIONS, UPOS, Stack
from headbook.text.batch import Batch
from headbook.text.texts import NO_RELATION, NO_TAG

MOST = 100_000  # words kept, a few thousand sentences
ROOM = 1 << 25  # bytes that their strongest words may take
BYTES = 2  # of a place in a sentence


class RelationHitsTable:
    """The strongest words of one stack in one batch, filled layer by layer.

    Sentences without annotation take no part, nor do texts of more than `LONGEST` words.
    """

    def __init__(self, stack: Stack, batch: Batch) -> None:
        self._batch, self._stack = batch, stack
        self._texts = batch.texts[stack.queries]
        cells = (stack.n_layers, stack.n_heads)
        self._size = max(1, min(MOST, ROOM // (BYTES * int(np.prod(cells)))))
        self._strongest = np.full(
            (len(batch.items), self._texts.n_words, *cells), NOTHING, np.int16
        )
        self._asked: np.ndarray[tuple[int, ...], np.dtype[np.uint8]] | None = None

    def add(self, layers: Mapping[int, slice], view: LayerAttention) -> None:
        """Take in some layers, seen without the sink.

        Args:
            layers: the heads of each.
        """
        if self._texts.n_words > LONGEST:
            return
        found = view.once(strongest_words).cpu().numpy().transpose(0, 2, 1)
        for layer, heads in layers.items():
            self._strongest[:, :, layer, : heads.stop - heads.start] = found[..., heads]
        if self._asked is None:
            # The same for all layers; where some see less far than others, that of the first.
            self._asked = asked_of_words(view.scope).cpu().numpy().astype(np.uint8)

    def sums(self) -> StrongestWords:
        """Return the words of this batch that are kept."""
        texts, batch, scheme = self._texts, self._batch, self._texts.scheme
        there = (texts.tagged | texts.parsed).squeeze(1).cpu().numpy()
        if self._asked is None:
            self._asked = np.zeros((len(there), texts.n_words), np.uint8)
            there = np.zeros_like(there)
        lengths = np.where(there, texts.word.amax(1).cpu().numpy() + 1, 0)
        inside = np.arange(texts.n_words) < lengths[:, None]
        tag, relation, head = (
            texts.by_word(values, fill).cpu().numpy().astype(np.int16)[inside]
            for values, fill in (
                (texts.tag, NO_TAG), (texts.relation, NO_RELATION), (texts.head, NO_HEAD),
            )
        )  # fmt: skip
        kept = lengths > 0
        return StrongestWords(
            size=self._size,
            causal=self._stack.causal,
            content_hash=batch.content_hash[kept],
            index=batch.index[kept],
            lengths=lengths[kept].astype(np.int64),
            strongest=self._strongest[inside],
            tag=tag,
            relation=relation,
            head=head,
            asked=self._asked[inside],
            own_tags=scheme.tags[len(UPOS) :],
            own=scheme.relations[len(RELATIONS) :],
        ).smallest()
