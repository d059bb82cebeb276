"""Stacks, layers and attention calls of a model, found in probing passes.

Attention is read through the hook, from the model's own matrix products, or from returned weights.
No architecture is known by name. A model calls its attention function in the same order in every
pass, so the k-th call of any pass has the stack and layer of the k-th call of the probe.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from headbook.errors import ModelError
from headbook.model import attention_hook, matrix_products
from headbook.model.block_search import AttentionBlocks, find_blocks
from headbook.model.load import Model, text_config
from headbook.model.loaders.rotary import forget_lengths, shared_length
from headbook.model.probe import (
    PROBE_TOKENS,
    bridges_of,
    inputs_and_outputs,
    model_errors,
    pass_states_on,
    probe_pass,
    varied_texts,
)
from headbook.schema import AttentionStack, ModelKind, Side

STACK_SIDES = {
    "self": (Side.SOURCE, Side.SOURCE),
    "encoder": (Side.SOURCE, Side.SOURCE),
    "decoder": (Side.TARGET, Side.TARGET),
    "cross": (Side.TARGET, Side.SOURCE),
}
OUTPUT_FIELDS = {  # fields of a model's output with each stack's weights
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


def attention_calls(model: Model, why_not_hook: str) -> tuple[list[ProbedAttention], str, bool]:
    r"""Return the attention calls, the reason against the hook, and whether products are read.

    The reason is empty if calls come through the hook or through the model's own products.

    Args:
        why_not_hook: reason to read returned weights although the hook works; empty to try the
            hook.

    Raises:
        ModelError: the model gives no attention weights for each query and key.
    """
    expected_stacks = set(STACK_SIDES) - {"self"} if model.config.is_encoder_decoder else {"self"}
    calls = [] if why_not_hook else _watch(model)
    if expected_stacks <= {call.stack for call in calls}:
        return calls, "", False
    model.network.set_attn_implementation("eager")
    returned = _ask(model)
    all_returned = expected_stacks <= {call.stack for call in returned}
    calls = _own_products(model, returned) if all_returned and not why_not_hook else []
    if calls:
        return calls, "", True
    if all_returned:
        model_type = model.config.model_type
        return (
            returned,
            why_not_hook or f"'{model_type}' does not use transformers' attention interface",
            False,
        )
    missing_stacks = [
        name for name in STACK_SIDES if name in expected_stacks - {call.stack for call in returned}
    ]
    in_stacks = "" if missing_stacks == ["self"] else f" in {' and '.join(missing_stacks)}"
    raise ModelError(
        f"model '{model.name}': no attention weights{in_stacks} for each query and key, neither by "
        "transformers' attention interface nor by output_attentions; expected a transformer with "
        f"such attention: '{model.config.model_type}' attends in another way, or not at all, which "
        "Headbook cannot show"
    )


def _watch(model: Model) -> list[ProbedAttention]:
    """Return the attention calls seen by the hook; empty if the model does not use the hook."""
    names = {module: name for name, module in model.base_model.named_modules()}
    probed: list[ProbedAttention] = []
    last_call: list[attention_hook.AttentionCall] = []

    def watcher(call: attention_hook.AttentionCall) -> None:
        assert call.module is not None
        assert call.query is not None
        assert call.key is not None
        _check_once(model, call, last_call)
        last_call[:] = [call]
        probed.append(
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
    return probed


def _own_products(model: Model, returned: list[ProbedAttention]) -> list[ProbedAttention]:
    r"""Return the attention calls found in the matrix products of a model's own code.

    Empty if their number differs from the returned weights', or if weights do not follow from
    queries and keys. Whether they equal the returned weights is checked before a run.
    """
    factors: dict[torch.nn.Module, tuple[float, ...]] = {}
    calls: list[attention_hook.AttentionCall] = []
    handles = matrix_products.install(model.network, model.base_model, factors)
    with attention_hook.observing(calls.append), model_errors(model), torch.inference_mode():
        model.base_model(**varied_texts(model))
    found = [(call.module, matrix_products.factors_of(call)) for call in calls]
    factors |= {module: fitted for module, fitted in found if module and fitted}
    probed = _watch(model) if all(fitted for _, fitted in found) else []
    stacks = (sorted(call.stack for call in found_calls) for found_calls in (probed, returned))
    if not probed or len({*map(tuple, stacks)}) > 1:
        handles.close()
        return []
    return probed


def _check_once(
    model: Model,
    call: attention_hook.AttentionCall,
    earlier_calls: list[attention_hook.AttentionCall],
) -> None:
    """Raise an error if a layer has several maps for a head.

    Raises:
        ModelError: the same module attends twice with the same queries and keys.
    """
    for earlier in earlier_calls:
        assert earlier.query is not None
        assert call.query is not None
        if earlier.module is call.module and torch.equal(earlier.query, call.query):
            raise ModelError(
                f"model '{model.name}': '{model.config.model_type}' applies its weights of "
                "attention to values several times and subtracts the results; expected one map "
                "a head, so Headbook cannot show it"
            )


def _ask(model: Model) -> list[ProbedAttention]:
    """Return the attention calls that follow from the weights that a model returns."""
    output = probe_pass(model, output_attentions=True)
    probed = []
    for stack, output_field in OUTPUT_FIELDS.items():
        weights = [
            weight for weight in getattr(output, output_field, None) or () if weight is not None
        ]
        if not weights or not all(_is_map(stack, weight) for weight in weights):
            continue
        list_name = _list_of(model, stack, len(weights))
        probed += [
            ProbedAttention(
                stack=stack,
                name=f"{list_name}.{layer}" if list_name else "",
                n_heads=weight.shape[1],
                n_key_heads=weight.shape[1],
                head_width=0,
                causal=_is_causal(weight),
            )
            for layer, weight in enumerate(weights)
        ]
    return probed


def _list_of(model: Model, stack: str, n_layers: int) -> str:
    """Return the name of the module list with a stack's layers, or "" if there is none.

    Among several lists, prefer the first in which each module passes states to the next module.
    """
    name_part = {"encoder": "encoder", "decoder": "decoder", "cross": "decoder"}.get(stack, "")
    lists = {
        name: tuple(module)
        for name, module in model.base_model.named_modules()
        if isinstance(module, torch.nn.ModuleList) and len(module) == n_layers and name_part in name
    }
    recorded = inputs_and_outputs(
        model, {module for modules in lists.values() for module in modules}
    )
    passing = [
        name
        for name, modules in lists.items()
        if pass_states_on(modules, recorded, n_queries(stack))
    ]
    return next(iter([*passing, *lists]), "")


def n_queries(stack: str) -> int:
    """Return the probe's number of tokens on the side of a stack's queries."""
    return PROBE_TOKENS[STACK_SIDES[stack][0]]


def _is_map(stack: str, weights: Any) -> bool:
    """Whether weights are ``(1, head, query, key)`` with the probe's numbers of tokens."""
    queries, keys = (PROBE_TOKENS[side] for side in STACK_SIDES[stack])
    is_4d = isinstance(weights, torch.Tensor) and weights.ndim == 4
    return is_4d and len(weights) == 1 and tuple(weights.shape[2:]) == (queries, keys)


def _stack_of(model: Model, weights: torch.Tensor) -> str:
    """Return the stack that weights belong to, by their shape.

    Raises:
        ModelError: no stack has weights of this shape.
    """
    has_target = model.config.is_encoder_decoder
    for name in STACK_SIDES:
        if (name != "self") is has_target and _is_map(name, weights):
            return name
    target = f" and a target of {PROBE_TOKENS[Side.TARGET]}" if has_target else ""
    texts = f"{PROBE_TOKENS[Side.SOURCE]} tokens{target}"
    raise ModelError(
        f"model '{model.name}': weights of attention of shape {tuple(weights.shape)} for a text of "
        f"{texts}; expected one for each query and key: '{model.config.model_type}' attends in "
        "another way, which Headbook cannot show"
    )


def _is_causal(weights: torch.Tensor) -> bool:
    """Whether no query attends to a later position."""
    queries, keys = weights.shape[-2:]
    return queries == keys and not bool(weights.triu(diagonal=1).any())


LIST_ELEMENT = re.compile(r"\.(\d+)(?=\.|$)")


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
        shared_length: tokens of the longest text that may share a batch with others.
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
    shared_length: float = math.inf
    ends: AttentionBlocks = field(default_factory=AttentionBlocks)


@dataclass(frozen=True)
class _Home:
    """Layers of a stack.

    Attributes:
        layers: the layer modules, in order; empty if no module list holds the layers.
        layer_of_call: index of the layer that makes each attention call of the stack.
    """

    layers: tuple[torch.nn.Module, ...]
    layer_of_call: tuple[int, ...]


def probe_architecture(model: Model, why_not_hook: str = "") -> Architecture:
    """Run the probe, and return the model's architecture.

    Args:
        why_not_hook: reason to read weights from ``output_attentions`` although the hook works;
            empty to try the hook.

    Raises:
        ModelError: the model gives no attention that can be shown, or does not run.
    """
    longest_shared = shared_length(text_config(model.config))
    if longest_shared < math.inf:
        forget_lengths(model.base_model)
    probed, unhooked, products = attention_calls(model, why_not_hook)
    groups = {name: [call for call in probed if call.stack == name] for name in STACK_SIDES}
    groups = {name: group for name, group in groups.items() if group}
    homes = {
        name: _home(model.base_model, [call.name for call in group])
        for name, group in groups.items()
    }
    stacks = {name: _stack(name, group, homes[name]) for name, group in groups.items()}
    layers_called = {name: iter(home.layer_of_call) for name, home in homes.items()}
    layers_with_states = {name: home.layers for name, home in homes.items() if name != "cross"}
    calls = tuple(AttentionPlace(call.stack, next(layers_called[call.stack])) for call in probed)
    layers = layers_with_states if _hands_on_states(model, layers_with_states) else {}
    places = [(call.stack, call.layer) for call in calls]
    return Architecture(
        kind=_kind(stacks),
        stacks=stacks,
        calls=calls,
        layers=layers,
        hooked=not unhooked,
        unhooked=unhooked,
        products=products,
        shared_length=longest_shared,
        ends=find_blocks(
            model, layers, places, hooked=not unhooked, gates=not unhooked and not products
        ),
    )


def _home(body: torch.nn.Module, names: list[str]) -> _Home:
    """Return the layers that contain the named attention modules.

    A layer is an element of the outermost module list on the path to the attention module, or of
    an inner list if elements of the outer one have several attention modules (groups of ALBERT). If
    one module is called repeatedly, as in ALBERT, each call is a separate layer.
    """
    by_depth = [_list_elements(name) for name in names]
    for depth in range(min(map(len, by_depth))):
        elements = [by_list[depth] for by_list in by_depth]
        if len(set(elements)) < len(set(names)):
            continue
        (first, _), *others = elements
        if len(set(names)) == len(names) and all(name == first for name, _ in others):
            layers = tuple(body.get_submodule(first).children())
            return _Home(layers, tuple(index for _, index in elements))
        called = (body.get_submodule(f"{name}.{index}") for name, index in elements)
        return _Home(tuple(called), tuple(range(len(names))))
    # A layer has several attention blocks, or none is in a list: each block counts as a layer.
    return _Home((), tuple(range(len(names))))


def _list_elements(name: str) -> list[tuple[str, int]]:
    """Return lists and indices on the path to a module, the outermost first."""
    return [(name[: match.start()], int(match[1])) for match in LIST_ELEMENT.finditer(name)]


def _stack(name: str, probed: list[ProbedAttention], home: _Home) -> AttentionStack:
    queries, keys = STACK_SIDES[name]
    return AttentionStack(
        name=name,
        n_layers=max(len(home.layers), len(home.layer_of_call)),
        attention_layers=tuple(sorted(home.layer_of_call)),
        n_heads=max(call.n_heads for call in probed),
        n_key_heads=max(call.n_key_heads for call in probed),
        head_width=max(call.head_width for call in probed),
        causal=all(call.causal for call in probed),
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
    all_layers = {module for modules in layers.values() for module in modules}
    recorded, bridges = inputs_and_outputs(model, all_layers), bridges_of(model, all_layers)
    chains = [
        pass_states_on(modules, recorded, n_queries(name), bridges)
        for name, modules in layers.items()
    ]
    return bool(recorded) and all(chains)
