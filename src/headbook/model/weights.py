"""Weights of a checkpoint: check against the configuration, loading with a head, rounding.

transformers builds a network from its configuration before it reads weights. A configuration of a
billion layers would take days, and one of a billion numbers per token all memory. Since both files
may be untrusted, sizes are compared with the headers of the weights, which take milliseconds to
read.

A language-model head that the checkpoint lacks would be loaded with random weights; it counts as
missing.

Only the weights of the running module are rounded, and restored after the module, so that no second
network has to fit into memory.
"""

import json
import pickle
import re
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from headbook.errors import ModelError
from headbook.model.devices import OffloadPlace, device_map
from headbook.model.loaders import weight_files
from headbook.model.loaders.quantization import NONE, quantization_options
from headbook.schema import TEXT_CLASSIFIER, TOKEN_CLASSIFIER

CONFIG_FILE = "config.json"
LAYER_FIELDS = {
    "num_hidden_layers", "num_layers", "n_layers", "n_layer", "encoder_layers", "decoder_layers",
    "num_encoder_layers", "num_decoder_layers",
}  # fmt: skip
HEAD_FIELDS = {
    "num_attention_heads", "num_heads", "n_heads", "n_head", "encoder_attention_heads",
    "decoder_attention_heads",
}  # fmt: skip
WIDTH_FIELDS = {"hidden_size", "d_model", "n_embd", "dim", "vocab_size"}
FOREIGN_CODE = re.compile(r"GLOBAL ([\w.]+)")  # in torch's message about code in a file
# Layers that a configuration may claim even if there are fewer tensors: layers may share their
# weights, as those of ALBERT do, and no model has as many.
MAX_SHARED_LAYERS = 256


def check_folder(folder: Path, name: str) -> None:
    """Check that configuration and weights fit together, and that no file is cut off.

    Args:
        folder: folder with ``config.json`` and weights as safetensors or ``pytorch_model.bin``;
            transformers reports missing files.
        name: name of the model, for messages.

    Raises:
        ModelError: the message gives the file, what was found and what is expected.
    """
    config = _configuration(folder / CONFIG_FILE, name)
    tensors, largest = 0, 0
    for shape in stored_shapes(weight_files(folder), name):
        tensors += 1
        largest = max(largest, *shape, 0)
    largest_allowed = {
        **dict.fromkeys(LAYER_FIELDS, max(tensors, MAX_SHARED_LAYERS)),
        **dict.fromkeys(HEAD_FIELDS | WIDTH_FIELDS, largest),
    }
    for key, value in _sizes(config):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ModelError(
                f"model '{name}': {CONFIG_FILE}: {key} = {value!r:.80}, expected a whole number "
                "from 1"
            )
        if tensors and value > largest_allowed[key]:
            held = (
                f"{tensors:,} tensors" if key in LAYER_FIELDS else f"dimensions up to {largest:,}"
            )
            raise ModelError(
                f"model '{name}': {CONFIG_FILE}: {key} = {value!r:.80}, but its weights have "
                f"{held}; expected the configuration and the weights of one model"
            )


def check_layers(name: str, layers: object, tensors: int) -> None:
    """Check that a GGUF file claims no more layers than it has tensors.

    Raises:
        ModelError: the file has fewer tensors than layers.
    """
    if isinstance(layers, int) and layers > max(tensors, MAX_SHARED_LAYERS):
        raise ModelError(
            f"model '{name}': {layers:,} layers, but {tensors:,} tensors; expected a GGUF file "
            "that is whole"
        )


def _configuration(file: Path, name: str) -> dict[str, Any]:
    """Return the content of a configuration file, or an empty one if it is missing."""
    if not file.is_file():
        return {}
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ModelError(f"model '{name}': {CONFIG_FILE}: nested too deeply") from error
    except (OSError, ValueError) as error:
        raise ModelError(
            f"model '{name}': {CONFIG_FILE}: {error}; expected a JSON object"
        ) from error
    if not isinstance(config, dict):
        raise ModelError(
            f"model '{name}': {CONFIG_FILE}: a JSON {type(config).__name__}, expected an object"
        )
    return config


def _sizes(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield numbers of layers, heads and widths, including those of a model's parts.

    Lists with a number for each layer are skipped; None, too, since it stands for a default.
    """
    for key, value in config.items():
        if isinstance(value, dict) and (key.endswith("_config") or key in {"encoder", "decoder"}):
            yield from (
                (nested_key, number)
                for nested_key, number in _sizes(value)
                if nested_key in LAYER_FIELDS
            )
        elif (
            key in LAYER_FIELDS | HEAD_FIELDS | WIDTH_FIELDS
            and value is not None
            and not isinstance(value, list)
        ):
            yield key, value


def stored_shapes(files: Iterable[Path], name: str) -> Iterator[list[int]]:
    """Yield the shapes of all tensors of weight files, safetensors or ``.bin``.

    Raises:
        ModelError: a file is damaged, or a ``.bin`` holds more than weights.
    """
    for file in files:
        yield from (_shapes if file.suffix == ".safetensors" else _pickled_shapes)(file, name)


def _shapes(file: Path, name: str) -> Iterator[list[int]]:
    """Yield the shapes of all tensors of a file, read from its header."""
    try:
        with safe_open(file, framework="numpy") as opened:
            for tensor in [*opened.keys()]:
                yield opened.get_slice(tensor).get_shape()
    except (SafetensorError, OSError) as error:
        raise _damaged(file, name, "a safetensors file", error) from error


def _pickled_shapes(file: Path, name: str) -> Iterator[list[int]]:
    """Yield the shapes of all tensors of a file of `torch.save`, without running its code."""
    try:
        content = torch.load(
            file, weights_only=True, map_location="meta", mmap=zipfile.is_zipfile(file)
        )
    except pickle.UnpicklingError as error:
        code = FOREIGN_CODE.search(str(error))
        if code is None:
            raise _damaged(file, name, "a torch.save file", error) from error
        raise _more_than_weights(file, name, f"code ({code[1]}), which is not run") from error
    except (OSError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise _damaged(file, name, "a torch.save file", error) from error
    if not isinstance(content, dict):
        raise _more_than_weights(file, name, f"a value of type {type(content).__name__}")
    for key, tensor in content.items():
        if not isinstance(tensor, torch.Tensor):
            kind = type(tensor).__name__
            raise _more_than_weights(file, name, f"a value of type {kind} under {key!r:.80}")
        yield [*tensor.shape]


def _more_than_weights(file: Path, name: str, found: str) -> ModelError:
    """Return the error to raise if a file of `torch.save` holds something that is no weight."""
    return ModelError(
        f"model '{name}': {file.name}: holds {found}; expected named tensors alone; if you trust "
        "its author, convert it with safetensors.torch.save_file to model.safetensors "
        "(docs/models.md has the lines)"
    )


def _damaged(file: Path, name: str, expected: str, error: Exception) -> ModelError:
    first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return ModelError(
        f"model '{name}': {file.name}: cut off, damaged or not {expected} ({first_line}); get it "
        "again"
    )


def load_with_lm_head(
    folder: Path,
    config: Any,
    dtype: torch.dtype,
    gguf: str | None = None,
    *,
    place: torch.device | None = None,
    offload: OffloadPlace | None = None,
    quantization: str = NONE,
    trust_remote_code: bool = False,
) -> tuple[Any, dict[str, Any], str]:
    """Load a network with its language-model head, or without a head that the checkpoint lacks.

    A checkpoint of a classifier is loaded with its classification head. Encoder-decoders always
    keep their language-model head, since targets are generated with it.

    Args:
        folder: folder of the checkpoint.
        config: configuration of the model.
        dtype: number format of the weights.
        gguf: name of the GGUF file in the folder; None for safetensors.
        place: device that layers run on; used only with ``offload``.
        offload: place for weights that do not fit on the device; None to load all into memory.
        quantization: ``none``, ``int8`` or ``int4``.
        trust_remote_code: whether code of the model's repository may run.

    Returns:
        Network, loading report, and the reason why there is no head, or "".
    """
    # The product that groups all experts does not support float64.
    options = {"experts_implementation": "eager"} if dtype is torch.float64 else {}
    # Mismatched sizes are ignored here, because the caller reports them in a clearer message.
    gguf_options = {"gguf_file": gguf, "ignore_mismatched_sizes": True}
    is_pickled = bool(files := weight_files(folder)) and files[0].suffix != ".safetensors"
    weights = {"use_safetensors": not is_pickled} if gguf is None else gguf_options
    trusted = {"trust_remote_code": trust_remote_code}

    def placement(loader: Any) -> dict[str, Any]:
        if quantization != NONE and place is not None:
            with torch.device("meta"):
                empty = loader.from_config(config, **trusted)
            return quantization_options(quantization, folder.name, empty, place, dtype)
        if offload is None or place is None:
            return {}
        return device_map(offload, folder.name, loader, config, place)

    def load(loader: Any) -> tuple[Any, dict[str, Any]]:
        network_and_report: tuple[Any, dict[str, Any]] = loader.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            attn_implementation="eager",
            output_loading_info=True,
            **trusted,
            **weights,
            **options,
            **placement(loader),
        )
        return network_and_report

    classifier = _classifier_loader(config) if gguf is None else None
    if classifier is not None:
        network, report = load(classifier)
        has_body = network.base_model is not network
        if has_body and not _headless(network, report["missing_keys"]):
            kind = type(network).__name__
            return network, report, f"the checkpoint has a classification head ({kind})"
    loader = _head_loader(config)
    if loader is None and trust_remote_code:
        loader = _remote_head_loader(config)
    if loader is None:
        return *load(AutoModel), f"'{config.model_type}' has no language-model head"
    network, report = load(loader)
    headless = _headless(network, report["missing_keys"])
    if headless and not config.is_encoder_decoder:
        network, report = load(AutoModel)
    return network, report, headless


def _head_loader(config: Any) -> Any:
    """Return transformers' class for an architecture with language-model head, or None."""
    if config.is_encoder_decoder and type(config) in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING:
        return AutoModelForSeq2SeqLM
    if type(config) in MODEL_FOR_MASKED_LM_MAPPING and not getattr(config, "is_decoder", False):
        return AutoModelForMaskedLM
    if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING:
        return AutoModelForCausalLM
    # Multimodal models, whose text model runs on text alone.
    has_images = type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
    return AutoModelForImageTextToText if has_images else None


def _remote_head_loader(config: Any) -> Any:
    """Return transformers' class for a model whose repository has code with a head, or None."""
    code = getattr(config, "auto_map", None) or {}
    loaders = (AutoModelForSeq2SeqLM, AutoModelForMaskedLM, AutoModelForCausalLM)
    return next((loader for loader in loaders if loader.__name__ in code), None)


CLASSIFIERS = {
    TEXT_CLASSIFIER: (
        AutoModelForSequenceClassification, MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    ),
    TOKEN_CLASSIFIER: (AutoModelForTokenClassification, MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING),
}  # fmt: skip


def _classifier_loader(config: Any) -> Any:
    """Return transformers' class for a checkpoint of a classifier, or None for others."""
    if config.is_encoder_decoder:  # targets are generated with the language-model head
        return None
    for ending, (loader, mapping) in CLASSIFIERS.items():
        names = config.architectures or ()
        if type(config) in mapping and any(name.endswith(ending) for name in names):
            return loader
    return None


def classifier_kind(network: Any) -> str:
    """Return `TEXT_CLASSIFIER` or `TOKEN_CLASSIFIER`; empty for a network without such a head."""
    name = type(network).__name__
    return next((ending for ending in CLASSIFIERS if name.endswith(ending)), "")


def _headless(network: Any, missing_keys: Collection[str]) -> str:
    """Return why a network's head is not the checkpoint's, or "" if it is.

    A head that shares all weights with the embedding is never missing: the checkpoint must name it.
    """
    parts = [network.base_model]
    if parts[0] is network:  # T5 and similar models have separate encoder and decoder
        getters = (getattr(network, name, None) for name in ("get_encoder", "get_decoder"))
        parts = [getter() for getter in getters if getter is not None]
    body = {id(weights) for part in parts for weights in part.parameters()}
    head_names = [name for name, weights in network.named_parameters() if id(weights) not in body]
    missing_names = sorted(set(head_names) & set(missing_keys))
    if missing_names:
        return f"the checkpoint has no language-model head ({missing_names[0]} is missing)"
    classes = network.config.architectures or []
    if not head_names and type(network).__name__ not in classes:
        return f"the checkpoint is of {' or '.join(classes) or 'a model'} without a head"
    return ""


ROUNDED_DTYPE = torch.bfloat16  # number format to which weights are rounded


def can_round(network: torch.nn.Module) -> bool:
    """Whether all weights are in memory and none is quantised.

    Offloaded weights arrive too late to be rounded, and quantised ones are rounded already.
    """
    return not any(
        parameter.is_meta or type(parameter) is not torch.nn.Parameter
        for parameter in network.parameters()
    )


@contextmanager
def rounded_weights(network: torch.nn.Module) -> Iterator[None]:
    """Round each module's own weights to bfloat16 while the module runs, without its arithmetic."""
    with ExitStack() as hooks:
        for module in network.modules():
            weights = [
                weight
                for weight in module.parameters(recurse=False)
                if weight.is_floating_point() and torch.finfo(weight.dtype).bits > 16
            ]
            if weights:
                saved: list[list[torch.Tensor]] = []
                before, after = _rounding_hooks(weights, saved)
                hooks.callback(module.register_forward_pre_hook(before).remove)
                handle = module.register_forward_hook(after, always_call=True)
                hooks.callback(handle.remove)
        yield


def _rounding_hooks(
    weights: list[torch.nn.Parameter], saved: list[list[torch.Tensor]]
) -> tuple[Any, Any]:
    """Return hooks that round the weights before a module runs, and restore them after.

    Args:
        weights: the module's own weights.
        saved: exact weights of calls that have not ended; the last call ends first.
    """

    def before(*_: Any) -> None:
        with torch.inference_mode(mode=False), torch.no_grad():
            saved.append([weight.detach().clone() for weight in weights])
            for weight in weights:
                # In place, which increments the version that packed copies of weights check.
                weight.copy_(weight.to(ROUNDED_DTYPE))

    def after(*_: Any) -> None:
        if not saved:
            return
        with torch.inference_mode(mode=False), torch.no_grad():
            for weight, exact in zip(weights, saved.pop(), strict=True):
                weight.copy_(exact)

    return before, after
