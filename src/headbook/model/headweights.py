"""Where a model keeps the weights of its heads, found by watching it run once on a few tokens.

Nothing here knows an architecture by name. Whatever linear map gave what a head takes as its
values holds W_V; queries and keys are compared at position 0, where rotary positions turn nothing.
A fused map is read in the two orders that there are: all queries, then keys, then values; or head
by head. Where norms with weights stand between, queries and keys are known by the width of what is
left over. The first map that takes the heads' outputs holds W_O.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.nn.functional import normalize

from headbook.model import hook
from headbook.model.architecture import Architecture, Call
from headbook.model.chains import first
from headbook.model.model import Model
from headbook.model.probe import own_code, varied
from headbook.model.search.projection import is_linear, matrix

SAME = 0.02  # of a vector's length: rounding in half precision
NO_MAP = "no linear map gives them as attention takes them"
NO_OUTPUT = "what heads give does not go into a linear map as it is"
NOT_STATES = "they are not linear maps of the same states"


class Part(NamedTuple):
    """Some rows of a linear map's weight.

    Attributes:
        name: of the module, from the body.
        rows: which rows are which head's. *Shape:* ``(head, width)``.
    """

    name: str
    rows: torch.Tensor


@dataclass(frozen=True)
class HeadWeights:
    """The weights of the heads of one attention call.

    Attributes:
        query_key: where W_Q and W_K are; or why that is not known.
        value_output: where W_V is, and the name of the module of W_O; or why that is not known.
    """

    query_key: tuple[Part, Part] | str
    value_output: tuple[Part, str] | str


class _Ran(NamedTuple):
    """A linear map that ran, with what it took and gave, ``(text, token, width)``."""

    name: str
    taken: torch.Tensor
    given: torch.Tensor


def straight(module: Any) -> torch.Tensor:
    """A linear map's weight in double precision, on the processor. *Shape:* ``(out, in)``."""
    return matrix(module).cpu().double()


def find_head_weights(model: Model, architecture: Architecture) -> dict[Call, HeadWeights]:
    """The weights of all heads, by attention call.

    Raises:
        ModelError: the model does not run.
    """
    if not architecture.hooked:
        nothing = HeadWeights(architecture.unhooked, architecture.unhooked)
        return dict.fromkeys(architecture.calls, nothing)
    watch = _Watch(model, [architecture.stacks[call.stack].crosses for call in architecture.calls])
    with ExitStack() as around:
        for name, module in model.body.named_modules():
            if is_linear(module):
                around.callback(module.register_forward_hook(watch.seen_by(name)).remove)
        around.enter_context(hook.watching(watch.attention))
        around.enter_context(own_code(model))
        around.enter_context(torch.inference_mode())
        model.body(**varied(model))
    return dict(zip(architecture.calls, watch.found(), strict=True))


class _Watch:
    """Attention calls and the linear maps between them, in the order in which they run."""

    def __init__(self, model: Model, crosses: Iterable[bool]) -> None:
        self._crosses = iter(crosses)
        self._names = {module: name for name, module in model.body.named_modules()}
        self._ran: list[_Ran] = []
        self._calls: list[tuple[tuple[Part, Part] | str, Part | str]] = []
        self._outputs: list[str] = []
        self._given: torch.Tensor | None = None

    def seen_by(self, name: str) -> Any:
        """A hook for one linear map."""

        def keep(_: Any, args: tuple[Any, ...], output: Any) -> None:
            given = first(output)
            if not args or given.ndim != 3:
                return
            taken = args[0].detach()
            if self._given is not None and self._outputs[-1] == "":
                same = taken.numel() == self._given.numel()
                if same and torch.equal(taken.reshape(-1), self._given.reshape(-1)):
                    self._outputs[-1] = name
            self._ran.append(_Ran(name, *(x.cpu().double() for x in (taken, given.detach()))))

        return keep

    def attention(self, call: hook.Attention) -> None:
        """Note one attention call."""
        assert call.module is not None
        assert call.output is not None
        inside = self._names[call.module] + "."
        inside_it = [each for each in self._ran if each.name.startswith(inside)]
        self._calls.append(_parts(call, inside_it, crosses=next(self._crosses)))
        self._outputs.append("")
        self._given, self._ran = call.output.clone(), []

    def found(self) -> Iterator[HeadWeights]:
        """The weights of each call."""
        for (query_key, value), output in zip(self._calls, self._outputs, strict=True):
            if isinstance(value, str):
                yield HeadWeights(query_key, value)
            else:
                yield HeadWeights(query_key, (value, output) if output else NO_OUTPUT)


def _parts(
    call: hook.Attention, ran: list[_Ran], *, crosses: bool
) -> tuple[tuple[Part, Part] | str, Part | str]:
    """Where the weights of queries, keys and values are, or why that is not known."""
    assert call.query is not None
    assert call.key is not None
    assert call.value is not None
    sharing = call.query.shape[1], call.key.shape[1]
    at_0 = [each._replace(given=each.given[:, :1]) for each in ran]
    value = _matching(call.value, ran, *sharing)
    query = _matching(call.query[:, :, :1], at_0, *sharing)
    key = _matching(call.key[:, :, :1], at_0, *sharing)
    if query is None and key is None and value is not None:
        query, key = _left_over(call, [each for each in ran if each.name != value.name])
    taken = {each.name: each.taken for each in ran}

    def same(one: Part, other: Part) -> bool:
        return crosses or torch.equal(taken[one.name], taken[other.name])

    of_keys: tuple[Part, Part] | str = NO_MAP
    if query is not None and key is not None:
        of_keys = (query, key) if same(query, key) else NOT_STATES
    if value is None:
        return of_keys, NO_MAP
    return of_keys, value if query is None or same(query, value) else NOT_STATES


def _matching(target: torch.Tensor, ran: list[_Ran], heads: int, key_heads: int) -> Part | None:
    """The rows of a linear map that gave what attention took; vectors may differ in length.

    Scaling does that, and norms without weights.

    Args:
        target: *Shape:* ``(text, head, token, width)``.
    """
    wanted = target.detach().cpu().double().transpose(1, 2)
    aims, width = normalize(wanted, dim=-1), wanted.shape[-1]
    for each in reversed(ran):
        if not wanted.any() or each.given.shape[:2] != wanted.shape[:2]:
            continue
        for rows in _layouts(each.given.shape[-1], wanted.shape[2], width, heads, key_heads):
            if (normalize(each.given[..., rows], dim=-1) - aims).abs().max() <= SAME:
                return Part(each.name, rows)
    return None


def _layouts(
    size: int, vectors: int, width: int, heads: int, key_heads: int
) -> Iterator[torch.Tensor]:
    """Rows in which vectors of heads may stand. *Shape:* ``(head, width)`` each.

    Args:
        size: rows that there are.
        vectors: how many heads' rows are wanted: of all heads or of key heads.
    """
    within = torch.arange(width)
    for start in range(0, size - vectors * width + 1, width):
        yield start + torch.arange(vectors)[:, None] * width + within
    if heads == key_heads and size == 3 * heads * width:
        for member in range(3):
            yield (3 * torch.arange(heads)[:, None] + member) * width + within


def _left_over(call: hook.Attention, rest: list[_Ran]) -> tuple[Part | None, Part | None]:
    """Queries and keys by the widths of the only two maps that are left."""
    assert call.query is not None
    assert call.key is not None
    shapes = [(part.shape[1], part.shape[3]) for part in (call.query, call.key)]
    sizes = [heads * width for heads, width in shapes]
    if sorted(each.given.shape[-1] for each in rest) != sorted(sizes):
        return None, None
    ordered = rest if rest[0].given.shape[-1] == sizes[0] else rest[::-1]
    query, key = (
        Part(each.name, torch.arange(heads * width).view(heads, width))
        for each, (heads, width) in zip(ordered, shapes, strict=True)
    )
    return query, key
