"""Measures of every two heads of a stack, on the sample.

The rows of all layers have to be there at once, so that batches are small. The work grows with the
square of the number of heads. Where there are many, all pairs are compared by a matrix product, and
only those that are most alike by the metric itself, in a second pass.
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

CELLS = 2**24  # weights of all heads that are kept at a time, in each view
MOST = 144  # heads of which every pair is compared
NEAR = 6  # heads that are compared with each of more, in each view
LEAST = 30  # rows that two heads must share to be chosen; fewer where there are not so many

Rows = tuple[torch.Tensor, torch.Tensor]  # weights ``(head, row, key)``; trusted ``(head, row)``
Chosen = tuple[torch.Tensor, torch.Tensor]  # the heads of pairs, ``(pair,)`` each


@dataclass(frozen=True)
class HeadPairDistances:
    """Compares heads over batches; what to measure is fixed for a run.

    Attributes:
        chosen: by stack, the pairs that are compared; None before it is known which.
    """

    model: Model
    architecture: Architecture
    metrics: tuple[PairMetric, ...]
    chosen: Mapping[str, Chosen] | None = None

    def tokens(self, longest: int) -> int:
        """How many tokens a batch may hold.

        Args:
            longest: most tokens of a sentence.
        """
        most = max(n_heads(stack) for stack in self.architecture.stacks.values())
        return max(1, CELLS // (most * longest))

    def nearest(self, found: Mapping[str, HeadDistances]) -> "HeadPairDistances | None":
        """What is to be compared in a second pass; None where all has been.

        Args:
            found: by stack, what the first pass has found.
        """
        chosen = {
            name: _nearest(sums.alike) for name, sums in found.items() if sums.alike is not None
        }
        return replace(self, chosen=chosen) if chosen else None

    def observe(self, batch: Batch) -> BatchObserver:
        """The sums of one batch."""
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
    """Tables one above the other."""
    numbers: NDArray[np.float64] = torch.stack([*tables]).cpu().double().numpy()
    return numbers


def _spread(values: torch.Tensor, pairs: Chosen, rows: Rows) -> torch.Tensor:
    """Values of pairs in a table of all heads, 0 elsewhere. *Shape:* ``(head, head)``."""
    found = values.new_zeros(len(rows[0]), len(rows[0]))
    found[pairs[0], pairs[1]] = values
    return found + found.mT


def _nearest(alike: HellingerSums) -> Chosen:
    """The pairs of each head and the heads most like it, in any column; each once."""
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
    """The rows of one stack over one batch, filled layer by layer."""

    stack: AttentionStack
    batch: Batch
    views: list[SinkView]
    _layers: list[dict[SinkView, Rows]] = field(default_factory=list)

    @property
    def sentences(self) -> int:
        """How many there are."""
        return len(self.batch.items)

    def add(self, attention: attention_hook.AttentionCall, scopes: ViewMasks) -> None:
        """Keep the rows of the next layer."""
        layer = scopes.views(self.stack.name, attention)
        queries = self.batch.texts[self.stack.queries]
        places = queries.ordinary  # of all that count in any layer
        self._layers.append(
            {view: self._rows(_whole(layer[view], view), layer[view].trusted_rows, places)
             for view in self.views}
        )  # fmt: skip

    def _rows(self, weights: torch.Tensor, trusted: torch.Tensor, places: torch.Tensor) -> Rows:
        """The rows at some places; a layer with fewer heads than others gets some without rows."""
        trusted = trusted.expand(weights.shape[:3])
        heads = [part.transpose(0, 1)[:, places] for part in (weights, trusted)]
        missing = self.stack.n_heads - weights.shape[1]
        padded = [torch.cat([part, part.new_zeros(missing, *part.shape[1:])]) for part in heads]
        return padded[0], padded[1]

    def rows(self, view: SinkView) -> Rows:
        """The rows of all heads, in the order of layers."""
        weights, trusted = zip(*(layer.pop(view) for layer in self._layers), strict=True)
        return torch.cat(weights), torch.cat(trusted)


def _whole(layer: LayerAttention, view: SinkView) -> torch.Tensor:
    """Rows with all that they give: as they are, a learned sink stands for one more key."""
    if view is not SinkView.RAW or not layer.frame.stack.learned_sink:
        return layer.weights
    return torch.cat([layer.weights, layer.learned_mass.unsqueeze(-1)], -1)


def n_heads(stack: AttentionStack) -> int:
    """Heads of all layers that have attention."""
    return len(stack.attention_layers) * stack.n_heads
