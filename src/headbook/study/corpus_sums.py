"""Everything that is kept of the pass over all sentences, by stack; merges with `+`."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import (
    HashSample,
    RatioSums,
    TopK,
    add_fields,
    shift_fields,
)
from headbook.analysis.arrays import Floats, Ints, divide
from headbook.metrics import all_metrics, ids
from headbook.metrics.base import FinishedRatios, SampledMetric
from headbook.schema import AttentionStack, HeadKey, SinkView, TokenKey
from headbook.study.ablation import AblationResults
from headbook.study.buckets import HeadBuckets, Kind, SentenceSet, TokenBuckets
from headbook.study.buckets import merge_buckets as buckets_together
from headbook.study.groups import GroupSums, PairMembers, merge_groups
from headbook.study.state_geometry import GeometrySums
from headbook.study.token_sums import Affinities, Anchors, TokenTypeSums
from headbook.study.word_samples import PairCells, StrongestWords

FIRST = 12  # positions of queries and of keys that are kept
FIRST_OF_MANY = 8  # where a layer has `MANY` heads or more
MANY = 24


def kept_positions(stack: AttentionStack) -> int:
    """How many positions are kept of a stack's maps."""
    return FIRST_OF_MANY if stack.n_heads >= MANY else FIRST


@dataclass(frozen=True, eq=False)
class PositionSums:
    """Attention between the first positions of one stack, summed over all sentences.

    All keys as the model weights them, and all queries, special tokens included. A key that a
    query may not see adds 0.

    Attributes:
        total: weights added up. *Shape:* ``(layer, head, query, key)``.
        count: sentences long enough for a query and a key there. *Shape:* ``(query, key)``.
    """

    total: Floats
    count: Ints

    __add__ = add_fields

    @property
    def mean(self) -> Floats:
        """Mean weight; NaN where no sentence is long enough. The shape of ``total``."""
        found: Floats = divide(self.total, self.count.astype(np.float64))
        return found

    @classmethod
    def zero(cls, stack: AttentionStack) -> "PositionSums":
        """Sums of no sentence."""
        side = kept_positions(stack)
        cells = (stack.n_layers, stack.n_heads, side, side)
        return cls(np.zeros(cells), np.zeros((side, side), np.int64))


@dataclass(frozen=True, eq=False)
class HeadTable:
    """Numbers of the heads of one stack.

    Attributes:
        columns: what the last dimension of the sums holds.
        heads: *Shape:* ``(layer, head, column)``.
        layers: the same, heads of a layer added up. *Shape:* ``(layer, column)``.
        uniform: the same measures on uniform attention. *Shape:* ``(layer, column)``.
    """

    columns: tuple[HeadKey, ...]
    heads: RatioSums
    layers: RatioSums
    uniform: RatioSums

    __add__ = add_fields

    def scaled(self, by: float) -> "HeadTable":
        """All sums times a number."""
        parts = (self.heads, self.layers, self.uniform)
        return HeadTable(self.columns, *(RatioSums(part.sums * by) for part in parts))


@dataclass(frozen=True, eq=False)
class HeadSums:
    """The attention of one stack over all sentences.

    Attributes:
        table: sums of the metrics.
        strongest: sentences by their largest single weight without the sink, for each head.
        sample: that weight for a sample of sentences, from which quantiles are taken.
        positions: attention between the first positions.
        mass_off_sink: sentences by the mean of what queries give to keys off the sink.
        strongest_words: of a sample of sentences, or None if neither relations nor surface rules
            are asked for.
        groups: sums of the metrics by metadata column and value.
        members: values of single sentences that form pairs, or None where none do.
    """

    table: HeadTable
    strongest: TopK
    sample: HashSample
    positions: PositionSums
    mass_off_sink: TopK
    strongest_words: StrongestWords | None = None
    groups: tuple[GroupSums, ...] = ()
    members: PairMembers | None = None

    def __add__(self, other: "HeadSums") -> "HeadSums":
        words = self.strongest_words, other.strongest_words
        return add_fields(
            self,
            other,
            strongest_words=words[0] + words[1] if words[0] and words[1] else None,
            groups=merge_groups([*self.groups, *other.groups]),
        )

    shifted = shift_fields


class SampleColumn(NamedTuple):
    """Which statistics belong together, and how many there are."""

    metric: str
    view: SinkView
    width: int


@dataclass(frozen=True, eq=False)
class SampleSums:
    """What is kept of each sampled sentence, for one stack.

    Attributes:
        columns: what the last dimension holds, side by side.
        stats: *Shape* of the payload: ``(kept, layer, head + 2, statistic)``; after the heads
            come uniform attention and the sentence itself.
        cells: attention by parts of speech and distance, or None if no metric asks for it.
    """

    columns: tuple[SampleColumn, ...]
    stats: HashSample
    cells: PairCells | None = None

    def __add__(self, other: "SampleSums") -> "SampleSums":
        cells = self.cells + other.cells if self.cells and other.cells else None
        return add_fields(self, other, cells=cells)

    shifted = shift_fields


class PairColumn(NamedTuple):
    """What one number of two heads is."""

    metric: str
    view: SinkView


@dataclass(frozen=True, eq=False)
class HellingerSums:
    """How alike every two heads of a stack are, by Bhattacharyya's affinity.

    Attributes:
        total: affinities of rows added up; symmetric. *Shape:* ``(column, head, head)``.
        rows: number of those rows; the same shape.
    """

    total: NDArray[np.float64]
    rows: NDArray[np.float64]

    __add__ = add_fields

    @property
    def apart(self) -> NDArray[np.float64]:
        """Squared Hellinger distances; NaN without rows, 0 of a head to itself."""
        found: NDArray[np.float64] = np.full(self.total.shape, np.nan)
        np.divide(self.total, self.rows, out=found, where=self.rows > 0)
        found = np.clip(1 - found, 0, 1)
        found[:, np.eye(found.shape[1], dtype=bool)] = 0
        return found


@dataclass(frozen=True, eq=False)
class HeadDistances:
    """Metrics of every two heads of a stack, over sampled sentences.

    Heads are numbered through all layers that have attention.

    Attributes:
        columns: what the first dimension holds.
        total: values of rows added up, over rows that count in both heads; symmetric. *Shape:*
            ``(column, head, head)``.
        rows: number of those rows; the same shape. 0 for pairs that were not compared.
        sentences: number of sentences.
        alike: of all pairs, where not all were compared; else None.
    """

    columns: tuple[PairColumn, ...]
    total: NDArray[np.float64]
    rows: NDArray[np.float64]
    sentences: int
    alike: HellingerSums | None = None

    __add__ = add_fields


@dataclass(frozen=True, eq=False)
class TokenSums:
    """The states of one stack.

    Attributes:
        columns: what the last dimension holds.
        layers: *Shape:* ``(layer, column)``.
    """

    columns: tuple[TokenKey, ...]
    layers: RatioSums

    __add__ = add_fields


@dataclass(frozen=True, eq=False)
class CorpusSums:
    """All that is kept of the pass over all sentences.

    Attributes:
        heads, tokens: sums by stack.
        vocabulary: sums of the metrics that need the vocabulary, on a sample of sentences.
        types: by stack, the mean path of every token type.
        flows: sums of what attention carries from token to token, on a sample of sentences.
        sampled: by stack, statistics of sampled sentences.
        random: by stack, metrics of random sequences.
        distances: by stack, how far heads are from each other.
        geometry: by stack, the shape of its states.
        head_outputs: by stack, metrics of what heads write, on a sample of sentences.
        anchors: by stack, the tokens for which heads write nearly the same.
        affinities: by stack, how much heads give from which tokens to which, on a sample.
        counts: numbers of sentences, tokens, words and their like.
        ablation: what is lost without heads, on a sample; None where nobody asked for it.
        buckets: by stack, sums of groups of sentences, for comparisons with other models.
        texts: which sentences these are; None where it is not known.
        token_buckets: by stack, the same as ``buckets`` of tokens.
    """

    heads: Mapping[str, HeadSums] = field(default_factory=dict)
    tokens: Mapping[str, TokenSums] = field(default_factory=dict)
    vocabulary: Mapping[str, TokenSums] = field(default_factory=dict)
    types: Mapping[str, TokenTypeSums] = field(default_factory=dict)
    flows: Mapping[str, TokenSums] = field(default_factory=dict)
    sampled: Mapping[str, SampleSums] = field(default_factory=dict)
    random: Mapping[str, HeadTable] = field(default_factory=dict)
    distances: Mapping[str, HeadDistances] = field(default_factory=dict)
    geometry: Mapping[str, GeometrySums] = field(default_factory=dict)
    head_outputs: Mapping[str, HeadTable] = field(default_factory=dict)
    anchors: Mapping[str, Anchors] = field(default_factory=dict)
    affinities: Mapping[str, Affinities] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    ablation: AblationResults | None = None
    buckets: Mapping[str, tuple[HeadBuckets, ...]] = field(default_factory=dict)
    texts: SentenceSet | None = None
    token_buckets: Mapping[str, tuple[TokenBuckets, ...]] = field(default_factory=dict)

    def __add__(self, other: "CorpusSums") -> "CorpusSums":
        return add_fields(
            self,
            other,
            random=_once(self.random, other.random),
            buckets=_together(self.buckets, other.buckets),
            token_buckets=_together(self.token_buckets, other.token_buckets),
        )

    shifted = shift_fields


def _together(
    one: Mapping[str, tuple[Kind, ...]], other: Mapping[str, tuple[Kind, ...]]
) -> dict[str, tuple[Kind, ...]]:
    """Buckets of every stack that either has."""
    return {n: buckets_together(one.get(n, ()), other.get(n, ())) for n in {**one, **other}}


def _once(one: Mapping[str, HeadTable], other: Mapping[str, HeadTable]) -> dict[str, HeadTable]:
    """Sums of the same sequences of the same model: twice would not be more.

    Half of each, for two machines may differ in their last digits and neither comes first.
    """
    both = {name: (one[name] + other[name]).scaled(0.5) for name in one if name in other}
    return {**one, **other, **both}


VARIABILITY = ids.VARIABILITY
UNIFORM, ABOUT = -2, -1  # rows of a sample's payload behind those of heads


def finish_sampled(sums: SampleSums) -> HeadTable:
    """The sampled metrics of a stack, each from all of its sentences."""
    payload = sums.stats.payload
    tables = []
    start = 0
    for name, view, width in sums.columns:
        place = slice(start, start + width)
        start += width
        metric = all_metrics()[name]
        assert isinstance(metric, SampledMetric)
        columns = tuple(HeadKey(name, view, label) for label in metric.labels)
        layers = [  # one at a time: all of them in double precision are large
            _layer(metric, statistics(sums, metric, place, layer), sums.stats.half)
            for layer in range(payload.shape[1])
        ]
        heads, together, even = (
            RatioSums(np.stack([getattr(layer, part).sums for layer in layers], 2))
            for part in ("heads", "layers", "uniform")
        )
        tables.append(HeadTable(columns, heads, together, even))
    return join_columns(tables)


def statistics(
    sums: SampleSums, metric: SampledMetric, place: slice, layer: int
) -> NDArray[np.float64]:
    """Return the statistics of a metric in one layer, expectations by surface filled in.

    Args:
        place: where the metric's columns stand.

    Returns:
        *Shape:* ``(kept, head + 2, statistic)``.
    """
    found = sums.stats.payload[:, layer, :, place].astype(np.float64)
    if metric.expected_at is not None and sums.cells is not None:
        found[:, :ABOUT, metric.expected_at] = sums.cells.expected(layer)
    return found


def variability_contributions(sums: SampleSums) -> NDArray[np.float64] | None:
    """The share of each head's variability, sink masked, that each sampled sentence makes.

    *Shape:* ``(kept, layer, head)``; NaN where a head has none. None where it was not measured.
    """
    start = 0
    for name, view, width in sums.columns:
        if (name, view) == (VARIABILITY, SinkView.NOSINK):
            stats = sums.stats.payload[..., start : start + width]
            metric = all_metrics()[name]
            assert isinstance(metric, SampledMetric)
            made = [
                _numerators(metric, stats[:, layer].astype(np.float64))
                for layer in range(stats.shape[1])
            ]
            return np.stack(made, 1)
        start += width
    return None


def _numerators(metric: SampledMetric, stats: NDArray[np.float64]) -> NDArray[np.float64]:
    """What sentences add to a sampled metric, as parts of the whole. *Shape:* ``(kept, head)``."""
    above = metric.finish(stats[:, :ABOUT], stats[:, ABOUT]).numerator[:, :-1, 0]
    return divide(above, above.sum(0))


def _layer(metric: SampledMetric, stats: NDArray[np.float64], half: NDArray[np.int64]) -> HeadTable:
    """One layer: ``(sentence, head + 2, statistic)``."""
    parts = metric.finish(stats[:, :ABOUT], stats[:, ABOUT])
    # A layer's number is that of its heads together.
    together = FinishedRatios(*(part[:, :-1].sum(1) for part in parts))
    even = FinishedRatios(*(part[:, -1] for part in parts))
    heads = FinishedRatios(*(part[:, :-1] for part in parts))
    return HeadTable((), *(RatioSums.of(*each, half) for each in (heads, together, even)))


def join_columns(tables: Iterable[HeadTable]) -> HeadTable:
    """Tables of the same heads as one, column by column."""
    tables = list(tables)
    return HeadTable(
        tuple(column for table in tables for column in table.columns),
        *(
            RatioSums(np.concatenate([getattr(table, part).sums for table in tables], -1))
            for part in ("heads", "layers", "uniform")
        ),
    )
