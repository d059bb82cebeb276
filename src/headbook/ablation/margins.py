"""Yardsticks of margins: distances between sentences, and changes by rounding of weights."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from headbook.ablation.ablator import HeadAblator
from headbook.analysis.arrays import Floats
from headbook.model.weights import can_round, rounded_weights
from headbook.schema import AblationTarget
from headbook.text.batch import Batch

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
