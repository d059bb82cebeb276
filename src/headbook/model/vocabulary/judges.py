"""Judges, which compare last states of passes with heads taken away with those of a whole pass.

`Words` compares what a language-model head says; `headbook.model.vocabulary.statetargets` has the
judge of models without one.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np
import torch

from headbook.model.vocabulary.lens import Lens
from headbook.model.vocabulary.statetargets import States
from headbook.model.vocabulary.targets import DRAWS, Changes, Slope, Sums, Vectors, Weights, drawn
from headbook.terms import Side, Target
from headbook.text.batch import Batch
from headbook.text.texts import Texts

BLOCK = 1 << 24  # logits held at a time
MASKED = 0.15  # share of the ordinary tokens
BITS = 8  # bytes of a hash


@dataclass(frozen=True, eq=False)
class Words:
    """By what a language-model head says: of next tokens, or of masked ones.

    Attributes:
        side: whose tokens it names.
        mask: vocabulary token that stands in place of masked ones; None for next tokens.
        logits: whether logits of true tokens are compared, too.
    """

    lens: Lens
    side: Side
    mask: int | None
    logits: bool = False

    @property
    def targets(self) -> tuple[Target, ...]:
        """The loss, the divergence, and the logit where it is asked for."""
        loss = Target.LOSS if self.mask is None else Target.MASKED_LOSS
        return (loss, Target.KL, Target.LOGIT) if self.logits else (loss, Target.KL)

    @property
    def speaks(self) -> bool:
        """It does."""
        return True

    def prepared(self, batch: Batch) -> Batch:
        """With mask tokens where tokens are scored."""
        if self.mask is None:
            return batch
        texts = batch.texts[self.side]
        ids = torch.where(self._true(batch) >= 0, self.mask, texts.ids)
        return replace(batch, texts={**batch.texts, self.side: replace(texts, ids=ids)})

    def counts(self, batch: Batch) -> torch.Tensor:
        """Scored tokens, the same for all."""
        return (self._true(batch) >= 0).sum(1).expand(len(self.targets), -1)

    def full(self, batch: Batch, states: torch.Tensor) -> Sums:
        """The loss."""
        loss, _, _ = self._by_sentence(batch, self._by_token(batch, states[None]))
        return {self.targets[0]: loss[0]}

    def changes(self, batch: Batch, states: torch.Tensor, others: torch.Tensor) -> Changes:
        """Of loss and logit, and the divergence from what the whole model says."""
        by_token = self._by_token(batch, torch.cat([states[None], others]))
        loss, divergence, logit = self._by_sentence(batch, by_token)
        sums = loss[1:] - loss[0], divergence[1:], logit[1:] - logit[0]
        losses, _, logits = by_token
        return Changes(
            dict(zip(self.targets, sums, strict=False)),
            losses[1:] - losses[0],
            losses[0],
            logits[1:] - logits[0],
        )

    def with_other_weights(
        self, batch: Batch, states: torch.Tensor, others: torch.Tensor, weights: Weights
    ) -> Sums:
        """Of loss, divergence and logit; the language-model head has the other weights, too."""
        by_token = self._by_token(batch, torch.stack([states, others]), weights)
        loss, divergence, logit = self._by_sentence(batch, by_token)
        sums = loss[1] - loss[0], divergence[1], logit[1] - logit[0]
        return dict(zip(self.targets, sums, strict=False))

    def vectors(self, batch: Batch, states: torch.Tensor) -> Mapping[Target, Vectors]:
        """None: no target is a cosine."""
        del batch, states
        return {}

    def scored(self, batch: Batch) -> torch.Tensor:
        """Masked tokens, or those that follow a token."""
        places = (self._true(batch) >= 0).nonzero()
        return places + torch.tensor([0, int(self.mask is None)], device=places.device)

    def centred(self, batch: Batch, logits: torch.Tensor) -> torch.Tensor:
        """Logits of the true tokens above the mean of all. *Shape:* ``(scored token,)``.

        Args:
            logits: what the whole model says. *Shape:* ``(sentence, token, entry)``.
        """
        true = self._true(batch)
        chosen = true >= 0
        found: torch.Tensor = _centred(logits[chosen], true[chosen])
        return found

    def slopes(self, batch: Batch, model_output: Any, states: torch.Tensor) -> Iterator[Slope]:
        """The loss; and the log probability of tokens that the model itself draws.

        The mean of the square of its slope is the Fisher information, half of which along a change
        is the divergence to second order. Tokens are drawn one by one, so the slopes of different
        ones are independent with mean 0, and squares of sums are sums of squares.
        """
        del states
        true = self._true(batch)
        chosen = true >= 0
        logs = model_output.logits[chosen].log_softmax(-1)
        loss = -logs.gather(-1, true[chosen][:, None]).sum()
        yield Slope(self.targets[0], loss, squared=False)
        shares = logs.detach().double().exp().cumsum(-1)
        for draw in range(DRAWS):
            even = drawn(batch, draw, lambda rng: rng.random(true.shape[1]))
            points = torch.from_numpy(even).to(shares)[chosen][:, None]
            sampled = torch.searchsorted(shares, points * shares[:, -1:]).clamp(
                max=shares.shape[1] - 1
            )
            yield Slope(Target.KL, logs.gather(-1, sampled).sum(), squared=True)

    def _by_sentence(self, batch: Batch, by_token: torch.Tensor) -> torch.Tensor:
        """Sums over the scored tokens. *Shape:* ``(3, pass, sentence)``."""
        chosen = self._true(batch) >= 0
        sums = by_token.new_zeros((*by_token.shape[:2], len(chosen)))
        return sums.index_add_(2, chosen.nonzero()[:, 0], by_token)

    def _by_token(
        self, batch: Batch, states: torch.Tensor, weights: Weights | None = None
    ) -> torch.Tensor:
        """Loss, divergence from the first pass and logit. *Shape:* ``(3, pass, scored token)``.

        Args:
            weights: a block inside which logits of all passes but the first are made.
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
        """Logits of states. *Shapes:* ``(pass, row, width)``, ``(pass, row, entry)``."""
        found: torch.Tensor = self.lens.logits(rows.flatten(0, 1)).unflatten(0, rows.shape[:2])
        return found

    def _true(self, batch: Batch) -> torch.Tensor:
        """The tokens that are scored, where; -1 elsewhere. *Shape:* ``(sentence, token)``."""
        texts = batch.texts[self.side]
        if self.mask is None:
            return self.lens.targets(texts)
        return torch.where(_masked(batch, texts), texts.ids, -1)


def judge_of(
    lens: Lens | None, side: Side, mask: int | None, *, logits: bool = False, pooling: str = ""
) -> Words | States:
    """The judge of a model.

    Args:
        lens: its language-model head; None without one.
        side: of its last states.
        mask: its mask token; None where it has none.
        logits: whether logits of true tokens are compared, too, where there are any.
        pooling: of a sentence encoder; see `States`.
    """
    if lens is None or (not lens.causal and mask is None):
        return States(side, pooling)
    return Words(lens, side, None if lens.causal else mask, logits)


def _centred(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Logits of some entries above the mean of all."""
    return logits.gather(-1, ids[..., None])[..., 0] - logits.mean(-1)


def _masked(batch: Batch, texts: Texts) -> torch.Tensor:
    """The tokens that are masked: of each sentence those with the smallest hashes.

    *Shape:* ``(sentence, token)``, boolean; the same for equal sentences.
    """
    chosen = np.zeros(texts.ids.shape, dtype=bool)
    ordinary = texts.ordinary.cpu().numpy()
    for row, (key, there) in enumerate(zip(batch.content_hash, ordinary, strict=True)):
        places = np.flatnonzero(there)
        order = sorted(places, key=lambda place, key=key: _hash(int(key), int(place)))  # type: ignore[misc]
        chosen[row, order[: ceil(MASKED * len(places))]] = True
    return torch.from_numpy(chosen).to(texts.ids.device)


def _hash(key: int, place: int) -> bytes:
    parts: Iterator[bytes] = (number.to_bytes(BITS, "big") for number in (key, place))
    return hashlib.blake2b(b"".join(parts), digest_size=BITS).digest()
