"""Ablate sets of heads over a batch of sentences, with one of several replacements.

Head outputs are replaced before the output projection, ``(sentence, query, head, width)``. For the
replacement ``resample``, the output is taken from other sentences of similar length, position by
position. Hashes of the sentences choose these donors, so the choice is equal in every run.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.ablation.missed_tokens import TokenChanges
from headbook.ablation.targets import TargetFunctions, pair_hash
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

CLASSES = 3  # classes of query tokens: at position 0, special, ordinary
POSITIONS = 65  # positions with a mean of their own; the last one stands for all later ones


@dataclass(frozen=True, eq=False)
class LayerOutputs:
    """Attention of one layer on a batch.

    Attributes:
        weights: attention weights. *Shape:* ``(sentence, head, query, key)``.
        value: values, which neighbouring heads may share.
            *Shape:* ``(sentence, key_head, key, width)``.
        output: head outputs. *Shape:* ``(sentence, query, head, width)``.
    """

    weights: torch.Tensor
    value: torch.Tensor
    output: torch.Tensor

    def of(self, weights: torch.Tensor) -> torch.Tensor:
        """Return the head outputs for other weights, which may have a head dimension of 1."""
        sharing = self.weights.shape[1] // self.value.shape[1]
        values = self.value.repeat_interleave(sharing, 1)
        found: torch.Tensor = (weights @ values).transpose(1, 2)
        return found


def query_token_class(frame: BatchMask) -> torch.Tensor:
    """Return the class of each query token, 0 to 2. *Shape:* ``(sentence, query)``."""
    ordinary = torch.where(frame.queries.special, 1, 2)
    return torch.where(frame.queries.first, 0, ordinary)


def query_position(frame: BatchMask) -> torch.Tensor:
    """Return the position of each query token, at most 64. *Shape:* ``(sentence, query)``."""
    ids = frame.queries.ids
    return torch.arange(ids.shape[1], device=ids.device).clamp(max=POSITIONS - 1).expand_as(ids)


def zero_output(heads: LayerOutputs, frame: BatchMask) -> torch.Tensor:
    """Return zeros."""
    del frame
    return torch.zeros_like(heads.output)


def uniform_attention_output(heads: LayerOutputs, frame: BatchMask) -> torch.Tensor:
    """Return the mean of the values of all visible keys."""
    seen = frame.attention_mask.unsqueeze(1).to(heads.weights.dtype)
    return heads.of(seen / seen.sum(-1, keepdim=True).clamp(min=1))


def without_sink(heads: LayerOutputs, frame: BatchMask) -> torch.Tensor:
    """Return the outputs without sink keys; the weights of other keys are unchanged."""
    return heads.of(heads.weights * ~frame.sink[:, None, None, :])


def sink_only(heads: LayerOutputs, frame: BatchMask) -> torch.Tensor:
    """Return the outputs with all attention on the sink keys, in their present proportions.

    Queries that see no sink key keep their output.
    """
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
"""Replacements that are computed from the sentence itself."""


@dataclass(frozen=True, eq=False)
class OutputSums:
    """Sums of head outputs over groups of query tokens, for each half of the sentences.

    Attributes:
        total: summed outputs. *Shape:* ``(half, group, head, width)``.
        number: number of query tokens. *Shape:* ``(half, group)``.
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
        """Sum the outputs of a batch in double precision.

        Args:
            output: head outputs. *Shape:* ``(sentence, query, head, width)``.
            group: group of each query token. *Shape:* ``(sentence, query)``.
            valid: false in the padding. *Shape:* ``(sentence, query)``.
            half: half of each sentence. *Shape:* ``(sentence,)``.
            groups: number of groups.
        """
        place = (half[:, None] * groups + group)[valid]
        rows = output[valid].double()
        total = rows.new_zeros((2 * groups, *rows.shape[1:])).index_add_(0, place, rows)
        number = rows.new_zeros(2 * groups).index_add_(0, place, torch.ones_like(rows[:, 0, 0]))
        return cls(total.unflatten(0, (2, groups)), number.unflatten(0, (2, groups)))

    def __add__(self, other: "OutputSums") -> "OutputSums":
        return OutputSums(self.total + other.total, self.number + other.number)

    def other_half(self, group: torch.Tensor, half: torch.Tensor) -> torch.Tensor:
        """Return the mean output of each query token's group in the other half of the sentences.

        If the other half has no token of the group, the mean is over all tokens of the other half.
        If the other half has no tokens, the mean is over the half of the sentence.

        Args:
            group: group of each query token. *Shape:* ``(sentence, query)``.
            half: half of each sentence. *Shape:* ``(sentence,)``.

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


DRAWS = 3  # donors of each sentence
NEAR = 10  # sentences of most similar length, from which hashes choose the donors


@dataclass(frozen=True, eq=False)
class DonorOutputs:
    """Head outputs of some layers on all sentences, as donors for other sentences.

    Attributes:
        content_hash: hashes of the sentences. *Shape:* ``(sentence,)``.
        length: query tokens of each sentence, by layer. *Shape:* ``(sentence,)``.
        output: head outputs, by layer. *Shape:* ``(sentence, query, head, width)``, 0 in the
            padding.
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
        """Run the model over all sentences and keep the head outputs.

        Args:
            heads: model that is run.
            functions: targets, which prepare batches.
            batches: batches of all sentences.
            places: layers whose outputs are kept.

        Raises:
            ConfigError: all sentences are equal.
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
        """Return the outputs of donors; positions after the end of a donor have its last output.

        Args:
            place: layer of the outputs.
            key: hashes of the sentences whose outputs are replaced.
            queries: padded length of their batch.
            draw: number of the donor, 0 to `DRAWS` - 1.

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
        """Return the index of the donor of a sentence, preferring longer sentences."""
        length = self.length[place]
        own = int(length[np.flatnonzero(self.content_hash == np.uint64(key))[0]])
        others = [int(k) for k in np.flatnonzero(self.content_hash != np.uint64(key))]
        others.sort(
            key=lambda k: (
                max(own - length[k], 0),
                abs(own - length[k]),
                pair_hash(key, int(self.content_hash[k])),
            )
        )
        near = sorted(others[:NEAR], key=lambda k: pair_hash(key, int(self.content_hash[k])))
        return near[draw % len(near)]


def _padded(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Concatenate the outputs of several batches, padded to the longest."""
    longest = max(part.shape[1] for part in parts)
    pad = torch.nn.functional.pad
    return torch.cat([pad(part, (0, 0, 0, 0, 0, longest - part.shape[1])) for part in parts])


ROWS = 2048  # most tokens of a pass over copies of a batch

Floats = NDArray[np.float64]
Set = Collection[HeadName]


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
    """Sums of head outputs by layer, over classes of query tokens and over positions."""

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
    """Mean outputs of one layer, and the half of each sentence of a batch."""

    classes: OutputSums
    positions: OutputSums
    half: torch.Tensor


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
            HeadName(*p, head) for p in places for head in range(self._stacks[p[0]].n_heads)
        )

    def means(self, batch: Batch) -> MeanOutputs:
        """Sum the outputs of all heads over a batch."""
        read = self.functions.prepare_batch(batch)
        scopes, half = ViewMasks(read, self._stacks), self._half(read)
        classes, positions = {}, {}

        def add(place: AttentionPlace, attention: attention_hook.AttentionCall) -> None:
            assert attention.output is not None
            frame = scopes.get(place.stack, attention)[SinkView.RAW].frame
            output, valid = attention.output, frame.queries.valid
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
        """Measure the changes of all targets by ablating each set of heads.

        Each sentence is copied once for every set, and one pass runs over all copies, beginning at
        the first ablated layer.

        Args:
            batch: sentences on which heads are ablated.
            sets: heads of each set.
            replacement: replacement of the head outputs.
            means: mean outputs over the sample.
            others: donors of `Replacement.RESAMPLE`, over which changes are averaged.
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

    def _instead(
        self,
        copies: Batch,
        replacement: Replacement,
        means: MeanOutputs,
        others: DonorOutputs | None,
        draw: int,
    ) -> Replace:
        """Return the function that computes the replacement of a layer's head outputs."""
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
    """Return the replacement of a layer's outputs. *Shape:* ``(sentence, query, head, width)``.

    Args:
        attention: attention call whose outputs are replaced.
        frame: mask of the batch.
        replacement: kind of the replacement, except `Replacement.RESAMPLE`.
        known: mean outputs of the layer.
    """
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
    """Group the indices of sets whose passes can begin at the same layer."""
    groups: dict[tuple[bool, int], list[int]] = defaultdict(list)
    for index, heads in enumerate(sets):
        encoder = any(head.stack == "encoder" for head in heads)
        first = min(
            (head.layer for head in heads if not encoder or head.stack == "encoder"), default=0
        )
        groups[encoder, first].append(index)
    return [groups[key] for key in sorted(groups)]
