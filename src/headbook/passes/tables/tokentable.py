"""Token metrics summed over the tokens of each class: one stack over one batch."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.analysis.accumulators import Ratios
from headbook.attention.tokenstates import classes
from headbook.metrics.base import LayerwiseMetric, Ratio
from headbook.study.summaries.buckets import TokenBuckets
from headbook.study.summaries.columns import TokenColumn
from headbook.study.summaries.reduce import Parts
from headbook.study.summaries.sums import TokenSums
from headbook.terms import CLASSES, COMPARED_CLASSES, Space, Stack, State
from headbook.text.batch import Batch


def spaces_of(metric: LayerwiseMetric, there: Sequence[Space]) -> Sequence[Space | None]:
    """The spaces in which a metric is taken; None alone for one that needs no vocabulary.

    Args:
        there: the spaces that the model has.
    """
    return [space for space in there if space in metric.spaces] if metric.spaces else [None]


class TokenTable:
    """Filled state by state.

    Args:
        spaces: the vocabulary spaces that there are.
        members: sentences that count, by their place in the batch; by default all.
    """

    def __init__(
        self,
        stack: Stack,
        metrics: Sequence[LayerwiseMetric],
        batch: Batch,
        spaces: Sequence[Space] = (),
        members: NDArray[np.bool_] | None = None,
    ) -> None:
        self._half, self._hashes = batch.half, batch.text_hash
        self._classes = classes(batch.texts[stack.queries])
        if members is not None:
            self._classes = (
                self._classes * torch.from_numpy(members).to(self._classes)[:, None, None]
            )
        self.columns = [
            TokenColumn(metric.id, state, space, label)
            for metric in metrics
            for state in metric.states
            for space in spaces_of(metric, spaces)
            for label in CLASSES
        ]
        cells = (len(batch.items), stack.n_layers, len(self.columns))
        self._n, self._d = np.zeros(cells), np.zeros(cells)

    def add(
        self,
        metric: LayerwiseMetric,
        layer: int,
        state: State,
        space: Space | None,
        values: torch.Tensor,
    ) -> None:
        """Sum values by class of token.

        Args:
            values: *Shape:* ``(sentence, token)``; NaN in the padding, and where there is none.
        """
        start = self.columns.index(TokenColumn(metric.id, state, space, CLASSES[0]))
        place = slice(start, start + len(CLASSES))
        values = metric.averaged.transform(values)
        members = self._classes.to(values.dtype) * ~values.isnan().unsqueeze(-1)
        values = values.nan_to_num()
        self._n[:, layer, place] = (values.unsqueeze(1) @ members).squeeze(1).cpu().numpy()
        self._d[:, layer, place] = members.sum(1).cpu().numpy()

    def sums(self) -> TokenSums:
        """What survives."""
        n, d = torch.from_numpy(self._n), torch.from_numpy(self._d)
        parts = Parts.of([Ratio(n, d)], [n.shape[2]], n.shape[1])
        return TokenSums(tuple(self.columns), Ratios(parts.sums(self._half)[0]))

    def buckets(self) -> tuple[TokenBuckets, ...]:
        """The same by groups of sentences, for comparisons; nothing where there are no columns."""
        kept = [n for n, column in enumerate(self.columns) if column.label in COMPARED_CLASSES]
        if not kept:
            return ()
        columns = tuple(self.columns[n] for n in kept)
        return (TokenBuckets.of(columns, self._hashes, self._n[..., kept], self._d[..., kept]),)
