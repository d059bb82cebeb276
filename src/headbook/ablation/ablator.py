"""Ablates sets of heads over a batch.

Mean, zero, uniform, sink and resample replacements, and the change of each target.

Outputs are those before the output projection, ``(sentence, query, head, width)``.

A sentence borrows from others of similar length, position by position; which ones is told by hashes
of the content of both, so that it is the same in every run.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.ablation.missed_tokens import TokenChanges
from headbook.ablation.targets import TargetFunctions
from headbook.analysis.arrays import Ints
from headbook.attention.masks import BatchMask
from headbook.attention.views import ViewMasks
from headbook.errors import ConfigError
from headbook.model import attention_hook
from headbook.model.architecture import AttentionPlace
from headbook.model.forward import run_forward
from headbook.model.intervention import HeadAblation, PatchableModel
from headbook.model.intervention import ReplaceOutput as Replace
from headbook.schema import AblationTarget, AttentionStack, Replacement, SinkView
from headbook.study.sentence_data import HeadName
from headbook.text.batch import Batch

CLASSES = 3  # of query tokens: at position 0, special, ordinary
POSITIONS = 65  # the last for all that come later


@dataclass(frozen=True, eq=False)
class LayerOutputs:
    """What the heads of a layer computed of a batch.

    Attributes:
        weights: *Shape:* ``(sentence, head, query, key)``.
        value: several heads in a row may share one. *Shape:* ``(sentence, key_head, key, width)``.
        output: *Shape:* ``(sentence, query, head, width)``.
    """

    weights: torch.Tensor
    value: torch.Tensor
    output: torch.Tensor

    def of(self, weights: torch.Tensor) -> torch.Tensor:
        """The outputs with other weights, given likewise or the same for all heads."""
        sharing = self.weights.shape[1] // self.value.shape[1]
        values = self.value.repeat_interleave(sharing, 1)
        found: torch.Tensor = (weights @ values).transpose(1, 2)
        return found


def query_token_class(frame: BatchMask) -> torch.Tensor:
    """The class of each query token. *Shape:* ``(sentence, query)``, 0 to 2."""
    ordinary = torch.where(frame.queries.special, 1, 2)
    return torch.where(frame.queries.first, 0, ordinary)


def query_position(frame: BatchMask) -> torch.Tensor:
    """The position of each query token, late ones as one. *Shape:* ``(sentence, query)``."""
    ids = frame.queries.ids
    return torch.arange(ids.shape[1], device=ids.device).clamp(max=POSITIONS - 1).expand_as(ids)


def zero_output(heads: LayerOutputs, frame: BatchMask) -> torch.Tensor:
    """Nothing."""
    del frame
    return torch.zeros_like(heads.output)


def uniform_attention_output(heads: LayerOutputs, frame: BatchMask) -> torch.Tensor:
    """The mean of the values of all visible keys."""
    seen = frame.attention_mask.unsqueeze(1).to(heads.weights.dtype)
    return heads.of(seen / seen.sum(-1, keepdim=True).clamp(min=1))


def without_sink(heads: LayerOutputs, frame: BatchMask) -> torch.Tensor:
    """Without the sink's keys; the weights of others stay as they are."""
    return heads.of(heads.weights * ~frame.sink[:, None, None, :])


def sink_only(heads: LayerOutputs, frame: BatchMask) -> torch.Tensor:
    """With all attention on the sink, shared as it is; the output itself where none is seen."""
    kept = heads.weights * frame.sink[:, None, None, :]
    total = kept.sum(-1, keepdim=True)
    found = heads.of(kept / torch.where(total > 0, total, 1))
    return torch.where((total > 0).transpose(1, 2), found, heads.output)


REPLACEMENTS: Mapping[Replacement, Callable[[LayerOutputs, BatchMask], torch.Tensor]] = {
    Replacement.ZERO: zero_output,
    Replacement.UNIFORM: uniform_attention_output,
    Replacement.WITHOUT_SINK: without_sink,
    Replacement.SINK_ONLY: sink_only,
}
"""Replacements that need nothing but the sentence itself."""


@dataclass(frozen=True, eq=False)
class OutputSums:
    """Sums of outputs over query tokens by a property of theirs, by half of the sentences.

    Attributes:
        total: *Shape:* ``(half, group, head, width)``.
        number: query tokens. *Shape:* ``(half, group)``.
    """

    total: torch.Tensor
    number: torch.Tensor

    @classmethod
    def of(
        cls,
        output: torch.Tensor,
        group: torch.Tensor,
        valid: torch.Tensor,
        half: torch.Tensor,
        groups: int,
    ) -> "OutputSums":
        """Of a batch, in double precision.

        Args:
            group: of each query token. *Shape:* ``(sentence, query)``.
            valid: false in the padding.
            half: *Shape:* ``(sentence,)``.
            groups: how many there are.
        """
        place = (half[:, None] * groups + group)[valid]
        rows = output[valid].double()
        total = rows.new_zeros((2 * groups, *rows.shape[1:])).index_add_(0, place, rows)
        number = rows.new_zeros(2 * groups).index_add_(0, place, torch.ones_like(rows[:, 0, 0]))
        return cls(total.unflatten(0, (2, groups)), number.unflatten(0, (2, groups)))

    def __add__(self, other: "OutputSums") -> "OutputSums":
        return OutputSums(self.total + other.total, self.number + other.number)

    def other_half(self, group: torch.Tensor, half: torch.Tensor) -> torch.Tensor:
        """The mean of each query token's group in the half that it is not in.

        A group that the other half lacks has the mean of all its tokens; where the other half has
        no tokens at all, the means are those of the sentences' own.

        Args:
            group: *Shape:* ``(sentence, query)``.
            half: *Shape:* ``(sentence,)``.

        Returns:
            *Shape:* ``(sentence, query, head, width)``.
        """
        empty = (self.number == 0)[..., None, None]
        every = (
            self.total.sum(1, keepdim=True) / self.number.sum(1).clamp(min=1)[:, None, None, None]
        )
        means = torch.where(empty, every, self.total / self.number.clamp(min=1)[..., None, None])
        nothing = (self.number.sum(1) == 0)[:, None, None, None]
        means = torch.where(nothing, means.flip(0), means)
        found: torch.Tensor = means[(1 - half)[:, None], group]
        return found


DRAWS = 3  # sentences that each borrows from, one after the other
NEAR = 10  # of most similar length, among which hashes choose


@dataclass(frozen=True, eq=False)
class DonorOutputs:
    """The outputs of some layers in all sentences.

    Attributes:
        content_hash: hashes of the sentences. *Shape:* ``(sentence,)``.
        length: query tokens of each sentence, by place; likewise.
        output: by place. *Shape:* ``(sentence, query, head, width)``, 0 in the padding.
    """

    content_hash: NDArray[np.uint64]
    length: Mapping[AttentionPlace, Ints]
    output: Mapping[AttentionPlace, torch.Tensor]

    @classmethod
    def of(
        cls,
        heads: PatchableModel,
        functions: TargetFunctions,
        batches: Sequence[Batch],
        places: Collection[AttentionPlace],
    ) -> "DonorOutputs":
        """Look at all sentences.

        Raises:
            ConfigError: there are no two different ones.
        """
        key = np.concatenate([batch.content_hash for batch in batches])
        if len({*key}) < 2:
            raise ConfigError("replacement: 'resample' came; expected two different sentences")
        found: dict[AttentionPlace, list[torch.Tensor]] = {call: [] for call in places}

        def add(place: AttentionPlace, attention: attention_hook.AttentionCall) -> None:
            if place in found:
                assert attention.output is not None
                found[place].append(attention.output.detach())

        for batch in batches:
            run_forward(heads.model, heads.architecture, functions.prepare_batch(batch), add)
        sides = {call: heads.architecture.stacks[call.stack].queries for call in places}
        length = {
            call: np.concatenate([b.texts[side].valid.sum(1).cpu().numpy() for b in batches])
            for call, side in sides.items()
        }
        return cls(key, length, {call: _padded(each) for call, each in found.items()})

    def donor_output(
        self, place: AttentionPlace, key: NDArray[np.uint64], queries: int, draw: int
    ) -> torch.Tensor:
        """What other sentences give, their last token where they are shorter.

        Args:
            key: of the sentences that borrow.
            queries: tokens that their batch is padded to.
            draw: 0 to `DRAWS` - 1.

        Returns:
            *Shape:* ``(sentence, query, head, width)``.
        """
        donors = np.array([self._donor(place, int(each), draw) for each in key])
        last = self.length[place][donors] - 1
        positions = np.minimum(np.arange(queries), last[:, None])
        output = self.output[place]
        rows, columns = (torch.from_numpy(each).to(output.device) for each in (donors, positions))
        return output[rows[:, None], columns]

    def _donor(self, place: AttentionPlace, key: int, draw: int) -> int:
        """The place of the sentence that one borrows from; longer ones come first."""
        length = self.length[place]
        own = int(length[np.flatnonzero(self.content_hash == np.uint64(key))[0]])
        others = [int(k) for k in np.flatnonzero(self.content_hash != np.uint64(key))]
        others.sort(
            key=lambda k: (
                max(own - length[k], 0),
                abs(own - length[k]),
                _hash(key, int(self.content_hash[k])),
            )
        )
        near = sorted(others[:NEAR], key=lambda k: _hash(key, int(self.content_hash[k])))
        return near[draw % len(near)]


def _hash(one: int, other: int) -> bytes:
    both = one.to_bytes(8, "big") + other.to_bytes(8, "big")
    return hashlib.blake2b(both, digest_size=8).digest()


def _padded(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Tables of several batches as one."""
    longest = max(part.shape[1] for part in parts)
    pad = torch.nn.functional.pad
    return torch.cat([pad(part, (0, 0, 0, 0, 0, longest - part.shape[1])) for part in parts])


ROWS = 2048  # tokens of a pass over copies of a batch

Floats = NDArray[np.float64]
Set = Collection[HeadName]


@dataclass(frozen=True, eq=False)
class BatchEffects:
    """How targets change where sets of heads are taken away.

    Attributes:
        changes: sums over scored tokens. *Shape:* ``(sentence, set)`` each.
        counts: scored tokens. *Shape:* ``(sentence,)`` each.
        full: sums of the losses of the whole model. *Shape:* ``(sentence,)`` each.
        content_hash: by which equal sentences are known. *Shape:* ``(sentence,)``.
        half: 0 or 1. *Shape:* ``(sentence,)``.
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
        """Of all batches, in the order of the sentences' hashes."""
        order = np.argsort(np.concatenate([part.content_hash for part in parts]), kind="stable")

        def joined(
            tables: Iterable[Mapping[AblationTarget, Floats]],
        ) -> dict[AblationTarget, Floats]:
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
class MeanOutputs:
    """Mean outputs of all heads, by place: over classes of query tokens, and over positions."""

    classes: Mapping[AttentionPlace, OutputSums] = field(default_factory=dict)
    positions: Mapping[AttentionPlace, OutputSums] = field(default_factory=dict)

    def __add__(self, other: "MeanOutputs") -> "MeanOutputs":
        return MeanOutputs(
            _added(self.classes, other.classes), _added(self.positions, other.positions)
        )


def _added(
    one: Mapping[AttentionPlace, OutputSums], other: Mapping[AttentionPlace, OutputSums]
) -> Mapping[AttentionPlace, OutputSums]:
    return {call: one[call] + other[call] for call in one} if one else other


class LayerMeans(NamedTuple):
    """The means of one layer, and the half that each sentence belongs to."""

    classes: OutputSums
    positions: OutputSums
    half: torch.Tensor


@dataclass(frozen=True, eq=False)
class HeadAblator:
    """Takes heads of one model away."""

    heads: PatchableModel
    functions: TargetFunctions

    def means(self, batch: Batch) -> MeanOutputs:
        """Sums of what all heads give in a batch."""
        read = self.functions.prepare_batch(batch)
        scopes, half = ViewMasks(read, self._stacks), self._half(read)
        classes, positions = {}, {}

        def add(place: AttentionPlace, attention: attention_hook.AttentionCall) -> None:
            assert attention.output is not None
            frame = scopes.get(place.stack, attention)[SinkView.RAW].frame
            given = attention.output, frame.queries.valid, half
            output, valid, _ = given
            classes[place] = OutputSums.of(output, query_token_class(frame), valid, half, CLASSES)
            positions[place] = OutputSums.of(output, query_position(frame), valid, half, POSITIONS)

        run_forward(self.heads.model, self.heads.architecture, read, add)
        return MeanOutputs(classes, positions)

    def effects(
        self,
        batch: Batch,
        sets: Sequence[Set],
        replacement: Replacement,
        means: MeanOutputs,
        others: DonorOutputs | None = None,
    ) -> BatchEffects:
        """Take sets of heads away, each from the whole model.

        Args:
            others: what `Replacement.RESAMPLE` borrows from; the mean over draws is taken.
        """
        read = self.functions.prepare_batch(batch)
        states = self.heads.states(read)
        clean = states.after[self.heads.read][-1]
        found = np.zeros((len(self.functions.targets), len(batch.content_hash), len(sets)))
        places = self.functions.scored(batch).cpu().numpy()
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
                    ablation = HeadAblation(self._tables(copies, some), instead)
                    left = self.heads.run(copies, ablation, again)
                    changes = self.functions.changes(
                        batch, clean, left.unflatten(0, (len(some), -1))
                    )
                    for row, target in enumerate(self.functions.targets):
                        found[row][:, chosen] += changes.sums[target].T.cpu().numpy() / draws
                    tokens[:, chosen] += changes.tokens.T.cpu().numpy() / draws
                    logits[:, chosen] += changes.logits.T.cpu().numpy() / draws
                    before = changes.before.cpu().numpy()
        full = self.functions.unablated(batch, clean)
        counts = self.functions.n_scored(batch).double().cpu().numpy()
        return BatchEffects(
            changes=dict(zip(self.functions.targets, found, strict=True)),
            counts=dict(zip(self.functions.targets, counts, strict=True)),
            full={target: sums.cpu().numpy() for target, sums in full.items()},
            content_hash=batch.content_hash,
            half=batch.half,
            tokens=TokenChanges(batch.index[places[:, 0]], places[:, 1], before, tokens, logits),
        )

    def _tables(self, copies: Batch, sets: Sequence[Set]) -> dict[AttentionPlace, torch.Tensor]:
        """Which heads of which rows are replaced: each copy of a batch is without one set."""
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

    def _instead(
        self,
        copies: Batch,
        replacement: Replacement,
        means: MeanOutputs,
        others: DonorOutputs | None,
        draw: int,
    ) -> Replace:
        """What stands in place of the heads of a batch."""
        scopes, half = ViewMasks(copies, self._stacks), self._half(copies)

        def instead(place: AttentionPlace, attention: attention_hook.AttentionCall) -> torch.Tensor:
            if replacement is Replacement.RESAMPLE:
                assert others is not None
                assert attention.output is not None
                return others.donor_output(
                    place, copies.content_hash, attention.output.shape[1], draw
                )
            frame = scopes.get(place.stack, attention)[SinkView.RAW].frame
            known = LayerMeans(means.classes[place], means.positions[place], half)
            return replacement_output(attention, frame, replacement, known)

        return instead

    @property
    def _stacks(self) -> Mapping[str, AttentionStack]:
        return self.heads.architecture.stacks

    def _half(self, batch: Batch) -> torch.Tensor:
        return torch.from_numpy(batch.half).to(self.heads.model.device)


def replacement_output(
    attention: attention_hook.AttentionCall,
    frame: BatchMask,
    replacement: Replacement,
    known: LayerMeans,
) -> torch.Tensor:
    """What stands in place of a layer's outputs. *Shape:* ``(sentence, query, head, width)``."""
    if replacement is Replacement.MEAN:
        return known.classes.other_half(query_token_class(frame), known.half)
    if replacement is Replacement.POSITION_MEAN:
        return known.positions.other_half(query_position(frame), known.half)
    assert attention.output is not None
    assert attention.value is not None
    return REPLACEMENTS[replacement](
        LayerOutputs(attention.weights, attention.value, attention.output), frame
    )


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
