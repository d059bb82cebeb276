"""Mean paths of token types, and occurrences side by side."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import numpy as np
import pandas as pd

from headbook.charts import Figure, occurrence_paths
from headbook.pages.parts.page import Page, StackSection
from headbook.pages.parts.table import PageTable, Row, words_cell
from headbook.report.results import StackResults, study_of
from headbook.report.wording import STACKS, first_option, number, sentence_page, visible
from headbook.schema import CONTENT, AttentionStack, EmbeddingSpace, ResidualPoint
from headbook.study.sentence_data import StoredText
from headbook.study.study import Study
from headbook.study.token_sums import PATH_METRIC, PATH_STATES, TokenTypeSums

MOST_DRAWN = 6  # types that a page draws
MAX_OCCURRENCES = 4  # occurrences of a type
AROUND = 4  # tokens of context on either side
HALF = 5  # of ten nearest entries
NEAR = 3  # entries that are named

# By sentence and position, the nearest entries after each layer.
Places = dict[tuple[int, int], list[frozenset[str]]]


@dataclass(frozen=True)
class Occurrence:
    """One token in its sentence.

    Attributes:
        name, href: its sentence, and that sentence's page.
        before, token, after: some of the text around it.
        nearest: the entries nearest to its last state.
    """

    name: str
    href: str
    before: str
    token: str
    after: str
    nearest: str


@dataclass(frozen=True)
class ComparedType:
    """A type whose occurrences go different ways.

    Attributes:
        name: the type.
        figure: the paths.
        occurrences: what is compared.
        partings: of every two the first layer after which they share fewer than half of their ten
            nearest entries, and how many they share after the last.
    """

    name: str
    figure: Figure
    occurrences: tuple[Occurrence, ...]
    partings: PageTable


def compared_types(study: Study, stack: AttentionStack) -> tuple[ComparedType, ...]:
    """Content words that occur in several listed sentences, those that part most first."""
    nearest = study.nearest[study.nearest["stack"] == stack.name]
    if nearest.empty:
        return ()
    space = first_option(nearest["space"], EmbeddingSpace)
    chosen = nearest[(nearest["state"] == str(ResidualPoint.POST)) & (nearest["space"] == space)]
    many = {p: group for p, group in _groups(study, stack, chosen).items() if len(group) > 1}
    by_cell = chosen.groupby(["sentence", "position"])
    places = {cell: _entries(by_cell.get_group(cell)) for group in many.values() for cell in group}

    def together(piece: str) -> float:
        pairs = combinations(many[piece], 2)
        return float(np.mean([len(places[a][-1] & places[b][-1]) for a, b in pairs]))

    first = sorted(many, key=lambda piece: (together(piece), piece))[:MOST_DRAWN]
    made = [(piece, {at: places[at] for at in many[piece]}) for piece in first]
    return tuple(
        _compared(study, stack, chosen, *pair, number=number) for number, pair in enumerate(made)
    )


def _groups(
    study: Study, stack: AttentionStack, rows: pd.DataFrame
) -> dict[str, list[tuple[int, int]]]:
    """Sentence and position of the first occurrences of content words, each of a sentence."""
    groups: dict[str, list[tuple[int, int]]] = {}
    for sentence, position in rows[["sentence", "position"]].drop_duplicates().to_numpy().tolist():
        if not _content(study, stack, sentence, position):
            continue
        group = groups.setdefault(_text(study, stack, sentence).pieces[position], [])
        if sentence not in {known for known, _ in group} and len(group) < MAX_OCCURRENCES:
            group.append((sentence, position))
    return groups


def _text(study: Study, stack: AttentionStack, sentence: int) -> StoredText:
    return study.sentence_data.sentences[sentence - 1].texts[stack.queries]


def _content(study: Study, stack: AttentionStack, sentence: int, position: int) -> bool:
    """Whether a token is a content word of one piece."""
    text = _text(study, stack, sentence)
    whole = text.words.count(text.words[position]) == 1
    return whole and text.tags[position] in CONTENT


def _entries(rows: pd.DataFrame) -> list[frozenset[str]]:
    """The nearest entries of a token after each layer."""
    return [frozenset(series) for _, series in rows.groupby("layer")["neighbour"]]


def _compared(
    study: Study,
    stack: AttentionStack,
    nearest: pd.DataFrame,
    name: str,
    places: Places,
    *,
    number: int,
) -> ComparedType:
    name, title = visible(name.strip()), STACKS[stack.name]
    caption = f"Cosine of “{name}” to its input embedding after each layer, by sentence ({title})."
    return ComparedType(
        name=name,
        figure=occurrence_paths(
            f"occurrences-{stack.name}-{number}", caption, *_paths(study, stack, places)
        ),
        occurrences=tuple(_occurrence(study, stack, nearest, *cell) for cell in places),
        partings=PageTable(
            ("Occurrences", "diverge after layer", "neighbours shared at the end"),
            tuple(_partings(places)),
            f"Where occurrences of “{name}” diverge.",
        ),
    )


def _paths(study: Study, stack: AttentionStack, places: Places) -> tuple[pd.DataFrame, list[str]]:
    """The rows of a figure, and its steps."""
    tokens = study.tokens
    mine = tokens[
        (tokens["stack"] == stack.name)
        & (tokens["metric"] == PATH_METRIC)
        & (tokens["state"] == str(ResidualPoint.POST))
    ]
    found = mine[[pair in places for pair in zip(mine["sentence"], mine["position"], strict=True)]]
    frame = pd.DataFrame(
        {
            "occurrence": [f"sentence {n}" for n in found["sentence"]],
            "step": found["layer"].astype(int).astype(str).to_numpy(),
            "value": found["value"].to_numpy(np.float32),
        }
    )
    steps = sorted({int(layer) for layer in found["layer"]})
    start = frame.drop_duplicates("occurrence").assign(
        step=str(ResidualPoint.PRE), value=np.float32(1)
    )
    return pd.concat([start, frame], ignore_index=True), [
        str(ResidualPoint.PRE),
        *map(str, steps),
    ]


def _occurrence(
    study: Study, stack: AttentionStack, nearest: pd.DataFrame, sentence: int, position: int
) -> Occurrence:
    text = _text(study, stack, sentence)
    start, end = text.spans[position]
    before = text.spans[max(0, position - AROUND)][0]
    after = text.spans[min(len(text.spans) - 1, position + AROUND)][1]
    mine = nearest[(nearest["sentence"] == sentence) & (nearest["position"] == position)]
    last = mine[(mine["layer"] == mine["layer"].max()) & (mine["rank"] <= NEAR)]
    return Occurrence(
        name=f"sentence {sentence}",
        href=sentence_page(sentence),
        before=visible(text.text[before:start]),
        token=visible(text.text[start:end]),
        after=visible(text.text[end : max(end, after)]),
        nearest=", ".join(map(visible, last["neighbour"])),
    )


def _partings(places: Places) -> Iterator[Row]:
    for one, other in combinations(places, 2):
        shared = [len(a & b) for a, b in zip(places[one], places[other], strict=True)]
        apart = next((layer for layer, n in enumerate(shared) if n < HALF), None)
        layer = "never" if apart is None else str(apart)
        yield Row(f"sentence {one[0]}, sentence {other[0]}", (layer, f"{shared[-1]} of 10"))


MAX_TYPES = 120  # rows of the table; the file has all types
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
    table: PageTable
    compared: tuple[ComparedType, ...]


@dataclass(frozen=True, kw_only=True)
class TypesPage(Page):
    """Token types.

    Attributes:
        stacks: by stack.
        data: script with all types.
    """

    template: ClassVar[str] = "tokens.html"
    scripts = ("tokens",)
    stacks: tuple[StackTypes, ...]
    data: str


def has_types(results: Mapping[str, StackResults]) -> bool:
    """Return whether a study has sums of vocabulary tokens."""
    return bool(study_of(results).corpus_sums.types)


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


def _stack(results: StackResults, sums: TokenTypeSums) -> StackTypes:
    state = drawn_state(sums)
    layers, order = _layers(sums), by_frequency(sums)[:MAX_TYPES]
    return StackTypes(
        stack=results.stack.name,
        total=len(sums.ids),
        state=state,
        table=PageTable(
            ("Token", "occurrences", "sentences", *layers, "spread"),
            tuple(
                Row(words_cell(name, foreign=True), tuple(cells))
                for name, *cells in _rows(sums, order, layers, state)
            ),
            "Cosine to the input embedding by layer.",
        ),
        compared=compared_types(results.study, results.stack),
    )


def types_data(types: Mapping[str, TokenTypeSums]) -> dict[str, list[list[str]]]:
    """By stack, the cells of a row for every type, the most frequent first."""
    found = {}
    for name, sums in types.items():
        layers = _layers(sums)
        found[name] = [*_rows(sums, by_frequency(sums), layers, drawn_state(sums))]
    return found


def _layers(sums: TokenTypeSums) -> list[int]:
    """The layers that a table has room for."""
    n_layers = sums.total.shape[1]
    chosen = np.linspace(0, n_layers - 1, min(n_layers, COLUMNS)).round().astype(int)
    return list(map(int, np.unique(chosen)))


def drawn_state(sums: TokenTypeSums) -> ResidualPoint:
    """The state that pages show: out, where it was read."""
    out = PATH_STATES.index(ResidualPoint.POST)
    return ResidualPoint.MID if np.isnan(sums.total[..., out]).all() else ResidualPoint.POST


def by_frequency(sums: TokenTypeSums) -> list[int]:
    """Places of all types, the most frequent first."""
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
