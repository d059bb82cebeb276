"""Types of heads in two models: which keep theirs, beside what chance would keep."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headbook.pages.parts.both import BothStacks
from headbook.pages.parts.table import Content, Row, Table, words
from headbook.report.numbers.headtypes import head_types
from headbook.report.wording import counted, number


@dataclass(frozen=True)
class TypeChanges:
    """Types of corresponding heads.

    Attributes:
        summary: how many heads keep theirs, and what chance would give.
        table: rows are types in the first model, columns those in the second.
    """

    summary: str
    table: Table


def type_changes(both: BothStacks) -> TypeChanges | None:
    """Types of heads in one model against those in the other; None where they are not known."""
    mine, theirs = head_types(both.a), head_types(both.b)
    pairs = [
        (one.family, other.family)
        for place, one in mine.items()
        if one is not None and one.family and (other := theirs.get(place)) and other.family
    ]
    if not pairs:
        return None
    kinds = sorted({kind for pair in pairs for kind in pair})
    counts = np.zeros((len(kinds), len(kinds)), np.int64)
    for pair in pairs:
        counts[kinds.index(pair[0]), kinds.index(pair[1])] += 1
    rows = tuple(_rows(kinds, counts))
    names = both.names
    columns = (f"in {names[0]}", *kinds, "all")
    groups = ((f"Type in {names[1]}", len(kinds) + 1),)
    return TypeChanges(_summary(counts), Table(columns, rows, groups=groups))


def _rows(kinds: list[str], counts: "np.typing.NDArray[np.int64]") -> Iterator[Row]:
    for place, kind in enumerate(kinds):
        cells: list[Content] = [str(n) if n else None for n in counts[place].tolist()]
        if counts[place, place]:
            cells[place] = words(str(counts[place, place]), style="number kept")
        yield Row(kind, (*cells, str(counts[place].sum())))
    yield Row("all", (*(str(n) for n in counts.sum(0).tolist()), str(counts.sum())))


def _summary(counts: "np.typing.NDArray[np.int64]") -> str:
    """Heads that keep their type, beside types dealt out anew, and Cohen's kappa."""
    total, kept = int(counts.sum()), int(np.trace(counts))
    chance = float((counts.sum(0) * counts.sum(1)).sum()) / total
    begin = f"Of {counted(total, 'head')}, {kept:,} have the same type in both models"
    if chance >= total:
        return f"{begin}; all are of one type."
    kappa = (kept - chance) / (total - chance)
    return (
        f"{begin}; {number(chance)} would if types were dealt out at random in the same numbers "
        f"(Cohen's κ {number(kappa)}: 0 is chance, 1 no change)."
    )
