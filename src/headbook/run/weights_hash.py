"""Hash of the weights of a model in memory, by which studies are merged and runs resumed."""

import hashlib
from collections.abc import Iterator

import torch

from headbook.model.devices import read_parameter
from headbook.progress import Progress

HASH_BYTES = 64 << 20  # weights that are copied from the device at a time to be hashed


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
