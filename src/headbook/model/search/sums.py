"""Sums that hold in every number, to the rounding of a number format."""

import torch

ROUNDINGS = 2  # of a sum, in units of its number format
FITTED = 2  # times as much where a factor is fitted
CLEAR = 0.05  # share of the numbers in which each part must be larger than rounding
LEAST = 1e-3  # the smallest factor


def two(total: torch.Tensor, one: torch.Tensor, other: torch.Tensor, *, eps: float) -> bool:
    """Whether a vector is a sum of two others, each times a number."""
    if adds_up(total, one, other, eps=eps):
        return True
    found = torch.linalg.lstsq(torch.stack([one, other], 1), total[:, None]).solution[:, 0]
    a, b = found.tolist()
    least = min(abs(a), abs(b)) > LEAST
    return least and adds_up(total, a * one, b * other, eps=FITTED * eps)


def factor(
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
    if adds_up(total, residual, part, eps=eps):
        return 1.0
    if not fitted:
        return None
    number = float((total - residual) @ part) / length
    fits = adds_up(total, residual, number * part, eps=FITTED * eps)
    return number if fits and abs(number) > LEAST else None


def adds_up(total: torch.Tensor, *parts: torch.Tensor, eps: float) -> bool:
    """Whether a sum holds in every number, to rounding, and no part is lost in rounding."""
    rest = total - sum(parts)
    allowed = ROUNDINGS * eps * (total.abs() + sum(part.abs() for part in parts))
    clear = min(float((part.abs() > allowed).double().mean()) for part in parts)
    return bool((rest.abs() <= allowed).all()) and clear >= CLEAR
