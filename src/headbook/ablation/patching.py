"""Activation patching: the output of one head is taken from a run on another text.

*Denoising* puts the output of the run on the clean text into the run on the corrupt text, and
*noising* the other way round (Heimersheim & Nanda 2024). Both texts have equally many tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from headbook.ablation.costs import AblationCosts
from headbook.ablation.task_targets import AnswerTargets
from headbook.analysis.accumulators import RatioSums
from headbook.analysis.arrays import Floats
from headbook.model.architecture import AttentionPlace
from headbook.model.attention_hook import AttentionCall
from headbook.model.forward import run_forward
from headbook.model.intervention import HeadAblation, LayerStates, PatchableModel
from headbook.schema import AblationTarget, HeadName, Side
from headbook.study.ablation.results import AblationReason, AblationResults, HeadSet, HeadSetKind
from headbook.study.ablation.tasks import CLEAN, CORRUPT, DENOISING, PATCHES, PATCHING_LAST
from headbook.text.batch import Batch

MAX_PATCHED_TOKENS = 2048  # tokens of a pass over copies of a batch, padding included
TARGET = str(AblationTarget.PATCHING)


@dataclass(frozen=True, eq=False)
class _Run:
    """A run on the clean or the corrupt texts.

    Attributes:
        batch: the texts.
        states: outputs of all layers.
        outputs: head outputs by layer. *Shape:* ``(sentence, query, head, width)``.
        difference: logit of the answer minus that of the wrong answer. *Shape:* ``(sentence,)``.
    """

    batch: Batch
    states: LayerStates
    outputs: Mapping[AttentionPlace, torch.Tensor]
    difference: Floats


@dataclass(frozen=True, eq=False)
class PatchingPlan:
    """Heads whose outputs are patched, one at a time, on prompts with a corrupt text each.

    An item is a prompt: its source is the clean text, its target the corrupt one.

    Attributes:
        heads: model whose head outputs can be replaced.
        functions: difference of the logits.
        costs: costs of replacing heads.
        level: ``auto`` or ``full``.
        batches: batches of all prompts.
        all_heads: all heads of the model.
        max_passes: most forward passes over the prompts.
        advanced: progress callback; its argument is the number of sets patched on one batch.
    """

    heads: PatchableModel
    functions: AnswerTargets
    costs: AblationCosts
    level: str
    batches: Sequence[Batch]
    all_heads: tuple[HeadName, ...]
    max_passes: float
    advanced: Callable[[int], None] = field(default=lambda _: None)

    @property
    def message(self) -> str:
        """Number of forward passes and prompts, as a message."""
        head_costs = [self.costs.of([head]) for head in self.all_heads]
        passes = min(len(PATCHES) * sum(head_costs), self.max_passes) + 4
        prompts = sum(len(batch.index) for batch in self.batches)
        about = "about" if self.n_patched == len(self.all_heads) else "at most"
        return (
            f"task {TARGET}, {self.level}: {about} {np.ceil(passes):,.0f} forward passes over "
            f"{prompts:,} prompt{'s' * (prompts != 1)}"
        )

    @property
    def steps(self) -> int:
        """Number of sets times batches, for the progress bar."""
        return self.n_patched * len(PATCHES) * len(self.batches)

    @property
    def n_patched(self) -> int:
        """Largest number of heads that are patched."""
        return self.costs.n_single(self.all_heads, self.max_passes / len(PATCHES))

    def run(self, ranking: Sequence[HeadName]) -> AblationResults:
        """Patch heads, one at a time, and return the changes of the difference of logits.

        Args:
            ranking: heads to patch, the first ones of which `max_passes` allows.
        """
        costs = np.cumsum([len(PATCHES) * self.costs.of([head]) for head in ranking])
        chosen = sorted(ranking[: int((costs <= self.max_passes).sum())])
        sets = tuple(
            HeadSet(HeadSetKind.HEAD, head.stack, f"L{head.layer}-H{head.head}", 0, patch)
            for patch in PATCHES
            for head in chosen
        )
        parts = [self._patched(batch, chosen) for batch in self.batches]
        hashes = np.concatenate([batch.content_hash for batch in self.batches])
        order = np.argsort(hashes, kind="stable")
        changes, clean, corrupt = (
            np.concatenate(arrays)[order] for arrays in zip(*parts, strict=True)
        )
        members = np.array([[head == other for other in self.all_heads] for head in chosen])
        reasons = np.where(members.any(0), AblationReason.SELECTED, AblationReason.NOT_ABLATED)
        return AblationResults(
            level=self.level,
            heads=self.all_heads,
            chosen=reasons.astype(np.int64),
            content_hash=hashes[order],
            counts={TARGET: np.ones(len(order))},
            unablated={CLEAN: clean, CORRUPT: corrupt},
            sets=sets,
            members=np.tile(members, (len(PATCHES), 1)),
            changes={TARGET: changes},
            direct=np.full((len(order), len(self.all_heads)), np.nan),
            columns=(),
            estimates=RatioSums.zero(len(self.all_heads), 0),
        )

    def _patched(self, batch: Batch, chosen: Sequence[HeadName]) -> tuple[Floats, Floats, Floats]:
        """Return the changes ``(sentence, set)`` of a batch, and its clean and corrupt differences.

        Changes are how far the difference of logits moves towards that of the other run.
        """
        clean, corrupt = (self._run(batch, side) for side in (Side.SOURCE, Side.TARGET))
        changes = []
        for patch in PATCHES:
            denoises = patch.startswith(DENOISING)
            run, donor = (corrupt, clean) if denoises else (clean, corrupt)
            last_only = patch.endswith(PATCHING_LAST)
            size = max(1, MAX_PATCHED_TOKENS // run.batch.texts[Side.SOURCE].ids.numel())
            for start in range(0, len(chosen), size):
                heads = chosen[start : start + size]
                patched = self._differences(run, donor, heads, last_only=last_only)
                towards = 1 if denoises else -1
                changes.append(towards * (patched - run.difference).T)
                self.advanced(len(heads))
        return np.concatenate(changes, 1), clean.difference, corrupt.difference

    def _run(self, batch: Batch, side: Side) -> _Run:
        """Run the model on one side of the prompts."""
        own = replace(batch, texts={Side.SOURCE: batch.texts[side]})
        outputs: dict[AttentionPlace, torch.Tensor] = {}

        def keep(place: AttentionPlace, attention: AttentionCall) -> None:
            assert attention.output is not None
            outputs[place] = attention.output.clone()

        run_forward(self.heads.model, self.heads.architecture, own, keep, replacing=True)
        states = self.heads.states(own)
        final = states.after[self.heads.read][-1]
        return _Run(own, states, outputs, -self._penalties(own, final[None])[0])

    def _differences(
        self, run: _Run, donor: _Run, heads: Sequence[HeadName], *, last_only: bool
    ) -> Floats:
        """Return the difference of logits with each head patched. *Shape:* ``(head, sentence)``."""
        copies, sentences = run.batch.repeated(len(heads)), len(run.batch.index)
        row, position = self.functions.scored(copies).T
        is_last = torch.zeros_like(copies.texts[Side.SOURCE].valid)
        is_last[row, position] = True
        masks: dict[AttentionPlace, torch.Tensor] = {}
        for number, (stack, layer, head) in enumerate(heads):
            place = AttentionPlace(stack, layer)
            width = donor.outputs[place].shape[2]
            mask = masks.setdefault(
                place, torch.zeros(len(row), width, dtype=torch.bool, device=is_last.device)
            )
            mask[number * sentences : (number + 1) * sentences, head] = True

        def patch(place: AttentionPlace, attention: AttentionCall) -> torch.Tensor:
            assert attention.output is not None
            given = donor.outputs[place].repeat(len(heads), 1, 1, 1)
            if not last_only:
                return given
            return torch.where(is_last[..., None, None], given, attention.output)

        ablation = HeadAblation(masks, patch)
        final = self.heads.run(copies, ablation, run.states.repeated(len(heads)))
        return -self._penalties(run.batch, final.unflatten(0, (len(heads), -1)))

    def _penalties(self, batch: Batch, states: torch.Tensor) -> Floats:
        penalties: Floats = self.functions.penalties(batch, states)[0].cpu().numpy()
        return penalties
