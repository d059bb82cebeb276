"""Float32 products of weights by oneDNN, on processors.

They take half the time of torch's own products (MKL) on AMD's processors, and round about as
finely. Each weight is copied once, in the order in which oneDNN reads it. It keeps a program, with
memory of its own, for each shape that it has seen, gigabytes for those of a large corpus:
therefore it sees few.
"""

from collections.abc import Iterator
from typing import Any, Self

import torch
from torch.overrides import TorchFunctionMode
from transformers.pytorch_utils import Conv1D

COPIED = 1 << 30  # bytes of which copies are kept for faster products
SMALL = 1 << 12  # numbers of a weight from which on products with it may be worth that
WORTH = 1 << 22  # multiplications of a product from which on its states are put in oneDNN's order
BLOCK = 256  # rows that are multiplied at a time
STEP = 16  # whose multiples they are

linear: Any = torch.nn.functional.linear


def packed(weight: torch.Tensor) -> torch.Tensor | None:
    """A copy as oneDNN takes it; None where there is none, or where it would be large.

    Args:
        weight: *Shape:* ``(out, in)``.
    """
    there = weight.device.type == "cpu" and torch.backends.mkldnn.is_available()
    if not there or weight.dtype != torch.float32 or weight.nbytes > COPIED:
        return None
    return weight.detach().to_mkldnn()


def product(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """What `torch.nn.functional.linear` gives.

    Args:
        x: *Shape:* ``(..., in)``.
        weight: as `packed` gave it. *Shape:* ``(out, in)``.

    Returns:
        *Shape:* ``(..., out)``.
    """
    rows = x.reshape(-1, x.shape[-1])
    found = [linear(block.to_mkldnn(), weight, bias).to_dense() for block in blocks(rows)]
    whole = found[0] if len(found) == 1 else torch.cat(found)
    return whole[: len(rows)].view(*x.shape[:-1], -1)


def blocks(rows: torch.Tensor) -> Iterator[torch.Tensor]:
    """Rows in blocks of few sizes, the last one with rows of zeros at its end."""
    for block in rows.split(BLOCK):
        yield torch.nn.functional.pad(block, (0, 0, 0, -len(block) % STEP))


def _large(weight: torch.Tensor) -> bool:
    """Whether oneDNN takes a weight, and has enough to do with it."""
    takes = weight.device.type == "cpu" and weight.dtype == torch.float32
    return takes and weight.numel() >= SMALL


class LinearLayers(TorchFunctionMode):
    """Inside the block, linear layers of a network make their products by oneDNN.

    Where gradients are asked for, torch makes them, and everywhere if all copies together would be
    larger than `COPIED`. Without any weight that oneDNN takes, no call is looked at.
    """

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        linears = [m.weight for m in network.modules() if isinstance(m, torch.nn.Linear)]
        turned = [m.weight for m in network.modules() if isinstance(m, Conv1D)]
        # By identity: layers may share a weight, and tensors do not compare as keys.
        weights = {id(weight): weight for weight in (*linears, *turned) if _large(weight)}
        small = sum(weight.nbytes for weight in weights.values()) <= COPIED
        self._weights = weights if small else {}
        self._packed: dict[int, tuple[int, torch.Tensor | None]] = {}

    def __enter__(self) -> Self:
        """Begin to look at calls."""
        if self._weights:
            TorchFunctionMode.__enter__(self)
        return self

    def __exit__(self, *error: object) -> None:
        """Look at no more of them."""
        if self._weights:
            TorchFunctionMode.__exit__(self, *error)

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any | None = None
    ) -> Any:
        """Make a product of a linear layer, and let all other calls happen."""
        made = None
        if len(args) == 3 and not kwargs and not torch.is_grad_enabled():
            if func is linear:
                made = self._product(*args)
            elif func is torch.addmm:
                bias, x, weight = args
                made = self._product(x, weight, bias, turned=True)
        return func(*args, **(kwargs or {})) if made is None else made

    def _product(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, turned: bool = False
    ) -> torch.Tensor | None:
        """The product, if it is one with a known weight and worth it.

        Args:
            turned: whether the weight is ``(in, out)``, as in GPT-2.
        """
        if self._weights.get(id(weight)) is not weight:
            return None
        worth = x.ndim > 1 and x.numel() * weight.shape[turned] >= WORTH
        if not worth or x.dtype != weight.dtype:
            return None
        version = weight._version  # noqa: SLF001 - nothing else tells of changes in place
        known, copy = self._packed.get(id(weight), (None, None))
        if known != version:
            copy = packed(weight.T.contiguous() if turned else weight)
            self._packed[id(weight)] = version, copy
        return None if copy is None else product(x, copy, bias)
