"""Retries of a part that cannot be measured: smaller batches, fewer sentences, more attempts.

A worker makes one attempt at a shard (`tries=1`); the pool in `headbook.run.workers` counts the
attempts of all workers and gives the shard to another one.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from headbook.errors import (
    ModelError,
    NonFiniteStateError,
    OutputError,
    is_device_lost,
    is_out_of_memory,
)
from headbook.memory import trim_memory
from headbook.model.devices import isolated_random_state
from headbook.run.prepare import Run
from headbook.run.store import Part

T = TypeVar("T")
MAX_HALVINGS = 6  # halvings of the token budget of a part's batches
MAX_FAILED_SENTENCES = 16  # sentences that are excluded from a shard one by one


def measure_part(
    run: Run,
    name: str,
    kind: type[T],
    measure: Callable[[int, Mapping[int, str]], T],
    *,
    size: int = 0,
    tries: int = 1,
) -> Part[T]:
    """Load a part of a run from the store, or measure and store it.

    After an out-of-memory error the token budget of batches is halved, also for later attempts.
    Sentences whose states are not finite are excluded. Other errors use up one attempt each.

    Args:
        run: the run.
        name: name of the part in the store, without the run's.
        kind: type of the result; ``kind()`` is the empty result of a part that fails for good.
        measure: takes the token budget of a batch and the excluded sentences, by index.
        size: number of sentences that may be excluded, but not all; 0 to exclude none.
        tries: number of attempts. With one attempt its error is raised; with more, the part has
            the error of the last one, and is not stored.

    Raises:
        OutputError: the part cannot be stored.
        Exception: the only attempt failed, or the GPU is lost.
    """
    trim_memory()
    path, stored = f"{run.name}/{name}", Part[kind]  # type: ignore[valid-type]
    part = run.store.load(path, stored)
    halvings, failures, excluded = 0, 0, dict[int, str]()
    while part is None:
        try:
            # Every part starts from the same random state, also if earlier parts were loaded.
            with isolated_random_state(run.config.seed, run.model.device):
                budget = run.config.batch_tokens >> halvings
                # No variable holds the result: the store can free it before reading it back.
                part = run.store.save(
                    path, stored, Part(measure(budget, excluded), halvings, excluded)
                )
        except OutputError:
            raise
        except NonFiniteStateError as error:
            if _can_exclude(excluded | error.found, size):
                excluded |= error.found
            elif tries == 1:
                raise
            else:  # another attempt would find the same states
                part = Part(kind(), error=shard_error(error))
        except Exception as error:
            if is_out_of_memory(error) and halvings < MAX_HALVINGS:
                halvings += 1
                continue
            if tries == 1:
                raise
            failures += 1
            message = shard_error(error)
            if failures == tries:
                part = Part(kind(), error=message)
    run.log.record(name, part)
    return part


def _can_exclude(sentences: Mapping[int, str], size: int) -> bool:
    return len(sentences) <= MAX_FAILED_SENTENCES and len(sentences) < size


def shard_error(error: Exception) -> str:
    """Return the error of a shard in one line.

    Raises:
        Exception: the error concerns all shards: results cannot be stored, or the GPU is lost.
    """
    if isinstance(error, OutputError) or is_device_lost(error):
        raise error
    text = " ".join(str(error).split())
    return text if isinstance(error, ModelError) else f"{type(error).__name__}: {text}"
