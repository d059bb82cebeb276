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

PACKAGES = ("gguf", "accelerate")  # packages that transformers needs for these files
ROTATIONS = "rope_freqs.weight"  # tensor with the divisor of each rotary frequency
OWN_SCALING = {"gpt-oss"}  # architectures whose scaled rotations transformers reads
ORIGINAL = "give the original model with safetensors weights"
# Names of a number in GGUF files, with its names in configurations.
EPSILONS = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps")
TAKEN = {
    "attention.layer_norm_epsilon": EPSILONS,
    "attention.layer_norm_rms_epsilon": EPSILONS,
    "attn_logit_softcapping": ("attn_logit_softcapping",),
    "final_logit_softcapping": ("final_logit_softcapping",),
}
LAYER = re.compile(r"(?:^|\.)blk\.(\d+)\.")  # in names of tensors
BITS = re.compile(r"(?:I?Q|TQ|FP|MXFP|NVFP)(\d+)")  # in names of quantisations

# Names of pre-tokenizers that split texts before byte pairs are merged and that transformers lacks.
LIKE_GPT2 = {"gpt-2", "phi-2", "mpt", "olmo", "jais"}
DIGIT_BY_DIGIT = {
    "smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b",
}  # fmt: skip
# Names of pre-tokenizers whose vocabulary entries stay whole even if no merges lead to them.
WHOLE_ENTRIES = {"llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "tekken"}


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
        most = max(self.kinds, key=lambda kind: self.kinds[kind])
        match = BITS.match(most)
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
        for end, names in TAKEN.items():
            value = self._own(end)
            if value is not None:
                for name in (name for name in names if hasattr(config, name)):
                    setattr(config, name, float(str(np.float32(value))))
        base, rotation = self._own("rope.freq_base"), getattr(config, "rope_parameters", None) or {}
        if base is not None and "rope_theta" in rotation:
            rotation["rope_theta"] = float(base)

    def _own(self, end: str) -> Any:
        """Return a number of the file's architecture, or None without it."""
        return self.fields.get(f"{self.fields['general.architecture']}.{end}")

    def check(self, network: Any) -> None:
        """Check that a loaded network rotates queries and keys as the file says.

        Raises:
            ModelError: the network uses another base or width of rotations.
        """
        named = network.named_buffers()
        made = [rotated.double().cpu() for name, rotated in named if name.endswith("inv_freq")]
        base, width = self._own("rope.freq_base"), self._own("rope.dimension_count")
        scaled = self.fields["general.architecture"] in OWN_SCALING or self.rotations is not None
        if not made or scaled or base is None or width is None:
            return
        wanted = 1 / base ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
        if not any(len(m) == len(wanted) and torch.allclose(m, wanted, rtol=1e-4) for m in made):
            raise ModelError(
                f"model '{self.path.name}': {width} numbers of each head rotate, to the base "
                f"{base:g}, which transformers does not read; {ORIGINAL}"
            )

    def tokenizer(self) -> Any:
        """Return the tokenizer that the file describes.

        Raises:
            ModelError: the pre-tokenizer is not named or not known.
        """
        with TemporaryDirectory() as empty:  # files beside it may belong to other models
            made: Any = PreTrainedTokenizerFast.from_pretrained(
                empty, gguf_file=str(self.path.resolve())
            )
        if self.fields.get("tokenizer.ggml.model") == "gpt2":
            self._split(made, str(self.fields.get("tokenizer.ggml.pre", "")))
        return made

    def _split(self, tokenizer: Any, way: str) -> None:
        backend = tokenizer.backend_tokenizer
        plain = isinstance(backend.pre_tokenizer, pre_tokenizers.ByteLevel)
        if plain and way in DIGIT_BY_DIGIT:
            digits = pre_tokenizers.Digits(individual_digits=True)
            bytewise = pre_tokenizers.ByteLevel(add_prefix_space=False)
            backend.pre_tokenizer = pre_tokenizers.Sequence([digits, bytewise])
        elif plain and way not in LIKE_GPT2:
            known = f"by '{way}', which is not known" if way else "in a way that it does not say"
            raise ModelError(
                f"model '{self.path.name}': its tokenizer splits texts {known}; give the one of "
                "the original model with --tokenizer"
            )
        if way in WHOLE_ENTRIES:
            backend.model.ignore_merges = True
            if "tokenizer.ggml.add_bos_token" not in self.fields:
                tokenizer.add_bos_token = True

    def unread(self, network: Any) -> int:
        """Return how many of the file's values the loaded network does not hold."""
        rotations = 0 if self.rotations is None else self.rotations.size
        tied = self.output if getattr(network.config, "tie_word_embeddings", False) else 0
        held: int = sum(weights.numel() for weights in network.parameters())
        return sum(self.kinds.values()) - rotations - tied - held


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
    scaled = [np.array(tensor.data) for tensor in reader.tensors if tensor.name == ROTATIONS]
    return Gguf(path, fields, kinds, sizes.get("output.weight", 0), scaled[0] if scaled else None)


def _reader(path: Path) -> Any:
    for package in PACKAGES:
        if find_spec(package) is None:
            raise ModelError(
                f"model '{path.name}': GGUF files need the package {package}; "
                "run: pip install 'headbook[gguf]'"
            )
    from gguf import GGUFReader  # noqa: PLC0415 - an extra

    make: Callable[[Path], Any] = GGUFReader
    try:
        with np.errstate(over="ignore"):  # `_check_places` finds offsets beyond 2^64
            return make(path)
    except (ValueError, IndexError, KeyError, OverflowError, MemoryError, OSError) as error:
        raise ModelError(
            f"model '{path.name}': cut, damaged or no GGUF file ({_summary(error)}); get it again"
        ) from error


def _summary(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _check(path: Path, fields: Mapping[str, Any], names: set[str]) -> None:
    """Raise an error for files that transformers would read wrongly without warning."""
    name, architecture = f"model '{path.name}'", fields.get("general.architecture")
    if fields.get("split.count", 1) > 1:
        raise ModelError(
            f"{name}: one part of {fields['split.count']}; join them with llama-gguf-split --merge"
        )
    if not architecture or not names:
        raise ModelError(f"{name}: it holds no model; expected architecture and weights")
    check_layers(path.name, fields.get(f"{architecture}.block_count"), len(names))
    layers, held = fields.get(f"{architecture}.block_count"), _layers(names)
    if isinstance(layers, int) and held and layers > held:  # transformers would build all of them
        raise ModelError(
            f"{name}: it says that it has {layers:,} layers and holds tensors of {held:,}; get it "
            "again"
        )
    scaling = fields.get(f"{architecture}.rope.scaling.type", "none")
    factors = {"rope_factors_long.weight", "rope_factors_short.weight"} & names
    if architecture not in OWN_SCALING and (scaling != "none" or factors):
        kind = scaling if scaling != "none" else "long and short factors"
        raise ModelError(
            f"{name}: its rotations are scaled ({kind}), which transformers does not read; "
            f"{ORIGINAL}"
        )


def _layers(names: set[str]) -> int:
    """Return the number of layers that the names of a file's tensors imply."""
    return max((int(found[1]) + 1 for name in names if (found := LAYER.search(name))), default=0)


def _check_places(path: Path, reader: Any) -> None:
    """Raise an error if tensors overlap or begin before the data.

    Raises:
        ModelError: an offset is wrong, so that two tensors would share bytes.
    """
    before, end = "the header", int(reader.data_offset)
    for tensor in sorted(reader.tensors, key=lambda each: int(each.data_offset)):
        start = int(tensor.data_offset)
        if start < end and tensor.n_bytes:
            raise ModelError(
                f"model '{path.name}': damaged: tensor {tensor.name} begins inside {before}; get "
                "it again"
            )
        before, end = f"tensor {tensor.name}", start + int(tensor.n_bytes)


def _scale(name: str, config: Any, factors: npt.NDArray[np.float32]) -> None:
    """Scale rotary frequencies as Llama 3, the only architecture that stores their factors."""
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
    made, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    if not torch.allclose(made.double(), plain / torch.from_numpy(factors), rtol=1e-4):
        raise ModelError(
            f"model '{name}': its rotations are scaled, and not as those of Llama 3; {ORIGINAL}"
        )
