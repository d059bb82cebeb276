"""Where something cannot be measured: smaller batches, other tries, going on without it."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from headbook.errors import (
    ModelError,
    NonFiniteStateError,
    OutputError,
    is_device_lost,
    is_out_of_memory,
)
from headbook.run.workers import MAX_TRIES
from headbook.study.corpus_sums import CorpusSums

T = TypeVar("T")
MAX_HALVINGS = 6  # of the token budget of a shard's batches
MAX_FAILED_SHARDS = 3  # shards that fail where none has been measured
MAX_FAILED_SENTENCES = 16  # sentences of a shard that are set aside one by one


@dataclass(frozen=True, eq=False)
class ShardResult:
    """What came of a shard.

    Attributes:
        sums: of its sentences; empty where it was set aside.
        error: the error of the last try, where it was set aside; else empty.
        failed_sentences: why single sentences were set aside, by index.
    """

    sums: CorpusSums
    error: str = ""
    failed_sentences: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RunLog:
    """What came of the parts of a run so far.

    Attributes:
        failed: why shards were set aside, by number.
        lost: why single sentences were set aside, by index.
        measured: numbers of the shards that were measured.
        halved: how often the token budget of batches was halved because memory ran out, by the
            name of the part.
    """

    failed: dict[int, str] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)
    measured: set[int] = field(default_factory=set)
    halved: dict[str, int] = field(default_factory=dict)

    def add(self, number: int, result: ShardResult) -> None:
        """Count a shard.

        Raises:
            ModelError: nothing but failures came, so that it is not the shards.
        """
        if not result.error:
            self.measured.add(number)
            self.lost.update(result.failed_sentences)
        else:
            self.failed[number] = result.error
        self.check(all_came=False)

    def check(self, *, all_came: bool) -> None:
        """Stop where it is not the shards.

        Raises:
            ModelError: `MAX_FAILED_SHARDS` shards failed, or all there are, and none was measured.
        """
        if (
            self.failed
            and not self.measured
            and (all_came or len(self.failed) >= MAX_FAILED_SHARDS)
        ):
            number, why = next(iter(self.failed.items()))
            raise ModelError(f"no shard could be measured; of shard {number:,}: {why}")

    def sums(self, results: Iterable[tuple[int, ShardResult]]) -> Iterator[CorpusSums]:
        """The sums of shards as they come, each counted."""
        for number, result in results:
            self.add(number, result)
            if not result.error:
                yield result.sums
        self.check(all_came=True)


@dataclass
class BatchBudget:
    """How batches are made.

    Attributes:
        tokens: the most that one may have, padding included.
    """

    tokens: int


def with_smaller_batches(measure: Callable[[int], T], tokens: int) -> tuple[T, int]:
    """Measure something, in smaller batches where memory does not suffice.

    Args:
        measure: takes the most tokens of a batch.

    Returns:
        What it gave, and how often that number was halved.
    """
    for halved in range(MAX_HALVINGS):
        try:
            return measure(tokens >> halved), halved
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
    return measure(tokens >> MAX_HALVINGS), MAX_HALVINGS


def with_retries(measure: Callable[[], ShardResult]) -> ShardResult:
    """Measure a shard, `MAX_TRIES` times if need be; what came of it in the end.

    Raises:
        OutputError: what was measured cannot be kept, which is not the shard's fault.
    """
    for _ in range(MAX_TRIES):
        try:
            return measure()
        except Exception as error:  # noqa: BLE001 - what is not the shard's fault is raised
            why = shard_error(error)
            if isinstance(error, NonFiniteStateError):
                break  # it would be the same
    return ShardResult(CorpusSums(), error=why)


def without_failing_sentences(
    measure: Callable[[Collection[int]], CorpusSums], size: int
) -> ShardResult:
    """Measure a shard without the sentences for which the model gives no numbers.

    Args:
        measure: leaves out the sentences of these indices.
        size: sentences of the shard.

    Raises:
        SentenceError: they are more than `MAX_FAILED_SENTENCES`, or all.
    """
    lost: dict[int, str] = {}
    while True:
        try:
            return ShardResult(measure(lost), failed_sentences=lost)
        except NonFiniteStateError as error:
            lost |= error.found
            if len(lost) > MAX_FAILED_SENTENCES or len(lost) >= size:
                raise


def shard_error(error: Exception) -> str:
    """Why a shard failed, in one line: whatever it is, other shards may do without it.

    Raises:
        Exception: it is not its fault: what was measured cannot be kept, or the GPU is lost.
    """
    if isinstance(error, OutputError) or is_device_lost(error):
        raise error
    text = " ".join(str(error).split())
    return text if isinstance(error, ModelError) else f"{type(error).__name__}: {text}"
