"""The pass that follows what attention carries from token to token, through all layers."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from headbook.attention.flow import (
    Block,
    LayerFlow,
    blocks,
    half_step,
    lengths,
    measured_step,
    ratio,
    split,
)
from headbook.attention.views import Scopes
from headbook.metrics.base import FlowMetric
from headbook.model import attention_hook
from headbook.model.architecture import Architecture, Call
from headbook.model.load import Model
from headbook.passes.batch_sums import TokenTable
from headbook.passes.observers import PassResults, Watch
from headbook.passes.trajectories import KeptTokens
from headbook.schema import Rollout, Stack, State
from headbook.study.corpus_sums import CorpusSums
from headbook.study.sentence_data import TOKENS, SentenceData, to_steps
from headbook.text.batch import Batch


@dataclass(frozen=True)
class FlowTracker:
    """Follows attention through the layers; what to keep is fixed for a run.

    Attributes:
        listed: sentences whose tokens are kept one by one.
        sampled: sentences over which tokens are averaged.
    """

    model: Model
    architecture: Architecture
    metrics: tuple[FlowMetric, ...]
    listed: Collection[int]
    sampled: Collection[int]

    @cached_property
    def blocks(self) -> Mapping[tuple[str, int], Block]:
        """The attention blocks whose ends are known."""
        return blocks(self.architecture)

    def watch(self, batch: Batch) -> Watch | None:
        """Token values and rollouts of listed sentences; sums over sampled ones by stack."""
        if not self.metrics or not np.isin(batch.index, [*self.listed, *self.sampled]).any():
            return None
        stacks = {
            name: _Stack(self, batch, stack)
            for name, stack in self.architecture.stacks.items()
            if not stack.crosses
        }

        def attend(place: Call, attention: attention_hook.Attention, _: Scopes) -> None:
            if place.stack in stacks:
                stacks[place.stack].attend(place.layer, attention)

        def see(name: str, layer: int, state: State, vectors: torch.Tensor) -> None:
            if name in stacks:
                stacks[name].see(layer, state, vectors)

        def found() -> PassResults:
            sums = CorpusSums(
                flows={name: stack.table.sums() for name, stack in stacks.items()},
                token_buckets={name: stack.table.buckets() for name, stack in stacks.items()},
            )
            sentence_data = SentenceData.join([stack.sentence_data() for stack in stacks.values()])
            return PassResults(sums, (sentence_data,))

        return Watch(found, attend, see)


class _Stack:
    """One stack over one batch, layer by layer."""

    def __init__(self, tracker: FlowTracker, batch: Batch, stack: Stack) -> None:
        self._tracker, self._batch, self._stack = tracker, batch, stack
        self._texts = batch.texts[stack.queries]
        self._kept_tokens = KeptTokens.of(batch, stack, tracker.listed)
        sampled = np.isin(batch.index, [*tracker.sampled])
        self.table = TokenTable(stack, tracker.metrics, batch, members=sampled)
        self._rows: list[pd.DataFrame] = []
        self._residual = self._attended = torch.empty(0)
        self._call: attention_hook.Attention | None = None
        n, like = self._texts.n_tokens, self._texts.share
        start = torch.eye(n, dtype=like.dtype, device=like.device).expand(len(like), n, n)
        self._rollouts = {Rollout.HALF: start, Rollout.MEASURED: start}
        if len(stack.attention_layers) < stack.n_layers:  # others bring what is not measured
            del self._rollouts[Rollout.MEASURED]

    def attend(self, layer: int, call: attention_hook.Attention) -> None:
        """Take in a layer's attention; where its block is known, its state decides, too."""
        self._attended = call.weights.mean(1).to(self._texts.share)
        if (self._stack.name, layer) in self._tracker.blocks:
            self._call = call
        else:
            self._rollouts.pop(Rollout.MEASURED, None)
            self._add(layer, None)

    def see(self, layer: int, state: State, vectors: torch.Tensor) -> None:
        """Take in a state: after attention, or what the next layer adds to."""
        if state is not State.MID:
            self._residual = vectors.to(self._texts.share)
        elif self._call is not None:
            block = self._tracker.blocks[self._stack.name, layer]
            self._add(layer, lengths(split(self._call, self._residual, block)))
            self._call = None

    def _add(self, layer: int, parts: torch.Tensor | None) -> None:
        """One layer further."""
        steps = {Rollout.HALF: half_step(self._attended)}
        if parts is not None:
            steps[Rollout.MEASURED] = measured_step(self._attended, ratio(parts))
        self._rollouts = {kind: steps[kind] @ rollout for kind, rollout in self._rollouts.items()}
        view = LayerFlow(parts, self._rollouts)
        for metric in self._tracker.metrics:
            values = metric.measure(view)
            if values is not None:
                (state,) = metric.states
                self.table.add(metric, layer, state, None, values)
                self._keep(metric, layer, state, values)

    def _keep(self, metric: FlowMetric, layer: int, state: State, values: torch.Tensor) -> None:
        kept_tokens = self._kept_tokens
        frame = kept_tokens.frame([(layer, state)]).assign(metric=metric.id, space="")
        frame["value"] = values.cpu().numpy()[kept_tokens.rows, kept_tokens.positions]
        self._rows.append(frame[[*TOKENS]])

    def sentence_data(self) -> SentenceData:
        """What pages show of listed sentences."""
        rows = pd.concat(self._rows, ignore_index=True) if self._rows else pd.DataFrame()
        return SentenceData(tokens=rows, rollouts=dict(self._last()))

    def _last(self) -> "list[tuple[tuple[str, int, str], NDArray[np.uint8]]]":
        """What the last states are made of."""
        side, found = self._stack.queries, []
        for kind, shares in self._rollouts.items():
            steps = to_steps(shares.float().cpu().numpy())
            for row in np.unique(self._kept_tokens.rows):
                item = self._batch.items[row]
                n = len(item.tokens[side])
                place = (self._stack.name, item.sentence.index, str(kind))
                found.append((place, steps[row, :n, :n].copy()))
        return found
