"""What the modules of one layer took and gave while it ran once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(eq=False)
class Ran:
    """One call of a module.

    Attributes:
        path: from the layer; empty for the layer itself.
        leaf: whether it has no modules of its own.
        taken, given: flat and in double precision; None where there are no such vectors.
        start, end: ticks of the pass; ``end`` is -1 while the call is under way.
    """

    path: str
    leaf: bool
    start: int
    taken: torch.Tensor | None
    given: torch.Tensor | None = None
    end: int = -1


@dataclass(eq=False)
class Attended:
    """One call of attention.

    Attributes:
        path: of the module that made it.
        tick: when it was seen.
        given: what the heads gave, or their module; as in `Ran`.
        whole: whether it was seen when that module had ended.
    """

    path: str
    tick: int
    given: torch.Tensor | None
    whole: bool = False


@dataclass(eq=False)
class LayerRun:
    """What happened while a layer ran once.

    Attributes:
        eps: rounding of the number format of its states.
        width: of its states.
    """

    eps: float
    width: int
    ran: list[Ran] = field(default_factory=list)
    attended: list[Attended] = field(default_factory=list)

    @property
    def layer(self) -> Ran:
        """The call of the layer itself."""
        return self.ran[0]

    def before(self, tick: int) -> Iterator[Ran]:
        """Calls that ended before, in their order."""
        yield from sorted((r for r in self.ran if 0 <= r.end < tick), key=lambda r: r.end)

    def between(self, first: int, last: int) -> Sequence[Ran]:
        """Calls that began inside, in their order."""
        return [r for r in self.ran if first < r.start < last]

    def once(self, path: str) -> bool:
        """Whether a module ran once only."""
        return sum(r.path == path for r in self.ran) == 1


def first_states(value: Any) -> torch.Tensor | None:
    """The first vectors in what a module took or gave; None where there are none."""
    if isinstance(value, dict):
        value = [value[name] for name in sorted(value, key=lambda n: n != "hidden_states")]
    if isinstance(value, tuple | list):
        return next((x for x in map(first_states, value) if x is not None), None)
    states = isinstance(value, torch.Tensor) and value.is_floating_point() and value.ndim > 1
    return value if states else None


def flat(value: Any) -> torch.Tensor | None:
    """A copy of the same, flat and in double precision: models add to what they have in place."""
    states = first_states(value)
    return None if states is None else states.detach().cpu().to(torch.float64, copy=True).flatten()
