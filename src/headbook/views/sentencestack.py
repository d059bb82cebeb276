"""What happens in one stack of a model to the tokens of one sentence."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headbook.charts import Figure
from headbook.numbers.results import StackResults
from headbook.stored.shown import HeadName, ShownSentence
from headbook.stored.study import Study
from headbook.terms import Rollout, Stack
from headbook.views.entries import EntriesTable, Story, entries_tables, story
from headbook.views.instance import exact
from headbook.views.neurons import neuron_files, reason
from headbook.views.passage import Proposal, proposals
from headbook.views.paths import figures
from headbook.views.sources import Sources, sources
from headbook.views.text import distinct
from headbook.wording import STACKS, head_name, head_page, sentence_file

MOST_TOKENS = 48  # of a sentence's tokens in charts and tables; the files have them all
MOST_CHARTS = 8  # pictures on a page; its stacks share them
MOST_LINES = 250  # of tokens in all pictures of a page
MOST_POINTS = 4_000  # of these lines, one a state; a page of 300 kB has no room for more
MOST_LINKS = 400  # to heads from maps on a page; of more heads, one link moves from map to map
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
        live: those that the page has no room for as pictures; scripts draw them.
        cut: how many tokens charts and tables leave out.
        entries: tables of vocabulary entries: the nearest, and what the logit lens gives.
        story: what to choose from, to see all entries of one token; None without any.
        sheet: picture with all maps; ``tile`` units from one to the next, ``width`` and
            ``height`` of them all.
        maps: the tiles as links; where there are too many, the first of each layer.
        heads: how many heads a layer has.
        moving: whether scripts make one link of them, which moves over all tiles.
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
    live: tuple[Figure, ...]
    cut: int
    entries: tuple[EntriesTable, ...]
    story: Story | None
    sheet: str
    tile: int
    width: int
    height: int
    maps: tuple[MapLink, ...]
    heads: int
    moving: bool
    exact: bool
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    carried: bool
    neurons: str
    untraced: str
    sources: Sources | None
    proposals: tuple[Proposal, ...]


def stack_of(
    results: StackResults, sentence: ShownSentence, tokens: pd.DataFrame, near: pd.DataFrame
) -> StackOfSentence:
    """A sentence in a stack.

    Args:
        tokens: its rows of `headbook.stored.shown.TOKENS`.
        near: its rows of `headbook.stored.shown.NEAREST`.
    """
    study, stack = results.study, results.stack
    queries, keys = sentence.texts[stack.queries], sentence.texts[stack.keys]
    tokens = tokens[(tokens["stack"] == stack.name) & (tokens["position"] < MOST_TOKENS)]
    near = near[(near["stack"] == stack.name) & (near["position"] < MOST_TOKENS)]
    if stack.crosses:
        near = near.iloc[:0]  # the layers' outputs are those of the decoder
    maps = study.portrait.maps.get((stack.name, sentence.index))
    untraced = reason(results, sentence)
    heads = sum(len(each.attention_layers) * each.n_heads for each in study.manifest.stacks)
    moving = heads > MOST_LINKS
    tiles = () if maps is None else tuple(_tiles(stack, 1 if moving else stack.n_heads))
    charts = tuple(figures(tokens, stack, sentence.number, queries))
    room = _charts(study, stack, sentence)
    return StackOfSentence(
        stack=stack.name,
        title=STACKS[stack.name],
        figures=charts[:room],
        live=charts[room:],
        cut=max(0, len(queries.pieces) - MOST_TOKENS),
        entries=tuple(entries_tables(near)),
        story=story(near),
        sheet=f"data/sentences/{sentence_file(sentence.number)}-{stack.name}.png" if tiles else "",
        tile=TILE,
        width=TILE * stack.n_heads,
        height=TILE * len(stack.attention_layers),
        maps=tiles,
        heads=stack.n_heads,
        moving=moving,
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
    """How many pictures a stack may have; the first stacks get what does not divide evenly."""
    stacks = study.manifest.stacks
    longest = max(len(text.pieces) for text in sentence.texts.values())
    lines = min(longest, MOST_TOKENS)
    states = 1 + max(each.n_layers for each in stacks)
    most = min(MOST_CHARTS, MOST_LINES // lines, MOST_POINTS // (lines * states))
    return len(range(stacks.index(stack), most, len(stacks)))


def _tiles(stack: Stack, heads: int) -> Iterator[MapLink]:
    """Links to the first heads of each layer."""
    for row, layer in enumerate(stack.attention_layers):
        for head in range(heads):
            name = HeadName(stack.name, layer, head)
            href = head_page(name)
            yield MapLink(head_name(name), href, layer, head, TILE * head, TILE * row)
