"""Exemplars of heads that attend from every word to the same words: keys that all queries favour.

The largest weight between two tokens, by which exemplars are ranked, says little about such a head:
often it is the weight from a token to itself. These exemplars are the sentences, among those whose
maps of the head are stored, in which one key receives the largest mean weight from the other words.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arrays import Floats
from headbook.report.facts.functions import functions_of
from headbook.report.results import StackResults
from headbook.schema import HeadName
from headbook.study.sentence_data import UINT8_STEPS, Exemplar

MIN_QUERIES = 5  # other words from which the key has to receive attention
MIN_STRONGEST = 0.5  # share of these words of which the key has to be the strongest
MOST = 5  # exemplars of a head
SAME_KEYS = "same_keys"  # function of these heads


class Received(NamedTuple):
    """A key off the sink with the attention that it receives from other words in one sentence.

    Attributes:
        exemplar: the sentence with the head's map.
        key: position of the key.
        mean: mean weight from the other words.
        strongest: number of other words whose strongest key off the sink it is.
        queries: number of other words that see the key.
        weights: mean weight that each key receives, 0 in the sink. *Shape:* ``(key,)``.
    """

    exemplar: Exemplar
    key: int
    mean: float
    strongest: int
    queries: int
    weights: Floats

    @property
    def is_favoured(self) -> bool:
        """Whether enough other words attend to the key, most of them more than to any other."""
        return self.queries >= MIN_QUERIES and self.strongest > MIN_STRONGEST * self.queries


def most_received(results: StackResults) -> Mapping[HeadName, Received]:
    """Return the first of `received_exemplars` of every head of that function."""
    return results.cached(_most_received)


def _most_received(results: StackResults) -> dict[HeadName, Received]:
    functions, exemplars = functions_of(results), defaultdict[HeadName, list[Exemplar]](list)
    for exemplar in results.study.sentence_data.by_weight:
        if exemplar.head.stack == results.stack.name and functions[exemplar.head].id == SAME_KEYS:
            exemplars[exemplar.head].append(exemplar)
    by_head = {head: received_exemplars(results, of_head) for head, of_head in exemplars.items()}
    return {head: received[0] for head, received in by_head.items() if received}


def received_exemplars(
    results: StackResults, exemplars: Iterable[Exemplar]
) -> tuple[Received, ...]:
    """Return the exemplars of one head in which other words favour one key, the most first."""
    by_sentence: dict[int, Received] = {}
    for exemplar in exemplars:
        received = strongest_received(results, exemplar)
        if exemplar.index not in by_sentence and received is not None and received.is_favoured:
            by_sentence[exemplar.index] = received
    ranked = sorted(
        by_sentence.values(), key=lambda received: (-received.mean, received.exemplar.index)
    )
    return tuple(ranked[:MOST])


def strongest_received(results: StackResults, exemplar: Exemplar) -> Received | None:
    """Return the key that receives the largest mean weight; None without a key off the sink."""
    stack = results.stack
    sentence = results.study.sentence_data.sentences[exemplar.index]
    queries, keys = sentence.texts[stack.queries], sentence.texts[stack.keys]
    weights = np.where(keys.sink(causal=stack.causal), 0.0, exemplar.attention / UINT8_STEPS)
    counted = _counted(results, np.array(queries.special, bool), weights.shape[1])
    n_queries = counted.sum(0)
    means: Floats = np.divide(
        (weights * counted).sum(0), n_queries, out=np.zeros(len(n_queries)), where=n_queries > 0
    )
    eligible = np.where(n_queries >= MIN_QUERIES, means, 0.0)
    if not eligible.any():
        return None
    key = int(eligible.argmax())
    strongest = int((counted[:, key] & (weights.argmax(1) == key)).sum())
    return Received(exemplar, key, float(means[key]), strongest, int(n_queries[key]), means)


def _counted(results: StackResults, special: NDArray[np.bool_], n_keys: int) -> NDArray[np.bool_]:
    """Return which weights count: from ordinary tokens to other tokens that these see.

    *Shape:* ``(query, key)``.
    """
    counted = np.repeat(~special[:, None], n_keys, axis=1)
    if not results.stack.crosses:
        np.fill_diagonal(counted, val=False)
    if results.stack.causal:
        counted &= np.tril(np.ones_like(counted))
    return counted


def queries_by_weight(received: Received) -> Iterator[int]:
    """Yield positions of queries, those with the largest weight to the key first."""
    column = received.exemplar.attention[:, received.key].astype(int)
    yield from (int(place) for place in np.argsort(-column, kind="stable"))
