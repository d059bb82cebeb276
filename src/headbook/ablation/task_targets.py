"""Ablation targets of tasks: labels of classifiers, minimal pairs, and answers to prompts.

Each class computes a *penalty* of every observation, which is high if the model does badly: the
cross-entropy of a label, or minus a difference of log probabilities or logits. The change of a
target is the penalty of the ablated pass minus that of the unablated one, so a change above 0
always means that the task gets worse.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from headbook.ablation.logit_targets import logits_of_passes, losses_by_token
from headbook.ablation.targets import (
    DifferentiableTarget,
    Sums,
    TargetChanges,
    TargetVectors,
    Weights,
)
from headbook.analysis.arrays import Ints
from headbook.model.forward import model_inputs
from headbook.model.intervention import LayerSlot, PatchableModel, skip_layers
from headbook.model.load import Model
from headbook.model.logit_lens import MAX_LOGIT_ERROR, LogitLens
from headbook.schema import AblationTarget, Side
from headbook.text.batch import Batch, PaddedTexts
from headbook.text.tokens import NO_WORD, TokenizedText

# Targets whose penalty is minus the number that pages print.
NEGATED = {AblationTarget.ACCURACY, AblationTarget.PREFERENCE, AblationTarget.ANSWER}
NO_CLASS = -1  # of texts and tokens without a label


class TaskTargets(ABC):
    """Targets of one task; subclasses say which observations there are, and their penalties."""

    targets: tuple[AblationTarget, ...]
    side = Side.SOURCE
    needs_lm_head = True
    backward_passes = 1

    @abstractmethod
    def scored(self, batch: Batch) -> torch.Tensor:
        """Return sentence and position of each observation. *Shape:* ``(observation, 2)``."""

    @abstractmethod
    def penalties(self, batch: Batch, states: torch.Tensor) -> torch.Tensor:
        """Return penalties in double precision. *Shape:* ``(target, pass, observation)``.

        Args:
            batch: batch as it was before `prepare_batch`.
            states: final states. *Shape:* ``(pass, row, token, width)``.
        """

    @abstractmethod
    def differentiable(
        self, batch: Batch, model_output: Any, states: torch.Tensor
    ) -> Iterator[DifferentiableTarget]:
        """Yield the summed penalty of the first target."""

    def prepare_batch(self, batch: Batch) -> Batch:
        """Return the batch unchanged."""
        return batch

    def n_scored(self, batch: Batch) -> torch.Tensor:
        """Return the number of observations of each sentence, equal for all targets."""
        rows = self.scored(batch)[:, 0]
        return torch.bincount(rows, minlength=len(batch.index)).expand(len(self.targets), -1)

    def unablated(self, batch: Batch, states: torch.Tensor) -> Sums:
        """Return the numbers of the unablated pass, with the sign in which pages print them."""
        sums = self._sums(batch, self.penalties(batch, states[None]))[:, 0]
        return {
            target: -of_target if target in NEGATED else of_target
            for target, of_target in zip(self.targets, sums, strict=True)
        }

    def changes(self, batch: Batch, states: torch.Tensor, others: torch.Tensor) -> TargetChanges:
        """Return how much worse the other passes are; ``before`` is as in `unablated`."""
        penalties = self.penalties(batch, torch.cat([states[None], others]))
        changes = penalties[:, 1:] - penalties[:, :1]
        sums = dict(zip(self.targets, self._sums(batch, changes), strict=True))
        before = penalties[0, 0] * (-1 if self.targets[0] in NEGATED else 1)
        return TargetChanges(sums, changes[0], before, torch.full_like(changes[0], torch.nan))

    def with_other_weights(
        self, batch: Batch, states: torch.Tensor, others: torch.Tensor, weights: Weights
    ) -> Sums:
        """Return the changes of all targets, with the other weights of the head as well."""
        before = self.penalties(batch, states[None])
        with weights():
            after = self.penalties(batch, others[None])
        return dict(zip(self.targets, self._sums(batch, after - before)[:, 0], strict=True))

    def vectors(self, batch: Batch, states: torch.Tensor) -> Mapping[AblationTarget, TargetVectors]:
        """Return no vectors, since no target is a cosine."""
        del batch, states
        return {}

    def _sums(self, batch: Batch, penalties: torch.Tensor) -> torch.Tensor:
        """Sum over the observations of each sentence. *Shape:* ``(target, pass, sentence)``."""
        sums = penalties.new_zeros((*penalties.shape[:2], len(batch.index)))
        return sums.index_add_(2, self.scored(batch)[:, 0], penalties)


@dataclass(frozen=True, eq=False)
class LabelTargets(TaskTargets):
    """Cross-entropy and accuracy of the labels of a classification head.

    Attributes:
        model: model with a classification head.
        slots: positions of all layers, which are skipped to read the head.
        classes: class of a text (one number), or of each of its tokens, by index of the sentence;
            `NO_CLASS` without a label.
        by_token: whether the head classifies tokens.
        causal: whether a query sees only earlier tokens, so that the last token is classified.
    """

    model: Model
    slots: Sequence[LayerSlot]
    classes: Mapping[int, Ints]
    by_token: bool
    causal: bool
    targets = (AblationTarget.LABEL, AblationTarget.ACCURACY)

    def prepare_batch(self, batch: Batch) -> Batch:
        """Return the batch with the padding token in the padding, by which heads find the end."""
        padding = self.model.config.pad_token_id
        if self.by_token or not self.causal or padding is None:
            return batch
        texts = batch.texts[self.side]
        ids = torch.where(texts.valid, texts.ids, padding)
        return replace(batch, texts={**batch.texts, self.side: replace(texts, ids=ids)})

    def scored(self, batch: Batch) -> torch.Tensor:
        """Return the labelled tokens; of texts, the first token, or the last one if causal."""
        if self.by_token:
            return (self._true(batch) >= 0).nonzero()
        valid = batch.texts[self.side].valid
        rows = torch.arange(len(valid), device=valid.device)
        return torch.stack([rows, (valid.sum(1) - 1) * int(self.causal)], 1)

    def logits(self, batch: Batch, states: torch.Tensor) -> torch.Tensor:
        """Return the logits of all classes for final states.

        *Shape:* ``(pass, row, token, class)``, with one token if texts are classified.
        """
        copies = self.prepare_batch(batch).repeated(len(states))
        with torch.inference_mode(), ExitStack() as layers:
            layers.enter_context(skip_layers(self.slots, states.flatten(0, 1)))
            logits: torch.Tensor = self.model.network(**model_inputs(copies)).logits
        by_pass: torch.Tensor = self._by_token(logits).double().unflatten(0, states.shape[:2])
        return by_pass

    def penalties(self, batch: Batch, states: torch.Tensor) -> torch.Tensor:
        """Return cross-entropies, and -1 for each label that is right."""
        true = self._true(batch)
        is_scored = true >= 0
        logits = self.logits(batch, states)[:, is_scored]
        classes = true[is_scored].expand(len(logits), -1)
        loss = -logits.log_softmax(-1).gather(-1, classes[..., None])[..., 0]
        right = (logits.argmax(-1) == classes).double()
        return torch.stack([loss, -right])

    def differentiable(
        self, batch: Batch, model_output: Any, states: torch.Tensor
    ) -> Iterator[DifferentiableTarget]:
        """Yield the cross-entropy of all labels."""
        del states
        true = self._true(batch)
        logits = self._by_token(model_output.logits)[true >= 0]
        loss = torch.nn.functional.cross_entropy(logits, true[true >= 0], reduction="sum")
        yield DifferentiableTarget(AblationTarget.LABEL, loss, squared=False)

    def _by_token(self, logits: torch.Tensor) -> torch.Tensor:
        return logits if self.by_token else logits[:, None]

    def _true(self, batch: Batch) -> torch.Tensor:
        """Return the class of each token, or of each text. *Shape:* ``(row, token)``."""
        width = batch.texts[self.side].n_tokens if self.by_token else 1
        true = np.full((len(batch.index), width), NO_CLASS)
        for row, index in enumerate(batch.index):
            classes = self.classes[int(index)]
            true[row, : len(classes)] = classes
        return torch.from_numpy(true).to(self.model.device)


def reads_last_layer(targets: LabelTargets, heads: PatchableModel, batch: Batch) -> bool:
    """Whether the classification head depends on the states of the last layer alone."""
    prepared = targets.prepare_batch(batch)
    final = heads.states(prepared).after[heads.read][-1]
    with torch.inference_mode():
        own = targets.model.network(**model_inputs(prepared)).logits
    read = targets.logits(batch, final[None])[0]
    if targets.by_token:
        valid = batch.texts[targets.side].valid
        own, read = own[valid], read[valid]
    else:
        own = own[:, None]
    return bool((read - own).abs().max() <= MAX_LOGIT_ERROR * own.abs().max())


@dataclass(frozen=True, eq=False)
class AnswerTargets(TaskTargets):
    """Logit of the answer minus that of the wrong answer, at the last token or the mask token.

    Attributes:
        lens: language-model head.
        answers: tokens of the answer and of the wrong answer, by index of the sentence.
        mask: vocabulary index of the mask token, whose first occurrence is read; None for the last
            token of the text.
    """

    lens: LogitLens
    answers: Mapping[int, tuple[int, int]]
    mask: int | None
    targets = (AblationTarget.ANSWER,)

    def scored(self, batch: Batch) -> torch.Tensor:
        """Return the token of each text after which, or at which, the answer stands."""
        texts = batch.texts[self.side]
        candidates = texts.ordinary if self.mask is None else texts.ids == self.mask
        places = torch.arange(texts.n_tokens, device=texts.ids.device).expand_as(texts.ids)
        if self.mask is None:
            positions = torch.where(candidates, places, -1).amax(1)
        else:
            positions = torch.where(candidates, places, texts.n_tokens).amin(1)
        return torch.stack([torch.arange(len(places), device=places.device), positions], 1)

    def penalties(self, batch: Batch, states: torch.Tensor) -> torch.Tensor:
        """Return the logit of the wrong answer minus that of the answer."""
        row, position = self.scored(batch).T
        logits = logits_of_passes(self.lens, states[:, row, position]).double()
        return -self._differences(batch, logits)[None]

    def differentiable(
        self, batch: Batch, model_output: Any, states: torch.Tensor
    ) -> Iterator[DifferentiableTarget]:
        """Yield minus the difference of the logits."""
        del states
        row, position = self.scored(batch).T
        difference = self._differences(batch, model_output.logits[row, position])
        yield DifferentiableTarget(AblationTarget.ANSWER, -difference.sum(), squared=False)

    def _differences(self, batch: Batch, logits: torch.Tensor) -> torch.Tensor:
        """Return differences of logits. *Shapes:* ``(..., row, entry)`` to ``(..., row)``."""
        pairs = [self.answers[int(index)] for index in batch.index]
        answer, wrong = torch.tensor(pairs, device=logits.device).T
        rows = torch.arange(len(pairs), device=logits.device)
        return logits[..., rows, answer] - logits[..., rows, wrong]


@dataclass(frozen=True, eq=False)
class PairRows:
    """Rows in which a model reads the sentences of pairs, one or several for each sentence.

    Attributes:
        batch: the rows as a batch.
        true: true token of scored positions, else -1. *Shape:* ``(row, token)``.
        pair: number of each row's pair in the batch of pairs. *Shape:* ``(row,)``.
        sign: 1 for acceptable sentences, -1 for others. *Shape:* ``(row,)``.
    """

    batch: Batch
    true: torch.Tensor
    pair: torch.Tensor
    sign: torch.Tensor


@dataclass(frozen=True, eq=False)
class PreferenceTargets(TaskTargets):
    """Log probability of the acceptable sentence of a minimal pair minus that of the other.

    An item is a pair: its source is the acceptable sentence, its target the other one. Masked
    models score a sentence by its pseudo-log-likelihood (Salazar et al. 2020), with all pieces of
    a word masked together (Kauf & Ivanova 2023): one row for each word.

    Attributes:
        lens: language-model head.
        mask: vocabulary index of the mask token; None for next tokens.
    """

    lens: LogitLens
    mask: int | None
    targets = (AblationTarget.PREFERENCE,)

    def prepare_batch(self, batch: Batch) -> Batch:
        """Return the sentences of all pairs, once each, or once for each masked word."""
        return self.rows(batch).batch

    def scored(self, batch: Batch) -> torch.Tensor:
        """Return the first token of each acceptable sentence that the other sentence lacks."""
        positions = [_first_difference(*item.tokens.values()) for item in batch.items]
        numbers = torch.arange(len(positions))
        return torch.stack([numbers, torch.tensor(positions)], 1).to(self.lens.model.device)

    def penalties(self, batch: Batch, states: torch.Tensor) -> torch.Tensor:
        """Return the log probability of the other sentence minus that of the acceptable one."""
        rows = self.rows(batch)
        loss = losses_by_token(self.lens, rows.true, states)[0]
        row = (rows.true >= 0).nonzero()[:, 0]
        sums = loss.new_zeros((len(states), len(batch.index)))
        return sums.index_add_(1, rows.pair[row], loss * rows.sign[row])[None]

    def differentiable(
        self, batch: Batch, model_output: Any, states: torch.Tensor
    ) -> Iterator[DifferentiableTarget]:
        """Yield minus the difference of the log probabilities."""
        del states
        rows = self.rows(batch)
        is_scored = rows.true >= 0
        logs = model_output.logits[is_scored].log_softmax(-1)
        loss = -logs.gather(-1, rows.true[is_scored][:, None])[:, 0]
        signed = loss * rows.sign[is_scored.nonzero()[:, 0]]
        yield DifferentiableTarget(AblationTarget.PREFERENCE, signed.sum(), squared=False)

    def rows(self, batch: Batch) -> PairRows:
        """Return the rows in which the model reads the pairs of a batch."""
        texts, pairs, signs, hidden = [], [], [], []
        for side, sign in ((Side.SOURCE, 1), (Side.TARGET, -1)):
            for number, item in enumerate(batch.items):
                text = item.tokens[side]
                for positions in masked_words(text) if self.mask is not None else [()]:
                    texts.append(text)
                    pairs.append(number)
                    signs.append(sign)
                    hidden.append(positions)
        own = batch.texts[self.side]
        padded = PaddedTexts.of(texts, own.ids.device, own.share.dtype, own.scheme)
        if self.mask is None:
            following = torch.nn.functional.pad(padded.ordinary[:, 1:], (0, 1))
            true = torch.where(following, self.lens.targets(padded), -1)
        else:
            masked = torch.zeros_like(padded.valid)
            for row, positions in enumerate(hidden):
                masked[row, list(positions)] = True
            true = torch.where(masked, padded.ids, -1)
            padded = replace(padded, ids=torch.where(masked, self.mask, padded.ids))
        items = tuple(batch.items[number] for number in pairs)
        prepared = Batch(items, {self.side: padded}, batch.index[pairs], batch.content_hash[pairs])
        columns = (torch.tensor(numbers, device=true.device) for numbers in (pairs, signs))
        return PairRows(prepared, true, *columns)


def masked_words(text: TokenizedText) -> list[tuple[int, ...]]:
    """Return the positions that are masked together: those of each word, and of other tokens."""
    words: dict[tuple[int, int], list[int]] = {}
    for position in np.flatnonzero(~text.special):
        word = int(text.word[position])
        key = (word, 0) if word != NO_WORD else (NO_WORD, int(position))
        words.setdefault(key, []).append(int(position))
    return [tuple(positions) for positions in words.values()]


def _first_difference(first: TokenizedText, second: TokenizedText) -> int:
    """Return the first position of a text whose token differs from that of another text."""
    shorter = min(len(first), len(second))
    differs = np.flatnonzero(first.ids[:shorter] != second.ids[:shorter])
    return int(differs[0]) if len(differs) else min(shorter, len(first) - 1)
