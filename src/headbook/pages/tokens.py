"""The page on words in several sentences, and on mean paths of all vocabulary tokens."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

import numpy as np

from headbook.charts.axes import even_places
from headbook.metrics import ids
from headbook.pages.parts.blocks import (
    Block,
    Caption,
    Cell,
    Columns,
    Details,
    Group,
    Lead,
    Page,
    Question,
    Symbols,
    Table,
    Text,
    blocks,
    by_stack,
    heat_of,
    row,
)
from headbook.pages.parts.page import gap_text
from headbook.pages.parts.recurring_words import (
    HUB_MARK,
    SPECIAL_MARK,
    levels_table,
    nearest_texts,
    shared_plot,
    uses,
)
from headbook.report.facts.states import geometry
from headbook.report.facts.states import tokens as facts
from headbook.report.results import StackResults, study_of
from headbook.report.token_neighbours import MAX_HUB_SHARE, classes_by_name, shared_neighbours
from headbook.report.wording import SPACES, STACKS, STATES, count_text, number_word, visible
from headbook.results.formats import metric_page, number
from headbook.results.number import PLAIN, Number, RowAddress
from headbook.results.sentence import Link, Marked, say
from headbook.schema import ResidualPoint
from headbook.study.sums.token_sums import PATH_STATES, TokenTypeSums

MAX_TYPES = 24  # rows of the table of all stacks together; the file and the search have all types
MAX_LAYERS, MAX_LAYERS_HALF = 12, 7  # columns of tables of types, and of those of half a page
# Marks that tokenizers put before vocabulary tokens, as pages print them, with their meaning.
TOKEN_MARKS = {
    "##": "## before a vocabulary token: a subword token that continues a word.",
    "␣": "␣ before a vocabulary token: a space, so that the token begins a word.",
}
MIN_OCCURRENCES = 3  # occurrences of a type in the tables of nearest and farthest types
MAX_EXTREME = 16  # rows of each of these tables
Results = Mapping[str, StackResults]


@dataclass(frozen=True)
class TokenFinder(Block):
    """A field to find a vocabulary token; its rows replace those of the table below it.

    Attributes:
        stack: stack of the rows.
        data: script with the rows of all vocabulary tokens.
    """

    stack: str
    data: str


def has_types(results: Results) -> bool:
    """Return whether a study has paths of vocabulary tokens, or nearest tokens of words."""
    return any(map(facts.is_measured, results.values()))


def types_page(results: Results) -> Page:
    """Return the page of words and vocabulary tokens."""
    study = study_of(results)
    stacks = [r for r in results.values() if facts.is_measured(r)]
    first, *others = stacks
    return Page(
        path="tokens.html",
        title="Does a word stay the same in every sentence?",
        description="Nearest vocabulary tokens of a word in several sentences, and the mean path "
        f"of every vocabulary token, in {study.manifest.model.name}.",
        topic="Tokens",
        answer=first.cached(facts.same_word).text,
        scope=tuple(_scope(first)),
        blocks=blocks(_shared(first), _sibling(results), _different_uses(first),
                      map(_question, others)),
        closer=by_stack(stacks, lambda r: _closer(r, MAX_TYPES // len(stacks)), results),
        measured=_measured(first),
        absent=tuple(dict.fromkeys(text for r in stacks for text in _absent(r))),
        scripts=("tokens",),
    )  # fmt: skip


def _shared(results: StackResults) -> Iterator[Block]:
    """Yield the curves of shared neighbours, the words at their level, and the cosines."""
    neighbours = shared_neighbours(results)
    if neighbours is not None:
        yield Lead(shared_plot(results, neighbours))
    if cosine := results.cached(facts.same_word_by_cosine).text:
        yield Text(cosine, "noted")
    if neighbours is not None:
        yield levels_table(results, neighbours)


def _sibling(results: Results) -> Text | None:
    """Return a link to the page on how words travel."""
    if not any(map(geometry.is_measured, results.values())):
        return None
    words = "Whether a word stays near its own embedding is another question: {link}."
    return Text(say(words, link=Link("How words travel", "geometry.html")), "noted")


def _different_uses(results: StackResults) -> Question | None:
    """Return the question which words have uses that differ."""
    answer = results.cached(facts.different_uses).text
    if not answer:
        return None
    return Question(
        "becomes", "Which words differ by sentence?", answer, blocks(_uses(results)),
        "senses meaning ambiguous word occurrences uses",
    )  # fmt: skip


def _uses(results: StackResults) -> Iterator[Block]:
    """Yield the uses of words side by side, and what the tables mean."""
    neighbours = shared_neighbours(results)
    opened = [*uses(results, neighbours)] if neighbours else []
    yield from opened
    if opened:
        tables = [table for use in opened for table in use.blocks if isinstance(table, Table)]
        meaning = (
            f"Two uses differ if they share fewer than {facts.MIN_SHARED} of their ten nearest "
            "other vocabulary tokens. Columns: the three nearest of each use, the two least "
            f"similar uses first. {HUB_MARK} a hub: among the ten nearest of more than "
            f"{MAX_HUB_SHARE * 100:.0f} % of the states of that layer; {SPECIAL_MARK} a special "
            "token."
        )
        yield Caption((meaning, token_marks(nearest_texts(tables))))


def _question(results: StackResults) -> Question:
    stack, answer = results.stack.name, results.cached(facts.same_word).text
    content = blocks(_shared(results), _uses(results))
    return Question(stack, f"And in {STACKS[stack]}?", answer, content)


def _scope(results: StackResults) -> Iterator[tuple[str, str]]:
    neighbours = shared_neighbours(results)
    if neighbours is None:
        return
    pages = len({sentence for sentence, _ in neighbours.nearest})
    yield (
        "Words",
        f"of one token: {len(neighbours.words):,} occur in at least two of the "
        f"{count_text(pages, results.study.manifest.text_noun)} whose pages show all heads.",
    )
    space = SPACES[neighbours.space]
    yield "Nearest", f"ten without the word itself, by cosine to {space}, state after the layer."


def _absent(results: StackResults) -> Iterator[str]:
    """Yield the numbers that a stack lacks, with the reason or the option that measures them."""
    where = "" if results.stack.name == "self" else f" in {STACKS[results.stack.name]}"
    if shared_neighbours(results) is None:
        gap = next((g for g in results.study.manifest.gaps if g.key == ids.NEAREST_TOKENS), None)
        measured = (results.study.nearest["stack"] == results.stack.name).any()
        if measured:
            yield f"Shared neighbours{where} need a word of one token in two sentences with a page."
        elif gap:
            yield f"{gap_text(gap)}."
        else:
            yield (
                f"Nearest vocabulary tokens{where} are not measured here: --metrics "
                "nearest_tokens, for sentences with a page (--sentence-pages)."
            )
    if results.stack.name not in results.study.corpus_sums.types:
        yield f"Paths of vocabulary tokens{where} are not measured here: --metrics cosine_to_input."


def _closer(results: StackResults, max_types: int) -> Iterator[Block]:
    """Yield the tables of vocabulary tokens."""
    sums = results.study.corpus_sums.types.get(results.stack.name)
    if sums is None or not len(sums.ids):
        return
    suffix = "" if results.stack.name == "self" else f"-{results.stack.name}"
    if tables := _extremes(results, sums):
        names = [str(cells[0].text) for t in tables for cells in t.rows if _is_name(cells[0])]
        note = (
            f"Cosine to the input embedding {STATES[drawn_state(sums)]}, mean over occurrences (n, "
            f"at least {number_word(MIN_OCCURRENCES)}); special tokens are left out."
        )
        yield Group(
            (Columns(tables), Caption((note, token_marks(names)))), id=f"paths{suffix}",
            link="nearest to their embedding",
        )  # fmt: skip
    yield Group((_all_types(results, sums, max_types),), id=f"all{suffix}", link="all tokens")


def _all_types(results: StackResults, sums: TokenTypeSums, most: int) -> Details:
    """Return the most frequent vocabulary tokens, and a field to find any of them."""
    table = _frequent(results, sums, most)
    note = say(
        "Mean {metric}; spread: standard deviation over occurrences after the last layer. Here: "
        "the {n} most frequent; all are in {file}.",
        metric=Link("cosine to the input embedding", metric_page(ids.COSINE_TO_INPUT)),
        n=len(table.rows), file=Link("types.csv", "data.html"),
    )  # fmt: skip
    finder = TokenFinder(results.stack.name, "data/types.js")
    title = f"All {len(sums.ids):,} vocabulary tokens of the texts"
    return Details(title, (finder, Text(note), table))


def _is_name(cell: Cell) -> TypeGuard[Marked]:
    return isinstance(cell, Marked)


def token_marks(texts: Sequence[str]) -> str:
    """Return what the marks at the beginning of vocabulary tokens mean; empty without marks."""
    meanings = [meaning for mark, meaning in TOKEN_MARKS.items() if _is_marked(texts, mark)]
    return " ".join(meanings)


def _is_marked(texts: Sequence[str], mark: str) -> bool:
    return any(text.startswith(mark) and len(text) > len(mark) for text in texts)


def _extremes(results: StackResults, sums: TokenTypeSums) -> tuple[Table, ...]:
    """Return the types with the lowest and with the highest cosine after all layers."""
    last = sums.mean[:, -1, PATH_STATES.index(drawn_state(sums))]
    order = np.lexsort((sums.ids, last))
    order = order[(sums.count[order] >= MIN_OCCURRENCES) & ~np.isnan(last[order])]
    if len(order) < 2:
        return ()
    half = (len(order) + 1) // 2
    lowest, highest = order[:half][:MAX_EXTREME], order[half:][::-1][:MAX_EXTREME]
    return (
        _path_table(results, sums, lowest.tolist(), "Leave their embedding farthest"),
        _path_table(results, sums, highest.tolist(), "Stay nearest to it"),
    )


def _path_table(
    results: StackResults, sums: TokenTypeSums, order: Sequence[int], caption: str
) -> Table:
    """Return the mean cosine of some types by layer, with heat."""
    classes, layers = classes_by_name(results), even_places(sums.total.shape[1], MAX_LAYERS_HALF)
    rows = []
    for place in order:
        kind = classes.get(sums.names[place].strip("␣▁ ").lower(), "other")
        cells = (heat_of(_cosine(results, sums, place, layer), 1.0) for layer in layers)
        name = Marked(visible(sums.names[place]), f"cl c-{kind}")
        rows.append(row(name, int(sums.count[place]), *cells))
    return Table(("token", "n", *layers), tuple(rows), caption, style="heat")


def _cosine(results: StackResults, sums: TokenTypeSums, place: int, layer: int) -> Number:
    """Return the mean cosine of a type to its input embedding, with its row."""
    state = drawn_state(sums)
    key = (
        ("stack", results.stack.name), ("entry", int(sums.ids[place])), ("layer", layer),
        ("state", str(state)),
    )  # fmt: skip
    value = float(sums.mean[place, layer, PATH_STATES.index(state)])
    return Number(value, PLAIN, RowAddress("types", key))


def _frequent(results: StackResults, sums: TokenTypeSums, most: int) -> Table:
    """Return the most frequent types with their mean cosine by layer."""
    layers, last = _layers(sums), sums.total.shape[1] - 1
    spreads = sums.spread[:, last, PATH_STATES.index(drawn_state(sums))]
    rows = []
    for place in by_frequency(sums)[:most]:
        cosines = [_cosine(results, sums, place, layer) for layer in layers]
        spread = replace(_cosine(results, sums, place, last), value=float(spreads[place]))
        counts = int(sums.count[place]), int(sums.sentences[place])
        numbers = (n.printed("") for n in (*cosines, spread))
        rows.append(row(Marked(visible(sums.names[place]), "bdi"), *counts, *numbers))
    columns = row("Token", "occurrences", "sentences", *layers, "spread")
    return Table(columns, tuple(rows), "Cosine to the input embedding by layer")


def types_data(types: Mapping[str, TokenTypeSums]) -> dict[str, list[list[str]]]:
    """Return by stack the cells of a row for every type, the most frequent first."""
    rows = {}
    for name, sums in types.items():
        layers = _layers(sums)
        rows[name] = [*_rows(sums, by_frequency(sums), layers, drawn_state(sums))]
    return rows


def _layers(sums: TokenTypeSums) -> list[int]:
    """Return the layers that a table has room for."""
    return even_places(sums.total.shape[1], MAX_LAYERS)


def drawn_state(sums: TokenTypeSums) -> ResidualPoint:
    """Return the state that pages show: after the layer if it was read, else after attention."""
    out = PATH_STATES.index(ResidualPoint.POST)
    return ResidualPoint.MID if np.isnan(sums.total[..., out]).all() else ResidualPoint.POST


def by_frequency(sums: TokenTypeSums) -> list[int]:
    """Return the indices of all types, the most frequent first."""
    return [int(place) for place in np.lexsort((sums.ids, -sums.count))]


def _rows(
    sums: TokenTypeSums, order: list[int], layers: list[int], state: ResidualPoint
) -> Iterator[list[str]]:
    at = PATH_STATES.index(state)
    mean, spread = sums.mean[..., at], sums.spread[..., at]
    for position in order:
        yield [
            visible(sums.names[position]),
            f"{sums.count[position]:,}",
            f"{sums.sentences[position]:,}",
            *(number(float(mean[position, layer])) for layer in layers),
            number(float(spread[position, -1])),
        ]


def _measured(results: StackResults) -> tuple[Block, ...]:
    symbols = Symbols((
        ("xᵢˡ", "state of token i after layer l"),
        ("e(v, i)", "embedding of vocabulary token v at position i, as the model’s embedding block "
         "gives it; without the position if positions are not added to embeddings"),
        ("nearest", "the ten v with the largest cosine of xᵢˡ and e(v, i), without the vocabulary "
         "token that stands at i itself"),
        ("shared", "vocabulary tokens among the nearest ten of both occurrences; mean over all "
         "pairs of sentences, the first occurrence in each"),
        ("two different words", "the same for the first occurrences of every two words"),
    ))  # fmt: skip
    example = _example(results)
    return blocks(symbols, Text(example, "eg") if example else None)


def _example(results: StackResults) -> str:
    """Return how many tokens two uses of a word share; empty without a word."""
    neighbours = shared_neighbours(results)
    words = facts.compared_words(neighbours) if neighbours else []
    if neighbours is None or not words:
        return ""
    one, other = neighbours.least_similar(words[0])
    shared = neighbours.shared(one, other).tolist()
    return (
        f"“{visible(words[0].text)}” in sentences {one[0]} and {other[0]}: after layer 0 both "
        f"share {shared[0]} of ten nearest other tokens, after layer {len(shared) - 1} "
        f"{shared[-1]}."
    )
