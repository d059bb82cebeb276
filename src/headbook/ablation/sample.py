"""Sample and cost of ablation, and the yardsticks of margins: sentence distances and rounding."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.ablation.ablator import HeadAblator
from headbook.ablation.attribution import has_direct_path
from headbook.ablation.targets import N_DRAWS
from headbook.analysis.arrays import Floats, Ints
from headbook.model.weights import can_round, rounded_weights
from headbook.schema import AblationTarget, Side
from headbook.study.sentence_data import HeadName
from headbook.text.batch import Batch, batches_by_tokens, token_hash
from headbook.text.tokens import TokenizedSentence, TokenizedText


@dataclass(frozen=True, eq=False)
class AblationCosts:
    """Costs of ablation, in forward passes over the sample.

    Attributes:
        layers: number of layers of each stack with hidden states, by stack.
        later: whether a pass can begin at the first ablated layer.
        head: share of a forward pass in the language-model head, 0 without a head.
        slopes: number of backward passes, each as expensive as a forward pass.
        direct: whether direct effects on logits are measured.
    """

    layers: dict[str, int]
    later: bool
    head: float
    slopes: int
    direct: bool

    @property
    def fixed(self) -> float:
        """Cost of mean outputs, gradients, the unablated pass, and direct effects."""
        return 3.0 + self.slopes + 2.0 * self.direct

    def of(self, heads: Iterable[HeadName]) -> float:
        """Return the cost of ablating one set of heads."""
        total = sum(self.layers.values())
        skipped = min((self._before(head) for head in heads), default=0) if self.later else 0
        return self.head + (1 - self.head) * (total - skipped) / total

    def _before(self, head: HeadName) -> int:
        """Return the number of layers before the layer of a head."""
        return head.layer + (0 if head.stack in {"self", "encoder"} else self.layers["encoder"])


def costs_of(ablator: HeadAblator, parameters: int, vocabulary: tuple[int, int]) -> AblationCosts:
    """Return the costs of ablating heads of a model.

    Args:
        ablator: ablates heads of the model.
        parameters: number of parameters without the vocabulary.
        vocabulary: entries and width of the vocabulary.
    """
    lm_head = ablator.functions.needs_lm_head
    product = vocabulary[0] * vocabulary[1] * lm_head
    layers = {name: len(layer) for name, layer in ablator.heads.architecture.layers.items()}
    backward = N_DRAWS + lm_head
    share = product / (product + parameters)
    direct = AblationTarget.LOGIT in ablator.functions.targets and has_direct_path(ablator.heads)
    return AblationCosts(layers, bool(ablator.heads.slots), share, backward, direct)


@dataclass(frozen=True, eq=False)
class AblationSample:
    """Sentences on which heads are ablated.

    Attributes:
        batches: batches of all sentences.
        reported: batches of the held-out half of the sentences.
        small: batches of all sentences that leave memory for a backward pass.
        batch: makes a batch of sentences.
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
        """Return the hash of each sentence's text, and the number of its scored characters.

        Args:
            side: side whose tokens, all but the first, are scored.
        """
        hashes = np.concatenate([batch.content_hash for batch in self.batches])
        order = np.argsort(hashes, kind="stable")
        items = [item for batch in self.batches for item in batch.items]
        texts = np.concatenate([batch.text_hash for batch in self.batches])
        scored = np.array([_scored(item.tokens[side]) for item in items], np.int64)
        return texts[order], scored[order]


def _scored(tokens: TokenizedText) -> int:
    """Return the number of characters of the scored tokens.

    Scored tokens are those after the first one, which is a special token or the first of the text.
    """
    spans = [(int(start), int(end)) for start, end in tokens.spans[1:] if start < end]
    return max(end for _, end in spans) - min(start for start, _ in spans) if spans else 0


BACKWARD_MEMORY_FACTOR = 3  # memory of a backward pass, in forward passes
# Batches into which a batch of a forward pass is split, since ablation copies each sentence for
# many sets of heads: copies of short sentences fill the memory instead of padding.
ABLATION_SPLITS = 16


def ablation_sample(
    items: Sequence[TokenizedSentence],
    budget: int,
    batch: Callable[[Sequence[TokenizedSentence]], Batch],
    *,
    alike: bool,
) -> AblationSample:
    """Return the sample of sentences in batches, independent of their order in the input.

    Args:
        items: sentences of the sample.
        budget: largest number of tokens of a batch.
        batch: makes a batch of sentences.
        alike: whether all sentences of a batch must have the same length.
    """
    items = sorted(items, key=token_hash)
    reported = [item for item in items if token_hash(item) & 1]

    def batches(sentences: Sequence[TokenizedSentence], tokens: int) -> list[Batch]:
        return [batch(group) for group in batches_by_tokens(sentences, tokens, alike=alike)]

    small, fine = (max(1, budget // parts) for parts in (BACKWARD_MEMORY_FACTOR, ABLATION_SPLITS))
    return AblationSample(
        batches(items, fine), batches(reported, fine), batches(items, small), batch
    )


# Forward passes over the sample for margins: with the model's weights, and with rounded weights.
MARGIN_PASSES = 2


@dataclass
class _VectorSums:
    """Sums of unit vectors, from which the mean distance between sentences is computed.

    The cosines of all pairs of vectors sum to the square of the sum of the vectors. Pairs inside
    one sentence contribute the square of the sum of the vectors of the sentence.

    Attributes:
        total: sum of all vectors. *Shape:* ``(width,)``.
        inside: sum over sentences of the squared sums of their vectors.
        number: number of vectors.
        squares: sum over sentences of the squared numbers of vectors.
    """

    total: Floats | float = 0.0
    inside: float = 0.0
    number: float = 0.0
    squares: float = 0.0

    def add(self, vectors: torch.Tensor, sentence: torch.Tensor, sentences: int) -> None:
        """Add the vectors of a batch of complete sentences."""
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

    The changes by rounding are empty if not all weights are in memory.
    """
    vector_sums: dict[AblationTarget, _VectorSums] = defaultdict(_VectorSums)
    changes_by_target: dict[AblationTarget, list[Floats]] = defaultdict(list)
    keys = []
    functions, network = ablator.functions, ablator.heads.model.network
    rounding = partial(rounded_weights, network)
    with torch.inference_mode():
        for batch in batches:
            masked = functions.prepare_batch(batch)
            keys.append(batch.content_hash)
            states = ablator.heads.states(masked).after[ablator.heads.read][-1]
            for target, (vectors, sentence) in functions.vectors(batch, states).items():
                vector_sums[target].add(vectors, sentence, len(batch.content_hash))
            if can_round(network):
                with rounding():
                    rounded = ablator.heads.states(masked).after[ablator.heads.read][-1]
                changes = functions.with_other_weights(batch, states, rounded, rounding)
                for target, sums in changes.items():
                    changes_by_target[target].append(sums.double().cpu().numpy())
    order = np.argsort(np.concatenate(keys), kind="stable")
    return (
        {str(target): cloud.distance for target, cloud in vector_sums.items()},
        {str(target): np.concatenate(parts)[order] for target, parts in changes_by_target.items()},
    )
