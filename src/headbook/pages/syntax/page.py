"""Syntax: relations that heads find, trees drawn from attention, and words cut into pieces."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from headbook.charts import Figure
from headbook.metrics import ids
from headbook.pages.parts.menu import ANALYSES
from headbook.pages.parts.page import Page, StackSection, gap_text
from headbook.pages.parts.ranked import (
    layer_figure,
    relation_table,
    verdict,
)
from headbook.pages.parts.table import Table
from headbook.pages.syntax.treeexample import Example, example_of
from headbook.pages.syntax.treetables import KINDS, Pieces, Trees, pieces_of, trees_of
from headbook.report.numbers.inference import VIEW, RelationTests, tests_of
from headbook.report.numbers.results import StackResults, study_of
from headbook.report.wording import DIRECTIONS, counted
from headbook.study.gaps import Lack
from headbook.study.manifest import Manifest
from headbook.terms import relation_of

METRICS = (ids.RELATION_ACCURACY, ids.RELATION_ACCURACY_FAR, *KINDS, ids.ATTENTION_TO)


@dataclass(frozen=True)
class Relations:
    """Relations that heads find.

    Attributes:
        behind: how many sentences stand behind the choice and the report, in words.
        verdict: how many relations have a head that beats the best surface rule.
        table: by margin.
        left_out: relations with too few words, in words; may be empty.
        figure: margins by layer; None without rows.
        example: a sentence; None where none can be shown.
    """

    behind: str
    verdict: str
    table: Table
    left_out: str
    figure: Figure | None
    example: Example | None


@dataclass(frozen=True)
class SyntaxSection(StackSection):
    """One kind of attention.

    Attributes:
        relations: None where the study did not measure any.
        trees: phrase trees and dependency trees.
        pieces: None where no words are known.
    """

    relations: Relations | None
    trees: tuple[Trees, ...]
    pieces: Pieces | None


@dataclass(frozen=True, kw_only=True)
class SyntaxPage(Page):
    """Syntax in all stacks that look within one text.

    Attributes:
        sections: by stack; none without trees and words.
        remarks: what is missing, and why.
    """

    template: ClassVar[str] = "syntax.html"
    sections: tuple[SyntaxSection, ...]
    remarks: tuple[str, ...]


def syntax_page(results: Mapping[str, StackResults]) -> SyntaxPage:
    """The page of syntax."""
    manifest = study_of(results).manifest
    within = [r for r in results.values() if not r.stack.crosses]
    sections = [_section(r) for r in within]
    return SyntaxPage(
        path="syntax.html",
        title=ANALYSES["syntax.html"],
        description=f"Which heads of {manifest.model.name} attend along dependency relations more "
        "often than the best surface rule, and trees induced from their attention.",
        sections=tuple(s for s in sections if s.relations or s.trees or s.pieces),
        remarks=tuple(dict.fromkeys(remark for r in within for remark in _remarks(manifest, r))),
    )


def _remarks(manifest: Manifest, results: StackResults) -> Iterator[str]:
    """Why something is missing: the texts have no trees, or nobody asked for the metric."""
    for gap in manifest.gaps:
        if gap.key == Lack.TREE and gap.stack == results.stack.name:
            yield gap_text(gap)
    lacking = [m for m in METRICS if m not in results.by_id]
    if lacking:
        yield f"{', '.join(lacking)} (not chosen with --metrics)"


def _section(results: StackResults) -> SyntaxSection:
    tests = results.once(tests_of)
    return SyntaxSection(
        stack=results.stack.name,
        relations=None if tests is None else _relations(results, tests),
        trees=tuple(trees_of(results)),
        pieces=pieces_of(results),
    )


def _relations(results: StackResults, tests: RelationTests) -> Relations:
    sample = results.study.corpus_sums.heads[results.stack.name].strongest_words
    assert sample is not None, "there are tests"
    second = int(sample.half.sum())
    first = len(sample.half) - second
    behind = f"{counted(first, 'sentence')} to choose, {counted(second, 'sentence')} to report"
    return Relations(
        behind=behind,
        verdict=verdict(tests),
        table=relation_table(results, tests, behind),
        left_out=_left_out(results, tests),
        figure=layer_figure(results, tests) if tests.labels else None,
        example=example_of(results, tests),
    )


def _left_out(results: StackResults, tests: RelationTests) -> str:
    """Relations that occur, but too seldom, by direction."""
    there = [
        x
        for x in results.labels(ids.RELATION_ACCURACY)
        if results.has(ids.RELATION_ACCURACY, VIEW, x)
    ]
    directions: dict[str, list[str]] = {}
    for relation, way in map(relation_of, (x for x in there if x not in tests.labels)):
        directions.setdefault(relation, []).append(DIRECTIONS[way])
    groups: dict[str, list[str]] = {}
    for relation, found in directions.items():
        name = "both directions" if len(found) == len(DIRECTIONS) else found[0]
        groups.setdefault(name, []).append(relation)
    return "; ".join(f"{name}: {', '.join(names)}" for name, names in groups.items())
