"""Attention of models with their own attention code, observed in their matrix products.

Independently of names, attention weights are the result of a softmax and the first factor of a
product; the second factor holds the values, and the result is the head outputs. The last earlier
product of the size of the weights is that of queries and keys. Products that are gathered by
distance before they are added are those of queries, or of keys, with vectors of positions
(DeBERTa). A probe tests this assumption: `factors_of` checks whether the weights are the softmax of
the sum of these products.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch.nn.modules import module as modules
from torch.overrides import TorchFunctionMode

from headbook.model import attention_hook

SOFTMAX_FUNCTIONS = {torch.softmax, torch.nn.functional.softmax, torch.Tensor.softmax}
PRODUCT_FUNCTIONS = {
    torch.matmul, torch.bmm, torch.baddbmm, torch.Tensor.matmul, torch.Tensor.__matmul__,
    torch.Tensor.bmm, torch.Tensor.baddbmm,
}  # fmt: skip
CAST_FUNCTIONS = {torch.Tensor.to, torch.Tensor.type_as, torch.Tensor.type}
GATHER_FUNCTIONS = {torch.gather, torch.Tensor.gather}
ALL_HEADS_NDIM = 4  # dimensions of a tensor with separate texts and heads
MIN_PRECISE_WEIGHT = 1e-6  # attention weights below have too imprecise logarithms
# Factor above the smallest normal number of a format; numbers below have fewer digits.
PRECISION_MARGIN = 2.0**20
MAX_RELATIVE_ERROR = 1e-3  # largest error that rounding explains, relative to the largest value

# By module, factors of the products of queries and keys, and of each product with positions.
Factors = Mapping[torch.nn.Module, tuple[float, ...]]


class _Product(NamedTuple):
    """A recorded matrix product.

    Attributes:
        left, right: the two factors.
        result: the product.
    """

    left: torch.Tensor
    right: torch.Tensor
    result: torch.Tensor


class _Gathered(NamedTuple):
    """A product of queries or keys with vectors of positions, gathered by distance.

    Attributes:
        product: queries or keys times all vectors of positions.
        result: the gathered products.
    """

    product: _Product
    result: torch.Tensor


class _Products(TorchFunctionMode):
    """Observer of one pass that shows each product of weights and values to the hook's observer."""

    def __init__(self, texts: int, factors: Factors) -> None:
        super().__init__()
        self._texts, self._factors = texts, factors
        self._inside: list[torch.nn.Module] = []
        self._before: list[_Product] = []  # products since the last attention
        self._gathered: list[_Gathered] = []  # of these products
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
        result = func(*args, **(kwargs or {}))
        if func in SOFTMAX_FUNCTIONS:
            self._weights = [result]
        elif func in CAST_FUNCTIONS and self._is_weights(args[0]):
            self._weights.append(result)  # the model may use either copy
        elif func in GATHER_FUNCTIONS:
            self._gathered += [
                _Gathered(product, result)
                for product in self._before
                if _is_same(product.result, args[0])
            ]
        elif func in PRODUCT_FUNCTIONS:
            tensors = [
                value
                for value in (*args, *(kwargs or {}).values())
                if isinstance(value, torch.Tensor)
            ]
            return self._product(_Product(tensors[-2], tensors[-1], result))
        return result

    def _is_weights(self, tensor: torch.Tensor) -> bool:
        return any(_is_same(tensor, weights) for weights in self._weights)

    def _product(self, product: _Product) -> torch.Tensor:
        if not self._is_weights(product.left):
            self._before.append(product)
            return product.result
        weights, value, output = (self._whole(tensor) for tensor in product)
        scores = self._scores(weights)
        positions = [] if scores is None else self._positions(scores)
        self._before, self._weights, self._gathered = [], [], []
        if scores is None or not self._inside or value.ndim != ALL_HEADS_NDIM:
            return product.result
        query, key = self._whole(scores.left), self._whole(scores.right).mT
        module = self._inside[-1]
        known = self._factors.get(module)  # None in the probe that finds them
        scaling = None if known is None else known[0]
        factors = [1.0] * len(positions) if known is None else known[1:]
        fields = (module, query, key, value, None, weights, output.transpose(1, 2))
        parts = tuple(part * factor for part, factor in zip(positions, factors, strict=True))
        replacement = attention_hook.replaced_output(
            attention_hook.AttentionCall(*fields, scaling=scaling, positions=parts)
        )
        result = product.result
        return result if replacement is None else replacement.transpose(1, 2).reshape(result.shape)

    def _scores(self, weights: torch.Tensor) -> _Product | None:
        """Return the last earlier product of the weights' size, or None.

        Products with positions have that size, too, if there are as many positions as keys.
        """
        gathered = [part.product for part in self._gathered]
        candidates = [
            product
            for product in self._before
            if self._whole(product.result).shape == weights.shape
            and all(product is not other for other in gathered)
        ]
        return candidates[-1] if candidates else None

    def _positions(self, scores: _Product) -> list[torch.Tensor]:
        """Return the products with positions, in the form of the scores.

        Products of queries have a row for each query, those of keys a row for each key.
        """
        parts = [
            self._whole(part.result if _is_same(part.product.left, scores.left) else part.result.mT)
            for part in self._gathered
        ]
        shape = self._whole(scores.result).shape
        return [part for part in parts if part.shape == shape]

    def _whole(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor with separate dimensions of texts and heads.

        *Shape:* ``(text, head, ...)``.
        """
        is_flat = tensor.ndim == ALL_HEADS_NDIM - 1 and len(tensor) % self._texts == 0
        return tensor.unflatten(0, (self._texts, -1)) if is_flat else tensor


def _is_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors are the same numbers in memory."""
    return a.numel() == b.numel() and a.data_ptr() == b.data_ptr()


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
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        is_outermost = attention_hook.is_observed() and bool(tensors) and not any(running)
        running.append(_Products(len(tensors[0]), factors).__enter__() if is_outermost else None)

    def leave(*_: Any) -> None:
        products = running.pop() if running else None
        if products is not None:
            products.__exit__(None, None, None)

    handles = ExitStack()
    for module in dict.fromkeys((network, body)):
        handles.callback(module.register_forward_pre_hook(enter, with_kwargs=True).remove)
        handles.callback(module.register_forward_hook(leave, always_call=True).remove)
    return handles


def factors_of(call: attention_hook.AttentionCall) -> tuple[float, ...] | None:
    """Return the factors of the products of queries and keys, and with positions, in the scores.

    None if the weights are not the softmax of such scores.

    The scores may include a mask and a bias that are equal for all texts, such as position biases:
    between two texts, logarithms of weights then differ as the products do, up to a constant for
    each row and one common factor for each kind of product.

    Args:
        call: attention call with several texts of one length, without padding.
    """
    assert call.query is not None
    assert call.key is not None
    if len(call.weights) < 2:
        return None
    if not _applied(call):
        return None
    groups = call.query.shape[1] // call.key.shape[1]
    products = call.query.double() @ call.key.double().repeat_interleave(groups, 1).mT
    # Use the smallest weights only if there are no others: attention to a single token.
    for min_weight in (
        MIN_PRECISE_WEIGHT,
        min(MIN_PRECISE_WEIGHT, PRECISION_MARGIN * torch.finfo(call.weights.dtype).tiny),
    ):
        visible = (call.weights > min_weight).all(0)
        terms = torch.stack(
            [
                _between(part.double(), visible).flatten().cpu()
                for part in (products, *call.positions)
            ],
            1,
        )
        logarithms = _between(call.weights.double().clamp(min=min_weight).log(), visible)
        if terms[:, 0].any():
            break
    else:
        return None
    target = logarithms.flatten().cpu()
    factors = torch.linalg.lstsq(terms, target[:, None]).solution[:, 0]
    error = (target - terms @ factors).abs().max()
    fits = factors[0] > 0 and error <= MAX_RELATIVE_ERROR * target.abs().max()
    return tuple(factors.tolist()) if fits else None


def _applied(call: attention_hook.AttentionCall) -> bool:
    """Whether outputs still equal weights times values, since a model may change them in place."""
    assert call.value is not None
    assert call.output is not None
    value = call.value.repeat_interleave(call.weights.shape[1] // call.value.shape[1], 1)
    mixed = (call.weights.to(value.dtype) @ value).transpose(1, 2)
    error = (mixed - call.output).abs().max()
    return bool(error <= MAX_RELATIVE_ERROR * call.output.abs().max())


def _between(scores: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
    """Return differences of texts from the first, centred by row over the visible keys."""
    differences = (scores[1:] - scores[:1]) * visible
    return (
        differences - differences.sum(-1, keepdim=True) / visible.sum(-1, keepdim=True).clamp(1)
    ) * visible
