"""What every reader yields."""

from collections.abc import Mapping
from dataclasses import dataclass, field

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
    """

    index: int
    id: str
    text: str
    target: str | None = None
    words: tuple[Word, ...] | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""
