"""The page of token types: mean paths of all, and occurrences of some side by side."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headbook.pages.parts.across import across
from headbook.pages.parts.page import Page, StackSection
from headbook.pages.parts.table import Row, Table, words
from headbook.pages.tokens.occurrences import Compared, compared_types
from headbook.report.numbers.results import StackResults, study_of
from headbook.report.wording import number, visible
from headbook.study.summaries.typesums import STATES, TypeSums
from headbook.terms import State

MOST = 120  # rows of the table; the file has all types
COLUMNS = 12  # layers that it has room for


@dataclass(frozen=True)
class StackTypes(StackSection):
    """The types of one stack.

    Attributes:
        total: how many types there are.
        state: which state is shown: mid or out.
        table: the most frequent types: occurrences, sentences with at least one, mean cosine to
            the input after each layer that is shown, deviation over occurrences after the last.
        compared: types whose occurrences go different ways.
    """

    total: int
    state: str
    table: Table
    compared: tuple[Compared, ...]


@dataclass(frozen=True, kw_only=True)
class TypesPage(Page):
    """Token types.

    Attributes:
        stacks: by stack.
        data: script with all types.
    """

    template: ClassVar[str] = "tokens.html"
    stacks: tuple[StackTypes, ...]
    data: str


@across("tokens.html", lambda results: bool(study_of(results).corpus_sums.types))
def types_page(results: Mapping[str, StackResults]) -> TypesPage:
    """The page of token types."""
    study = study_of(results)
    types = study.corpus_sums.types
    return TypesPage(
        path="tokens.html",
        title="Tokens",
        description="The mean path of every token type of the corpus, and occurrences of the same "
        "token side by side.",
        stacks=tuple(_stack(results[name], sums) for name, sums in types.items() if len(sums.ids)),
        data="data/types.js",
    )


def _stack(results: StackResults, sums: TypeSums) -> StackTypes:
    state = drawn_state(sums)
    layers, order = _layers(sums), by_frequency(sums)[:MOST]
    return StackTypes(
        stack=results.stack.name,
        total=len(sums.ids),
        state=state,
        table=Table(
            ("Token", "occurrences", "sentences", *layers, "spread"),
            tuple(
                Row(words(name, foreign=True), tuple(cells))
                for name, *cells in _rows(sums, order, layers, state)
            ),
            "Cosine to the input embedding by layer.",
        ),
        compared=compared_types(results.study, results.stack),
    )


def types_data(types: Mapping[str, TypeSums]) -> dict[str, list[list[str]]]:
    """By stack, the cells of a row for every type, the most frequent first."""
    found = {}
    for name, sums in types.items():
        layers = _layers(sums)
        found[name] = [*_rows(sums, by_frequency(sums), layers, drawn_state(sums))]
    return found


def _layers(sums: TypeSums) -> list[int]:
    """The layers that a table has room for."""
    n_layers = sums.total.shape[1]
    chosen = np.linspace(0, n_layers - 1, min(n_layers, COLUMNS)).round().astype(int)
    return list(map(int, np.unique(chosen)))


def drawn_state(sums: TypeSums) -> State:
    """The state that pages show: out, where it was read."""
    out = STATES.index(State.OUT)
    return State.MID if np.isnan(sums.total[..., out]).all() else State.OUT


def by_frequency(sums: TypeSums) -> list[int]:
    """Places of all types, the most frequent first."""
    return [int(place) for place in np.lexsort((sums.ids, -sums.count))]


def _rows(sums: TypeSums, order: list[int], layers: list[int], state: State) -> Iterator[list[str]]:
    at = STATES.index(state)
    mean, spread = sums.mean[..., at], sums.spread[..., at]
    for position in order:
        yield [
            visible(sums.names[position]),
            f"{sums.count[position]:,}",
            f"{sums.sentences[position]:,}",
            *(number(float(mean[position, layer])) for layer in layers),
            number(float(spread[position, -1])),
        ]
