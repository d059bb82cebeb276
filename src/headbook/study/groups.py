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
from headbook.inputs import Sentence
from headbook.metrics.base import HeadMetric
from headbook.schema import MAIN_METRICS, AttentionStack, HeadKey
from headbook.study.manifest import MissingPart, NotAvailable

AUTO, NO_GROUPS = "auto", "none"
PAIR = "pair_id"
FEWEST, MOST = 2, 12  # least and largest number of values of a column that groups sentences
LONGEST = 80  # characters of a value that tells members of a pair apart


@dataclass(frozen=True)
class Facets:
    """Metadata columns by which sentences are compared.

    Attributes:
        columns: columns whose values group sentences.
        members: columns that may tell the two members of a pair apart.
        paired: whether any sentence has a value in the column `PAIR`.
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
        of_pairs: the first `FEWEST` + 1 values among sentences of pairs.
    """

    sentences: int = 0
    values: set[str] = field(default_factory=set)
    of_pairs: set[str] = field(default_factory=set)


def find_facets(
    sentences: Iterable[Sentence], asked: str = AUTO, member: str | None = None
) -> Facets:
    """Find the columns that group sentences and that tell members of pairs apart.

    Args:
        asked: columns separated by commas, `AUTO` or `NO_GROUPS`.
        member: the column that tells the members of a pair apart; None for any that does.

    Raises:
        ConfigError: a column is missing, or its values do not group sentences or tell members
            apart.
    """
    wanted = () if asked == NO_GROUPS else FACETS if asked == AUTO else tuple(asked.split(","))
    seen, paired = _read(sentences, wanted)
    if asked not in {AUTO, NO_GROUPS}:
        for name in wanted:
            _check_groups(name, seen)
    if member is not None:
        _check_members(member, seen)
    there = {name: len(seen[name].values) for name in wanted if name in seen}
    # A column that was asked for may have one value: another part of the corpus may have others.
    there = {
        name: size
        for name, size in there.items()
        if asked != AUTO or FEWEST <= size < seen[name].sentences
    }
    return Facets(
        columns=tuple(name for name, size in there.items() if size <= MOST),
        members=(member,) if member else tuple(_members(seen)),
        paired=paired,
        gaps=tuple(_gaps(there)),
    )


def value_of(sentence: Sentence, column: str) -> str:
    """Return the value of a sentence in a metadata column, or an empty string."""
    return sentence.metadata.get(column, "").strip()


def _read(
    sentences: Iterable[Sentence], wanted: Collection[str]
) -> tuple[dict[str, _ColumnValues], bool]:
    seen: dict[str, _ColumnValues] = {}
    paired = False
    for sentence in sentences:
        own = bool(value_of(sentence, PAIR))
        paired |= own
        for name in sentence.metadata:
            column, value = seen.setdefault(name, _ColumnValues()), value_of(sentence, name)
            if value:
                column.sentences += 1
                if name in wanted:
                    column.values.add(value)
                if own and len(column.of_pairs) <= FEWEST:
                    column.of_pairs.add(value)
    return seen, paired


def _members(seen: dict[str, _ColumnValues]) -> Iterator[str]:
    """Yield columns with at most two values; a part of the input may have one value alone."""
    for name in sorted(seen):
        texts = seen[name].of_pairs
        if name != PAIR and 0 < len(texts) <= FEWEST and max(map(len, texts)) <= LONGEST:
            yield name


def _check_groups(name: str, seen: dict[str, _ColumnValues]) -> None:
    _check_there("--facet", name, seen)
    column = seen[name]
    if len(column.values) == column.sentences > 1:
        raise ConfigError(
            f"--facet: column '{name}' has another value in each sentence; expected values that "
            "sentences share"
        )


def _check_members(name: str, seen: dict[str, _ColumnValues]) -> None:
    _check_there("--pair-member", name, seen)
    if len(seen[name].of_pairs) > FEWEST:
        raise ConfigError(
            f"--pair-member: column '{name}' has more than {FEWEST} values among sentences with a "
            f"{PAIR}; expected one for each member"
        )


def _check_there(option: str, name: str, seen: dict[str, _ColumnValues]) -> None:
    if name not in seen:
        there = f"one of {', '.join(sorted(seen))}" if seen else "an input with other columns"
        raise ConfigError(f"{option}: no column '{name}' in the input; expected {there}")


def _gaps(sizes: dict[str, int]) -> Iterator[NotAvailable]:
    """Yield columns that are left out because they have too many values."""
    for name, size in sizes.items():
        if size > MOST:
            yield NotAvailable(
                f"groups by {name}",
                "",
                f"it has {size:,} values; at most {MOST} compare",
                MissingPart.GROUPS,
            )


def rows_by_value(values: Sequence[str]) -> dict[str, list[int]]:
    """Return the positions of each value that is not empty."""
    found: dict[str, list[int]] = {}
    for index, value in enumerate(values):
        if value:
            found.setdefault(value, []).append(index)
    return found


def pair_key(pair: str) -> int:
    """Return the hash of a pair's id, by which pairs are sampled."""
    return int.from_bytes(hashlib.blake2b(pair.encode(), digest_size=8).digest(), "big")


def compared_keys(
    metrics: Sequence[HeadMetric], columns: Sequence[HeadKey], stack: AttentionStack
) -> tuple[int, ...]:
    """Return the positions of the columns by which groups and pairs are compared.

    The columns are those of `MAIN_METRICS`, or of the first metric if none of these was measured.
    """
    there = {column.metric for column in columns}
    measured = [metric for metric in metrics if metric.id in there]
    view = stack.default_view
    return tuple(
        columns.index(HeadKey(m.id, view if view in m.views else m.views[0], m.headline))
        for m in [metric for metric in measured if metric.id in MAIN_METRICS] or measured[:1]
    )


ENOUGH = 3  # sentences stored of a pair: a third sentence shows that there is no pair


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
    found: dict[tuple[str, str], GroupSums] = {}
    for group in groups:
        name = group.column, group.value
        found[name] = found[name] + group if name in found else group
    return tuple(found[name] for name in sorted(found))


@dataclass(frozen=True, eq=False)
class PairMembers:
    """Sentences of minimal pairs one by one, of the pairs with the smallest hashes.

    The first `ENOUGH` sentences of each pair are stored.

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
        _, starts, rank = np.unique(self.pair[order], return_index=True, return_inverse=True)
        within = np.arange(len(order)) - starts[rank]
        kept = order[(rank < self.size) & (within < ENOUGH)]
        return replace(
            self,
            pair=self.pair[kept],
            index=self.index[kept],
            labels={name: tuple(texts[i] for i in kept) for name, texts in self.labels.items()},
            values=self.values[kept],
        )
