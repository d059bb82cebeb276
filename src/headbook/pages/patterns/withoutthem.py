"""Are sink heads dead? What the model loses without the heads of each type."""

from collections.abc import Iterator
from dataclasses import dataclass

from headbook.pages.parts.removed import TYPES, removed_table
from headbook.pages.parts.table import Table
from headbook.pages.patterns.patternfindings import without
from headbook.report.findings import Finding
from headbook.report.findings.importance import answer
from headbook.report.numbers.changes import margin_text
from headbook.report.numbers.headtypes import Types
from headbook.report.numbers.results import StackResults

DEAD = "Are sink heads dead?"


@dataclass(frozen=True)
class WithoutThem:
    """The answer for one kind of attention.

    Attributes:
        measured: whether heads were replaced at all.
        margin: below which a change counts as none, with its unit; empty where none was.
        findings: what the numbers say.
        table: three lines for each type; None where no heads were replaced together.
    """

    measured: bool
    margin: str
    findings: tuple[Finding, ...]
    table: Table | None


def without_them(results: StackResults, types: Types) -> WithoutThem:
    """What the model loses without the heads of each type."""
    removals = results.study.corpus_sums.removals
    if removals is None:
        return WithoutThem(measured=False, margin="", findings=(), table=None)
    return WithoutThem(
        measured=True,
        margin=margin_text(removals),
        findings=tuple(_findings(results, types)),
        table=removed_table(removals, results.study.head_groups, results.stack.name),
    )


def _findings(results: StackResults, types: Types) -> Iterator[Finding]:
    """Of types as a whole where their heads were replaced together, and of each sink head."""
    removals, groups = results.study.corpus_sums.removals, results.study.head_groups
    assert removals is not None
    for group in TYPES:
        yield from answer(removals, groups, results.stack.name, group, named=False)
        if group == "sink":
            sinks = [place for place, kind in types.items() if kind is not None and kind.sink]
            yield from without(results, sinks, "sink head")
