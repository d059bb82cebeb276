"""What multiplies the outputs of heads on their way to the output projection: gates and norms.

A gate has a factor for each number, which comes of the token and not of what its heads give. A norm
has one that its own gain and one divisor make up. Both are told from anything else by a trial:
heads give something else, and the factors stay as they were, but for one number a token and head.
"""

import torch

LEAST, MOST = 0.5, 2.0  # what outputs are multiplied by in the trial
ROUNDINGS = 16  # in which factors of two queries may differ


def ratio(given: torch.Tensor, taken: torch.Tensor) -> torch.Tensor:
    """What each number of heads' outputs was multiplied by; 0 where the number is 0.

    Args:
        given: by the heads. *Shape:* ``(sentence, query, head, width)``.
        taken: by their output projection, of any shape with as many numbers.

    Returns:
        *Shape:* that of ``given``, in float32 at least.
    """
    wide = given.to(torch.promote_types(given.dtype, torch.float32))
    there = wide != 0
    return torch.where(there, taken.reshape(wide.shape).to(wide) / wide.where(there, 1), 0)


def multiples(factor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The factors of all queries as multiples of those of one; None where they are not.

    They are where a head has one gate, or where a norm divides.

    Args:
        factor: *Shape:* ``(sentence, query, head, width)``.

    Returns:
        The factors of one query, ``(sentence, 1, head, width)``, and by how much those of each are
        larger, ``(sentence, query, head, 1)``.
    """
    lengths = factor.square().sum(-1, keepdim=True)
    largest = lengths.argmax(1, keepdim=True).expand(-1, -1, -1, factor.shape[-1])
    one = factor.gather(1, largest)
    whole = one.square().sum(-1, keepdim=True)
    times = (factor * one).sum(-1, keepdim=True) / whole.masked_fill(whole == 0, 1)
    near = ROUNDINGS * torch.finfo(factor.dtype).eps * one.abs().amax(-1, keepdim=True)
    return (one, times) if bool(((factor - times * one).abs() <= near).all()) else None


def otherwise(given: torch.Tensor) -> torch.Tensor:
    """Outputs of heads, each number times another one. The same shape."""
    seed = torch.Generator().manual_seed(given.numel())
    drawn = torch.rand(given.shape, generator=seed, dtype=torch.float64)
    return given * (LEAST + (MOST - LEAST) * drawn).to(given)


def is_factor(given: torch.Tensor, taken: torch.Tensor) -> bool:
    """Whether what a projection takes is what heads give, times factors.

    Args:
        given: outputs of the heads for one text, as they are and `otherwise`. *Shape:*
            ``(2, query, head, width)``.
        taken: of both, with as many numbers.
    """
    if given.shape[-1] < 2 or not torch.isfinite(taken).all():
        return False
    one, other = ratio(given, taken).double()
    known = (given != 0).all(0)
    if bool((((one == 0) != (other == 0)) & known).any()):
        return False
    known &= one != 0
    change = (other / one).masked_fill(~known, torch.nan)
    middle = change.nanmedian(-1, keepdim=True).values
    # Two rows of one pass may differ in rounding, and norms compute in float32.
    eps = max(torch.finfo(given.dtype).eps, torch.finfo(torch.float32).eps)
    near = (change - middle).abs() <= eps**0.5 * middle.abs()
    return bool(known.any()) and bool(near[known].all())
