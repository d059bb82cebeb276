"""GGUF files: checks, and corrections for loading them with transformers.

transformers dequantises the weights. This module corrects numbers widened from 32 bits, scaled
frequencies of rotary positions, and the pre-tokenization of some tokenizers. A file that cannot be
corrected is refused.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import pre_tokenizers
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, PreTrainedTokenizerFast
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from headbook.errors import ModelError
from headbook.model.weights import check_layers

REQUIRED_PACKAGES = ("gguf", "accelerate")  # packages that transformers needs for these files
ROTATION_TENSOR = "rope_freqs.weight"  # tensor with the divisor of each rotary frequency
SCALED_ARCHITECTURES = {"gpt-oss"}  # architectures whose scaled rotations transformers reads
USE_ORIGINAL = "give the original model with safetensors weights"
# Names of numbers in GGUF files, each with its possible names in configurations.
EPSILON_NAMES = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps")
CONFIG_NAMES = {
    "attention.layer_norm_epsilon": EPSILON_NAMES,
    "attention.layer_norm_rms_epsilon": EPSILON_NAMES,
    "attn_logit_softcapping": ("attn_logit_softcapping",),
    "final_logit_softcapping": ("final_logit_softcapping",),
}
LAYER_PATTERN = re.compile(r"(?:^|\.)blk\.(\d+)\.")  # in names of tensors
BITS_PATTERN = re.compile(r"(?:I?Q|TQ|FP|MXFP|NVFP)(\d+)")  # in names of quantisations

# Names of pre-tokenizers that split texts before byte pairs are merged and that transformers lacks.
GPT2_PRE_TOKENIZERS = {"gpt-2", "phi-2", "mpt", "olmo", "jais"}
DIGIT_PRE_TOKENIZERS = {
    "smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b",
}  # fmt: skip
# Names of pre-tokenizers whose vocabulary entries stay whole even if no merges lead to them.
WHOLE_ENTRY_PRE_TOKENIZERS = {"llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "tekken"}


@dataclass(frozen=True)
class Gguf:
    """Metadata and summary of a GGUF file.

    Attributes:
        path: path of the file.
        fields: metadata, without lists.
        kinds: number of stored values by format.
        output: number of values of the output projection; 0 if it is the embedding.
        rotations: divisors of the rotary frequencies; None if they are not scaled.
    """

    path: Path
    fields: Mapping[str, Any]
    kinds: Mapping[str, int]
    output: int
    rotations: npt.NDArray[np.float32] | None

    @property
    def stored(self) -> str:
        """Formats of the stored values with their shares, without those under half a percent."""
        total = sum(self.kinds.values())
        shares = {kind: round(100 * count / total) for kind, count in self.kinds.items()}
        listed = sorted(shares.items(), key=lambda pair: -pair[1])
        return "GGUF, " + ", ".join(f"{kind} {share} %" for kind, share in listed if share)

    @property
    def bits(self) -> int:
        """Bits of a weight in the most frequent format; 0 if it is no quantisation."""
        main_format = max(self.kinds, key=lambda kind: self.kinds[kind])
        match = BITS_PATTERN.match(main_format)
        return int(match[1]) if match else 0

    def configuration(self) -> Any:
        """Return the architecture's configuration, with a language-model head if there is a class.

        Raises:
            ModelError: the file scales rotary frequencies in an unknown way.
        """
        config = AutoConfig.from_pretrained(self.path.parent, gguf_file=self.path.name)
        for name, value in vars(config).items():
            if isinstance(value, float):  # 1e-5 of 32 bits has become 9.999999747378752e-06
                setattr(config, name, float(str(np.float32(value))))
        if not config.architectures and type(config) in MODEL_FOR_CAUSAL_LM_MAPPING:
            kind: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
            config.architectures = [kind.__name__]
        self._complete(config)
        if self.rotations is not None:
            _scale(self.path.name, config, self.rotations)
        return config

    def _complete(self, config: Any) -> None:
        """Copy numbers that transformers reads from files of some architectures only."""
        for field, names in CONFIG_NAMES.items():
            value = self._architecture_field(field)
            if value is not None:
                for name in (name for name in names if hasattr(config, name)):
                    setattr(config, name, float(str(np.float32(value))))
        theta = self._architecture_field("rope.freq_base")
        rope = getattr(config, "rope_parameters", None) or {}
        if theta is not None and "rope_theta" in rope:
            rope["rope_theta"] = float(theta)

    def _architecture_field(self, field: str) -> Any:
        """Return a metadata field of the architecture, or None if the file lacks the field."""
        return self.fields.get(f"{self.fields['general.architecture']}.{field}")

    def check(self, network: Any) -> None:
        """Check that a loaded network rotates queries and keys as the file says.

        Raises:
            ModelError: the network uses another base or width of rotations.
        """
        buffers = network.named_buffers()
        frequencies = [
            buffer.double().cpu() for name, buffer in buffers if name.endswith("inv_freq")
        ]
        base = self._architecture_field("rope.freq_base")
        width = self._architecture_field("rope.dimension_count")
        architecture = self.fields["general.architecture"]
        scaled = architecture in SCALED_ARCHITECTURES or self.rotations is not None
        if not frequencies or scaled or base is None or width is None:
            return
        expected = 1 / base ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
        if not any(
            len(values) == len(expected) and torch.allclose(values, expected, rtol=1e-4)
            for values in frequencies
        ):
            raise ModelError(
                f"model '{self.path.name}': {width} numbers of each head rotate, to the base "
                f"{base:g}, which transformers does not read; {USE_ORIGINAL}"
            )

    def tokenizer(self) -> Any:
        """Return the tokenizer that the file describes.

        Raises:
            ModelError: the pre-tokenizer is not named or not known.
        """
        with TemporaryDirectory() as empty:  # files beside it may belong to other models
            tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(
                empty, gguf_file=str(self.path.resolve())
            )
        if self.fields.get("tokenizer.ggml.model") == "gpt2":
            self._split(tokenizer, str(self.fields.get("tokenizer.ggml.pre", "")))
        return tokenizer

    def _split(self, tokenizer: Any, pre_tokenizer: str) -> None:
        """Set how the tokenizer splits texts before it merges byte pairs.

        Raises:
            ModelError: the pre-tokenizer is not named or not known.
        """
        backend = tokenizer.backend_tokenizer
        plain = isinstance(backend.pre_tokenizer, pre_tokenizers.ByteLevel)
        if plain and pre_tokenizer in DIGIT_PRE_TOKENIZERS:
            digits = pre_tokenizers.Digits(individual_digits=True)
            bytes_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
            backend.pre_tokenizer = pre_tokenizers.Sequence([digits, bytes_level])
        elif plain and pre_tokenizer not in GPT2_PRE_TOKENIZERS:
            how = "in a way that it does not say"
            if pre_tokenizer:
                how = f"by '{pre_tokenizer}', which is not known"
            raise ModelError(
                f"model '{self.path.name}': its tokenizer splits texts {how}; give the one of "
                "the original model with --tokenizer"
            )
        if pre_tokenizer in WHOLE_ENTRY_PRE_TOKENIZERS:
            backend.model.ignore_merges = True
            if "tokenizer.ggml.add_bos_token" not in self.fields:
                tokenizer.add_bos_token = True

    def unread(self, network: Any) -> int:
        """Return how many of the file's values the loaded network does not hold."""
        n_rotations = 0 if self.rotations is None else self.rotations.size
        n_tied = self.output if getattr(network.config, "tie_word_embeddings", False) else 0
        n_held: int = sum(weights.numel() for weights in network.parameters())
        return sum(self.kinds.values()) - n_rotations - n_tied - n_held


def read_gguf(path: Path) -> Gguf:
    """Read the metadata of a GGUF file, without its values.

    Raises:
        ModelError: a package is missing, or the file is cut, damaged, one part of several, or of a
            kind that transformers reads wrongly.
    """
    reader = _reader(path)
    fields = {
        name: field.contents()
        for name, field in reader.fields.items()
        if len(field.types) == 1  # lists, of all vocabulary entries for example, have two
    }
    _check(path, fields, {tensor.name for tensor in reader.tensors})
    _check_places(path, reader)
    kinds: Counter[str] = Counter()
    for tensor in reader.tensors:
        kinds[tensor.tensor_type.name] += int(tensor.n_elements)
    sizes = {tensor.name: int(tensor.n_elements) for tensor in reader.tensors}
    scaled = [np.array(tensor.data) for tensor in reader.tensors if tensor.name == ROTATION_TENSOR]
    return Gguf(path, fields, kinds, sizes.get("output.weight", 0), scaled[0] if scaled else None)


def _reader(path: Path) -> Any:
    for package in REQUIRED_PACKAGES:
        if find_spec(package) is None:
            raise ModelError(
                f"model '{path.name}': GGUF files need the package {package}; "
                "run: pip install 'headbook[gguf]'"
            )
    from gguf import GGUFReader  # noqa: PLC0415 - an extra

    open_reader: Callable[[Path], Any] = GGUFReader
    try:
        with np.errstate(over="ignore"):  # `_check_places` finds offsets beyond 2^64
            return open_reader(path)
    except (ValueError, IndexError, KeyError, OverflowError, MemoryError, OSError) as error:
        raise ModelError(
            f"model '{path.name}': cut, damaged or no GGUF file ({_summary(error)}); get it again"
        ) from error


def _summary(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _check(path: Path, fields: Mapping[str, Any], names: set[str]) -> None:
    """Check for files that transformers would read wrongly without a warning.

    Raises:
        ModelError: the file is one part of several, holds no model or too few layers, or scales its
            rotations in a way that transformers does not read.
    """
    model, architecture = f"model '{path.name}'", fields.get("general.architecture")
    if fields.get("split.count", 1) > 1:
        raise ModelError(
            f"{model}: one part of {fields['split.count']}; join them with llama-gguf-split --merge"
        )
    if not architecture or not names:
        raise ModelError(f"{model}: it holds no model; expected architecture and weights")
    check_layers(path.name, fields.get(f"{architecture}.block_count"), len(names))
    layers, held_layers = fields.get(f"{architecture}.block_count"), _layers(names)
    # transformers would build all layers that the file claims.
    if isinstance(layers, int) and held_layers and layers > held_layers:
        raise ModelError(
            f"{model}: it says that it has {layers:,} layers and holds tensors of {held_layers:,}; "
            "get it again"
        )
    scaling = fields.get(f"{architecture}.rope.scaling.type", "none")
    factors = {"rope_factors_long.weight", "rope_factors_short.weight"} & names
    if architecture not in SCALED_ARCHITECTURES and (scaling != "none" or factors):
        kind = scaling if scaling != "none" else "long and short factors"
        raise ModelError(
            f"{model}: its rotations are scaled ({kind}), which transformers does not read; "
            f"{USE_ORIGINAL}"
        )


def _layers(names: set[str]) -> int:
    """Return the number of layers that the names of a file's tensors imply."""
    matches = filter(None, map(LAYER_PATTERN.search, names))
    return max((int(match[1]) + 1 for match in matches), default=0)


def _check_places(path: Path, reader: Any) -> None:
    """Check that tensors do not overlap and begin after the header.

    Raises:
        ModelError: an offset is wrong, so that two tensors would share bytes.
    """
    previous, end = "the header", int(reader.data_offset)
    for tensor in sorted(reader.tensors, key=lambda each: int(each.data_offset)):
        start = int(tensor.data_offset)
        if start < end and tensor.n_bytes:
            raise ModelError(
                f"model '{path.name}': damaged: tensor {tensor.name} begins inside {previous}; get "
                "it again"
            )
        previous, end = f"tensor {tensor.name}", start + int(tensor.n_bytes)


def _scale(name: str, config: Any, factors: npt.NDArray[np.float32]) -> None:
    """Scale rotary frequencies as Llama 3, the only architecture that stores their factors.

    Raises:
        ModelError: the factors differ from those of Llama 3.
    """
    theta, width = config.rope_parameters["rope_theta"], 2 * len(factors)
    plain = 1 / theta ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    config.rope_parameters = {
        "rope_type": "llama3",
        "rope_theta": theta,
        "factor": float(factors.max()),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    if not torch.allclose(scaled.double(), plain / torch.from_numpy(factors), rtol=1e-4):
        raise ModelError(
            f"model '{name}': its rotations are scaled, and not as those of Llama 3; {USE_ORIGINAL}"
        )
