"""Additions to the sentence on a head about its output: tokens, sentence vector, other heads.

*Promotes* and *suppresses* rest on direct contributions to logits, *writes into the sentence
vector* on the total effect of replacing the head, *uses* on an intervention on its keys.
"""

from collections.abc import Iterator
from dataclasses import replace

from headbook.report.answers.circuit_rules import (
    ATTENDED,
    CONTROL,
    TOWARDS,
    circuits_of,
    feeders_of,
    writes_into_vector,
    written_tokens,
)
from headbook.report.answers.circuits import change_parts, change_text
from headbook.report.answers.head_numbers import (
    Evidence,
    HeadNumbers,
    RoleSentence,
    evidence_number,
)
from headbook.report.findings.finding import Parts
from headbook.report.linked_rows import LinkedNumber
from headbook.report.wording import capital, count_text
from headbook.results.formats import number
from headbook.results.sentence import head_link

MAX_WORDS = 20  # of one sentence
MAX_NUMBERS = 3  # of an evidence line
SINK_KINDS = {"sink", "mostly_sink"}
UNTOLD = {"too_few", "unmeasured"}


def with_output(numbers: HeadNumbers, sentence: RoleSentence) -> RoleSentence:
    """Return a head's sentence with what its output does, where the numbers support it."""
    if sentence.kind in UNTOLD:
        return sentence
    for clause, own_sentence, line, details, evidence in (
        *_uses(numbers, sentence), *_writes(numbers, sentence)
    ):  # fmt: skip
        n_numbers = sum(isinstance(part, LinkedNumber) for part in (*sentence.line, *line))
        sentence = replace(
            sentence,
            text=_joined(sentence, clause, own_sentence),
            line=(*sentence.line, *line) if n_numbers <= MAX_NUMBERS else sentence.line,
            details=(*sentence.details, details),
            evidence=(*sentence.evidence, *evidence),
        )
    return sentence


# A clause after the sentence, the same as a sentence, evidence line, details, and numbers.
Addition = tuple[Parts, Parts, Parts, str, tuple[Evidence, ...]]


def _joined(sentence: RoleSentence, clause: Parts, own_sentence: Parts) -> Parts:
    """Return the text with a clause, or with a second sentence if it would be too long."""
    last = sentence.text[-1]
    words = sum(len(_plain(part).split()) for part in clause)
    fits = len(sentence.plain.split()) + words <= MAX_WORDS and sentence.plain.count(". ") == 0
    if fits and sentence.plain.startswith("Attends") and isinstance(last, str):
        return (*sentence.text[:-1], last.removesuffix("."), *clause)
    return (*sentence.text, *own_sentence)


def _plain(part: object) -> str:
    return part if isinstance(part, str) else str(getattr(part, "text", ""))


def _uses(numbers: HeadNumbers, sentence: RoleSentence) -> Iterator[Addition]:
    """Yield the previous-token head that an induction head uses, by the largest loss."""
    if sentence.kind != "induction":
        return
    for feed in feeders_of(numbers.results, numbers.head)[:1]:
        link = head_link(feed.lower)
        change = "".join(map(_plain, change_parts(feed)))
        yield (
            (", using what ", link, " writes."),
            (" Uses what ", link, " writes."),
            (" Without ", link, " in its keys: ",
             feed.number(change_text(feed.change.value)), "."),
            f"Induction score {number(feed.before)}; without {link.text} in its keys: {change}, on "
            f"{count_text(feed.change.sentences, 'sequence')} of random tokens, each repeated.",
            (),
        )  # fmt: skip


def _writes(numbers: HeadNumbers, sentence: RoleSentence) -> Iterator[Addition]:
    """Yield whether the head promotes, suppresses, or writes into the sentence vector."""
    results, head = numbers.results, numbers.head
    place, vocabulary = (head.layer, head.head), circuits_of(results).vocabulary
    off = f" off {numbers.sink}" if sentence.kind in SINK_KINDS else ""
    if verb := written_tokens(results).get(place):
        rank = numbers(ATTENDED)
        found = Evidence(rank, ATTENDED, "random token", (vocabulary + 1) / 2)
        what = f"{verb} the token that it attends to{off}."
        yield (
            (f", and {what}",),
            (f" {capital(what)}",),
            (" Median rank of that token: ",
             evidence_number(head, found, f"{rank.value:,.0f}"), f" of {vocabulary:,}."),
            f"Rank of the token attended to by the head’s contribution to the logits: "
            f"{rank.value:,.0f} of {vocabulary:,} in the median of its exemplars; a random token: "
            f"{found.baseline_value:,.0f}.",
            (found,),
        )  # fmt: skip
    elif writes_into_vector(results, place):
        rank, control = numbers(TOWARDS), numbers(CONTROL)
        found = Evidence(rank, TOWARDS, "other content words", control.value)
        them = "them" if sentence.kind == "broadcast" else "what it attends to"
        yield (
            (f", and writes {them} into the sentence vector.",),
            (f" Writes {them} into the sentence vector.",),
            (" Median rank of the word attended to most: ",
             evidence_number(head, found, f"{rank.value:,.0f}"), f" of {vocabulary:,}."),
            f"Rank of the word attended to most among the words that the sentence vector moves "
            f"towards: {rank.value:,.0f} [{rank.low:,.0f}, {rank.high:,.0f}] of {vocabulary:,}; "
            f"other content words of the same sentences: {control.value:,.0f}.",
            (found,),
        )  # fmt: skip
