"""Models that a Python program holds, read through a copy that shares their weights.

The copy has modules, hooks, configuration and buffers of its own, so whatever a run does to the
copy (evaluation mode, hooks, another attention implementation, another number format), the caller's
object stays as it is, also after an exception. Weights exist once: parameters of the copy are other
tensors on the same memory. Adapters of peft are merged into weights of the copy alone, because
numbers that are computed from weights must be those of the model that runs.
"""

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from headbook.config import Config
from headbook.errors import ConfigError, ModelError
from headbook.model import attention_hook
from headbook.model.checkpoint import CLS, LAST, MAX, MEAN, WEIGHTED
from headbook.model.devices import OffloadPlace, pick_device, read_parameter
from headbook.model.load import Model, WeightFacts, check_ids, length_limits, load_model, quiet
from headbook.progress import Progress

UNNAMED = "in-memory model"  # name of a model whose configuration names no checkpoint
HASH_BYTES = 64 << 20  # weights that are copied from the device at a time to be hashed
POOLINGS = {  # names of sentence-transformers
    "mean": MEAN, "mean_sqrt_len_tokens": MEAN, "cls": CLS, "max": MAX, "lasttoken": LAST,
    "weightedmean": WEIGHTED,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class ModelObject:
    """A caller's model with its tokenizer; neither is ever changed.

    Attributes:
        network: a `transformers.PreTrainedModel`, or a `peft.PeftModel` around one.
        tokenizer: a tokenizer of transformers.
        pooling: pooling of a sentence encoder, as in `headbook.model.checkpoint`, or empty.
    """

    network: Any
    tokenizer: Any
    pooling: str = ""

    @classmethod
    def of(cls, model: Any, tokenizer: Any = None) -> "ModelObject":
        """Return a caller's model with its tokenizer.

        Args:
            model: a `transformers.PreTrainedModel`, `peft.PeftModel` or `SentenceTransformer`.
            tokenizer: the tokenizer; None for a `SentenceTransformer`, which has one.

        Raises:
            ModelError: the model or the tokenizer is of another class, or there is no tokenizer.
        """
        network, pooling = model, ""
        if type(model).__name__ == "SentenceTransformer":
            first, *modules = model.children()
            network, tokenizer = getattr(first, "auto_model", first), tokenizer or model.tokenizer
            modes = [module.pooling_mode for module in modules if hasattr(module, "pooling_mode")]
            pooling = POOLINGS.get(modes[0], "") if len(modes) == 1 else ""
        if not isinstance(network, torch.nn.Module) or not hasattr(network, "config"):
            raise ModelError(
                f"model: got an object of type {type(model).__name__}; expected a PreTrainedModel "
                "of transformers, a PeftModel, or the name of a model"
            )
        name = _name_of(network)
        if tokenizer is None:
            known = "..." if name == UNNAMED else name
            raise ModelError(
                f"model '{name}': got an object without its tokenizer; expected tokenizer=, for "
                f"example AutoTokenizer.from_pretrained('{known}')"
            )
        if not hasattr(tokenizer, "convert_ids_to_tokens"):
            raise ModelError(
                f"tokenizer: got an object of type {type(tokenizer).__name__}; expected a "
                "tokenizer of transformers"
            )
        return cls(network, tokenizer, pooling)

    @property
    def name(self) -> str:
        """Name of the checkpoint in the model's configuration, or `UNNAMED`, with adapters."""
        adapters = " and ".join(_adapters(self.network))
        return _name_of(self.network) + (f" with adapter {adapters}" if adapters else "")

    @property
    def dtype(self) -> str:
        """Number format of the weights, as an option names it."""
        return str(_first_weights(self.network).dtype).removeprefix("torch.")

    @property
    def device(self) -> str:
        """Device of the weights, as an option names it."""
        device = str(_first_weights(self.network).device)
        return device.removesuffix(":0") if device.startswith("mps") else device

    def configured(self, options: Mapping[str, Any]) -> Config:
        """Return the options of a run; number format and device are the object's own by default.

        Raises:
            ConfigError: an option needs a model that can be loaded by name.
        """
        own = {"dtype": self.dtype, "device": self.device}
        given = {name: value for name, value in options.items() if value is not None}
        return self.checked(Config.of(**(own | given)))

    def checked(self, config: Config) -> Config:
        """Return options with the name of this model.

        Raises:
            ConfigError: an option needs a model that can be loaded by name.
        """
        needing_name = {
            "engine": config.engine != "local",
            "workers": config.workers > 1,
            "device": len(config.devices) > 1,
            "revision": config.revision is not None,
            "offload": config.offload != "off",
            "adapter": config.adapter is not None,
            "quantization": config.quantization != "none",
        }
        for option, needs_name in needing_name.items():
            if needs_name:
                raise ConfigError(
                    f"--{option}: got {getattr(config, option)!r} with a model object, which only "
                    "this process has; expected the model's name or folder "
                    "(model.save_pretrained), or no such option"
                )
        return replace(config, model=self.name, tokenizer=None)

    def load(self, *, dtype: str, device: str, progress: Progress) -> Model:
        """Return the model to read: a copy in evaluation mode that shares the object's weights.

        Args:
            dtype, device: of the weights, which are copied if they are not the object's own.
            progress: reporter of the progress of hashing.

        Raises:
            ModelError: the object cannot be read; the message says why and what to do.
        """
        if any(module.training for module in self.network.modules()):
            progress.message(
                f"{self.name}: the model is in training mode; it is read in evaluation mode, "
                "without dropout, and stays in training mode itself"
            )
        check_ids(self.name, self.network, self.tokenizer)
        place = pick_device(self.device if device == "auto" else device)
        with quiet(verbose=False):
            network = _merged(_shared_copy(self.network), self.name).eval()
            attention_hook.register()
            for implementation in ("eager", attention_hook.NAME):  # "eager" if not supported
                network.set_attn_implementation(implementation)
        revision = f"sha256:{weights_hash(network, progress)}"
        _convert(network, getattr(torch, dtype), place)
        tokenizer, has_head = copy.deepcopy(self.tokenizer), network.get_output_embeddings()
        max_length, positions = length_limits(network, tokenizer)
        reason = f"the model is a {type(network).__name__} without a language-model head"
        return Model(
            name=self.name,
            revision=revision,
            network=network,
            tokenizer=tokenizer,
            max_length=max_length,
            device=place,
            weights=WeightFacts((), ()),
            headless=reason if has_head is None else "",
            pooling=self.pooling,
            positions=positions,
            configuration=_configuration(self.network),
        )


def open_model(
    source: ModelObject | None,
    config: Config,
    *,
    device: str,
    offload: OffloadPlace | None,
    progress: Progress,
) -> Model:
    """Return the model of a run: a caller's object, or the one that the options name.

    Raises:
        ModelError: the model cannot be loaded or read.
        ResourceError: out of memory.
    """
    if source is not None:
        return source.load(dtype=config.dtype, device=device, progress=progress)
    return load_model(config.model, device=device, offload=offload, **config.loading)


def model_and_options(
    model: Any, tokenizer: Any, options: Mapping[str, Any], config: Any = None
) -> tuple[ModelObject | None, Config]:
    """Return a caller's model, or None for a name, and the options of the run.

    Args:
        model: an object, a name, or None for the default.
        tokenizer: an object for a model object, a name for a name; None for the model's own.
        options: options by name.
        config: all options as one `Config`, in place of ``options``.

    Raises:
        ConfigError: an option has a wrong value.
        ModelError: the model or tokenizer is of no accepted class.
    """
    if isinstance(config, Config):
        source = None if model is None else ModelObject.of(model, tokenizer)
        return source, config if source is None else source.checked(config)
    if config is not None:
        found = type(config).__name__
        raise ConfigError(f"config: got a {found}, expected options by name, such as model=")
    is_name = model is None or isinstance(model, str | Path)
    names_tokenizer = tokenizer is None or isinstance(tokenizer, str | Path)
    if not is_name and not (names_tokenizer and tokenizer is not None):
        source = ModelObject.of(model, tokenizer)
        return source, source.configured(options)
    if not (is_name and names_tokenizer):
        raise ConfigError(
            "--tokenizer: got a name with a model object, or an object with a model's name; "
            "expected two objects, or two names"
        )
    return None, Config.of(model=model, tokenizer=tokenizer, **options)


def weights_hash(network: torch.nn.Module, progress: Progress) -> str:
    """Return the SHA-256 of the names, shapes, number formats and bytes of all weights.

    Weights are copied from their device in pieces of `HASH_BYTES`. Weights that modules share are
    hashed once.
    """
    digest, seen = hashlib.sha256(), dict[int, str]()
    state = network.state_dict(keep_vars=True)
    tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    progress.stage("hash of the weights", sum(each.nbytes for each in tensors.values()) >> 20)
    for name, tensor in sorted(tensors.items()):
        shared_with = seen.setdefault(id(tensor), name)
        digest.update(f"{name} {shared_with} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        if shared_with != name:
            continue
        for piece in _pieces(network, name, tensor):
            digest.update(piece.numpy().data)
            progress.advance(piece.nbytes >> 20, 0)
    return digest.hexdigest()


def _pieces(network: torch.nn.Module, name: str, tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the bytes of a tensor as tensors in memory, also if it is offloaded or quantised."""
    if tensor.is_meta:
        place, _, own_name = name.rpartition(".")
        tensor = read_parameter(network.get_submodule(place), own_name)  # type: ignore[assignment]
    if hasattr(tensor, "__tensor_flatten__"):  # a quantised tensor consists of several
        for part in tensor.__tensor_flatten__()[0]:
            yield from _pieces(network, f"{name}.{part}", getattr(tensor, part))
        return
    values = tensor.detach().reshape(-1)
    step = max(1, HASH_BYTES // values.element_size())
    for start in range(0, len(values), step):
        yield values[start : start + step].cpu().contiguous().view(torch.uint8)


def _first_weights(network: torch.nn.Module) -> torch.Tensor:
    """Return the first floating-point weights of a model, or its first weights.

    Raises:
        ModelError: the model has no weights.
    """
    weights = [*network.parameters()]
    if not weights:
        raise ModelError(
            f"model: got a {type(network).__name__} without weights; expected a transformer"
        )
    return next((each for each in weights if each.is_floating_point()), weights[0])


def _name_of(network: Any) -> str:
    """Return the name of the checkpoint in a model's configuration; a path's last part."""
    name = str(getattr(network.config, "name_or_path", "") or UNNAMED)
    return Path(name).resolve().name if Path(name).exists() else name


def _adapters(network: Any) -> list[str]:
    """Return the names of the active adapters of peft."""
    if not getattr(network, "peft_config", None):
        return []
    active = getattr(network, "active_adapters", ())
    names = active() if callable(active) else active
    return [names] if isinstance(names, str) else [*names]


def _configuration(network: Any) -> dict[str, Any]:
    """Return the configuration of a model and of its adapters, as JSON values without paths."""
    configuration = network.config.to_dict()
    for name in _adapters(network):
        adapter = network.peft_config[name].to_dict()
        configuration.setdefault("adapters", {})[name] = {
            key: sorted(map(str, value)) if isinstance(value, set) else value
            for key, value in adapter.items()
            if key != "base_model_name_or_path"
        }
    for name in ("_name_or_path", "transformers_version"):  # a path; recorded elsewhere
        configuration.pop(name, None)
    plain: dict[str, Any] = json.loads(json.dumps(configuration, default=str, sort_keys=True))
    return plain


def _shared_copy(network: Any) -> Any:
    """Return a copy of a network whose parameters are other tensors on the same memory.

    Raises:
        ModelError: an attribute of a module cannot be copied.
    """
    copies: dict[int, Any] = {}
    for module in network.modules():
        for parameter in module.parameters(recurse=False):
            copies[id(parameter)] = _alias(parameter)
        for value in vars(module).values():
            if isinstance(value, torch.Tensor):  # such as states that a caller's hook has kept
                copies[id(value)] = value.detach()
    try:
        return copy.deepcopy(network, copies)
    except (RuntimeError, TypeError, ValueError, AttributeError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(
            f"model '{_name_of(network)}': the object cannot be copied without its weights "
            f"({reason}); expected no hooks that keep results, or the model's name or folder"
        ) from error


def _alias(parameter: torch.nn.Parameter) -> torch.nn.Parameter:
    """Return another parameter on the same memory, without gradient.

    The data of the alias has a version counter of its own, so that a caller's pending backward pass
    does not notice that weights were rounded and restored.
    """
    if type(parameter) is torch.nn.Parameter:
        return torch.nn.Parameter(parameter.data, requires_grad=False)
    if hasattr(parameter, "__tensor_flatten__"):
        return torch.nn.Parameter(parameter.detach(), requires_grad=False)
    return parameter  # a class of a library of quantised weights, which nothing here changes


def _convert(network: torch.nn.Module, dtype: torch.dtype, device: torch.device) -> None:
    """Convert parameters and stored buffers to a number format, and move everything to a device.

    Buffers that are not stored, such as frequencies of rotary positions, keep their number format,
    as when a checkpoint is loaded.

    Raises:
        ModelError: the weights are quantised, so that they have one number format and device.
    """
    first = _first_weights(network)
    if first.dtype == dtype and _same_device(first.device, device):
        return
    if any(type(parameter) is not torch.nn.Parameter for parameter in network.parameters()):
        raise ModelError(
            f"model: got quantised weights and another dtype or device ({dtype}, {device}); "
            "expected none of both options"
        )
    for parameter in network.parameters():
        kind = dtype if parameter.is_floating_point() else parameter.dtype
        parameter.data = parameter.data.to(device, kind)
    stored = network.state_dict().keys()
    for name, buffer in [*network.named_buffers()]:
        kind = dtype if name in stored and buffer.is_floating_point() else buffer.dtype
        place, _, own_name = name.rpartition(".")
        setattr(network.get_submodule(place), own_name, buffer.to(device, kind))


def _same_device(one: torch.device, other: torch.device) -> bool:
    return one.type == other.type and (one.index or 0) == (other.index or 0)


def _merged(network: Any, name: str) -> Any:
    """Return a copied network with its active adapters merged into weights of its own.

    Raises:
        ModelError: an adapter changes inputs instead of weights, or cannot be merged.
    """
    configs = [network.peft_config[each] for each in _adapters(network)]
    if any(getattr(config, "is_prompt_learning", False) for config in configs):
        raise ModelError(
            f"model '{name}': the adapter adds virtual tokens to each text; expected an adapter "
            "that changes weights, such as LoRA"
        )
    network = network.get_base_model() if hasattr(network, "get_base_model") else network
    for path, module in [*network.named_modules()]:
        merged = None
        if hasattr(module, "unload_and_optionally_merge_module"):
            merged = module.unload_and_optionally_merge_module(
                merge=True, safe_merge=False, adapter_names=None
            )
        elif hasattr(module, "base_layer") and hasattr(module, "merge"):
            merged = module.get_base_layer()
            for own_name, weights in [*merged.named_parameters(recurse=False)]:
                if type(weights) is torch.nn.Parameter:
                    own = torch.nn.Parameter(weights.data.clone(), requires_grad=False)
                    setattr(merged, own_name, own)
            if not getattr(module, "disable_adapters", False):
                module.merge()
        if merged is not None:
            network.set_submodule(path, merged)
    return network
