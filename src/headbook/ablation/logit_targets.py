"""Ablation targets of models with a language-model head, and the choice of a model's targets."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np
import torch

from headbook.ablation.targets import (
    N_DRAWS,
    DifferentiableTarget,
    StateTargets,
    Sums,
    TargetChanges,
    TargetVectors,
    Weights,
    drawn,
    pair_hash,
)
from headbook.model.logit_lens import LogitLens
from headbook.schema import AblationTarget, Side
from headbook.text.batch import Batch, PaddedTexts

MAX_BLOCK_LOGITS = 1 << 24  # most logits in memory at a time
MASKED_SHARE = 0.15  # share of masked tokens among the ordinary ones


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

    @property
    def backward_passes(self) -> int:
        """One for the loss, and one for each draw of tokens."""
        return N_DRAWS + 1

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
        scored = (self._true(batch) >= 0).nonzero()
        return scored + torch.tensor([0, int(self.mask is None)], device=scored.device)

    def centred(self, batch: Batch, logits: torch.Tensor) -> torch.Tensor:
        """Return the true tokens' logits minus the mean of all. *Shape:* ``(scored token,)``.

        Args:
            batch: batch as it was before `prepare_batch`.
            logits: logits of the unablated pass. *Shape:* ``(sentence, token, entry)``.
        """
        true = self._true(batch)
        is_scored = true >= 0
        centred_logits: torch.Tensor = _centred(logits[is_scored], true[is_scored])
        return centred_logits

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
        is_scored = true >= 0
        logs = model_output.logits[is_scored].log_softmax(-1)
        loss = -logs.gather(-1, true[is_scored][:, None]).sum()
        yield DifferentiableTarget(self.targets[0], loss, squared=False)
        cumulative = logs.detach().double().exp().cumsum(-1)
        for draw in range(N_DRAWS):
            uniform = drawn(batch, draw, lambda rng: rng.random(true.shape[1]))
            points = torch.from_numpy(uniform).to(cumulative)[is_scored][:, None]
            sampled = torch.searchsorted(cumulative, points * cumulative[:, -1:]).clamp(
                max=cumulative.shape[1] - 1
            )
            yield DifferentiableTarget(
                AblationTarget.KL, logs.gather(-1, sampled).sum(), squared=True
            )

    def _by_sentence(self, batch: Batch, by_token: torch.Tensor) -> torch.Tensor:
        """Sum over the scored tokens of each sentence. *Shape:* ``(3, pass, sentence)``."""
        is_scored = self._true(batch) >= 0
        sums = by_token.new_zeros((*by_token.shape[:2], len(is_scored)))
        return sums.index_add_(2, is_scored.nonzero()[:, 0], by_token)

    def _by_token(
        self, batch: Batch, states: torch.Tensor, weights: Weights | None = None
    ) -> torch.Tensor:
        """Return the numbers of `losses_by_token` at the scored tokens of a batch."""
        return losses_by_token(self.lens, self._true(batch), states, weights)

    def _true(self, batch: Batch) -> torch.Tensor:
        """Return the true token of scored positions, else -1. *Shape:* ``(sentence, token)``."""
        texts = batch.texts[self.side]
        if self.mask is None:
            return self.lens.targets(texts)
        return torch.where(_masked(batch, texts), texts.ids, -1)


def losses_by_token(
    lens: LogitLens, true: torch.Tensor, states: torch.Tensor, weights: Weights | None = None
) -> torch.Tensor:
    """Return loss, KL divergence from the first pass, and centred logit at each scored token.

    *Shape:* ``(3, pass, scored token)``.

    Args:
        lens: language-model head.
        true: true token of scored positions, else -1. *Shape:* ``(sentence, token)``.
        states: final states. *Shape:* ``(pass, sentence, token, width)``.
        weights: context in which the logits of all passes but the first are computed.
    """
    is_scored = true >= 0
    block_tokens = max(1, MAX_BLOCK_LOGITS // lens.size // len(states))
    blocks = zip(
        states[:, is_scored].split(block_tokens, 1),
        true[is_scored].split(block_tokens),
        strict=True,
    )
    parts = [states.new_zeros((3, len(states), 0), dtype=torch.float64)]
    for rows, ids in blocks:
        if weights is None:
            logits = logits_of_passes(lens, rows)
        else:
            logits = logits_of_passes(lens, rows[:1])
            with weights():
                logits = torch.cat([logits, logits_of_passes(lens, rows[1:])])
        logs = logits.log_softmax(-1)
        loss = -logs.gather(-1, ids.expand(len(logs), -1)[..., None])[..., 0]
        divergence = (logs[:1].exp() * (logs[:1] - logs)).sum(-1)
        centred = _centred(logits, ids.expand(len(logs), -1))
        parts.append(torch.stack([loss, divergence, centred]).double())
    return torch.cat(parts, 2)


def logits_of_passes(lens: LogitLens, rows: torch.Tensor) -> torch.Tensor:
    """Return the logits of states. *Shapes:* ``(pass, row, width)``, ``(pass, row, entry)``."""
    logits: torch.Tensor = lens.logits(rows.flatten(0, 1)).unflatten(0, rows.shape[:2])
    return logits


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
    is_masked = np.zeros(texts.ids.shape, dtype=bool)
    ordinary = texts.ordinary.cpu().numpy()
    for row, (content_hash, is_ordinary) in enumerate(
        zip(batch.content_hash, ordinary, strict=True)
    ):
        positions = np.flatnonzero(is_ordinary)
        hashes = [pair_hash(int(content_hash), int(position)) for position in positions]
        order = sorted(range(len(hashes)), key=hashes.__getitem__)
        is_masked[row, positions[order[: ceil(MASKED_SHARE * len(positions))]]] = True
    return torch.from_numpy(is_masked).to(texts.ids.device)
