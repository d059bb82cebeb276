"""The logit lens: the model's path from its last layer to its logits, applied to any state.

No part of this path is known by name. The model runs unchanged, except that its layers return the
given states instead of computing: the logits are those of this architecture's final norm, head,
scaling and soft caps. Each state is a sequence of one token, since nothing after the last layer
mixes tokens.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from headbook.model.architecture import Architecture
from headbook.model.forward import model_inputs
from headbook.model.intervention import LayerSlot, layer_slots, skip_layers
from headbook.model.load import Model
from headbook.model.probe import hidden_states_of, probe_pass, some_token
from headbook.text.batch import Batch, PaddedTexts

MAX_BLOCK_LOGITS = 1 << 22  # logits in memory at a time: 16 MiB in float32
# Difference of logits, relative to the largest one, up to which the lens follows the model's own
# path. Rounding gives smaller differences, even in half precision.
MAX_LOGIT_ERROR = 0.1


class LensReadings(NamedTuple):
    """Readings of states by the logit lens, from `LogitLens.read`.

    Attributes:
        ranks: number of entries with a strictly higher logit than the true token; NaN without a
            true token and in the padding. *Shape:* ``(state, sentence, token)``.
        probabilities: probability of the true token; NaN without a true token and in the padding.
            *Shape:* ``(state, sentence, token)``.
        divergences: KL(final || lens) in nats; NaN in the padding. *Shape:* ``(state, sentence,
            token)``.
        ids: entries with the largest logits, largest first; 0 in the padding. *Shape:* ``(state,
            sentence, token, k)``.
        shares: probabilities of ``ids``; NaN in the padding. *Shape:* ``(state, sentence, token,
            k)``.
    """

    ranks: torch.Tensor
    probabilities: torch.Tensor
    divergences: torch.Tensor
    ids: torch.Tensor
    shares: torch.Tensor

    @classmethod
    def empty(cls, states: torch.Tensor, k: int) -> "LensReadings":
        """Return readings of NaN, to be filled."""
        per_token = states.new_full(states.shape[:3], torch.nan)
        per_entry = states.new_full((*states.shape[:3], k), torch.nan)
        return cls(
            per_token,
            per_token.clone(),
            per_token.clone(),
            torch.zeros_like(per_entry, dtype=torch.long),
            per_entry,
        )


@dataclass(frozen=True, eq=False)
class LogitLens:
    """Language-model head of a model, applicable to states of any layer.

    Attributes:
        model: the model.
        architecture: the model's architecture.
        stack: stack whose states the head reads: ``self`` or ``decoder``.
        slots: positions of all layers, by stack.
        size: number of entries of the head, including entries without a token.
    """

    model: Model
    architecture: Architecture
    stack: str
    slots: Mapping[str, Sequence[LayerSlot]]
    size: int = 0

    @property
    def causal(self) -> bool:
        """Whether the true token is the next token, not the token itself."""
        return self.architecture.stacks[self.stack].causal

    def targets(self, texts: PaddedTexts) -> torch.Tensor:
        """Return the true token at each position, or -1 without one.

        *Shape:* ``(sentence, token)``.
        """
        ids = texts.ids.masked_fill(~texts.valid, -1)
        if not self.causal:
            return ids
        return torch.cat([ids[:, 1:], torch.full_like(ids[:, :1], -1)], 1)

    def final_states(self, batch: Batch) -> torch.Tensor:
        """Return the output of the last layer in a pass. *Shape:* ``(sentence, token, width)``."""
        outputs: list[torch.Tensor] = []
        last_layer = self.architecture.layers[self.stack][-1]
        handle = last_layer.register_forward_hook(
            lambda _, __, output: outputs.append(hidden_states_of(output))
        )
        try:
            with torch.inference_mode():
                self.model.base_model(**model_inputs(batch))
        finally:
            handle.remove()
        return outputs[-1]

    def model_logits(self, batch: Batch) -> torch.Tensor:
        """Return the logits of the unchanged model. *Shape:* ``(sentence, token, entry)``."""
        with torch.inference_mode():
            logits: torch.Tensor = self.model.network(**model_inputs(batch)).logits
        return logits

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Return the model's logits for states as outputs of its last layer.

        Args:
            states: the states. *Shape:* ``(row, width)``.

        Returns:
            Logits in the dtype of the states. *Shape:* ``(row, entry)``.
        """
        model = self.model
        sequence_states = states.to(model.device, next(model.network.parameters()).dtype).unsqueeze(
            1
        )
        ids = torch.full((len(states), 1), some_token(model), device=model.device)
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if model.config.is_encoder_decoder:
            inputs["decoder_input_ids"] = ids
        with torch.inference_mode(), ExitStack() as layers:
            for name, slots in self.slots.items():
                replacement = sequence_states if name == self.stack else None
                layers.enter_context(skip_layers(slots, replacement))
            logits: torch.Tensor = model.network(**inputs).logits
        return logits[:, 0].to(states.dtype)

    def read(
        self, states: torch.Tensor, final: torch.Tensor, texts: PaddedTexts, k: int
    ) -> LensReadings:
        """Compare the lens at every state with the true token and the final distribution.

        Args:
            states: the states. *Shape:* ``(state, sentence, token, width)``.
            final: output of the last layer. *Shape:* ``(sentence, token, width)``.
            texts: the tokens.
            k: number of largest logits to return.
        """
        readings, n_states = LensReadings.empty(states, k), len(states)
        valid_states, true_ids = states[:, texts.valid], self.targets(texts)[texts.valid]
        block_rows = max(1, MAX_BLOCK_LOGITS // self.size // (n_states + 1))
        blocks = zip(
            valid_states.split(block_rows, 1),
            final[texts.valid].split(block_rows),
            true_ids.split(block_rows),
            strict=True,
        )
        block_readings = [self._read(*block, k) for block in blocks]
        for values, *block_values in zip(readings, *block_readings, strict=True):
            values[:, texts.valid] = torch.cat(block_values, 1)
        return readings

    def _read(
        self, rows: torch.Tensor, final: torch.Tensor, true_ids: torch.Tensor, k: int
    ) -> LensReadings:
        """Read a block. *Shapes:* ``(state, row, width)``, ``(row, width)``, ``(row,)``."""
        rows_and_final = torch.cat([rows, final[None].to(rows)])
        logits = self.logits(rows_and_final.flatten(0, 1)).unflatten(0, rows_and_final.shape[:2])
        logs = logits.log_softmax(-1)
        final_logs, logs, logits = logs[-1], logs[:-1], logits[:-1]
        largest = logits.topk(k)
        true_index = true_ids.clamp(min=0).expand(len(logits), -1)[..., None]
        ranks = (logits > logits.gather(-1, true_index)).sum(-1)
        has_true = true_ids >= 0
        divergence = (final_logs.exp() * (final_logs - logs)).sum(-1)
        # Below the rounding of its terms, machines would disagree on whether it is 0.
        rounding = torch.finfo(logs.dtype).eps * math.log(self.size)
        return LensReadings(
            ranks.to(logs).masked_fill(~has_true, torch.nan),
            logs.gather(-1, true_index).squeeze(-1).exp().masked_fill(~has_true, torch.nan),
            divergence.masked_fill(divergence < rounding, 0),
            largest.indices,
            logs.gather(-1, largest.indices).exp(),
        )


class NoLogitLens(NamedTuple):
    """Reason why a model has no logit lens."""

    why: str


def make_logit_lens(model: Model, architecture: Architecture) -> LogitLens | NoLogitLens:
    """Return the logit lens of a model, tested on one state, or the reason why it has none."""
    if model.headless:
        return NoLogitLens(model.headless)
    if not architecture.layers:
        return NoLogitLens("the layers of this architecture do not hand on one vector a token")
    stack = "decoder" if "decoder" in architecture.layers else "self"
    lens = LogitLens(model, architecture, stack, layer_slots(model, architecture))
    width = lens.slots[stack][-1].width
    try:
        logits = lens.logits(torch.zeros(1, width, device=model.device))
    except (RuntimeError, TypeError, ValueError, AttributeError, LookupError) as error:
        first_line = str(error).partition("\n")[0]
        return NoLogitLens(
            f"the head of '{model.config.model_type}' does not run alone ({first_line})"
        )
    if not _reads_last_layer(lens):
        if not logits.isfinite().all():
            return NoLogitLens(
                f"the head of '{model.config.model_type}' gives infinite or missing numbers: see "
                "that its weights are whole"
            )
        return NoLogitLens(
            f"the head of '{model.config.model_type}' reads more than its last layer"
        )
    return replace(lens, size=logits.shape[-1])


def _reads_last_layer(lens: LogitLens) -> bool:
    """Whether logits depend on the last layer's states alone, tested on a few tokens.

    The tokens differ from the token that the lens uses.
    """
    outputs: list[torch.Tensor] = []
    last_layer = lens.architecture.layers[lens.stack][-1]
    handle = last_layer.register_forward_hook(
        lambda _, __, output: outputs.append(hidden_states_of(output))
    )
    try:
        model_logits = probe_pass(lens.model, number=1, whole=True).logits[0]
    finally:
        handle.remove()
    lens_logits = lens.logits(outputs[-1][0])
    return bool(
        (lens_logits - model_logits).abs().max() <= MAX_LOGIT_ERROR * model_logits.abs().max()
    )
