"""Attention between classes of words, summed over all sentences."""

import numpy as np
import torch

from headbook.analysis.arrays import Floats
from headbook.attention import map_sums
from headbook.attention.masks import ViewMask
from headbook.schema import UPOS, AttentionStack
from headbook.study.sums.word_samples import FLOW_CELLS, ClassFlows
from headbook.text.batch import NO_TAG, Batch


class ClassFlowAccumulator:
    """Attention by parts of speech of query and key of one stack over one batch, filled by layer.

    The sums hold products with the mean head. So the attention of each sentence and layer is kept
    until all layers are known, for the cells that occur in the batch alone.
    """

    def __init__(self, stack: AttentionStack, batch: Batch) -> None:
        self._stack = stack
        texts = batch.texts[stack.queries]
        tag = texts.by_word(texts.tag, NO_TAG)
        numbers = torch.arange(len(UPOS), device=tag.device)
        self._members = (tag.unsqueeze(-1) == numbers).to(texts.share.dtype)
        self._wanted = bool(self._members.any())
        self._layers: dict[int, Floats] = {}

    def add(self, layer: int, weights: torch.Tensor, scope: ViewMask) -> None:
        """Add one layer's weights as the model computed them.

        *Shape:* ``(sentence, head, query, key)``.

        Args:
            scope: mask of the view without the sink.
        """
        if not self._wanted:
            return
        words = map_sums.by_word(weights, scope)
        words.diagonal(dim1=-2, dim2=-1).zero_()
        members = self._members.to(words.dtype).unsqueeze(1)
        pairs = (members.mT @ words @ members).cpu().numpy()
        cells = np.concatenate([pairs.reshape(*pairs.shape[:2], -1), pairs.sum(3), pairs.sum(2)], 2)
        self._layers[layer] = cells

    def sums(self) -> ClassFlows:
        """Return the sums of this batch."""
        n_cells, n_pairs = len(FLOW_CELLS), len(UPOS) ** 2
        heads = self._stack.n_layers, self._stack.n_heads
        cells, totals = np.zeros((6, *heads, n_cells)), np.zeros((3, *heads))
        if not self._layers:
            return ClassFlows(
                cells, totals, np.zeros((3, n_cells)), np.zeros(2), np.zeros(n_cells, np.int64)
            )
        m = np.sum([layer.sum(1, dtype=np.float64) for layer in self._layers.values()], 0)
        e = m[:, :n_pairs].sum(1)
        for layer, flows in self._layers.items():
            n = flows.astype(np.float64)
            d = n[..., :n_pairs].sum(2)
            own = slice(n.shape[1])
            factors = (1.0, n, d[..., None], m[:, None], e[:, None, None])
            for number, factor in enumerate(factors):
                cells[number, layer, own] = (n * factor).sum(0)
            cells[5, layer, own] = d.T @ m
            for number, factor in enumerate((1.0, d, e[:, None])):
                totals[number, layer, own] = (d * factor).sum(0)
        mean_cells = np.stack([m.sum(0), (m**2).sum(0), (m * e[:, None]).sum(0)])
        mean_totals = np.array([e.sum(), (e**2).sum()])
        return ClassFlows(cells, totals, mean_cells, mean_totals, (m > 0).sum(0))
