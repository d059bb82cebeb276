"""What a model's answer loses where heads are taken away, sentence by sentence."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.attention import replacements
from headbook.attention.frame import Frame
from headbook.attention.replacements import CLASSES, OWN, POSITIONS, Heads, Sums
from headbook.attention.scopes import Scopes
from headbook.model import hook
from headbook.model.architecture import Call
from headbook.model.capture import forward
from headbook.model.intervention import Ablation, Intervened
from headbook.model.intervention import Replacement as Replace
from headbook.model.vocabulary.targets import Judge
from headbook.passes.ablation.resample import DRAWS, Others
from headbook.passes.ablation.tokens import TokenChanges
from headbook.study.sentencedata import HeadName
from headbook.terms import Replacement, Stack, Target, View
from headbook.text.batch import Batch

ROWS = 2048  # tokens of a pass over copies of a batch

Floats = NDArray[np.float64]
Set = Collection[HeadName]


@dataclass(frozen=True, eq=False)
class Effects:
    """How targets change where sets of heads are taken away.

    Attributes:
        changes: sums over scored tokens. *Shape:* ``(sentence, set)`` each.
        counts: scored tokens. *Shape:* ``(sentence,)`` each.
        full: sums of the losses of the whole model. *Shape:* ``(sentence,)`` each.
        content_hash: by which equal sentences are known. *Shape:* ``(sentence,)``.
        half: 0 or 1. *Shape:* ``(sentence,)``.
        tokens: changes of the first target at each scored token.
    """

    changes: Mapping[Target, Floats]
    counts: Mapping[Target, Floats]
    full: Mapping[Target, Floats]
    content_hash: NDArray[np.uint64]
    half: NDArray[np.int64]
    tokens: TokenChanges

    @classmethod
    def together(cls, parts: Sequence["Effects"]) -> "Effects":
        """Of all batches, in the order of the sentences' hashes."""
        order = np.argsort(np.concatenate([part.content_hash for part in parts]), kind="stable")

        def joined(tables: Iterable[Mapping[Target, Floats]]) -> dict[Target, Floats]:
            tables = list(tables)
            return {name: np.concatenate([t[name] for t in tables])[order] for name in tables[0]}

        return cls(
            joined(part.changes for part in parts),
            joined(part.counts for part in parts),
            joined(part.full for part in parts),
            np.concatenate([part.content_hash for part in parts])[order],
            np.concatenate([part.half for part in parts])[order],
            TokenChanges.together([part.tokens for part in parts]),
        )


@dataclass(frozen=True, eq=False)
class Means:
    """Mean outputs of all heads, by place: over classes of query tokens, and over positions."""

    classes: Mapping[Call, Sums] = field(default_factory=dict)
    positions: Mapping[Call, Sums] = field(default_factory=dict)

    def __add__(self, other: "Means") -> "Means":
        return Means(_added(self.classes, other.classes), _added(self.positions, other.positions))


def _added(one: Mapping[Call, Sums], other: Mapping[Call, Sums]) -> Mapping[Call, Sums]:
    return {call: one[call] + other[call] for call in one} if one else other


class Known(NamedTuple):
    """The means of one layer, and the half that each sentence belongs to."""

    classes: Sums
    positions: Sums
    half: torch.Tensor


@dataclass(frozen=True, eq=False)
class Ablator:
    """Takes heads of one model away."""

    heads: Intervened
    judge: Judge

    def means(self, batch: Batch) -> Means:
        """Sums of what all heads give in a batch."""
        read = self.judge.prepared(batch)
        scopes, half = Scopes(read, self._stacks), self._half(read)
        classes, positions = {}, {}

        def add(place: Call, attention: hook.Attention) -> None:
            assert attention.output is not None
            frame = scopes.get(place.stack, attention)[View.RAW].frame
            given = attention.output, frame.queries.valid, half
            output, valid, _ = given
            classes[place] = Sums.of(output, replacements.classes(frame), valid, half, CLASSES)
            positions[place] = Sums.of(
                output, replacements.positions(frame), valid, half, POSITIONS
            )

        forward(self.heads.model, self.heads.architecture, read, add)
        return Means(classes, positions)

    def effects(
        self,
        batch: Batch,
        sets: Sequence[Set],
        replacement: Replacement,
        means: Means,
        others: Others | None = None,
    ) -> Effects:
        """Take sets of heads away, each from the whole model.

        Args:
            others: what `Replacement.RESAMPLE` borrows from; the mean over draws is taken.
        """
        read = self.judge.prepared(batch)
        states = self.heads.states(read)
        clean = states.after[self.heads.read][-1]
        found = np.zeros((len(self.judge.targets), len(batch.content_hash), len(sets)))
        places = self.judge.scored(batch).cpu().numpy()
        tokens, logits = np.zeros((2, len(places), len(sets)))
        before = np.zeros(len(places))
        draws = DRAWS if replacement is Replacement.RESAMPLE else 1
        most = max(1, ROWS // max(clean.shape[0] * clean.shape[1], 1))
        for group in _alike(sets):
            for start in range(0, len(group), most):
                chosen = group[start : start + most]
                copies, again = read.repeated(len(chosen)), states.repeated(len(chosen))
                some = [sets[position] for position in chosen]
                for draw in range(draws):
                    instead = self._instead(copies, replacement, means, others, draw)
                    ablation = Ablation(self._tables(copies, some), instead)
                    left = self.heads.run(copies, ablation, again)
                    changes = self.judge.changes(batch, clean, left.unflatten(0, (len(some), -1)))
                    for row, target in enumerate(self.judge.targets):
                        found[row][:, chosen] += changes.sums[target].T.cpu().numpy() / draws
                    tokens[:, chosen] += changes.tokens.T.cpu().numpy() / draws
                    logits[:, chosen] += changes.logits.T.cpu().numpy() / draws
                    before = changes.before.cpu().numpy()
        full = self.judge.full(batch, clean)
        counts = self.judge.counts(batch).double().cpu().numpy()
        return Effects(
            changes=dict(zip(self.judge.targets, found, strict=True)),
            counts=dict(zip(self.judge.targets, counts, strict=True)),
            full={target: sums.cpu().numpy() for target, sums in full.items()},
            content_hash=batch.content_hash,
            half=batch.half,
            tokens=TokenChanges(batch.index[places[:, 0]], places[:, 1], before, tokens, logits),
        )

    def _tables(self, copies: Batch, sets: Sequence[Set]) -> dict[Call, torch.Tensor]:
        """Which heads of which rows are replaced: each copy of a batch is without one set."""
        sentences = len(copies.index) // len(sets)
        tables: dict[Call, torch.Tensor] = {}
        for number, heads in enumerate(sets):
            for stack, layer, head in heads:
                call, n_heads = Call(stack, layer), self._stacks[stack].n_heads
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

    def _instead(
        self,
        copies: Batch,
        replacement: Replacement,
        means: Means,
        others: Others | None,
        draw: int,
    ) -> Replace:
        """What stands in place of the heads of a batch."""
        scopes, half = Scopes(copies, self._stacks), self._half(copies)

        def instead(place: Call, attention: hook.Attention) -> torch.Tensor:
            if replacement is Replacement.RESAMPLE:
                assert others is not None
                assert attention.output is not None
                return others.borrowed(place, copies.content_hash, attention.output.shape[1], draw)
            frame = scopes.get(place.stack, attention)[View.RAW].frame
            known = Known(means.classes[place], means.positions[place], half)
            return instead_of(attention, frame, replacement, known)

        return instead

    @property
    def _stacks(self) -> Mapping[str, Stack]:
        return self.heads.architecture.stacks

    def _half(self, batch: Batch) -> torch.Tensor:
        return torch.from_numpy(batch.half).to(self.heads.model.device)


def instead_of(
    attention: hook.Attention, frame: Frame, replacement: Replacement, known: Known
) -> torch.Tensor:
    """What stands in place of a layer's outputs. *Shape:* ``(sentence, query, head, width)``."""
    if replacement is Replacement.MEAN:
        return known.classes.other_half(replacements.classes(frame), known.half)
    if replacement is Replacement.POSITION_MEAN:
        return known.positions.other_half(replacements.positions(frame), known.half)
    assert attention.output is not None
    assert attention.value is not None
    return OWN[replacement](Heads(attention.weights, attention.value, attention.output), frame)


def _alike(sets: Sequence[Set]) -> list[list[int]]:
    """Places of the sets, those together whose passes can begin at the same layer."""
    groups: dict[tuple[bool, int], list[int]] = defaultdict(list)
    for index, heads in enumerate(sets):
        encoder = any(head.stack == "encoder" for head in heads)
        first = min(
            (head.layer for head in heads if not encoder or head.stack == "encoder"), default=0
        )
        groups[encoder, first].append(index)
    return [groups[key] for key in sorted(groups)]
