"""Measure what margins of verdicts rest on: distances of sentences, and rounding of weights."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from headbook.analysis.arithmetic import Floats
from headbook.model.weights.rounded import can_round, rounded_weights
from headbook.passes.ablation.effects import Ablator
from headbook.terms import Target
from headbook.text.batch import Batch

PASSES = 2  # over the sample: the model as it is, and with rounded weights


@dataclass
class _Cloud:
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


def measured_margins(
    ablator: Ablator, batches: Iterable[Batch]
) -> tuple[Mapping[str, float], Mapping[str, Floats]]:
    """Return `Removals.apart` and `Removals.rounding` of a sample.

    The latter is empty if weights are not all in memory.
    """
    clouds: dict[Target, _Cloud] = defaultdict(_Cloud)
    found: dict[Target, list[Floats]] = defaultdict(list)
    keys = []
    judge, network = ablator.judge, ablator.heads.model.network
    other = partial(rounded_weights, network)
    with torch.inference_mode():
        for batch in batches:
            read = judge.prepared(batch)
            keys.append(batch.content_hash)
            states = ablator.heads.states(read).after[ablator.heads.read][-1]
            for target, (vectors, sentence) in judge.vectors(batch, states).items():
                clouds[target].add(vectors, sentence, len(batch.content_hash))
            if can_round(network):
                with other():
                    rounded = ablator.heads.states(read).after[ablator.heads.read][-1]
                changes = judge.with_other_weights(batch, states, rounded, other)
                for target, sums in changes.items():
                    found[target].append(sums.double().cpu().numpy())
    order = np.argsort(np.concatenate(keys), kind="stable")
    return (
        {str(target): cloud.distance for target, cloud in clouds.items()},
        {str(target): np.concatenate(parts)[order] for target, parts in found.items()},
    )
