"""A model and its tokenizer from a checkpoint: limits, untrained copies, token strings."""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from functools import cached_property
from io import StringIO
from typing import Any

import huggingface_hub
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.utils import logging

from headbook.errors import ModelError, ResourceError, is_out_of_memory
from headbook.model import attention_hook
from headbook.model.checkpoint import ModelFiles, find_model_files, read_pooling
from headbook.model.devices import OffloadPlace, isolated_random_state, pick_device, read_parameter
from headbook.model.weights import check_folder, load_with_lm_head

MARKS = ("\u2581", "\u0120")  # what tokenizers write for a space before a word
REPLACEMENT = "\ufffd"  # what decoding part of a character gives


class TokenStrings(dict[int, str]):
    """Names by vocabulary entry, each made when it is first asked for.

    Entries are printed as text, with ``␣`` where a piece begins a word; those that are no text of
    their own, such as single bytes of a character, keep the tokenizer's name for them.
    """

    def __init__(self, tokenizer: Any) -> None:
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, entry: int) -> str:
        self[entry] = self._name(entry)
        return self[entry]

    def of(self, entries: Iterable[int]) -> list[str]:
        """The names of several."""
        return [self[int(entry)] for entry in entries]

    def _name(self, entry: int) -> str:
        name = self._tokenizer.convert_ids_to_tokens(entry)
        if name is None:  # a head may know more entries than the tokenizer
            return f"entry {entry}"
        text: str = self._tokenizer.decode([entry])
        if not text.strip() or REPLACEMENT in text:
            return str(name)
        marked = name.startswith(MARKS) and not text.startswith(" ")
        return (" " * marked + text).replace(" ", "␣")


DEFAULT_LIMIT = 512  # tokens; attention grows with the square

# Names that modules with a vector for each position have in transformers.
POSITION_TABLES = {"position_embeddings", "position_embedding", "embed_positions", "wpe"}
UNLIMITED = 1_000_000  # tokenizers without a limit name an astronomical one

WEIGHTS = ("missing", "unexpected")  # what transformers reports of loading


@dataclass(frozen=True)
class WeightFacts:
    """How a checkpoint stores weights, and what it and the architecture do not have in common.

    Attributes:
        missing: parameters the checkpoint lacks; they are random.
        unexpected: parameters of the checkpoint that this model does not use.
        stored: number formats of a GGUF file; empty for safetensors.
        bits: those of most weights in that file, where they are quantised; else 0.
    """

    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    stored: str = ""
    bits: int = 0


@dataclass(frozen=True)
class Model:
    """A loaded model, in evaluation mode.

    Attributes:
        name: hub id, or the own name of a folder or file.
        revision: commit of a hub model; hash of the weights of a folder or file.
        network: the whole model, with its language-model head where the checkpoint has one (for
            encoder-decoders always).
        base_model: the part that is run: ``network`` without a head, where it has one.
        max_length: longest sequence it takes by default, in tokens.
        positions: longest sequence that its table of positions has room for, in tokens; None if it
            has no table, such as with rotations.
        headless: why there is no language-model head; empty where there is one.
        pooling: how a sentence encoder pools states, as in `headbook.model.checkpoint`; empty
            for other checkpoints.
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

    @property
    def base_model(self) -> Any:
        """The network without its head."""
        return self.network.base_model

    @cached_property
    def token_strings(self) -> TokenStrings:
        """How vocabulary entries are printed."""
        return TokenStrings(self.tokenizer)

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
    verbose: bool = False,
    offload: OffloadPlace | None = None,
) -> Model:
    """Load a model for reading its attention.

    Args:
        name: ``demo``, ``demo-causal``, a local folder, a GGUF file or a hub id. Weights come from
            safetensors or GGUF only, and no code of the model's repository is ever run.
        revision: branch, tag or commit of a hub model.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1`` or ``mps``.
        dtype: name of a torch floating-point type.
        tokenizer: folder or hub id of another tokenizer than the model's own.
        offload: where weights go that the device does not hold, for as long as the model is used.

    Raises:
        ModelError: in one line, what is missing and what to do.
    """
    attention_hook.register()
    place = pick_device(device)
    with _quiet(verbose):
        found = find_model_files(name, revision)
        if found.gguf is None:
            check_folder(found.folder, found.name)
        with _explained(found.name, gguf=found.gguf is not None):
            words = _tokenizer(found, tokenizer)
            network, weights, headless = _network(found, getattr(torch, dtype), place, offload)
            network.set_attn_implementation(
                attention_hook.NAME
            )  # stays "eager" where it is not supported
    if tokenizer is not None:
        _check_ids(found.name, network, words)
    network.eval().requires_grad_(requires_grad=False)
    if offload is None:
        network.to(place)
    positions = _positions(network)
    return Model(
        name=found.name,
        revision=found.revision,
        network=network,
        tokenizer=words,
        max_length=_limit(positions, words),
        device=place,
        weights=weights,
        headless=headless,
        pooling=read_pooling(found.folder) if found.gguf is None else "",
        positions=positions if _has_position_table(network) else None,
    )


def _tokenizer(found: ModelFiles, other: str | None) -> Any:
    if found.gguf is not None and other is None:
        return found.gguf.tokenizer()
    return AutoTokenizer.from_pretrained(other or found.folder, trust_remote_code=False)


def _network(
    found: ModelFiles, dtype: torch.dtype, place: torch.device, offload: OffloadPlace | None
) -> tuple[Any, WeightFacts, str]:
    """Network, what it and its checkpoint did not have in common, and why there is no head."""
    gguf = found.gguf
    if gguf is None:
        config = AutoConfig.from_pretrained(found.folder, trust_remote_code=False)
        network, report, headless = load_with_lm_head(
            found.folder, config, dtype, place=place, offload=offload
        )
        missing, unexpected = (tuple(sorted(report[f"{part}_keys"])) for part in WEIGHTS)
        return network, WeightFacts(missing, unexpected), headless
    if offload is not None:
        raise ModelError(f"model '{found.name}': GGUF files are read whole; use --offload off")
    network, report, headless = load_with_lm_head(
        found.folder, gguf.configuration(), dtype, gguf.path.name
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


def _check_ids(name: str, network: Any, tokenizer: Any) -> None:
    """A tokenizer of another model may give tokens that this one does not have."""
    weight = word_embedding(network)
    most, rows = len(tokenizer), len(tokenizer) if weight is None else len(weight)
    if most > rows:
        raise ModelError(
            f"model '{name}': its tokenizer has {most:,} entries, its embedding {rows:,}; expected "
            "the tokenizer that the model was trained with (--tokenizer)"
        )


def word_embedding(network: Any) -> torch.Tensor | None:
    """The matrix of word embeddings, ``(entry, width)``; None where transformers finds none."""
    try:
        weight = read_parameter(network.get_input_embeddings())
    except (AttributeError, NotImplementedError):
        return None
    return weight if isinstance(weight, torch.Tensor) and weight.ndim == 2 else None


def untrained_copy(model: Model, seed: int) -> Model:
    """The same architecture with the weights that its authors' code would start training from."""
    loader: Any = AutoModelForSeq2SeqLM if model.config.is_encoder_decoder else AutoModel
    with isolated_random_state(seed):  # they are made on the processor
        network = loader.from_config(model.config, attn_implementation="eager")
    network.set_attn_implementation(attention_hook.NAME)
    network.eval().requires_grad_(requires_grad=False)
    network = network.to(model.device, model.network.dtype)
    return replace(model, network=network, headless="its weights are random")


@contextmanager
def _explained(name: str, *, gguf: bool) -> Iterator[None]:
    """Turn what transformers raises while loading into one line."""
    try:
        yield
    except (
        OSError, ValueError, KeyError, ImportError, RuntimeError, AttributeError, TypeError,
        ArithmeticError, IndexError, RecursionError, MemoryError, StrictDataclassError,
    ) as error:  # fmt: skip
        if is_out_of_memory(error):
            raise ResourceError(
                f"model '{name}': out of memory while it is loaded; expected more of it; --dtype "
                "bfloat16 takes half of it, --offload auto leaves layers on the disk"
            ) from error
        lines = (str(error).strip() or type(error).__name__).splitlines()
        kept = lines if isinstance(error, StrictDataclassError) else lines[:1]
        first = " ".join(line.strip() for line in kept).rstrip(".")
        expected = (
            "a GGUF file whose architecture and quantisation transformers can read"
            if gguf
            else "config.json, a tokenizer and safetensors weights of an architecture that "
            "transformers itself knows"
        )
        raise ModelError(f"model '{name}': {first}; expected {expected}") from error


@contextmanager
def _quiet(verbose: bool) -> Iterator[None]:
    """Keep transformers' reports off the terminal; the overview lists what they would say."""
    if verbose:
        yield
        return
    hub: Any = huggingface_hub.utils  # it does not say what it exports
    logger, bars = logging.get_logger(), logging.is_progress_bar_enabled()
    level, without = logger.level, hub.are_progress_bars_disabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with redirect_stderr(StringIO()):  # dequantising draws a bar that asks nobody
            yield
    finally:
        logger.setLevel(level)
        if bars:
            logging.enable_progress_bar()  # the hub's, too
        if without != hub.are_progress_bars_disabled():
            (hub.disable_progress_bars if without else hub.enable_progress_bars)()


def text_config(config: Any) -> Any:
    """The configuration of what reads text: its own part in models that see or hear, too."""
    try:
        return config.get_text_config()
    except ValueError:  # several parts read text
        return config


def _positions(network: Any) -> int | None:
    """Return the longest sequence that the configuration names; None without one."""
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
    """Whether the model has a vector for each position; rotations and sums of sines have no end."""
    return any(
        name.rpartition(".")[2] in POSITION_TABLES and hasattr(module, "weight")
        for name, module in network.named_modules()
    )


def _limit(positions: int | None, tokenizer: Any) -> int:
    """Return the longest sequence that positions and tokenizer allow, at most the default limit."""
    limits = [DEFAULT_LIMIT]
    if tokenizer.model_max_length < UNLIMITED:
        limits.append(tokenizer.model_max_length)
    if positions is not None:
        limits.append(positions)
    return int(min(limits))
