"""Attention of models with their own attention code, observed in their matrix products.

Independently of names, attention weights are the result of a softmax and the first factor of a
product; the second factor holds the values, and the result is the head outputs. The last earlier
product of the size of the weights is that of queries and keys. A probe tests this assumption:
`factor_of` checks whether the weights are the softmax of these products.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch.nn.modules import module as modules
from torch.overrides import TorchFunctionMode

from headbook.model import attention_hook

SOFTMAX = {torch.softmax, torch.nn.functional.softmax, torch.Tensor.softmax}
PRODUCTS = {
    torch.matmul, torch.bmm, torch.baddbmm, torch.Tensor.matmul, torch.Tensor.__matmul__,
    torch.Tensor.bmm, torch.Tensor.baddbmm,
}  # fmt: skip
CASTS = {torch.Tensor.to, torch.Tensor.type_as, torch.Tensor.type}
WHOLE = 4  # dimensions of a tensor of all heads of all texts
SEEN = 1e-6  # smallest weight whose logarithm is precise enough
MARGIN = 2.0**20  # factor above the smallest numbers of a format, which have fewer digits
EXACT = 1e-3  # tolerance over the largest difference of scores


Factors = Mapping[torch.nn.Module, float]


class _Product(NamedTuple):
    one: torch.Tensor
    other: torch.Tensor
    given: torch.Tensor


class _Products(TorchFunctionMode):
    """Observer of one pass that shows each product of weights and values to the hook's observer."""

    def __init__(self, texts: int, factors: Factors) -> None:
        super().__init__()
        self._texts, self._factors = texts, factors
        self._inside: list[torch.nn.Module] = []
        self._before: list[_Product] = []  # products since the last attention
        self._weights: list[torch.Tensor] = []  # references, so that their addresses stay unique
        self._handles = ExitStack()

    def __enter__(self) -> "_Products":
        enter = modules.register_module_forward_pre_hook(lambda m, _: self._inside.append(m))
        leave = modules.register_module_forward_hook(self._leave, always_call=True)
        self._handles.callback(enter.remove)
        self._handles.callback(leave.remove)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        self._handles.close()
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def _leave(self, module: torch.nn.Module, _: Any, __: Any) -> None:
        if self._inside and self._inside[-1] is module:
            self._inside.pop()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = func(*args, **(kwargs or {}))
        if func in SOFTMAX:
            self._weights = [given]
        elif func in CASTS and self._is_weights(args[0]):
            self._weights.append(given)  # the model may use either copy
        elif func in PRODUCTS:
            parts = [x for x in (*args, *(kwargs or {}).values()) if isinstance(x, torch.Tensor)]
            return self._product(_Product(parts[-2], parts[-1], given))
        return given

    def _is_weights(self, tensor: torch.Tensor) -> bool:
        return any(
            tensor.numel() == known.numel() and tensor.data_ptr() == known.data_ptr()
            for known in self._weights
        )

    def _product(self, product: _Product) -> torch.Tensor:
        if not self._is_weights(product.one):
            self._before.append(product)
            return product.given
        weights, value, output = (self._whole(x) for x in product)
        scores = self._scores(weights)
        self._before, self._weights = [], []
        if scores is None or not self._inside or value.ndim != WHOLE:
            return product.given
        query, key = self._whole(scores.one), self._whole(scores.other).mT
        inside = self._inside[-1]
        seen = (inside, query, key, value, None, weights, output.transpose(1, 2))
        instead = attention_hook.replaced_output(
            attention_hook.AttentionCall(*seen, scaling=self._factors.get(inside))
        )
        given = product.given
        return given if instead is None else instead.transpose(1, 2).reshape(given.shape)

    def _scores(self, weights: torch.Tensor) -> _Product | None:
        """Return the last earlier product of the weights' size, or None."""
        fitting = [p for p in self._before if self._whole(p.given).shape == weights.shape]
        return fitting[-1] if fitting else None

    def _whole(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor with separate dimensions of texts and heads.

        *Shape:* ``(text, head, ...)``.
        """
        flat = tensor.ndim == WHOLE - 1 and len(tensor) % self._texts == 0
        return tensor.unflatten(0, (self._texts, -1)) if flat else tensor


def install(network: torch.nn.Module, body: torch.nn.Module, factors: Factors) -> ExitStack:
    """Show the attention of every observed pass of a model from now on.

    Args:
        network: network with its language-model head.
        body: base model of the network; either may be called, and one may call the other.
        factors: scaling of the products of queries and keys, by module; read during a pass.

    Returns:
        A stack that removes the hooks when it is closed.
    """
    running: list[_Products | None] = []

    def enter(_: Any, args: Any, kwargs: Any) -> None:
        given = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)]
        new = attention_hook.is_observed() and bool(given) and not any(running)
        running.append(_Products(len(given[0]), factors).__enter__() if new else None)

    def leave(*_: Any) -> None:
        ended = running.pop() if running else None
        if ended is not None:
            ended.__exit__(None, None, None)

    handles = ExitStack()
    for module in dict.fromkeys((network, body)):
        handles.callback(module.register_forward_pre_hook(enter, with_kwargs=True).remove)
        handles.callback(module.register_forward_hook(leave, always_call=True).remove)
    return handles


def factor_of(call: attention_hook.AttentionCall) -> float | None:
    """Return the scaling of the products of queries and keys in the softmax of the weights.

    None if the weights are not such a softmax.

    The scores may include a mask and a bias that are equal for all texts, such as position biases:
    between two texts, logarithms of weights then differ as the products do, up to a constant for
    each row and one common factor.

    Args:
        call: attention call with several texts of one length, without padding.
    """
    assert call.query is not None
    assert call.key is not None
    if len(call.weights) < 2:
        return None
    if not _applied(call):
        return None
    # Use the smallest weights only if there are no others: attention to a single token.
    for least in (SEEN, min(SEEN, MARGIN * torch.finfo(call.weights.dtype).tiny)):
        seen = (call.weights > least).all(0)
        groups = call.query.shape[1] // call.key.shape[1]
        keys = call.key.double().repeat_interleave(groups, 1)
        scores = _between(call.query.double() @ keys.mT, seen)
        found = _between(call.weights.double().clamp(min=least).log(), seen)
        length = (scores * scores).sum()
        if length > 0:
            break
    else:
        return None
    factor = float((scores * found).sum() / length)
    far = (found - factor * scores).abs().max()
    return factor if factor > 0 and far <= EXACT * found.abs().max() else None


def _applied(call: attention_hook.AttentionCall) -> bool:
    """Whether outputs still equal weights times values, since a model may change them in place."""
    assert call.value is not None
    assert call.output is not None
    value = call.value.repeat_interleave(call.weights.shape[1] // call.value.shape[1], 1)
    mixed = (call.weights.to(value.dtype) @ value).transpose(1, 2)
    far = (mixed - call.output).abs().max()
    return bool(far <= EXACT * call.output.abs().max())


def _between(scores: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Return differences of texts from the first, centred by row over the visible keys."""
    apart = (scores[1:] - scores[:1]) * seen
    return (apart - apart.sum(-1, keepdim=True) / seen.sum(-1, keepdim=True).clamp(1)) * seen
