"""The pass for the geometry of states: it keeps the states of a sample of sentences to its end.

The sample has the sentences with the smallest hashes of their content, up to `MAX_TOKENS` tokens
together; equal sentences count once. Every metric needs the tokens of all sentences at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.analysis.arrays import Floats
from headbook.analysis.state_vectors import NO_KIND, StateVectors, TokenSample
from headbook.metrics.base import LayerMetric, LayerPairMetric
from headbook.model.architecture import Architecture
from headbook.model.intervention import state_width
from headbook.model.load import Model
from headbook.passes.observers import BatchObserver, PassResults
from headbook.schema import AttentionStack, ResidualPoint
from headbook.study.corpus_sums import CorpusSums
from headbook.study.sums.state_geometry import GeometrySums, StateColumn, to_ratio_sums
from headbook.text.batch import Batch, PaddedTexts, token_hash
from headbook.text.tokens import TokenizedSentence

MAX_TOKENS = 4096  # of the sample
MAX_STATE_NUMBERS = 2**28  # in memory at once; samples of wide models have fewer tokens


@dataclass(frozen=True)
class StateGeometry:
    """The metrics of states for a run, and how a sample's states become sums.

    Attributes:
        seed: seed of the random tokens with which some metrics compare.
    """

    model: Model
    architecture: Architecture
    metrics: tuple[LayerMetric, ...]
    pairs: tuple[LayerPairMetric, ...]
    seed: int

    @property
    def stacks(self) -> list[AttentionStack]:
        """Stacks that have states of their own."""
        return [self.architecture.stacks[name] for name in self.architecture.layers]

    def within(self, sentences: Iterable[TokenizedSentence]) -> list[TokenizedSentence]:
        """Return the sentences of a sample whose states are kept."""
        by_hash = {token_hash(sentence): sentence for sentence in sentences}
        sentences = [sentence for _, sentence in sorted(by_hash.items())]
        sizes = [sum(map(len, sentence.tokens.values())) for sentence in sentences]
        n_states = sum(stack.n_layers + 1 for stack in self.stacks)
        max_tokens = min(
            MAX_TOKENS, MAX_STATE_NUMBERS // (n_states * state_width(self.model, self.architecture))
        )
        return [
            sentence
            for number, (sentence, n_tokens) in enumerate(
                zip(sentences, accumulate(sizes), strict=True)
            )
            if n_tokens <= max_tokens or number == 0
        ]

    def gathering(self, sentences: Iterable[TokenizedSentence]) -> "StateCollector":
        """Return an empty collector for a sample."""
        stacks = {stack.name: _States(stack) for stack in self.stacks}
        return StateCollector(
            self, frozenset(sentence.sentence.index for sentence in self.within(sentences)), stacks
        )

    def sums(self, by_stack: "Mapping[str, _States]") -> CorpusSums:
        """Return the geometry sums of the whole sample."""
        return CorpusSums(
            geometry={
                name: self._sums(states) for name, states in by_stack.items() if states.tokens
            }
        )

    def _sums(self, states: "_States") -> GeometrySums:
        sample, vectors = states.whole(self.seed)
        n_sentences, estimates, dimensions = len(sample.counts), [], []
        first_cloud = None
        for state_vectors in vectors:
            cloud = StateVectors(sample, state_vectors.astype(np.float64), first_cloud)
            first_cloud = first_cloud or cloud
            measured = [metric.measure(cloud) for metric in self.metrics]
            estimates.append([estimate for by_label in measured for estimate in by_label.values()])
            dimensions.append(cloud.contributions)
        contributions = np.stack(dimensions)
        is_known: NDArray[np.bool_] = ~np.isnan(contributions.sum(1))
        return GeometrySums(
            columns=tuple(StateColumn(m.id, label) for m in self.metrics for label in m.labels),
            states=to_ratio_sums(estimates, n_sentences),
            products=self._products(sample, vectors),
            minibatches=len(sample.minibatches),
            dimensions=np.where(is_known[:, None], contributions, 0) * n_sentences,
            weights=np.where(is_known, float(n_sentences), 0.0),
            sentences=n_sentences,
            tokens=len(sample.sentence),
        )

    def _products(self, sample: TokenSample, vectors: Sequence[NDArray[np.floating]]) -> Floats:
        """Return similarities of every two states, summed over minibatches; see `GeometrySums`."""
        n_states = len(vectors) if self.pairs else 0
        products = np.zeros((n_states, n_states))
        for metric in self.pairs:
            for tokens in sample.minibatches:
                products += metric.measure(
                    [vector[tokens].astype(np.float64) for vector in vectors]
                )
        return products


@dataclass(frozen=True, eq=False)
class StateCollector:
    """Observer that keeps the states of a sample, batch by batch.

    Attributes:
        wanted: indices of the sentences whose states are kept.
        stacks: the states of each stack.
    """

    geometry: StateGeometry
    wanted: frozenset[int]
    stacks: "Mapping[str, _States]"

    def observe(self, batch: Batch) -> BatchObserver | None:
        """Return a callback that keeps the states of a batch; None if no sentence is sampled."""
        rows = np.isin(batch.index, [*self.wanted])
        if not rows.any():
            return None
        for stack in self.stacks.values():
            stack.begin(batch, rows)

        def see(stack: str, layer: int, state: ResidualPoint, vectors: torch.Tensor) -> None:
            if stack in self.stacks and state is not ResidualPoint.MID:
                self.stacks[stack].add(0 if state is ResidualPoint.PRE else layer + 1, vectors)

        return BatchObserver(PassResults, see=see)

    def sums(self) -> CorpusSums:
        """Return the geometry sums of all collected states."""
        return self.geometry.sums(self.stacks)


class _States:
    """The collected states of one stack."""

    def __init__(self, stack: AttentionStack) -> None:
        self._stack = stack
        self._keys: list[NDArray[np.uint64]] = []
        self._kinds: list[NDArray[np.int64]] = []
        self._vectors: list[list[NDArray[np.floating]]] = [[] for _ in range(stack.n_layers + 1)]

    @property
    def tokens(self) -> int:
        """Number of tokens collected so far."""
        return sum(map(len, self._kinds))

    def begin(self, batch: Batch, is_wanted: NDArray[np.bool_]) -> None:
        """Add the tokens of some sentences of a batch."""
        texts = batch.texts[self._stack.queries]
        wanted = torch.from_numpy(is_wanted).to(texts.ids.device)
        self._texts, self._counting = texts, ordinary(texts, self._stack) & wanted[:, None]
        counts = self._counting.sum(1).cpu().numpy()
        kinds = texts.ids.masked_fill(texts.punctuation, NO_KIND)
        self._keys.append(np.repeat(batch.content_hash, counts))
        self._kinds.append(kinds[self._counting].cpu().numpy())

    def add(self, state: int, vectors: torch.Tensor) -> None:
        """Add the vectors of the current batch's tokens in one state."""
        vectors = vectors[self._counting].to(self._texts.share.dtype)
        self._vectors[state].append(vectors.cpu().numpy())

    def whole(self, seed: int) -> tuple[TokenSample, list[NDArray[np.floating]]]:
        """Return the sample, sorted by hashes of sentences, and its vectors by state."""
        keys = np.concatenate(self._keys)
        order = np.argsort(keys, kind="stable")
        sentence = np.unique(keys[order], return_inverse=True)[1]
        vectors = []
        while self._vectors:
            vectors.append(np.concatenate(self._vectors.pop(0))[order])
        return TokenSample(sentence, np.concatenate(self._kinds)[order], seed), vectors


def ordinary(texts: PaddedTexts, stack: AttentionStack) -> torch.Tensor:
    """Return the mask of text tokens without the first token of causal stacks.

    The first token of a causal stack is an attention sink whose states are huge.

    *Shape:* ``(sentence, token)``, boolean.
    """
    return texts.ordinary & ~texts.first if stack.causal else texts.ordinary
