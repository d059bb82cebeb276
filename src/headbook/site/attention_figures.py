"""Figures of one head in one sentence, for every stored map."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import StrEnum
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headbook.analysis.arrays import Floats
from headbook.charts import AttentionLine, Drawing, attention_lines, attention_map
from headbook.pages.parts.sentence_maps import text_data
from headbook.report.results import StackResults
from headbook.report.wording import sentence_file
from headbook.results.formats import head_file, head_name
from headbook.schema import HeadName, heads_of
from headbook.study.sentence_data import UINT8_STEPS, StoredSentence, StoredText

NAN = float("nan")


class Weighting(StrEnum):
    """Weighting of a map; values are those of the switch on pages."""

    RAW = "raw"
    NOSINK = "nosink"
    RENORM = "renorm"
    NORM = "norm"


class MapAxis(NamedTuple):
    """The tokens of rows or columns, and their words.

    Attributes:
        pieces: tokens as printed.
        sink: mask of the tokens in the sink, see `StoredText.sink`.
        units: number of the word of each token; a token outside words is a unit of its own.
        names: names of the words.
    """

    pieces: tuple[str, ...]
    sink: NDArray[np.bool_]
    units: NDArray[np.int64]
    names: tuple[str, ...]

    @classmethod
    def of(cls, text: StoredText, *, causal: bool) -> "MapAxis":
        """Return one side of a sentence."""
        data = text_data(text)
        units = np.array(data["units"], np.int64)
        return cls(text.pieces, text.sink(causal=causal), units, tuple(data["names"]))


class StoredMap(NamedTuple):
    """A head's weights in one sentence.

    Attributes:
        steps: weights of all keys in steps of 1/255. *Shape:* ``(query, key)``.
        norms: norm of each key's value after the head's slice of W_O; empty if unknown.
    """

    steps: NDArray[np.uint8]
    queries: MapAxis
    keys: MapAxis
    causal: bool
    norms: NDArray[np.float32]

    def names(self, *, words: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the names of rows and columns."""
        if words:
            return self.queries.names, self.keys.names
        return self.queries.pieces, self.keys.pieces

    def weights(self, weighting: Weighting, *, words: bool) -> Floats:
        """Return the map in a view; NaN if a query cannot see a key.

        Returns:
            *Shape:* ``(query, key)``, of tokens or of words.
        """
        weights = self._of_pieces(weighting)
        return self._of_words(weights) if words else weights

    def _of_pieces(self, weighting: Weighting) -> Floats:
        values = self.steps / np.float64(UINT8_STEPS)
        if self.causal:
            values[np.triu(np.ones(values.shape, bool), 1)] = NAN
        if weighting in {Weighting.NOSINK, Weighting.RENORM}:
            values[:, self.keys.sink] = NAN
        if weighting is Weighting.NORM:
            values *= self.norms
        if weighting in {Weighting.RENORM, Weighting.NORM}:
            row_sums = np.nansum(values, axis=1, keepdims=True)
            values = np.divide(values, row_sums, out=np.full_like(values, NAN), where=row_sums > 0)
        return values

    def _of_words(self, token_weights: Floats) -> Floats:
        """Return weights of words: sums over tokens of the key, means over tokens of the query.

        Query tokens in the sink are left out of the mean, unless all tokens are in the sink.
        """
        key_in_word = self.keys.units[:, None] == np.arange(len(self.keys.names))
        word_weights = np.full((len(self.queries.names), len(self.keys.names)), NAN)
        for word in range(len(word_weights)):
            in_word = self.queries.units == word
            ordinary = in_word & ~self.queries.sink
            rows = token_weights[ordinary if ordinary.any() else in_word]
            rows = rows[~np.isnan(rows).all(axis=1)]
            is_visible = (~np.isnan(rows) @ key_in_word).any(axis=0)
            sums = (np.nan_to_num(rows) @ key_in_word).sum(axis=0)
            word_weights[word, is_visible] = sums[is_visible] / len(rows)
        return word_weights


def fewest(row: Floats, share: float) -> list[int]:
    """Return the fewest keys that have a share of a row, the strongest keys first."""
    weights = np.nan_to_num(row)
    order = np.argsort(-weights.round(12), kind="stable")  # sums that differ by rounding are equal
    before = np.cumsum(weights[order]) - weights[order]
    is_needed = (before < (share - 1e-9) * weights.sum()) & (weights[order] > 0)
    keys: list[int] = order[is_needed].tolist()
    return keys


LINES_SHARE = 0.9  # of the weights of a query, which its lines show
KINDS = ("map", "lines")
COLUMNS = ("query_position", "query", "key_position", "key", "weight")
VIEW_TITLES = {
    Weighting.RAW: "Weights of all keys, stored with 8 bits",
    Weighting.NOSINK: "Weights with the sink masked, stored with 8 bits",
    Weighting.RENORM: "Weights with the sink masked and renormalised, stored with 8 bits",
    Weighting.NORM: (
        "Weights times the norm of the key's value after W_O, each row divided by its sum, stored "
        "with 8 bits"
    ),
}


class Variant(NamedTuple):
    """Weighting of a map, and whether the map is of words or of tokens."""

    weighting: Weighting = Weighting.RAW
    words: bool = False

    @property
    def ending(self) -> str:
        """Ending of the names of figures; empty for unchanged weights of tokens."""
        weighting = "" if self.weighting is Weighting.RAW else f"-{self.weighting}"
        return f"{weighting}-words" if self.words else weighting


VARIANTS = [Variant(*pair) for pair in product(Weighting, (False, True))]


class HeadInSentence(NamedTuple):
    """A head in a sentence."""

    head: HeadName
    sentence: StoredSentence
    map: StoredMap


def single_name(kind: str, number: int, head: HeadName) -> str:
    """Return the name of a figure, such as ``map-S0002-L02-H00``, with an ending by view."""
    return f"{kind}-S{sentence_file(number)}-{head_file(head)}"


def stored_maps(results: StackResults) -> Iterator[tuple[int, HeadName]]:
    """Return the sentences, by index, and the heads whose maps are stored."""
    sentence_data, stack = results.study.sentence_data, results.stack
    heads = heads_of(stack)
    listed = [
        sentence.index
        for sentence in sentence_data.listed
        if (stack.name, sentence.index) in sentence_data.maps
    ]
    yield from ((index, head) for index in listed for head in heads)
    exemplar_maps = {
        (exemplar.index, exemplar.head)
        for exemplar in sentence_data.exemplars
        if exemplar.head.stack == stack.name
    }
    yield from sorted(stored_map for stored_map in exemplar_maps if stored_map[0] not in {*listed})


def attention_figures(results: StackResults, wanted: Callable[[str], bool]) -> Iterator[Drawing]:
    """Yield the figures whose names are wanted, with their numbers."""
    for index, head in stored_maps(results):
        names = {kind: single_name(kind, index + 1, head) for kind in KINDS}
        requested = [
            (variant, kind)
            for variant, kind in product(VARIANTS, KINDS)
            if wanted(names[kind] + variant.ending)
        ]
        if not requested:
            continue
        single = _single(results, index, head)
        for variant, kind in requested:
            if variant.weighting is not Weighting.NORM or len(single.map.norms):
                yield _picture(single, kind, variant, names[kind] + variant.ending)


def _single(results: StackResults, index: int, head: HeadName) -> HeadInSentence:
    sentence_data, stack = results.study.sentence_data, results.stack
    maps, norms = (
        by_sentence.get((stack.name, index))
        for by_sentence in (sentence_data.maps, sentence_data.norms)
    )
    sentence, no_norms = sentence_data.sentences[index], np.zeros(0, np.float32)
    if maps is None:
        exemplar = next(
            candidate
            for candidate in sentence_data.exemplars
            if (candidate.index, candidate.head) == (index, head)
        )
        steps, head_norms = exemplar.attention, exemplar.norms
    else:
        steps = maps[head.layer, head.head]
        head_norms = no_norms if norms is None else norms[head.layer, head.head]
    texts = (sentence.texts[side] for side in (stack.queries, stack.keys))
    queries, keys = (MapAxis.of(text, causal=stack.causal) for text in texts)
    return HeadInSentence(head, sentence, StoredMap(steps, queries, keys, stack.causal, head_norms))


def _picture(single: HeadInSentence, kind: str, variant: Variant, name: str) -> Drawing:
    values = single.map.weights(variant.weighting, words=variant.words)
    queries, keys = single.map.names(words=variant.words)
    weight_name = "norm-weighted" if variant.weighting is Weighting.NORM else "attention weight"
    caption = _caption(single, kind, variant)
    if kind == "map":
        visible_cells = np.argwhere(~np.isnan(values))
        links = [
            AttentionLine(int(query), int(key), float(values[query, key]))
            for query, key in visible_cells
        ]
        drawing = attention_map(name, caption, queries, keys, weights=values, about=weight_name)
    else:
        links = [
            AttentionLine(query, key, float(row[key]))
            for query, row in enumerate(values)
            for key in fewest(row, LINES_SHARE)
        ]
        drawing = attention_lines(name, caption, queries, keys, links, about=weight_name)
    rows = [(query, queries[query], key, keys[key], weight) for query, key, weight in links]
    return replace(drawing, rows=pd.DataFrame(rows, columns=[*COLUMNS]))


def _caption(single: HeadInSentence, kind: str, variant: Variant) -> str:
    units = "words" if variant.words else "tokens"
    title = f"Attention of head {head_name(single.head)} in sentence {single.sentence.number}"
    if kind == "map":
        axes = f"Rows: query {units}, columns: key {units}"
        if single.map.causal:
            axes += "; later keys are blank"
    else:
        axes = (
            f"Left: query {units}, right: key {units}; of each query the fewest links with "
            f"{LINES_SHARE:.0%} of its weights".replace("%", " %")
        )
    weights = VIEW_TITLES[variant.weighting]
    if variant.words:
        weights += "; to a word the sum over its tokens, from a word the mean"
    return f"{title}, {kind}. {axes}. {weights}."
