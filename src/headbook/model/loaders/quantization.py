"""Quantised weights: configurations for transformers, and facts about quantised checkpoints.

bitsandbytes quantises on GPUs, torchao on other devices. Weights alone are quantised; activations
keep the number format of the model, except in LLM.int8 of bitsandbytes. The weights are quantised
while the checkpoint is loaded.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from math import gcd
from typing import Any

import torch

from headbook.errors import ModelError

NONE, INT8, INT4 = "none", "int8", "int4"
BITS = {INT8: 8, INT4: 4}
MAX_GROUP = 32  # weights that share a scale in int4
# Names of the number of bits in configurations of quantised checkpoints.
BITS_NAMES = ("bits", "w_bit", "num_bits", "weight_bits", "nbits")
BITS_OF_FLAGS = {"load_in_4bit": 4, "load_in_8bit": 8}
BITS_OF_METHODS = {"fp8": 8, "fbgemm_fp8": 8, "mxfp4": 4, "bitnet": 2}


def quantization_options(
    kind: str, name: str, network: Any, device: torch.device, dtype: torch.dtype
) -> dict[str, Any]:
    """Return the arguments of transformers that quantise a model while it is loaded.

    Args:
        kind: ``int8`` or ``int4``.
        name: name of the model, for messages.
        network: the network without numbers, on the device ``meta``.
        device: device that the model runs on.
        dtype: number format of activations.

    Raises:
        ModelError: the model is quantised already, a package is missing, or the device or the
            number format does not work with quantised weights.
    """
    if own := quantization_of(network.config):
        raise ModelError(
            f"model '{name}': it is quantised already ({own.get('quant_method', 'unknown')}), and "
            f"loads so by itself; expected no --quantization, got {kind}"
        )
    if dtype is torch.float64:
        raise ModelError(
            f"--quantization {kind}: got --dtype float64, in which no quantised weights multiply; "
            "expected float32, bfloat16 or float16"
        )
    on_gpu = device.type == "cuda"
    package = "bitsandbytes" if on_gpu else "torchao"
    if find_spec(package) is None:
        raise ModelError(
            f"--quantization {kind}: needs the package {package} on the device {device.type}; "
            "run: pip install 'headbook[quantized]'"
        )
    if on_gpu:
        return {"quantization_config": _bitsandbytes(kind, dtype), "device_map": {"": device}}
    return {"quantization_config": _torchao(kind, network)}


def _bitsandbytes(kind: str, dtype: torch.dtype) -> Any:
    from transformers import BitsAndBytesConfig  # noqa: PLC0415 - used with an extra only

    if kind == INT8:
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype
    )


def _torchao(kind: str, network: Any) -> Any:
    from torchao.quantization import (  # noqa: PLC0415 - an extra
        Int8WeightOnlyConfig,
        IntxWeightOnlyConfig,
    )
    from torchao.quantization.granularity import PerGroup  # noqa: PLC0415
    from transformers import TorchAoConfig  # noqa: PLC0415 - used with an extra only

    if kind == INT8:
        return TorchAoConfig(Int8WeightOnlyConfig())
    dtypes: Any = torch  # whose types do not list those of four bits
    group = PerGroup(_group(network))
    return TorchAoConfig(IntxWeightOnlyConfig(weight_dtype=dtypes.int4, granularity=group))


def _group(network: Any) -> int:
    """Return the number of weights that share a scale, a divisor of every map's input width."""
    modules = network.modules()
    return gcd(MAX_GROUP, *(m.in_features for m in modules if isinstance(m, torch.nn.Linear)))


def quantization_of(config: Any) -> dict[str, Any]:
    """Return the settings with which a checkpoint was quantised; empty if it was not."""
    settings = getattr(config, "quantization_config", None) or {}
    return dict(settings) if isinstance(settings, Mapping) else dict(settings.to_dict())


def stored_format(config: Any) -> tuple[str, int]:
    """Return the format of quantised weights in words, and their bits.

    Returns:
        ("", 0) for weights that are not quantised; 0 bits if the number is not known.
    """
    settings = quantization_of(config)
    if not settings:
        return "", 0
    method = getattr(settings.get("quant_method"), "value", settings.get("quant_method"))
    kind = settings.get("quant_type")
    if isinstance(kind, dict):  # torchao stores its configuration, with bits in names
        return _torchao_format(kind.get("default", {}))
    bits = next((settings[name] for name in BITS_NAMES if settings.get(name)), None)
    bits = bits or next((n for name, n in BITS_OF_FLAGS.items() if settings.get(name)), None)
    bits = bits or BITS_OF_METHODS.get(str(method), 0)
    return f"{method}, {bits} bits" if bits else str(method), int(bits)


def _torchao_format(kind: Mapping[str, Any]) -> tuple[str, int]:
    data = kind.get("_data", {})
    text = f"{kind.get('_type', '')} {data.get('weight_dtype', '')}".lower()
    bits = next((n for n in (2, 4, 8) if f"int{n}" in text), 0)
    group = data.get("granularity") or {}
    size = group.get("_data", {}).get("group_size") if isinstance(group, Mapping) else None
    scale = f"one scale for {size} weights" if size else "one scale for each row"
    return f"torchao, int{bits}, {scale}" if bits else "torchao", bits
