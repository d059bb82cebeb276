"""Weights that stay elsewhere until they are needed, by accelerate's device map.

accelerate puts real weights into a module just before it runs and takes them out after. In between
its parameters are shapes without numbers, so whoever reads weights asks `parameter` for them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from headbook.errors import ModelError
from headbook.randomness import gpu_number

OFF, AUTO, DISK = "off", "auto", "disk"


class Aside(NamedTuple):
    """Where weights go that the device does not hold.

    Attributes:
        kind: ``auto`` for what has no room, ``disk`` for all layers.
        folder: for weights that do not lie on disk as they are needed.
    """

    kind: str
    folder: Path


@contextmanager
def set_aside(offload: str) -> Iterator[Aside | None]:
    """A place for weights that the device does not hold, gone at the end; None for ``off``.

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
        yield Aside(offload, Path(folder))


def device_map(
    aside: Aside, name: str, loader: Any, config: Any, place: torch.device
) -> dict[str, Any]:
    """What transformers is told about where weights go.

    Args:
        name: of the model, for messages.
        loader: of transformers, which makes a network of the configuration.
        place: the device that layers run on.

    Raises:
        ModelError: transformers does not say which parts of the network are layers.
    """
    if aside.kind == AUTO:
        where: Any = {"device_map": "auto", "max_memory": at_hand(place)}
    else:
        where = {"device_map": _layers_on_disk(name, loader, config, str(place))}
    return {**where, "offload_folder": str(aside.folder)}


def at_hand(place: torch.device) -> dict[Any, int]:
    """Bytes that are free, of the device by its number and of memory by the name ``cpu``."""
    from accelerate.utils import get_max_memory  # noqa: PLC0415 - an extra

    kept: set[Any] = {"cpu", place.type}
    if place.type == "cuda":
        kept.add(gpu_number(place))
    return {each: size for each, size in get_max_memory().items() if each in kept}


def _layers_on_disk(name: str, loader: Any, config: Any, place: str) -> dict[str, str]:
    with torch.device("meta"):
        network = loader.from_config(config)
    named = (getattr(each, "_no_split_modules", None) or () for each in network.modules())
    kinds = {kind for each in named for kind in each}
    # Embedding blocks may be among them, and heads share their weights: layers stand in lists.
    layers = {
        layer
        for each in network.modules()
        if isinstance(each, torch.nn.ModuleList)
        for layer in each
        if type(layer).__name__ in kinds
    }
    if not layers:
        raise ModelError(
            f"model '{name}': transformers does not say which parts of '{config.model_type}' are "
            "layers; use --offload off"
        )
    return dict(_places(network, "", layers, place))


def _places(
    module: Any, path: str, layers: set[torch.nn.Module], place: str
) -> Iterator[tuple[str, str]]:
    """Names of parts and where they go; none of a part that holds parts which go elsewhere."""
    if module in layers:
        yield path, DISK
    elif layers.isdisjoint(module.modules()):
        yield path, place
    else:
        own = *module.named_parameters(recurse=False), *module.named_buffers(recurse=False)
        yield from ((f"{path}.{name}".lstrip("."), place) for name, _ in own)
        for name, child in module.named_children():
            yield from _places(child, f"{path}.{name}".lstrip("."), layers, place)


def parameter(module: Any, name: str = "weight") -> torch.Tensor | None:
    """A parameter of a module with its numbers, wherever they are kept; None without one."""
    found = getattr(module, name, None)
    if not isinstance(found, torch.Tensor):
        return None
    if not found.is_meta:
        return found
    from accelerate.utils import align_module_device  # noqa: PLC0415 - an extra

    with align_module_device(module):
        there: torch.Tensor = getattr(module, name)
    return there


def weight_of(module: Any) -> torch.Tensor:
    """The weight of a module that has one, as `parameter`."""
    weight = parameter(module)
    assert weight is not None
    return weight
