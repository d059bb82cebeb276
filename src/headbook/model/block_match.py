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
        input, output: states before and after the call, flat and in double precision; None if
            there are none.
        start, end: ticks of the pass; ``end`` is -1 during the call.
    """

    path: str
    leaf: bool
    start: int
    input: torch.Tensor | None
    output: torch.Tensor | None = None
    end: int = -1


@dataclass(eq=False)
class RecordedAttention:
    """One recorded call of attention.

    Attributes:
        path: path of the module that made the call.
        tick: tick of the pass at which the call was recorded.
        output: output of the heads or of their module, flat and in double precision, or None.
        whole: whether the call was recorded after its module had ended.
    """

    path: str
    tick: int
    output: torch.Tensor | None
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
        yield from sorted(
            (call for call in self.ran if 0 <= call.end < tick), key=lambda call: call.end
        )

    def between(self, first: int, last: int) -> Sequence[ModuleCall]:
        """Return the calls that began between two ticks, in order."""
        return [call for call in self.ran if first < call.start < last]

    def once(self, path: str) -> bool:
        """Whether a module ran exactly once."""
        return sum(call.path == path for call in self.ran) == 1


def first_states(value: Any) -> torch.Tensor | None:
    """Return the first floating-point tensor of two or more dimensions in a value, or None."""
    if isinstance(value, dict):
        value = [value[name] for name in sorted(value, key=lambda key: key != "hidden_states")]
    if isinstance(value, tuple | list):
        return next((states for states in map(first_states, value) if states is not None), None)
    is_states = isinstance(value, torch.Tensor) and value.is_floating_point() and value.ndim > 1
    return value if is_states else None


def flat(value: Any) -> torch.Tensor | None:
    r"""Return a flat copy of the first states in a value, in double precision, or None.

    A copy, because models add to their states in place.
    """
    states = first_states(value)
    return None if states is None else states.detach().cpu().to(torch.float64, copy=True).flatten()


SUM_TOLERANCE = 2  # roundings of the number format by which a sum may be off
FITTED_TOLERANCE_FACTOR = 2  # a fitted factor is rounded itself, which doubles the tolerance
MIN_CLEAR_SHARE = 0.05  # share of numbers in which each part must exceed the rounding of the sum
MIN_PART_FACTOR = 1e-3  # smallest factor with which a part counts as present in a sum


def is_weighted_sum(
    total: torch.Tensor, first: torch.Tensor, second: torch.Tensor, *, eps: float
) -> bool:
    """Whether a vector is a weighted sum of two others."""
    if is_sum(total, first, second, eps=eps):
        return True
    solution = torch.linalg.lstsq(torch.stack([first, second], 1), total[:, None]).solution[:, 0]
    first_factor, second_factor = solution.tolist()
    clear = min(abs(first_factor), abs(second_factor)) > MIN_PART_FACTOR
    return clear and is_sum(
        total, first_factor * first, second_factor * second, eps=FITTED_TOLERANCE_FACTOR * eps
    )


def residual_factor(
    total: torch.Tensor,
    residual: torch.Tensor,
    block: torch.Tensor,
    eps: float,
    *,
    fitted: bool = True,
) -> float | None:
    """Return the factor of a part in a sum with a residual, or None if there is no such sum.

    Args:
        fitted: whether any factor is accepted; else 1 only.
    """
    square = float(block @ block)
    if square == 0 or not torch.isfinite(total).all():
        return None
    if is_sum(total, residual, block, eps=eps):
        return 1.0
    if not fitted:
        return None
    factor = float((total - residual) @ block) / square
    fits = is_sum(total, residual, factor * block, eps=FITTED_TOLERANCE_FACTOR * eps)
    return factor if fits and abs(factor) > MIN_PART_FACTOR else None


def is_sum(total: torch.Tensor, *parts: torch.Tensor, eps: float) -> bool:
    """Whether a sum holds in every number up to rounding, with no part lost in rounding."""
    difference = total - sum(parts)
    allowed = SUM_TOLERANCE * eps * (total.abs() + sum(part.abs() for part in parts))
    min_clear_share = min(float((part.abs() > allowed).double().mean()) for part in parts)
    return bool((difference.abs() <= allowed).all()) and min_clear_share >= MIN_CLEAR_SHARE


MAX_FIT_EPS = 1e-6  # coarsest rounding (float32) at which a fit of weights is conclusive
FIT_TOLERANCE = 16  # roundings by which a fitted sum may be off; other tensors miss by thousands
MIN_FIT_TOKENS = 8  # tokens for a conclusive fit of three weights for each dimension
MIN_MEDIAN_WEIGHT = 1e-3  # median weight below which a part counts as absent from a sum


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
        return SumWeights(*(part.to(like) for part in (self.residual, self.block, self.bias)))

    def total(self, residual: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
        """Return the weighted sum of residual and block output. *Shape:* ``(..., width)`` each."""
        weights = self.to(residual)
        return weights.residual * residual + weights.block * block + weights.bias


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
    sums, *terms = (values.view(-1, width).T for values in (total, residual, block))
    columns = torch.stack([*terms, torch.ones_like(sums)], -1)  # (width, token, 3)
    finite = torch.isfinite(sums).all() and torch.isfinite(columns).all()
    if eps > MAX_FIT_EPS or sums.shape[1] < MIN_FIT_TOKENS or not finite:
        return None
    solution = torch.linalg.lstsq(columns, sums.unsqueeze(-1)).solution
    allowed = FIT_TOLERANCE * eps * (sums.abs() + (columns * solution.mT).abs().sum(-1))
    weights = SumWeights(*solution[..., 0].unbind(1))
    is_clear = all(
        float(values.abs().median()) > MIN_MEDIAN_WEIGHT
        for values in (weights.residual, weights.block)
    )
    fits = ((columns @ solution).squeeze(-1) - sums).abs() <= allowed
    return weights if is_clear and bool(fits.all()) else None


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


_Flat = torch.Tensor  # states of all tokens, flat and in double precision


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
    later_ticks = [later_call.tick for later_call in run.attended[number + 1 :]]
    end = min(later_ticks, default=run.layer.end)
    blocks = _derived(run, call)
    find_sum = partial(_sum_read_by_module, run, call, blocks, end=end, projection=projection)
    addition = find_sum(fits=(_plain_sum, _sum_with_scale))
    if addition is None and not later_ticks:
        addition = _sum_of_layer_output(run, call, blocks, projection)
    # Weights are fitted last, since they are the most parameters.
    return addition or find_sum(fits=(_sum_with_weights,))


def _derived(run: LayerRun, call: RecordedAttention) -> list[ModuleCall]:
    """Return the calls whose output depends on the heads, each tensor once, ordered by end."""
    derived: list[ModuleCall] = []
    known_states = [] if call.output is None else [call.output]
    for ran in sorted(run.ran[1:], key=lambda call: call.end):
        if ran.output is None or not _depends_on_heads(ran, call, known_states):
            continue
        if not _contains(ran.output, [call.output for call in derived]):
            derived.append(ran)
        known_states.append(ran.output)
    return derived


def _depends_on_heads(
    module_call: ModuleCall, attention: RecordedAttention, known_states: list[torch.Tensor]
) -> bool:
    """Whether a call contains attention, is part of its module, or reads a dependent tensor."""
    inside = module_call.path.startswith(f"{attention.path}.")
    if module_call.end < attention.tick:
        return inside and attention.whole
    contains = module_call.path == attention.path or attention.path.startswith(
        f"{module_call.path}."
    )
    return (
        inside
        or contains
        or (module_call.start > attention.tick and _contains(module_call.input, known_states))
    )


def _contains(vector: torch.Tensor | None, candidates: Sequence[torch.Tensor | None]) -> bool:
    return vector is not None and any(
        candidate is not None and _same(vector, candidate) for candidate in candidates
    )


def _same(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    return a is not None and b is not None and torch.equal(a, b)


def _residuals(run: LayerRun, call: RecordedAttention) -> list[_Vector]:
    """Return the states that may be the residual: the layer's input first, then derived ones."""
    residuals: list[_Vector] = []
    layer_input = run.layer.input
    assert layer_input is not None
    outputs = [
        _Vector(module_call.path, False, module_call.output)
        for module_call in run.before(call.tick)
        if module_call.output is not None
    ]
    inputs = [
        _Vector(module_call.path, True, module_call.input)
        for module_call in run.ran[1:]
        if module_call.start < call.tick and module_call.input is not None
    ]
    for candidate in [_Vector("", False, layer_input), *outputs, *inputs]:
        fits = candidate.states.shape == layer_input.shape and (
            not candidate.path or run.once(candidate.path)
        )
        if fits and not _contains(candidate.states, [residual.states for residual in residuals]):
            residuals.append(candidate)
    return residuals


def _plain_sum(run: LayerRun, total: _Flat, residual: _Flat, block: _Flat) -> _Added | None:
    scale = residual_factor(total, residual, block, run.eps, fitted=False)
    return _Added(scale) if scale else None


def _sum_with_scale(run: LayerRun, total: _Flat, residual: _Flat, block: _Flat) -> _Added | None:
    scale = residual_factor(total, residual, block, run.eps)
    return _Added(scale) if scale else None


def _sum_with_weights(run: LayerRun, total: _Flat, residual: _Flat, block: _Flat) -> _Added | None:
    weights = fit_sum_weights(total, residual, block, width=run.width, eps=run.eps)
    return None if weights is None else _Added(1.0, weights)


def _sum_read_by_module(
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
        ready_blocks = [block for block in blocks if 0 <= block.end < reader.start]
        triples = [*_triples(reader.input, residuals, ready_blocks)]
        # Plain sums first: beside a large residual in half precision, the input of a block's
        # norm passes for the norm's output, with a factor.
        for fit, (total, residual, block) in product(fits, triples):
            added = fit(run, total, residual.states, _output_of(block))
            after = added and _reader(run, total, call.tick, end)
            if not added or not after:
                continue
            return ResidualAddition(
                block.path, after.path, residual.path, residual.enters, scale=added.scale,
                closed=_is_closed(run, after, weighed=added.weights is not None),
                straight=_is_straight(run, block, projection),
                weights=added.weights,
            )  # fmt: skip
    return None


def _triples(
    total: torch.Tensor | None, residuals: list[_Vector], blocks: list[ModuleCall]
) -> Iterator[tuple[torch.Tensor, _Vector, ModuleCall]]:
    """Yield total, residual and block output of equal sizes."""
    for residual in residuals:
        for block in blocks:
            if (
                total is not None
                and total.shape == residual.states.shape == _output_of(block).shape
            ):
                yield total, residual, block


def _output_of(call: ModuleCall) -> torch.Tensor:
    assert call.output is not None
    return call.output


def _reader(run: LayerRun, total: torch.Tensor, first: int, end: int) -> ModuleCall | None:
    """Return a module that reads a sum and changes it, or None; prefer one without submodules."""
    readers = [
        call
        for call in run.between(first, end)
        if _same(call.input, total) and not _same(call.output, total) and run.once(call.path)
    ]
    return next((call for call in readers if call.leaf), next(iter(readers), None))


def _sum_of_layer_output(
    run: LayerRun, call: RecordedAttention, blocks: list[ModuleCall], projection: str | None
) -> ResidualAddition | None:
    """Return a sum that no module reads: the layer's output, with or without a parallel module."""
    layer_output, layer_input = run.layer.output, run.layer.input
    assert layer_input is not None
    block_outputs = [block.output for block in blocks]
    parallel_calls = [
        module_call
        for module_call in run.before(run.layer.end)
        if module_call.output is not None
        and module_call.output.shape == layer_input.shape
        and not _contains(module_call.output, block_outputs)
    ]
    for total, _, block in _triples(layer_output, [_Vector("", False, layer_input)], blocks):
        if not run.once(block.path):
            continue
        straight = _is_straight(run, block, projection)
        scale = residual_factor(total, layer_input, _output_of(block), run.eps, fitted=True)
        if scale:
            return ResidualAddition(block.path, None, scale=scale, straight=straight)
        for parallel in parallel_calls:
            terms = layer_input, _output_of(block), _output_of(parallel)
            if run.once(parallel.path) and is_sum(total, *terms, eps=run.eps):
                return ResidualAddition(block.path, None, parallel=parallel.path, straight=straight)
    return None


def _is_straight(run: LayerRun, block: ModuleCall, projection: str | None) -> bool:
    """Whether a block is the output projection, or reads the projection's output."""
    if block.path == projection:
        return True
    return any(call.path == projection and _same(call.output, block.input) for call in run.ran)


def _is_closed(run: LayerRun, after: ModuleCall, *, weighed: bool) -> bool | None:
    """Return whether the residual stream continues with a module's output, not with the sum.

    Args:
        weighed: whether the sum may have weights by dimension.
    """
    layer_output = run.layer.output
    totals = [module_call.input for module_call in run.between(after.end, run.layer.end)] + [
        layer_output
    ]
    later_calls = [
        module_call
        for module_call in run.ran[1:]
        if module_call.end > after.end
        and not _same(module_call.output, layer_output)
        and not _same(module_call.output, after.output)
    ]
    for total in totals:
        if _same(total, after.output) and total is layer_output:
            return True
        for later in later_calls:
            for states, closed in ((after.input, False), (after.output, True)):
                if _is_sum_of_both(run, total, states, later.output, weighed=weighed):
                    return closed
    return None


def _is_sum_of_both(
    run: LayerRun,
    total: torch.Tensor | None,
    states: torch.Tensor | None,
    part: torch.Tensor | None,
    *,
    weighed: bool,
) -> bool:
    """Whether the residual stream continues as the sum of a state and a later part.

    Args:
        weighed: whether the sum may have weights by dimension.
    """
    if total is None or states is None or part is None:
        return False
    if not total.shape == states.shape == part.shape or _same(states, part):
        return False
    if is_weighted_sum(total, states, part, eps=run.eps):
        return True
    return (
        weighed and fit_sum_weights(total, states, part, width=run.width, eps=run.eps) is not None
    )
