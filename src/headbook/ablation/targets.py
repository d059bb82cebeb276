"""Targets of ablation: loss, KL divergence, logit of the true token, cosines of final states.

Target functions prepare a batch, choose the scored tokens, and compute each
`headbook.schema.AblationTarget` from final states, summed over the scored tokens of a sentence in
double precision. `StateTargets` is for models without a language-model head,
`headbook.ablation.logit_targets.LogitTargets` for models with one.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.model.checkpoint import CLS, LAST, MAX, MEAN, WEIGHTED
from headbook.schema import AblationTarget, Side
from headbook.text.batch import Batch

N_DRAWS = 4  # random draws for targets whose gradient is 0 in the unablated model

Sums = Mapping[AblationTarget, torch.Tensor]
Weights = Callable[[], AbstractContextManager[None]]


class TargetChanges(NamedTuple):
    """Changes of targets from the unablated pass to other passes.

    Attributes:
        sums: changes summed over the scored tokens of each sentence, by target.
            *Shape:* ``(pass, sentence)`` each.
        tokens: change of loss or state at each scored token. *Shape:* ``(pass, scored token)``.
        before: loss at each scored token in the unablated pass, 0 for states.
            *Shape:* ``(scored token,)``.
        logits: change of the true token's centred logit; NaN without a language-model head.
            *Shape:* ``(pass, scored token)``.
    """

    sums: Sums
    tokens: torch.Tensor
    before: torch.Tensor
    logits: torch.Tensor


class DifferentiableTarget(NamedTuple):
    """A number of a batch whose gradient estimates the change of a target.

    Attributes:
        target: target whose change is estimated.
        value: sum over the scored tokens of all sentences, with its graph.
        squared: whether the estimate is half the square of the first-order change, averaged over
            draws, as for targets that are minimal and have no gradient in the unablated model; else
            the estimate is the first-order change.
    """

    target: AblationTarget
    value: torch.Tensor
    squared: bool


class TargetVectors(NamedTuple):
    """Vectors of the tokens or texts of a batch.

    Attributes:
        vectors: vectors of tokens or texts. *Shape:* ``(vector, width)``.
        sentence: row of each vector's sentence in the batch. *Shape:* ``(vector,)``.
    """

    vectors: torch.Tensor
    sentence: torch.Tensor


class TargetFunctions(Protocol):
    """Targets of a model, computed from the final states of ablated and unablated passes."""

    @property
    def side(self) -> Side:
        """Side whose tokens or states are compared."""

    @property
    def targets(self) -> tuple[AblationTarget, ...]:
        """Targets in the order of tables, the main target first."""

    @property
    def needs_lm_head(self) -> bool:
        """Whether gradients need the whole network with its head."""

    @property
    def backward_passes(self) -> int:
        """Number of backward passes of `differentiable`."""

    def prepare_batch(self, batch: Batch) -> Batch:
        """Return the batch that the model reads, which may have mask tokens.

        A sentence may have several rows, which then have the index and the hash of the sentence.
        """

    def n_scored(self, batch: Batch) -> torch.Tensor:
        """Return the number of scored tokens. *Shape:* ``(target, sentence)``."""

    def unablated(self, batch: Batch, states: torch.Tensor) -> Sums:
        """Return the losses of the unablated pass; targets that are only changes have none.

        Args:
            batch: batch as it was before `prepare_batch`.
            states: final states. *Shape:* ``(sentence, token, width)``.

        Returns:
            *Shape:* ``(sentence,)`` each.
        """

    def changes(self, batch: Batch, states: torch.Tensor, others: torch.Tensor) -> TargetChanges:
        """Return the changes of all targets.

        Args:
            batch: batch as it was before `prepare_batch`.
            states: final states of the unablated pass. *Shape:* ``(sentence, token, width)``.
            others: final states of other passes. *Shape:* ``(pass, sentence, token, width)``.
        """

    def scored(self, batch: Batch) -> torch.Tensor:
        """Return sentence and position of each scored token.

        *Shape:* ``(scored token, 2)``, in the order of `TargetChanges.tokens`.
        """

    def with_other_weights(
        self, batch: Batch, states: torch.Tensor, others: torch.Tensor, weights: Weights
    ) -> Sums:
        """Return the changes of all targets by replacing the weights of the network.

        Args:
            batch: batch as it was before `prepare_batch`.
            states: final states with the original weights. *Shape:* ``(sentence, token, width)``.
            others: final states with the other weights. *Shape:* ``(sentence, token, width)``.
            weights: context inside which the network has the other weights.

        Returns:
            Sums over the scored tokens of each sentence, *shape* ``(sentence,)`` each.
        """

    def vectors(self, batch: Batch, states: torch.Tensor) -> Mapping[AblationTarget, TargetVectors]:
        """Return the vectors whose cosines are targets.

        Args:
            batch: batch as it was before `prepare_batch`.
            states: final states of the unablated pass. *Shape:* ``(sentence, token, width)``.
        """

    def differentiable(
        self, batch: Batch, model_output: Any, states: torch.Tensor
    ) -> Iterator[DifferentiableTarget]:
        """Yield the numbers of one pass to differentiate; hashes of sentences seed random draws.

        Args:
            batch: batch as it was before `prepare_batch`.
            model_output: output of the model.
            states: final states. *Shape:* ``(sentence, token, width)``.
        """


def drawn(
    batch: Batch, draw: int, draw_numbers: Callable[[np.random.Generator], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return random numbers of each sentence, independent of the batch and its padding."""
    return np.stack(
        [
            draw_numbers(np.random.default_rng([int(content_hash), draw]))
            for content_hash in batch.content_hash
        ]
    )


def pooled(states: torch.Tensor, valid: torch.Tensor, pooling: str) -> torch.Tensor:
    """Return one vector for each sentence, of arbitrary length.

    Args:
        states: final states. *Shape:* ``(*passes, sentence, token, width)``.
        valid: false in the padding. *Shape:* ``(sentence, token)``.
        pooling: as in `MODES`.

    Returns:
        *Shape:* ``(*passes, sentence, width)``.
    """
    if pooling == MAX:
        lowest = torch.finfo(states.dtype).min
        return states.masked_fill(~valid[..., None], lowest).amax(-2)
    weights = valid.to(states)
    position = weights.cumsum(-1) * weights  # positions from 1; padding may be on either side
    if pooling == CLS:
        weights = (position == 1).to(states)
    elif pooling == LAST:
        weights = ((position > 0) & (position == position.amax(-1, keepdim=True))).to(states)
    elif pooling == WEIGHTED:
        weights = position
    return (states * weights[..., None]).sum(-2)


@dataclass(frozen=True, eq=False)
class StateTargets:
    """Ablation targets of models without a language-model head: cosines of final states.

    Attributes:
        side: side of the states.
        pooling: pooling of a sentence encoder, whose first target is its sentence vectors; empty
            for other models.
    """

    side: Side
    pooling: str = ""

    @property
    def targets(self) -> tuple[AblationTarget, ...]:
        """States of tokens and vectors of texts; vectors come first for sentence encoders."""
        targets = (AblationTarget.STATE, AblationTarget.EMBEDDING)
        return targets[::-1] if self.pooling else targets

    @property
    def needs_lm_head(self) -> bool:
        """False: final states need no language-model head."""
        return False

    @property
    def backward_passes(self) -> int:
        """Number of random directions."""
        return N_DRAWS

    def prepare_batch(self, batch: Batch) -> Batch:
        """Return the batch unchanged."""
        return batch

    def n_scored(self, batch: Batch) -> torch.Tensor:
        """Return the number of tokens for states, and 1 for texts."""
        tokens = batch.texts[self.side].valid.sum(1)
        counts = {AblationTarget.STATE: tokens, AblationTarget.EMBEDDING: torch.ones_like(tokens)}
        return torch.stack([counts[target] for target in self.targets])

    def unablated(self, batch: Batch, states: torch.Tensor) -> Sums:
        """Return no losses: cosines are changes from the unablated pass."""
        del batch, states
        return {}

    def changes(self, batch: Batch, states: torch.Tensor, others: torch.Tensor) -> TargetChanges:
        """Return 1 minus the cosines of states and texts of both passes."""
        valid = batch.texts[self.side].valid
        clean, changed = states.double(), others.double()
        tokens = (1 - _cosine(clean, changed)) * valid.to(torch.float64)
        texts = [
            pooled(states_of_pass, valid, self.pooling or MEAN)
            for states_of_pass in (clean, changed)
        ]
        sums = {AblationTarget.STATE: tokens.sum(-1), AblationTarget.EMBEDDING: 1 - _cosine(*texts)}
        scored = tokens[:, valid]
        return TargetChanges(
            {target: sums[target] for target in self.targets},
            scored,
            torch.zeros_like(scored[0]),
            torch.full_like(scored, torch.nan),
        )

    def with_other_weights(
        self, batch: Batch, states: torch.Tensor, others: torch.Tensor, weights: Weights
    ) -> Sums:
        """Return the changes of states and texts; no further weights are used after the states."""
        del weights
        return {
            name: change[0]
            for name, change in self.changes(batch, states, others[None]).sums.items()
        }

    def vectors(self, batch: Batch, states: torch.Tensor) -> Mapping[AblationTarget, TargetVectors]:
        """Return the states of tokens and the vectors of texts."""
        valid = batch.texts[self.side].valid
        texts = pooled(states, valid, self.pooling or MEAN)
        rows = torch.arange(len(valid), device=valid.device)
        return {
            AblationTarget.STATE: TargetVectors(states[valid], valid.nonzero()[:, 0]),
            AblationTarget.EMBEDDING: TargetVectors(texts, rows),
        }

    def scored(self, batch: Batch) -> torch.Tensor:
        """Return all tokens."""
        return batch.texts[self.side].valid.nonzero()

    def differentiable(
        self, batch: Batch, model_output: Any, states: torch.Tensor
    ) -> Iterator[DifferentiableTarget]:
        """Yield unit vectors in random directions: half their squared change is 1 - cosine."""
        del model_output
        valid = batch.texts[self.side].valid
        texts = pooled(states, valid, self.pooling or MEAN)[:, None]
        vectors = {
            AblationTarget.STATE: torch.nn.functional.normalize(states, dim=-1)
            * valid.to(states)[..., None],
            AblationTarget.EMBEDDING: torch.nn.functional.normalize(texts, dim=-1),
        }
        for draw in range(N_DRAWS):
            for target in self.targets:
                shape = vectors[target].shape[1:]
                numbers = drawn(batch, draw, lambda rng, shape=shape: rng.standard_normal(shape))  # type: ignore[misc]
                direction = torch.from_numpy(numbers).to(vectors[target])
                yield DifferentiableTarget(
                    target, (vectors[target] * direction).sum(), squared=True
                )


def _cosine(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cosine_similarity(a, b, dim=-1)


HASH_BYTES = 8


def pair_hash(a: int, b: int) -> bytes:
    """Return a hash of two numbers, by which random choices are equal in every run."""
    both_bytes = a.to_bytes(HASH_BYTES, "big") + b.to_bytes(HASH_BYTES, "big")
    return hashlib.blake2b(both_bytes, digest_size=HASH_BYTES).digest()
