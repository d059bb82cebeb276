"""The pages of sentences: one for each listed sentence, and a list of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headbook.charts import Figure
from headbook.results import StackResults
from headbook.shown import HeadName, ShownSentence
from headbook.study import Study
from headbook.terms import Rollout, Side, Stack
from headbook.views.entries import EntriesTable, Story, entries_tables, story
from headbook.views.instance import exact
from headbook.views.neurons import neuron_files, reason
from headbook.views.page import EVERY, Page
from headbook.views.passage import Proposal, proposals
from headbook.views.paths import figures
from headbook.views.sentencetree import SentenceTree, sentence_tree
from headbook.views.sources import Sources, sources
from headbook.views.text import Token, distinct, running_text
from headbook.wording import (
    STACKS,
    counted,
    head_name,
    head_page,
    sentence_file,
)

MOST_TOKENS = 48  # of a sentence's tokens in charts and tables; the files have them all
MOST_CHARTS = 8  # on a page; its stacks share them
MOST_LINES = 250  # of tokens in all charts of a page
TILE = 44  # units from one map to the next in the grid of maps


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
class StackOfSentence:
    """One stack in a sentence.

    Attributes:
        stack, title: the kind of attention, as files and as pages call it.
        figures: paths of the tokens.
        cut: how many tokens charts and tables leave out.
        entries: tables of vocabulary entries: the nearest, and what the logit lens gives.
        story: what to choose from, to see all entries of one token; None without any.
        sheet: picture with all maps; ``tile`` units from one to the next, ``width`` and
            ``height`` of them all.
        maps: the tiles as links.
        exact: whether the data file holds the maps' numbers, too.
        queries, keys: tokens of the maps' rows and columns.
        carried: whether it holds the lengths of values, too.
        neurons: where the files with queries and keys are, up to the layer's number; empty without.
        untraced: why there are none.
        sources: what last states are made of; None where it was not measured.
        proposals: the passage as rules divide it into sentences; none for a single sentence.
    """

    stack: str
    title: str
    figures: tuple[Figure, ...]
    cut: int
    entries: tuple[EntriesTable, ...]
    story: Story | None
    sheet: str
    tile: int
    width: int
    height: int
    maps: tuple[MapLink, ...]
    exact: bool
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    carried: bool
    neurons: str
    untraced: str
    sources: Sources | None
    proposals: tuple[Proposal, ...]


@dataclass(frozen=True)
class TextOfSentence:
    """One side of a sentence.

    Attributes:
        side: source or target; empty where there is one text only.
        tokens: the text, token by token.
        remarks: what became of it: cut, or written by the model.
        tree: its dependency tree; None where it is not annotated.
    """

    side: str
    tokens: tuple[Token, ...]
    remarks: tuple[str, ...]
    tree: SentenceTree | None


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


def sentences_page(study: Study) -> SentencesPage:
    """The list of sentences."""
    chosen = study.portrait.listed
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


def sentence_pages(
    results: Mapping[str, StackResults], share: slice = EVERY
) -> Iterator[SentencePage]:
    """A page for each listed sentence.

    Args:
        share: of these sentences, those whose pages are made.
    """
    study = next(iter(results.values())).study
    chosen = study.portrait.listed
    tokens = dict(list(study.tokens.groupby("sentence", sort=False)))
    nearest = dict(list(study.nearest.groupby("sentence", sort=False)))
    for place, sentence in [*enumerate(chosen)][share]:
        before = chosen[place - 1].number if place else None
        after = chosen[place + 1].number if place + 1 < len(chosen) else None
        rows = tokens.get(sentence.number, study.tokens.iloc[:0])
        near = nearest.get(sentence.number, study.nearest.iloc[:0])
        stacks = (_stack(each, sentence, rows, near) for each in results.values())
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
        tree = sentence_tree(text, f"tree-{side}")
        yield TextOfSentence(name, running_text(text), tuple(remarks), tree)


def _stack(
    results: StackResults, sentence: ShownSentence, tokens: pd.DataFrame, near: pd.DataFrame
) -> StackOfSentence:
    study, stack = results.study, results.stack
    queries, keys = sentence.texts[stack.queries], sentence.texts[stack.keys]
    tokens = tokens[(tokens["stack"] == stack.name) & (tokens["position"] < MOST_TOKENS)]
    near = near[(near["stack"] == stack.name) & (near["position"] < MOST_TOKENS)]
    if stack.crosses:
        near = near.iloc[:0]  # the layers' outputs are those of the decoder
    maps = study.portrait.maps.get((stack.name, sentence.index))
    untraced = reason(results, sentence)
    tiles = () if maps is None else tuple(_tiles(stack))
    shown = {head: place for place, head in enumerate(range(stack.n_heads))}
    return StackOfSentence(
        stack=stack.name,
        title=STACKS[stack.name],
        figures=tuple(
            figures(tokens, stack, sentence.number, queries, _charts(study, stack, sentence))
        ),
        cut=max(0, len(queries.pieces) - MOST_TOKENS),
        entries=tuple(entries_tables(near)),
        story=story(near),
        sheet=f"data/sentences/{sentence_file(sentence.number)}-{stack.name}.png" if tiles else "",
        tile=TILE,
        width=TILE * len(shown),
        height=TILE * len(stack.attention_layers),
        maps=tiles,
        exact=exact(maps),
        queries=distinct(queries.pieces),
        keys=distinct(keys.pieces),
        carried=(stack.name, sentence.index) in study.portrait.norms,
        neurons="" if untraced else neuron_files(stack, sentence),
        untraced=untraced,
        sources=sources(_rollouts(study, stack, sentence), queries),
        proposals=proposals(
            results, queries, study.portrait.ends.get((stack.name, sentence.index))
        ),
    )


def _rollouts(study: Study, stack: Stack, sentence: ShownSentence) -> dict[str, NDArray[np.uint8]]:
    """What a sentence's last states are made of, by kind of rollout."""
    places = {str(kind): (stack.name, sentence.index, str(kind)) for kind in Rollout}
    found = study.portrait.rollouts
    return {kind: found[place] for kind, place in places.items() if place in found}


def _charts(study: Study, stack: Stack, sentence: ShownSentence) -> int:
    """How many charts a stack may have; the first stacks get what does not divide evenly."""
    stacks = study.manifest.stacks
    longest = max(len(text.pieces) for text in sentence.texts.values())
    most = min(MOST_CHARTS, MOST_LINES // min(longest, MOST_TOKENS))
    return len(range(stacks.index(stack), most, len(stacks)))


def _tiles(stack: Stack) -> Iterator[MapLink]:
    for row, layer in enumerate(stack.attention_layers):
        for head in range(stack.n_heads):
            name = HeadName(stack.name, layer, head)
            href = head_page(name)
            yield MapLink(head_name(name), href, layer, head, TILE * head, TILE * row)
