"""Replacements of head outputs: from other sentences, from means, or from the sentence itself.

Head outputs are replaced before the output projection, ``(sentence, query, head, width)``. For the
replacement ``resample``, the output is taken from other sentences of similar length, position by
position. Hashes of the sentences choose these donors, so the choice is equal in every run.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.ablation.targets import TargetFunctions, pair_hash
from headbook.analysis.arrays import Ints
from headbook.attention.masks import BatchMask
from headbook.errors import ConfigError
from headbook.model import attention_hook
from headbook.model.architecture import AttentionPlace
from headbook.model.forward import run_forward
from headbook.model.intervention import PatchableModel
from headbook.schema import Replacement
from headbook.text.batch import Batch

N_TOKEN_CLASSES = 3  # classes of query tokens: at position 0, special, ordinary
N_POSITIONS = 65  # positions with a mean of their own; the last one stands for all later ones


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
        heads_per_key_head = self.weights.shape[1] // self.value.shape[1]
        values = self.value.repeat_interleave(heads_per_key_head, 1)
        outputs: torch.Tensor = (weights @ values).transpose(1, 2)
        return outputs


def query_token_class(frame: BatchMask) -> torch.Tensor:
    """Return the class of each query token, 0 to 2. *Shape:* ``(sentence, query)``."""
    ordinary = torch.where(frame.queries.special, 1, 2)
    return torch.where(frame.queries.first, 0, ordinary)


def query_position(frame: BatchMask) -> torch.Tensor:
    """Return the position of each query token, at most 64. *Shape:* ``(sentence, query)``."""
    ids = frame.queries.ids
    return torch.arange(ids.shape[1], device=ids.device).clamp(max=N_POSITIONS - 1).expand_as(ids)


def zero_output(heads: LayerOutputs, frame: BatchMask) -> torch.Tensor:
    """Return zeros."""
    del frame
    return torch.zeros_like(heads.output)


def uniform_attention_output(heads: LayerOutputs, frame: BatchMask) -> torch.Tensor:
    """Return the mean of the values of all visible keys."""
    visible = frame.attention_mask.unsqueeze(1).to(heads.weights.dtype)
    return heads.of(visible / visible.sum(-1, keepdim=True).clamp(min=1))


def without_sink(heads: LayerOutputs, frame: BatchMask) -> torch.Tensor:
    """Return the outputs without sink keys; the weights of other keys are unchanged."""
    return heads.of(heads.weights * ~frame.sink[:, None, None, :])


def sink_only(heads: LayerOutputs, frame: BatchMask) -> torch.Tensor:
    """Return the outputs with all attention on the sink keys, in their present proportions.

    Queries that see no sink key keep their output.
    """
    on_sink = heads.weights * frame.sink[:, None, None, :]
    total = on_sink.sum(-1, keepdim=True)
    outputs = heads.of(on_sink / torch.where(total > 0, total, 1))
    return torch.where((total > 0).transpose(1, 2), outputs, heads.output)


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
        index = (half[:, None] * groups + group)[valid]
        rows = output[valid].double()
        total = rows.new_zeros((2 * groups, *rows.shape[1:])).index_add_(0, index, rows)
        number = rows.new_zeros(2 * groups).index_add_(0, index, torch.ones_like(rows[:, 0, 0]))
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
        overall_mean = (
            self.total.sum(1, keepdim=True) / self.number.sum(1).clamp(min=1)[:, None, None, None]
        )
        means = torch.where(
            empty, overall_mean, self.total / self.number.clamp(min=1)[..., None, None]
        )
        empty_half = (self.number.sum(1) == 0)[:, None, None, None]
        means = torch.where(empty_half, means.flip(0), means)
        chosen: torch.Tensor = means[(1 - half)[:, None], group]
        return chosen


N_DONORS = 3  # donors of each sentence
N_DONOR_CANDIDATES = 10  # sentences of most similar length, from which hashes choose the donors


@dataclass(frozen=True, eq=False)
class DonorOutputs:
    """Head outputs of some layers on all sentences, as donors for other sentences.

    A sentence that the model reads in several rows is as many donors, with one hash.

    Attributes:
        content_hash: hashes of the rows. *Shape:* ``(row,)``.
        length: query tokens of each row, by layer. *Shape:* ``(row,)``.
        output: head outputs, by layer. *Shape:* ``(row, query, head, width)``, 0 in the padding.
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
        rows = [functions.prepare_batch(batch) for batch in batches]
        content_hash = np.concatenate([batch.content_hash for batch in rows])
        if len({*content_hash}) < 2:
            raise ConfigError(
                "replacement: got 'resample' with one sentence, expected two different sentences"
            )
        outputs: dict[AttentionPlace, list[torch.Tensor]] = {call: [] for call in places}

        def add(place: AttentionPlace, attention: attention_hook.AttentionCall) -> None:
            if place in outputs:
                assert attention.output is not None
                outputs[place].append(attention.output.detach())

        for batch in rows:
            run_forward(heads.model, heads.architecture, batch, add)
        sides = {call: heads.architecture.stacks[call.stack].queries for call in places}
        length = {
            call: np.concatenate([batch.texts[side].valid.sum(1).cpu().numpy() for batch in rows])
            for call, side in sides.items()
        }
        return cls(content_hash, length, {call: _padded(parts) for call, parts in outputs.items()})

    def donor_output(
        self, place: AttentionPlace, key: NDArray[np.uint64], queries: int, draw: int
    ) -> torch.Tensor:
        """Return the outputs of donors; positions after the end of a donor have its last output.

        Args:
            place: layer of the outputs.
            key: hashes of the sentences whose outputs are replaced.
            queries: padded length of their batch.
            draw: number of the donor, 0 to `N_DONORS` - 1.

        Returns:
            *Shape:* ``(sentence, query, head, width)``.
        """
        keys, row_of_key = np.unique(key, return_inverse=True)
        donors = np.array([self._donor(place, int(each), draw) for each in keys])[row_of_key]
        last = self.length[place][donors] - 1
        positions = np.minimum(np.arange(queries), last[:, None])
        output = self.output[place]
        rows, columns = (
            torch.from_numpy(index_array).to(output.device) for index_array in (donors, positions)
        )
        return output[rows[:, None], columns]

    def _donor(self, place: AttentionPlace, key: int, draw: int) -> int:
        """Return the index of the donor of a sentence, preferring longer sentences."""
        length = self.length[place]
        own_length = int(length[np.flatnonzero(self.content_hash == np.uint64(key))[0]])
        candidates = [int(index) for index in np.flatnonzero(self.content_hash != np.uint64(key))]
        candidates.sort(
            key=lambda index: (
                max(own_length - length[index], 0),
                abs(own_length - length[index]),
                pair_hash(key, int(self.content_hash[index])),
            )
        )
        nearest = sorted(
            candidates[:N_DONOR_CANDIDATES],
            key=lambda index: pair_hash(key, int(self.content_hash[index])),
        )
        return nearest[draw % len(nearest)]


def _padded(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Concatenate the outputs of several batches, padded to the longest."""
    longest = max(part.shape[1] for part in parts)
    pad = torch.nn.functional.pad
    return torch.cat([pad(part, (0, 0, 0, 0, 0, longest - part.shape[1])) for part in parts])


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
    a: Mapping[AttentionPlace, OutputSums], b: Mapping[AttentionPlace, OutputSums]
) -> Mapping[AttentionPlace, OutputSums]:
    return {call: a[call] + b[call] for call in a} if a else b


class LayerMeans(NamedTuple):
    """Mean outputs of one layer, and the half of each sentence of a batch."""

    classes: OutputSums
    positions: OutputSums
    half: torch.Tensor


def replacement_output(
    attention: attention_hook.AttentionCall,
    frame: BatchMask,
    replacement: Replacement,
    layer_means: LayerMeans,
) -> torch.Tensor:
    """Return the replacement of a layer's outputs. *Shape:* ``(sentence, query, head, width)``.

    Args:
        attention: attention call whose outputs are replaced.
        frame: mask of the batch.
        replacement: kind of the replacement, except `Replacement.RESAMPLE`.
        layer_means: mean outputs of the layer.
    """
    if replacement is Replacement.MEAN:
        return layer_means.classes.other_half(query_token_class(frame), layer_means.half)
    if replacement is Replacement.POSITION_MEAN:
        return layer_means.positions.other_half(query_position(frame), layer_means.half)
    assert attention.output is not None
    assert attention.value is not None
    return REPLACEMENTS[replacement](
        LayerOutputs(attention.weights, attention.value, attention.output), frame
    )
