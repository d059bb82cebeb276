"""Trajectories of tokens: states of the sentences with pages, compared with the vocabulary."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from headbook.attention.token_states import (
    NEIGHBOURS,
    TRACKED_NEIGHBOURS,
    Earlier,
    LensContext,
    TokenStates,
)
from headbook.metrics import ids as metric_ids
from headbook.metrics import metrics_without_outliers
from headbook.metrics.base import Need, TokenMetric
from headbook.model.architecture import Architecture
from headbook.model.embedding import Embedding
from headbook.model.load import Model
from headbook.model.logit_lens import LogitLens
from headbook.model.tokens.special import special_ids
from headbook.passes.batch_sums import TokenAccumulator, spaces_of
from headbook.passes.observers import BatchObserver, PassResults
from headbook.schema import NO_OUTLIERS, AttentionStack, EmbeddingSpace, ResidualPoint, Side
from headbook.study.corpus_sums import CorpusSums
from headbook.study.sentence_data import (
    LOGIT_LENS_SPACE,
    NEAREST_COLUMNS,
    OWN,
    SPECIAL,
    STATE_COLUMNS,
    TOKEN_COLUMNS,
    SentenceData,
)
from headbook.study.sums.state_geometry import StateMeans
from headbook.text.batch import Batch

MAX_PENDING_NUMBERS = 1 << 23  # of states that wait to be measured together
# Metrics that store vocabulary tokens beside their values.
NEAREST_ID, LENS_ID = metric_ids.NEAREST_TOKENS, metric_ids.LOGIT_LENS
# Metrics that need more neighbours than pages show.
OVERLAPS = {metric_ids.NEIGHBOUR_OVERLAP, metric_ids.NEIGHBOUR_OVERLAP_RANDOM}
PendingState = tuple[int, ResidualPoint, torch.Tensor]  # layer, kind and vectors


@dataclass(frozen=True)
class TokenTracker:
    """Observer that follows tokens through the layers.

    Attributes:
        listed: sentences whose tokens are stored one by one.
        sampled: sentences over which vocabulary metrics are averaged.
        embeddings: original encodings by side.
        lens: the language-model head, or None.
        state_means: means of states, which show their outlier dimensions, by stack.
    """

    model: Model
    architecture: Architecture
    metrics: tuple[TokenMetric, ...]
    listed: Collection[int]
    sampled: Collection[int]
    embeddings: Mapping[Side, Embedding]
    lens: LogitLens | None = None
    state_means: Mapping[str, StateMeans] = field(default_factory=dict)

    @cached_property
    def special(self) -> frozenset[int]:
        """Special vocabulary tokens; cached, since tokenizers list them slowly."""
        return special_ids(self.model)

    def observe(self, batch: Batch) -> BatchObserver | None:
        """Return callbacks that store token values of listed sentences, and sums by stack."""
        if not np.isin(batch.index, [*self.listed, *self.sampled]).any():
            return None
        stacks = {name: _StackStates(self, batch, name) for name in self.architecture.stacks}

        def see(stack: str, layer: int, state: ResidualPoint, vectors: torch.Tensor) -> None:
            stacks[stack].see(layer, state, vectors)

        def results() -> PassResults:
            for stack in stacks.values():
                stack.flush()
            token_data = [part for stack in stacks.values() for part in stack.kept]
            sums = CorpusSums(
                vocabulary={name: stack.table.sums() for name, stack in stacks.items()},
                token_buckets={name: stack.table.buckets() for name, stack in stacks.items()},
            )
            return PassResults(sums, (SentenceData.join(token_data),))

        return BatchObserver(results, see=see)

    def lens_context(self, stack: str, batch: Batch) -> LensContext | None:
        """Run the model to its final states if a metric needs them; otherwise return None."""
        needed = any(Need.HEAD in metric.needs for metric in self.metrics)
        if not needed or self.lens is None or self.lens.stack != stack:
            return None
        return LensContext(self.lens, self.lens.final_states(batch))


class _StackStates:
    """The states of one stack over one batch, measured in groups."""

    def __init__(self, tracker: TokenTracker, batch: Batch, name: str) -> None:
        stack = tracker.architecture.stacks[name]
        self._tracker = tracker
        self._texts = batch.texts[stack.queries]
        self._vocabulary = tracker.embeddings[stack.queries].vocabulary
        self._spaces = self._vocabulary.spaces if self._vocabulary else ()
        self._kept_tokens = KeptTokens.of(batch, stack, tracker.listed)
        self._outlook = tracker.lens_context(name, batch)
        self._metrics = [
            metric
            for metric in tracker.metrics
            if self._outlook is not None or Need.HEAD not in metric.needs
        ]
        self._near = (
            TRACKED_NEIGHBOURS if OVERLAPS & {metric.id for metric in self._metrics} else NEIGHBOURS
        )
        self._earlier, self._earlier_without = Earlier(), Earlier()
        lookups = [metric for metric in self._metrics if metric.sampled]
        sampled = np.isin(batch.index, [*tracker.sampled])
        self._means = tracker.state_means.get(name)
        reduced = metrics_without_outliers(self._metrics) if self._means else []
        self.table = TokenAccumulator(
            stack, lookups, batch, self._spaces, members=sampled, reduced=reduced
        )
        self.kept: list[SentenceData] = []
        self._states: list[PendingState] = []
        self._input = torch.empty(0)

    def see(self, layer: int, state: ResidualPoint, vectors: torch.Tensor) -> None:
        """Add a state."""
        vectors = vectors.to(self._texts.share.dtype)
        if state is ResidualPoint.PRE:
            self._input = vectors
            return
        self._states.append((layer, state, vectors))
        if len(self._states) * vectors.numel() > MAX_PENDING_NUMBERS:
            self.flush()

    def flush(self) -> None:
        """Measure the states collected so far."""
        for kinds in dict.fromkeys(metric.states for metric in self._metrics):
            states = [state for state in self._states if state[1] in kinds]
            if states:
                self._measure_all([m for m in self._metrics if m.states == kinds], states)
        self._states.clear()

    def _measure_all(self, metrics: Sequence[TokenMetric], states: Sequence[PendingState]) -> None:
        """Compute metrics that need states of one kind."""
        view = TokenStates(
            torch.stack([vectors for _, _, vectors in states]),
            self._input,
            self._texts,
            self._vocabulary,
            [state for _, state, _ in states],
            self._earlier,
            self._near,
            self._outlook,
        )
        self._measure_without_outliers(metrics, view, states)
        for metric in metrics:
            for space in spaces_of(metric, self._spaces):
                self._measure(metric, space, view, states)
            if metric.id == NEAREST_ID and self._spaces:
                near = view.compared(self._spaces[0])
                self._keep_nearest(self._spaces[0], near.ids, near.cosines, states)
            if metric.id == LENS_ID:
                self._keep_nearest(
                    LOGIT_LENS_SPACE, view.readings.ids, view.readings.shares, states
                )

    def _measure(
        self,
        metric: TokenMetric,
        space: EmbeddingSpace | None,
        view: TokenStates,
        states: Sequence[PendingState],
    ) -> None:
        values = metric.measure(view, space)
        if metric.sampled:
            for number, (layer, state, _) in enumerate(states):
                self.table.add(metric, layer, state, space, values[number])
        kept_tokens = self._kept_tokens
        frame = self._kept_tokens.frame([state[:2] for state in states])
        frame["metric"], frame["space"] = metric.id, space or ""
        frame["value"] = values.cpu().numpy()[:, kept_tokens.rows, kept_tokens.positions].ravel()
        self.kept.append(SentenceData(tokens=frame[[*TOKEN_COLUMNS]]))

    def _measure_without_outliers(
        self, metrics: Sequence[TokenMetric], view: TokenStates, states: Sequence[PendingState]
    ) -> None:
        """Add the values of metrics without the outlier dimensions of each state."""
        if self._means is None:
            return
        outliers = [self._means.outliers(layer, state) for layer, state, _ in states]
        of_input = self._means.outliers(0, ResidualPoint.PRE)
        reduced = view.without(outliers, of_input, self._earlier_without)
        for metric in metrics_without_outliers(metrics):
            for space in spaces_of(metric, self._spaces)[:1]:
                values = metric.measure(reduced, space)
                for number, (layer, state, _) in enumerate(states):
                    self.table.add(
                        metric, layer, state, space, values[number], labels=[NO_OUTLIERS]
                    )

    def _keep_nearest(
        self, space: str, ids: torch.Tensor, scores: torch.Tensor, states: Sequence[PendingState]
    ) -> None:
        """Store the first vocabulary tokens of each state, at most `NEIGHBOURS`.

        The token itself is marked, since it does not count as its own neighbour.

        Args:
            ids, scores: vocabulary tokens, best first, and their scores. *Shape:*
                ``(state, sentence, token, k)``.
        """
        kept_tokens, n_nearest = self._kept_tokens, min(NEIGHBOURS, ids.shape[-1])
        cells = (slice(None), kept_tokens.rows, kept_tokens.positions, slice(n_nearest))
        entries, name_index = np.unique(ids.cpu().numpy()[cells], return_inverse=True)
        names = np.array(self._tracker.model.token_strings.of(entries), dtype=object)
        frame = self._kept_tokens.frame([state[:2] for state in states], n_nearest)
        frame["space"] = str(space)
        frame["rank"] = np.tile(np.arange(1, n_nearest + 1), len(frame) // n_nearest)
        frame["neighbour"] = names[name_index].ravel()
        frame["cosine"] = scores.cpu().numpy()[cells].ravel()
        own_ids = self._texts.ids.cpu().numpy()[kept_tokens.rows, kept_tokens.positions]
        is_special = np.isin(entries, [*self._tracker.special])[name_index]
        is_own = entries[name_index].reshape(len(states), -1, n_nearest) == own_ids[:, None]
        frame["mark"] = np.where(
            is_own.ravel(), OWN, np.where(is_special.ravel(), SPECIAL, "")
        ).astype(object)
        self.kept.append(SentenceData(nearest=frame[[*NEAREST_COLUMNS]]))


@dataclass(frozen=True)
class KeptTokens:
    """Tokens of a batch that are stored one by one. *Shape:* ``(stored token,)`` of all arrays.

    Attributes:
        stack: the stack through which the tokens are followed.
        rows: row of each token's sentence in the batch.
        positions: position of each token in its sentence.
        sentences: number of each token's sentence, from 1.
        pieces: the tokens as printed.
    """

    stack: AttentionStack
    rows: NDArray[np.int64]
    positions: NDArray[np.int64]
    sentences: NDArray[np.int64]
    pieces: NDArray[np.object_]

    @classmethod
    def of(cls, batch: Batch, stack: AttentionStack, listed: Collection[int]) -> "KeptTokens":
        """Return the tokens of the listed sentences of a batch."""
        side = stack.queries
        is_listed = np.isin(batch.index, [*listed])
        is_kept = batch.texts[side].valid.cpu().numpy() & is_listed[:, None]
        rows, positions = np.nonzero(is_kept)
        texts = [item.tokens[side].pieces for item in batch.items]
        pieces = [texts[row][position] for row, position in zip(rows, positions, strict=True)]
        sentences = batch.index[rows] + 1
        return cls(stack, rows, positions, sentences, np.array(pieces, dtype=object))

    def frame(
        self, states: Sequence[tuple[int, ResidualPoint]], per_state: int = 1
    ) -> pd.DataFrame:
        """Return the columns that identify states of tokens, each row ``per_state`` times.

        Args:
            states: layer and kind of each state.
        """
        n_states, n_tokens = len(states), len(self.positions)
        columns = {
            "sentence": np.tile(self.sentences, n_states),
            "position": np.tile(self.positions, n_states),
            "token": np.tile(self.pieces, n_states),
            "stack": np.full(n_states * n_tokens, self.stack.name, dtype=object),
            "layer": np.repeat([layer for layer, _ in states], n_tokens),
            "state": np.repeat(np.array([str(state) for _, state in states], object), n_tokens),
        }
        return pd.DataFrame({name: np.repeat(columns[name], per_state) for name in STATE_COLUMNS})
