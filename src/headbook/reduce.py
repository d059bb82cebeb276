"""From a batch's ratios to the sums that survive it, in float64."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from headbook.accumulators import HALVES
from headbook.metrics.base import Ratio


@dataclass(frozen=True)
class Parts:
    """Many measures side by side; tensors are ``(sentence, head, ...)``.

    Labels of one measure often share a denominator, which is kept once.

    Attributes:
        n: numerators, a column for each label.
        d, events: denominators and events.
        d_of, events_of: the column of ``d`` and of ``events`` that each column of ``n`` takes.
    """

    n: torch.Tensor
    d: torch.Tensor
    events: torch.Tensor
    d_of: torch.Tensor
    events_of: torch.Tensor

    @classmethod
    def of(cls, ratios: Sequence[Ratio], n_heads: int) -> "Parts":
        """Put ratios side by side."""
        numerators = [_columns(ratio.numerator, n_heads) for ratio in ratios]
        labels = [n.shape[2] for n in numerators]
        d, d_of = _shared([r.denominator for r in ratios], labels, n_heads)
        events, events_of = _shared(
            [r.denominator if r.events is None else r.events for r in ratios], labels, n_heads
        )
        return cls(torch.cat(numerators, -1).double(), d, events, d_of, events_of)

    def together(self) -> "Parts":
        """The heads of the layer added up, as one head."""
        n, d, events = (x.sum(1, keepdim=True) for x in (self.n, self.d, self.events))
        return Parts(n, d, events, self.d_of, self.events_of)

    def sums(self, half: NDArray[np.int64]) -> NDArray[np.float64]:
        """What `Ratios` keeps of a batch; a sentence with denominator 0 takes no part.

        Args:
            half: the half, 0 or 1, of each sentence.

        Returns:
            *Shape:* ``(7, 2, head, column)``.
        """
        member = torch.from_numpy(half == np.arange(HALVES)[:, None]).to(self.n)

        def add(x: torch.Tensor) -> torch.Tensor:
            return (member @ x.flatten(1)).reshape(HALVES, *x.shape[1:])

        n, d = self.n, self.d
        per_d = torch.stack([add(d), add(d * d), add((d > 0).to(d))])[..., self.d_of]
        n_d = add(n * d[..., self.d_of])
        events = add(self.events)[..., self.events_of]
        sums = torch.stack([add(n), per_d[0], add(n * n), per_d[1], n_d, per_d[2], events])
        return sums.cpu().numpy()


def _columns(part: torch.Tensor, n_heads: int) -> torch.Tensor:
    """``(sentence, head, label)``, whatever the measure left out."""
    part = part.unsqueeze(-1) if part.ndim == 2 else part
    return part.expand(-1, n_heads, -1)


def _shared(
    parts: Sequence[torch.Tensor], labels: Sequence[int], n_heads: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Parts side by side, and for each label of each measure the column it takes."""
    columns = [_columns(part, n_heads) for part in parts]
    taken: list[int] = []
    start = 0
    for part, n_labels in zip(columns, labels, strict=True):
        width = part.shape[2]
        taken += range(start, start + width) if width == n_labels else [start] * n_labels
        start += width
    return torch.cat(columns, -1).double(), torch.tensor(
        taken, dtype=torch.long, device=parts[0].device
    )
