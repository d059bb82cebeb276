"""The attention calls of one pass: through the hook, or else as the model returns its weights."""

from dataclasses import dataclass
from typing import Any

import torch

from headbook.errors import ModelError
from headbook.model import hook, products
from headbook.model.chains import is_chain, passed_in
from headbook.model.model import Model
from headbook.model.probe import LENGTHS, own_code, run, varied
from headbook.terms import Side

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


@dataclass(frozen=True)
class Seen:
    """One attention call of the probe, by the name of the module that made it."""

    stack: str
    name: str
    n_heads: int
    n_key_heads: int
    head_width: int
    causal: bool


def attention_calls(model: Model, instead: str) -> tuple[list[Seen], str, bool]:
    """The attention calls, why they do not come through the hook, and whether by products.

    The reason is empty where they do.
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


def _watch(model: Model) -> list[Seen]:
    """The attention calls that come through the hook; none where the model does not use it."""
    names = {module: name for name, module in model.body.named_modules()}
    seen: list[Seen] = []
    last: list[hook.Attention] = []

    def watcher(call: hook.Attention) -> None:
        assert call.module is not None
        assert call.query is not None
        assert call.key is not None
        _check_once(model, call, last)
        last[:] = [call]
        seen.append(
            Seen(
                stack=_stack_of(model, call.weights),
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
        return []
    return seen


def _own_products(model: Model, asked: list[Seen]) -> list[Seen]:
    """The attention calls of a model that computes attention by itself, in its own products.

    None where there are not as many as it returns weights, or where weights do not follow from
    queries and keys; whether they are the weights that it returns is seen before a run.
    """
    factors: dict[torch.nn.Module, float] = {}
    calls: list[hook.Attention] = []
    handles = products.install(model.network, model.body, factors)
    with hook.watching(calls.append), own_code(model), torch.inference_mode():
        model.body(**varied(model))
    found = [(call.module, products.factor_of(call)) for call in calls]
    factors |= {module: factor for module, factor in found if module and factor}
    seen = _watch(model) if all(factor for _, factor in found) else []
    stacks = (sorted(s.stack for s in each) for each in (seen, asked))
    if not seen or len({*map(tuple, stacks)}) > 1:
        handles.close()
        return []
    return seen


def _check_once(model: Model, call: hook.Attention, last: list[hook.Attention]) -> None:
    """A layer has one map a head.

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


def _ask(model: Model) -> list[Seen]:
    """The attention calls of a model that returns its weights but does not use the hook."""
    output = run(model, output_attentions=True)
    seen = []
    for stack, field in FIELDS.items():
        weights = [each for each in getattr(output, field, None) or () if each is not None]
        if not weights or not all(_is_map(stack, weight) for weight in weights):
            continue
        home = _list_of(model, stack, len(weights))
        seen += [
            Seen(
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
    """Name of the list of modules that are a stack's layers; empty where there is none.

    Of several the first whose modules hand on states of the stack's texts, one to the next.
    """
    part = {"encoder": "encoder", "decoder": "decoder", "cross": "decoder"}.get(stack, "")
    lists = {
        name: tuple(module)
        for name, module in model.body.named_modules()
        if isinstance(module, torch.nn.ModuleList) and len(module) == size and part in name
    }
    passed = passed_in(model, {m for modules in lists.values() for m in modules})
    whole = [n for n, modules in lists.items() if is_chain(modules, passed, n_queries(stack))]
    return next(iter([*whole, *lists]), "")


def n_queries(stack: str) -> int:
    """The probe's number of tokens on the side that a stack's queries are of."""
    return LENGTHS[STACKS[stack][0]]


def _is_map(stack: str, weights: Any) -> bool:
    """Whether weights are ``(1, head, query, key)`` with the probe's numbers of tokens."""
    queries, keys = (LENGTHS[side] for side in STACKS[stack])
    whole = isinstance(weights, torch.Tensor) and weights.ndim == 4
    return whole and len(weights) == 1 and tuple(weights.shape[2:]) == (queries, keys)


def _stack_of(model: Model, weights: torch.Tensor) -> str:
    """The stack that weights belong to, by their shape.

    Raises:
        ModelError: their shape is that of none.
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
    """Whether no query gives any weight to a later position."""
    queries, keys = weights.shape[-2:]
    return queries == keys and not bool(weights.triu(diagonal=1).any())
