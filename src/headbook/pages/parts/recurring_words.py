"""Words that occur in several sentences: curves of shared neighbours, levels, uses side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from headbook.charts.axes import even_places
from headbook.charts.plots import Line, Plot, Scale, Series, layer_plot
from headbook.pages.parts.blocks import Cell, Details, Table, row
from headbook.report.facts.states import tokens as facts
from headbook.report.results import StackResults
from headbook.report.token_neighbours import (
    N_NEAREST,
    WORD_CLASS_NAMES,
    RecurringWord,
    SharedNeighbours,
    hubs,
)
from headbook.report.token_neighbours import Cell as TokenCell
from headbook.report.wording import SPACES, count_text, sentence_page, visible
from headbook.results.sentence import Link, Marked, Sentence, listed, say
from headbook.schema import ResidualPoint

HEIGHT = 420  # pixels of the curves
MAX_MARKED = 13  # layers with a mark
MAX_DRAWN = 120  # words with a place among levels, those in most sentences first
MAX_LAYERS = 13  # layers of uses side by side
MAX_COMPARED = 60  # words whose uses can be opened
N_OPEN = 2  # words whose uses are open
HUB_MARK, SPECIAL_MARK = "°", "†"  # after names of nearest tokens
N_NAMED = 3  # nearest tokens of a use
AROUND = 4  # tokens of context on either side
ORDER = ("content", "function", "punctuation", "all")


def shared_plot(results: StackResults, neighbours: SharedNeighbours) -> Plot:
    """Return the curves of shared neighbours: classes, and two different words.

    The rows of the figure have a line for each word, too; lines of all words would hide the others.
    """
    missing = np.full(results.stack.n_layers, np.nan)
    lines: list[Series | Line] = [
        Series(word.text, _role(word.kind), word.shared, missing, missing, [], thin=True)
        for word in neighbours.words[:MAX_DRAWN]
        if word.kind != "punctuation"
    ]
    kinds = [kind for kind in ORDER if kind in neighbours.means]
    for kind in kinds:
        name = WORD_CLASS_NAMES[kind] if kind != "all" else "all words"
        lines.append(Line(name, _role(kind), facts.shared_numbers(results, kind)))
    different = facts.different_numbers(results, kinds[0])
    lines.append(Line("different words", "baseline", different))
    ticks = [(float(n), str(n)) for n in range(0, N_NEAREST + 1, 2)]
    plot = layer_plot(
        f"tokens-shared-{results.stack.name}", _caption(neighbours), lines,
        [*map(str, range(results.stack.n_layers))], scale=Scale(0, N_NEAREST, HEIGHT),
        ticks=ticks, label_width=160, n_marked=MAX_MARKED,
    )  # fmt: skip
    return replace(plot, curves=tuple(c for c in plot.curves if not c.style.startswith("thin")))


def _caption(neighbours: SharedNeighbours) -> str:
    classes = (
        " ● Content words: tagged as noun, verb, adjective, adverb, numeral or interjection; "
        "■ function words, ▲ punctuation."
    )
    by_class = classes * ("all" not in neighbours.means)
    return (
        f"Of the ten nearest other vocabulary tokens ({SPACES[neighbours.space]}), those that two "
        "occurrences of a word share; the word itself is left out. Means over words, with 95 % "
        f"intervals over words; dashed: {facts.DIFFERENT}.{by_class}"
    )


def _role(kind: str) -> str:
    return "model" if kind == "all" else kind


def levels_table(results: StackResults, neighbours: SharedNeighbours) -> Table:
    """Return the words by how many tokens they share after all layers, most first.

    A word whose uses can be opened is a link to them.
    """
    ids = {
        word.text: uses_id(results, place) for place, word in enumerate(opened_words(neighbours))
    }
    by_level: dict[int, list[RecurringWord]] = {n: [] for n in range(N_NEAREST, -1, -1)}
    for word in neighbours.words[:MAX_DRAWN]:
        if not np.isnan(word.shared[-1]):
            by_level[int(word.shared[-1] + 0.5)].append(word)
    rows = tuple(
        row(
            str(level),
            listed((_named(word, ids) for word in sorted(words, key=_in_level)), " ", " "),
        )
        for level, words in by_level.items()
        if words
    )
    drawn = len(neighbours.words[:MAX_DRAWN])
    which = f"the {drawn} words in most sentences" if drawn < len(neighbours.words) else "each word"
    note = f"after the last layer, {which}: mean over pairs of sentences, rounded"
    return Table(("shared", "words"), rows, "Words by shared neighbours", note, "numbers")


def _named(word: RecurringWord, ids: dict[str, str]) -> Link | Marked:
    text = visible(word.text)
    if word.text in ids:
        return Link(text, f"tokens.html#{ids[word.text]}")
    return Marked(text, f"cl c-{_role(word.kind)}")


def _in_level(word: RecurringWord) -> tuple[int, int, str]:
    return ORDER.index(word.kind), -len(word.cells), word.text.lower()


def uses_id(results: StackResults, place: int) -> str:
    """Return the fragment of a word's uses."""
    return f"uses-{results.stack.name}-{place}"


def opened_words(neighbours: SharedNeighbours) -> list[RecurringWord]:
    """Return the words whose uses can be opened, those that share the fewest tokens first."""
    return facts.compared_words(neighbours)[:MAX_COMPARED]


def uses(results: StackResults, neighbours: SharedNeighbours) -> Iterator[Details]:
    """Yield the uses of each compared word side by side, layer by layer."""
    for place, word in enumerate(opened_words(neighbours)):
        first, second = neighbours.least_similar(word)
        layer = facts.differ_from(neighbours.shared(first, second))
        title = say(
            "{word} in {sentences}: {uses}", word=Marked(visible(word.text), "b"),
            sentences=count_text(len(word.cells), "sentence"),
            uses="two uses share most neighbours to the end" if layer is None
            else f"two uses differ from layer {layer} on",
        )  # fmt: skip
        table = uses_table(results, neighbours, word)
        is_open = place < N_OPEN
        file = "" if is_open else "nearest"
        yield Details(title, (table,), file, uses_id(results, place), is_open)


def uses_table(results: StackResults, neighbours: SharedNeighbours, word: RecurringWord) -> Table:
    """Return the nearest tokens of a word's uses by layer, the two least similar uses first."""
    pair = neighbours.least_similar(word)
    cells = (*pair, *(cell for cell in word.uses if cell not in pair))
    shared, cosines = neighbours.shared(*pair).tolist(), facts.use_cosines(results, *pair)
    rows = tuple(
        row(
            f"L{layer}",
            *(_nearest(results, neighbours, cell, layer) for cell in cells[:2]),
            shared[layer],
            *(number.printed("") for of_layer in cosines[layer : layer + 1] for number in of_layer),
            *(_nearest(results, neighbours, cell, layer) for cell in cells[2:]),
        )
        for layer in even_places(results.stack.n_layers, MAX_LAYERS)
    )
    contexts = [_context(results, cell) for cell in cells]
    of_both = ("shared by both", *(("their cosine", "different words") if cosines else ()))
    columns = row("after", *contexts[:2], *of_both, *contexts[2:])
    return Table(columns, rows, label=f"Uses of {visible(word.text)}", style="numbers")


def _nearest(
    results: StackResults, neighbours: SharedNeighbours, cell: TokenCell, layer: int
) -> Cell:
    """Return the nearest other tokens of a use; hubs and special tokens are marked."""
    place = str(ResidualPoint.POST), str(neighbours.space), layer
    of_layer = results.cached(hubs).get(place, {})
    names = []
    for n in neighbours.nearest[cell][layer][:N_NAMED].tolist():
        if n >= 0:
            name = neighbours.names[n]
            mark = SPECIAL_MARK if n in neighbours.special else HUB_MARK * (name in of_layer)
            names.append(f"{visible(name)}{mark}")
    return " · ".join(names) or "–"


def _context(results: StackResults, cell: TokenCell) -> Sentence:
    """Return the text around an occurrence as a link to its sentence."""
    number, position = cell
    text = results.study.sentence_data.sentences[number - 1].texts[results.stack.queries]
    end = text.spans[position][1]
    first = word_edge(text.words, max(0, position - AROUND), -1)
    last = word_edge(text.words, min(len(text.spans) - 1, position + AROUND), 1)
    start, after = text.spans[first][0], max(end, text.spans[last][1])
    words = "… " * bool(start) + visible(text.text[start:after]) + " …" * (after < len(text.text))
    return say("{link}", link=Link(words, sentence_page(number)))


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


def nearest_texts(tables: Sequence[Table]) -> list[str]:
    """Return the vocabulary tokens that tables of uses name."""
    cells = [cell for table in tables for of_layer in table.rows for cell in of_layer[1:]]
    return [name for cell in cells if isinstance(cell, str) for name in cell.split(" · ")]
