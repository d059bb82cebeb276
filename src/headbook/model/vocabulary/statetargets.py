"""Ablation targets of models without a language-model head: cosines of states and of texts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from headbook.model.vocabulary.targets import DRAWS, Changes, Slope, Sums, Vectors, Weights, drawn
from headbook.model.weights.pooling import MEAN, pooled
from headbook.terms import Side, Target
from headbook.text.batch import Batch


@dataclass(frozen=True, eq=False)
class States:
    """Ablation targets of models without a language-model head: cosines of last states.

    Attributes:
        side: whose states they are.
        pooling: of a sentence encoder, whose sentence vectors are its answer and its first target;
            empty for other models.
    """

    side: Side
    pooling: str = ""

    @property
    def targets(self) -> tuple[Target, ...]:
        """Tokens' states and texts' vectors; the latter first for sentence encoders."""
        found = (Target.STATE, Target.EMBEDDING)
        return found[::-1] if self.pooling else found

    @property
    def speaks(self) -> bool:
        """It does not."""
        return False

    def prepared(self, batch: Batch) -> Batch:
        """The batch itself."""
        return batch

    def counts(self, batch: Batch) -> torch.Tensor:
        """Number of tokens for states, one for texts."""
        tokens = batch.texts[self.side].valid.sum(1)
        counts = {Target.STATE: tokens, Target.EMBEDDING: torch.ones_like(tokens)}
        return torch.stack([counts[target] for target in self.targets])

    def full(self, batch: Batch, states: torch.Tensor) -> Sums:
        """None."""
        del batch, states
        return {}

    def changes(self, batch: Batch, states: torch.Tensor, others: torch.Tensor) -> Changes:
        """1 minus cosines."""
        there = batch.texts[self.side].valid
        one, other = states.double(), others.double()
        tokens = (1 - _cosine(one, other)) * there.to(torch.float64)
        texts = [pooled(each, there, self.pooling or MEAN) for each in (one, other)]
        sums = {Target.STATE: tokens.sum(-1), Target.EMBEDDING: 1 - _cosine(*texts)}
        scored = tokens[:, there]
        return Changes(
            {target: sums[target] for target in self.targets},
            scored,
            torch.zeros_like(scored[0]),
            torch.full_like(scored, torch.nan),
        )

    def with_other_weights(
        self, batch: Batch, states: torch.Tensor, others: torch.Tensor, weights: Weights
    ) -> Sums:
        """Changes of states and texts; nothing is computed with the weights behind the states."""
        del weights
        return {
            name: each[0] for name, each in self.changes(batch, states, others[None]).sums.items()
        }

    def vectors(self, batch: Batch, states: torch.Tensor) -> Mapping[Target, Vectors]:
        """States of real tokens, and texts."""
        there = batch.texts[self.side].valid
        texts = pooled(states, there, self.pooling or MEAN)
        rows = torch.arange(len(there), device=there.device)
        return {
            Target.STATE: Vectors(states[there], there.nonzero()[:, 0]),
            Target.EMBEDDING: Vectors(texts, rows),
        }

    def scored(self, batch: Batch) -> torch.Tensor:
        """All tokens."""
        return batch.texts[self.side].valid.nonzero()

    def slopes(self, batch: Batch, model_output: Any, states: torch.Tensor) -> Iterator[Slope]:
        """Unit vectors in random directions: half their squared change is 1 minus the cosine."""
        del model_output
        there = batch.texts[self.side].valid
        texts = pooled(states, there, self.pooling or MEAN)[:, None]
        vectors = {
            Target.STATE: torch.nn.functional.normalize(states, dim=-1)
            * there.to(states)[..., None],
            Target.EMBEDDING: torch.nn.functional.normalize(texts, dim=-1),
        }
        for draw in range(DRAWS):
            for target in self.targets:
                shape = vectors[target].shape[1:]
                along = drawn(batch, draw, lambda rng, shape=shape: rng.standard_normal(shape))  # type: ignore[misc]
                random = torch.from_numpy(along).to(vectors[target])
                yield Slope(target, (vectors[target] * random).sum(), squared=True)


def _cosine(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cosine_similarity(one, other, dim=-1)
