"""Where an attention block ends: sums that hold, to rounding, in what a layer did.

A place is taken only where the numbers say so: what a module reads, or what the layer gives, must
be the residual plus what comes of the heads, in every number.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

import torch

from headbook.model.search.record import Attended, LayerRun, Ran
from headbook.model.search.site import Site
from headbook.model.search.sums import adds_up, factor, two
from headbook.model.search.sumweights import SumWeights, fit_weights


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
    """How a sum is made; see `Site`."""

    scale: float
    weights: SumWeights | None = None


_Fit = Callable[[LayerRun, _Flat, _Flat, _Flat], _Added | None]


def find_site(run: LayerRun, number: int, projection: str | None) -> Site | None:
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


def _derived(run: LayerRun, call: Attended) -> list[Ran]:
    """Calls that give what comes of the heads, each tensor once, in the order in which they end."""
    found: list[Ran] = []
    known = [] if call.given is None else [call.given]
    for ran in sorted(run.ran[1:], key=lambda r: r.end):
        if ran.given is None or not _comes_of(ran, call, known):
            continue
        if not _among(ran.given, [r.given for r in found]):
            found.append(ran)
        known.append(ran.given)
    return found


def _comes_of(ran: Ran, call: Attended, known: list[torch.Tensor]) -> bool:
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


def _residuals(run: LayerRun, call: Attended) -> list[_Vector]:
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
    scale = factor(total, residual, block, run.eps, fitted=False)
    return _Added(scale) if scale else None


def _scaled(run: LayerRun, total: _Flat, residual: _Flat, block: _Flat) -> _Added | None:
    scale = factor(total, residual, block, run.eps)
    return _Added(scale) if scale else None


def _weighed(run: LayerRun, total: _Flat, residual: _Flat, block: _Flat) -> _Added | None:
    weights = fit_weights(total, residual, block, width=run.width, eps=run.eps)
    return None if weights is None else _Added(1.0, weights)


def _read(
    run: LayerRun,
    call: Attended,
    blocks: list[Ran],
    *,
    end: int,
    projection: str | None,
    fits: Sequence[_Fit],
) -> Site | None:
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
            return Site(
                block.path, after.path, residual.path, residual.enters, scale=added.scale,
                closed=_closed(run, after, weighed=added.weights is not None),
                straight=_straight(run, block, projection),
                weights=added.weights,
            )  # fmt: skip
    return None


def _triples(
    total: torch.Tensor | None, residuals: list[_Vector], blocks: list[Ran]
) -> Iterator[tuple[torch.Tensor, _Vector, Ran]]:
    """Sums to try: of one size."""
    for residual in residuals:
        for block in blocks:
            if total is not None and total.shape == residual.states.shape == _given(block).shape:
                yield total, residual, block


def _given(ran: Ran) -> torch.Tensor:
    assert ran.given is not None
    return ran.given


def _reader(run: LayerRun, total: torch.Tensor, first: int, end: int) -> Ran | None:
    """The module that reads a sum, and does something to it; a simple one if there is one."""
    readers = [
        r
        for r in run.between(first, end)
        if _same(r.taken, total) and not _same(r.given, total) and run.once(r.path)
    ]
    return next((r for r in readers if r.leaf), next(iter(readers), None))


def _unread(
    run: LayerRun, call: Attended, blocks: list[Ran], projection: str | None
) -> Site | None:
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
        scale = factor(total, own, _given(block), run.eps, fitted=True)
        if scale:
            return Site(block.path, None, scale=scale, straight=straight)
        for other in beside:
            parts = own, _given(block), _given(other)
            if run.once(other.path) and adds_up(total, *parts, eps=run.eps):
                return Site(block.path, None, parallel=other.path, straight=straight)
    return None


def _straight(run: LayerRun, block: Ran, projection: str | None) -> bool:
    """Whether a block is the output projection, or takes what that gives."""
    if block.path == projection:
        return True
    return any(r.path == projection and _same(r.given, block.taken) for r in run.ran)


def _closed(run: LayerRun, after: Ran, *, weighed: bool) -> bool | None:
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
    if two(total, states, part, eps=run.eps):
        return True
    return weighed and fit_weights(total, states, part, width=run.width, eps=run.eps) is not None
