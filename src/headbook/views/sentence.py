"""The pages of sentences: one for each listed sentence, and a list of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from headbook.charts import Figure, trajectories
from headbook.metrics import all_metrics
from headbook.results import StackResults
from headbook.shown import HeadName, ShownSentence, ShownText
from headbook.study import Study
from headbook.terms import CONTENT, FUNCTION, Side, Space, Stack, State
from headbook.views.page import Page
from headbook.views.text import Token, distinct, running_text
from headbook.wording import (
    STACKS,
    counted,
    head_file,
    head_name,
    number,
    sentence_file,
    visible,
)

MOST_TOKENS = 48  # of a sentence's tokens in charts and tables; the files have them all
NEIGHBOURS = 3  # nearest entries that a cell names; the file has ten
COLUMNS = 12  # layers that the table of nearest entries has room for
MOST_BYTES = 2_000_000  # of a stack's maps in a sentence's data file
TILE = 44  # units from one map to the next in the grid of maps
START = {"cosine_to_input": 1.0, "vocabulary_rank": 0.0}  # the input state's own values
AXES = {
    "cosine_to_input": "cosine to the token's input",
    "vocabulary_rank": "entries nearer than its own",
}


@dataclass(frozen=True)
class MapLink:
    """A head's tile in the grid of maps.

    Attributes:
        name, href: the head and its page.
        layer, head: its numbers.
        x, y: upper left corner, in units of the picture.
    """

    name: str
    href: str
    layer: int
    head: int
    x: int
    y: int


@dataclass(frozen=True)
class NearestRow:
    """A token with its nearest vocabulary entries, and their cosines, after each layer."""

    token: str
    cells: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class StackOfSentence:
    """One stack in a sentence.

    Attributes:
        stack, title: the kind of attention, as files and as pages call it.
        figures: paths of the tokens.
        cut: how many tokens charts and tables leave out.
        nearest: nearest vocabulary entries; empty where there is no vocabulary to compare with.
        nearest_note: which states and space they belong to.
        layers: layer numbers, the table's columns.
        sheet: picture with all maps; ``tile`` units from one to the next, ``width`` and
            ``height`` of them all.
        maps: the tiles as links.
        exact: whether the data file holds the maps' numbers, too.
        queries, keys: tokens of the maps' rows and columns.
    """

    stack: str
    title: str
    figures: tuple[Figure, ...]
    cut: int
    nearest: tuple[NearestRow, ...]
    nearest_note: str
    layers: tuple[int, ...]
    sheet: str
    tile: int
    width: int
    height: int
    maps: tuple[MapLink, ...]
    exact: bool
    queries: tuple[str, ...]
    keys: tuple[str, ...]


@dataclass(frozen=True)
class TextOfSentence:
    """One side of a sentence.

    Attributes:
        side: source or target; empty where there is one text only.
        tokens: the text, token by token.
        remarks: what became of it: cut, or written by the model.
    """

    side: str
    tokens: tuple[Token, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SentencePage(Page):
    """One sentence.

    Attributes:
        number: its number in the input, counted from 1.
        text: as it came.
        previous, next: addresses of its neighbours, or None.
        metadata: other columns of the input.
        texts: its texts in tokens.
        stacks: what happens to its tokens, by stack.
        data: script with the maps' numbers.
    """

    template: ClassVar[str] = "sentence.html"
    number: int
    text: str
    previous: str | None
    next: str | None
    metadata: tuple[tuple[str, str], ...]
    texts: tuple[TextOfSentence, ...]
    stacks: tuple[StackOfSentence, ...]
    data: str


@dataclass(frozen=True)
class SentenceLine:
    """One sentence in the list."""

    number: int
    href: str
    text: str
    tokens: int


@dataclass(frozen=True, kw_only=True)
class SentencesPage(Page):
    """The list of sentences that have a page.

    Attributes:
        lines: the sentences.
        total: sentences in the input.
    """

    template: ClassVar[str] = "sentences.html"
    lines: tuple[SentenceLine, ...]
    total: int


def listed(study: Study) -> list[ShownSentence]:
    """The sentences that have a page."""
    return [sentence for sentence in study.portrait.sentences.values() if sentence.listed]


def sentences_page(study: Study) -> SentencesPage:
    """The list of sentences."""
    chosen = listed(study)
    total = study.manifest.counts["sentences"]
    return SentencesPage(
        path="sentences/index.html",
        title="Sentences",
        description=f"{len(chosen):,} of {counted(total, 'sentence')}, each with the paths of its "
        "tokens and the maps of all heads.",
        lines=tuple(
            SentenceLine(
                s.number,
                _path(s.number),
                s.texts[Side.SOURCE].text,
                sum(len(text.pieces) for text in s.texts.values()),
            )
            for s in chosen
        ),
        total=total,
    )


def sentence_pages(results: Mapping[str, StackResults]) -> Iterator[SentencePage]:
    """A page for each listed sentence."""
    study = next(iter(results.values())).study
    chosen = listed(study)
    tokens = dict(list(study.tokens.groupby("sentence", sort=False)))
    nearest = dict(list(study.nearest.groupby("sentence", sort=False)))
    for place, sentence in enumerate(chosen):
        before = chosen[place - 1].number if place else None
        after = chosen[place + 1].number if place + 1 < len(chosen) else None
        rows = tokens.get(sentence.number, study.tokens.iloc[:0])
        near = nearest.get(sentence.number, study.nearest.iloc[:0])
        stacks = (_stack(study, stack, sentence, rows, near) for stack in study.manifest.stacks)
        yield SentencePage(
            path=_path(sentence.number),
            title=f"Sentence {sentence.number}",
            description="The paths of its tokens through the layers, their nearest vocabulary "
            "entries, and the attention maps of all heads.",
            number=sentence.number,
            text=sentence.texts[Side.SOURCE].text,
            previous=_path(before) if before else None,
            next=_path(after) if after else None,
            metadata=tuple(_metadata(sentence)),
            texts=tuple(_texts(sentence)),
            stacks=tuple(stacks),
            data=f"data/sentences/{sentence_file(sentence.number)}.js",
        )


def _path(sentence_number: int) -> str:
    return f"sentences/{sentence_file(sentence_number)}.html"


def _metadata(sentence: ShownSentence) -> Iterator[tuple[str, str]]:
    if sentence.id and sentence.id != str(sentence.number):
        yield "id", sentence.id
    yield from sentence.metadata.items()


def _texts(sentence: ShownSentence) -> Iterator[TextOfSentence]:
    for side, text in sentence.texts.items():
        remarks = []
        if text.lost:
            remarks.append(
                f"Longer than the model takes: {counted(text.lost, 'token')} at the end were cut."
            )
        if text.generated:
            remarks.append("Written by the model itself (greedy decoding).")
        name = str(side) if len(sentence.texts) > 1 else ""
        yield TextOfSentence(name, running_text(text), tuple(remarks))


def _stack(
    study: Study, stack: Stack, sentence: ShownSentence, tokens: pd.DataFrame, near: pd.DataFrame
) -> StackOfSentence:
    queries, keys = sentence.texts[stack.queries], sentence.texts[stack.keys]
    tokens = tokens[(tokens["stack"] == stack.name) & (tokens["position"] < MOST_TOKENS)]
    near = near[(near["stack"] == stack.name) & (near["position"] < MOST_TOKENS)]
    if stack.crosses:
        near = near.iloc[:0]  # the layers' outputs are those of the decoder
    layers = _some_layers(near)
    rows, note = _nearest(near[near["layer"].isin(layers)])
    maps = study.portrait.maps.get((stack.name, sentence.index))
    tiles = () if maps is None else tuple(_tiles(stack))
    shown = {head: place for place, head in enumerate(range(stack.n_heads))}
    return StackOfSentence(
        stack=stack.name,
        title=STACKS[stack.name],
        figures=tuple(_figures(tokens, stack, sentence.number, queries)),
        cut=max(0, len(queries.pieces) - MOST_TOKENS),
        nearest=rows,
        nearest_note=note,
        layers=layers,
        sheet=f"data/sentences/{sentence_file(sentence.number)}-{stack.name}.png" if tiles else "",
        tile=TILE,
        width=TILE * len(shown),
        height=TILE * len(stack.attention_layers),
        maps=tiles,
        exact=maps is not None and maps.size <= MOST_BYTES,
        queries=distinct(queries.pieces),
        keys=distinct(keys.pieces),
    )


def _some_layers(near: pd.DataFrame) -> tuple[int, ...]:
    """All layers, or as many as there is room for, evenly from the first to the last."""
    layers = sorted({int(layer) for layer in near["layer"]})
    if len(layers) <= COLUMNS:
        return tuple(layers)
    places = np.linspace(0, len(layers) - 1, COLUMNS).round().astype(int)
    return tuple(layers[place] for place in places)


def _tiles(stack: Stack) -> Iterator[MapLink]:
    for row, layer in enumerate(stack.attention_layers):
        for head in range(stack.n_heads):
            name = HeadName(stack.name, layer, head)
            href = f"heads/{head_file(name)}.html"
            yield MapLink(head_name(name), href, layer, head, TILE * head, TILE * row)


def _figures(
    rows: pd.DataFrame, stack: Stack, sentence_number: int, text: ShownText
) -> Iterator[Figure]:
    """The paths of the tokens: one chart a metric."""
    for metric in AXES:
        chosen = rows[rows["metric"] == metric]
        if len(chosen):
            yield _paths(chosen, metric, stack, sentence_number, text)


def _paths(rows: pd.DataFrame, metric: str, stack: Stack, number: int, text: ShownText) -> Figure:
    layers = sorted({int(layer) for layer in rows["layer"]})
    kinds = np.array(list(map(_kind, text.tags, text.special)))
    names = np.array([visible(piece) for piece in distinct(text.pieces)])
    position = rows["position"].to_numpy(int)
    frame = pd.DataFrame(
        {
            "position": position,
            "token": names[position],
            "kind": kinds[position],
            "step": rows["layer"].astype(int).astype(str).to_numpy(),
            "value": rows["value"].to_numpy(float).round(4),
            "state": rows["state"].to_numpy(str),
            "space": rows["space"].to_numpy(str),
        }
    )
    frame = pd.concat([_inputs(frame, START[metric]), frame], ignore_index=True)
    shown = {"state": _first(frame["state"], State), "space": _first(frame["space"], Space)}
    about = ", ".join(f"{key} {value}" for key, value in shown.items() if value)
    caption = (
        f"{all_metrics()[metric].title} of each token of sentence {number} through the layers "
        f"({STACKS[stack.name]}; {about})."
    )
    steps = [str(State.INPUT), *map(str, layers)]
    name = f"{metric}-{stack.name}-{sentence_file(number)}"
    ranks = metric == "vocabulary_rank"
    return trajectories(
        name, caption, frame, title=AXES[metric], steps=steps, show=shown, ranks=ranks
    )


def _inputs(frame: pd.DataFrame, value: float) -> pd.DataFrame:
    """Where every path begins: the input state itself."""
    first = frame.drop_duplicates(["position", "state", "space"])
    return first.assign(step=str(State.INPUT), value=value)


def _first(values: pd.Series, order: type[State | Space]) -> str:
    """The option that comes first in the terms' own order."""
    there = set(values)
    return next((str(option) for option in order if option in there), "")


def _kind(tag: str, special: bool) -> str:
    if tag == "PUNCT":
        return "punctuation"
    if special or not tag:
        return "other"
    return "content word" if tag in CONTENT else "function word" if tag in FUNCTION else "other"


def _nearest(near: pd.DataFrame) -> tuple[tuple[NearestRow, ...], str]:
    """The nearest entries of each token after each layer."""
    if near.empty:
        return (), ""
    state, space = _first(near["state"], State), _first(near["space"], Space)
    if State.OUT in set(near["state"]):
        state = str(State.OUT)
    chosen = near[(near["state"] == state) & (near["space"] == space)]
    chosen = chosen[chosen["rank"] <= NEIGHBOURS].sort_values(["position", "layer", "rank"])
    rows = []
    for (position, token), of_token in chosen.groupby(["position", "token"], sort=False):
        cells = tuple(_entries(of_layer) for _, of_layer in of_token.groupby("layer"))
        rows.append(NearestRow(f"{position} {token}", cells))
    return tuple(rows), f"state {state}, space {space}"


def _entries(rows: pd.DataFrame) -> tuple[str, ...]:
    entries = zip(rows["neighbour"], rows["cosine"], strict=True)
    return tuple(f"{entry} {number(cosine)}" for entry, cosine in entries)
