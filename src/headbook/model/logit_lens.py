"""The logit lens: the model's own way from its last layer to its logits, for any state.

Nothing of that way is known by name. The model runs as it is, except that its layers hand on the
given states instead of computing: what comes out is what final norm, head, scaling and soft caps
of this architecture make of them. Each state stands in a sequence of its own, one token long,
since nothing after the last layer looks across tokens.
"""

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

BLOCK = 1 << 22  # logits held at a time
NEAR = 0.1  # of the largest logit: another way to the logits, not rounding; that is checked later


class LensReadings(NamedTuple):
    """What the lens shows of states; see `LogitLens.read`.

    Attributes:
        ranks: entries with a strictly higher logit than the true token. *Shape:*
            ``(state, sentence, token)``; NaN where there is no true token, and in the padding.
        probabilities: of the true token; likewise.
        divergences: KL(final || lens) in nats. The same shape; NaN in the padding.
        ids: the entries with the largest logits, largest first. *Shape:*
            ``(state, sentence, token, k)``; 0 in the padding.
        shares: their probabilities, of the same shape; NaN in the padding.
    """

    ranks: torch.Tensor
    probabilities: torch.Tensor
    divergences: torch.Tensor
    ids: torch.Tensor
    shares: torch.Tensor

    @classmethod
    def empty(cls, states: torch.Tensor, k: int) -> "LensReadings":
        """Nothing read yet."""
        one = states.new_full(states.shape[:3], torch.nan)
        many = states.new_full((*states.shape[:3], k), torch.nan)
        return cls(one, one.clone(), one.clone(), torch.zeros_like(many, dtype=torch.long), many)


@dataclass(frozen=True, eq=False)
class LogitLens:
    """The language-model head of a model, ready for states of any layer.

    Attributes:
        stack: whose layer outputs the head reads: ``self`` or ``decoder``.
        slots: the places of all layers, by stack.
        size: number of entries that the head knows, those without a token included.
    """

    model: Model
    architecture: Architecture
    stack: str
    slots: Mapping[str, Sequence[LayerSlot]]
    size: int = 0

    @property
    def causal(self) -> bool:
        """Whether the true token is the next one, not the token itself."""
        return self.architecture.stacks[self.stack].causal

    def targets(self, texts: PaddedTexts) -> torch.Tensor:
        """The token that the head should name at each place; -1 where there is none.

        *Shape:* ``(sentence, token)``.
        """
        ids = texts.ids.masked_fill(~texts.valid, -1)
        if not self.causal:
            return ids
        return torch.cat([ids[:, 1:], torch.full_like(ids[:, :1], -1)], 1)

    def final_states(self, batch: Batch) -> torch.Tensor:
        """What leaves the last layer, seen in a pass. *Shape:* ``(sentence, token, width)``."""
        left: list[torch.Tensor] = []
        last = self.architecture.layers[self.stack][-1]
        handle = last.register_forward_hook(
            lambda _, __, output: left.append(hidden_states_of(output))
        )
        try:
            with torch.inference_mode():
                self.model.base_model(**model_inputs(batch))
        finally:
            handle.remove()
        return left[-1]

    def model_logits(self, batch: Batch) -> torch.Tensor:
        """What the whole model says. *Shape:* ``(sentence, token, entry)``."""
        with torch.inference_mode():
            logits: torch.Tensor = self.model.network(**model_inputs(batch)).logits
        return logits

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """The model's logits if these states left its last layer.

        Args:
            states: *Shape:* ``(row, width)``.

        Returns:
            *Shape:* ``(row, entry)``, in the dtype of the states.
        """
        model = self.model
        given = states.to(model.device, next(model.network.parameters()).dtype).unsqueeze(1)
        ids = torch.full((len(states), 1), some_token(model), device=model.device)
        sequences = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if model.config.is_encoder_decoder:
            sequences["decoder_input_ids"] = ids
        with torch.inference_mode(), ExitStack() as replaced:
            for name, slots in self.slots.items():
                mine = given if name == self.stack else None
                replaced.enter_context(skip_layers(slots, mine))
            logits: torch.Tensor = model.network(**sequences).logits
        return logits[:, 0].to(states.dtype)

    def read(
        self, states: torch.Tensor, final: torch.Tensor, texts: PaddedTexts, k: int
    ) -> LensReadings:
        """Logits of every state against the true token and the model's last word.

        Args:
            states: *Shape:* ``(state, sentence, token, width)``.
            final: what leaves the last layer. *Shape:* ``(sentence, token, width)``.
            k: how many of the largest logits to keep.
        """
        readings, n_states = LensReadings.empty(states, k), len(states)
        rows, true = states[:, texts.valid], self.targets(texts)[texts.valid]
        size = max(1, BLOCK // self.size // (n_states + 1))
        blocks = zip(
            rows.split(size, 1), final[texts.valid].split(size), true.split(size), strict=True
        )
        parts = [self._read(*block, k) for block in blocks]
        for whole, *some in zip(readings, *parts, strict=True):
            whole[:, texts.valid] = torch.cat(some, 1)
        return readings

    def _read(
        self, rows: torch.Tensor, final: torch.Tensor, true: torch.Tensor, k: int
    ) -> LensReadings:
        """The same for a block. *Shapes:* ``(state, row, width)``, ``(row, width)``, ``(row,)``."""
        both = torch.cat([rows, final[None].to(rows)])
        logits = self.logits(both.flatten(0, 1)).unflatten(0, both.shape[:2])
        logs = logits.log_softmax(-1)
        last, logs, logits = logs[-1], logs[:-1], logits[:-1]
        best = logits.topk(k)
        place = true.clamp(min=0).expand(len(logits), -1)[..., None]
        ranks = (logits > logits.gather(-1, place)).sum(-1)
        known = true >= 0
        return LensReadings(
            ranks.to(logs).masked_fill(~known, torch.nan),
            logs.gather(-1, place).squeeze(-1).exp().masked_fill(~known, torch.nan),
            (last.exp() * (last - logs)).sum(-1).clamp(min=0),
            best.indices,
            logs.gather(-1, best.indices).exp(),
        )


class NoLogitLens(NamedTuple):
    """Why there is no logit lens."""

    why: str


def make_logit_lens(model: Model, architecture: Architecture) -> LogitLens | NoLogitLens:
    """The lens of a model, tried on one state; or why it has none."""
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
    """Whether the states of the last layer are all that the logits come from, on a few tokens.

    They are others than those under which the lens puts states through the head.
    """
    left: list[torch.Tensor] = []
    last = lens.architecture.layers[lens.stack][-1]
    handle = last.register_forward_hook(lambda _, __, output: left.append(hidden_states_of(output)))
    try:
        own = probe_pass(lens.model, number=1, whole=True).logits[0]
    finally:
        handle.remove()
    found = lens.logits(left[-1][0])
    return bool((found - own).abs().max() <= NEAR * own.abs().max())
