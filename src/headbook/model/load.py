"""Loading of a model with its tokenizer, its length limits, and untrained copies."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from io import StringIO
from typing import Any

import huggingface_hub
import torch
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.utils import logging

from headbook.errors import ModelError
from headbook.model import attention_hook
from headbook.model.checkpoint import (
    ModelFiles,
    find_adapter_files,
    find_model_files,
    read_license,
    read_pooling,
)
from headbook.model.devices import OffloadPlace, isolated_random_state, pick_device, read_parameter
from headbook.model.gguf import Gguf
from headbook.model.loaders.adapters import (
    adapter_tokenizer,
    attach_adapter,
    has_tokenizer,
    tokens_text,
)
from headbook.model.loaders.messages import explained
from headbook.model.loaders.quantization import NONE, quantization_of, stored_format
from headbook.model.tokens.languages import begin_with_target_language, choose_languages
from headbook.model.tokens.strings import TokenStrings
from headbook.model.weights import check_folder, load_with_lm_head, stored_shapes

DEFAULT_MAX_TOKENS = 512  # longest sequence by default; attention grows with its square

# Names in transformers of modules with a vector for each position.
POSITION_TABLES = {"position_embeddings", "position_embedding", "embed_positions", "wpe"}
# Masks of vocabularies, which files of tokenizers do not always name as such, as Gemma's do not.
MASKS = ("<mask>", "[MASK]", "<|mask|>", "<|mdm_mask|>")
MIN_UNLIMITED_TOKENS = 1_000_000  # a tokenizer without a limit gives an astronomical one

REMOTE_MODULES = "transformers_modules"  # package of transformers for code of repositories
REPORT_PARTS = ("missing", "unexpected")  # keys of transformers' loading report that are used


@dataclass(frozen=True)
class WeightFacts:
    """Storage of a checkpoint's weights, and weights that checkpoint and architecture do not share.

    Attributes:
        missing: parameters that the checkpoint lacks; they are random.
        unexpected: parameters of the checkpoint that this model does not use.
        stored: number formats of a GGUF file or of quantised weights; empty for others.
        bits: bits of most weights of a quantised model; else 0.
        adapter: name, method and use of an adapter; empty without one.
        adapter_revision: commit of a hub adapter; hash of the files of a folder.
        adapter_base: base model that the adapter names, if it is not the model's name.
        adapter_tokens: tokenizer and rows of embeddings that the adapter brings, in words.
        remote_code: classes from the code of the model's repository.
    """

    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    stored: str = ""
    bits: int = 0
    adapter: str = ""
    adapter_revision: str = ""
    adapter_base: str = ""
    adapter_tokens: str = ""
    remote_code: tuple[str, ...] = ()

    def warnings(self) -> Iterator[str]:
        """Yield what a user should know before the run, in words."""
        if self.remote_code:
            yield (
                "--trust-remote-code: code of the model's repository runs on this machine "
                f"({', '.join(self.remote_code)})"
            )
        if self.adapter_base:
            yield f"--adapter: it fits, but was trained on '{self.adapter_base}'"
        if self.adapter_tokens:
            yield f"--adapter: {self.adapter_tokens}"


@dataclass(frozen=True)
class Model:
    """A loaded model, in evaluation mode.

    Attributes:
        name: hub id, or the name of a folder or file; with `` + `` and the name of an adapter.
        revision: commit of a hub model; hash of the weights of a folder or file.
        network: the whole model, with its language-model head if the checkpoint has one.
        tokenizer: the tokenizer.
        max_length: longest sequence by default, in tokens.
        device: device that the model runs on.
        weights: storage of the weights, and missing ones.
        headless: reason why there is no language-model head; empty if there is one.
        pooling: pooling of a sentence encoder, as in `headbook.model.checkpoint`; else empty.
        positions: length of the table of positions, in tokens; None without one (rotary).
        license: licence that the model's card or GGUF file names; empty if neither names one.
        configuration: configuration of a caller's model object; empty for a model of a name.
    """

    name: str
    revision: str
    network: Any
    tokenizer: Any
    max_length: int
    device: torch.device
    weights: WeightFacts
    headless: str = ""
    pooling: str = ""
    positions: int | None = None
    license: str = ""
    configuration: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def base_model(self) -> Any:
        """The part of the network that is run, without a language-model head."""
        return self.network.base_model

    @cached_property
    def token_strings(self) -> TokenStrings:
        """Printed names of vocabulary entries."""
        return TokenStrings(self.tokenizer)

    @cached_property
    def mask_token(self) -> str | None:
        """Name of the mask token, or None: the tokenizer's own, or a vocabulary entry `MASKS`."""
        own: str | None = getattr(self.tokenizer, "mask_token", None)
        entries = {} if own else self.tokenizer.get_vocab()
        return own or next((name for name in MASKS if name in entries), None)

    @cached_property
    def mask_id(self) -> int | None:
        """Vocabulary index of the mask token, or None without one."""
        name = self.mask_token
        return None if name is None else int(self.tokenizer.convert_tokens_to_ids(name))

    @property
    def config(self) -> Any:
        """The architecture's configuration."""
        return self.network.config

    @property
    def tokenizer_hash(self) -> str:
        """Hash of the tokenizer's vocabulary and rules."""
        fast = getattr(self.tokenizer, "backend_tokenizer", None)
        text = (
            fast.to_str() if fast is not None else repr(sorted(self.tokenizer.get_vocab().items()))
        )
        return hashlib.sha256(text.encode()).hexdigest()


def load_model(
    name: str,
    *,
    revision: str | None = None,
    device: str = "auto",
    dtype: str = "float32",
    tokenizer: str | None = None,
    source_lang: str | None = None,
    target_lang: str | None = None,
    adapter: str | None = None,
    merge_adapter: bool = False,
    quantization: str = NONE,
    trust_remote_code: bool = False,
    verbose: bool = False,
    offload: OffloadPlace | None = None,
    check: Callable[[Any], None] = lambda _: None,
) -> Model:
    """Load a model for reading its attention.

    Args:
        name: ``demo``, ``demo-causal``, a local folder, a GGUF file or a hub id. Weights come from
            safetensors, GGUF, or a ``pytorch_model.bin`` that holds nothing else.
        revision: branch, tag or commit of a hub model.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1`` or ``mps``.
        dtype: name of a torch floating-point type.
        tokenizer: folder or hub id of another tokenizer than that of the adapter or the model.
        source_lang: code of the language of sources, for multilingual tokenizers.
        target_lang: code of the language of targets.
        adapter: folder or hub id of an adapter of peft.
        merge_adapter: whether the adapter is added to the weights, or else runs beside them.
        quantization: ``none``, ``int8`` or ``int4``.
        trust_remote_code: whether code of the model's repository may run.
        verbose: whether transformers may print its reports.
        offload: place for weights that do not fit on the device, needed as long as the model is.
        check: function that takes the configuration before the weights are read.

    Raises:
        ConfigError: the tokenizer needs a language that is not given, or has no such language.
        ModelError: the model cannot be loaded; the message says why and what to do.
        ResourceError: out of memory.
    """
    device_found = pick_device(device)
    with quiet(verbose):
        files = find_model_files(name, revision, code=trust_remote_code)
        if files.gguf is None:
            check_folder(files.folder, files.name)
        adapter_files = None if adapter is None else find_adapter_files(adapter)
        choose = partial(
            choose_languages, source=source_lang, target=target_lang, name=files.name,
            has_decoder=partial(_has_decoder, files),
        )  # fmt: skip
        with explained(files.name, gguf=files.gguf is not None):
            loaded_tokenizer = own = _tokenizer(files, tokenizer, trust_remote_code)
            choose(own)
            network, weights, headless = _network(
                files, getattr(torch, dtype), device_found, offload,
                quantization=quantization, trusted=trust_remote_code, check=check,
            )  # fmt: skip
        if adapter_files is not None:
            if tokenizer is None and has_tokenizer(adapter_files.folder):
                loaded_tokenizer = adapter_tokenizer(
                    adapter_files.name, adapter_files.folder, network.config
                )
                choose(loaded_tokenizer)
            files, weights = _with_adapter(
                network, files, weights, adapter_files, merge=merge_adapter,
                tokenizers=(own, loaded_tokenizer),
            )  # fmt: skip
        attention_hook.hook_into(network)
    if loaded_tokenizer is not own or tokenizer is not None:
        check_ids(files.name, network, loaded_tokenizer)
    begin_with_target_language(network, loaded_tokenizer)
    network.eval().requires_grad_(requires_grad=False)
    if offload is None and network.device != device_found:
        network.to(device_found)
    max_length, positions = length_limits(network, loaded_tokenizer)
    return Model(
        name=files.name,
        revision=files.revision,
        network=network,
        tokenizer=loaded_tokenizer,
        max_length=max_length,
        device=device_found,
        weights=replace(weights, remote_code=_remote_classes(network, loaded_tokenizer)),
        headless=headless,
        pooling=read_pooling(files.folder) if files.gguf is None else "",
        positions=positions,
        license=read_license(files),
    )


def _with_adapter(
    network: Any,
    files: ModelFiles,
    weights: WeightFacts,
    found: ModelFiles,
    *,
    merge: bool,
    tokenizers: tuple[Any, Any],
) -> tuple[ModelFiles, WeightFacts]:
    """Attach an adapter to a network; return the files under another name, and the facts.

    Args:
        found: files of the adapter.
        tokenizers: tokenizer of the model, and the one that is used.
    """
    for _ in stored_shapes(found.folder.glob("adapter_model*"), found.name):
        pass  # damaged files, and files with more than weights, raise an error
    attached = attach_adapter(network, found.folder, name=found.name, model=files.name, merge=merge)
    base_names = {name.rpartition("/")[2].lower() for name in (attached.base, files.name)}
    tokens = tokens_text(*tokenizers, attached.rows)
    use = ("merged" if merge else "active") + (f"; {tokens}" if tokens else "")
    facts = replace(
        weights,
        unexpected=(*weights.unexpected, *attached.unused),
        adapter=f"{found.name} ({attached.kind}, {use})",
        adapter_revision=found.revision,
        adapter_base=attached.base if attached.base and len(base_names) > 1 else "",
        adapter_tokens=tokens,
    )
    return replace(files, name=f"{files.name} + {found.name}"), facts


def _remote_classes(network: Any, tokenizer: Any) -> tuple[str, ...]:
    """Return the names of classes that code of the model's repository defines."""
    kinds = (type(network.config), type(network), type(tokenizer))
    return tuple(kind.__name__ for kind in kinds if kind.__module__.startswith(REMOTE_MODULES))


def _tokenizer(files: ModelFiles, name: str | None, trusted: bool) -> Any:
    if files.gguf is not None and name is None:
        return files.gguf.tokenizer()
    return AutoTokenizer.from_pretrained(name or files.folder, trust_remote_code=trusted)


def _has_decoder(files: ModelFiles) -> bool:
    """Whether a model is an encoder-decoder, by its configuration; no GGUF file has languages."""
    return files.gguf is None and AutoConfig.from_pretrained(files.folder).is_encoder_decoder


def _network(
    files: ModelFiles,
    dtype: torch.dtype,
    device: torch.device,
    offload: OffloadPlace | None,
    *,
    quantization: str,
    trusted: bool,
    check: Callable[[Any], None],
) -> tuple[Any, WeightFacts, str]:
    """Return the network, facts about its weights, and why there is no language-model head."""
    gguf = files.gguf
    if gguf is None:
        config = AutoConfig.from_pretrained(files.folder, trust_remote_code=trusted)
        check(config)
        network, report, headless = load_with_lm_head(
            files.folder,
            config,
            dtype,
            place=device,
            offload=offload,
            quantization=quantization,
            trust_remote_code=trusted,
        )
        missing, unexpected = (tuple(sorted(report[f"{part}_keys"])) for part in REPORT_PARTS)
        return network, WeightFacts(missing, unexpected, *stored_format(network.config)), headless
    if quantization != NONE:
        raise ModelError(
            f"model '{files.name}': a GGUF file stores its own number format; expected no "
            f"--quantization, got {quantization}"
        )
    if offload is not None:
        raise ModelError(f"model '{files.name}': GGUF files are read whole; use --offload off")
    return _gguf_network(gguf, dtype)


def _gguf_network(gguf: Gguf, dtype: torch.dtype) -> tuple[Any, WeightFacts, str]:
    """Return the network of a GGUF file, facts about its weights, and why there is no head."""
    network, report, headless = load_with_lm_head(
        gguf.path.parent, gguf.configuration(), dtype, gguf.path.name
    )
    if report["mismatched_keys"]:
        raise ValueError(
            f"{min(report['mismatched_keys'])[0]} has another shape than the file says"
        )
    if report["missing_keys"]:
        raise ValueError(f"{min(report['missing_keys'])} is not in the file")
    gguf.check(network)
    unread = gguf.unread(network)
    unused = (f"{unread:,} numbers that transformers does not read",) if unread else ()
    return network, WeightFacts((), unused, gguf.stored, gguf.bits), headless


def check_ids(name: str, network: Any, tokenizer: Any) -> None:
    """Raise an error if the tokenizer has more entries than the model's embedding."""
    weight = word_embedding(network)
    entries, rows = len(tokenizer), len(tokenizer) if weight is None else len(weight)
    if entries > rows:
        raise ModelError(
            f"model '{name}': its tokenizer has {entries:,} entries, its embedding {rows:,}; "
            "expected the tokenizer that the model was trained with (--tokenizer)"
        )


def word_embedding(network: Any) -> torch.Tensor | None:
    """Return the matrix of word embeddings, ``(entry, width)``, or None if there is none."""
    try:
        weight = read_parameter(network.get_input_embeddings())
    except (AttributeError, NotImplementedError):
        return None
    return weight if isinstance(weight, torch.Tensor) and weight.ndim == 2 else None


def untrained_copy(model: Model, seed: int) -> Model:
    """Return the architecture with random weights, as its authors' code initialises them."""
    loader: Any = AutoModelForSeq2SeqLM if model.config.is_encoder_decoder else AutoModel
    config, trusted = deepcopy(model.config), bool(model.weights.remote_code)
    if quantization_of(config):  # random weights are not quantised
        del config.quantization_config
    # Casting weights later would round rotary frequencies as well.
    options: dict[str, Any] = {"attn_implementation": "eager", "dtype": model.network.dtype}
    with isolated_random_state(seed):  # weights are initialised on the CPU
        if model.configuration:  # a caller's class may be in no table of transformers
            network = type(model.network)._from_config(config, **options)  # noqa: SLF001 - what from_config calls
        else:
            network = loader.from_config(config, trust_remote_code=trusted, **options)
    if model.config.is_encoder_decoder:  # the start of outputs may be that of a language
        network.generation_config = deepcopy(model.network.generation_config)
    attention_hook.hook_into(network)
    network.eval().requires_grad_(requires_grad=False)
    network = network.to(model.device)
    return replace(model, network=network, headless="its weights are random")


@contextmanager
def quiet(verbose: bool) -> Iterator[None]:
    """Keep transformers' reports off the terminal; the overview page lists their content."""
    if verbose:
        yield
        return
    hub: Any = huggingface_hub.utils  # exports without types
    logger, had_bars = logging.get_logger(), logging.is_progress_bar_enabled()
    level, hub_bars_off = logger.level, hub.are_progress_bars_disabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with redirect_stderr(StringIO()):  # dequantising prints a progress bar unconditionally
            yield
    finally:
        logger.setLevel(level)
        if had_bars:
            logging.enable_progress_bar()  # the hub's, too
        if hub_bars_off != hub.are_progress_bars_disabled():
            (hub.disable_progress_bars if hub_bars_off else hub.enable_progress_bars)()


def text_config(config: Any) -> Any:
    """Return the configuration of the text model, which is a part in multimodal models."""
    try:
        return config.get_text_config()
    except ValueError:  # several parts are text models
        return config


def _positions(network: Any) -> int | None:
    """Return the longest sequence in the configuration, in tokens, or None without one."""
    positions = getattr(text_config(network.config), "max_position_embeddings", None)
    if not positions or positions < 0:
        return None
    # RoBERTa and its relatives start counting after their padding index.
    padded = [
        module.padding_idx + 1
        for name, module in network.named_modules()
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None)
    ]
    return int(positions - max(padded, default=0))


def _has_position_table(network: Any) -> bool:
    """Whether the model has a table with a vector for each position, which limits its length."""
    return any(
        name.rpartition(".")[2] in POSITION_TABLES and hasattr(module, "weight")
        for name, module in network.named_modules()
    )


def length_limits(network: Any, tokenizer: Any) -> tuple[int, int | None]:
    """Return the longest sequence by default, and the length of a table of positions, if any."""
    limits, positions = [DEFAULT_MAX_TOKENS], _positions(network)
    if tokenizer.model_max_length < MIN_UNLIMITED_TOKENS:
        limits.append(tokenizer.model_max_length)
    if positions is not None:
        limits.append(positions)
    return int(min(limits)), positions if _has_position_table(network) else None
