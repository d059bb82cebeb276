"""Stacks, layers and attention calls of a model, found in probing passes.

Attention is read through the hook, from the model's own matrix products, or from returned weights.
No architecture is known by name. A model calls its attention function in the same order in every
pass, so the k-th call of any pass has the stack and layer of the k-th call of the probe.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from headbook.errors import ModelError
from headbook.model import attention_hook, matrix_products
from headbook.model.block_search import AttentionBlocks, find_blocks
from headbook.model.load import Model
from headbook.model.probe import (
    LENGTHS,
    inputs_and_outputs,
    model_errors,
    pass_states_on,
    probe_pass,
    varied_texts,
)
from headbook.schema import AttentionStack, ModelKind, Side

STACKS = {
    "self": (Side.SOURCE, Side.SOURCE),
    "encoder": (Side.SOURCE, Side.SOURCE),
    "decoder": (Side.TARGET, Side.TARGET),
    "cross": (Side.TARGET, Side.SOURCE),
}
FIELDS = {  # fields of a model's output with each stack's weights
    "self": "attentions",
    "encoder": "encoder_attentions",
    "decoder": "decoder_attentions",
    "cross": "cross_attentions",
}


@dataclass(frozen=True)
class ProbedAttention:
    r"""One attention call of the probe.

    Attributes:
        stack: stack of the call.
        name: name of the module that made the call.
        n_heads: number of query heads.
        n_key_heads: number of key and value heads.
        head_width: width of a head; 0 if unknown.
        causal: whether no query attends to a later position.
    """

    stack: str
    name: str
    n_heads: int
    n_key_heads: int
    head_width: int
    causal: bool


def attention_calls(model: Model, instead: str) -> tuple[list[ProbedAttention], str, bool]:
    r"""Return the attention calls, the reason against the hook, and whether products are read.

    The reason is empty if calls come through the hook or through the model's own products.

    Args:
        instead: reason to read returned weights although the hook works; empty to try the hook.

    Raises:
        ModelError: the model gives no attention weights for each query and key.
    """
    wanted = set(STACKS) - {"self"} if model.config.is_encoder_decoder else {"self"}
    seen = [] if instead else _watch(model)
    if wanted <= {s.stack for s in seen}:
        return seen, "", False
    model.network.set_attn_implementation("eager")
    asked = _ask(model)
    whole = wanted <= {s.stack for s in asked}
    seen = _own_products(model, asked) if whole and not instead else []
    if seen:
        return seen, "", True
    if whole:
        kind = model.config.model_type
        return asked, instead or f"'{kind}' does not use transformers' attention interface", False
    missing = [name for name in STACKS if name in wanted - {s.stack for s in asked}]
    where = "" if missing == ["self"] else f" in {' and '.join(missing)}"
    raise ModelError(
        f"model '{model.name}': no attention weights{where} for each query and key, neither by "
        "transformers' attention interface nor by output_attentions; expected a transformer with "
        f"such attention: '{model.config.model_type}' attends in another way, or not at all, which "
        "Headbook cannot show"
    )


def _watch(model: Model) -> list[ProbedAttention]:
    """Return the attention calls seen by the hook; empty if the model does not use the hook."""
    names = {module: name for name, module in model.base_model.named_modules()}
    seen: list[ProbedAttention] = []
    last: list[attention_hook.AttentionCall] = []

    def watcher(call: attention_hook.AttentionCall) -> None:
        assert call.module is not None
        assert call.query is not None
        assert call.key is not None
        _check_once(model, call, last)
        last[:] = [call]
        seen.append(
            ProbedAttention(
                stack=_stack_of(model, call.weights),
                name=names[call.module],
                n_heads=call.query.shape[1],
                n_key_heads=call.key.shape[1],
                head_width=call.query.shape[-1],
                causal=_is_causal(call.weights),
            )
        )

    try:
        with attention_hook.observing(watcher):
            probe_pass(model)
    except attention_hook.NoEagerAttention:
        return []
    return seen


def _own_products(model: Model, asked: list[ProbedAttention]) -> list[ProbedAttention]:
    r"""Return the attention calls found in the matrix products of a model's own code.

    Empty if their number differs from the returned weights', or if weights do not follow from
    queries and keys. Whether they equal the returned weights is checked before a run.
    """
    factors: dict[torch.nn.Module, float] = {}
    calls: list[attention_hook.AttentionCall] = []
    handles = matrix_products.install(model.network, model.base_model, factors)
    with attention_hook.observing(calls.append), model_errors(model), torch.inference_mode():
        model.base_model(**varied_texts(model))
    found = [(call.module, matrix_products.factor_of(call)) for call in calls]
    factors |= {module: factor for module, factor in found if module and factor}
    seen = _watch(model) if all(factor for _, factor in found) else []
    stacks = (sorted(s.stack for s in each) for each in (seen, asked))
    if not seen or len({*map(tuple, stacks)}) > 1:
        handles.close()
        return []
    return seen


def _check_once(
    model: Model, call: attention_hook.AttentionCall, last: list[attention_hook.AttentionCall]
) -> None:
    """Raise an error if a layer has several maps for a head.

    Raises:
        ModelError: the same module attends twice with the same queries and keys.
    """
    for before in last:
        assert before.query is not None
        assert call.query is not None
        if before.module is call.module and torch.equal(before.query, call.query):
            raise ModelError(
                f"model '{model.name}': '{model.config.model_type}' applies its weights of "
                "attention to values several times and subtracts the results; expected one map "
                "a head, so Headbook cannot show it"
            )


def _ask(model: Model) -> list[ProbedAttention]:
    """Return the attention calls of a model that returns weights but does not use the hook."""
    output = probe_pass(model, output_attentions=True)
    seen = []
    for stack, place in FIELDS.items():
        weights = [each for each in getattr(output, place, None) or () if each is not None]
        if not weights or not all(_is_map(stack, weight) for weight in weights):
            continue
        home = _list_of(model, stack, len(weights))
        seen += [
            ProbedAttention(
                stack=stack,
                name=f"{home}.{layer}" if home else "",
                n_heads=weight.shape[1],
                n_key_heads=weight.shape[1],
                head_width=0,
                causal=_is_causal(weight),
            )
            for layer, weight in enumerate(weights)
        ]
    return seen


def _list_of(model: Model, stack: str, size: int) -> str:
    """Return the name of the module list with a stack's layers, or "" if there is none.

    Of several lists, the first whose modules pass states of the stack's texts to the next module.
    """
    part = {"encoder": "encoder", "decoder": "decoder", "cross": "decoder"}.get(stack, "")
    lists = {
        name: tuple(module)
        for name, module in model.base_model.named_modules()
        if isinstance(module, torch.nn.ModuleList) and len(module) == size and part in name
    }
    passed = inputs_and_outputs(model, {m for modules in lists.values() for m in modules})
    whole = [n for n, modules in lists.items() if pass_states_on(modules, passed, n_queries(stack))]
    return next(iter([*whole, *lists]), "")


def n_queries(stack: str) -> int:
    """Return the probe's number of tokens on the side of a stack's queries."""
    return LENGTHS[STACKS[stack][0]]


def _is_map(stack: str, weights: Any) -> bool:
    """Whether weights are ``(1, head, query, key)`` with the probe's numbers of tokens."""
    queries, keys = (LENGTHS[side] for side in STACKS[stack])
    whole = isinstance(weights, torch.Tensor) and weights.ndim == 4
    return whole and len(weights) == 1 and tuple(weights.shape[2:]) == (queries, keys)


def _stack_of(model: Model, weights: torch.Tensor) -> str:
    """Return the stack that weights belong to, by their shape.

    Raises:
        ModelError: no stack has weights of this shape.
    """
    pairs = model.config.is_encoder_decoder
    for name in STACKS:
        if (name != "self") is pairs and _is_map(name, weights):
            return name
    target = f" and a target of {LENGTHS[Side.TARGET]}" if pairs else ""
    texts = f"{LENGTHS[Side.SOURCE]} tokens{target}"
    raise ModelError(
        f"model '{model.name}': weights of attention of shape {tuple(weights.shape)} for a text of "
        f"{texts}; expected one for each query and key: '{model.config.model_type}' attends in "
        "another way, which Headbook cannot show"
    )


def _is_causal(weights: torch.Tensor) -> bool:
    """Whether no query attends to a later position."""
    queries, keys = weights.shape[-2:]
    return queries == keys and not bool(weights.triu(diagonal=1).any())


FIRST_NUMBER = re.compile(r"(.*?)\.(\d+)(?:\.|$)")


@dataclass(frozen=True)
class AttentionPlace:
    """Stack and layer of one attention call."""

    stack: str
    layer: int


@dataclass(frozen=True)
class Architecture:
    """Stacks, layers and attention calls of a model.

    Attributes:
        kind: encoder-only, decoder-only or encoder-decoder.
        stacks: stacks by name, in the order of pages.
        calls: stack and layer of every attention call of a pass, in order.
        layers: by stack with its own states, the modules called as layers, in order; a module
            shared by several layers occurs several times. Empty if layers do not pass on
            ``(sentence, token, width)``.
        hooked: whether attention is read by the hook or from the model's own products. If not,
            weights come from ``output_attentions``, and queries, keys and values are not available.
        unhooked: reason why the hook cannot be used; empty if it can.
        products: whether attention is read from the matrix products of the model's own code.
        padded: whether texts of different lengths may share a batch, since padding changes nothing.
        ends: ends of attention blocks, as far as they were found.
    """

    kind: ModelKind
    stacks: dict[str, AttentionStack]
    calls: tuple[AttentionPlace, ...]
    layers: dict[str, tuple[torch.nn.Module, ...]]
    hooked: bool
    unhooked: str = ""
    products: bool = False
    padded: bool = True
    ends: AttentionBlocks = field(default_factory=AttentionBlocks)


@dataclass(frozen=True)
class _Home:
    """Layers of a stack, and the layer of each of its calls."""

    layers: tuple[torch.nn.Module, ...]
    called: tuple[int, ...]


def probe_architecture(model: Model, instead: str = "") -> Architecture:
    """Run the probe, and return the model's architecture.

    Args:
        instead: reason to read weights from ``output_attentions`` although the hook works.

    Raises:
        ModelError: the model gives no attention that can be shown, or does not run.
    """
    seen, unhooked, products = attention_calls(model, instead)
    groups = {name: [s for s in seen if s.stack == name] for name in STACKS}
    groups = {name: group for name, group in groups.items() if group}
    homes = {
        name: _home(model.base_model, [s.name for s in group]) for name, group in groups.items()
    }
    stacks = {name: _stack(name, group, homes[name]) for name, group in groups.items()}
    place = {name: iter(home.called) for name, home in homes.items()}
    own = {name: home.layers for name, home in homes.items() if name != "cross"}
    calls = tuple(AttentionPlace(s.stack, next(place[s.stack])) for s in seen)
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
        ends=find_blocks(
            model, layers, places, hooked=not unhooked, gates=not unhooked and not products
        ),
    )


def _home(body: torch.nn.Module, names: list[str]) -> _Home:
    """Return the layers that contain the named attention modules.

    A layer is an element of the outermost module list on the path to the attention module. If one
    module is called repeatedly, as in ALBERT, each call is a separate layer.
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


def _stack(name: str, seen: list[ProbedAttention], home: _Home) -> AttentionStack:
    queries, keys = STACKS[name]
    return AttentionStack(
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


def _kind(stacks: dict[str, AttentionStack]) -> ModelKind:
    if "self" not in stacks:
        return ModelKind.ENCODER_DECODER
    return ModelKind.DECODER if stacks["self"].causal else ModelKind.ENCODER


def _hands_on_states(model: Model, layers: Mapping[str, tuple[torch.nn.Module, ...]]) -> bool:
    """Whether each layer passes ``(sentence, token, width)`` to the next layer in a pass.

    An element of a module list may be half a layer, whose output is no state of a token.
    """
    passed = inputs_and_outputs(model, {m for layer in layers.values() for m in layer})
    chains = [pass_states_on(layer, passed, n_queries(name)) for name, layer in layers.items()]
    return bool(passed) and all(chains)
