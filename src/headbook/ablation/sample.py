"""Measure what margins of verdicts rest on: distances of sentences, and rounding of weights."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.ablation.ablator import HeadAblator
from headbook.ablation.attribution import has_direct_path
from headbook.ablation.targets import DRAWS
from headbook.analysis.arrays import Floats, Ints
from headbook.model.weights import can_round, rounded_weights
from headbook.schema import AblationTarget, Side
from headbook.study.sentence_data import HeadName
from headbook.text.batch import Batch, batches_by_tokens, token_hash
from headbook.text.tokens import TokenizedSentence, TokenizedText


@dataclass(frozen=True, eq=False)
class AblationCosts:
    """What it takes to take heads away, in forward passes over the same sentences.

    Attributes:
        layers: of each stack that has states of its own.
        later: whether a pass can begin at the first layer that is changed.
        head: share of a forward pass that the language-model head takes, 0 without one.
        slopes: backward passes, each of which costs as much as a forward one.
        direct: whether what the residual path carries is known.
    """

    layers: dict[str, int]
    later: bool
    head: float
    slopes: int
    direct: bool

    @property
    def fixed(self) -> float:
        """Means, slopes, a pass to compare with, and what the residual path carries."""
        return 3.0 + self.slopes + 2.0 * self.direct

    def of(self, heads: Iterable[HeadName]) -> float:
        """One set of heads."""
        total = sum(self.layers.values())
        skipped = min((self._before(head) for head in heads), default=0) if self.later else 0
        return self.head + (1 - self.head) * (total - skipped) / total

    def _before(self, head: HeadName) -> int:
        """Layers that come before a head's."""
        return head.layer + (0 if head.stack in {"self", "encoder"} else self.layers["encoder"])


def costs_of(ablator: HeadAblator, parameters: int, vocabulary: tuple[int, int]) -> AblationCosts:
    """The costs of a model.

    Args:
        parameters: of the network without its vocabulary.
        vocabulary: entries and width.
    """
    speaks = ablator.functions.needs_lm_head
    product = vocabulary[0] * vocabulary[1] * speaks
    layers = {name: len(layer) for name, layer in ablator.heads.architecture.layers.items()}
    backward = DRAWS + speaks
    share = product / (product + parameters)
    direct = AblationTarget.LOGIT in ablator.functions.targets and has_direct_path(ablator.heads)
    return AblationCosts(layers, bool(ablator.heads.slots), share, backward, direct)


@dataclass(frozen=True, eq=False)
class AblationSample:
    """The sentences that heads are taken away on.

    Attributes:
        batches: of all of them.
        reported: of those of the second half alone.
        small: all of them in batches that leave room for slopes.
        batch: makes a batch.
    """

    batches: Sequence[Batch]
    reported: Sequence[Batch]
    small: Sequence[Batch]
    batch: Callable[[Sequence[TokenizedSentence]], Batch]

    @property
    def content_hash(self) -> NDArray[np.uint64]:
        """Hashes of the sentences, ascending."""
        return np.sort(np.concatenate([batch.content_hash for batch in self.batches]))

    def texts(self, side: Side) -> tuple[NDArray[np.uint64], Ints]:
        """Hash of each sentence's text, and how many of its characters losses are of.

        Args:
            side: whose tokens are predicted, all but the first.
        """
        hashes = np.concatenate([batch.content_hash for batch in self.batches])
        order = np.argsort(hashes, kind="stable")
        items = [item for batch in self.batches for item in batch.items]
        texts = np.concatenate([batch.text_hash for batch in self.batches])
        scored = np.array([_scored(item.tokens[side]) for item in items], np.int64)
        return texts[order], scored[order]


def _scored(tokens: TokenizedText) -> int:
    """Characters from the second token that stands for any to the end of the text's last one.

    From the first one where a special token comes before it.
    """
    spans = [(int(start), int(end)) for start, end in tokens.spans[1:] if start < end]
    return max(end for _, end in spans) - min(start for start, _ in spans) if spans else 0


GRADIENT_MEMORY = 3  # times the memory of a pass that slopes need
FINE = 16  # batches for each that a pass has room for: copies of short ones fill it, not padding


def ablation_sample(
    items: Sequence[TokenizedSentence],
    budget: int,
    batch: Callable[[Sequence[TokenizedSentence]], Batch],
    *,
    alike: bool,
) -> AblationSample:
    """Sentences in the batches that taking heads away needs, whatever their order was.

    Args:
        budget: tokens of a batch.
        batch: makes one.
        alike: whether it may hold sentences of one length only.
    """
    items = sorted(items, key=token_hash)
    reported = [item for item in items if token_hash(item) & 1]

    def batches(some: Sequence[TokenizedSentence], tokens: int) -> list[Batch]:
        return [batch(group) for group in batches_by_tokens(some, tokens, alike=alike)]

    small, fine = (max(1, budget // parts) for parts in (GRADIENT_MEMORY, FINE))
    return AblationSample(
        batches(items, fine), batches(reported, fine), batches(items, small), batch
    )


PASSES = 2  # over the sample: the model as it is, and with rounded weights


@dataclass
class _VectorSums:
    """Sums of unit vectors, from which the mean distance between sentences follows.

    The cosines of all pairs of vectors add up to the square of the vectors' sum. What pairs inside
    a sentence add to that is the square of the sentence's own sum.
    """

    total: Floats | float = 0.0
    inside: float = 0.0
    number: float = 0.0
    squares: float = 0.0

    def add(self, vectors: torch.Tensor, sentence: torch.Tensor, sentences: int) -> None:
        """Add vectors of whole sentences."""
        unit = torch.nn.functional.normalize(vectors.double(), dim=-1)
        sums = unit.new_zeros((sentences, unit.shape[1])).index_add_(0, sentence, unit)
        counts = torch.bincount(sentence, minlength=sentences).double()
        self.total = self.total + sums.sum(0).cpu().numpy()
        self.inside += float((sums**2).sum())
        self.number += float(counts.sum())
        self.squares += float((counts**2).sum())

    @property
    def distance(self) -> float:
        """Mean of 1 - cos over pairs from different sentences; NaN without such a pair."""
        pairs = self.number**2 - self.squares
        cosines = float(np.square(self.total).sum()) - self.inside
        return 1 - cosines / pairs if pairs else float("nan")


def measure_margins(
    ablator: HeadAblator, batches: Iterable[Batch]
) -> tuple[Mapping[str, float], Mapping[str, Floats]]:
    """Return `AblationResults.sentence_distance` and `AblationResults.rounding` of a sample.

    The latter is empty if weights are not all in memory.
    """
    clouds: dict[AblationTarget, _VectorSums] = defaultdict(_VectorSums)
    found: dict[AblationTarget, list[Floats]] = defaultdict(list)
    keys = []
    functions, network = ablator.functions, ablator.heads.model.network
    other = partial(rounded_weights, network)
    with torch.inference_mode():
        for batch in batches:
            read = functions.prepare_batch(batch)
            keys.append(batch.content_hash)
            states = ablator.heads.states(read).after[ablator.heads.read][-1]
            for target, (vectors, sentence) in functions.vectors(batch, states).items():
                clouds[target].add(vectors, sentence, len(batch.content_hash))
            if can_round(network):
                with other():
                    rounded = ablator.heads.states(read).after[ablator.heads.read][-1]
                changes = functions.with_other_weights(batch, states, rounded, other)
                for target, sums in changes.items():
                    found[target].append(sums.double().cpu().numpy())
    order = np.argsort(np.concatenate(keys), kind="stable")
    return (
        {str(target): cloud.distance for target, cloud in clouds.items()},
        {str(target): np.concatenate(parts)[order] for target, parts in found.items()},
    )
