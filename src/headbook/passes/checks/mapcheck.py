"""Self-checks of attention maps, and what all checks share."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import torch

from headbook.model import hook
from headbook.model.architecture import Architecture, Call
from headbook.model.model import Model
from headbook.passes.checks.learned import learned_share
from headbook.passes.checks.ownattention import applied, difference, own
from headbook.text.batch import Batch

ROWS = "rows of attention sum to 1"
WITH_SINK = "rows of attention + share of the learned sink = 1"
APPLIED = "weights times values = what heads give, the learned sink nothing"
OWN = "attention = the model's own, each text alone"
ALONE = 4  # sentences run without the hook
Found = Iterator[tuple[str, str, float]]  # what should hold, in which stack, largest difference


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    """Largest difference, relative to the largest value of ``b``."""
    scale = b.abs().max().clamp_min(torch.finfo(b.dtype).tiny)
    return float((a - b).abs().max() / scale)


def largest(errors: Iterable[float]) -> float:
    """The largest; NaN, which `max` would pass over, where there is one."""
    return float(torch.tensor([*errors], dtype=torch.float64).max())


def rows(
    architecture: Architecture, batch: Batch, attention: Mapping[Call, hook.Attention]
) -> Found:
    """What a query gives is all that there is, the share of a learned sink included."""
    for name, stack in architecture.stacks.items():
        valid = batch.texts[stack.queries].valid
        sums = [
            (a.weights.sum(-1) + (learned_share(a) if stack.learned_sink else 0)).movedim(1, -1)
            for c, a in attention.items()
            if c.stack == name
        ]
        yield (
            WITH_SINK if stack.learned_sink else ROWS,
            name,
            largest(float((each[valid] - 1).abs().max()) for each in sums),
        )


def nothing_lost(
    architecture: Architecture, batch: Batch, attention: Mapping[Call, hook.Attention]
) -> Found:
    """What rows lack goes to a sink that brings nothing."""
    for name, stack in architecture.stacks.items():
        if stack.learned_sink:
            valid = batch.texts[stack.queries].valid
            pairs = [(applied(a), a.output) for c, a in attention.items() if c.stack == name]
            yield (
                APPLIED,
                name,
                largest(
                    torch.nan if mixed is None or given is None
                    else relative(mixed[valid], given[valid])
                    for mixed, given in pairs
                ),
            )  # fmt: skip


def as_returned(
    model: Model, architecture: Architecture, batch: Batch, attention: Mapping[Call, hook.Attention]
) -> Found:
    """What was read in a batch against what the model returns for some of its texts alone."""
    few = range(min(ALONE, len(batch.items)))
    alone = [own(model, architecture, Batch.of([batch.items[i]], model.device)) for i in few]
    errors: dict[str, list[float]] = defaultdict(list)
    for call, seen in attention.items():
        stack = architecture.stacks[call.stack]
        for i, theirs in enumerate(each.get(call) for each in alone):
            if theirs is not None and theirs.ndim == seen.weights.ndim:
                n, m = (int(batch.texts[s].valid[i].sum()) for s in (stack.queries, stack.keys))
                mine = seen.weights[i, :, :n, :m]
                errors[call.stack].append(difference(mine, theirs[0, :, :n, :m]))
    for name, error in errors.items():
        yield OWN, name, largest(error)


def triangles(
    architecture: Architecture, batch: Batch, attention: Mapping[Call, hook.Attention]
) -> Found:
    """In causal stacks nothing goes to what comes later."""
    for name, stack in architecture.stacks.items():
        if stack.causal:
            # Rows of padding may see no key at all, and then look everywhere alike.
            valid = batch.texts[stack.queries].valid
            maps = [a.weights.triu(1) for c, a in attention.items() if c.stack == name]
            later = largest(float(each.movedim(1, -1)[valid].max()) for each in maps)
            yield "no attention to later positions", name, later
