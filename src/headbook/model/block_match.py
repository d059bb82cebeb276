"""Search among a layer's recorded tensors for the sum of residual and attention block output.

A sum is accepted only if it holds in every number up to rounding: the input of a module, or the
output of the layer, must be the residual plus a tensor that depends on the heads.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import torch


@dataclass(eq=False)
class ModuleCall:
    """One call of a module, with its recorded input and output.

    Attributes:
        path: path of the module from the layer; empty for the layer itself.
        leaf: whether the module has no submodules.
        taken, given: input and output, flat and in double precision; None if they hold no states.
        start, end: ticks of the pass; ``end`` is -1 during the call.
    """

    path: str
    leaf: bool
    start: int
    taken: torch.Tensor | None
    given: torch.Tensor | None = None
    end: int = -1


@dataclass(eq=False)
class RecordedAttention:
    """One recorded call of attention.

    Attributes:
        path: path of the module that made the call.
        tick: tick of the pass at which the call was recorded.
        given: output of the heads or of their module, flat and in double precision, or None.
        whole: whether the call was recorded after its module had ended.
    """

    path: str
    tick: int
    given: torch.Tensor | None
    whole: bool = False


@dataclass(eq=False)
class LayerRun:
    """Recorded calls of one run of a layer.

    Attributes:
        eps: rounding of the number format of the states.
        width: width of the states.
        ran: calls of the layer's modules by start, the layer itself first.
        attended: attention calls in order.
    """

    eps: float
    width: int
    ran: list[ModuleCall] = field(default_factory=list)
    attended: list[RecordedAttention] = field(default_factory=list)

    @property
    def layer(self) -> ModuleCall:
        """Call of the layer itself."""
        return self.ran[0]

    def before(self, tick: int) -> Iterator[ModuleCall]:
        """Yield the calls that ended before a tick, ordered by end."""
        yield from sorted((r for r in self.ran if 0 <= r.end < tick), key=lambda r: r.end)

    def between(self, first: int, last: int) -> Sequence[ModuleCall]:
        """Return the calls that began between two ticks, in order."""
        return [r for r in self.ran if first < r.start < last]

    def once(self, path: str) -> bool:
        """Whether a module ran exactly once."""
        return sum(r.path == path for r in self.ran) == 1


def first_states(value: Any) -> torch.Tensor | None:
    """Return the first floating-point tensor of two or more dimensions in a value, or None."""
    if isinstance(value, dict):
        value = [value[name] for name in sorted(value, key=lambda n: n != "hidden_states")]
    if isinstance(value, tuple | list):
        return next((x for x in map(first_states, value) if x is not None), None)
    states = isinstance(value, torch.Tensor) and value.is_floating_point() and value.ndim > 1
    return value if states else None


def flat(value: Any) -> torch.Tensor | None:
    r"""Return a flat copy of the first states in a value, in double precision, or None.

    A copy, because models add to their states in place.
    """
    states = first_states(value)
    return None if states is None else states.detach().cpu().to(torch.float64, copy=True).flatten()


ROUNDINGS = 2  # tolerance of a sum, in units of the number format's rounding
FITTED = 2  # factor of the tolerance if weights are fitted
CLEAR = 0.05  # share of the numbers in which each part must be larger than rounding
MIN_SHARE_OF_PART = 1e-3  # the smallest factor of a part


def is_weighted_sum(
    total: torch.Tensor, one: torch.Tensor, other: torch.Tensor, *, eps: float
) -> bool:
    """Whether a vector is a weighted sum of two others."""
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
    """Return the factor of a part in a sum with a residual, or None if there is no such sum.

    Args:
        fitted: whether any factor is accepted; else 1 only.
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
    """Whether a sum holds in every number up to rounding, with no part lost in rounding."""
    rest = total - sum(parts)
    allowed = ROUNDINGS * eps * (total.abs() + sum(part.abs() for part in parts))
    clear = min(float((part.abs() > allowed).double().mean()) for part in parts)
    return bool((rest.abs() <= allowed).all()) and clear >= CLEAR


FINEST = 1e-6  # largest rounding of a number format in which a fit is conclusive
SLACK = 16  # tolerance in roundings of a sum; other tensors are off by thousands of times that
TOKENS = 8  # fewest tokens for a conclusive fit
MIN_WEIGHT = 1e-3  # smallest median weight


@dataclass(frozen=True, eq=False)
class SumWeights:
    """Weights by dimension of a residual and a block's output in a sum, with a bias.

    Attributes:
        residual, block: factors of residual and block output. *Shape:* ``(width,)`` each.
        bias: constant added to both. *Shape:* ``(width,)``.
    """

    residual: torch.Tensor
    block: torch.Tensor
    bias: torch.Tensor

    def to(self, like: torch.Tensor) -> "SumWeights":
        """Return the weights in the number format and on the device of a tensor."""
        return SumWeights(*(x.to(like) for x in (self.residual, self.block, self.bias)))

    def total(self, residual: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
        """Return the weighted sum of residual and block output. *Shape:* ``(..., width)`` each."""
        own = self.to(residual)
        return own.residual * residual + own.block * block + own.bias


def fit_sum_weights(
    total: torch.Tensor, residual: torch.Tensor, block: torch.Tensor, *, width: int, eps: float
) -> SumWeights | None:
    """Fit the weights of a sum that holds in every number, or return None if none fit.

    Three weights are fitted for each dimension, on several times as many tokens.

    Args:
        total, residual, block: states of all tokens, flat, in double precision.
        width: width of a state.
        eps: rounding of the number format in which the states were computed.
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
    """Sum of residual and attention block output in a layer; all paths start at the layer.

    Attributes:
        block: path of the module whose output, times ``scale``, is added to the residual.
        after: path of the module whose input is the ``mid`` state; None if no module reads the sum.
        residual: path of the module with the residual; by default the layer, whose input it is.
        enters: whether the residual is the input of that module; else its output.
        parallel: path of the feed-forward module parallel to the attention block, if any.
        closed: whether ``after`` is a norm that the residual itself passes through (post-norm);
            None if unknown.
        scale: factor of the block's output.
        straight: whether the block is the output projection, or reads the projection's output.
        weights: weights of the sum by dimension; None if the residual is added unchanged.
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
        """Return the sum of residual and block output. *Shape:* ``(..., width)`` each."""
        if self.weights is not None:
            return self.weights.total(residual, block)
        return residual + self.scale * block


class _Vector(NamedTuple):
    """States that may be the residual.

    Attributes:
        path: path of a module.
        enters: whether the states are the module's input; else its output.
        states: the states, flat.
    """

    path: str
    enters: bool
    states: torch.Tensor


_Flat = torch.Tensor


class _Added(NamedTuple):
    """Scale and weights of a sum; see `ResidualAddition`."""

    scale: float
    weights: SumWeights | None = None


_Fit = Callable[[LayerRun, _Flat, _Flat, _Flat], _Added | None]


def find_residual_addition(
    run: LayerRun, number: int, projection: str | None
) -> ResidualAddition | None:
    """Return the end of an attention block of a layer, or None if no sum is found.

    Args:
        run: recorded calls of the layer.
        number: index of the attention call in the layer.
        projection: path of the module that takes the head outputs unchanged, if any.
    """
    call = run.attended[number]
    later = [other.tick for other in run.attended[number + 1 :]]
    end = min(later, default=run.layer.end)
    blocks = _derived(run, call)
    read = partial(_read, run, call, blocks, end=end, projection=projection)
    found = read(fits=(_plain, _scaled))
    if found is None and not later:
        found = _unread(run, call, blocks, projection)
    return found or read(fits=(_weighed,))  # last, since it fits the most parameters


def _derived(run: LayerRun, call: RecordedAttention) -> list[ModuleCall]:
    """Return the calls whose output depends on the heads, each tensor once, ordered by end."""
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
    """Whether a call contains attention, is part of its module, or reads a dependent tensor."""
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
    """Return the states that may be the residual: the layer's input first, then derived ones."""
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
    """Return the first sum that a module reads.

    Args:
        fits: forms of sums to try, in this order.
    """
    residuals = _residuals(run, call)
    for reader in run.between(call.tick, end):
        ready = [b for b in blocks if 0 <= b.end < reader.start]
        triples = [*_triples(reader.taken, residuals, ready)]
        # Plain sums first: beside a large residual in half precision, the input of a block's
        # norm passes for the norm's output, with a factor.
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
    """Yield total, residual and block output of equal sizes."""
    for residual in residuals:
        for block in blocks:
            if total is not None and total.shape == residual.states.shape == _given(block).shape:
                yield total, residual, block


def _given(ran: ModuleCall) -> torch.Tensor:
    assert ran.given is not None
    return ran.given


def _reader(run: LayerRun, total: torch.Tensor, first: int, end: int) -> ModuleCall | None:
    """Return a module that reads a sum and changes it, preferably one without submodules."""
    readers = [
        r
        for r in run.between(first, end)
        if _same(r.taken, total) and not _same(r.given, total) and run.once(r.path)
    ]
    return next((r for r in readers if r.leaf), next(iter(readers), None))


def _unread(
    run: LayerRun, call: RecordedAttention, blocks: list[ModuleCall], projection: str | None
) -> ResidualAddition | None:
    """Return a sum that no module reads: the layer's output, with or without a parallel module."""
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
    """Whether a block is the output projection, or reads the projection's output."""
    if block.path == projection:
        return True
    return any(r.path == projection and _same(r.given, block.taken) for r in run.ran)


def _closed(run: LayerRun, after: ModuleCall, *, weighed: bool) -> bool | None:
    """Return whether the residual stream continues with a module's output, not with the sum.

    Args:
        weighed: whether the sum may have weights by dimension.
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
    """Whether a vector is a weighted sum of two others."""
    if total is None or states is None or part is None:
        return False
    if not total.shape == states.shape == part.shape or _same(states, part):
        return False
    if is_weighted_sum(total, states, part, eps=run.eps):
        return True
    return (
        weighed and fit_sum_weights(total, states, part, width=run.width, eps=run.eps) is not None
    )
