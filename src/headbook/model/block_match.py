"""Which recorded tensors are the sum of a residual and an attention block's output.

To rounding.

A place is taken only where the numbers say so: what a module reads, or what the layer gives, must
be the residual plus what comes of the heads, in every number.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import torch


@dataclass(eq=False)
class ModuleCall:
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
class RecordedAttention:
    """One call of attention.

    Attributes:
        path: of the module that made it.
        tick: when it was seen.
        given: what the heads gave, or their module; as in `ModuleCall`.
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
    ran: list[ModuleCall] = field(default_factory=list)
    attended: list[RecordedAttention] = field(default_factory=list)

    @property
    def layer(self) -> ModuleCall:
        """The call of the layer itself."""
        return self.ran[0]

    def before(self, tick: int) -> Iterator[ModuleCall]:
        """Calls that ended before, in their order."""
        yield from sorted((r for r in self.ran if 0 <= r.end < tick), key=lambda r: r.end)

    def between(self, first: int, last: int) -> Sequence[ModuleCall]:
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


ROUNDINGS = 2  # of a sum, in units of its number format
FITTED = 2  # times as much where a factor is fitted
CLEAR = 0.05  # share of the numbers in which each part must be larger than rounding
MIN_SHARE_OF_PART = 1e-3  # the smallest factor


def is_weighted_sum(
    total: torch.Tensor, one: torch.Tensor, other: torch.Tensor, *, eps: float
) -> bool:
    """Whether a vector is a sum of two others, each times a number."""
    if is_sum(total, one, other, eps=eps):
        return True
    found = torch.linalg.lstsq(torch.stack([one, other], 1), total[:, None]).solution[:, 0]
    a, b = found.tolist()
    least = min(abs(a), abs(b)) > MIN_SHARE_OF_PART
    return least and is_sum(total, a * one, b * other, eps=FITTED * eps)


def residual_factor(
    total: torch.Tensor,
    residual: torch.Tensor,
    part: torch.Tensor,
    eps: float,
    *,
    fitted: bool = True,
) -> float | None:
    """The number by which a part stands in a sum with a residual; None where it does not.

    Args:
        fitted: whether any number will do; else 1 alone.
    """
    length = float(part @ part)
    if length == 0 or not torch.isfinite(total).all():
        return None
    if is_sum(total, residual, part, eps=eps):
        return 1.0
    if not fitted:
        return None
    number = float((total - residual) @ part) / length
    fits = is_sum(total, residual, number * part, eps=FITTED * eps)
    return number if fits and abs(number) > MIN_SHARE_OF_PART else None


def is_sum(total: torch.Tensor, *parts: torch.Tensor, eps: float) -> bool:
    """Whether a sum holds in every number, to rounding, and no part is lost in rounding."""
    rest = total - sum(parts)
    allowed = ROUNDINGS * eps * (total.abs() + sum(part.abs() for part in parts))
    clear = min(float((part.abs() > allowed).double().mean()) for part in parts)
    return bool((rest.abs() <= allowed).all()) and clear >= CLEAR


FINEST = 1e-6  # rounding of a number format in which a fit still tells
SLACK = 16  # times the rounding of a sum; what is no such sum is thousands of times that off
TOKENS = 8  # the fewest that tell
MIN_WEIGHT = 1e-3  # the smallest weight, of most numbers


@dataclass(frozen=True, eq=False)
class SumWeights:
    """What a residual and a block's output are multiplied by, and what is added to both.

    Attributes:
        residual, block, bias: in double precision. *Shape:* ``(width,)`` each.
    """

    residual: torch.Tensor
    block: torch.Tensor
    bias: torch.Tensor

    def to(self, like: torch.Tensor) -> "SumWeights":
        """The same in the number format of a tensor, and where it is."""
        return SumWeights(*(x.to(like) for x in (self.residual, self.block, self.bias)))

    def total(self, residual: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
        """The sum. *Shape:* ``(..., width)`` each."""
        own = self.to(residual)
        return own.residual * residual + own.block * block + own.bias


def fit_sum_weights(
    total: torch.Tensor, residual: torch.Tensor, block: torch.Tensor, *, width: int, eps: float
) -> SumWeights | None:
    """The weights of a sum that holds in every number; None where there are none.

    There are three for each number of a state, and several times as many tokens.

    Args:
        total, residual, block: of all tokens, flat, in double precision.
        eps: rounding of the number format that they come from.
    """
    sums, *parts = (x.view(-1, width).T for x in (total, residual, block))
    columns = torch.stack([*parts, torch.ones_like(sums)], -1)  # (width, token, 3)
    finite = torch.isfinite(sums).all() and torch.isfinite(columns).all()
    if eps > FINEST or sums.shape[1] < TOKENS or not finite:
        return None
    found = torch.linalg.lstsq(columns, sums.unsqueeze(-1)).solution
    allowed = SLACK * eps * (sums.abs() + (columns * found.mT).abs().sum(-1))
    weights = SumWeights(*found[..., 0].unbind(1))
    clear = all(float(x.abs().median()) > MIN_WEIGHT for x in (weights.residual, weights.block))
    fits = ((columns @ found).squeeze(-1) - sums).abs() <= allowed
    return weights if clear and bool(fits.all()) else None


@dataclass(frozen=True)
class ResidualAddition:
    """Where one attention block of a layer ends; all paths lead from the layer.

    Attributes:
        block: the module whose output, times ``scale``, is added to the residual.
        after: the module whose input is the ``mid`` state; None where no module reads that sum.
        residual: the module that holds that residual; by default it is the layer's own input.
        enters: whether the residual is what that module takes; else what it gives.
        parallel: the feed-forward module that runs beside the attention block, if any.
        closed: whether ``after`` is a norm that the residual itself goes through (post-norm);
            None where a pass does not tell.
        scale: factor of the block's output.
        straight: whether the block is the output projection, or takes what that gives.
        weights: of the sum, where each number of a state has its own; None where the residual is
            added as it is.
    """

    block: str
    after: str | None
    residual: str = ""
    enters: bool = False
    parallel: str = ""
    closed: bool | None = False
    scale: float = 1.0
    straight: bool = True
    weights: SumWeights | None = None

    def total(self, residual: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
        """The sum of both. *Shape:* ``(..., width)`` each."""
        if self.weights is not None:
            return self.weights.total(residual, block)
        return residual + self.scale * block


class _Vector(NamedTuple):
    """States that a residual may be.

    Attributes:
        enters: whether the module takes them; else it gives them.
    """

    path: str
    enters: bool
    states: torch.Tensor


_Flat = torch.Tensor


class _Added(NamedTuple):
    """How a sum is made; see `ResidualAddition`."""

    scale: float
    weights: SumWeights | None = None


_Fit = Callable[[LayerRun, _Flat, _Flat, _Flat], _Added | None]


def find_residual_addition(
    run: LayerRun, number: int, projection: str | None
) -> ResidualAddition | None:
    """Where the attention block of a layer ends, or None where nothing adds up.

    Args:
        number: which call of attention in this layer.
        projection: path of the module that takes the heads' outputs as they are, if one does.
    """
    call = run.attended[number]
    later = [other.tick for other in run.attended[number + 1 :]]
    end = min(later, default=run.layer.end)
    blocks = _derived(run, call)
    read = partial(_read, run, call, blocks, end=end, projection=projection)
    found = read(fits=(_plain, _scaled))
    if found is None and not later:
        found = _unread(run, call, blocks, projection)
    return found or read(fits=(_weighed,))  # last what takes the most numbers to fit


def _derived(run: LayerRun, call: RecordedAttention) -> list[ModuleCall]:
    """Calls that give what comes of the heads, each tensor once, in the order in which they end."""
    found: list[ModuleCall] = []
    known = [] if call.given is None else [call.given]
    for ran in sorted(run.ran[1:], key=lambda r: r.end):
        if ran.given is None or not _comes_of(ran, call, known):
            continue
        if not _among(ran.given, [r.given for r in found]):
            found.append(ran)
        known.append(ran.given)
    return found


def _comes_of(ran: ModuleCall, call: RecordedAttention, known: list[torch.Tensor]) -> bool:
    """Whether a module holds attention, stands in it, or takes what is known to come of it."""
    inside = ran.path.startswith(f"{call.path}.")
    if ran.end < call.tick:
        return inside and call.whole
    around = ran.path == call.path or call.path.startswith(f"{ran.path}.")
    return inside or around or (ran.start > call.tick and _among(ran.taken, known))


def _among(vector: torch.Tensor | None, others: Sequence[torch.Tensor | None]) -> bool:
    return vector is not None and any(o is not None and _same(vector, o) for o in others)


def _same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    return one is not None and other is not None and torch.equal(one, other)


def _residuals(run: LayerRun, call: RecordedAttention) -> list[_Vector]:
    """What the block's output may be added to: the layer's input first, then what came of it."""
    found: list[_Vector] = []
    own = run.layer.taken
    assert own is not None
    given = [_Vector(r.path, False, r.given) for r in run.before(call.tick) if r.given is not None]
    taken = [
        _Vector(r.path, True, r.taken)
        for r in run.ran[1:]
        if r.start < call.tick and r.taken is not None
    ]
    for each in [_Vector("", False, own), *given, *taken]:
        fits = each.states.shape == own.shape and (not each.path or run.once(each.path))
        if fits and not _among(each.states, [f.states for f in found]):
            found.append(each)
    return found


def _plain(run: LayerRun, total: _Flat, residual: _Flat, block: _Flat) -> _Added | None:
    scale = residual_factor(total, residual, block, run.eps, fitted=False)
    return _Added(scale) if scale else None


def _scaled(run: LayerRun, total: _Flat, residual: _Flat, block: _Flat) -> _Added | None:
    scale = residual_factor(total, residual, block, run.eps)
    return _Added(scale) if scale else None


def _weighed(run: LayerRun, total: _Flat, residual: _Flat, block: _Flat) -> _Added | None:
    weights = fit_sum_weights(total, residual, block, width=run.width, eps=run.eps)
    return None if weights is None else _Added(1.0, weights)


def _read(
    run: LayerRun,
    call: RecordedAttention,
    blocks: list[ModuleCall],
    *,
    end: int,
    projection: str | None,
    fits: Sequence[_Fit],
) -> ResidualAddition | None:
    """The first sum that a module reads.

    Args:
        fits: to add up, the first first.
    """
    residuals = _residuals(run, call)
    for reader in run.between(call.tick, end):
        ready = [b for b in blocks if 0 <= b.end < reader.start]
        triples = [*_triples(reader.taken, residuals, ready)]
        # Plain sums first: beside a large residual, half precision lets a block before its norm
        # pass for what that norm gives, with a factor.
        for fit, (total, residual, block) in product(fits, triples):
            added = fit(run, total, residual.states, _given(block))
            after = added and _reader(run, total, call.tick, end)
            if not added or not after:
                continue
            return ResidualAddition(
                block.path, after.path, residual.path, residual.enters, scale=added.scale,
                closed=_closed(run, after, weighed=added.weights is not None),
                straight=_straight(run, block, projection),
                weights=added.weights,
            )  # fmt: skip
    return None


def _triples(
    total: torch.Tensor | None, residuals: list[_Vector], blocks: list[ModuleCall]
) -> Iterator[tuple[torch.Tensor, _Vector, ModuleCall]]:
    """Sums to try: of one size."""
    for residual in residuals:
        for block in blocks:
            if total is not None and total.shape == residual.states.shape == _given(block).shape:
                yield total, residual, block


def _given(ran: ModuleCall) -> torch.Tensor:
    assert ran.given is not None
    return ran.given


def _reader(run: LayerRun, total: torch.Tensor, first: int, end: int) -> ModuleCall | None:
    """The module that reads a sum, and does something to it; a simple one if there is one."""
    readers = [
        r
        for r in run.between(first, end)
        if _same(r.taken, total) and not _same(r.given, total) and run.once(r.path)
    ]
    return next((r for r in readers if r.leaf), next(iter(readers), None))


def _unread(
    run: LayerRun, call: RecordedAttention, blocks: list[ModuleCall], projection: str | None
) -> ResidualAddition | None:
    """A sum that no module reads: in what the layer gives, alone or with what runs beside it."""
    left, own = run.layer.given, run.layer.taken
    assert own is not None
    ours = [b.given for b in blocks]
    beside = [
        r
        for r in run.before(run.layer.end)
        if r.given is not None and r.given.shape == own.shape and not _among(r.given, ours)
    ]
    for total, _, block in _triples(left, [_Vector("", False, own)], blocks):
        if not run.once(block.path):
            continue
        straight = _straight(run, block, projection)
        scale = residual_factor(total, own, _given(block), run.eps, fitted=True)
        if scale:
            return ResidualAddition(block.path, None, scale=scale, straight=straight)
        for other in beside:
            parts = own, _given(block), _given(other)
            if run.once(other.path) and is_sum(total, *parts, eps=run.eps):
                return ResidualAddition(block.path, None, parallel=other.path, straight=straight)
    return None


def _straight(run: LayerRun, block: ModuleCall, projection: str | None) -> bool:
    """Whether a block is the output projection, or takes what that gives."""
    if block.path == projection:
        return True
    return any(r.path == projection and _same(r.given, block.taken) for r in run.ran)


def _closed(run: LayerRun, after: ModuleCall, *, weighed: bool) -> bool | None:
    """Whether what goes on is what a module makes of the sum, not the sum itself.

    Args:
        weighed: whether what goes on may have weights for each number, too.
    """
    own = run.layer.given
    sums = [r.taken for r in run.between(after.end, run.layer.end)] + [own]
    parts = [
        r
        for r in run.ran[1:]
        if r.end > after.end and not _same(r.given, own) and not _same(r.given, after.given)
    ]
    for total in sums:
        if _same(total, after.given) and total is own:
            return True
        for part in parts:
            for states, closed in ((after.taken, False), (after.given, True)):
                if _both(run, total, states, part.given, weighed=weighed):
                    return closed
    return None


def _both(
    run: LayerRun,
    total: torch.Tensor | None,
    states: torch.Tensor | None,
    part: torch.Tensor | None,
    *,
    weighed: bool,
) -> bool:
    """Whether a vector is a sum of two others, with weights."""
    if total is None or states is None or part is None:
        return False
    if not total.shape == states.shape == part.shape or _same(states, part):
        return False
    if is_weighted_sum(total, states, part, eps=run.eps):
        return True
    return (
        weighed and fit_sum_weights(total, states, part, width=run.width, eps=run.eps) is not None
    )
