"""Which attention a model has, found by running it once on a few tokens.

Nothing here knows an architecture by name. A model calls its attention function in the same order
in every pass, so the k-th call of any pass belongs where the k-th call of this probe belongs.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from headbook.model.calls import STACKS, Seen, attention_calls, n_queries
from headbook.model.chains import is_chain, passed_in
from headbook.model.model import Model
from headbook.model.sitesearch import Ends, find_ends
from headbook.terms import Kind, Stack

FIRST_NUMBER = re.compile(r"(.*?)\.(\d+)(?:\.|$)")


@dataclass(frozen=True)
class Call:
    """The place of one attention call: which stack, which layer."""

    stack: str
    layer: int


@dataclass(frozen=True)
class Architecture:
    """How a model attends.

    Attributes:
        stacks: by name, in the order pages show them.
        calls: stack and layer of every attention call of a pass, in order.
        layers: by stack with states of its own, the modules called as its layers, in order; a
            module shared by several layers stands there several times. Empty where layers do not
            hand on ``(sentence, token, width)``.
        hooked: whether the attention hook serves this model, or its own products do. If not,
            weights come from ``output_attentions``, and queries, keys and values are not available.
        ends: where attention blocks end, as far as it was found.
        unhooked: why the hook does not serve; empty where it does.
        products: whether attention is seen in the model's own products, as the model does not ask
            transformers for it.
        padded: whether texts of different length may share a batch: padding changes nothing.
    """

    kind: Kind
    stacks: dict[str, Stack]
    calls: tuple[Call, ...]
    layers: dict[str, tuple[torch.nn.Module, ...]]
    hooked: bool
    unhooked: str = ""
    products: bool = False
    padded: bool = True
    ends: Ends = field(default_factory=Ends)


@dataclass(frozen=True)
class _Home:
    """The layers of a stack, and the layer of each of its calls."""

    layers: tuple[torch.nn.Module, ...]
    called: tuple[int, ...]


def examine(model: Model, instead: str = "") -> Architecture:
    """Run the probe.

    Args:
        instead: why weights are to come from ``output_attentions`` although the hook is there.

    Raises:
        ModelError: the model gives no attention that can be shown, or does not run at all.
    """
    seen, unhooked, products = attention_calls(model, instead)
    groups = {name: [s for s in seen if s.stack == name] for name in STACKS}
    groups = {name: group for name, group in groups.items() if group}
    homes = {name: _home(model.body, [s.name for s in group]) for name, group in groups.items()}
    stacks = {name: _stack(name, group, homes[name]) for name, group in groups.items()}
    place = {name: iter(home.called) for name, home in homes.items()}
    own = {name: home.layers for name, home in homes.items() if name != "cross"}
    calls = tuple(Call(s.stack, next(place[s.stack])) for s in seen)
    layers = own if _hands_on_states(model, own) else {}
    places = [(call.stack, call.layer) for call in calls]
    return Architecture(
        kind=_kind(stacks),
        stacks=stacks,
        calls=calls,
        layers=layers,
        hooked=not unhooked,
        unhooked=unhooked,
        products=products,
        ends=find_ends(
            model, layers, places, hooked=not unhooked, gates=not unhooked and not products
        ),
    )


def _home(body: torch.nn.Module, names: list[str]) -> _Home:
    """The layers that hold the named attention modules.

    A layer is an element of the outermost module list on the way to the attention module. Where
    the same module is called again and again, as in ALBERT, each call is a layer of its own.
    """
    matches = [FIRST_NUMBER.match(name) for name in names]
    if not all(matches):
        return _Home((), tuple(range(len(names))))
    places = [(m[1], int(m[2])) for m in matches if m]
    elements = tuple(body.get_submodule(places[0][0]).children())
    if len(set(names)) < len(names):
        return _Home(tuple(elements[i] for _, i in places), tuple(range(len(names))))
    if len(set(places)) < len(places):  # several blocks in a layer: each counts as one
        return _Home((), tuple(range(len(names))))
    return _Home(elements, tuple(i for _, i in places))


def _stack(name: str, seen: list[Seen], home: _Home) -> Stack:
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


def _hands_on_states(model: Model, layers: Mapping[str, tuple[torch.nn.Module, ...]]) -> bool:
    """Whether each layer takes ``(sentence, token, width)`` and gives it to the next; on one pass.

    What stands in a list of modules may be half a layer, whose output is no state of a token.
    """
    passed = passed_in(model, {m for layer in layers.values() for m in layer})
    chains = [is_chain(layer, passed, n_queries(name)) for name, layer in layers.items()]
    return bool(passed) and all(chains)
