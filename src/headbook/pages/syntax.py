"""The page of syntax: relations against surface rules, an example, layers, trees."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import HELD_OUT
from headbook.analysis.multiple_testing import ALPHA
from headbook.charts import Drawing, Plot
from headbook.charts.syntax import (
    RelationLine,
    TreePoint,
    relation_plot,
    relation_row,
    share_axis,
    tree_plot,
)
from headbook.charts.theme import fills_between, points_class
from headbook.metrics import all_metrics, ids
from headbook.pages.parts.blocks import Steps
from headbook.pages.parts.page import AnalysisPage, SentenceParts, StackSection, gap_text
from headbook.pages.parts.relations import (
    SyntaxExample,
    example_of,
    examples_of_labels,
    relation_table,
)
from headbook.pages.parts.table import PageTable
from headbook.report.answers import syntax as answers
from headbook.report.facts.tested.relations import BEST_OF_LAYER
from headbook.report.linked_rows import LinkedNumber, linked, relation_number
from headbook.report.relation_counts import METRIC, VIEW
from headbook.report.relation_tests import RelationTests, tests_of_stack
from headbook.report.relations import arrow_words, best_head_of_relation, points_text
from headbook.report.results import StackResults, study_of
from headbook.report.trees import TREES, best_heads_of_layers, plain_trees
from headbook.report.wording import (
    DIRECTIONS,
    count_text,
    estimate,
    p_family_wise_text,
    rule_phrase,
    whole_points,
)
from headbook.results.formats import head_name, percent, whole_percent
from headbook.results.sentence import Link, head_link
from headbook.schema import ALL, HeadKey, HeadName, relation_of
from headbook.study.manifest import Manifest, MissingPart

MOST_ROWS = 24  # relations before the others are folded
MOST_WEAK_ROWS = 8  # relations in the figure if none is claimed
MOST_CELLS = 450  # cells of the tables by layer, of all stacks together
MANY_LAYERS = 12  # layers beyond which the tables by layer are one below the other
METRICS = (METRIC, ids.RELATION_ACCURACY_FAR, *TREES)
CAPTION = (
    "Share of words whose strongest other word is the right one: best head (dot) and best surface "
    "rule (tick), a rule of word order and word class. Bars are 95 % intervals. Arrows run "
    "from query to key. Sorted by difference in points."
)
OBLIQUE = "An oblique is a noun that belongs to a verb by a preposition or case: sit in the garden."
OBLIQUE_RELATION = "obl"


@dataclass(frozen=True)
class RelationRow:
    """A relation in one direction: the best head against the best surface rule.

    Attributes:
        line: marks of the row.
        relation: name of the relation in the annotation.
        head: the best head.
        accuracy: share of the words that it finds.
        example: a query and its key from a sentence with a page; empty without one.
        points: difference of head and rule, with its unit.
        rule: the best rule in words.
    """

    line: RelationLine
    relation: str
    head: Link
    accuracy: str
    example: tuple[str, ...]
    points: LinkedNumber
    rule: str

    @property
    def svg(self) -> str:
        """Marks of the row as an SVG element."""
        return relation_row(self.line, "")


class MarginCell(NamedTuple):
    """The best head of a layer for a relation: its difference from the rule.

    Attributes:
        number: the difference in points; None in a layer without heads.
        head: number of the head in its layer, as ``H8``.
        fill: class of the fill, and ``top1`` for a supported difference.
        note: the difference with its interval.
    """

    number: LinkedNumber | None
    head: str
    fill: str
    note: str


class MarginTable(NamedTuple):
    """Differences of the best heads of all layers, for relations in one direction.

    Attributes:
        title: the direction.
        rows: relations, each with its name in the annotation and a cell for each layer.
    """

    title: str
    rows: tuple[tuple[str, str, tuple[MarginCell, ...]], ...]


class TreeFigure(NamedTuple):
    """Scores of induced trees by layer.

    Attributes:
        title: which trees.
        score: name of the score.
        note: meaning of filled marks, and trees that are not drawn.
        plot: the chart.
    """

    title: str
    score: str
    note: str
    plot: Plot


@dataclass(frozen=True)
class SyntaxStack(StackSection):
    """Relations and trees of one stack.

    Attributes:
        plot: all relations as one chart, for papers; None if no relation was tested.
        claimed, rows, more: relations that are claimed, others, and those that are folded.
        example: a claimed relation in a sentence; None without one.
        margins: tables by layer; ``left_out`` relations are not in them.
        legend: their fills; None without tables.
        layers: numbers of the layers with attention.
        trees: scores of induced trees by layer.
        numbers: all numbers of the tests; None if no relation was tested.
        worked: the computation for the first relation, in words.
        aligned: the head that aligns most with dependencies by weight; empty without one.
        terms: explanation of relations whose names are no everyday words.
        seldom: relations with too few sentences for a test.
    """

    plot: Plot | None
    claimed: tuple[RelationRow, ...]
    rows: tuple[RelationRow, ...]
    more: tuple[RelationRow, ...]
    example: SyntaxExample | None
    margins: tuple[MarginTable, ...]
    left_out: int
    legend: Steps | None
    layers: tuple[int, ...]
    trees: tuple[TreeFigure, ...]
    numbers: PageTable | None
    worked: str
    seldom: str
    aligned: SentenceParts = ()
    terms: str = ""

    @property
    def framed(self) -> bool:
        """Whether any cell of the tables by layer has a frame."""
        return any(
            "top1" in cell.fill
            for table in self.margins
            for *_, cells in table.rows
            for cell in cells
        )


@dataclass(frozen=True, kw_only=True)
class SyntaxPage(AnalysisPage):
    """The page of syntax in all stacks that attend within one text.

    Attributes:
        stacks: stacks with relations or trees.
        words: how many words are split into several tokens; empty if unknown.
        alpha: level of the tests.
        axis: axis below the relations.
    """

    template: ClassVar[str] = "syntax.html"
    styles = (*AnalysisPage.styles, "syntax")
    stacks: tuple[SyntaxStack, ...]
    words: SentenceParts
    alpha: ClassVar[float] = ALPHA
    axis: ClassVar[Drawing] = share_axis()


def syntax_page(results: Mapping[str, StackResults]) -> SyntaxPage:
    """Return the page of syntax."""
    manifest = study_of(results).manifest
    within = [r for r in results.values() if not r.stack.crosses]
    tested = [r for r in within if r.cached(tests_of_stack)]
    first = (tested or within)[0]
    stacks = (_stack(r, MOST_CELLS // len(within)) for r in within)
    return SyntaxPage(
        path="syntax.html",
        title="Which heads follow grammar?",
        topic="Syntax",
        description=f"Which heads of {manifest.model.name} attend along dependency relations more "
        "often than the best surface rule, and trees induced from their attention.",
        answer=answers.syntax_answer(first, first.cached(tests_of_stack)),
        scope=tuple(_scope(first)),
        absent=tuple(dict.fromkeys(text for r in within for text in _absent(manifest, r))),
        stacks=tuple(s for s in stacks if s.plot or s.trees or s.seldom),
        words=answers.split_words(first),
    )


def _scope(results: StackResults) -> Iterator[tuple[str, str]]:
    sample = results.study.corpus_sums.heads[results.stack.name].strongest_words
    if results.cached(tests_of_stack) is None or sample is None:
        return
    reporting = int(sample.half.sum())
    yield (
        "Sentences",
        f"{len(sample.half):,}, with their trees: {len(sample.half) - reporting:,} choose head "
        f"and rule, {reporting:,} confirm; numbers are of all.",
    )
    yield (
        "Compared with",
        "the best surface rule on the same words: a fixed distance, or the next, previous or "
        "nearest word of a class.",
    )


def _absent(manifest: Manifest, results: StackResults) -> Iterator[str]:
    for gap in manifest.gaps:
        if gap.key == MissingPart.TREE and gap.stack == results.stack.name:
            yield f"{gap_text(gap)}."
    lacking = [metric for metric in METRICS if metric not in results.by_id]
    if lacking:
        titles = ", ".join(all_metrics()[metric].title for metric in lacking)
        yield f"{titles}: measured with --metrics {','.join(lacking)}."


def _stack(results: StackResults, most_cells: int) -> SyntaxStack:
    tests, name = results.cached(tests_of_stack), results.stack.name
    trees = tuple(_tree_plots(results))
    layers = results.stack.attention_layers
    if tests is None or not tests.labels:
        seldom = answers.seldom_relations(results, ()) if tests else ""
        return SyntaxStack(
            name, None, (), (), (), None, (), 0, None, layers, trees, None, "", seldom
        )
    order = sorted(range(len(tests.labels)), key=lambda n: -tests.scores.margin.value[n])
    examples = examples_of_labels(results)
    rows = {n: _row(results, tests, n, examples) for n in order}
    others = [rows[n] for n in order if not tests.claimed[n]]
    claimed = [rows[n] for n in order if tests.claimed[n]]
    most = MOST_ROWS if claimed else min(MOST_ROWS, MOST_WEAK_ROWS)
    best = np.nanmax(tests.layer_margin.value, axis=0)
    listed = [*map(int, np.argsort(-best, kind="stable")[: max(1, most_cells // len(layers))])]
    return SyntaxStack(
        stack=name,
        plot=relation_plot(f"syntax-{name}", CAPTION, [row.line for row in (*claimed, *others)]),
        claimed=tuple(claimed),
        rows=tuple(others[:most]),
        more=tuple(others[most:]),
        example=example_of(results, tests) if claimed else None,
        margins=tuple(_margin_tables(results, tests, listed)),
        left_out=len(order) - len(listed),
        legend=margin_legend(tests.layer_margin.value[:, listed]),
        layers=layers,
        trees=trees,
        numbers=relation_table(results, tests),
        worked=answers.worked_example(results, tests, order[0]),
        seldom=answers.seldom_relations(results, tests.labels),
        aligned=answers.aligned_head(results) if trees else (),
        terms=OBLIQUE if any(row.relation == OBLIQUE_RELATION for row in rows.values()) else "",
    )


def _row(
    results: StackResults,
    tests: RelationTests,
    n: int,
    examples: Mapping[str, tuple[str, ...]],
) -> RelationRow:
    label, head = tests.labels[n], best_head_of_relation(tests, n, results.stack.name)
    scores = tests.scores
    accuracy, rule = scores.accuracy.at(n), float(scores.at_rule.value[n])
    margin = whole_points(float(scores.margin.value[n]))
    points = relation_number(results, tests, n, f"{margin} points")
    words = (
        f"{head_name(head)}, {arrow_words(label)} ({relation_of(label)[0]}): {estimate(accuracy)} "
        f"of {count_text(round(accuracy.events), 'word')}; best surface rule "
        f"({rule_phrase(tests.rule[n])}): "
        f"{percent(rule)}"
    )
    if not np.isnan(tests.p[n]):
        words += f"; {p_family_wise_text(float(tests.p[n]))}"
    claimed = bool(tests.claimed[n])
    line = RelationLine(
        arrow_words(label), head_name(head), accuracy, rule, claimed, words, points.href
    )
    return RelationRow(
        line=line,
        relation=relation_of(label)[0],
        head=head_link(head),
        accuracy=whole_percent(accuracy.value),
        example=examples.get(label, ()),
        points=points,
        rule=rule_phrase(tests.rule[n]),
    )


def _margin_tables(
    results: StackResults, tests: RelationTests, listed: Sequence[int]
) -> Iterator[MarginTable]:
    supported = tests.layer_supported
    for direction, title in DIRECTIONS.items():
        rows = tuple(
            (
                arrow_words(tests.labels[n]),
                relation_of(tests.labels[n])[0],
                tuple(
                    _margin_cell(results, tests, n, layer, supported=bool(supported[layer, n]))
                    for layer in results.stack.attention_layers
                ),
            )
            for n in listed
            if relation_of(tests.labels[n])[1] == direction
        )
        if rows:
            yield MarginTable(f"From {title.replace(' → ', ' to ')}", rows)


def _margin_cell(
    results: StackResults, tests: RelationTests, n: int, layer: int, *, supported: bool
) -> MarginCell:
    margin, label = tests.layer_margin.at(layer, n), tests.labels[n]
    if np.isnan(margin.value):
        return MarginCell(None, "", "q0", "")
    head = int(tests.layer_head[layer, n])
    row = (
        ("claim", BEST_OF_LAYER), ("stack", results.stack.name), ("layer", layer), ("head", head),
        ("label", label), ("split", ALL),
    )  # fmt: skip
    known = not np.isnan(margin.low)
    ends = f" [{points_text(margin.low)}, {points_text(margin.high)}]" if known else ""
    return MarginCell(
        LinkedNumber(whole_points(margin.value), "tests", row),
        f"H{head}",
        points_class(100 * margin.value) + " top1" * supported,
        f"{head_name(HeadName(results.stack.name, layer, head))}: {points_text(margin.value)} "
        f"points{ends}",
    )


def margin_legend(margins: NDArray[np.float64]) -> Steps | None:
    """Return the fills from that of the smallest difference to that of the largest."""
    if np.isnan(margins).all():
        return None
    low, high = float(np.nanmin(margins)), float(np.nanmax(margins))
    fills = fills_between(points_class(100 * low), points_class(100 * high))
    return Steps(whole_points(low), fills, f"{whole_points(high)} points")


BEST_BINARY = "best binary tree"  # the highest score that trees of two branches can reach
TREE_TITLES = {
    ids.DEPENDENCY_TREES: (
        "Dependency trees from the best head of each layer",
        "words linked to a word that they depend on, or that depends on them (UAS)",
    ),
    ids.PHRASE_TREES: (
        "Phrase trees from all heads of a layer together",
        "agreement of phrases (bracket F1; 100 %: all the same)",
    ),
}


def _tree_plots(results: StackResults) -> Iterator[TreeFigure]:
    for metric, (title, score) in TREE_TITLES.items():
        if not results.has_value(metric, VIEW, TREES[metric].own):
            continue
        plain = plain_trees(results, metric)
        points = [*_tree_points(results, metric)]
        if np.isnan(plain[0].score.value) or not points:
            continue
        baselines = [(plain[0].score.value, plain[0].name.removesuffix(" trees"))]
        if TREES[metric].ceiling:
            best = results.heads(metric, VIEW, TREES[metric].ceiling)
            baselines.append((best.at(points[0].layer, 0).value, BEST_BINARY))
        others = [f"{tree.name} {percent(tree.score.value)}" for tree in plain[1:]]
        beaten = "every tree without attention" if others else plain[0].name
        note = f"Filled: on the half that did not choose the head, above {beaten}" + (
            f"; {' and '.join(others)} are not drawn." if others else "."
        )
        name = f"syntax-{results.stack.name}-{metric.replace('_', '-')}"
        caption = f"{title}: {score}. {note}"
        plot = tree_plot(name, caption, points, baselines, "")
        yield TreeFigure(title, score, note, plot)


def _tree_points(results: StackResults, metric: str) -> Iterator[TreePoint]:
    """Yield the score of each layer: of all heads together, else of the best head.

    A point is filled if the held-out interval lies above every tree without attention.
    """
    labels, best = TREES[metric], best_heads_of_layers(results, metric)
    key = HeadKey(metric, VIEW, labels.joint or labels.own)
    limit = max(tree.limit for tree in plain_trees(results, metric, HELD_OUT))
    held_out = results.split(HELD_OUT, *key)
    for layer in results.stack.attention_layers:
        head = 0 if labels.joint else best.get(layer)
        if head is None:
            continue
        score = results.number(key, layer, None if labels.joint else head)
        if not score.known:
            continue
        name = f"L{layer}" if labels.joint else f"L{layer}·H{head}"
        words = f"layer {layer}" if labels.joint else head_name(
            HeadName(results.stack.name, layer, head)
        )  # fmt: skip
        yield TreePoint(
            layer, name, score, bool(held_out.low[layer, head] > limit),
            f"{words}: {score.as_text('interval')}", linked(score, "whole").href,
        )  # fmt: skip
