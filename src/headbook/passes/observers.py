"""Observers of a forward pass, and the function that runs one pass over a batch for all of them."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch

from headbook.attention.views import ViewMasks
from headbook.model import attention_hook
from headbook.model.architecture import Architecture, AttentionPlace
from headbook.model.forward import OnState, observe_states, run_forward
from headbook.model.load import Model
from headbook.schema import ResidualPoint
from headbook.study.corpus_sums import CorpusSums
from headbook.study.sentence_data import SentenceData
from headbook.text.batch import Batch

# Takes the layer, its attention, and the view masks of the batch, which all observers share.
Attend = Callable[[AttentionPlace, attention_hook.AttentionCall, ViewMasks], None]


class PassResults(NamedTuple):
    """Results of one or more batches.

    Attributes:
        corpus_sums: sums over the sentences.
        sentence_data_parts: data of single sentences for pages.
    """

    corpus_sums: CorpusSums = CorpusSums()
    sentence_data_parts: tuple[SentenceData, ...] = ()

    @classmethod
    def merge(cls, parts: "Iterable[PassResults]") -> "PassResults":
        """Merge results in their order; each part is freed as soon as it is added."""
        sums = CorpusSums()
        data_parts: list[SentenceData] = []
        for part in parts:
            sums += part.corpus_sums
            data_parts += part.sentence_data_parts
            del part  # with many heads, the tables of a part take hundreds of megabytes
        return cls(sums, tuple(data_parts))


@dataclass(frozen=True)
class BatchObserver:
    """The callbacks by which one measure observes the model's pass over a batch.

    Attributes:
        results: returns the results after the pass.
        attend, see: called with each attention call and each state; None if not needed.
        within: a context manager around the pass, if any.
    """

    results: Callable[[], PassResults]
    attend: Attend | None = None
    see: OnState | None = None
    within: AbstractContextManager[object] | None = None


class PassObserver(Protocol):
    """An observer of passes over batches."""

    def observe(self, batch: Batch) -> BatchObserver | None:
        """Return the callbacks for a batch, or None if nothing in the batch is needed."""


def run_pass(
    model: Model, architecture: Architecture, batch: Batch, observers: Sequence[PassObserver]
) -> PassResults:
    """Run the model over a batch once for all observers, and return the merged results."""
    batch_observers = [
        callbacks for observer in observers if (callbacks := observer.observe(batch)) is not None
    ]
    attention_callbacks = [
        callbacks.attend for callbacks in batch_observers if callbacks.attend is not None
    ]
    state_callbacks = [callbacks.see for callbacks in batch_observers if callbacks.see is not None]
    view_masks = ViewMasks(batch, architecture.stacks)

    def on_attention(place: AttentionPlace, attention: attention_hook.AttentionCall) -> None:
        for attend in attention_callbacks:
            attend(place, attention, view_masks)

    def on_state(stack: str, layer: int, state: ResidualPoint, vectors: torch.Tensor) -> None:
        for see in state_callbacks:
            see(stack, layer, state, vectors)

    if batch_observers:
        with ExitStack() as stack:
            for callbacks in batch_observers:
                if callbacks.within is not None:
                    stack.enter_context(callbacks.within)
            if state_callbacks:
                stack.enter_context(observe_states(model, architecture, on_state))
            run_forward(model, architecture, batch, on_attention if attention_callbacks else None)
    return PassResults.merge(observer.results() for observer in batch_observers)
