"""A sentence's dependency tree: arcs over its words, and the same as a table."""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from headbook.charts import Arc, Drawing, arc_diagram
from headbook.pages.parts.table import Mark, Row, Table, words
from headbook.report.wording import MISSING
from headbook.study.sentencedata import StoredText
from headbook.study.wordmaps import n_words, word_names
from headbook.terms import known_relation

MOST_WORDS = 60  # of a text that are drawn
COLUMNS = ("Word", "part of speech", "relation", "head")


@dataclass(frozen=True)
class SentenceTree:
    """The tree of a text.

    Attributes:
        drawing: arcs over the words.
        table: the same word by word: its place and letters, part of speech, relation to its head,
            place and letters of that.
        cut: how many words at the end are left out.
    """

    drawing: Drawing
    table: Table
    cut: int


def sentence_tree(text: StoredText, name: str) -> SentenceTree | None:
    """The tree of a text as it was annotated; None without one.

    Args:
        name: of the drawing, unique on its page.
    """
    if not text.heads:
        return None
    names = word_names(text)
    cut = max(0, len(names) - MOST_WORDS)
    names = names[:MOST_WORDS]
    caption = "Dependency tree: arrows from head to dependent, with the relation."
    table = Table(COLUMNS, tuple(_rows(text, names)), "The tree word by word.")
    return SentenceTree(_drawn(text, name, caption, names), table, cut)


def _drawn(text: StoredText, name: str, caption: str, words: tuple[str, ...]) -> Drawing:
    """Arcs over words in the direction in which the text is read."""
    n = len(words)
    turned = _right_to_left(text.text)
    place = [n - 1 - word if turned else word for word in range(n)]
    arcs = [
        Arc(place[head], place[word], label=known_relation(relation))
        for word, (head, relation) in enumerate(zip(text.heads[:n], text.relations, strict=False))
        if 0 <= head < n and head != word
    ]
    return arc_diagram(name, caption, words[::-1] if turned else words, arcs, ())


def _right_to_left(text: str) -> bool:
    """Whether the first letter that has a direction runs from right to left."""
    kinds = (unicodedata.bidirectional(letter) for letter in text)
    return next((kind for kind in kinds if kind in {"L", "R", "AL"}), "L") != "L"


def _rows(text: StoredText, names: tuple[str, ...]) -> Iterator[Row]:
    tags = dict(zip(text.words, text.tags, strict=True))
    for word, name in enumerate(names):
        head = text.heads[word]
        inside = 0 <= head < n_words(text) and head != word
        yield Row(
            words(f"{word + 1} ", Mark(name or MISSING, "bdi")),
            (
                words(tags.get(word, "") or MISSING),
                words(text.relations[word] or MISSING),
                words(Mark(f"{head + 1} {word_names(text)[head]}" if inside else MISSING, "bdi")),
            ),
        )
