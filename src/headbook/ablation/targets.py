"""What of the model's output is compared.

Loss, KL divergence, logit of the true token, last states.

A judge prepares a batch, says which tokens it scores, and turns last states into the targets of
`headbook.schema.AblationTarget`: sums over the scored tokens of each sentence, in double precision.

`LogitTargets` compares what a language-model head says; `headbook.ablation.targets` has the
judge of models without one.
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

DRAWS = 4  # for targets that have no slope

Sums = Mapping[AblationTarget, torch.Tensor]
Weights = Callable[[], AbstractContextManager[None]]


class TargetChanges(NamedTuple):
    """How targets change from the whole pass to others.

    Attributes:
        sums: over the scored tokens of each sentence. *Shape:* ``(pass, sentence)`` each.
        tokens: of loss or state at each scored token. *Shape:* ``(pass, scored token)``.
        before: the loss there in the whole pass, 0 for states. *Shape:* ``(scored token,)``.
        logits: of the true token's logit, above the mean of all; NaN without a language-model head.
            The same shape as ``tokens``.
    """

    sums: Sums
    tokens: torch.Tensor
    before: torch.Tensor
    logits: torch.Tensor


class DifferentiableTarget(NamedTuple):
    """A number of a batch whose slopes tell how a target changes.

    Attributes:
        value: a sum over the scored tokens of all sentences, with its graph.
        squared: whether a target's change is half the square of what the slopes say, on average
            over draws (targets that are smallest for the whole model have no slope of their own);
            else it is what they say.
    """

    target: AblationTarget
    value: torch.Tensor
    squared: bool


class TargetVectors(NamedTuple):
    """Vectors of the tokens or texts of a batch.

    Attributes:
        vectors: *Shape:* ``(vector, width)``.
        sentence: row of the batch that each belongs to. *Shape:* ``(vector,)``.
    """

    vectors: torch.Tensor
    sentence: torch.Tensor


class TargetFunctions(Protocol):
    """Compares last states of passes with heads taken away with those of a whole pass."""

    @property
    def side(self) -> Side:
        """Whose tokens or states it compares."""

    @property
    def targets(self) -> tuple[AblationTarget, ...]:
        """What it compares."""

    @property
    def needs_lm_head(self) -> bool:
        """Whether it needs the language-model head."""

    def prepare_batch(self, batch: Batch) -> Batch:
        """The batch that the model is to read."""

    def n_scored(self, batch: Batch) -> torch.Tensor:
        """Tokens of each sentence that are scored. *Shape:* ``(target, sentence)``."""

    def unablated(self, batch: Batch, states: torch.Tensor) -> Sums:
        """The targets of the whole pass that are sums of their own: losses.

        Args:
            states: *Shape:* ``(sentence, token, width)``.

        Returns:
            *Shape:* ``(sentence,)`` each.
        """

    def changes(self, batch: Batch, states: torch.Tensor, others: torch.Tensor) -> TargetChanges:
        """How the targets change.

        Args:
            batch: as it was before `prepare_batch`.
            states: of the whole pass. *Shape:* ``(sentence, token, width)``.
            others: *Shape:* ``(pass, sentence, token, width)``.
        """

    def scored(self, batch: Batch) -> torch.Tensor:
        """Sentence and position of each token that scores are about.

        *Shape:* ``(scored token, 2)``, in the order of `TargetChanges.tokens`.
        """

    def with_other_weights(
        self, batch: Batch, states: torch.Tensor, others: torch.Tensor, weights: Weights
    ) -> Sums:
        """How the targets change from one network to the same with other weights.

        Args:
            states: of the whole pass. *Shape:* ``(sentence, token, width)``.
            others: with the other weights. *Shape:* ``(sentence, token, width)``.
            weights: a block inside which the network has the other weights.

        Returns:
            Sums over the scored tokens of each sentence, *shape* ``(sentence,)`` each.
        """

    def vectors(self, batch: Batch, states: torch.Tensor) -> Mapping[AblationTarget, TargetVectors]:
        """The vectors whose cosines are targets.

        Args:
            states: of the whole pass. *Shape:* ``(sentence, token, width)``.
        """

    def differentiable(
        self, batch: Batch, model_output: Any, states: torch.Tensor
    ) -> Iterator[DifferentiableTarget]:
        """What to differentiate in one pass; random draws come from the sentences' hashes.

        Args:
            model_output: what the model returned.
            states: what left its last layer.
        """


def drawn(
    batch: Batch, draw: int, take: Callable[[np.random.Generator], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Random numbers of each sentence, whatever batch it stands in and however it is padded."""
    return np.stack([take(np.random.default_rng([int(key), draw])) for key in batch.content_hash])


def pooled(states: torch.Tensor, valid: torch.Tensor, pooling: str) -> torch.Tensor:
    """Return one vector for each sentence; its length has no meaning.

    Args:
        states: *Shape:* ``(*passes, sentence, token, width)``.
        valid: real tokens, padding left out. *Shape:* ``(sentence, token)``.
        pooling: as in `MODES`.

    Returns:
        *Shape:* ``(*passes, sentence, width)``.
    """
    if pooling == MAX:
        lowest = torch.finfo(states.dtype).min
        return states.masked_fill(~valid[..., None], lowest).amax(-2)
    weights = valid.to(states)
    place = weights.cumsum(-1) * weights  # from 1; padding may stand on either side
    if pooling == CLS:
        weights = (place == 1).to(states)
    elif pooling == LAST:
        weights = ((place > 0) & (place == place.amax(-1, keepdim=True))).to(states)
    elif pooling == WEIGHTED:
        weights = place
    return (states * weights[..., None]).sum(-2)


@dataclass(frozen=True, eq=False)
class StateTargets:
    """Ablation targets of models without a language-model head: cosines of last states.

    Attributes:
        side: whose states they are.
        pooling: of a sentence encoder, whose sentence vectors are its answer and its first target;
            empty for other models.
    """

    side: Side
    pooling: str = ""

    @property
    def targets(self) -> tuple[AblationTarget, ...]:
        """Tokens' states and texts' vectors; the latter first for sentence encoders."""
        found = (AblationTarget.STATE, AblationTarget.EMBEDDING)
        return found[::-1] if self.pooling else found

    @property
    def needs_lm_head(self) -> bool:
        """It does not."""
        return False

    def prepare_batch(self, batch: Batch) -> Batch:
        """The batch itself."""
        return batch

    def n_scored(self, batch: Batch) -> torch.Tensor:
        """Number of tokens for states, one for texts."""
        tokens = batch.texts[self.side].valid.sum(1)
        counts = {AblationTarget.STATE: tokens, AblationTarget.EMBEDDING: torch.ones_like(tokens)}
        return torch.stack([counts[target] for target in self.targets])

    def unablated(self, batch: Batch, states: torch.Tensor) -> Sums:
        """None."""
        del batch, states
        return {}

    def changes(self, batch: Batch, states: torch.Tensor, others: torch.Tensor) -> TargetChanges:
        """1 minus cosines."""
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
        """Changes of states and texts; nothing is computed with the weights behind the states."""
        del weights
        return {
            name: each[0] for name, each in self.changes(batch, states, others[None]).sums.items()
        }

    def vectors(self, batch: Batch, states: torch.Tensor) -> Mapping[AblationTarget, TargetVectors]:
        """States of real tokens, and texts."""
        there = batch.texts[self.side].valid
        texts = pooled(states, there, self.pooling or MEAN)
        rows = torch.arange(len(there), device=there.device)
        return {
            AblationTarget.STATE: TargetVectors(states[there], there.nonzero()[:, 0]),
            AblationTarget.EMBEDDING: TargetVectors(texts, rows),
        }

    def scored(self, batch: Batch) -> torch.Tensor:
        """All tokens."""
        return batch.texts[self.side].valid.nonzero()

    def differentiable(
        self, batch: Batch, model_output: Any, states: torch.Tensor
    ) -> Iterator[DifferentiableTarget]:
        """Unit vectors in random directions: half their squared change is 1 minus the cosine."""
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


BLOCK = 1 << 24  # logits held at a time
MASKED = 0.15  # share of the ordinary tokens
BITS = 8  # bytes of a hash


@dataclass(frozen=True, eq=False)
class LogitTargets:
    """By what a language-model head says: of next tokens, or of masked ones.

    Attributes:
        side: whose tokens it names.
        mask: vocabulary token that stands in place of masked ones; None for next tokens.
        logits: whether logits of true tokens are compared, too.
    """

    lens: LogitLens
    side: Side
    mask: int | None
    logits: bool = False

    @property
    def targets(self) -> tuple[AblationTarget, ...]:
        """The loss, the divergence, and the logit where it is asked for."""
        loss = AblationTarget.LOSS if self.mask is None else AblationTarget.MASKED_LOSS
        return (
            (loss, AblationTarget.KL, AblationTarget.LOGIT)
            if self.logits
            else (loss, AblationTarget.KL)
        )

    @property
    def needs_lm_head(self) -> bool:
        """It does."""
        return True

    def prepare_batch(self, batch: Batch) -> Batch:
        """With mask tokens where tokens are scored."""
        if self.mask is None:
            return batch
        texts = batch.texts[self.side]
        ids = torch.where(self._true(batch) >= 0, self.mask, texts.ids)
        return replace(batch, texts={**batch.texts, self.side: replace(texts, ids=ids)})

    def n_scored(self, batch: Batch) -> torch.Tensor:
        """Scored tokens, the same for all."""
        return (self._true(batch) >= 0).sum(1).expand(len(self.targets), -1)

    def unablated(self, batch: Batch, states: torch.Tensor) -> Sums:
        """The loss."""
        loss, _, _ = self._by_sentence(batch, self._by_token(batch, states[None]))
        return {self.targets[0]: loss[0]}

    def changes(self, batch: Batch, states: torch.Tensor, others: torch.Tensor) -> TargetChanges:
        """Of loss and logit, and the divergence from what the whole model says."""
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
        """Of loss, divergence and logit; the language-model head has the other weights, too."""
        by_token = self._by_token(batch, torch.stack([states, others]), weights)
        loss, divergence, logit = self._by_sentence(batch, by_token)
        sums = loss[1] - loss[0], divergence[1], logit[1] - logit[0]
        return dict(zip(self.targets, sums, strict=False))

    def vectors(self, batch: Batch, states: torch.Tensor) -> Mapping[AblationTarget, TargetVectors]:
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

    def differentiable(
        self, batch: Batch, model_output: Any, states: torch.Tensor
    ) -> Iterator[DifferentiableTarget]:
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


def target_functions(
    lens: LogitLens | None, side: Side, mask: int | None, *, logits: bool = False, pooling: str = ""
) -> LogitTargets | StateTargets:
    """The judge of a model.

    Args:
        lens: its language-model head; None without one.
        side: of its last states.
        mask: its mask token; None where it has none.
        logits: whether logits of true tokens are compared, too, where there are any.
        pooling: of a sentence encoder; see `StateTargets`.
    """
    if lens is None or (not lens.causal and mask is None):
        return StateTargets(side, pooling)
    return LogitTargets(lens, side, None if lens.causal else mask, logits)


def _centred(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Logits of some entries above the mean of all."""
    return logits.gather(-1, ids[..., None])[..., 0] - logits.mean(-1)


def _masked(batch: Batch, texts: PaddedTexts) -> torch.Tensor:
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
