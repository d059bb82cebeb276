"""Results of ablation, collected set by set, and the changes by token of single heads."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from headbook.ablation.ablator import BatchEffects
from headbook.ablation.head_sets import HeadSets
from headbook.ablation.missed_tokens import TokenChanges
from headbook.analysis.accumulators import SELECTION, RatioSums, split_of
from headbook.analysis.arrays import Floats, Ints, divide
from headbook.schema import AblationTarget, HeadName, Replacement
from headbook.study.ablation.results import (
    AblationResults,
    AttributionKey,
    HeadSetKind,
    MissedToken,
)


def changes_of_single_heads(
    sets: HeadSets, changes: TokenChanges
) -> tuple[list[HeadName], TokenChanges]:
    """Return the heads that were replaced alone by their mean, and their changes by token."""
    single = {
        column: heads[0] for column, (head_set, heads) in enumerate(sets.items())
        if head_set.kind is HeadSetKind.HEAD and head_set.replacement == Replacement.MEAN
    }  # fmt: skip
    columns = [*single]
    selected = replace(
        changes, change=changes.change[:, columns], logits=changes.logits[:, columns]
    )
    return [*single.values()], selected


class ResultTable:
    """Results of ablation, collected set by set.

    Attributes:
        missed: tokens at which the ablation of single heads changes the target most.
        by_token: heads that were replaced alone by their mean, with their changes by token.
    """

    def __init__(self, content_hash: NDArray[np.uint64]) -> None:
        self._content_hash = content_hash
        self._sets: HeadSets = {}
        self._changes: dict[AblationTarget, list[Floats]] = {}
        self._whole: BatchEffects | None = None
        self.missed: list[MissedToken] = []
        self.by_token: list[tuple[list[HeadName], TokenChanges]] = []

    def add(self, sets: HeadSets, effects: BatchEffects) -> None:
        """Add the effects of sets on all sentences, or on the held-out half."""
        has_sentence = np.isin(self._content_hash, effects.content_hash)
        if has_sentence.all():
            self._whole = effects
        self._sets |= sets
        for target, changes in effects.changes.items():
            padded = np.full((len(self._content_hash), len(sets)), np.nan)
            padded[has_sentence] = changes
            self._changes.setdefault(target, []).append(padded)

    def selection_effects(self, target: AblationTarget, replacement: Replacement) -> Floats:
        """Return the effects of single heads on the selection half, per scored token.

        Effects are 0 if the selection half has no scored token.

        *Shape:* ``(head,)``.
        """
        assert self._whole is not None
        columns = [
            index for index, head_set in enumerate(self._sets)
            if head_set.kind is HeadSetKind.HEAD and head_set.replacement == replacement
        ]  # fmt: skip
        changes = np.concatenate(self._changes[target], 1)[:, columns]
        selected = split_of(self._content_hash) == SELECTION
        counts = self._whole.counts[target][selected]
        return np.nan_to_num(divide(changes[selected].sum(0), counts.sum()))

    def results(
        self,
        level: str,
        heads: Sequence[HeadName],
        chosen: Ints,
        columns: tuple[AttributionKey, ...],
        estimates: RatioSums,
    ) -> AblationResults:
        """Return all collected results, with the estimates of all heads."""
        assert self._whole is not None
        index_of = {head: number for number, head in enumerate(heads)}
        members = np.zeros((len(self._sets), len(heads)), bool)
        for row, heads_of_set in enumerate(self._sets.values()):
            members[row, [index_of[head] for head in heads_of_set]] = True
        return AblationResults(
            level=level,
            heads=tuple(heads),
            chosen=chosen,
            content_hash=self._content_hash,
            counts={str(name): table for name, table in self._whole.counts.items()},
            unablated={str(name): table for name, table in self._whole.full.items()},
            sets=tuple(self._sets),
            members=members,
            changes={
                str(target): np.concatenate(change, 1) for target, change in self._changes.items()
            },
            direct=np.zeros((0, 0)),
            columns=tuple(AttributionKey(*map(str, column)) for column in columns),
            estimates=estimates,
            missed=tuple(self.missed),
        )
