"""Mean attention by position: the corner of each map that is kept, summed over a batch."""

import torch

from headbook.study.summaries.positions import PositionSums, kept_positions
from headbook.terms import Stack
from headbook.text.batch import Batch


class PositionTable:
    """The first positions of one stack's maps over one batch, filled layer by layer."""

    def __init__(self, stack: Stack, batch: Batch) -> None:
        side = kept_positions(stack)
        queries, keys = (batch.texts[each].valid[:, :side] for each in (stack.queries, stack.keys))
        self._there = queries[:, :, None] & keys[:, None, :]
        self._sums = PositionSums.zero(stack)
        rows, columns = self._there.shape[1:]
        self._sums.count[:rows, :columns] = self._there.sum(0).cpu().numpy()

    def add(self, layer: int, weights: torch.Tensor) -> None:
        """Take in one layer, weights as the model computed them: ``(sentence, head, query, key)``.

        Rows of padding are left out: a model may put anything there.
        """
        rows, columns = self._there.shape[1:]
        corner = weights[:, :, :rows, :columns].double()
        found = torch.where(self._there.unsqueeze(1), corner, 0).sum(0)
        self._sums.total[layer, : len(found), :rows, :columns] = found.cpu().numpy()

    def sums(self) -> PositionSums:
        """What survives."""
        return self._sums
