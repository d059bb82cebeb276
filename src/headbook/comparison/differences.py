"""Paired differences of all numbers of heads and of layers, tested with a false discovery rate.

Differences come from sums over the same sentences or buckets of sentences, pair by pair, so that a
sentence that is hard for both models widens no interval (`headbook.analysis.paired`).

Labels of token metrics are those of ``layers.csv``: state, space if there is one, and class of
tokens, as in ``mid/positional/all``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arrays import Floats, Ints
from headbook.analysis.intervals import UNBOUNDED, has_value
from headbook.analysis.multiple_testing import ALPHA
from headbook.analysis.paired import ClusterSums, differences, paired_tests
from headbook.comparison.study_pair import StackPair, StudyPair
from headbook.metrics import all_metrics
from headbook.metrics.base import SampledMetric
from headbook.schema import NO_OUTLIERS, HeadKey, IntervalRule, SinkView, TokenKey
from headbook.study.ablation.results import AblationResults, HeadSetKind
from headbook.study.ablation_tables import EFFECT
from headbook.study.corpus_sums import sampled_ratios
from headbook.study.study import Study
from headbook.study.sums.buckets import BucketSums

# Factor on the largest difference by rounding. With 2, a float32 run with weights in bfloat16
# exceeded the floor in 3 of 5 worlds of 64 sentences: without rounded activations, which had
# cancelled part of the change.
FLOOR_FACTOR = 3.0
Column = TypeVar("Column", HeadKey, TokenKey)


class ComparedColumn(NamedTuple):
    """Key of a number of two models; ``view`` is empty for numbers without a view."""

    metric: str
    view: str
    label: str


@dataclass(frozen=True, eq=False)
class ModelDifferences:
    """Numbers of one stack in both models. *Shape* of all: ``(*cells, column)``.

    Attributes:
        columns: keys of the last dimension.
        a, b: values of both models; NaN without a value, or for divergences of both models.
        value: ``b`` minus ``a``, or the divergence of both models.
        low, high: ends of the 95 % interval of ``value``; NaN without an interval.
        p: of each difference alone; 1 if both models are exactly equal, NaN without an interval or
            with fewer than `MIN_CLUSTERS` sentences, or buckets of sentences, in a model.
        q: ``p`` adjusted for all cells and labels of a metric and view (`PairedTests`).
        sentences: number of sentences behind ``value``, the smaller number of both models.
        floor: rounding floor of each column (`rounding_floors`); NaN if not measured. *Shape:*
            ``(column,)``; None if no floor was measured at all.
    """

    columns: tuple[ComparedColumn, ...]
    a: Floats
    b: Floats
    value: Floats
    low: Floats
    high: Floats
    p: Floats
    q: Floats
    sentences: Ints
    floor: Floats | None = None

    @property
    def floors(self) -> Floats:
        """Rounding floor of each column; NaN if not measured. *Shape:* ``(column,)``."""
        return np.full(len(self.columns), np.nan) if self.floor is None else self.floor

    @property
    def beyond(self) -> NDArray[np.bool_]:
        """Mask of intervals above the rounding floor, or below minus the floor.

        A floor that was not measured counts as 0.
        """
        floors = np.nan_to_num(self.floors)
        with np.errstate(invalid="ignore"):
            mask: NDArray[np.bool_] = (self.low > floors) | (self.high < -floors)
        return mask

    @property
    def supported(self) -> NDArray[np.bool_]:
        """Mask of supported differences: q below `ALPHA`, interval beyond the floor."""
        with np.errstate(invalid="ignore"):
            mask: NDArray[np.bool_] = (self.q < ALPHA) & self.beyond
        return mask

    def above(self, floors: Mapping[ComparedColumn, float]) -> Self:
        """Return the differences with the known rounding floors of their columns."""
        return replace(
            self, floor=np.array([floors.get(column, np.nan) for column in self.columns])
        )

    def column(self, metric: str, view: str = "", label: str = "") -> int | None:
        """Return the index of a column, or None if it is missing."""
        wanted = ComparedColumn(metric, view, label)
        return self.columns.index(wanted) if wanted in self.columns else None

    def named(self, columns: tuple[ComparedColumn, ...]) -> Self:
        """Return the differences under other column keys."""
        return replace(self, columns=columns)

    @classmethod
    def join_columns(cls, parts: Sequence[Self]) -> Self:
        """Join several differences along the columns."""
        names = ("a", "b", "value", "low", "high", "p", "q", "sentences", "floors")
        return cls(
            tuple(column for part in parts for column in part.columns),
            *(np.concatenate([getattr(part, name) for part in parts], -1) for name in names),
        )

    @classmethod
    def of(
        cls,
        columns: Sequence[ComparedColumn],
        keys: NDArray[np.integer],
        a: ClusterSums,
        b: ClusterSums,
    ) -> Self:
        """Compute the differences of the columns of one metric and view, tested together.

        Args:
            columns: keys of the last dimension.
            keys: keys of the clusters. *Shape:* ``(cluster,)``.
            a, b: sums of both models. *Shape:* ``(cluster, *cells, column)``.
        """
        metric = all_metrics().get(columns[0].metric)
        limits = metric.limits if metric else UNBOUNDED
        paired = differences(a, b, _interval_rules(columns), limits)
        tests = paired_tests(a, b, paired, keys)
        values = paired.a, paired.b, paired.value, paired.low, paired.high
        return cls(tuple(columns), *values, tests.p, tests.q, paired.clusters)


def _interval_rules(columns: Sequence[ComparedColumn]) -> NDArray[np.integer]:
    """Return the interval rule of each column of one metric."""
    metric = all_metrics().get(columns[0].metric)
    return np.array([metric.spread(c.label) if metric else IntervalRule.USUAL for c in columns])


def rounding_floors(
    sums: Iterable[tuple[Sequence[ComparedColumn], ClusterSums, ClusterSums]],
) -> dict[ComparedColumn, float]:
    """Return the rounding floor of each column.

    It is `FLOOR_FACTOR` times the largest difference over heads or layers in the column, or in the
    median column of the metric and view if that is larger: in a column that few heads attend to,
    one head decides the largest difference, and another rounding can move that head more.

    Args:
        sums: columns with the sums of one model in two number formats, over the same sentences.
            *Shape:* ``(cluster, *cells, column)``.
    """
    floors: dict[ComparedColumn, float] = {}
    for columns, exact, rounded in sums:
        changes = np.abs(differences(exact, rounded).value).reshape(-1, len(columns))
        known = np.flatnonzero(~np.isnan(changes).all(0))
        if len(known):
            largest = np.nanmax(changes[:, known], 0)
            of_family = FLOOR_FACTOR * np.maximum(largest, np.median(largest))
            floors |= zip((columns[at] for at in known.tolist()), of_family.tolist(), strict=True)
    return floors


def paired_buckets(
    a: BucketSums, b: BucketSums, columns_a: Sequence[Column], columns_b: Sequence[Column]
) -> Iterator[tuple[list[Column], Ints, ClusterSums, ClusterSums]]:
    """Yield columns, keys of buckets and sums of two studies, by metric and view.

    Args:
        a, b: sums of the two studies.
        columns_a, columns_b: columns of ``a`` and of ``b``.
    """
    # Two models have outlier dimensions of their own, so that averages without them differ in both.
    known_in_b = {column for column in columns_b if column.label != NO_OUTLIERS}
    shared = [column for column in columns_a if column in known_in_b]
    if not shared or a.once != b.once:
        return
    size = min(a.size, b.size)
    a, b = (sums if sums.size == size else sums.of_size(size) for sums in (a, b))
    keys = np.union1d(a.keys, b.keys)
    for family in dict.fromkeys(map(_family, shared)):
        columns = [column for column in shared if _family(column) == family]
        sums_a = _select(a, keys, [columns_a.index(column) for column in columns])
        sums_b = _select(b, keys, [columns_b.index(column) for column in columns])
        yield columns, keys, sums_a, sums_b


def _family(column: Column) -> tuple[str, SinkView | None]:
    """Return the key of columns that are tested together: metric and, for heads, view."""
    return column.metric, column.view if isinstance(column, HeadKey) else None


def _select(sums: BucketSums, keys: Ints, indices: Sequence[int]) -> ClusterSums:
    """Return some columns in all of the buckets; 0 in buckets that a study lacks."""
    rows = np.searchsorted(keys, sums.keys)
    n = np.zeros((len(keys), *sums.n.shape[1:-1], len(indices)))
    d = np.zeros_like(n)
    n[rows], d[rows] = sums.n[..., indices], sums.d[..., indices]
    return ClusterSums(n, d)


@dataclass(frozen=True, eq=False)
class HeadDifferences(ModelDifferences):
    """Differences of the heads of one stack. *Shape* of cells: ``(layer, head)``."""


class PairedSums(NamedTuple):
    """Sums of heads over the same clusters of sentences, of one metric and view.

    Attributes:
        columns: keys of the last dimension.
        keys: keys of the clusters: numbers of buckets, or hashes of sentences. *Shape:*
            ``(cluster,)``.
        a, b: sums of both models. *Shape:* ``(cluster, layer, head, column)``, layers and heads
            those of each model.
        counted: columns of the head tables that give the number of sentences; if empty, the number
            of clusters counts.
    """

    columns: Sequence[ComparedColumn]
    keys: NDArray[np.integer]
    a: ClusterSums
    b: ClusterSums
    counted: Sequence[HeadKey] = ()


def head_differences(sides: StudyPair, pair: StackPair) -> HeadDifferences:
    """Return the differences of all head numbers that both studies have, if heads correspond."""
    parts = []
    for sums in (*head_sums(sides, pair), *_ablation_sums(sides, pair)):
        part = HeadDifferences.of(sums.columns, sums.keys, sums.a, sums.b)
        if sums.counted:
            n_sentences = _n_sentences_of_heads(sides, pair.a.name, sums.counted)
            part = _with_enough_texts(part, *n_sentences)
        parts.append(part)
    return HeadDifferences.join_columns(parts)


def _with_enough_texts(part: HeadDifferences, n_a: Ints, n_b: Ints) -> HeadDifferences:
    """Return differences with their numbers of sentences, without values of too few texts.

    Args:
        n_a, n_b: numbers of sentences of both models. *Shape:* ``(layer, head, column)``.
    """
    rules = _interval_rules(part.columns)
    has_a, has_b = (has_value(n, rules) for n in (n_a, n_b))
    known = {
        "a": has_a, "b": has_b,
        **dict.fromkeys(("value", "low", "high", "p", "q"), has_a & has_b),
    }  # fmt: skip
    values: dict[str, Any] = {
        name: np.where(mask, getattr(part, name), np.nan) for name, mask in known.items()
    }
    return replace(part, sentences=np.minimum(n_a, n_b), **values)


def head_floors(twice: StudyPair, pair: StackPair) -> dict[ComparedColumn, float]:
    """Return the rounding floors of the numbers of heads.

    Args:
        twice: the first model in two number formats, as if they were two models.
    """
    paired_sums = (*head_sums(twice, pair), *_ablation_sums(twice, pair))
    return rounding_floors((sums.columns, sums.a, sums.b) for sums in paired_sums)


def head_sums(sides: StudyPair, pair: StackPair) -> Iterator[PairedSums]:
    """Yield the sums of all head metrics that both studies have; the stacks may differ in shape."""
    yield from _bucket_sums(sides, pair)
    yield from _sample_sums(sides, pair)


def _bucket_sums(sides: StudyPair, pair: StackPair) -> Iterator[PairedSums]:
    """Yield the metrics of all sentences, of random sequences, and of head outputs."""
    for first in sides.a.corpus_sums.buckets.get(pair.a.name, ()):
        for second in sides.b.corpus_sums.buckets.get(pair.b.name, ()):
            buckets = paired_buckets(first, second, first.columns, second.columns)
            for columns, keys, a, b in buckets:
                names = [ComparedColumn(c.metric, str(c.view), c.label) for c in columns]
                yield PairedSums(names, keys, a, b, columns)


def _n_sentences_of_heads(
    sides: StudyPair, stack: str, columns: Sequence[HeadKey]
) -> tuple[Ints, Ints]:
    """Return the numbers of sentences behind every head number of both models.

    *Shape:* ``(layer, head, column)`` each.
    """
    counts = []
    for study in (sides.a, sides.b):
        table = study.head_tables[stack]
        indices = {column: index for index, column in enumerate(table.columns)}
        counts.append(table.heads[..., [indices[column] for column in columns]].n_sentences)
    return counts[0], counts[1]


def _sample_sums(sides: StudyPair, pair: StackPair) -> Iterator[PairedSums]:
    """Yield the metrics of a sample, by sentence."""
    sampled_a = sides.a.corpus_sums.sampled.get(pair.a.name)
    sampled_b = sides.b.corpus_sums.sampled.get(pair.b.name)
    if sampled_a is None or sampled_b is None:
        return
    rows = _shared_rows(sampled_a.stats.content_hash, sampled_b.stats.content_hash)
    if not len(rows[0]):  # hashes are of tokens, so that other tokenizers share no sentence
        return
    labels_of_b = {column[:2]: column.labels for column in sampled_b.columns}
    for name, view, _, labels in sampled_a.columns:
        metric = all_metrics().get(name)
        if not isinstance(metric, SampledMetric):  # of a package that is not installed
            continue
        if labels_of_b.get((name, view)) != labels:  # texts with other regions
            continue
        sums = [
            sampled_ratios(sampled, metric, view, rows_of_sample)
            for sampled, rows_of_sample in zip((sampled_a, sampled_b), rows, strict=True)
        ]
        if sums[0] is not None and sums[1] is not None:
            columns = [
                ComparedColumn(name, str(view), label)
                for label in labels
                if label not in metric.baselines
            ]
            keys = sampled_a.stats.content_hash[rows[0]]
            yield PairedSums(columns, keys, sums[0], sums[1])


def _shared_rows(hashes_a: NDArray[np.uint64], hashes_b: NDArray[np.uint64]) -> tuple[Ints, Ints]:
    """Return the rows of the sentences that two samples share, each sentence once."""
    _, rows_a, rows_b = np.intersect1d(hashes_a, hashes_b, return_indices=True)
    return rows_a, rows_b


def _ablation_sums(sides: StudyPair, pair: StackPair) -> Iterator[PairedSums]:
    """Yield the effects of ablating each head in both models, if both were measured."""
    ablation_a, ablation_b = (s.corpus_sums.ablation for s in (sides.a, sides.b))
    if ablation_a is None or ablation_b is None:
        return
    rows = _shared_rows(ablation_a.content_hash, ablation_b.content_hash)
    replacements = {
        ablation_a.sets[index].replacement for index in ablation_a.select(HeadSetKind.HEAD)
    }
    for replacement in sorted(replacements):
        for target in (t for t in ablation_a.changes if t in ablation_b.changes):
            effects_a, effects_b = (
                _effects(ablation, rows_of_sample, pair, replacement, target)
                for ablation, rows_of_sample in zip((ablation_a, ablation_b), rows, strict=True)
            )
            columns = [ComparedColumn(EFFECT, "", f"{replacement}/{target}")]
            keys = ablation_a.content_hash[rows[0]]
            yield PairedSums(columns, keys, effects_a, effects_b)


def _effects(
    ablation: AblationResults, rows: Ints, pair: StackPair, replacement: str, target: str
) -> ClusterSums:
    """Return changes of a target by ablating each head; 0 over 0 for heads not ablated alone.

    Args:
        ablation: results of one model.
        rows: indices of the sentences that both models share.
        pair: stacks that are compared.
        replacement: replacement of the heads.
        target: target whose changes are returned.
    """
    stack, shared_row = pair.a, np.full(len(ablation.content_hash), -1)
    shared_row[rows] = np.arange(len(rows))
    effects = ablation.frame(target, ablation.select(HeadSetKind.HEAD, replacement))
    effects = effects[(effects["stack"] == stack.name) & (shared_row[effects["sentence"]] >= 0)]
    n = np.zeros((len(rows), stack.n_layers, stack.n_heads, 1))
    d = np.zeros_like(n)
    cells = shared_row[effects["sentence"]], effects["layer"], effects["head"], 0
    n[cells], d[cells] = effects["change"], effects["n_tokens"]
    return ClusterSums(n, d)


@dataclass(frozen=True, eq=False)
class LayerDifferences(ModelDifferences):
    """Differences of the tokens of one stack. *Shape* of cells: ``(layer,)``."""


def layer_differences(sides: StudyPair, pair: StackPair) -> LayerDifferences | None:
    """Return the differences of the token numbers that both studies have; None without any."""
    parts = []
    for columns, keys, a, b in token_sums(sides, pair):
        part = LayerDifferences.of(_column_names(columns), keys, a, b)
        parts.append(replace(part, sentences=_n_sentences_of_layers(sides, pair, columns)))
    return LayerDifferences.join_columns(parts) if parts else None


def layer_floors(twice: StudyPair, pair: StackPair) -> dict[ComparedColumn, float]:
    """Return the rounding floors of the numbers of tokens.

    Args:
        twice: the first model in two number formats, as if they were two models.
    """
    return rounding_floors(
        (_column_names(columns), a, b) for columns, _, a, b in token_sums(twice, pair)
    )


def _column_names(columns: Sequence[TokenKey]) -> list[ComparedColumn]:
    return [ComparedColumn(c.metric, "", c.words) for c in columns]


def token_sums(
    sides: StudyPair, pair: StackPair
) -> Iterator[tuple[Sequence[TokenKey], Ints, ClusterSums, ClusterSums]]:
    """Yield columns, keys of buckets and sums of all token metrics of both studies, by metric.

    *Shape* of sums: ``(cluster, layer, column)``, layers those of each model.
    """
    for first in sides.a.corpus_sums.token_buckets.get(pair.a.name, ()):
        for second in sides.b.corpus_sums.token_buckets.get(pair.b.name, ()):
            yield from paired_buckets(first, second, first.columns, second.columns)


def _n_sentences_of_layers(sides: StudyPair, pair: StackPair, columns: Sequence[TokenKey]) -> Ints:
    """Return the number of sentences behind every layer number. *Shape:* ``(layer, column)``."""
    studies_and_stacks = ((sides.a, pair.a.name), (sides.b, pair.b.name))
    return np.minimum(
        *(_n_sentences_in_study(study, stack, columns) for study, stack in studies_and_stacks)
    )


def _n_sentences_in_study(study: Study, stack: str, columns: Sequence[TokenKey]) -> Ints:
    sums = study.corpus_sums
    for table in (sums.tokens, sums.vocabulary, sums.flows):
        known_columns = table[stack].columns if stack in table else ()
        if columns[0] in known_columns:
            indices = [known_columns.index(column) for column in columns]
            return table[stack].layers[:, indices].n_sentences
    raise LookupError(columns[0])
