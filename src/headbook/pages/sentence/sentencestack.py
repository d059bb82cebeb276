"""What happens in one stack of a model to the tokens of one sentence."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headbook.pages.sentence.entries import Entries, entries
from headbook.pages.sentence.workpanel import CitedMap, Start, cited, cited_maps, citing, start
from headbook.pages.widgets.instance import exact
from headbook.pages.widgets.neurons import neuron_files, reason
from headbook.pages.widgets.passage import Proposal, proposals
from headbook.pages.widgets.paths import MOST_TOKENS, drawn_metrics
from headbook.pages.widgets.sources import Sources, sources
from headbook.report.numbers.results import StackResults
from headbook.report.wording import STACKS, sentence_file
from headbook.study.sentencedata import StoredSentence
from headbook.study.study import Study
from headbook.terms import Rollout, Stack

WIDEST = 1344  # pixels of the grid of maps on the widest page
LARGEST = 112  # from one map to the next
SMALLEST = 24  # the same, as small as a target may be


@dataclass(frozen=True)
class StackOfSentence:
    """One stack in a sentence.

    Attributes:
        stack, title: the kind of attention, as files and as pages call it.
        layers: layer numbers from the top of the grid of maps.
        heads: how many heads a layer has.
        sheet: picture with all maps, ``width`` and ``height`` on the widest page; empty where the
            page has only the maps of the heads that cite the sentence.
        cited: those maps.
        uncited: how many more heads cite it, for whose maps there is no room.
        few: whether the picture has few shades, since scripts draw it with all of them.
        exact: whether the data file holds the maps' numbers, too.
        start: what the work panel begins with; None without numbers.
        carried: whether the data file holds the lengths of values, too.
        neurons: where the files with queries and keys are, up to the layer's number; empty without.
        untraced: why there are none.
        paths: titles of the metrics whose paths a script draws.
        cut: how many tokens it leaves out.
        entries: the vocabulary tokens nearest to the first chosen token; None without any.
        sources: what last states are made of; None where it was not measured.
        proposals: the passage as rules divide it into sentences; none for a single sentence.
    """

    stack: str
    title: str
    layers: tuple[int, ...]
    heads: int
    sheet: str
    width: int
    height: int
    cited: tuple[CitedMap, ...]
    uncited: int
    few: bool
    exact: bool
    start: Start | None
    carried: bool
    neurons: str
    untraced: str
    paths: tuple[str, ...]
    cut: int
    entries: Entries | None
    sources: Sources | None
    proposals: tuple[Proposal, ...]


def stack_of(
    results: StackResults, sentence: StoredSentence, tokens: pd.DataFrame, near: pd.DataFrame
) -> StackOfSentence:
    """A sentence in a stack.

    Args:
        tokens: its rows of `headbook.study.sentencedata.TOKENS`.
        near: its rows of `headbook.study.sentencedata.NEAREST`.
    """
    study, stack = results.study, results.stack
    queries = sentence.texts[stack.queries]
    place = stack.name, sentence.index
    maps = study.sentence_data.maps.get(place)
    some = maps is None  # of its heads
    near = near[near["stack"] == stack.name]
    if stack.crosses:
        near = near.iloc[:0]  # the layers' outputs are those of the decoder
    untraced = reason(results, sentence)
    begun = start(results, sentence, maps)
    found = cited_maps(results, sentence)
    width, height = _size(stack, maps)
    norms = study.sentence_data.norms
    return StackOfSentence(
        stack=stack.name,
        title=STACKS[stack.name],
        layers=stack.attention_layers,
        heads=stack.n_heads,
        sheet="" if some else sheet_file(sentence, stack),
        width=width,
        height=height,
        cited=tuple(cited(found)) if some else (),
        uncited=citing(results, sentence) - len(found) if some else 0,
        few=few_shades(stack, maps),
        exact=bool(found) if some else exact(maps),
        start=begun if some or exact(maps) else None,
        carried=any(len(e.norms) for exemplars in found.values() for e in exemplars)
        if some
        else place in norms,
        neurons="" if untraced else neuron_files(stack, sentence),
        untraced="" if some else untraced,
        paths=drawn_metrics(tokens[tokens["stack"] == stack.name]),
        cut=max(0, len(queries.pieces) - MOST_TOKENS),
        entries=entries(near, begun.query if begun else 0),
        sources=sources(_rollouts(study, stack, sentence), queries),
        proposals=proposals(results, queries, study.sentence_data.ends.get(place)),
    )


def sheet_file(sentence: StoredSentence, stack: Stack) -> str:
    """Where the picture with all maps of a sentence stands."""
    return f"data/sentences/{sentence_file(sentence.number)}-{stack.name}.png"


def pitch(stack: Stack) -> int:
    """Pixels from one map to the next on the widest page."""
    return max(SMALLEST, min(LARGEST, WIDEST // stack.n_heads))


def few_shades(stack: Stack, maps: NDArray[np.uint8] | None) -> bool:
    """Whether scripts draw all maps of a sentence anew: they know them, and no map is shrunk."""
    return maps is not None and exact(maps) and max(maps.shape[2:]) <= 2 * pitch(stack)


def _size(stack: Stack, maps: NDArray[np.uint8] | None) -> tuple[int, int]:
    """Width and height of the grid of maps."""
    if maps is None:
        return 0, 0
    rows, columns = (n + 1 for n in maps.shape[2:])
    width = pitch(stack) * stack.n_heads
    height = pitch(stack) * len(stack.attention_layers) * rows / columns
    return width, round(height)


def _rollouts(study: Study, stack: Stack, sentence: StoredSentence) -> dict[str, NDArray[np.uint8]]:
    """What a sentence's last states are made of, by kind of rollout."""
    places = {str(kind): (stack.name, sentence.index, str(kind)) for kind in Rollout}
    found = study.sentence_data.rollouts
    return {kind: found[place] for kind, place in places.items() if place in found}
