"""Measures of every two heads of a stack, on a few sentences of the sample.

The rows of all layers have to be there at once, so that batches are small. The work grows with the
square of the number of heads: models with many heads take fewer sentences, again by their hashes.
"""

from dataclasses import dataclass, field

import torch

from headbook.measures.layerview import LayerView, layer_views
from headbook.measures.maps import Maps
from headbook.metrics.base import PairMetric
from headbook.network import hook
from headbook.network.anatomy import Anatomy, Call
from headbook.network.capture import Scopes, forward
from headbook.network.model import Model
from headbook.summaries.sums import Distances, PairColumn, Survey
from headbook.terms import Stack, View
from headbook.text.batch import Batch

CELLS = 2**23  # weights of all heads that are kept at a time, in each view
MOST = 144**2 * 200  # pairs of heads times sentences
LEAST = 10  # sentences that there are in any case

Rows = tuple[torch.Tensor, torch.Tensor]  # weights ``(head, row, key)``; trusted ``(head, row)``


@dataclass(frozen=True)
class PairSampler:
    """Compares heads over batches; what to measure is fixed for a run."""

    model: Model
    anatomy: Anatomy
    metrics: tuple[PairMetric, ...]

    def sentences(self, size: int) -> int:
        """How many of a sample's ``size`` sentences are taken."""
        return min(size, max(LEAST, MOST // self._most_heads**2))

    def tokens(self, longest: int) -> int:
        """How many tokens a batch may hold.

        Args:
            longest: most tokens of a sentence.
        """
        return max(1, CELLS // (self._most_heads * longest))

    @property
    def _most_heads(self) -> int:
        return max(n_heads(stack) for stack in self.anatomy.stacks.values())

    def sample(self, batch: Batch) -> Survey:
        """The sums of one batch."""
        views = list(dict.fromkeys(view for metric in self.metrics for view in metric.views))
        stacks = {
            name: _Collected(stack, batch, views) for name, stack in self.anatomy.stacks.items()
        }
        scopes = Scopes(batch, self.anatomy.stacks)

        def on_attention(place: Call, attention: hook.Attention) -> None:
            stacks[place.stack].add(attention, scopes)

        forward(self.model, self.anatomy, batch, on_attention)
        return Survey(distances={name: self._measured(each) for name, each in stacks.items()})

    def _measured(self, found: "_Collected") -> Distances:
        columns = [PairColumn(metric.id, view) for metric in self.metrics for view in metric.views]
        rows = {view: found.rows(view) for view in found.views}
        measured = [m.measure(*rows[view]) for m in self.metrics for view in m.views]
        shared = [rows[column.view][1] @ rows[column.view][1].mT for column in columns]
        total, counts = (torch.stack(each).cpu().double().numpy() for each in (measured, shared))
        return Distances(tuple(columns), total, counts, len(found.batch.items))


@dataclass(frozen=True, eq=False)
class _Collected:
    """The rows of one stack over one batch, filled layer by layer."""

    stack: Stack
    batch: Batch
    views: list[View]
    _layers: list[dict[View, Rows]] = field(default_factory=list)

    def add(self, attention: hook.Attention, scopes: Scopes) -> None:
        """Keep the rows of the next layer."""
        found = scopes.get(self.stack.name, attention)
        layer = layer_views(found, Maps(found[View.NOSINK], attention))
        queries = self.batch.texts[self.stack.queries]
        places = queries.ordinary  # of all that count in any layer
        self._layers.append(
            {view: self._rows(_whole(layer[view], view), layer[view].trusted, places)
             for view in self.views}
        )  # fmt: skip

    def _rows(self, weights: torch.Tensor, trusted: torch.Tensor, places: torch.Tensor) -> Rows:
        """The rows at some places; a layer with fewer heads than others gets some without rows."""
        trusted = trusted.expand(weights.shape[:3])
        heads = [part.transpose(0, 1)[:, places] for part in (weights, trusted)]
        missing = self.stack.n_heads - weights.shape[1]
        padded = [torch.cat([part, part.new_zeros(missing, *part.shape[1:])]) for part in heads]
        return padded[0], padded[1]

    def rows(self, view: View) -> Rows:
        """The rows of all heads, in the order of layers."""
        weights, trusted = zip(*(layer.pop(view) for layer in self._layers), strict=True)
        return torch.cat(weights), torch.cat(trusted)


def _whole(layer: LayerView, view: View) -> torch.Tensor:
    """Rows with all that they give: as they are, a learned sink stands for one more key."""
    if view is not View.RAW or not layer.frame.stack.learned_sink:
        return layer.weights
    return torch.cat([layer.weights, layer.learned_mass.unsqueeze(-1)], -1)


def n_heads(stack: Stack) -> int:
    """Heads of all layers that have attention."""
    return len(stack.attention_layers) * stack.n_heads
