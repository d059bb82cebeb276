"""What every reader yields."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

NO_HEAD = -1


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a sentence.

    Attributes:
        start, end: character offsets into the sentence's text, end exclusive.
        upos: Universal part of speech, or empty where unknown.
        head: index of the syntactic head among the sentence's words; `NO_HEAD` for a root or
            where unknown.
        relation: dependency relation to the head, or empty.
    """

    start: int
    end: int
    upos: str = ""
    head: int = NO_HEAD
    relation: str = ""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence or passage as it came.

    Attributes:
        index: place in the input, counted from 0 over all files.
        id: the name the input gives it, or empty.
        text: source text, never normalised.
        target: target text of a source-target pair, or None.
        words: annotation that came with the input, or None.
        metadata: the input's other columns.
        origin: file and line, for messages.
        parts: where the sentences of a passage begin and end; empty where it is all one.
        left_out, target_left_out: characters at the end of a very long text, or of its target, that
            were left out before it was tokenized.
    """

    index: int
    id: str
    text: str
    target: str | None = None
    words: tuple[Word, ...] | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""
    parts: tuple[tuple[int, int], ...] = ()
    left_out: int = 0
    target_left_out: int = 0


def joined_words(parts: Iterable[tuple[int, tuple[Word, ...]]]) -> tuple[Word, ...]:
    """The words of several sentences as those of one text.

    Args:
        parts: where each sentence begins in the text, and its words.
    """
    found: list[Word] = []
    for start, words in parts:
        before = len(found)
        if start == before == 0:  # no word moves
            found.extend(words)
            continue
        for word in words:
            head = word.head if word.head == NO_HEAD else word.head + before
            found.append(replace(word, start=word.start + start, end=word.end + start, head=head))
    return tuple(found)
