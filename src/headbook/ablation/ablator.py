"""Ablate sets of heads over a batch of sentences, with one of several replacements.

One pass runs over many copies of the batch, each with another set of heads, and begins at the first
ablated layer.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.ablation.missed_tokens import TokenChanges
from headbook.ablation.replacements import (
    N_DONORS,
    N_POSITIONS,
    N_TOKEN_CLASSES,
    DonorOutputs,
    LayerMeans,
    MeanOutputs,
    OutputSums,
    query_position,
    query_token_class,
    replacement_output,
)
from headbook.ablation.targets import TargetFunctions
from headbook.attention.views import ViewMasks
from headbook.model import attention_hook
from headbook.model.architecture import AttentionPlace
from headbook.model.forward import run_forward
from headbook.model.intervention import (
    HeadAblation,
    LayerStates,
    PatchableModel,
    ReplaceOutput,
)
from headbook.schema import AblationTarget, AttentionStack, HeadName, Replacement, SinkView
from headbook.text.batch import Batch

MAX_PASS_TOKENS = 2048  # tokens of a pass over copies of a batch, padding included

Floats = NDArray[np.float64]
HeadSet = Collection[HeadName]  # ablated together

PassObserver = Callable[[Batch, torch.Tensor, Sequence[HeadSet], torch.Tensor], None]
"""Function that receives the final states of each pass of `HeadAblator.effects`.

Its arguments are the batch, the states of the unablated pass, *shape* ``(sentence, token, width)``,
the sets of heads of the pass, and the states without them, *shape* ``(set, sentence, token,
width)``.
"""


@dataclass(frozen=True, eq=False)
class BatchEffects:
    """Changes of targets by ablating sets of heads on a batch.

    Attributes:
        changes: changes by target, summed over scored tokens. *Shape:* ``(sentence, set)`` each.
        counts: number of scored tokens by target. *Shape:* ``(sentence,)`` each.
        full: summed losses of the unablated model by target. *Shape:* ``(sentence,)`` each.
        content_hash: hash of each sentence. *Shape:* ``(sentence,)``.
        half: half of each sentence, 0 or 1. *Shape:* ``(sentence,)``.
        tokens: changes of the first target at each scored token.
    """

    changes: Mapping[AblationTarget, Floats]
    counts: Mapping[AblationTarget, Floats]
    full: Mapping[AblationTarget, Floats]
    content_hash: NDArray[np.uint64]
    half: NDArray[np.int64]
    tokens: TokenChanges

    @classmethod
    def merge(cls, parts: Sequence["BatchEffects"]) -> "BatchEffects":
        """Concatenate the effects of all batches, in the order of the sentences' hashes."""
        order = np.argsort(np.concatenate([part.content_hash for part in parts]), kind="stable")

        def joined(
            tables: Iterable[Mapping[AblationTarget, Floats]],
        ) -> dict[AblationTarget, Floats]:
            tables = list(tables)
            return {
                name: np.concatenate([table[name] for table in tables])[order] for name in tables[0]
            }

        return cls(
            joined(part.changes for part in parts),
            joined(part.counts for part in parts),
            joined(part.full for part in parts),
            np.concatenate([part.content_hash for part in parts])[order],
            np.concatenate([part.half for part in parts])[order],
            TokenChanges.together([part.tokens for part in parts]),
        )


@dataclass(frozen=True, eq=False)
class HeadAblator:
    """Ablation of heads of one model.

    Attributes:
        heads: model whose head outputs can be replaced.
        functions: targets whose changes are measured.
    """

    heads: PatchableModel
    functions: TargetFunctions

    @property
    def head_names(self) -> tuple[HeadName, ...]:
        """All heads of the model, sorted by stack, layer and number."""
        places = sorted((call.stack, call.layer) for call in self.heads.architecture.calls)
        return tuple(
            HeadName(*place, head)
            for place in places
            for head in range(self._stacks[place[0]].n_heads)
        )

    def means(self, batch: Batch) -> MeanOutputs:
        """Sum the outputs of all heads over a batch."""
        masked = self.functions.prepare_batch(batch)
        view_masks, half = ViewMasks(masked, self._stacks), self._half(masked)
        classes, positions = {}, {}

        def add(place: AttentionPlace, attention: attention_hook.AttentionCall) -> None:
            assert attention.output is not None
            frame = view_masks.get(place.stack, attention)[SinkView.RAW].frame
            output, valid = attention.output, frame.queries.valid
            classes[place] = OutputSums.of(
                output, query_token_class(frame), valid, half, N_TOKEN_CLASSES
            )
            positions[place] = OutputSums.of(
                output, query_position(frame), valid, half, N_POSITIONS
            )

        run_forward(self.heads.model, self.heads.architecture, masked, add)
        return MeanOutputs(classes, positions)

    def effects(
        self,
        batch: Batch,
        sets: Sequence[HeadSet],
        replacement: Replacement,
        means: MeanOutputs,
        *,
        donors: DonorOutputs | None = None,
        observe: PassObserver | None = None,
    ) -> BatchEffects:
        """Measure the changes of all targets by ablating each set of heads.

        Each sentence is copied once for every set, and one pass runs over all copies, beginning at
        the first ablated layer.

        Args:
            batch: sentences on which heads are ablated.
            sets: heads of each set.
            replacement: replacement of the head outputs.
            means: mean outputs over the sample.
            donors: donors of `Replacement.RESAMPLE`, over which changes are averaged.
            observe: receives the final states of each pass.
        """
        masked = self.functions.prepare_batch(batch)
        states = self.heads.states(masked)
        clean = states.after[self.heads.read][-1]
        targets = self.functions.targets
        changes_by_target = np.zeros((len(targets), len(batch.content_hash), len(sets)))
        scored = self.functions.scored(batch).cpu().numpy()
        tokens, logits = np.zeros((2, len(scored), len(sets)))
        before = np.zeros(len(scored))
        draws = N_DONORS if replacement is Replacement.RESAMPLE else 1
        passes = self.passes(masked, states, sets, replacement, means=means, donors=donors)
        for set_indices, ablated in passes:
            if observe is not None:
                observe(masked, clean, [sets[index] for index in set_indices], ablated)
            changes = self.functions.changes(batch, clean, ablated)
            for row, target in enumerate(targets):
                sums = changes.sums[target].T.cpu().numpy()
                changes_by_target[row][:, set_indices] += sums / draws
            tokens[:, set_indices] += changes.tokens.T.cpu().numpy() / draws
            logits[:, set_indices] += changes.logits.T.cpu().numpy() / draws
            before = changes.before.cpu().numpy()
        full = self.functions.unablated(batch, clean)
        counts = self.functions.n_scored(batch).double().cpu().numpy()
        return BatchEffects(
            changes=dict(zip(targets, changes_by_target, strict=True)),
            counts=dict(zip(targets, counts, strict=True)),
            full={target: sums.cpu().numpy() for target, sums in full.items()},
            content_hash=batch.content_hash,
            half=batch.half,
            tokens=TokenChanges(batch.index[scored[:, 0]], scored[:, 1], before, tokens, logits),
        )

    def passes(
        self,
        batch: Batch,
        states: LayerStates,
        sets: Sequence[HeadSet],
        replacement: Replacement,
        *,
        means: MeanOutputs,
        donors: DonorOutputs | None = None,
    ) -> Iterator[tuple[list[int], torch.Tensor]]:
        """Yield final states without some sets of heads, pass by pass.

        Args:
            batch: sentences, as `TargetFunctions.prepare_batch` returns them.
            states: states of the unablated pass over the batch.
            sets: heads of each set.
            replacement: replacement of the head outputs; `Replacement.RESAMPLE` yields the passes
                of each draw.
            means: mean outputs over the sample.
            donors: donors of `Replacement.RESAMPLE`.

        Yields:
            Indices of the sets of a pass, and final states. *Shape:* ``(set, sentence, token,
            width)``.
        """
        clean = states.after[self.heads.read][-1]
        max_sets = max(1, MAX_PASS_TOKENS // max(clean.shape[0] * clean.shape[1], 1))
        for set_indices in _chunks_by_first_layer(sets, max_sets):
            chosen_sets = [sets[index] for index in set_indices]
            copies = batch.repeated(len(chosen_sets))
            copied_states = states.repeated(len(chosen_sets))
            head_masks = self._head_masks(copies, chosen_sets)
            for draw in range(N_DONORS if replacement is Replacement.RESAMPLE else 1):
                replace_output = self._replace_output(copies, replacement, means, donors, draw)
                ablation = HeadAblation(head_masks, replace_output)
                ablated = self.heads.run(copies, ablation, copied_states)
                yield set_indices, ablated.unflatten(0, (len(chosen_sets), -1))

    def _head_masks(
        self, copies: Batch, sets: Sequence[HeadSet]
    ) -> dict[AttentionPlace, torch.Tensor]:
        """Return masks of the replaced heads by layer; each copy of the batch has its own set.

        *Shape:* ``(row, head)`` each.
        """
        sentences = len(copies.index) // len(sets)
        tables: dict[AttentionPlace, torch.Tensor] = {}
        for number, heads in enumerate(sets):
            for stack, layer, head in heads:
                call, n_heads = AttentionPlace(stack, layer), self._stacks[stack].n_heads
                table = tables.setdefault(
                    call,
                    torch.zeros(
                        len(copies.index),
                        n_heads,
                        dtype=torch.bool,
                        device=self.heads.model.device,
                    ),
                )
                table[number * sentences : (number + 1) * sentences, head] = True
        return tables

    def _replace_output(
        self,
        copies: Batch,
        replacement: Replacement,
        means: MeanOutputs,
        donors: DonorOutputs | None,
        draw: int,
    ) -> ReplaceOutput:
        """Return the function that computes the replacement of a layer's head outputs."""
        scopes, half = ViewMasks(copies, self._stacks), self._half(copies)

        def replace_output(
            place: AttentionPlace, attention: attention_hook.AttentionCall
        ) -> torch.Tensor:
            if replacement is Replacement.RESAMPLE:
                assert donors is not None
                assert attention.output is not None
                return donors.donor_output(
                    place, copies.content_hash, attention.output.shape[1], draw
                )
            frame = scopes.get(place.stack, attention)[SinkView.RAW].frame
            layer_means = LayerMeans(means.classes[place], means.positions[place], half)
            return replacement_output(attention, frame, replacement, layer_means)

        return replace_output

    @property
    def _stacks(self) -> Mapping[str, AttentionStack]:
        return self.heads.architecture.stacks

    def _half(self, batch: Batch) -> torch.Tensor:
        return torch.from_numpy(batch.half).to(self.heads.model.device)


def _chunks_by_first_layer(sets: Sequence[HeadSet], max_sets: int) -> Iterator[list[int]]:
    """Yield indices of sets whose passes can begin at the same layer, ``max_sets`` at a time."""
    groups: dict[tuple[bool, int], list[int]] = defaultdict(list)
    for index, heads in enumerate(sets):
        encoder = any(head.stack == "encoder" for head in heads)
        first = min(
            (head.layer for head in heads if not encoder or head.stack == "encoder"), default=0
        )
        groups[encoder, first].append(index)
    for _, indices in sorted(groups.items()):
        for start in range(0, len(indices), max_sets):
            yield indices[start : start + max_sets]
