"""What views make of a stored map: the same numbers as on pages, whose script is `weights.js`."""

from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arithmetic import Floats
from headbook.pages.widgets.instance import text_data
from headbook.study.sentencedata import STEPS, StoredText

NAN = float("nan")


class Weighting(StrEnum):
    """What is drawn of a map; the values are those of the switch on pages."""

    RAW = "raw"
    NOSINK = "nosink"
    RENORM = "renorm"
    NORM = "norm"


class Axis(NamedTuple):
    """The tokens of rows or columns, and their words.

    Attributes:
        sink: whether a token is one, see `StoredText.sink`.
        units: by token, the number of its word; a token without one is a word by itself.
        names: of the words.
    """

    pieces: tuple[str, ...]
    sink: NDArray[np.bool_]
    units: NDArray[np.int64]
    names: tuple[str, ...]

    @classmethod
    def of(cls, text: StoredText, *, causal: bool) -> "Axis":
        """One side of a sentence."""
        data = text_data(text)
        units = np.array(data["units"], np.int64)
        return cls(text.pieces, text.sink(causal=causal), units, tuple(data["names"]))


class StoredMap(NamedTuple):
    """A head's weights in one sentence.

    Attributes:
        steps: before any view, in steps of 1/255. *Shape:* ``(query, key)``.
        norms: length of each key's value after the head's part of W_O; empty where not known.
    """

    steps: NDArray[np.uint8]
    queries: Axis
    keys: Axis
    causal: bool
    norms: NDArray[np.float32]

    def names(self, *, words: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What rows and columns are called."""
        if words:
            return self.queries.names, self.keys.names
        return self.queries.pieces, self.keys.pieces

    def weights(self, weighting: Weighting, *, words: bool) -> Floats:
        """The map in a view; not a number where there is nothing to see.

        Returns:
            *Shape:* ``(query, key)``, of tokens or of words.
        """
        between = self._of_pieces(weighting)
        return self._of_words(between) if words else between

    def _of_pieces(self, weighting: Weighting) -> Floats:
        values = self.steps / np.float64(STEPS)
        if self.causal:
            values[np.triu(np.ones(values.shape, bool), 1)] = NAN
        if weighting in {Weighting.NOSINK, Weighting.RENORM}:
            values[:, self.keys.sink] = NAN
        if weighting is Weighting.NORM:
            values *= self.norms
        if weighting in {Weighting.RENORM, Weighting.NORM}:
            left = np.nansum(values, axis=1, keepdims=True)
            values = np.divide(values, left, out=np.full_like(values, NAN), where=left > 0)
        return values

    def _of_words(self, between: Floats) -> Floats:
        """To a word the sum over its tokens, from a word the mean over those that count.

        Those that count are no sink themselves, unless all tokens of the word are.
        """
        looked = self.keys.units[:, None] == np.arange(len(self.keys.names))
        of_words = np.full((len(self.queries.names), len(self.keys.names)), NAN)
        for word in range(len(of_words)):
            own = self.queries.units == word
            counted = own & ~self.queries.sink
            rows = between[counted if counted.any() else own]
            rows = rows[~np.isnan(rows).all(axis=1)]
            seen = (~np.isnan(rows) @ looked).any(axis=0)
            of_words[word, seen] = (np.nan_to_num(rows) @ looked).sum(axis=0)[seen] / len(rows)
        return of_words


def fewest(row: Floats, share: float) -> list[int]:
    """The fewest keys that hold a share of a row, strongest first; the first of equals first."""
    held = np.nan_to_num(row)
    order = np.argsort(-held.round(12), kind="stable")  # sums that differ by rounding are equal
    before = np.cumsum(held[order]) - held[order]
    kept: list[int] = order[(before < (share - 1e-9) * held.sum()) & (held[order] > 0)].tolist()
    return kept
