"""How long a run will take and how much memory, before it begins.

How fast this machine is follows from short passes through the model, and from that what stages
take by `costs`. Memory is what the process has taken so far, with the model loaded, and what
measures add: both are about right, not exact.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from headbook.collection.costs import parameters_of
from headbook.model.capture import inputs
from headbook.model.model import Model
from headbook.progress import lasting
from headbook.report.wording import written
from headbook.room import taken
from headbook.terms import Stack
from headbook.text.batch import Batch
from headbook.text.tokens import Encoded

BASE = 0.6e9  # bytes that batches and libraries take beyond the model, about
PASSES, LONGEST = 5, 0.5  # passes that are timed, and seconds after which no other is
STATISTICS = 25_000  # bytes of a head and a sentence of the sample


@dataclass(frozen=True)
class Forecast:
    """What a run will take.

    Attributes:
        seconds: of the clock, without pages.
        pages: seconds that they take.
        memory: bytes, at the most; None where this system does not say what a process takes.
    """

    seconds: float
    pages: float
    memory: float | None

    def report(self) -> str:
        """One line for readers."""
        room = "" if self.memory is None else f" and {written(self.memory)} of memory"
        pages = f"; its pages {lasting(self.pages)} more"
        return f"the run will take about {lasting(self.seconds)}{room}{pages}"


def forecast(
    model: Model,
    stages: Mapping[str, float],
    stacks: Iterable[Stack],
    *,
    sampled: int,
    copies: int,
) -> Forecast:
    """Predict a run.

    Args:
        stages: seconds of each.
        sampled: sentences of the sample.
        copies: networks that are in memory beside the model.
    """
    heads = sum(len(stack.attention_layers) * stack.n_heads for stack in stacks)
    so_far, network = taken(), sum(p.nbytes for p in model.network.parameters())
    added = BASE + STATISTICS * heads * sampled + copies * network
    return Forecast(
        seconds=sum(stages.values()) - stages["pages"],
        pages=stages["pages"],
        memory=None if so_far is None else so_far + added,
    )


def speed_of(model: Model, probes: Sequence[Encoded]) -> float:
    """Multiplications and additions a second, in bare passes.

    Args:
        probes: texts of one length.
    """
    batch = Batch.of(probes, model.device)
    tokens = sum(text.ids.numel() for text in batch.texts.values())
    return 2 * parameters_of(model)[0] * tokens / min(_passes(model, batch))


def _passes(model: Model, batch: Batch) -> Iterator[float]:
    """Seconds of some passes, fewer of a slow model: what else a machine does disturbs each."""
    begun = time.perf_counter()
    for _ in range(PASSES):
        start = time.perf_counter()
        with torch.inference_mode():
            model.body(**inputs(batch))
        if model.device.type == "cuda":
            torch.cuda.synchronize(model.device)
        yield time.perf_counter() - start
        if time.perf_counter() - begun > LONGEST:
            return
