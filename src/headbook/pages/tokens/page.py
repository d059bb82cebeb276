"""The page of token types: mean paths of all, and occurrences of some side by side."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headbook.pages.parts.page import Page
from headbook.pages.tokens.occurrences import Compared, compared_types
from headbook.report.numbers.results import StackResults
from headbook.report.wording import STACKS, number, visible
from headbook.study.summaries.typesums import STATES, TypeSums
from headbook.terms import State

MOST = 120  # rows of the table; the file has all types
COLUMNS = 12  # layers that it has room for


@dataclass(frozen=True)
class TypeRow:
    """The mean path of a type.

    Attributes:
        name: the vocabulary entry.
        count, sentences: occurrences, and sentences with at least one.
        cells: mean cosine to the input after each layer that is shown.
        spread: standard deviation over occurrences after the last layer.
    """

    name: str
    count: str
    sentences: str
    cells: tuple[str, ...]
    spread: str


@dataclass(frozen=True)
class StackTypes:
    """The types of one stack.

    Attributes:
        stack, title: as files and as pages call it.
        total: how many types there are.
        state: which state is shown: mid or out.
        layers: those that are shown.
        rows: the most frequent types.
        compared: types whose occurrences go different ways.
    """

    stack: str
    title: str
    total: int
    state: str
    layers: tuple[int, ...]
    rows: tuple[TypeRow, ...]
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


def types_page(results: Mapping[str, StackResults]) -> TypesPage | None:
    """The page of token types; None where their paths were not measured."""
    study = next(iter(results.values())).study
    types = study.corpus_sums.types
    if not types:
        return None
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
        title=STACKS[results.stack.name],
        total=len(sums.ids),
        state=state,
        layers=tuple(layers),
        rows=tuple(_rows(sums, order, layers, state)),
        compared=compared_types(results.study, results.stack),
    )


def types_data(types: Mapping[str, TypeSums]) -> dict[str, list[list[str]]]:
    """By stack, the cells of a row for every type, the most frequent first."""
    found = {}
    for name, sums in types.items():
        layers = _layers(sums)
        rows = _rows(sums, by_frequency(sums), layers, drawn_state(sums))
        found[name] = [[r.name, r.count, r.sentences, *r.cells, r.spread] for r in rows]
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


def _rows(sums: TypeSums, order: list[int], layers: list[int], state: State) -> Iterator[TypeRow]:
    at = STATES.index(state)
    mean, spread = sums.mean[..., at], sums.spread[..., at]
    for position in order:
        yield TypeRow(
            name=visible(sums.names[position]),
            count=f"{sums.count[position]:,}",
            sentences=f"{sums.sentences[position]:,}",
            cells=tuple(number(float(mean[position, layer])) for layer in layers),
            spread=number(float(spread[position, -1])),
        )
