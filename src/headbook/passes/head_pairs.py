"""Pairwise distances between the attention heads of a stack, on a sample of the sentences.

The attention rows of all layers must be in memory at once, so batches are small. The work grows
with the square of the number of heads. With more than `MAX_HEADS_ALL_PAIRS` heads, a matrix product
compares all pairs, and only the most similar pairs are compared by the metric, in a second pass.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

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
from headbook.study.corpus_sums import (
    MAX_HEADS_ALL_PAIRS,
    CorpusSums,
    HeadDistances,
    HellingerSums,
    PairColumn,
)
from headbook.text.batch import Batch

MAX_BATCH_WEIGHTS = 2**24  # attention weights of all heads in memory at once, for each view
N_NEAREST_HEADS = 6  # heads of larger stacks with which each head is compared, for each view
# Attention rows that two heads of larger stacks must share to be candidates; or the largest number
# of rows that any two heads share, if that is smaller.
MIN_SHARED_ROWS = 30


class HeadRows(NamedTuple):
    """Attention rows of all heads of a stack, in one view.

    Attributes:
        weights: *Shape:* ``(head, row, key)``.
        counted: 1 for rows that count, else 0. *Shape:* ``(head, row)``.
    """

    weights: torch.Tensor
    counted: torch.Tensor


class HeadIndexPairs(NamedTuple):
    """Indices of the two heads of each pair. *Shape:* ``(pair,)`` each."""

    first: torch.Tensor
    second: torch.Tensor


@dataclass(frozen=True)
class HeadPairDistances:
    """Observer that compares heads with the pair metrics of a run.

    Attributes:
        chosen: pairs to compare in a second pass, by stack; None in the first pass.
    """

    model: Model
    architecture: Architecture
    metrics: tuple[PairMetric, ...]
    chosen: Mapping[str, HeadIndexPairs] | None = None

    def max_batch_tokens(self, sentence_tokens: int) -> int:
        """Return the largest number of tokens of a batch.

        Args:
            sentence_tokens: tokens of the longest sentence.
        """
        most_heads = max(n_heads(stack) for stack in self.architecture.stacks.values())
        return max(1, MAX_BATCH_WEIGHTS // (most_heads * sentence_tokens))

    def second_pass(self, distances: Mapping[str, HeadDistances]) -> "HeadPairDistances | None":
        """Return the observer of the second pass, or None if all pairs have been compared.

        Args:
            distances: distances of the first pass, by stack.
        """
        chosen = {
            name: _nearest_pairs(sums.alike)
            for name, sums in distances.items()
            if sums.alike is not None
        }
        return replace(self, chosen=chosen) if chosen else None

    def observe(self, batch: Batch) -> BatchObserver:
        """Return callbacks that compare the heads of one batch."""
        views = list(dict.fromkeys(view for metric in self.metrics for view in metric.views))
        stacks = {
            name: _CollectedRows(stack, batch, views)
            for name, stack in self.architecture.stacks.items()
            if self.chosen is None or name in self.chosen
        }

        def attend(
            place: AttentionPlace, attention: attention_hook.AttentionCall, scopes: ViewMasks
        ) -> None:
            if place.stack in stacks:
                stacks[place.stack].add(attention, scopes)

        def results() -> PassResults:
            distances = {name: self._distances(stack) for name, stack in stacks.items()}
            return PassResults(CorpusSums(distances=distances))

        return BatchObserver(results, attend)

    def _distances(self, collected: "_CollectedRows") -> HeadDistances:
        """Return the distances between the heads of one stack over one batch.

        In the second pass, the metrics compare the chosen pairs. In the first pass, the metrics
        compare all pairs of small stacks; a matrix product compares all pairs of large ones.
        """
        measures = [(metric, view) for metric in self.metrics for view in metric.views]
        rows = {view: collected.take_rows(view) for view in collected.views}
        columns = tuple(PairColumn(metric.id, view) for metric, view in measures)
        shared_rows = _numbers(rows[view].counted @ rows[view].counted.mT for _, view in measures)
        if self.chosen is not None:
            pairs = self.chosen[collected.stack.name]
            total = _numbers(
                _symmetric(metric.measure_pairs(*rows[view], *pairs), pairs, rows[view])
                for metric, view in measures
            )
            compared = np.zeros(shared_rows.shape[1:])
            first, second = pairs.first.cpu(), pairs.second.cpu()
            compared[first, second] = compared[second, first] = 1
            # The first pass has counted the sentences.
            return HeadDistances(columns, total, shared_rows * compared, sentences=0)
        if n_heads(collected.stack) > MAX_HEADS_ALL_PAIRS:
            affinities = _numbers(metric.similarity(*rows[view]) for metric, view in measures)
            not_compared = np.zeros(shared_rows.shape)
            return HeadDistances(
                columns,
                not_compared,
                not_compared,
                collected.n_sentences,
                HellingerSums(affinities, shared_rows),
            )
        total = _numbers(metric.measure(*rows[view]) for metric, view in measures)
        return HeadDistances(columns, total, shared_rows, collected.n_sentences)


def _numbers(tables: Iterable[torch.Tensor]) -> NDArray[np.float64]:
    """Stack tables along a new first dimension, as float64."""
    numbers: NDArray[np.float64] = torch.stack([*tables]).cpu().double().numpy()
    return numbers


def _symmetric(values: torch.Tensor, pairs: HeadIndexPairs, rows: HeadRows) -> torch.Tensor:
    """Return a symmetric table of all heads with the values of pairs, and 0 elsewhere.

    *Shape:* ``(head, head)``.
    """
    table = values.new_zeros(len(rows.weights), len(rows.weights))
    table[pairs.first, pairs.second] = values
    return table + table.mT


def _nearest_pairs(affinities: HellingerSums) -> HeadIndexPairs:
    """Return each pair of a head and one of its nearest heads in any column, once."""
    chosen = np.zeros(affinities.total.shape[1:], bool)
    for distances, rows in zip(affinities.apart, affinities.rows, strict=True):
        min_rows = max(1.0, min(MIN_SHARED_ROWS, rows.max()))
        candidates = np.where(rows >= min_rows, distances, np.nan)
        np.fill_diagonal(candidates, np.nan)
        order = np.argsort(candidates, axis=1, kind="stable")[:, :N_NEAREST_HEADS]
        valid = ~np.isnan(np.take_along_axis(candidates, order, 1))
        chosen[np.nonzero(valid)[0], order[valid]] = True
    first, second = np.nonzero(np.triu(chosen | chosen.T, 1))
    return HeadIndexPairs(torch.from_numpy(first), torch.from_numpy(second))


@dataclass(frozen=True, eq=False)
class _CollectedRows:
    """The attention rows of all heads of one stack over one batch, filled by layer."""

    stack: AttentionStack
    batch: Batch
    views: list[SinkView]
    _layers: list[dict[SinkView, HeadRows]] = field(default_factory=list)

    @property
    def n_sentences(self) -> int:
        """Number of sentences in the batch."""
        return len(self.batch.items)

    def add(self, attention: attention_hook.AttentionCall, scopes: ViewMasks) -> None:
        """Add the rows of the next layer."""
        layer = scopes.views(self.stack.name, attention)
        queries = self.batch.texts[self.stack.queries]
        positions = queries.ordinary  # a superset of the rows that count in any layer
        self._layers.append(
            {view: self._rows(_whole(layer[view], view), layer[view].trusted_rows, positions)
             for view in self.views}
        )  # fmt: skip

    def _rows(
        self, weights: torch.Tensor, counted: torch.Tensor, positions: torch.Tensor
    ) -> HeadRows:
        """Return the rows at some positions, with empty heads if the layer has too few."""
        counted = counted.expand(weights.shape[:3])
        heads = [part.transpose(0, 1)[:, positions] for part in (weights, counted)]
        missing = self.stack.n_heads - weights.shape[1]
        padded = [torch.cat([part, part.new_zeros(missing, *part.shape[1:])]) for part in heads]
        return HeadRows(padded[0], padded[1])

    def take_rows(self, view: SinkView) -> HeadRows:
        """Return the rows of all heads in the order of layers, and free their memory."""
        weights, counted = zip(*(layer.pop(view) for layer in self._layers), strict=True)
        return HeadRows(torch.cat(weights), torch.cat(counted))


def _whole(layer: LayerAttention, view: SinkView) -> torch.Tensor:
    """Return rows that sum to 1: in the raw view, a learned sink is one more key."""
    if view is not SinkView.RAW or not layer.frame.stack.learned_sink:
        return layer.weights
    return torch.cat([layer.weights, layer.learned_mass.unsqueeze(-1)], -1)


def n_heads(stack: AttentionStack) -> int:
    """Return the number of heads in all layers that have attention."""
    return len(stack.attention_layers) * stack.n_heads
