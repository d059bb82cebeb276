"""Adapters of the library peft: checks against the base model, loading and merging.

An adapter may bring a tokenizer with tokens of its own, and the embeddings of these tokens: then
the tokenizer of the adapter is used, and the network gets as many rows of embeddings.

Adapters are injected into the base network, which keeps its class and the names of its modules. An
adapted linear map becomes a module of peft that adds a term to the map. Other adapted modules
(embeddings, norms, modules trained in full) are merged at once, because their weights are read in
several places and merging does not change what they compute.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoTokenizer

from headbook.errors import ModelError
from headbook.model.loaders.adapter_patterns import check_bounds

ADAPTER_CONFIG = "adapter_config.json"
KEY_PREFIX = "base_model.model."  # of every key in files of adapters
INJECTED = "default"  # name that peft gives to the adapter inside the network
SAVED = ".modules_to_save."  # in names of weights of modules that were trained in full
TOKENIZER_CONFIG = "tokenizer_config.json"
VOCABULARY_FILES = ("tokenizer.json", "*.model", "vocab.*")
# Weights of embeddings and heads in files of adapters, and the axis of their vocabulary.
ROW_AXES = {
    "weight": 0, "base_layer.weight": 0, "lora_embedding_A": 1, "lora_B.weight": 0,
}  # fmt: skip


class AttachedAdapter(NamedTuple):
    """An adapter as it was attached to a network.

    Attributes:
        kind: method of the adapter and its rank, such as ``LORA, rank 8``.
        base: name of the base model that the adapter's file gives; empty if it gives none.
        unused: weights of the adapter that the network has no module for, such as a classifier.
        rows: rows of the word embeddings before and after; equal if the adapter has no others.
    """

    kind: str
    base: str
    unused: tuple[str, ...]
    rows: tuple[int, int]


def has_tokenizer(folder: Path) -> bool:
    """Whether an adapter was saved with a tokenizer."""
    vocabulary = [each for name in VOCABULARY_FILES for each in folder.glob(name)]
    return (folder / TOKENIZER_CONFIG).is_file() and bool(vocabulary)


def adapter_tokenizer(name: str, folder: Path, config: Any) -> Any:
    """Return the tokenizer that an adapter was saved with; no code of its repository runs.

    Args:
        name: name of the adapter, for messages.
        folder: folder with the adapter's files.
        config: configuration of the base network.

    Raises:
        ModelError: the tokenizer cannot be read.
    """
    try:
        return AutoTokenizer.from_pretrained(folder, config=config, trust_remote_code=False)
    except (
        OSError, ValueError, KeyError, ImportError, RuntimeError, AttributeError, TypeError,
    ) as error:  # fmt: skip
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelError(
            f"adapter '{name}': its tokenizer cannot be read ({reason[:200].rstrip('.')}); "
            "expected one that transformers itself can read, or --tokenizer with another one"
        ) from error


def tokens_text(own: Any, used: Any, rows: tuple[int, int]) -> str:
    """Return which tokenizer and embeddings an adapter brings, in words; empty if the model's own.

    Args:
        own: tokenizer of the model.
        used: tokenizer that is used.
        rows: rows of the embeddings before and after the adapter.
    """
    texts = []
    if used is not own and used.get_vocab() != own.get_vocab():
        texts.append(f"its tokenizer is used: {len(used):,} entries, not {len(own):,}")
    if rows[0] != rows[1]:
        texts.append(f"embeddings have {rows[1]:,} rows, not {rows[0]:,}")
    return "; ".join(texts)


def attach_adapter(
    network: Any, folder: Path, *, name: str, model: str, merge: bool
) -> AttachedAdapter:
    """Inject an adapter into a network, in place.

    Args:
        network: network of the base model.
        folder: folder with the adapter's configuration and weights.
        name, model: names of the adapter and of the base model, for messages.
        merge: whether to add the adapter to the weights and remove its modules.

    Raises:
        ModelError: peft is missing or cannot read it, or it does not change this model's weights.
    """
    _check_installed(name)
    from peft import PeftConfig, get_peft_model  # noqa: PLC0415 - an extra, slow to import
    from peft.mapping import PEFT_TYPE_TO_PREFIX_MAPPING  # noqa: PLC0415
    from peft.utils import load_peft_weights, set_peft_model_state_dict  # noqa: PLC0415

    base, rank = "", None
    try:
        config: Any = PeftConfig.from_pretrained(str(folder))
        base, rank = str(config.base_model_name_or_path or ""), getattr(config, "r", None)
        _check_kind(name, config)
        check_bounds(name, config)
        weights = _keys_of_network(load_peft_weights(str(folder), device="cpu"), network)
        rows = _resized(network, weights)
        part = f".{PEFT_TYPE_TO_PREFIX_MAPPING.get(config.peft_type, 'lora_')}"
        unused = _fit(config, weights, network, part)
        adapted = get_peft_model(network, config, INJECTED, autocast_adapter_dtype=False)
        kept = {KEY_PREFIX + key: tensor for key, tensor in weights.items() if key not in unused}
        result: Any = set_peft_model_state_dict(adapted, kept, INJECTED)
        if lacking := [key for key in result.missing_keys if part in key]:
            raise ValueError(f"the adapter has no {_plain(lacking[0])}")
    except (
        OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError, ImportError,
    ) as error:  # fmt: skip
        raise _not_attached(name, model, base, str(error) or type(error).__name__) from error
    _merge(network, merge_maps=merge)
    kind = config.peft_type.value + (f", rank {rank}" if isinstance(rank, int) else "")
    # A module that was trained in full may be stored twice, the second time as an embedding; what
    # the network has no module for, such as a classifier, is not used.
    modules = {path for path, _ in network.named_modules()}
    for key in map(_plain, result.unexpected_keys):
        stored = key.replace(SAVED, ".")
        if stored not in weights or stored.rpartition(".")[0] not in modules:
            unused.add(key)
    return AttachedAdapter(kind, _public_name(base), tuple(sorted(unused)), rows)


def _resized(network: Any, weights: Mapping[str, Any]) -> tuple[int, int]:
    """Give a network as many rows of word embeddings as an adapter was saved with.

    Args:
        network: network without adapter, changed in place.
        weights: weights of the adapter, by names of the network's modules.

    Returns:
        Rows before and after.
    """
    ends = (network.get_input_embeddings(), network.get_output_embeddings())
    own = int(ends[0].weight.shape[0])
    names = [n for n, m in network.named_modules(remove_duplicate=False) if m in ends]
    found = {
        int(weights[f"{name}.{key}"].shape[axis])
        for name in names
        for key, axis in ROW_AXES.items()
        if f"{name}.{key}" in weights
    }
    if len(found) != 1 or found == {own}:
        return own, own
    (rows,) = found
    with torch.random.fork_rng(devices=[]):  # new rows are random until the adapter's are loaded
        torch.manual_seed(0)
        network.resize_token_embeddings(rows, mean_resizing=False)
    return own, rows


def _public_name(base: str) -> str:
    """Return the name of a base model without the folders of this machine."""
    is_path = Path(base).is_absolute() or Path(base).exists()
    return Path(base).name if is_path else base


def _check_installed(name: str) -> None:
    """Raise an error without peft."""
    if find_spec("peft") is None:
        raise ModelError(
            f"adapter '{name}': needs the package peft; run: pip install 'headbook[peft]'"
        )


def _check_kind(name: str, config: Any) -> None:
    """Raise an error for an adapter that changes inputs instead of weights."""
    if config.is_prompt_learning:
        raise ModelError(
            f"adapter '{name}': {config.peft_type.value} adds virtual tokens to the input, "
            "which are no tokens of a text; expected an adapter of weights, such as LoRA"
        )


def _plain(key: str) -> str:
    """Return the name of a weight of an adapter, without the names that peft adds."""
    return key.removeprefix(KEY_PREFIX).replace(f".{INJECTED}", "")


def _not_attached(name: str, model: str, base: str, reason: str) -> ModelError:
    """Return the error to raise if an adapter does not fit its base model."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    first = " ".join(lines[: 1 + lines[0].endswith(":")])
    trained = f"it was trained on '{base}'" if base else "it does not name its base model"
    return ModelError(
        f"adapter '{name}': it does not fit the model '{model}' ({first[:200].rstrip('.')}); "
        f"{trained}; expected an adapter of this model, or --model with the adapter's own base"
    )


def _keys_of_network(weights: Mapping[str, Any], network: Any) -> dict[str, Any]:
    """Return the weights of an adapter by the names of the network's modules.

    An adapter may be trained on the network with a head and used without one, or the reverse: then
    the names differ by the name of the body, such as ``bert``.
    """
    children = dict(network.named_children())
    body = f"{network.base_model_prefix}."

    def fitted(key: str) -> str:
        path = key.removeprefix(KEY_PREFIX)
        if path.partition(".")[0] in children:
            return path
        if path.startswith(body):
            return path.removeprefix(body)
        return body + path if body[:-1] in children else path

    return {fitted(key): value for key, value in weights.items()}


def _fit(config: Any, weights: Mapping[str, Any], network: Any, part: str) -> set[str]:
    """Restrict an adapter's configuration to modules of the network, and return unused weights.

    Modules outside the layers, such as poolers and classifiers, may be missing in the network.

    Args:
        config: configuration of the adapter, which is changed.
        weights: weights of the adapter, by names of the network's modules.
        network: network without adapter.
        part: beginning of the names of an adapter's own weights, such as ``.lora_``.

    Raises:
        ValueError: layers of the network and of the adapter differ.
    """
    modules = {name for name, _ in network.named_modules()}
    module_of = {key: key.partition(part)[0] for key in weights if part in key}
    targets = {*module_of.values()}
    if strays := sorted(name for name in targets - modules if _in_layer(name)):
        raise ValueError(f"the model has no {strays[0]}")
    suffixes, chosen = config.target_modules, getattr(config, "layers_to_transform", None)
    if isinstance(suffixes, set | list) and chosen is None:
        ends = tuple(f".{suffix}" for suffix in suffixes)
        alike = {name for name in modules if name.endswith(ends) and _in_layer(name)}
        if left := sorted(alike - targets):
            raise ValueError(f"the adapter has nothing for {left[0]}")
    if not targets & modules and part == ".lora_":
        raise ValueError("none of its modules is in the model")
    if not getattr(config, "feedforward_modules", None) and targets & modules:
        config.target_modules = targets & modules
    config.task_type, config.inference_mode = None, True
    saved = getattr(config, "modules_to_save", None) or ()  # peft refuses missing ones
    kept = [each for each in saved if any(name.endswith(each) for name in modules)]
    if saved:
        config.modules_to_save = kept or None
    return {key for key, name in module_of.items() if name not in modules}


def _in_layer(name: str) -> bool:
    """Whether a module is in a numbered layer."""
    return any(step.isdigit() for step in name.split("."))


def _merge(network: Any, *, merge_maps: bool) -> None:
    """Merge adapted modules into their weights, and put the plain modules in their places.

    Args:
        network: the network with an injected adapter.
        merge_maps: whether to merge linear maps, too.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer  # noqa: PLC0415 - an extra
    from peft.utils.other import AuxiliaryTrainingWrapper  # noqa: PLC0415

    replaced = ["\n"]
    for path, module in [*network.named_modules()]:
        if path.startswith(replaced[-1]):
            continue
        if isinstance(module, AuxiliaryTrainingWrapper):
            plain: Any = module.unload_and_optionally_merge_module(
                merge=True, safe_merge=False, adapter_names=None
            )
        elif isinstance(module, BaseTunerLayer) and (merge_maps or not _is_map(module)):
            layer: Any = module
            base = layer.get_base_layer()
            # A head may share the weight of an adapted embedding, but not its adapter.
            base.weight = torch.nn.Parameter(base.weight.detach().clone(), requires_grad=False)
            layer.merge()
            plain = layer.get_base_layer()  # another module for adapted norms
        else:
            continue
        parent, _, leaf = path.rpartition(".")
        setattr(network.get_submodule(parent), leaf, plain)
        replaced.append(f"{path}.")


def _is_map(module: Any) -> bool:
    """Whether an adapted module is a linear map: only these, embeddings and norms are adapted."""
    base = module.get_base_layer()
    weight = getattr(base, "weight", None)
    is_vector = isinstance(weight, torch.Tensor) and weight.ndim == 1
    return not isinstance(base, torch.nn.Embedding) and not is_vector
