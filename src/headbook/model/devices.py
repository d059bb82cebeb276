"""Devices, weights offloaded to memory or disk, and isolated random state.

accelerate loads the weights of an offloaded module just before the module runs and removes them
after. In between its parameters are shapes without numbers, so weights must be read with
`read_parameter`.

Weights of linear maps that are quantised or adapted are stored as packed numbers or as several
parts. `read_weight` returns the weights that such a map has in effect.
"""

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch

from headbook.errors import ModelError

MIN_TORCH_FOR_MPS = (2, 9)  # first version of torch with correct results on MPS


def pick_device(device: str) -> torch.device:
    """Return the device of a name; ``auto`` prefers CUDA, then MPS, then the CPU.

    Raises:
        ModelError: the device is missing, or torch is known to compute wrong numbers on it.
    """
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    mps_is_wrong = available["mps"] and _version(torch.__version__) < MIN_TORCH_FOR_MPS
    if mps_is_wrong and torch.device("cpu" if device == "auto" else device).type == "mps":
        min_version = ".".join(map(str, MIN_TORCH_FOR_MPS))
        raise ModelError(
            f"device '{device}': torch {torch.__version__} computes wrong numbers there without an "
            f"error; expected torch {min_version} or later, or --device cpu"
        )
    available["mps"] &= not mps_is_wrong
    if device == "auto":
        return torch.device(next(name for name, present in available.items() if present))
    picked = torch.device(device)
    missing_index = picked.index is not None and picked.index >= torch.cuda.device_count()
    if not available[picked.type] or missing_index:
        raise ModelError(f"device '{device}': torch does not see one; use --device auto")
    return picked


def _version(text: str) -> tuple[int, ...]:
    """Return major and minor number of a version such as ``2.9.0+cpu``."""
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])


@contextmanager
def isolated_random_state(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's random generators inside the block, and restore all generators afterwards.

    Architectures draw their initial weights, and some a part of their attention, from the process's
    global generators, and accept no other generator.

    Args:
        seed: seed of the generators.
        device: device of the model; the generator of a GPU is seeded, too.
    """
    cuda = [gpu_number(device)] if device is not None and device.type == "cuda" else []
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(cuda):
        torch.default_generator.manual_seed(seed)
        for number in cuda:
            torch.cuda.default_generators[number].manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def gpu_number(device: torch.device) -> int:
    """Return the index of a GPU; the current one if the device has no index."""
    return torch.cuda.current_device() if device.index is None else device.index


OFF, AUTO, DISK = "off", "auto", "disk"


class OffloadPlace(NamedTuple):
    """Mode and folder for weights that do not fit on the device.

    Attributes:
        kind: ``auto`` to offload weights that do not fit, ``disk`` to offload all layers.
        folder: temporary folder for weights that are not on disk in the needed format.
    """

    kind: str
    folder: Path


@contextmanager
def offload_place(offload: str) -> Iterator[OffloadPlace | None]:
    """Yield a temporary place for offloaded weights, or None for ``off``.

    Raises:
        ModelError: accelerate is missing.
    """
    if offload == OFF:
        yield None
        return
    if find_spec("accelerate") is None:
        raise ModelError(
            f"--offload {offload}: needs the package accelerate; run: pip install 'headbook[large]'"
        )
    with TemporaryDirectory(prefix="headbook-offload-") as folder:
        yield OffloadPlace(offload, Path(folder))


def device_map(
    offload: OffloadPlace, name: str, loader: Any, config: Any, device: torch.device
) -> dict[str, Any]:
    """Return the arguments of transformers that say on which device weights are placed.

    Args:
        offload: mode and folder of offloading.
        name: name of the model, for messages.
        loader: transformers' class that builds a network from the configuration.
        config: configuration of the model.
        device: device that layers run on.

    Raises:
        ModelError: transformers does not say which parts of the network are layers.
    """
    if offload.kind == AUTO:
        arguments: Any = {"device_map": "auto", "max_memory": free_memory(device)}
    else:
        arguments = {"device_map": _layers_on_disk(name, loader, config, str(device))}
    return {**arguments, "offload_folder": str(offload.folder)}


def free_memory(device: torch.device) -> dict[Any, int]:
    """Return the free bytes of the device, by its index, and of memory, by the name ``cpu``."""
    from accelerate.utils import get_max_memory  # noqa: PLC0415 - an extra

    devices: set[Any] = {"cpu", device.type}
    if device.type == "cuda":
        devices.add(gpu_number(device))
    return {name: size for name, size in get_max_memory().items() if name in devices}


def _layers_on_disk(name: str, loader: Any, config: Any, device: str) -> dict[str, str]:
    with torch.device("meta"):
        network = loader.from_config(config)
    class_lists = (getattr(part, "_no_split_modules", None) or () for part in network.modules())
    layer_classes = {layer_class for part in class_lists for layer_class in part}
    # Embedding blocks may be of these kinds, and share weights with heads; layers are in lists.
    layers = {
        layer
        for part in network.modules()
        if isinstance(part, torch.nn.ModuleList)
        for layer in part
        if type(layer).__name__ in layer_classes
    }
    if not layers:
        raise ModelError(
            f"model '{name}': transformers does not say which parts of '{config.model_type}' are "
            "layers; use --offload off"
        )
    return dict(_places(network, "", layers, device))


def _places(
    module: Any, path: str, layers: set[torch.nn.Module], device: str
) -> Iterator[tuple[str, str]]:
    """Yield names of parts with their devices; a part with parts on several devices is split."""
    if module in layers:
        yield path, DISK
    elif layers.isdisjoint(module.modules()):
        yield path, device
    else:
        tensors = *module.named_parameters(recurse=False), *module.named_buffers(recurse=False)
        yield from ((f"{path}.{name}".lstrip("."), device) for name, _ in tensors)
        for name, child in module.named_children():
            yield from _places(child, f"{path}.{name}".lstrip("."), layers, device)


def read_parameter(module: Any, name: str = "weight") -> torch.Tensor | None:
    """Return a parameter of a module with its numbers, also if offloaded, or None without one."""
    parameter = getattr(module, name, None)
    if not isinstance(parameter, torch.Tensor):
        return None
    if not parameter.is_meta:
        return parameter
    from accelerate.utils import align_module_device  # noqa: PLC0415 - an extra

    with align_module_device(module):
        loaded: torch.Tensor = getattr(module, name)
    return loaded


PLAIN_DTYPES = {torch.float64, torch.float32, torch.bfloat16, torch.float16}
LORA_MODULE = "peft.tuners.lora.layer"  # module of the maps with LoRA and without quantisation
MAX_UNIT_VECTORS = 1024  # unit vectors that a map is applied to at a time


def is_plain(module: Any) -> bool:
    """Whether a module computes with its weight as stored: neither quantised nor adapted."""
    weight: Any = getattr(module, "weight", None)
    is_stored = type(weight) in {torch.Tensor, torch.nn.Parameter} and weight.dtype in PLAIN_DTYPES
    return is_stored and not is_adapted(module)


def is_adapted(module: Any) -> bool:
    """Whether a module is a linear map with an adapter of peft."""
    return hasattr(module, "base_layer") and hasattr(module, "active_adapters")


def read_weight(module: Any) -> torch.Tensor:
    """Return the weight of a module that has one, also if offloaded, quantised or adapted.

    Returns:
        The stored weight; for a quantised or adapted linear map the weight in effect, dequantised
        and with its adapter. *Shape:* ``(out, in)`` for linear maps, also those of GPT-2 if
        adapted.
    """
    if is_adapted(module):
        weight = _with_lora(module)
    elif is_plain(module):
        weight = read_parameter(module)
        assert weight is not None
        return weight
    else:
        stored: Any = getattr(module, "weight", None)
        is_torchao = type(stored).__module__.startswith("torchao")
        weight = stored.dequantize() if is_torchao else None
    return _applied_to_unit_vectors(module) if weight is None else weight


def _with_lora(module: Any) -> torch.Tensor | None:
    """Return the weight of a linear map plus its LoRA, or None for other adapters or maps.

    Variants such as DoRA do more than add a product of two matrices.
    """
    base = module.get_base_layer()
    is_lora = type(module).__module__ == LORA_MODULE and is_plain(base)
    if not is_lora or getattr(module, "lora_variant", None) or module.merged:
        return None
    names = [name for name in module.active_adapters if name in module.lora_A]
    weight: torch.Tensor = sum((module.get_delta_weight(name) for name in names), base.weight)
    return weight.T if module.fan_in_fan_out else weight


def read_bias(module: Any) -> torch.Tensor | None:
    """Return the bias of a module, also if offloaded or adapted, or None without one."""
    if not is_adapted(module):
        return read_parameter(module, "bias")
    with torch.no_grad():
        bias: torch.Tensor = module.forward(_zeros(module))
    return bias[0]


def _zeros(module: Any, n: int = 1) -> torch.Tensor:
    """Return vectors of zeros as inputs of a linear map. *Shape:* ``(n, in)``."""
    stored = getattr(module, "weight", None)
    if not isinstance(stored, torch.Tensor):
        stored = next(iter((*module.parameters(), *module.buffers())))
    dtype = stored.dtype if stored.dtype in PLAIN_DTYPES else torch.float32
    return torch.zeros(n, module.in_features, dtype=dtype, device=stored.device)


def _applied_to_unit_vectors(module: Any) -> torch.Tensor:
    """Return the matrix of a linear map, ``(out, in)``, from its outputs for unit vectors.

    Every library packs weights in its own way, but each of its modules can be applied. `forward` is
    called instead of the module, so that no hook sees the call.
    """
    columns, n_inputs = [], module.in_features
    with torch.no_grad():
        bias = module.forward(_zeros(module))
        for start in range(0, n_inputs, MAX_UNIT_VECTORS):
            units = _zeros(module, min(MAX_UNIT_VECTORS, n_inputs - start))
            units.diagonal(start).fill_(1)
            columns.append(module.forward(units) - bias)
    return torch.cat(columns).mT
