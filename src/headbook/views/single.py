"""One head in one sentence as figures: its map and its lines, for every map that a study keeps."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headbook.charts import Drawing, Link, attention_lines, attention_map
from headbook.numbers.results import StackResults
from headbook.stored.shown import STEPS, HeadName, ShownSentence, heads_of
from headbook.wording import head_file, head_name, sentence_file

SHARE = 0.9  # of a row, which the lines of a query hold
KINDS = ("map", "lines")


class Single(NamedTuple):
    """A head in a sentence.

    Attributes:
        causal: whether a token looks at none that come later.
        queries, keys: the tokens of rows and columns.
        steps: weights before any view, in steps of 1/255. *Shape:* ``(query, key)``.
    """

    head: HeadName
    sentence: ShownSentence
    causal: bool
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    steps: NDArray[np.uint8]

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Which keys a query can look at; the shape of ``steps``."""
        every = np.ones(self.steps.shape, bool)
        return np.tril(every) if self.causal else every

    @property
    def links(self) -> list[Link]:
        """Of each query the fewest keys that hold `SHARE` of its weights, strongest first."""
        found = []
        for query, row in enumerate(self.steps.astype(np.int64)):
            order = np.argsort(-row, kind="stable")
            before = np.cumsum(row[order]) - row[order]
            kept = order[(before < SHARE * row.sum()) & (row[order] > 0)]
            found += [Link(query, int(key), int(row[key]) / STEPS) for key in kept]
        return found


def single_name(kind: str, number: int, head: HeadName) -> str:
    """What files call a figure, such as ``map-S0002-L02-H00``."""
    return f"{kind}-S{sentence_file(number)}-{head_file(head)}"


def singles(results: StackResults) -> Iterator[tuple[int, HeadName]]:
    """The sentences, by index, and heads whose maps are kept: of listed sentences, of exemplars."""
    portrait, stack = results.study.portrait, results.stack
    heads = heads_of(stack)
    listed = [s.index for s in portrait.listed if (stack.name, s.index) in portrait.maps]
    yield from ((index, head) for index in listed for head in heads)
    own = {(e.index, e.head) for e in portrait.exemplars if e.head.stack == stack.name}
    yield from sorted(place for place in own if place[0] not in {*listed})


def pictures(results: StackResults, wanted: Callable[[str], bool]) -> Iterator[Drawing]:
    """The figures whose names are wanted, with their numbers."""
    exemplars = {(e.index, e.head): e.attention for e in results.study.portrait.exemplars}
    for index, head in singles(results):
        names = [single_name(kind, index + 1, head) for kind in KINDS]
        if any(map(wanted, names)):
            single = _single(results, index, head, exemplars.get((index, head)))
            both = _map(single, names[0]), _lines(single, names[1])
            yield from (drawn for drawn in both if wanted(drawn.name))


def _single(
    results: StackResults, index: int, head: HeadName, exemplar: NDArray[np.uint8] | None
) -> Single:
    portrait, stack = results.study.portrait, results.stack
    maps, sentence = portrait.maps.get((stack.name, index)), portrait.sentences[index]
    steps = exemplar if maps is None else maps[head.layer, head.head]
    assert steps is not None
    queries, keys = (sentence.texts[side].pieces for side in (stack.queries, stack.keys))
    return Single(head, sentence, stack.causal, queries, keys, steps)


def _map(single: Single, name: str) -> Drawing:
    shown = "Rows are the tokens that look, columns what they look at"
    if single.causal:
        shown += "; keys that come later are left blank"
    caption = _caption(single, "map", shown)
    tokens = single.queries, single.keys
    drawn = attention_map(name, caption, *tokens, steps=single.steps, seen=single.seen)
    seen = [(int(q), int(k)) for q, k in np.argwhere(single.seen)]
    links = [Link(q, k, int(single.steps[q, k]) / STEPS) for q, k in seen]
    return replace(drawn, rows=_rows(single, links))


def _lines(single: Single, name: str) -> Drawing:
    shown = (
        "Tokens that look are on the left, on the right what they look at; of each the fewest "
        f"links that hold {SHARE:.0%} of its weights".replace("%", " %")
    )
    caption = _caption(single, "lines", shown)
    drawn = attention_lines(name, caption, single.queries, single.keys, single.links)
    return replace(drawn, rows=_rows(single, single.links))


def _caption(single: Single, kind: str, shown: str) -> str:
    title = f"Attention of head {head_name(single.head)} in sentence {single.sentence.number}"
    return f"{title}, {kind}. {shown}. Weights before any view (raw), in steps of 1/255."


def _rows(single: Single, links: list[Link]) -> pd.DataFrame:
    rows = [(q, single.queries[q], k, single.keys[k], weight) for q, k, weight in links]
    names = ("query_position", "query", "key_position", "key", "weight")
    return pd.DataFrame(rows, columns=[*names])
