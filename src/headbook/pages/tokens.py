"""The page on words in several sentences, and on mean paths of all vocabulary tokens."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headbook.charts.axes import even_places
from headbook.charts.plots import Plot
from headbook.charts.theme import amount_class
from headbook.metrics import ids
from headbook.pages.parts.page import AnalysisPage, StackSection, TemplateQuestion, gap_text
from headbook.pages.parts.recurring_words import (
    ComparedWord,
    LevelWord,
    compared_layers,
    compared_words,
    levels,
    shared_plot,
)
from headbook.pages.parts.table import HeatCell, PageTable, Row, words_cell
from headbook.report.answers.tokens import sameness_answer
from headbook.report.linked_rows import LinkedNumber
from headbook.report.results import StackResults, study_of
from headbook.report.token_neighbours import classes_by_name, shared_neighbours
from headbook.report.wording import SPACES, STACKS, STATES, count_text, visible
from headbook.results.formats import number
from headbook.schema import ResidualPoint
from headbook.study.sums.token_sums import PATH_STATES, TokenTypeSums

MAX_TYPES = 120  # rows of the table of all stacks together; the file has all types
MAX_LAYERS, MAX_LAYERS_HALF = 12, 7  # columns of tables of types, and of those of half a page
# Marks that tokenizers put before vocabulary tokens, as pages print them, with their meaning.
TOKEN_MARKS = {
    "##": "## before a vocabulary token: a subword token that continues a word.",
    "␣": "␣ before a vocabulary token: a space, so that the token begins a word.",
}
MIN_OCCURRENCES = 3  # occurrences of a type in the tables of nearest and farthest types
MAX_EXTREME = 16  # rows of each of these tables


@dataclass(frozen=True)
class WordSection(StackSection):
    """Words and vocabulary tokens of one stack.

    Attributes:
        plot: shared neighbours by layer; None without words in several sentences.
        levels: words at each number of shared tokens after all layers.
        compared: words with the nearest tokens of two occurrences, after the layers ``layers``.
        layers: layers of that list.
        marks: meaning of marks of vocabulary tokens in that list; empty without marks.
        path_marks: meaning of marks in the tables ``far`` and ``near``; empty without marks.
        far, near: vocabulary tokens whose states leave their embedding farthest, and least.
        types: the most frequent vocabulary tokens; None without any.
        n_types: number of all vocabulary tokens of the corpus.
        state: name of the states of these tables.
    """

    plot: Plot | None
    levels: tuple[tuple[int, tuple[LevelWord, ...]], ...]
    compared: tuple[ComparedWord, ...]
    layers: tuple[int, ...]
    marks: str
    path_marks: str
    far: PageTable | None
    near: PageTable | None
    types: PageTable | None
    n_types: int
    state: str

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """Fragments and names of the parts below the question."""
        names = (
            ("becomes", "what a word becomes", self.compared),
            ("paths", "nearest to their embedding", self.near),
            ("all", "all tokens", self.types),
        )
        return tuple((name, text) for name, text, there in names if there)


@dataclass(frozen=True, kw_only=True)
class TypesPage(AnalysisPage):
    """The page on words in several sentences, and on vocabulary tokens.

    Attributes:
        sections: by stack; the first answers the question.
        data: script with all vocabulary tokens.
        example: a worked example; empty without one.
    """

    template: ClassVar[str] = "tokens.html"
    scripts = ("tokens",)
    styles = (*AnalysisPage.styles, "tokens")
    sections: tuple[WordSection, ...]
    data: str
    example: str


def has_types(results: Mapping[str, StackResults]) -> bool:
    """Return whether a study has paths of vocabulary tokens, or nearest tokens of words."""
    return any(map(_has_words, results.values()))


def _has_words(results: StackResults) -> bool:
    types = results.study.corpus_sums.types.get(results.stack.name)
    return bool(types and len(types.ids)) or shared_neighbours(results) is not None


def types_page(results: Mapping[str, StackResults]) -> TypesPage:
    """Return the page of words and vocabulary tokens."""
    study = study_of(results)
    stacks = [r for r in results.values() if _has_words(r)]
    sections = tuple(_section(r, MAX_TYPES // len(stacks)) for r in stacks)
    first, *others = stacks
    compared = sections[0].compared
    return TypesPage(
        path="tokens.html",
        title="Does a word stay the same in every sentence?",
        description="Nearest vocabulary tokens of a word in several sentences, and the mean path "
        f"of every vocabulary token, in {study.manifest.model.name}.",
        topic="Tokens",
        answer=sameness_answer(first),
        scope=tuple(_scope(first)),
        questions=tuple(
            TemplateQuestion(r.stack.name, f"And in {STACKS[r.stack.name]}?", sameness_answer(r))
            for r in others
        ),
        absent=tuple(dict.fromkeys(text for r in stacks for text in _absent(r))),
        sections=sections,
        data="data/types.js",
        example=compared[0].example(first.stack.n_layers - 1) if compared else "",
    )


def _scope(results: StackResults) -> Iterator[tuple[str, str]]:
    found = shared_neighbours(results)
    if found is None:
        return
    pages = len({sentence for sentence, _ in found.nearest})
    yield (
        "Words",
        f"of one token: {len(found.words):,} occur in at least two of the "
        f"{count_text(pages, 'sentence')} whose pages show all heads.",
    )
    yield "Nearest", f"by cosine to {SPACES[found.space]}, state after the layer."


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


def _section(results: StackResults, max_types: int) -> WordSection:
    found = shared_neighbours(results)
    sums = results.study.corpus_sums.types.get(results.stack.name)
    types = sums if sums is not None and len(sums.ids) else None
    far, near = _extremes(results, types) if types else (None, None)
    compared = tuple(compared_words(results, found)) if found else ()
    return WordSection(
        stack=results.stack.name,
        plot=shared_plot(results, found) if found else None,
        levels=levels(found) if found else (),
        compared=compared,
        layers=tuple(compared_layers(results)),
        marks=token_marks(nearest_texts(compared)),
        path_marks=token_marks([row.name for t in (far, near) if t for row in t.rows]),
        far=far,
        near=near,
        types=_frequent(types, max_types) if types else None,
        n_types=len(types.ids) if types else 0,
        state=STATES[drawn_state(types)] if types else "",
    )


def nearest_texts(compared: Sequence[ComparedWord]) -> list[str]:
    """Return the vocabulary tokens that the list of compared words names."""
    return [cell.text for w in compared for o in w.occurrences for cell in o.cells]


def token_marks(texts: Sequence[str]) -> str:
    """Return what the marks at the beginning of vocabulary tokens mean; empty without marks."""
    meanings = [meaning for mark, meaning in TOKEN_MARKS.items() if _is_marked(texts, mark)]
    return " ".join(meanings)


def _is_marked(texts: Sequence[str], mark: str) -> bool:
    return any(text.startswith(mark) and len(text) > len(mark) for text in texts)


def _extremes(
    results: StackResults, sums: TokenTypeSums
) -> tuple[PageTable, PageTable] | tuple[None, None]:
    """Return the types with the lowest and with the highest cosine after all layers."""
    at = PATH_STATES.index(drawn_state(sums))
    last = sums.mean[:, -1, at]
    order = np.lexsort((sums.ids, last))
    order = order[(sums.count[order] >= MIN_OCCURRENCES) & ~np.isnan(last[order])]
    if len(order) < 2:
        return None, None
    half = (len(order) + 1) // 2
    lowest, highest = order[:half][:MAX_EXTREME], order[half:][::-1][:MAX_EXTREME]
    return (
        _path_table(results, sums, lowest.tolist(), "Leave their embedding farthest"),
        _path_table(results, sums, highest.tolist(), "Stay nearest to it"),
    )


def _path_table(
    results: StackResults, sums: TokenTypeSums, order: Sequence[int], caption: str
) -> PageTable:
    """Return the mean cosine of some types by layer, with heat."""
    classes, layers = classes_by_name(results), even_places(sums.total.shape[1], MAX_LAYERS_HALF)
    state = drawn_state(sums)
    rows = []
    for place in order:
        name = visible(sums.names[place])
        kind = classes.get(sums.names[place].strip("␣▁ ").lower(), "other")
        cells = []
        for layer in layers:
            value = float(sums.mean[place, layer, PATH_STATES.index(state)])
            row = (
                ("stack", results.stack.name), ("entry", int(sums.ids[place])), ("layer", layer),
                ("state", str(state)),
            )  # fmt: skip
            linked = LinkedNumber(number(value), "types", row)
            cells.append(HeatCell(linked.text, amount_class(value, 0.0, 1.0), linked))
        head = words_cell(name, style=f"cl c-{kind}", foreign=True)
        rows.append(Row(head, (words_cell(f"{sums.count[place]:,}", style="few"), *cells)))
    return PageTable(("token", "n", *layers), tuple(rows), caption, style="heat")


def _frequent(sums: TokenTypeSums, most: int) -> PageTable:
    """Return the most frequent types with their mean cosine by layer."""
    layers, order = _layers(sums), by_frequency(sums)[:most]
    return PageTable(
        ("Token", "occurrences", "sentences", *layers, "spread"),
        tuple(
            Row(words_cell(name, foreign=True), tuple(cells))
            for name, *cells in _rows(sums, order, layers, drawn_state(sums))
        ),
        "Cosine to the input embedding by layer",
    )


def types_data(types: Mapping[str, TokenTypeSums]) -> dict[str, list[list[str]]]:
    """Return by stack the cells of a row for every type, the most frequent first."""
    found = {}
    for name, sums in types.items():
        layers = _layers(sums)
        found[name] = [*_rows(sums, by_frequency(sums), layers, drawn_state(sums))]
    return found


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
