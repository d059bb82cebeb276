"""Distances of every two heads of a stack, on the sample.

The rows of all layers are needed at once, so that batches are small. The work grows with the square
of the number of heads. With more than `MOST` heads, a matrix product compares all pairs, and only
the most similar pairs are compared by the metric itself, in a second pass.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.attention.views import LayerAttention, ViewMasks
from headbook.metrics.base import PairMetric
from headbook.model import attention_hook
from headbook.model.architecture import Architecture, AttentionPlace
from headbook.model.load import Model
from headbook.passes.observers import BatchObserver, PassResults
from headbook.schema import AttentionStack, SinkView
from headbook.study.corpus_sums import CorpusSums, HeadDistances, HellingerSums, PairColumn
from headbook.text.batch import Batch

CELLS = 2**24  # most weights of all heads kept at a time, in each view
MOST = 144  # most heads of which every pair is compared
NEAR = 6  # most similar heads with which each head is compared if there are more, in each view
LEAST = 30  # rows that two heads must share to be chosen, or as many as any two heads share

Rows = tuple[torch.Tensor, torch.Tensor]  # weights ``(head, row, key)``; trusted ``(head, row)``
Chosen = tuple[torch.Tensor, torch.Tensor]  # the heads of pairs, ``(pair,)`` each


@dataclass(frozen=True)
class HeadPairDistances:
    """Observer that compares heads with the pair metrics of a run.

    Attributes:
        chosen: by stack, the pairs to compare in a second pass; None in the first pass.
    """

    model: Model
    architecture: Architecture
    metrics: tuple[PairMetric, ...]
    chosen: Mapping[str, Chosen] | None = None

    def tokens(self, longest: int) -> int:
        """Return the largest number of tokens of a batch.

        Args:
            longest: most tokens of a sentence.
        """
        most = max(n_heads(stack) for stack in self.architecture.stacks.values())
        return max(1, CELLS // (most * longest))

    def nearest(self, found: Mapping[str, HeadDistances]) -> "HeadPairDistances | None":
        """Return the observer of the second pass, or None if all pairs have been compared.

        Args:
            found: by stack, the distances of the first pass.
        """
        chosen = {
            name: _nearest(sums.alike) for name, sums in found.items() if sums.alike is not None
        }
        return replace(self, chosen=chosen) if chosen else None

    def observe(self, batch: Batch) -> BatchObserver:
        """Return callbacks that compare the heads of one batch."""
        views = list(dict.fromkeys(view for metric in self.metrics for view in metric.views))
        stacks = {
            name: _Collected(stack, batch, views)
            for name, stack in self.architecture.stacks.items()
            if self.chosen is None or name in self.chosen
        }

        def attend(
            place: AttentionPlace, attention: attention_hook.AttentionCall, scopes: ViewMasks
        ) -> None:
            if place.stack in stacks:
                stacks[place.stack].add(attention, scopes)

        def found() -> PassResults:
            sums = {name: self._measured(stack) for name, stack in stacks.items()}
            return PassResults(CorpusSums(distances=sums))

        return BatchObserver(found, attend)

    def _measured(self, found: "_Collected") -> HeadDistances:
        asked = [(metric, view) for metric in self.metrics for view in metric.views]
        rows = {view: found.rows(view) for view in found.views}
        columns, sentences = tuple(PairColumn(m.id, view) for m, view in asked), found.sentences
        counts = _numbers(rows[view][1] @ rows[view][1].mT for _, view in asked)
        if self.chosen is not None:
            pairs = self.chosen[found.stack.name]
            total = _numbers(
                _spread(m.measure_pairs(*rows[v], *pairs), pairs, rows[v]) for m, v in asked
            )
            compared = np.zeros(counts.shape[1:])
            compared[pairs[0].cpu(), pairs[1].cpu()] = compared[pairs[1].cpu(), pairs[0].cpu()] = 1
            return HeadDistances(columns, total, counts * compared, 0)
        if n_heads(found.stack) > MOST:
            affinities = _numbers(metric.similarity(*rows[view]) for metric, view in asked)
            nothing, alike = np.zeros(counts.shape), HellingerSums(affinities, counts)
            return HeadDistances(columns, nothing, nothing, sentences, alike)
        total = _numbers(metric.measure(*rows[view]) for metric, view in asked)
        return HeadDistances(columns, total, counts, sentences)


def _numbers(tables: Iterable[torch.Tensor]) -> NDArray[np.float64]:
    """Stack tables along a new first dimension, as float64."""
    numbers: NDArray[np.float64] = torch.stack([*tables]).cpu().double().numpy()
    return numbers


def _spread(values: torch.Tensor, pairs: Chosen, rows: Rows) -> torch.Tensor:
    """Return a symmetric table of all heads with the values of pairs, and 0 elsewhere.

    *Shape:* ``(head, head)``.
    """
    found = values.new_zeros(len(rows[0]), len(rows[0]))
    found[pairs[0], pairs[1]] = values
    return found + found.mT


def _nearest(alike: HellingerSums) -> Chosen:
    """Return each pair of a head and one of its most similar heads in any column, once."""
    chosen = np.zeros(alike.total.shape[1:], bool)
    for apart, rows in zip(alike.apart, alike.rows, strict=True):
        others = np.where(rows >= max(1.0, min(LEAST, rows.max())), apart, np.nan)
        np.fill_diagonal(others, np.nan)
        order = np.argsort(others, axis=1, kind="stable")[:, :NEAR]
        there = ~np.isnan(np.take_along_axis(others, order, 1))
        chosen[np.nonzero(there)[0], order[there]] = True
    one, other = np.nonzero(np.triu(chosen | chosen.T, 1))
    return torch.from_numpy(one), torch.from_numpy(other)


@dataclass(frozen=True, eq=False)
class _Collected:
    """The attention rows of all heads of one stack over one batch, filled by layer."""

    stack: AttentionStack
    batch: Batch
    views: list[SinkView]
    _layers: list[dict[SinkView, Rows]] = field(default_factory=list)

    @property
    def sentences(self) -> int:
        """Number of sentences in the batch."""
        return len(self.batch.items)

    def add(self, attention: attention_hook.AttentionCall, scopes: ViewMasks) -> None:
        """Add the rows of the next layer."""
        layer = scopes.views(self.stack.name, attention)
        queries = self.batch.texts[self.stack.queries]
        places = queries.ordinary  # a superset of the rows that count in any layer
        self._layers.append(
            {view: self._rows(_whole(layer[view], view), layer[view].trusted_rows, places)
             for view in self.views}
        )  # fmt: skip

    def _rows(self, weights: torch.Tensor, trusted: torch.Tensor, places: torch.Tensor) -> Rows:
        """Return the rows at some positions, with empty heads if the layer has too few."""
        trusted = trusted.expand(weights.shape[:3])
        heads = [part.transpose(0, 1)[:, places] for part in (weights, trusted)]
        missing = self.stack.n_heads - weights.shape[1]
        padded = [torch.cat([part, part.new_zeros(missing, *part.shape[1:])]) for part in heads]
        return padded[0], padded[1]

    def rows(self, view: SinkView) -> Rows:
        """Return the rows of all heads in the order of layers, and release them."""
        weights, trusted = zip(*(layer.pop(view) for layer in self._layers), strict=True)
        return torch.cat(weights), torch.cat(trusted)


def _whole(layer: LayerAttention, view: SinkView) -> torch.Tensor:
    """Return rows that sum to 1: in the raw view, a learned sink is one more key."""
    if view is not SinkView.RAW or not layer.frame.stack.learned_sink:
        return layer.weights
    return torch.cat([layer.weights, layer.learned_mass.unsqueeze(-1)], -1)


def n_heads(stack: AttentionStack) -> int:
    """Return the number of heads in all layers that have attention."""
    return len(stack.attention_layers) * stack.n_heads
