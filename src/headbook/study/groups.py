"""Sentences grouped by metadata columns and by minimal pairs: which columns, and their sums."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import RatioSums, add_fields
from headbook.analysis.arrays import Ints
from headbook.config import FACETS
from headbook.errors import ConfigError
from headbook.inputs import TextRecord
from headbook.inputs.rows import matching_column
from headbook.metrics.base import HeadMetric
from headbook.schema import MAIN_METRICS, AttentionStack, HeadKey
from headbook.study.manifest import MissingPart, NotAvailable

AUTO_COLUMNS, NO_COLUMNS = "auto", "none"  # values of --facet that name no columns
PAIR_COLUMN = "pair_id"  # metadata column with the id of a minimal pair
# Numbers of different values of a metadata column that groups sentences.
MIN_VALUES, MAX_VALUES = 2, 12
MAX_LABEL_CHARACTERS = 80  # characters of a value that distinguishes members of a pair


@dataclass(frozen=True)
class Facets:
    """Metadata columns by which sentences are compared.

    Attributes:
        columns: columns whose values group sentences.
        members: columns that may tell the two members of a pair apart.
        paired: whether any sentence has a value in the column `PAIR_COLUMN`.
        gaps: columns that were left out, with the reason.
    """

    columns: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    paired: bool = False
    gaps: tuple[NotAvailable, ...] = ()


@dataclass
class _ColumnValues:
    """Values of one metadata column.

    Attributes:
        sentences: number of sentences that have a value.
        values: all values, if the column may group sentences; else empty.
        of_pairs: the first `MIN_VALUES` + 1 values among sentences of pairs.
    """

    sentences: int = 0
    values: set[str] = field(default_factory=set)
    of_pairs: set[str] = field(default_factory=set)


def find_facets(
    sentences: Iterable[TextRecord], requested: str = AUTO_COLUMNS, member: str | None = None
) -> Facets:
    """Find the columns that group sentences and that tell members of pairs apart.

    Args:
        sentences: all sentences of the input.
        requested: columns separated by commas, `AUTO_COLUMNS` or `NO_COLUMNS`.
        member: the column that tells the members of a pair apart; None for any that does.

    Raises:
        ConfigError: a column is missing, or its values do not group sentences or tell members
            apart.
    """
    candidates: tuple[str, ...] = () if requested == NO_COLUMNS else tuple(requested.split(","))
    if requested == AUTO_COLUMNS:
        candidates = FACETS
    column_values, paired = _read_columns(sentences, {name.casefold() for name in candidates})
    candidates = tuple(matching_column(name, column_values) or name for name in candidates)
    member = member and (matching_column(member, column_values) or member)
    if requested not in {AUTO_COLUMNS, NO_COLUMNS}:
        for name in candidates:
            _check_groups(name, column_values)
    if member is not None:
        _check_members(member, column_values)
    n_values = {
        name: len(column_values[name].values) for name in candidates if name in column_values
    }
    # A requested column may have one value: another part of the corpus may have other values.
    n_values = {
        name: size
        for name, size in n_values.items()
        if requested != AUTO_COLUMNS or MIN_VALUES <= size < column_values[name].sentences
    }
    return Facets(
        columns=tuple(name for name, size in n_values.items() if size <= MAX_VALUES),
        members=(member,) if member else tuple(_member_columns(column_values)),
        paired=paired,
        gaps=tuple(_gaps(n_values)),
    )


def value_of(sentence: TextRecord, column: str) -> str:
    """Return the value of a sentence in a metadata column, or an empty string."""
    return sentence.metadata.get(column, "").strip()


def _read_columns(
    sentences: Iterable[TextRecord], candidates: Collection[str]
) -> tuple[dict[str, _ColumnValues], bool]:
    """Return the values of all metadata columns, and whether any sentence belongs to a pair.

    Args:
        sentences: all sentences of the input.
        candidates: names, in lower case, of the columns that may group sentences.
    """
    column_values: dict[str, _ColumnValues] = {}
    paired = False
    for sentence in sentences:
        in_pair = bool(value_of(sentence, PAIR_COLUMN))
        paired |= in_pair
        for name in sentence.metadata:
            column = column_values.setdefault(name, _ColumnValues())
            value = value_of(sentence, name)
            if value:
                column.sentences += 1
                if name.casefold() in candidates:
                    column.values.add(value)
                if in_pair and len(column.of_pairs) <= MIN_VALUES:
                    column.of_pairs.add(value)
    return column_values, paired


def _member_columns(column_values: dict[str, _ColumnValues]) -> Iterator[str]:
    """Yield columns with at most two values; a part of the input may have one value alone."""
    for name in sorted(column_values):
        pair_values = column_values[name].of_pairs
        if (
            name != PAIR_COLUMN
            and 0 < len(pair_values) <= MIN_VALUES
            and max(map(len, pair_values)) <= MAX_LABEL_CHARACTERS
        ):
            yield name


def _check_groups(name: str, column_values: dict[str, _ColumnValues]) -> None:
    _check_column_exists("--facet", name, column_values)
    column = column_values[name]
    if len(column.values) == column.sentences > 1:
        raise ConfigError(
            f"--facet: column '{name}' has another value in each sentence; expected values that "
            "sentences share"
        )


def _check_members(name: str, column_values: dict[str, _ColumnValues]) -> None:
    _check_column_exists("--pair-member", name, column_values)
    if len(column_values[name].of_pairs) > MIN_VALUES:
        raise ConfigError(
            f"--pair-member: column '{name}' has more than {MIN_VALUES} values among sentences "
            f"with a {PAIR_COLUMN}; expected one for each member"
        )


def _check_column_exists(option: str, name: str, column_values: dict[str, _ColumnValues]) -> None:
    if name not in column_values:
        expected = (
            f"one of {', '.join(sorted(column_values))}"
            if column_values
            else "an input with other columns"
        )
        raise ConfigError(f"{option}: no column '{name}' in the input; expected {expected}")


def _gaps(sizes: dict[str, int]) -> Iterator[NotAvailable]:
    """Yield columns that are left out because they have too many values."""
    for name, size in sizes.items():
        if size > MAX_VALUES:
            yield NotAvailable(
                f"groups by {name}",
                "",
                f"it has {size:,} values; at most {MAX_VALUES} compare",
                MissingPart.GROUPS,
            )


def rows_by_value(values: Sequence[str]) -> dict[str, list[int]]:
    """Return the positions of each value that is not empty."""
    rows: dict[str, list[int]] = {}
    for row, value in enumerate(values):
        if value:
            rows.setdefault(value, []).append(row)
    return rows


def pair_key(pair: str) -> int:
    """Return the hash of a pair's id, by which pairs are sampled."""
    return int.from_bytes(hashlib.blake2b(pair.encode(), digest_size=8).digest(), "big")


def compared_keys(
    metrics: Sequence[HeadMetric], columns: Sequence[HeadKey], stack: AttentionStack
) -> tuple[int, ...]:
    """Return the positions of the columns by which groups and pairs are compared.

    The columns are those of `MAIN_METRICS`, or of the first metric if none of these was measured.
    """
    measured_ids = {column.metric for column in columns}
    measured = [metric for metric in metrics if metric.id in measured_ids]
    main = [metric for metric in measured if metric.id in MAIN_METRICS]
    view = stack.default_view
    return tuple(
        columns.index(
            HeadKey(metric.id, view if view in metric.views else metric.views[0], metric.headline)
        )
        for metric in main or measured[:1]
    )


MAX_PAIR_SENTENCES = 3  # stored sentences of a pair; a third one shows that it is no pair


@dataclass(frozen=True, eq=False)
class GroupSums:
    """Sums of the sentences with one value in a metadata column, for one stack.

    Columns of numbers are those of the table of all sentences. Both halves of the sentences count
    as one.

    Attributes:
        column, value: metadata column, and the value that the sentences share.
        sentences: number of sentences.
        heads: *Shape:* ``(layer, head, column)``.
        layers: sums over the heads of a layer. *Shape:* ``(layer, column)``.
        uniform: sums under uniform attention. *Shape:* ``(layer, column)``.
    """

    column: str
    value: str
    sentences: int
    heads: RatioSums
    layers: RatioSums
    uniform: RatioSums

    __add__ = add_fields


def merge_groups(groups: Iterable[GroupSums]) -> tuple[GroupSums, ...]:
    """Merge groups with equal column and value; return them in the order of their names."""
    merged: dict[tuple[str, str], GroupSums] = {}
    for group in groups:
        name = group.column, group.value
        merged[name] = merged[name] + group if name in merged else group
    return tuple(merged[name] for name in sorted(merged))


@dataclass(frozen=True, eq=False)
class PairMembers:
    """Sentences of minimal pairs one by one, of the pairs with the smallest hashes.

    The first `MAX_PAIR_SENTENCES` sentences of each pair are stored.

    Attributes:
        size: largest number of pairs.
        places: columns of the table of all sentences that the values belong to.
        pair: hash of the pair's id. *Shape:* ``(kept,)``.
        index: place of each sentence in the input. *Shape:* ``(kept,)``.
        labels: value of each sentence by metadata column; empty without one.
        values: numbers of each sentence, NaN if missing. *Shape:* ``(kept, layer, head, place)``.
    """

    size: int
    places: tuple[int, ...]
    pair: NDArray[np.uint64]
    index: Ints
    labels: Mapping[str, tuple[str, ...]]
    values: NDArray[np.float32]

    def __add__(self, other: "PairMembers") -> "PairMembers":
        names = dict.fromkeys([*self.labels, *other.labels])
        return PairMembers(
            self.size,
            self.places,
            np.concatenate([self.pair, other.pair]),
            np.concatenate([self.index, other.index]),
            {name: self.texts(name) + other.texts(name) for name in names},
            np.concatenate([self.values, other.values]),
        ).smallest()

    def texts(self, column: str) -> tuple[str, ...]:
        """Return the value of each sentence in a metadata column; empty if missing."""
        return self.labels.get(column, ("",) * len(self.index))

    def shifted(self, by: int) -> "PairMembers":
        """Return a copy whose sentence indices are increased by ``by``."""
        return replace(self, index=self.index + by)

    def smallest(self) -> "PairMembers":
        """Return the pairs with the smallest hashes, in the order of their hashes."""
        order = np.lexsort((self.index, self.pair))
        _, starts, pair_rank = np.unique(self.pair[order], return_index=True, return_inverse=True)
        place_in_pair = np.arange(len(order)) - starts[pair_rank]
        chosen = order[(pair_rank < self.size) & (place_in_pair < MAX_PAIR_SENTENCES)]
        return replace(
            self,
            pair=self.pair[chosen],
            index=self.index[chosen],
            labels={name: tuple(texts[i] for i in chosen) for name, texts in self.labels.items()},
            values=self.values[chosen],
        )
