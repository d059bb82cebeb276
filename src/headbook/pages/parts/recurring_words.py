"""Words that occur in several sentences: curves of shared neighbours, levels, nearest tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from headbook.charts.axes import even_places
from headbook.charts.plots import Plot, Scale, Series, layer_plot
from headbook.report.answers.tokens import DIFFERENT, shared_number, short
from headbook.report.results import StackResults
from headbook.report.token_neighbours import (
    N_NEAREST,
    WORD_CLASS_NAMES,
    Cell,
    RecurringWord,
    SharedNeighbours,
)
from headbook.report.wording import SPACES, count_text, sentence_page, visible

LEVEL_HEIGHT, TOP, BOTTOM = 44, 22, 30  # pixels of a level, above the highest, below the lowest
HEIGHT = N_NEAREST * LEVEL_HEIGHT + TOP + BOTTOM
MAX_MARKED = 13  # layers with a mark
MAX_DRAWN = 120  # words with a line, those in most sentences first
MAX_COMPARED = 8  # words whose nearest tokens are listed
MAX_LAYERS = 6  # layers for which nearest tokens are listed
AROUND = 4  # tokens of context on either side
N_NAMED = 5  # nearest tokens in a note
NAMING = {"NOUN", "PROPN", "VERB", "ADJ"}  # parts of speech whose words are listed, if any recurs
ORDER = ("content", "function", "punctuation", "all")


class LevelWord(NamedTuple):
    """A word at its level, with its class and a note on its number."""

    text: str
    kind: str
    note: str


class NearestCell(NamedTuple):
    """The nearest other vocabulary token of an occurrence after a layer.

    Attributes:
        text: name of the vocabulary token.
        fill: class of the fill, by the number of tokens shared with the other occurrence.
        note: names of the nearest tokens.
        lost: whether the word itself is not the nearest token.
    """

    text: str
    fill: str
    note: str
    lost: bool


class WordOccurrence(NamedTuple):
    """An occurrence of a word: address of its sentence, the text around it, and its cells."""

    href: str
    before: str
    token: str
    after: str
    cells: tuple[NearestCell, ...]


@dataclass(frozen=True)
class ComparedWord:
    """A word with the two occurrences that share the fewest nearest tokens.

    Attributes:
        text: the word.
        occurrences: both of them.
        sentences: numbers of their sentences.
        shared: numbers of tokens that they share after the first and after the last layer.
    """

    text: str
    occurrences: tuple[WordOccurrence, ...]
    sentences: tuple[int, int]
    shared: tuple[int, int]

    def example(self, last: int) -> str:
        """Return how many tokens the occurrences share, with the number after the last layer."""
        first, second = self.sentences
        return (
            f"“{self.text}” in sentences {first} and {second}: after layer 0 both share "
            f"{self.shared[0]} of ten nearest tokens, after layer {last} {self.shared[1]}."
        )


def drawn_words(found: SharedNeighbours) -> list[RecurringWord]:
    """Return the words with a line and a place among levels."""
    return [*found.words[:MAX_DRAWN]]


def shared_plot(results: StackResults, found: SharedNeighbours) -> Plot:
    """Return the curves of shared neighbours: classes, and two different words.

    The rows of the figure have a line for each word, too; lines of all words would hide the others.
    """
    n_layers, missing = results.stack.n_layers, np.full(results.stack.n_layers, np.nan)
    lines = [
        Series(word.text, _role(word.kind), word.shared, missing, missing, [], thin=True)
        for word in drawn_words(found)
        if word.kind != "punctuation"
    ]
    for kind in [kind for kind in ORDER if kind in found.means]:
        numbers = [shared_number(results, found, kind, layer) for layer in range(n_layers)]
        name = WORD_CLASS_NAMES[kind] if kind != "all" else "all words"
        lines.append(
            Series(name, _role(kind), *found.means[kind][:3], [n.text for n in numbers],
                   [n.href for n in numbers])
        )  # fmt: skip
    texts = [*map(short, found.different.tolist())]
    lines.append(Series("different words", "baseline", found.different, missing, missing, texts))
    ticks = [(float(n), str(n)) for n in range(0, N_NEAREST + 1, 2)]
    plot = layer_plot(
        f"tokens-shared-{results.stack.name}", _caption(found), lines, [*map(str, range(n_layers))],
        scale=Scale(0, N_NEAREST, HEIGHT, TOP, BOTTOM), ticks=ticks, label_width=160,
        n_marked=MAX_MARKED,
    )  # fmt: skip
    return replace(plot, curves=tuple(c for c in plot.curves if not c.style.startswith("thin")))


def _caption(found: SharedNeighbours) -> str:
    drawn, all_words = len(drawn_words(found)), len(found.words)
    which = f"the {drawn} words in most sentences" if drawn < all_words else "each word"
    classes = (
        " ● Content words: tagged as noun, verb, adjective, adverb, numeral or interjection; "
        "■ function words, ▲ punctuation."
    )
    return (
        f"Of the ten nearest vocabulary tokens ({SPACES[found.space]}), those that two occurrences "
        f"of a word share. Left: means over words by layer, with 95 % intervals over words; "
        f"dashed: {DIFFERENT}. Right: {which}, mean over pairs of sentences."
        f"{classes * ('all' not in found.means)}"
    )


def _role(kind: str) -> str:
    return "model" if kind == "all" else kind


def levels(found: SharedNeighbours) -> tuple[tuple[int, tuple[LevelWord, ...]], ...]:
    """Return the words at each number of tokens that they share after all layers, highest first."""
    by_level: dict[int, list[RecurringWord]] = {n: [] for n in range(N_NEAREST, -1, -1)}
    for word in drawn_words(found):
        if not np.isnan(word.shared[-1]):
            by_level[int(word.shared[-1] + 0.5)].append(word)
    return tuple(
        (level, tuple(_level_word(word) for word in sorted(words, key=_in_level)))
        for level, words in by_level.items()
    )


def _in_level(word: RecurringWord) -> tuple[int, int, str]:
    return ORDER.index(word.kind), -len(word.cells), word.text.lower()


def _level_word(word: RecurringWord) -> LevelWord:
    sentences = count_text(len(word.cells), "sentence")
    note = f"{sentences}: {short(word.shared.item(-1))} of ten shared"
    return LevelWord(visible(word.text), _role(word.kind), note)


def compared_words(results: StackResults, found: SharedNeighbours) -> Iterator[ComparedWord]:
    """Yield the words of content that share the fewest nearest tokens, or of all without tags.

    Adverbs and numerals are listed only if no noun, verb or adjective recurs.
    """
    kind = "content" if "content" in found.means else "all"
    words = [
        word
        for word in found.words
        if word.kind == kind and word.text.isalpha() and not np.isnan(word.shared[-1])
    ]
    words = [word for word in words if word.tag in NAMING] or words
    words.sort(key=lambda word: (word.shared[-1], -len(word.cells), word.text))
    for word in words[:MAX_COMPARED]:
        one, other = found.least_similar(word)
        shared = found.shared(one, other)
        yield ComparedWord(
            visible(word.text),
            tuple(
                _occurrence(results, found, word, *pair) for pair in ((one, other), (other, one))
            ),
            (one[0], other[0]),
            (int(shared[0]), int(shared[-1])),
        )


def compared_layers(results: StackResults) -> list[int]:
    """Return the layers of the list of nearest tokens."""
    return even_places(results.stack.n_layers, MAX_LAYERS)


def _occurrence(
    results: StackResults, found: SharedNeighbours, word: RecurringWord, cell: Cell, other: Cell
) -> WordOccurrence:
    """Return an occurrence with its nearest tokens, beside another occurrence."""
    number, position = cell
    text = results.study.sentence_data.sentences[number - 1].texts[results.stack.queries]
    start, end = text.spans[position]
    first = word_edge(text.words, max(0, position - AROUND), -1)
    last = word_edge(text.words, min(len(text.spans) - 1, position + AROUND), 1)
    before, after = text.spans[first][0], max(end, text.spans[last][1])
    shared = found.shared(cell, other)
    return WordOccurrence(
        href=sentence_page(number),
        before=("… " if before else "") + visible(text.text[before:start]),
        token=visible(text.text[start:end]),
        after=visible(text.text[end:after]) + (" …" if after < len(text.text) else ""),
        cells=tuple(
            _nearest(found, word, cell, layer, int(shared[layer]))
            for layer in compared_layers(results)
        ),
    )


def word_edge(words: Sequence[int], position: int, step: int) -> int:
    """Return the first or last token of the word of a token.

    Args:
        words: number of the word of each token; -1 outside of words.
        step: -1 for the first token of the word, 1 for the last.
    """
    while (
        0 <= position + step < len(words)
        and words[position] >= 0
        and words[position + step] == words[position]
    ):
        position += step
    return position


def _nearest(
    found: SharedNeighbours, word: RecurringWord, cell: Cell, layer: int, shared: int
) -> NearestCell:
    names = [found.names[place] for place in found.nearest[cell][layer] if place >= 0]
    own = [name.strip("␣▁ ").lower() == word.text.lower() for name in names]
    others = [name for name, is_own in zip(names, own, strict=True) if not is_own]
    listed = ", ".join(map(visible, names[:N_NAMED]))
    return NearestCell(
        text=visible(others[0]) if others else "–",
        fill=f"q{min(3, shared // 3)}",
        note=f"Nearest after layer {layer}: {listed}. Shared: {shared} of ten.",
        lost=bool(own) and not own[0],
    )
