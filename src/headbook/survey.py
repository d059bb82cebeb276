"""The survey: one pass over all sentences, of which only sums, best lists and samples survive."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from headbook import hook
from headbook.accumulators import Ratios, Reservoir, TopK
from headbook.anatomy import Anatomy, Call
from headbook.batch import Batch
from headbook.capture import Scopes, forward, tapped
from headbook.foundtable import FoundTable
from headbook.frame import Pairs, Scope
from headbook.layerview import layer_views
from headbook.maps import Gathered, Maps
from headbook.metrics.base import HeadMetric, TokenMetric
from headbook.model import Model
from headbook.reduce import Parts
from headbook.sums import HeadColumn, HeadSums, HeadTable, Survey
from headbook.terms import UPOS, Side, Stack, State, View
from headbook.tokentable import TokenTable
from headbook.tokenview import TokenView
from headbook.typesums import TYPE_METRIC
from headbook.typetable import TypeTable

RELATION_METRIC = "relation_accuracy"
MOST_HEADS = 144  # that are measured together
MOST_BYTES = 1 << 26  # of maps that wait for that
MEDIANS = 2000  # sentences among which the median ones are found


@dataclass(frozen=True)
class Surveyor:
    """Measures batches; what to measure is fixed for a run."""

    model: Model
    anatomy: Anatomy
    heads: tuple[HeadMetric, ...]
    tokens: tuple[TokenMetric, ...]
    exemplars: int

    def survey(self, batch: Batch) -> Survey:
        """The sums of one batch."""
        stacks, texts = self.anatomy.stacks, batch.texts
        tokens = {name: TokenTable(stack, self.tokens, batch) for name, stack in stacks.items()}
        followed = any(metric.id == TYPE_METRIC for metric in self.tokens)
        types = {
            name: TypeTable(stack, batch, self.model.names)
            for name, stack in stacks.items()
            if followed and not stack.crosses
        }
        inputs: dict[str, torch.Tensor] = {}
        heads = {name: _HeadTable(stack, self.heads, batch) for name, stack in stacks.items()}
        scopes = Scopes(batch, stacks)

        def on_attention(place: Call, attention: hook.Attention) -> None:
            heads[place.stack].add(place.layer, attention, scopes)

        def on_state(stack: str, layer: int, state: State, vectors: torch.Tensor) -> None:
            vectors = vectors.to(texts[stacks[stack].queries].share.dtype)
            if state is State.INPUT:
                inputs[stack] = vectors
                return
            view = TokenView(vectors[None], inputs[stack], texts[stacks[stack].queries])
            for metric in self.tokens:
                values = metric.measure(view, None)[0]
                tokens[stack].add(metric, layer, state, None, values)
                if metric.id == TYPE_METRIC and stack in types:
                    types[stack].add(layer, state, values)

        with tapped(self.model, self.anatomy, on_state):
            forward(self.model, self.anatomy, batch, on_attention)
        return Survey(
            heads={name: table.sums(self.exemplars) for name, table in heads.items()},
            tokens={name: table.sums() for name, table in tokens.items()},
            types={name: table.sums() for name, table in types.items()},
            counts=count(batch),
        )


@dataclass
class _Group:
    """Layers with one mask, until they are measured together.

    Attributes:
        pairs: those whose mass metrics ask for.
        layers: the heads of each layer, side by side.
        maps: theirs; before them, once, those of the control, which looks everywhere alike.
        uniform: its sums, when they are there.
    """

    scopes: Mapping[View, Scope]
    pairs: tuple[Pairs, ...]
    maps: list[Maps]
    layers: dict[int, slice] = field(default_factory=dict)
    uniform: NDArray[np.float64] | None = None

    @property
    def n_heads(self) -> int:
        """Heads that wait."""
        return sum(maps.attention.shape[1] for maps in self.maps)

    @property
    def full(self) -> bool:
        """Whether there is enough to measure."""
        size = sum(maps.attention.nbytes for maps in self.maps)
        return self.n_heads >= MOST_HEADS or size > MOST_BYTES

    def take(self, layer: int, maps: Maps) -> None:
        """Let a layer wait."""
        first = self.n_heads
        self.layers[layer] = slice(first, first + maps.attention.shape[1])
        self.maps.append(maps)


class _HeadTable:
    """The measures of one stack over one batch, filled layer by layer."""

    def __init__(self, stack: Stack, metrics: tuple[HeadMetric, ...], batch: Batch) -> None:
        self._stack, self._batch = stack, batch
        self._metrics = [m for m in metrics if m.applies(stack)]
        self.columns = head_columns(self._metrics)
        self._n_labels = [len(m.labels) for m in self._metrics for _ in m.views]
        cells = (stack.n_layers, stack.n_heads, len(self.columns))
        self._heads = Ratios.zero(*cells).sums
        self._layers = Ratios.zero(cells[0], cells[2]).sums
        self._uniform = Ratios.zero(cells[0], cells[2]).sums
        self._strongest = np.full((len(batch.items), *cells[:2]), -np.inf)
        self._groups: dict[int, _Group] = {}
        asks = any(metric.id == RELATION_METRIC for metric in self._metrics)
        self._found = FoundTable(stack, batch) if asks else None

    def add(self, layer: int, attention: hook.Attention, scopes: Scopes) -> None:
        """Take in one layer; measure when enough have come together."""
        found = scopes.get(self._stack.name, attention)
        if id(found) not in self._groups:
            self._groups[id(found)] = self._group(found)
        group = self._groups[id(found)]
        kept = replace(attention, module=None, query=None, key=None, output=None)
        group.take(layer, Maps(found[View.NOSINK], kept))
        if group.full:
            self._measure(group)

    def _group(self, scopes: Mapping[View, Scope]) -> _Group:
        """A mask's layers, none yet."""
        frame, scope = scopes[View.RAW].frame, scopes[View.NOSINK]
        asked = () if self._stack.crosses else self._metrics
        pairs = tuple(frame.once(metric.pairs) for metric in asked if metric.pairs is not None)
        return _Group(scopes, pairs, [Maps(scope, uniform(scopes))])

    def _measure(self, group: _Group) -> None:
        """All metrics in all their views, for the layers that wait."""
        if not group.layers:
            return
        maps = Gathered(group.scopes[View.NOSINK], group.maps, group.pairs)
        views = layer_views(group.scopes, maps)
        strongest = views[View.NOSINK].strongest.weight.amax(-1).cpu().numpy()
        if self._metrics:
            if self._found is not None:
                self._found.add(group.layers, views[View.NOSINK])
            ratios = [m.measure(views[view]) for m in self._metrics for view in m.views]
            parts = Parts.of(ratios, self._n_labels, group.n_heads)
            starts = [heads.start for heads in group.layers.values()]
            control = [0] if group.uniform is None else []
            of_heads, of_layers = parts.sums(self._batch.half, [*control, *starts, group.n_heads])
            if group.uniform is None:
                group.uniform = self._with_chance(of_layers[:, :, 0], group.scopes)
                of_layers = of_layers[:, :, 1:]
        for number, (layer, heads) in enumerate(group.layers.items()):
            size = heads.stop - heads.start
            self._strongest[:, layer, :size] = strongest[:, heads]
            if self._metrics:
                self._heads[:, :, layer, :size] = of_heads[:, :, heads]
                self._layers[:, :, layer] = of_layers[:, :, number]
                self._uniform[:, :, layer] = group.uniform
        group.layers.clear()
        group.maps.clear()

    def _with_chance(
        self, sums: NDArray[np.float64], scopes: Mapping[View, Scope]
    ) -> NDArray[np.float64]:
        """The control's sums, with what metrics compute for it in their own way."""
        asked = [(m.chance, view) for m in self._metrics for view in m.views]
        ratios = [chance(scopes[view]) for chance, view in asked if chance is not None]
        if not ratios:
            return sums
        own = np.array([chance is not None for chance, _ in asked])
        widths = np.array(self._n_labels)
        _, found = Parts.of(ratios, widths[own].tolist(), 1).sums(self._batch.half)
        sums[..., np.repeat(own, widths)] = found[:, :, 0]
        return sums

    def sums(self, exemplars: int) -> HeadSums:
        """What survives."""
        for group in self._groups.values():
            self._measure(group)
        batch, scores = self._batch, self._strongest
        return HeadSums(
            table=HeadTable(
                tuple(self.columns),
                Ratios(self._heads),
                Ratios(self._layers),
                Ratios(self._uniform),
            ),
            strongest=TopK.of(exemplars, scores, batch.index, batch.key),
            sample=Reservoir.of(MEDIANS, batch.key, batch.index, scores.astype(np.float32)),
            found=self._found.sums() if self._found is not None else None,
        )


def head_columns(metrics: list[HeadMetric]) -> list[HeadColumn]:
    """The numbers of each head, in the order in which they are measured."""
    return [
        HeadColumn(metric.id, view, label)
        for metric in metrics
        for view in metric.views
        for label in metric.labels
    ]


def uniform(scopes: Mapping[View, Scope]) -> hook.Attention:
    """Attention that gives every key a query may see the same weight, for one head."""
    frame = scopes[View.RAW].frame
    seen = frame.seen.to(frame.dtype)
    weights = (seen / seen.sum(-1, keepdim=True).clamp(min=1)).unsqueeze(1)
    return hook.Attention(None, None, None, None, None, weights, None)


def count(batch: Batch) -> Counter[str]:
    """What there is in a batch, by side."""
    counts: Counter[str] = Counter(sentences=len(batch.items))
    alone = Side.TARGET not in batch.texts
    unread = sum(alone and Side.TARGET in item.sentence.metadata for item in batch.items)
    if unread:
        counts["unread_targets"] = unread
    for side, texts in batch.texts.items():
        tagged = (texts.share.unsqueeze(-1) * texts.tags).sum((0, 1)).round().long()
        counts.update(
            {f"{side}.tag.{tag}": n for tag, n in zip(UPOS, tagged.tolist(), strict=True) if n}
        )
        for item in batch.items:
            tokens = item.tokens[side]
            pieces = np.bincount(tokens.word[tokens.word >= 0], minlength=len(tokens.words))
            counts[f"{side}.tokens"] += len(tokens)
            counts[f"{side}.special"] += int(tokens.special.sum())
            counts[f"{side}.words"] += int((pieces > 0).sum())
            counts[f"{side}.split_words"] += int((pieces > 1).sum())
            counts[f"{side}.cut_sentences"] += tokens.lost > 0
            counts[f"{side}.cut_tokens"] += tokens.lost
            counts[f"{side}.generated"] += tokens.generated
            counts[f"{side}.joined"] += len(tokens.parts) > 1
            counts[f"{side}.tagged"] += any(word.upos for word in tokens.words)
            counts[f"{side}.parsed"] += any(word.relation for word in tokens.words)
    return counts
