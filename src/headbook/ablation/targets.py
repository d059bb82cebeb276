"""Targets of ablation: loss, KL divergence, logit of the true token, cosines of final states.

Target functions prepare a batch, choose the scored tokens, and compute each
`headbook.schema.AblationTarget` from final states, summed over the scored tokens of a sentence in
double precision. `LogitTargets` is for models with a language-model head, `StateTargets` for
models without one.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.model.checkpoint import CLS, LAST, MAX, MEAN, WEIGHTED
from headbook.model.logit_lens import LogitLens
from headbook.schema import AblationTarget, Side
from headbook.text.batch import Batch, PaddedTexts

DRAWS = 4  # random draws for targets whose gradient is 0 in the unablated model

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
        """Whether it needs the language-model head."""

    def prepare_batch(self, batch: Batch) -> Batch:
        """Return the batch that the model reads, which may have mask tokens."""

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
    batch: Batch, draw: int, take: Callable[[np.random.Generator], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return random numbers of each sentence, independent of the batch and its padding."""
    return np.stack([take(np.random.default_rng([int(key), draw])) for key in batch.content_hash])


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
    place = weights.cumsum(-1) * weights  # positions from 1; padding may be on either side
    if pooling == CLS:
        weights = (place == 1).to(states)
    elif pooling == LAST:
        weights = ((place > 0) & (place == place.amax(-1, keepdim=True))).to(states)
    elif pooling == WEIGHTED:
        weights = place
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
        found = (AblationTarget.STATE, AblationTarget.EMBEDDING)
        return found[::-1] if self.pooling else found

    @property
    def needs_lm_head(self) -> bool:
        """False: final states need no language-model head."""
        return False

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
        there = batch.texts[self.side].valid
        one, other = states.double(), others.double()
        tokens = (1 - _cosine(one, other)) * there.to(torch.float64)
        texts = [pooled(each, there, self.pooling or MEAN) for each in (one, other)]
        sums = {AblationTarget.STATE: tokens.sum(-1), AblationTarget.EMBEDDING: 1 - _cosine(*texts)}
        scored = tokens[:, there]
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
            name: each[0] for name, each in self.changes(batch, states, others[None]).sums.items()
        }

    def vectors(self, batch: Batch, states: torch.Tensor) -> Mapping[AblationTarget, TargetVectors]:
        """Return the states of tokens and the vectors of texts."""
        there = batch.texts[self.side].valid
        texts = pooled(states, there, self.pooling or MEAN)
        rows = torch.arange(len(there), device=there.device)
        return {
            AblationTarget.STATE: TargetVectors(states[there], there.nonzero()[:, 0]),
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
        there = batch.texts[self.side].valid
        texts = pooled(states, there, self.pooling or MEAN)[:, None]
        vectors = {
            AblationTarget.STATE: torch.nn.functional.normalize(states, dim=-1)
            * there.to(states)[..., None],
            AblationTarget.EMBEDDING: torch.nn.functional.normalize(texts, dim=-1),
        }
        for draw in range(DRAWS):
            for target in self.targets:
                shape = vectors[target].shape[1:]
                along = drawn(batch, draw, lambda rng, shape=shape: rng.standard_normal(shape))  # type: ignore[misc]
                random = torch.from_numpy(along).to(vectors[target])
                yield DifferentiableTarget(target, (vectors[target] * random).sum(), squared=True)


def _cosine(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cosine_similarity(one, other, dim=-1)


BLOCK = 1 << 24  # most logits in memory at a time
MASKED = 0.15  # share of masked tokens among the ordinary ones
HASH_BYTES = 8


@dataclass(frozen=True, eq=False)
class LogitTargets:
    """Ablation targets from logits: loss, KL divergence and logit of next or masked tokens.

    Attributes:
        lens: language-model head.
        side: side whose tokens are predicted.
        mask: vocabulary index of the mask token; None for next tokens.
        logits: whether the logit of the true token is a target.
    """

    lens: LogitLens
    side: Side
    mask: int | None
    logits: bool = False

    @property
    def targets(self) -> tuple[AblationTarget, ...]:
        """Loss and KL divergence, and the logit if requested."""
        loss = AblationTarget.LOSS if self.mask is None else AblationTarget.MASKED_LOSS
        return (
            (loss, AblationTarget.KL, AblationTarget.LOGIT)
            if self.logits
            else (loss, AblationTarget.KL)
        )

    @property
    def needs_lm_head(self) -> bool:
        """True: targets are computed from logits."""
        return True

    def prepare_batch(self, batch: Batch) -> Batch:
        """Return the batch with scored tokens masked; unchanged if next tokens are predicted."""
        if self.mask is None:
            return batch
        texts = batch.texts[self.side]
        ids = torch.where(self._true(batch) >= 0, self.mask, texts.ids)
        return replace(batch, texts={**batch.texts, self.side: replace(texts, ids=ids)})

    def n_scored(self, batch: Batch) -> torch.Tensor:
        """Return the number of scored tokens, equal for all targets."""
        return (self._true(batch) >= 0).sum(1).expand(len(self.targets), -1)

    def unablated(self, batch: Batch, states: torch.Tensor) -> Sums:
        """Return the loss of the unablated pass."""
        loss, _, _ = self._by_sentence(batch, self._by_token(batch, states[None]))
        return {self.targets[0]: loss[0]}

    def changes(self, batch: Batch, states: torch.Tensor, others: torch.Tensor) -> TargetChanges:
        """Return the changes of loss and logit, and the divergence from the unablated pass."""
        by_token = self._by_token(batch, torch.cat([states[None], others]))
        loss, divergence, logit = self._by_sentence(batch, by_token)
        sums = loss[1:] - loss[0], divergence[1:], logit[1:] - logit[0]
        losses, _, logits = by_token
        return TargetChanges(
            dict(zip(self.targets, sums, strict=False)),
            losses[1:] - losses[0],
            losses[0],
            logits[1:] - logits[0],
        )

    def with_other_weights(
        self, batch: Batch, states: torch.Tensor, others: torch.Tensor, weights: Weights
    ) -> Sums:
        """Return the changes of all targets, with the other weights of the head as well."""
        by_token = self._by_token(batch, torch.stack([states, others]), weights)
        loss, divergence, logit = self._by_sentence(batch, by_token)
        sums = loss[1] - loss[0], divergence[1], logit[1] - logit[0]
        return dict(zip(self.targets, sums, strict=False))

    def vectors(self, batch: Batch, states: torch.Tensor) -> Mapping[AblationTarget, TargetVectors]:
        """Return no vectors, since no target is a cosine."""
        del batch, states
        return {}

    def scored(self, batch: Batch) -> torch.Tensor:
        """Return the masked tokens, or the tokens that follow another one."""
        places = (self._true(batch) >= 0).nonzero()
        return places + torch.tensor([0, int(self.mask is None)], device=places.device)

    def centred(self, batch: Batch, logits: torch.Tensor) -> torch.Tensor:
        """Return the true tokens' logits minus the mean of all. *Shape:* ``(scored token,)``.

        Args:
            batch: batch as it was before `prepare_batch`.
            logits: logits of the unablated pass. *Shape:* ``(sentence, token, entry)``.
        """
        true = self._true(batch)
        chosen = true >= 0
        found: torch.Tensor = _centred(logits[chosen], true[chosen])
        return found

    def differentiable(
        self, batch: Batch, model_output: Any, states: torch.Tensor
    ) -> Iterator[DifferentiableTarget]:
        """Yield the loss, and log probabilities of tokens drawn from the model's distribution.

        The mean squared gradient of the log probability is the Fisher information, and half of the
        Fisher information along a change is the KL divergence to second order. Tokens are drawn one
        by one, so gradients of different tokens are independent with mean 0, and squares of sums
        are sums of squares in expectation.
        """
        del states
        true = self._true(batch)
        chosen = true >= 0
        logs = model_output.logits[chosen].log_softmax(-1)
        loss = -logs.gather(-1, true[chosen][:, None]).sum()
        yield DifferentiableTarget(self.targets[0], loss, squared=False)
        shares = logs.detach().double().exp().cumsum(-1)
        for draw in range(DRAWS):
            even = drawn(batch, draw, lambda rng: rng.random(true.shape[1]))
            points = torch.from_numpy(even).to(shares)[chosen][:, None]
            sampled = torch.searchsorted(shares, points * shares[:, -1:]).clamp(
                max=shares.shape[1] - 1
            )
            yield DifferentiableTarget(
                AblationTarget.KL, logs.gather(-1, sampled).sum(), squared=True
            )

    def _by_sentence(self, batch: Batch, by_token: torch.Tensor) -> torch.Tensor:
        """Sum over the scored tokens of each sentence. *Shape:* ``(3, pass, sentence)``."""
        chosen = self._true(batch) >= 0
        sums = by_token.new_zeros((*by_token.shape[:2], len(chosen)))
        return sums.index_add_(2, chosen.nonzero()[:, 0], by_token)

    def _by_token(
        self, batch: Batch, states: torch.Tensor, weights: Weights | None = None
    ) -> torch.Tensor:
        """Return loss, KL divergence from the first pass, and logit at each scored token.

        *Shape:* ``(3, pass, scored token)``.

        Args:
            batch: batch as it was before `prepare_batch`.
            states: final states. *Shape:* ``(pass, sentence, token, width)``.
            weights: context in which the logits of all passes but the first are computed.
        """
        true = self._true(batch)
        chosen = true >= 0
        size = max(1, BLOCK // self.lens.size // len(states))
        blocks = zip(states[:, chosen].split(size, 1), true[chosen].split(size), strict=True)
        parts = [states.new_zeros((3, len(states), 0), dtype=torch.float64)]
        for rows, ids in blocks:
            if weights is None:
                logits = self._logits(rows)
            else:
                logits = self._logits(rows[:1])
                with weights():
                    logits = torch.cat([logits, self._logits(rows[1:])])
            logs = logits.log_softmax(-1)
            loss = -logs.gather(-1, ids.expand(len(logs), -1)[..., None])[..., 0]
            divergence = (logs[:1].exp() * (logs[:1] - logs)).sum(-1)
            centred = _centred(logits, ids.expand(len(logs), -1))
            parts.append(torch.stack([loss, divergence, centred]).double())
        return torch.cat(parts, 2)

    def _logits(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the logits of states. *Shapes:* ``(pass, row, width)``, ``(pass, row, entry)``."""
        found: torch.Tensor = self.lens.logits(rows.flatten(0, 1)).unflatten(0, rows.shape[:2])
        return found

    def _true(self, batch: Batch) -> torch.Tensor:
        """Return the true token of scored positions, else -1. *Shape:* ``(sentence, token)``."""
        texts = batch.texts[self.side]
        if self.mask is None:
            return self.lens.targets(texts)
        return torch.where(_masked(batch, texts), texts.ids, -1)


def target_functions(
    lens: LogitLens | None, side: Side, mask: int | None, *, logits: bool = False, pooling: str = ""
) -> LogitTargets | StateTargets:
    """Return the ablation targets of a model.

    Args:
        lens: language-model head; None without a head.
        side: side of the final states.
        mask: vocabulary index of the mask token; None without a mask token.
        logits: whether the logit of the true token is a target, if the model has logits.
        pooling: pooling of a sentence encoder, as in `StateTargets`; empty for other models.
    """
    if lens is None or (not lens.causal and mask is None):
        return StateTargets(side, pooling)
    return LogitTargets(lens, side, None if lens.causal else mask, logits)


def _centred(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Return the logits of some entries minus the mean of all entries."""
    return logits.gather(-1, ids[..., None])[..., 0] - logits.mean(-1)


def _masked(batch: Batch, texts: PaddedTexts) -> torch.Tensor:
    """Choose the masked tokens of each sentence: those with the smallest hashes.

    Equal sentences have equal masks. *Shape:* ``(sentence, token)``, boolean.
    """
    chosen = np.zeros(texts.ids.shape, dtype=bool)
    ordinary = texts.ordinary.cpu().numpy()
    for row, (key, there) in enumerate(zip(batch.content_hash, ordinary, strict=True)):
        places = np.flatnonzero(there)
        order = sorted(places, key=lambda place, key=key: pair_hash(int(key), int(place)))  # type: ignore[misc]
        chosen[row, order[: ceil(MASKED * len(places))]] = True
    return torch.from_numpy(chosen).to(texts.ids.device)


def pair_hash(one: int, other: int) -> bytes:
    """Return a hash of two numbers, by which random choices are equal in every run."""
    both = one.to_bytes(HASH_BYTES, "big") + other.to_bytes(HASH_BYTES, "big")
    return hashlib.blake2b(both, digest_size=HASH_BYTES).digest()
