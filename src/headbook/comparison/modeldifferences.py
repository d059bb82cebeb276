"""Numbers of two models and how they differ: of heads, or of layers. No torch."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.arithmetic import Floats, Ints
from headbook.analysis.flips import LEVEL
from headbook.analysis.intervals import ANYTHING
from headbook.analysis.paired import ClusterSums, differences, family_wise
from headbook.metrics import all_metrics
from headbook.study.summaries.buckets import BucketSums
from headbook.study.summaries.columns import HeadColumn, TokenColumn
from headbook.terms import Spread, View

FLOOR = 2.0  # of the largest difference by rounding, which other sentences may exceed
Column = TypeVar("Column", HeadColumn, TokenColumn)


class ComparedColumn(NamedTuple):
    """What one number of two models is; ``view`` is empty where there is none."""

    metric: str
    view: str
    label: str


@dataclass(frozen=True, eq=False)
class ModelDifferences:
    """Numbers of one stack in both models. *Shape* of all: ``(*cells, column)``.

    Attributes:
        columns: what the last dimension holds.
        a, b: values; NaN where a cell has none, or where a number is of both models at once.
        value: what ``b`` has more, or how far the two are apart.
        low, high: ends of its 95 % interval; NaN where there is none.
        p: family-wise over all cells and labels of a metric and view; NaN without interval, 1
            where both models are exactly equal.
        sentences: how many stand behind it, in the model where they are fewer.
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
        """Whether the interval lies above the rounding floor, or below minus the floor.

        A floor that was not measured counts as 0.
        """
        least = np.nan_to_num(self.floors)
        with np.errstate(invalid="ignore"):
            found: NDArray[np.bool_] = (self.low > least) | (self.high < -least)
        return found

    @property
    def supported(self) -> NDArray[np.bool_]:
        """Whether the models differ: family-wise p below `LEVEL`, interval beyond the floor."""
        with np.errstate(invalid="ignore"):
            found: NDArray[np.bool_] = (self.p < LEVEL) & self.beyond
        return found

    def above(self, floors: Mapping[ComparedColumn, float]) -> Self:
        """Return the differences with the rounding floors of columns, those that are known."""
        return replace(self, floor=np.array([floors.get(c, np.nan) for c in self.columns]))

    def column(self, metric: str, view: str = "", label: str = "") -> int | None:
        """Where a number stands; None where there is none."""
        wanted = ComparedColumn(metric, view, label)
        return self.columns.index(wanted) if wanted in self.columns else None

    def named(self, columns: tuple[ComparedColumn, ...]) -> Self:
        """The same numbers under other names."""
        return replace(self, columns=columns)

    @classmethod
    def beside(cls, parts: Sequence[Self]) -> Self:
        """Several, column by column."""
        names = ("a", "b", "value", "low", "high", "p", "sentences", "floors")
        return cls(
            tuple(column for part in parts for column in part.columns),
            *(np.concatenate([getattr(part, name) for part in parts], -1) for name in names),
        )

    @classmethod
    def of(cls, columns: Sequence[ComparedColumn], a: ClusterSums, b: ClusterSums) -> Self:
        """Differences of the columns of one metric and view, tested together.

        Args:
            a, b: *Shape:* ``(cluster, *cells, column)``.
        """
        known = all_metrics().get(columns[0].metric)
        spread = [known.spread(c.label) if known else Spread.USUAL for c in columns]
        limits = known.limits if known else ANYTHING
        found = differences(a, b, np.array(spread), limits)
        p = family_wise(a, b, found)
        values = found.a, found.b, found.value, found.low, found.high
        return cls(tuple(columns), *values, p, found.clusters)


def rounding_floors(
    sums: Iterable[tuple[Sequence[ComparedColumn], ClusterSums, ClusterSums]],
) -> dict[ComparedColumn, float]:
    """Return twice the largest difference over heads, or layers, of each number.

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
    """What two studies have of the same buckets: the columns of each metric and view, and sums.

    Args:
        columns, others: of both.
    """
    theirs = set(others)
    both = [column for column in columns if column in theirs]
    if not both or mine.once != other.once:
        return
    size = min(mine.size, other.size)
    one, another = (part if part.size == size else part.of_size(size) for part in (mine, other))
    keys = np.union1d(one.keys, another.keys)
    for family in dict.fromkeys(map(_family, both)):
        some = [column for column in both if _family(column) == family]
        sums = [
            _some(part, keys, [own.index(column) for column in some])
            for part, own in ((one, columns), (another, others))
        ]
        yield some, sums[0], sums[1]


def _family(column: Column) -> tuple[str, View | None]:
    """What is tested together: labels; of tokens all states, spaces and classes."""
    return column.metric, column.view if isinstance(column, HeadColumn) else None


def _some(part: BucketSums, keys: Ints, at: Sequence[int]) -> ClusterSums:
    """Some columns in all of the buckets."""
    place = np.searchsorted(keys, part.keys)
    n = np.zeros((len(keys), *part.n.shape[1:-1], len(at)))
    d = np.zeros_like(n)
    n[place], d[place] = part.n[..., at], part.d[..., at]
    return ClusterSums(n, d)
