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
    "count", "sentences", "mean", "low", "high", "chance", "ratio", "mean_head", "mean_head_ratio",
)  # fmt: skip
QUERY, KEY, PAIR = KINDS = ("query", "key", "pair")
MOST = 50  # rows of each kind and head


@dataclass(frozen=True, eq=False)
class Favoured:
    """Items of one kind for the heads of a layer, in the order in which each favours them.

    Attributes:
        item: places among the items of the sums. *Shape:* ``(head, row)``.
        count, sentences: occurrences, and sentences with at least one; the same shape.
        mean, low, high: attention and its interval; the same shape.
        chance, mean_head: attention under uniform attention, and the mean over all heads; the same
            shape.
    """

    item: Ints
    count: Ints
    sentences: Ints
    mean: Floats
    low: Floats
    high: Floats
    chance: Floats
    mean_head: Floats

    @property
    def ratio(self) -> Floats:
        """Ratio to uniform attention."""
        return divide(self.mean, self.chance)

    @property
    def mean_head_ratio(self) -> Floats:
        """Ratio to the mean head."""
        return divide(self.mean, self.mean_head)

    @property
    def clear(self) -> NDArray[np.bool_]:
        """Whether the whole interval lies above uniform attention and above the mean head."""
        with np.errstate(invalid="ignore"):
            return np.asarray((self.low > self.chance) & (self.low > self.mean_head))


def favoured(sums: Affinities, layer: int, what: str) -> Favoured:
    """Return the items of a kind that occur in enough sentences, for all heads of a layer.

    Those whose interval lies above uniform attention and above the mean head come first, then the
    larger ratio to uniform attention; ties in the order of entries.
    """
    named = {QUERY: (True, False), KEY: (False, True), PAIR: (True, True)}[what]
    kind = ((sums.query != ANY) == named[0]) & ((sums.key != ANY) == named[1])
    chosen = np.flatnonzero(kind & sums.distinct(layer))
    ratios = sums.ratios(layer)[:, chosen]
    low, high = ratios.interval((0.0, np.inf if what == KEY else 1.0))
    parts = (chosen, ratios.events.round().astype(int), ratios.sentences, ratios.value, low, high,
             sums.even[layer, chosen], sums.mean_head[chosen])  # fmt: skip
    every = Favoured(*(np.broadcast_to(part, low.shape) for part in parts))
    ratio = np.nan_to_num(every.ratio, nan=-1).round(9)
    order = np.lexsort((-ratio, ~every.clear), axis=-1)[:, :MOST]
    return Favoured(*(np.take_along_axis(part, order, -1) for part in vars(every).values()))


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
