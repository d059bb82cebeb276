"""Paired differences of all numbers of heads and of layers, tested family-wise.

Differences come from sums over the same sentences or buckets of sentences, pair by pair, so that a
sentence that is hard for both models widens no interval (`headbook.analysis.paired`).

Labels of token metrics are those of ``layers.csv``: state, space if there is one, and class of
tokens, as in ``mid/positional/all``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arrays import Floats, Ints
from headbook.analysis.intervals import UNBOUNDED
from headbook.analysis.multiple_testing import ALPHA
from headbook.analysis.paired import ClusterSums, differences, paired_family_wise_p
from headbook.comparison.study_pair import StackPair, StudyPair
from headbook.metrics import all_metrics
from headbook.metrics.base import SampledMetric
from headbook.schema import HeadKey, IntervalRule, SinkView, TokenKey
from headbook.study.ablation import AblationResults, HeadSetKind
from headbook.study.ablation_tables import EFFECT
from headbook.study.buckets import BucketSums
from headbook.study.corpus_sums import ABOUT, SampleSums, statistics
from headbook.study.study import Study

FLOOR = 2.0  # factor on the largest difference by rounding, which other sentences may exceed
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
        p: family-wise over all cells and labels of a metric and view; NaN without an interval, 1
            if both models are exactly equal.
        sentences: number of sentences behind ``value``, the smaller number of both models.
        floor: rounding floor of each column: twice the largest difference over cells that running
            the first model in another number format makes; NaN if not measured. *Shape:*
            ``(column,)``; None if no floor was measured at all.
    """

    columns: tuple[ComparedColumn, ...]
    a: Floats
    b: Floats
    value: Floats
    low: Floats
    high: Floats
    p: Floats
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
        least = np.nan_to_num(self.floors)
        with np.errstate(invalid="ignore"):
            found: NDArray[np.bool_] = (self.low > least) | (self.high < -least)
        return found

    @property
    def supported(self) -> NDArray[np.bool_]:
        """Mask of supported differences: family-wise p below `ALPHA`, interval beyond the floor."""
        with np.errstate(invalid="ignore"):
            found: NDArray[np.bool_] = (self.p < ALPHA) & self.beyond
        return found

    def above(self, floors: Mapping[ComparedColumn, float]) -> Self:
        """Return the differences with the known rounding floors of their columns."""
        return replace(self, floor=np.array([floors.get(c, np.nan) for c in self.columns]))

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
        names = ("a", "b", "value", "low", "high", "p", "sentences", "floors")
        return cls(
            tuple(column for part in parts for column in part.columns),
            *(np.concatenate([getattr(part, name) for part in parts], -1) for name in names),
        )

    @classmethod
    def of(cls, columns: Sequence[ComparedColumn], a: ClusterSums, b: ClusterSums) -> Self:
        """Compute the differences of the columns of one metric and view, tested together.

        Args:
            a, b: sums of both models. *Shape:* ``(cluster, *cells, column)``.
        """
        known = all_metrics().get(columns[0].metric)
        spread = [known.spread(c.label) if known else IntervalRule.USUAL for c in columns]
        limits = known.limits if known else UNBOUNDED
        found = differences(a, b, np.array(spread), limits)
        p = paired_family_wise_p(a, b, found)
        values = found.a, found.b, found.value, found.low, found.high
        return cls(tuple(columns), *values, p, found.clusters)


def rounding_floors(
    sums: Iterable[tuple[Sequence[ComparedColumn], ClusterSums, ClusterSums]],
) -> dict[ComparedColumn, float]:
    """Return the rounding floor of each column: twice the largest difference over heads or layers.

    Args:
        sums: columns with the sums of one model in two number formats, over the same sentences.
            *Shape:* ``(cluster, *cells, column)``.
    """
    found: dict[ComparedColumn, float] = {}
    for columns, exact, rounded in sums:
        sizes = np.abs(differences(exact, rounded).value).reshape(-1, len(columns))
        for column, size in zip(columns, sizes.T, strict=True):
            if not np.isnan(size).all():
                found[column] = FLOOR * float(np.nanmax(size))
    return found


def paired_buckets(
    mine: BucketSums, other: BucketSums, columns: Sequence[Column], others: Sequence[Column]
) -> Iterator[tuple[list[Column], ClusterSums, ClusterSums]]:
    """Yield columns and sums that two studies have over the same buckets, by metric and view.

    Args:
        columns, others: columns of ``mine`` and of ``other``.
    """
    shared = set(others)
    both = [column for column in columns if column in shared]
    if not both or mine.once != other.once:
        return
    size = min(mine.size, other.size)
    one, another = (part if part.size == size else part.of_size(size) for part in (mine, other))
    keys = np.union1d(one.keys, another.keys)
    for family in dict.fromkeys(map(_family, both)):
        chosen = [column for column in both if _family(column) == family]
        sums = [
            _some(part, keys, [own.index(column) for column in chosen])
            for part, own in ((one, columns), (another, others))
        ]
        yield chosen, sums[0], sums[1]


def _family(column: Column) -> tuple[str, SinkView | None]:
    """Return the key of columns that are tested together: metric and, for heads, view."""
    return column.metric, column.view if isinstance(column, HeadKey) else None


def _some(part: BucketSums, keys: Ints, at: Sequence[int]) -> ClusterSums:
    """Return some columns in all of the buckets; 0 in buckets that a study lacks."""
    place = np.searchsorted(keys, part.keys)
    n = np.zeros((len(keys), *part.n.shape[1:-1], len(at)))
    d = np.zeros_like(n)
    n[place], d[place] = part.n[..., at], part.d[..., at]
    return ClusterSums(n, d)


@dataclass(frozen=True, eq=False)
class HeadDifferences(ModelDifferences):
    """Differences of the heads of one stack. *Shape* of cells: ``(layer, head)``."""


class PairedSums(NamedTuple):
    """Sums of heads over the same clusters of sentences, of one metric and view.

    Attributes:
        columns: keys of the last dimension.
        a, b: sums of both models. *Shape:* ``(cluster, layer, head, column)``, layers and heads
            those of each model.
        counted: columns of the head tables that give the number of sentences; if empty, the number
            of clusters counts.
    """

    columns: Sequence[ComparedColumn]
    a: ClusterSums
    b: ClusterSums
    counted: Sequence[HeadKey] = ()


def head_differences(sides: StudyPair, pair: StackPair) -> HeadDifferences:
    """Return the differences of all head numbers that both studies have, if heads correspond."""
    parts = []
    for each in head_sums(sides, pair):
        found = HeadDifferences.of(each.columns, each.a, each.b)
        if each.counted:
            found = replace(
                found, sentences=_n_sentences_of_heads(sides, pair.a.name, each.counted)
            )
        parts.append(found)
    parts += [HeadDifferences.of(*each[:3]) for each in _of_ablation(sides, pair)]
    return HeadDifferences.join_columns(parts)


def head_floors(twice: StudyPair, pair: StackPair) -> dict[ComparedColumn, float]:
    """Return the rounding floors of the numbers of heads.

    Args:
        twice: the first model in two number formats, as if they were two models.
    """
    found = (*head_sums(twice, pair), *_of_ablation(twice, pair))
    return rounding_floors(each[:3] for each in found)


def head_sums(sides: StudyPair, pair: StackPair) -> Iterator[PairedSums]:
    """Yield the sums of all head metrics that both studies have; the stacks may differ in shape."""
    yield from _of_buckets(sides, pair)
    yield from _of_samples(sides, pair)


def _of_buckets(sides: StudyPair, pair: StackPair) -> Iterator[PairedSums]:
    """Yield the metrics of all sentences, of random sequences, and of head outputs."""
    for first in sides.a.corpus_sums.buckets.get(pair.a.name, ()):
        for second in sides.b.corpus_sums.buckets.get(pair.b.name, ()):
            buckets = paired_buckets(first, second, first.columns, second.columns)
            for columns, one, another in buckets:
                names = [ComparedColumn(c.metric, str(c.view), c.label) for c in columns]
                yield PairedSums(names, one, another, columns)


def _n_sentences_of_heads(sides: StudyPair, stack: str, columns: Sequence[HeadKey]) -> Ints:
    """Return the number of sentences behind every head number.

    *Shape:* ``(layer, head, column)``.
    """
    found = []
    for study in (sides.a, sides.b):
        table = study.head_tables[stack]
        places = {column: place for place, column in enumerate(table.columns)}
        found.append(table.heads[..., [places[column] for column in columns]].n_sentences)
    return np.minimum(*found)


def _of_samples(sides: StudyPair, pair: StackPair) -> Iterator[PairedSums]:
    """Yield the metrics of a sample, by sentence."""
    mine = sides.a.corpus_sums.sampled.get(pair.a.name)
    theirs = sides.b.corpus_sums.sampled.get(pair.b.name)
    if mine is None or theirs is None:
        return
    rows = _shared(mine.stats.content_hash, theirs.stats.content_hash)
    if not len(rows[0]):  # hashes are of tokens, so that other tokenizers share no sentence
        return
    for name, view, _ in mine.columns:
        metric = all_metrics()[name]
        assert isinstance(metric, SampledMetric)
        sums = [
            _finished(each, at, metric, str(view))
            for each, at in zip((mine, theirs), rows, strict=True)
        ]
        if sums[0] is not None and sums[1] is not None:
            columns = [ComparedColumn(name, str(view), label) for label in metric.listed]
            yield PairedSums(columns, sums[0], sums[1])


def _shared(mine: NDArray[np.uint64], theirs: NDArray[np.uint64]) -> tuple[Ints, Ints]:
    """Return the rows of the sentences that two samples share, each sentence once."""
    _, one, other = np.intersect1d(mine, theirs, return_indices=True)
    return one, other


def _finished(sums: SampleSums, rows: Ints, metric: SampledMetric, view: str) -> ClusterSums | None:
    """Return a sampled metric of every sentence; None if it was not measured."""
    start = 0
    for name, its_view, width in sums.columns:
        if (name, str(its_view)) == (metric.id, view):
            place = slice(start, start + width)
            each_layer = (
                statistics(sums, metric, place, layer)[rows]
                for layer in range(sums.stats.payload.shape[1])
            )
            layers = [metric.finish(each[:, :ABOUT], each[:, ABOUT]) for each in each_layer]
            listed = [metric.labels.index(label) for label in metric.listed]
            n, d = (
                np.stack([getattr(layer, part)[:, :-1, listed] for layer in layers], 1)
                for part in ("numerator", "denominator")
            )
            return ClusterSums(np.where(d > 0, n, 0), np.broadcast_to(d, n.shape))
        start += width
    return None


def _of_ablation(sides: StudyPair, pair: StackPair) -> Iterator[PairedSums]:
    """Yield the effects of ablating each head in both models, if both were measured."""
    mine, theirs = (s.corpus_sums.ablation for s in (sides.a, sides.b))
    if mine is None or theirs is None:
        return
    rows = _shared(mine.content_hash, theirs.content_hash)
    replacements = {mine.sets[each].replacement for each in mine.select(HeadSetKind.HEAD)}
    for replacement in sorted(replacements):
        for target in (t for t in mine.changes if t in theirs.changes):
            one, another = (
                _effects(each, at, pair, replacement, target)
                for each, at in zip((mine, theirs), rows, strict=True)
            )
            yield PairedSums([ComparedColumn(EFFECT, "", f"{replacement}/{target}")], one, another)


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
    stack, place = pair.a, np.full(len(ablation.content_hash), -1)
    place[rows] = np.arange(len(rows))
    found = ablation.frame(target, ablation.select(HeadSetKind.HEAD, replacement))
    found = found[(found["stack"] == stack.name) & (place[found["sentence"]] >= 0)]
    n = np.zeros((len(rows), stack.n_layers, stack.n_heads, 1))
    d = np.zeros_like(n)
    cells = place[found["sentence"]], found["layer"], found["head"], 0
    n[cells], d[cells] = found["change"], found["n_tokens"]
    return ClusterSums(n, d)


@dataclass(frozen=True, eq=False)
class LayerDifferences(ModelDifferences):
    """Differences of the tokens of one stack. *Shape* of cells: ``(layer,)``."""


def layer_differences(sides: StudyPair, pair: StackPair) -> LayerDifferences | None:
    """Return the differences of the token numbers that both studies have; None without any.

    Studies of earlier versions have no such sums.
    """
    parts = []
    for columns, *sums in token_sums(sides, pair):
        found = LayerDifferences.of(_names(columns), *sums)
        parts.append(replace(found, sentences=_n_sentences_of_layers(sides, pair, columns)))
    return LayerDifferences.join_columns(parts) if parts else None


def layer_floors(twice: StudyPair, pair: StackPair) -> dict[ComparedColumn, float]:
    """Return the rounding floors of the numbers of tokens.

    Args:
        twice: the first model in two number formats, as if they were two models.
    """
    return rounding_floors((_names(columns), a, b) for columns, a, b in token_sums(twice, pair))


def _names(columns: Sequence[TokenKey]) -> list[ComparedColumn]:
    return [ComparedColumn(c.metric, "", c.words) for c in columns]


def token_sums(
    sides: StudyPair, pair: StackPair
) -> Iterator[tuple[Sequence[TokenKey], ClusterSums, ClusterSums]]:
    """Yield the sums of all token metrics that both studies have, by metric.

    *Shape* of sums: ``(cluster, layer, column)``, layers those of each model.
    """
    for first in sides.a.corpus_sums.token_buckets.get(pair.a.name, ()):
        for second in sides.b.corpus_sums.token_buckets.get(pair.b.name, ()):
            yield from paired_buckets(first, second, first.columns, second.columns)


def _n_sentences_of_layers(sides: StudyPair, pair: StackPair, columns: Sequence[TokenKey]) -> Ints:
    """Return the number of sentences behind every layer number. *Shape:* ``(layer, column)``."""
    both = ((sides.a, pair.a.name), (sides.b, pair.b.name))
    return np.minimum(*(_of_study(study, stack, columns) for study, stack in both))


def _of_study(study: Study, stack: str, columns: Sequence[TokenKey]) -> Ints:
    sums = study.corpus_sums
    for table in (sums.tokens, sums.vocabulary, sums.flows):
        there = table[stack].columns if stack in table else ()
        if columns[0] in there:
            places = [there.index(column) for column in columns]
            return table[stack].layers[:, places].n_sentences
    raise LookupError(columns[0])
