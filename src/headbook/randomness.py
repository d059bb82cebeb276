"""Random numbers of a run, beside those of the program that it runs in."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def own_randomness(seed: int, cuda: Sequence[int] = ()) -> Iterator[None]:
    """Begin torch's random numbers anew, and leave everybody's as they were.

    Architectures take their first weights, and some a part of their attention, from generators that
    all of a process share: none other can be given to them.

    Args:
        cuda: numbers of the GPUs that are used, whose generators begin anew, too.
    """
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng([*cuda]):
        torch.default_generator.manual_seed(seed)
        for number in cuda:
            torch.cuda.default_generators[number].manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
