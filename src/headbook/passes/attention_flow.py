"""The pass that follows attention from token to token through all layers."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from headbook.attention.flow import (
    AttentionBlock,
    LayerFlow,
    attention_blocks,
    half_step,
    measured_step,
    mixing_ratio,
    part_norms,
    split_block_output,
)
from headbook.attention.views import ViewMasks
from headbook.metrics.base import FlowMetric
from headbook.model import attention_hook
from headbook.model.architecture import Architecture, AttentionPlace
from headbook.model.load import Model
from headbook.passes.batch_sums import TokenAccumulator
from headbook.passes.observers import BatchObserver, PassResults
from headbook.passes.trajectories import KeptTokens
from headbook.schema import AttentionStack, ResidualPoint, RolloutKind
from headbook.study.corpus_sums import CorpusSums
from headbook.study.sentence_data import TOKEN_COLUMNS, SentenceData, to_uint8
from headbook.text.batch import Batch


@dataclass(frozen=True)
class FlowTracker:
    """Observer that computes the metrics of attention flow for a run.

    Attributes:
        listed: sentences whose tokens are stored one by one.
        sampled: sentences over which tokens are averaged.
    """

    model: Model
    architecture: Architecture
    metrics: tuple[FlowMetric, ...]
    listed: Collection[int]
    sampled: Collection[int]

    @cached_property
    def blocks(self) -> Mapping[tuple[str, int], AttentionBlock]:
        """Attention blocks whose input and output are known."""
        return attention_blocks(self.architecture)

    def observe(self, batch: Batch) -> BatchObserver | None:
        """Return callbacks that store tokens and rollouts of listed sentences, and add up sums."""
        if not self.metrics or not np.isin(batch.index, [*self.listed, *self.sampled]).any():
            return None
        stacks = {
            name: _StackFlow(self, batch, stack)
            for name, stack in self.architecture.stacks.items()
            if not stack.crosses
        }

        def attend(
            place: AttentionPlace, attention: attention_hook.AttentionCall, _: ViewMasks
        ) -> None:
            if place.stack in stacks:
                stacks[place.stack].attend(place.layer, attention)

        def see(name: str, layer: int, state: ResidualPoint, vectors: torch.Tensor) -> None:
            if name in stacks:
                stacks[name].see(layer, state, vectors)

        def results() -> PassResults:
            sums = CorpusSums(
                flows={name: stack.table.sums() for name, stack in stacks.items()},
                token_buckets={name: stack.table.buckets() for name, stack in stacks.items()},
            )
            sentence_data = SentenceData.join([stack.sentence_data() for stack in stacks.values()])
            return PassResults(sums, (sentence_data,))

        return BatchObserver(results, attend, see)


class _StackFlow:
    """The attention flow of one stack over one batch, filled by layer."""

    def __init__(self, tracker: FlowTracker, batch: Batch, stack: AttentionStack) -> None:
        self._tracker, self._batch, self._stack = tracker, batch, stack
        self._texts = batch.texts[stack.queries]
        self._kept_tokens = KeptTokens.of(batch, stack, tracker.listed)
        sampled = np.isin(batch.index, [*tracker.sampled])
        self.table = TokenAccumulator(stack, tracker.metrics, batch, members=sampled)
        self._rows: list[pd.DataFrame] = []
        self._residual = self._attended = torch.empty(0)
        self._call: attention_hook.AttentionCall | None = None
        n_tokens, like = self._texts.n_tokens, self._texts.share
        identity = torch.eye(n_tokens, dtype=like.dtype, device=like.device).expand(
            len(like), n_tokens, n_tokens
        )
        self._rollouts = {RolloutKind.HALF: identity, RolloutKind.MEASURED: identity}
        if len(stack.attention_layers) < stack.n_layers:  # other layers mix tokens unmeasured
            del self._rollouts[RolloutKind.MEASURED]

    def attend(self, layer: int, call: attention_hook.AttentionCall) -> None:
        """Add a layer's attention.

        If the layer's attention block is known, the layer is measured when its state arrives.
        """
        self._attended = call.weights.mean(1).to(self._texts.share)
        if (self._stack.name, layer) in self._tracker.blocks:
            self._call = call
        else:
            self._rollouts.pop(RolloutKind.MEASURED, None)
            self._add(layer, None)

    def see(self, layer: int, state: ResidualPoint, vectors: torch.Tensor) -> None:
        """Add a state: the residual stream after attention, or before the next attention block."""
        if state is not ResidualPoint.MID:
            self._residual = vectors.to(self._texts.share)
        elif self._call is not None:
            block = self._tracker.blocks[self._stack.name, layer]
            self._add(layer, part_norms(split_block_output(self._call, self._residual, block)))
            self._call = None

    def _add(self, layer: int, parts: torch.Tensor | None) -> None:
        """Extend the rollouts by one layer and compute its metrics."""
        steps = {RolloutKind.HALF: half_step(self._attended)}
        if parts is not None:
            steps[RolloutKind.MEASURED] = measured_step(self._attended, mixing_ratio(parts))
        self._rollouts = {kind: steps[kind] @ rollout for kind, rollout in self._rollouts.items()}
        view = LayerFlow(parts, self._rollouts, self._texts)
        for metric in self._tracker.metrics:
            values = metric.measure(view)
            if values is not None:
                (state,) = metric.states
                self.table.add(metric, layer, state, None, values)
                self._keep(metric, layer, state, values)

    def _keep(
        self, metric: FlowMetric, layer: int, state: ResidualPoint, values: torch.Tensor
    ) -> None:
        kept_tokens = self._kept_tokens
        frame = kept_tokens.frame([(layer, state)]).assign(metric=metric.id, space="")
        frame["value"] = values.cpu().numpy()[kept_tokens.rows, kept_tokens.positions]
        self._rows.append(frame[[*TOKEN_COLUMNS]])

    def sentence_data(self) -> SentenceData:
        """Return the token values and rollouts of listed sentences."""
        rows = pd.concat(self._rows, ignore_index=True) if self._rows else pd.DataFrame()
        return SentenceData(tokens=rows, rollouts=dict(self._last()))

    def _last(self) -> "list[tuple[tuple[str, int, str], NDArray[np.uint8]]]":
        """Return the rollouts of the last layer for each listed sentence."""
        side, rollouts = self._stack.queries, []
        for kind, shares in self._rollouts.items():
            rollout_bytes = to_uint8(shares.float().cpu().numpy())
            for row in np.unique(self._kept_tokens.rows):
                item = self._batch.items[row]
                n_tokens = len(item.tokens[side])
                place = (self._stack.name, item.sentence.index, str(kind))
                rollouts.append((place, rollout_bytes[row, :n_tokens, :n_tokens].copy()))
        return rollouts
