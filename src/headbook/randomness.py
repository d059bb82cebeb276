"""Random numbers of a run, beside those of the program that it runs in."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def own_randomness(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Begin torch's random numbers anew, and leave everybody's as they were.

    Architectures take their first weights, and some a part of their attention, from generators that
    all of a process share: none other can be given to them.

    Args:
        device: that is used; if it is a GPU, its generator begins anew, too.
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
    """Which GPU it is; the current one where the device does not say."""
    return torch.cuda.current_device() if device.index is None else device.index
