"""Passes that keep the states of tokens to their end, since tokens are compared with each other.

`StateGeometry` describes the space of states. Its sample has the sentences with the smallest hashes
of their content, up to `MAX_TOKENS` tokens together; equal sentences count once.
`WordUses` compares the uses of a word in several sentences. `StateMeanAccumulator` keeps only sums,
of all sentences.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations

import numpy as np
import pandas as pd
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
from headbook.study.sentence_data import MAX_USES, USE_COLUMNS, StoredText
from headbook.study.sums.state_geometry import (
    GeometrySums,
    StateColumn,
    StateMeans,
    to_ratio_sums,
)
from headbook.study.sums.token_sums import PATH_STATES
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


class StateMeanAccumulator:
    """Sums of the states of one stack over the tokens of text in a batch, filled by state."""

    def __init__(self, stack: AttentionStack, batch: Batch) -> None:
        self._counting = batch.texts[stack.queries].ordinary
        self._n_layers = stack.n_layers
        self._input, self._total = np.zeros(0), np.zeros((0, 0, 0))

    def add(self, layer: int, state: ResidualPoint, vectors: torch.Tensor) -> None:
        """Add the vectors of one state. *Shape:* ``(sentence, token, width)``."""
        total = vectors[self._counting].double().sum(0).cpu().numpy()
        if state is ResidualPoint.PRE:
            self._input = total
            self._total = np.zeros((self._n_layers, len(PATH_STATES), len(total)))
        else:
            self._total[layer, PATH_STATES.index(state)] = total

    def sums(self) -> StateMeans:
        """Return the sums of this batch."""
        return StateMeans(self._input, self._total, int(self._counting.sum()))


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


Use = tuple[int, int]  # index of a sentence, and position of a word in it


class WordUses:
    """Observer that keeps the states of words that stand in several of some sentences.

    Words are those of one token; of each word the first use in each of its first sentences counts.

    Args:
        stacks: stacks of the model, by name.
        sentences: the sentences.
    """

    def __init__(
        self, stacks: Mapping[str, AttentionStack], sentences: Iterable[TokenizedSentence]
    ) -> None:
        self._stacks = {name: stack for name, stack in stacks.items() if not stack.crosses}
        in_order = sorted(sentences, key=lambda item: item.sentence.index)
        self._words = {name: _recurring(in_order, stack) for name, stack in self._stacks.items()}
        self._states: dict[tuple[str, int, Use], Floats] = {}  # by stack, layer and use

    def observe(self, batch: Batch) -> BatchObserver | None:
        """Return a callback that keeps the states of the words of a batch; None without any."""
        rows = {int(index): row for row, index in enumerate(batch.index)}
        uses_by_stack = {
            name: [use for uses in words.values() for use in uses if use[0] in rows]
            for name, words in self._words.items()
        }

        def see(stack: str, layer: int, state: ResidualPoint, vectors: torch.Tensor) -> None:
            if state is ResidualPoint.POST:
                for index, position in uses_by_stack.get(stack, ()):
                    vector = vectors[rows[index], position].cpu().double().numpy()
                    self._states[stack, layer, (index, position)] = vector

        return BatchObserver(PassResults, see=see) if any(uses_by_stack.values()) else None

    def table(self) -> pd.DataFrame:
        """Return the cosine of every two uses of a word, with columns `USE_COLUMNS`."""
        rows: list[tuple[object, ...]] = []
        for name, words in self._words.items():
            for layer in range(self._stacks[name].n_layers) if words else ():
                units = {
                    use: _unit(self._states[name, layer, use])
                    for uses in words.values()
                    for use in uses
                }
                different = _mean_product(np.stack([units[uses[0]] for uses in words.values()]))
                rows += [
                    (word, one[0] + 1, one[1], other[0] + 1, other[1], name, layer,
                     float(units[one] @ units[other]), different)
                    for word, uses in words.items()
                    for one, other in combinations(uses, 2)
                ]  # fmt: skip
        return pd.DataFrame(rows, columns=[*USE_COLUMNS])


def _recurring(
    sentences: Iterable[TokenizedSentence], stack: AttentionStack
) -> Mapping[str, list[Use]]:
    """Return the uses of each word of one token that stands in at least two sentences."""
    uses: dict[str, dict[int, Use]] = {}
    for item in sentences:
        text, index = StoredText.of(item.tokens[stack.queries]), item.sentence.index
        for position in text.whole_words(causal=stack.causal):
            word = text.pieces[position].strip()
            uses.setdefault(word, {}).setdefault(index, (index, position))
    return {
        word: [*by_sentence.values()][:MAX_USES]
        for word, by_sentence in uses.items()
        if len(by_sentence) > 1
    }


def _unit(vector: Floats) -> Floats:
    """Return a vector scaled to length 1; zeros stay."""
    return vector / (float(np.linalg.norm(vector)) or 1.0)


def _mean_product(units: Floats) -> float:
    """Return the mean product of every two different rows; NaN with a single one."""
    n, total = len(units), units.sum(0)
    return float(total @ total - (units * units).sum()) / (n * (n - 1)) if n > 1 else np.nan
