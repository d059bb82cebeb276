"""What watches a forward pass: any number of measures share one pass over a batch."""

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

# Gets a call, what was seen of it, and the scopes of the batch, which all who watch share.
Attend = Callable[[AttentionPlace, attention_hook.AttentionCall, ViewMasks], None]


class PassResults(NamedTuple):
    """What was found in one batch or more: sums, and what pages show."""

    corpus_sums: CorpusSums = CorpusSums()
    sentence_data_parts: tuple[SentenceData, ...] = ()

    @classmethod
    def merge(cls, parts: "Iterable[PassResults]") -> "PassResults":
        """All of them, in their order; each is let go of when it is added."""
        sums = CorpusSums()
        found: list[SentenceData] = []
        for part in parts:
            sums += part.corpus_sums
            found += part.sentence_data_parts
            del part  # its tables are as large as the sums, with many heads hundreds of megabytes
        return cls(sums, tuple(found))


@dataclass(frozen=True)
class BatchObserver:
    """What one measure does while the model runs over a batch.

    Attributes:
        found: what it has found when the pass is over.
        attend, see: get each attention call and each state; None where it needs none.
        within: a block around the pass, if any.
    """

    found: Callable[[], PassResults]
    attend: Attend | None = None
    see: OnState | None = None
    within: AbstractContextManager[object] | None = None


class PassObserver(Protocol):
    """Somebody who watches passes over batches."""

    def observe(self, batch: Batch) -> BatchObserver | None:
        """Begin with a batch; None where nothing in it is wanted."""


def run_pass(
    model: Model, architecture: Architecture, batch: Batch, watchers: Sequence[PassObserver]
) -> PassResults:
    """Run the model over a batch once, for all of them."""
    watches = [watch for watcher in watchers if (watch := watcher.observe(batch)) is not None]
    attending = [watch.attend for watch in watches if watch.attend is not None]
    seeing = [watch.see for watch in watches if watch.see is not None]
    scopes = ViewMasks(batch, architecture.stacks)

    def on_attention(place: AttentionPlace, attention: attention_hook.AttentionCall) -> None:
        for attend in attending:
            attend(place, attention, scopes)

    def on_state(stack: str, layer: int, state: ResidualPoint, vectors: torch.Tensor) -> None:
        for see in seeing:
            see(stack, layer, state, vectors)

    if watches:
        with ExitStack() as stack:
            for watch in watches:
                if watch.within is not None:
                    stack.enter_context(watch.within)
            if seeing:
                stack.enter_context(observe_states(model, architecture, on_state))
            run_forward(model, architecture, batch, on_attention if attending else None)
    return PassResults.merge(watch.found() for watch in watches)
