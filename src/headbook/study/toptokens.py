"""The tokens and pairs of tokens that each head favours, as a table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headbook.analysis.arithmetic import Floats, Ints, divide
from headbook.study.summaries.affinities import ANY, Affinities

TOP_TOKENS = (
    "stack", "layer", "head", "what", "query", "key",
    "count", "sentences", "mean", "low", "high", "chance", "ratio",
)  # fmt: skip
QUERY, KEY, PAIR = KINDS = ("query", "key", "pair")
LEAST = 5  # occurrences
MOST = 50  # rows of each kind and head


@dataclass(frozen=True, eq=False)
class Favoured:
    """Items of one kind for the heads of a layer, in the order in which each favours them.

    Attributes:
        item: places among the items of the sums. *Shape:* ``(head, row)``.
        count, sentences, chance: the same shape.
        mean, low, high: attention and its interval; the same shape.
    """

    item: Ints
    count: Ints
    sentences: Ints
    mean: Floats
    low: Floats
    high: Floats
    chance: Floats

    @property
    def ratio(self) -> Floats:
        """To uniform attention."""
        return divide(self.mean, self.chance)

    @property
    def clear(self) -> NDArray[np.bool_]:
        """Whether the whole interval lies above uniform attention."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.low > self.chance)


def favoured(sums: Affinities, layer: int, what: str) -> Favoured:
    """The items of a kind that occur often enough, for all heads of a layer.

    Those whose interval lies above uniform attention come first, then the larger ratio to it; ties
    in the order of entries.
    """
    named = {QUERY: (True, False), KEY: (False, True), PAIR: (True, True)}[what]
    kind = ((sums.query != ANY) == named[0]) & ((sums.key != ANY) == named[1])
    chosen = np.flatnonzero(kind & (sums.counts[0, layer] >= LEAST))
    ratios = sums.ratios(layer)[:, chosen]
    low, high = ratios.interval((0.0, np.inf if what == KEY else 1.0))
    chance = np.broadcast_to(sums.even[layer, chosen], low.shape)
    with np.errstate(invalid="ignore"):
        unclear = ~(low > chance)
    ratio = divide(ratios.value, chance)
    order = np.lexsort((-np.nan_to_num(ratio, nan=-1).round(9), unclear), axis=-1)[:, :MOST]

    def taken(part: NDArray[np.generic]) -> NDArray[np.generic]:
        return np.take_along_axis(np.broadcast_to(part, low.shape), order, -1)

    parts = (chosen, ratios.events.round().astype(int), ratios.sentences, ratios.value, low, high,
             chance)  # fmt: skip
    return Favoured(*map(taken, parts))  # type: ignore[arg-type]


def top_tokens_table(
    affinities: Mapping[str, Affinities], layers: Mapping[str, Sequence[int]]
) -> pd.DataFrame:
    """The first rows of each kind and head.

    Args:
        layers: by stack, the layers that have attention.
    """
    frames = [
        frame
        for stack, sums in affinities.items()
        for layer in layers[stack]
        for frame in _of_layer(stack, layer, sums)
    ]
    if not frames:
        return pd.DataFrame(columns=[*TOP_TOKENS])
    table = pd.concat(frames, ignore_index=True)
    kind = pd.Categorical(table["what"], KINDS)
    order = np.lexsort((kind.codes, table["head"], table["layer"]))
    stack = pd.Categorical(table["stack"], [*affinities]).codes
    order = order[np.argsort(stack[order], kind="stable")]
    return table.iloc[order].reset_index(drop=True)[[*TOP_TOKENS]]


def _of_layer(stack: str, layer: int, sums: Affinities) -> Iterator[pd.DataFrame]:
    for what in KINDS:
        found = favoured(sums, layer, what)
        heads, rows = found.item.shape
        if not rows:
            continue
        item = found.item.ravel()
        columns = {
            "query": sums.named(sums.query[item]),
            "key": sums.named(sums.key[item]),
            **{name: getattr(found, name).ravel() for name in TOP_TOKENS[6:]},
        }
        head = np.repeat(np.arange(heads), rows)
        yield pd.DataFrame(columns).assign(stack=stack, layer=layer, head=head, what=what)
