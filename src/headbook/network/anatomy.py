"""Which attention a model has, found by running it once on a few tokens.

Nothing here knows an architecture by name. A model calls its attention function in the same order
in every pass, so the k-th call of any pass belongs where the k-th call of this probe belongs.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from headbook.errors import ModelError
from headbook.network import hook
from headbook.network.families import Family, family_of
from headbook.network.model import Model
from headbook.network.projection import Projection, projections
from headbook.terms import Kind, Side, Stack

SOURCE_LENGTH, TARGET_LENGTH = 3, 5  # different, so that shapes tell the stacks of a pair apart

STACKS = {
    "self": (Side.SOURCE, Side.SOURCE),
    "encoder": (Side.SOURCE, Side.SOURCE),
    "decoder": (Side.TARGET, Side.TARGET),
    "cross": (Side.TARGET, Side.SOURCE),
}
FIELDS = {  # where `output_attentions` puts each stack's weights
    "self": "attentions",
    "encoder": "encoder_attentions",
    "decoder": "decoder_attentions",
    "cross": "cross_attentions",
}
FIRST_NUMBER = re.compile(r"(.*?)\.(\d+)(?:\.|$)")


@dataclass(frozen=True)
class Call:
    """The place of one attention call: which stack, which layer."""

    stack: str
    layer: int


@dataclass(frozen=True)
class Anatomy:
    """How a model attends.

    Attributes:
        stacks: by name, in the order pages show them.
        calls: stack and layer of every attention call of a pass, in order.
        layers: by stack with states of its own, the modules called as its layers, in order; a
            module shared by several layers stands there several times. Empty where layers do not
            hand on ``(sentence, token, width)``.
        hooked: whether the attention hook serves this model. If not, weights come from
            ``output_attentions``, and queries, keys and values are not available.
        family: its row in the table of architectures, or None.
    """

    kind: Kind
    stacks: dict[str, Stack]
    calls: tuple[Call, ...]
    layers: dict[str, tuple[torch.nn.Module, ...]]
    hooked: bool
    family: Family | None

    @cached_property
    def projections(self) -> dict[tuple[str, int], Projection]:
        """The output projection of each stack and layer, where the table tells where it is."""
        return projections(self.family, self.layers, [(c.stack, c.layer) for c in self.calls])


@dataclass(frozen=True)
class _Seen:
    """One attention call of the probe, by the name of the module that made it."""

    stack: str
    name: str
    n_heads: int
    n_key_heads: int
    head_width: int
    causal: bool


@dataclass(frozen=True)
class _Home:
    """The layers of a stack, and the layer of each of its calls."""

    layers: tuple[torch.nn.Module, ...]
    called: tuple[int, ...]


def examine(model: Model) -> Anatomy:
    """Run the probe.

    Raises:
        ModelError: the model gives no attention at all.
    """
    seen = _watch(model)
    hooked = bool(seen)
    seen = seen or _ask(model)
    if not seen:
        raise ModelError(
            f"model '{model.name}': no attention weights, neither by transformers' attention "
            "interface nor by output_attentions; expected a transformer with attention"
        )
    groups = {name: [s for s in seen if s.stack == name] for name in STACKS}
    groups = {name: group for name, group in groups.items() if group}
    homes = {name: _home(model.body, [s.name for s in group]) for name, group in groups.items()}
    stacks = {name: _stack(name, group, homes[name]) for name, group in groups.items()}
    place = {name: iter(home.called) for name, home in homes.items()}
    own = {name: home.layers for name, home in homes.items() if name != "cross"}
    return Anatomy(
        kind=_kind(stacks),
        stacks=stacks,
        calls=tuple(Call(s.stack, next(place[s.stack])) for s in seen),
        layers=own if _hands_on_states(model, own) else {},
        hooked=hooked,
        family=family_of(model.config),
    )


def some_token(model: Model) -> int:
    """An ordinary token."""
    special = set(model.tokenizer.all_special_ids)
    return next(i for i in range(len(special) + 1) if i not in special)


def run(model: Model, **extra: Any) -> Any:
    """One pass over a few ordinary tokens."""
    tokens = torch.full((1, TARGET_LENGTH), some_token(model), device=model.device)
    inputs = {"input_ids": tokens[:, :SOURCE_LENGTH]}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = tokens
    with torch.inference_mode():
        return model.body(**inputs, **extra)


def _watch(model: Model) -> list[_Seen]:
    """The attention calls that come through the hook; none where the model does not use it."""
    names = {module: name for name, module in model.body.named_modules()}
    pairs = model.config.is_encoder_decoder
    seen: list[_Seen] = []

    def watcher(call: hook.Attention) -> None:
        assert call.module is not None
        assert call.query is not None
        assert call.key is not None
        queries, keys = call.weights.shape[-2:]
        seen.append(
            _Seen(
                stack=_stack_of(queries, keys) if pairs else "self",
                name=names[call.module],
                n_heads=call.query.shape[1],
                n_key_heads=call.key.shape[1],
                head_width=call.query.shape[-1],
                causal=_is_causal(call.weights),
            )
        )

    try:
        with hook.watching(watcher):
            run(model)
    except hook.NoEagerAttention:
        model.network.set_attn_implementation("eager")
        return []
    return seen


def _ask(model: Model) -> list[_Seen]:
    """The attention calls of a model that returns its weights but does not use the hook."""
    output = run(model, output_attentions=True)
    seen = []
    for stack, field in FIELDS.items():
        weights = getattr(output, field, None) or ()
        lists = [
            name
            for name, module in model.body.named_modules()
            if isinstance(module, torch.nn.ModuleList) and len(module) == len(weights)
        ]
        seen += [
            _Seen(
                stack=stack,
                name=f"{lists[0]}.{layer}" if lists else "",
                n_heads=each.shape[1],
                n_key_heads=each.shape[1],
                head_width=0,
                causal=_is_causal(each),
            )
            for layer, each in enumerate(weights)
        ]
    return seen


def _stack_of(queries: int, keys: int) -> str:
    sides = (
        Side.SOURCE if queries == SOURCE_LENGTH else Side.TARGET,
        Side.SOURCE if keys == SOURCE_LENGTH else Side.TARGET,
    )
    return next(name for name, pair in STACKS.items() if pair == sides and name != "self")


def _is_causal(weights: torch.Tensor) -> bool:
    """Whether no query gives any weight to a later position."""
    queries, keys = weights.shape[-2:]
    return queries == keys and not bool(weights.triu(diagonal=1).any())


def _home(body: torch.nn.Module, names: list[str]) -> _Home:
    """The layers that hold the named attention modules.

    A layer is an element of the outermost module list on the way to the attention module. Where
    the same module is called again and again, as in ALBERT, each call is a layer of its own.
    """
    found = [FIRST_NUMBER.match(name) for name in names]
    if not all(found):
        return _Home((), tuple(range(len(names))))
    places = [(m[1], int(m[2])) for m in found if m]
    elements = tuple(body.get_submodule(places[0][0]).children())
    if len(set(names)) < len(names):
        return _Home(tuple(elements[i] for _, i in places), tuple(range(len(names))))
    return _Home(elements, tuple(i for _, i in places))


def _stack(name: str, seen: list[_Seen], home: _Home) -> Stack:
    queries, keys = STACKS[name]
    return Stack(
        name=name,
        n_layers=max(len(home.layers), len(home.called)),
        attention_layers=tuple(sorted(home.called)),
        n_heads=max(s.n_heads for s in seen),
        n_key_heads=max(s.n_key_heads for s in seen),
        head_width=max(s.head_width for s in seen),
        causal=all(s.causal for s in seen),
        queries=queries,
        keys=keys,
    )


def _kind(stacks: dict[str, Stack]) -> Kind:
    if "self" not in stacks:
        return Kind.ENCODER_DECODER
    return Kind.DECODER if stacks["self"].causal else Kind.ENCODER


def _hands_on_states(model: Model, layers: dict[str, tuple[torch.nn.Module, ...]]) -> bool:
    """Whether every layer takes and gives ``(sentence, token, width)``, checked on one pass."""
    shapes: list[tuple[int, ...]] = []
    hooks = [
        module.register_forward_hook(lambda _, __, out: shapes.append(tuple(first(out).shape)))
        for module in {m for each in layers.values() for m in each}
    ]
    try:
        run(model)
    finally:
        for each in hooks:
            each.remove()
    lengths = {SOURCE_LENGTH, TARGET_LENGTH}
    fits = [len(s) == 3 and s[0] == 1 and s[1] in lengths for s in shapes]
    return bool(fits) and all(fits)


def first(output: Any) -> torch.Tensor:
    """The hidden states in what a layer returns, alone or first of a tuple."""
    found: torch.Tensor = output if isinstance(output, torch.Tensor) else output[0]
    return found
