"""Effects of the output of a head: on tokens, on the sentence vector, or from another head.

*Promotes* and *suppresses* rest on direct contributions to logits, *writes into the sentence
vector* on the total effect of replacing the head, *uses* on an intervention on its keys.
"""

from collections.abc import Iterator
from typing import NamedTuple

from headbook.report.facts.circuits.rules import (
    ATTENDED,
    CONTROL,
    RANK,
    TOWARDS,
    circuits_of,
    feeders_of,
    writes_into_vector,
    written_tokens,
)
from headbook.report.facts.functions import HeadFunction
from headbook.report.results import StackResults
from headbook.report.sink import sink_tokens
from headbook.report.wording import capital
from headbook.results.sentence import Sentence, say

ON_SINK = {"sink_only", "sink_mostly"}


class HeadOutput(NamedTuple):
    """A sentence on the output of a head, with its evidence.

    Attributes:
        text: what the output does, without its subject.
        evidence: the numbers behind it.
    """

    text: Sentence
    evidence: Sentence


def outputs_of(results: StackResults, function: HeadFunction) -> tuple[HeadOutput, ...]:
    """Return what the numbers support on the output of a head; nothing without a function."""
    if not function.is_known:
        return ()
    return (*_uses(results, function), *_writes(results, function))


def _uses(results: StackResults, function: HeadFunction) -> Iterator[HeadOutput]:
    """Yield the previous-token head that an induction head uses, by the largest loss."""
    if function.id != "induction":
        return
    for feed in feeders_of(results, function.head)[:1]:
        yield HeadOutput(
            say("Uses what {lower} writes.", lower=feed.lower),
            say("Without {lower} in its keys, its induction score changes by {change:interval}.",
                lower=feed.lower, change=feed.change),
        )  # fmt: skip


def _writes(results: StackResults, function: HeadFunction) -> Iterator[HeadOutput]:
    """Yield whether the head promotes, suppresses, or writes into the sentence vector."""
    layer, head = place = function.head[1:]
    vocabulary = circuits_of(results).vocabulary
    if verb := written_tokens(results).get(place):
        off = f" off {sink_tokens(results)}" if function.id in ON_SINK else ""
        yield HeadOutput(
            say("{Verb} the token that it attends to{off}.", Verb=capital(verb), off=off),
            say("Median rank of that token among those that it promotes: {rank} of {vocabulary}.",
                rank=results.number(ATTENDED, layer, head, unit=RANK), vocabulary=vocabulary),
        )  # fmt: skip
    elif writes_into_vector(results, place):
        rank, control = (results.number(key, layer, head, unit=RANK) for key in (TOWARDS, CONTROL))
        them = "them" if function.id == "same_keys" else "what it attends to"
        yield HeadOutput(
            say("Writes {them} into the sentence vector.", them=them),
            say("Median rank of the word attended to most: {rank:interval} of {vocabulary}; other "
                "content words of the same sentences: {control}.",
                rank=rank, vocabulary=vocabulary, control=control),
        )  # fmt: skip
