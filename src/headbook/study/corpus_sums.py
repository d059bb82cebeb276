"""Sums over all sentences of a corpus by stack, and head metrics of sampled sentences.

All sums merge with ``+``. No torch.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import HashSample, RatioSums, TopK, add_fields, shift_fields
from headbook.analysis.arrays import Floats, Ints, divide
from headbook.analysis.paired import ClusterSums
from headbook.metrics import all_metrics, ids, missing_metric
from headbook.metrics.base import FinishedRatios, SampledMetric
from headbook.schema import AttentionStack, HeadKey, SinkView, TokenKey
from headbook.study.ablation.results import AblationResults
from headbook.study.groups import GroupSums, PairMembers, merge_groups
from headbook.study.sums.buckets import HeadBuckets, Kind, SentenceSet, TokenBuckets, merge_buckets
from headbook.study.sums.state_geometry import GeometrySums, StateMeans
from headbook.study.sums.token_sums import Affinities, Anchors, TokenTypeSums
from headbook.study.sums.word_samples import ClassFlows, StrongestWords

MAX_POSITIONS = 12  # first positions of queries and of keys in `PositionSums`
MAX_POSITIONS_MANY_HEADS = 8  # positions in stacks of `MANY_HEADS` heads or more, to save memory
MANY_HEADS = 24  # heads of a layer
MAX_HEADS_ALL_PAIRS = 144  # heads of a stack up to which metrics compare all pairs of heads


def kept_positions(stack: AttentionStack) -> int:
    """Return the number of positions of a stack in `PositionSums`."""
    return MAX_POSITIONS_MANY_HEADS if stack.n_heads >= MANY_HEADS else MAX_POSITIONS


@dataclass(frozen=True, eq=False)
class PositionSums:
    """Attention between the first positions of one stack, summed over all sentences.

    The weights are those of the raw view, with all queries and keys, special tokens included. A
    key that a query does not see adds 0.

    Attributes:
        total: sums of weights. *Shape:* ``(layer, head, query, key)``.
        count: number of sentences with both positions. *Shape:* ``(query, key)``.
    """

    total: Floats
    count: Ints

    __add__ = add_fields

    @property
    def mean(self) -> Floats:
        """Mean weight, NaN if no sentence is long enough, in an array of the shape of ``total``."""
        mean: Floats = divide(self.total, self.count.astype(np.float64))
        return mean

    @classmethod
    def zero(cls, stack: AttentionStack) -> "PositionSums":
        """Return the sums of zero sentences."""
        n_positions = kept_positions(stack)
        cells = (stack.n_layers, stack.n_heads, n_positions, n_positions)
        return cls(np.zeros(cells), np.zeros((n_positions, n_positions), np.int64))


@dataclass(frozen=True, eq=False)
class HeadTable:
    """Sums of head metrics of one stack.

    Attributes:
        columns: keys of the last dimension.
        heads: *Shape:* ``(layer, head, column)``.
        layers: sums over the heads of a layer. *Shape:* ``(layer, column)``.
        uniform: sums under uniform attention. *Shape:* ``(layer, column)``.
    """

    columns: tuple[HeadKey, ...]
    heads: RatioSums
    layers: RatioSums
    uniform: RatioSums

    __add__ = add_fields

    def scaled(self, by: float) -> "HeadTable":
        """Return all sums times a number."""
        parts = (self.heads, self.layers, self.uniform)
        return HeadTable(self.columns, *(RatioSums(part.sums * by) for part in parts))


@dataclass(frozen=True, eq=False)
class HeadSums:
    """Sums over the attention of one stack.

    Attributes:
        table: sums of the metrics.
        strongest: sentences with the largest single weight outside the sink, for each head.
        sample: largest weight outside the sink of sampled sentences, for quantiles.
        positions: attention between the first positions.
        mass_off_sink: sentences with the largest mean attention outside the sink, for each head.
        strongest_words: strongest words of sampled sentences, or None if neither relations nor
            surface rules are measured.
        groups: sums of the metrics by metadata column and value.
        members: values of single sentences of minimal pairs, or None without pairs.
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
    """A sampled metric in one view, with the number of its statistics, and its labels."""

    metric: str
    view: SinkView
    width: int
    labels: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class SampleSums:
    """Statistics of each sampled sentence, for one stack.

    Attributes:
        columns: metrics whose statistics stand side by side in the last dimension.
        stats: statistics of all heads, of uniform attention and of the sentence itself. *Shape* of
            the payload: ``(kept, layer, head + 2, statistic)``.
    """

    columns: tuple[SampleColumn, ...]
    stats: HashSample

    __add__ = add_fields
    shifted = shift_fields


class PairColumn(NamedTuple):
    """Metric and view of a number of two heads."""

    metric: str
    view: SinkView


@dataclass(frozen=True, eq=False)
class HellingerSums:
    """Bhattacharyya's affinity of every two heads of a stack.

    Attributes:
        total: sums of the affinities of attention rows; symmetric. *Shape:*
            ``(column, head, head)``.
        rows: number of these rows. *Shape:* ``(column, head, head)``.
    """

    total: NDArray[np.float64]
    rows: NDArray[np.float64]

    __add__ = add_fields

    @property
    def apart(self) -> NDArray[np.float64]:
        """Squared Hellinger distances; NaN without rows, 0 between a head and itself."""
        distances: NDArray[np.float64] = np.full(self.total.shape, np.nan)
        np.divide(self.total, self.rows, out=distances, where=self.rows > 0)
        distances = np.clip(1 - distances, 0, 1)
        distances[:, np.eye(distances.shape[1], dtype=bool)] = 0
        return distances


@dataclass(frozen=True, eq=False)
class HeadDistances:
    """Metrics of every two heads of a stack, over sampled sentences.

    Heads are numbered through all layers that have attention.

    Attributes:
        columns: keys of the first dimension.
        total: sums over the rows that count in both heads; symmetric. *Shape:*
            ``(column, head, head)``.
        rows: number of these rows; 0 for pairs that were not compared. *Shape:*
            ``(column, head, head)``.
        sentences: number of sentences.
        alike: affinities of all pairs if only some were compared; else None.
    """

    columns: tuple[PairColumn, ...]
    total: NDArray[np.float64]
    rows: NDArray[np.float64]
    sentences: int
    alike: HellingerSums | None = None

    __add__ = add_fields


@dataclass(frozen=True, eq=False)
class TokenSums:
    """Sums of token metrics of one stack.

    Attributes:
        columns: keys of the last dimension.
        layers: *Shape:* ``(layer, column)``.
    """

    columns: tuple[TokenKey, ...]
    layers: RatioSums

    __add__ = add_fields


@dataclass(frozen=True, eq=False)
class CorpusSums:
    """All sums over the sentences of a corpus; mappings are by stack.

    Attributes:
        heads: sums of head metrics.
        tokens: sums of token metrics.
        vocabulary: sums of token metrics that need the vocabulary, on a sample of sentences.
        types: mean path of every token type.
        flows: sums of attention flow, on a sample of sentences.
        sampled: statistics of sampled sentences.
        random: head metrics of random sequences.
        distances: distances of every two heads, on a sample of sentences.
        geometry: geometry of states, on a sample of sentences.
        head_outputs: metrics of head outputs, on a sample of sentences.
        anchors: tokens at the ends of pairs with similar head outputs.
        affinities: attention by token, on a sample of sentences.
        counts: numbers of sentences, tokens and words.
        ablation: results of ablation, on a sample of sentences; None if not measured.
        buckets: sums of head metrics by bucket, for comparisons with other models.
        texts: identity of the sentences; None in studies that lack it.
        token_buckets: sums of token metrics by bucket, for comparisons with other models.
        class_flows: attention between classes of words; empty in studies that lack it.
        tasks: results of ablation by the name of a task's target, each on a sample of its own.
        state_means: sums of states over all tokens of text; empty without token metrics that leave
            out outlier dimensions.
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
    class_flows: Mapping[str, ClassFlows] = field(default_factory=dict)
    tasks: Mapping[str, AblationResults] = field(default_factory=dict)
    state_means: Mapping[str, StateMeans] = field(default_factory=dict)

    @property
    def max_tokens(self) -> float:
        """Number of tokens of the longest sentence; infinite if unknown."""
        return np.inf if self.texts is None else self.texts.max_tokens

    def __add__(self, other: "CorpusSums") -> "CorpusSums":
        return add_fields(
            self,
            other,
            random=_mean_by_stack(self.random, other.random),
            buckets=_merge_by_stack(self.buckets, other.buckets),
            token_buckets=_merge_by_stack(self.token_buckets, other.token_buckets),
        )

    shifted = shift_fields


def _merge_by_stack(
    first: Mapping[str, tuple[Kind, ...]], second: Mapping[str, tuple[Kind, ...]]
) -> dict[str, tuple[Kind, ...]]:
    """Merge the buckets of two parts of a corpus, stack by stack."""
    return {
        stack: merge_buckets(first.get(stack, ()), second.get(stack, ()))
        for stack in {**first, **second}
    }


def _mean_by_stack(
    first: Mapping[str, HeadTable], second: Mapping[str, HeadTable]
) -> dict[str, HeadTable]:
    """Average the sums of random sequences, which are equal in all parts of a corpus.

    Their sum would count the sequences twice. The mean does not depend on the order of the parts,
    although the sums of two machines may differ in the last digits.
    """
    means = {name: (first[name] + second[name]).scaled(0.5) for name in first if name in second}
    return {**first, **second, **means}


VARIABILITY = ids.VARIABILITY
UNIFORM_ROW, SENTENCE_ROW = -2, -1  # rows of a sample's payload after the rows of heads


def finish_sampled(sums: SampleSums) -> HeadTable:
    """Return the sampled metrics of a stack, each computed from all sampled sentences."""
    payload = sums.stats.payload
    tables = []
    start = 0
    for name, view, width, labels in sums.columns:
        metric_slice = slice(start, start + width)
        start += width
        metric = all_metrics().get(name)
        if not isinstance(metric, SampledMetric):
            raise missing_metric(name)
        columns = tuple(HeadKey(name, view, label) for label in labels)
        # Layer by layer, since all layers together in double precision take much memory.
        layers = [
            _finish_layer(metric, statistics(sums, metric_slice, layer), sums.stats.half)
            for layer in range(payload.shape[1])
        ]
        heads, layer_sums, uniform = (
            RatioSums(np.stack([getattr(layer, part).sums for layer in layers], 2))
            for part in ("heads", "layers", "uniform")
        )
        tables.append(HeadTable(columns, heads, layer_sums, uniform))
    return join_columns(tables)


def statistics(sums: SampleSums, metric_slice: slice, layer: int) -> NDArray[np.float64]:
    """Return the statistics of a metric in one layer.

    Args:
        sums: statistics of the sampled sentences of one stack.
        metric_slice: slice of the metric's statistics in the payload.
        layer: layer, from 0.

    Returns:
        *Shape:* ``(kept, head + 2, statistic)``.
    """
    stats: NDArray[np.float64] = sums.stats.payload[:, layer, :, metric_slice].astype(np.float64)
    return stats


def sampled_ratios(
    sums: SampleSums, metric: SampledMetric, view: SinkView, rows: Ints | slice = slice(None)
) -> ClusterSums | None:
    """Return a sampled metric of every sentence, computed from all of them; None if not measured.

    Args:
        sums: statistics of the sampled sentences of one stack.
        metric: the metric.
        view: view of the attention.
        rows: rows of the sentences; by default all.

    Returns:
        *Shape:* ``(sentence, layer, head, label)``, with the labels that pages list.
    """
    start = 0
    for name, column_view, width, labels in sums.columns:
        if (name, column_view) == (metric.id, view):
            metric_slice = slice(start, start + width)
            layers = []
            for layer in range(sums.stats.payload.shape[1]):
                stats = statistics(sums, metric_slice, layer)[rows]
                layers.append(metric.finish(stats[:, :SENTENCE_ROW], stats[:, SENTENCE_ROW]))
            listed = [n for n, label in enumerate(labels) if label not in metric.baselines]
            n, d = (
                np.stack([getattr(layer, part)[:, :-1, listed] for layer in layers], 1)
                for part in ("numerator", "denominator")
            )
            return ClusterSums(np.where(d > 0, n, 0), np.broadcast_to(d, n.shape))
        start += width
    return None


def variability_contributions(sums: SampleSums) -> NDArray[np.float64] | None:
    """Return the share of each sampled sentence in the variability of each head, sink masked.

    *Shape:* ``(kept, layer, head)``; NaN if a head has no variability. None if not measured.
    """
    start = 0
    for name, view, width, _ in sums.columns:
        if (name, view) == (VARIABILITY, SinkView.NOSINK):
            stats = sums.stats.payload[..., start : start + width]
            metric = all_metrics()[name]
            assert isinstance(metric, SampledMetric)
            shares = []
            for layer in range(stats.shape[1]):
                layer_stats = stats[:, layer].astype(np.float64)
                finished = metric.finish(
                    layer_stats[:, :SENTENCE_ROW], layer_stats[:, SENTENCE_ROW]
                )
                deviations = finished.numerator[:, :-1, 0]
                shares.append(divide(deviations, deviations.sum(0)))
            return np.stack(shares, 1)
        start += width
    return None


def _finish_layer(
    metric: SampledMetric, stats: NDArray[np.float64], half: NDArray[np.int64]
) -> HeadTable:
    """Return the sums of one layer.

    Args:
        stats: *Shape:* ``(sentence, head + 2, statistic)``.
    """
    finished = metric.finish(stats[:, :SENTENCE_ROW], stats[:, SENTENCE_ROW])
    # The metric of a layer is computed from the sums over its heads.
    layer = FinishedRatios(*(part[:, :-1].sum(1) for part in finished))
    uniform = FinishedRatios(*(part[:, -1] for part in finished))
    heads = FinishedRatios(*(part[:, :-1] for part in finished))
    return HeadTable((), *(RatioSums.of(*ratios, half) for ratios in (heads, layer, uniform)))


def join_columns(tables: Iterable[HeadTable]) -> HeadTable:
    """Return one table with the columns of several tables of the same heads."""
    tables = list(tables)
    return HeadTable(
        tuple(column for table in tables for column in table.columns),
        *(
            RatioSums(np.concatenate([getattr(table, part).sums for table in tables], -1))
            for part in ("heads", "layers", "uniform")
        ),
    )
