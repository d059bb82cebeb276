"""What stands in place of the outputs of heads that are taken away.

Outputs are those before the output projection, ``(sentence, query, head, width)``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from headbook.attention.frame import Frame
from headbook.terms import Replacement

CLASSES = 3  # of query tokens: at position 0, special, ordinary
POSITIONS = 65  # the last for all that come later


@dataclass(frozen=True, eq=False)
class Heads:
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


def classes(frame: Frame) -> torch.Tensor:
    """The class of each query token. *Shape:* ``(sentence, query)``, 0 to 2."""
    ordinary = torch.where(frame.queries.special, 1, 2)
    return torch.where(frame.queries.first, 0, ordinary)


def positions(frame: Frame) -> torch.Tensor:
    """The position of each query token, late ones as one. *Shape:* ``(sentence, query)``."""
    ids = frame.queries.ids
    return torch.arange(ids.shape[1], device=ids.device).clamp(max=POSITIONS - 1).expand_as(ids)


def zero(heads: Heads, frame: Frame) -> torch.Tensor:
    """Nothing."""
    del frame
    return torch.zeros_like(heads.output)


def uniform(heads: Heads, frame: Frame) -> torch.Tensor:
    """The mean of the values of all visible keys."""
    seen = frame.seen.unsqueeze(1).to(heads.weights.dtype)
    return heads.of(seen / seen.sum(-1, keepdim=True).clamp(min=1))


def without_sink(heads: Heads, frame: Frame) -> torch.Tensor:
    """Without the sink's keys; the weights of others stay as they are."""
    return heads.of(heads.weights * ~frame.sink[:, None, None, :])


def sink_only(heads: Heads, frame: Frame) -> torch.Tensor:
    """With all attention on the sink, shared as it is; the output itself where none is seen."""
    kept = heads.weights * frame.sink[:, None, None, :]
    total = kept.sum(-1, keepdim=True)
    found = heads.of(kept / torch.where(total > 0, total, 1))
    return torch.where((total > 0).transpose(1, 2), found, heads.output)


OWN: Mapping[Replacement, Callable[[Heads, Frame], torch.Tensor]] = {
    Replacement.ZERO: zero,
    Replacement.UNIFORM: uniform,
    Replacement.WITHOUT_SINK: without_sink,
    Replacement.SINK_ONLY: sink_only,
}
"""Replacements that need nothing but the sentence itself."""


@dataclass(frozen=True, eq=False)
class Sums:
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
    ) -> "Sums":
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

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(self.total + other.total, self.number + other.number)

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
