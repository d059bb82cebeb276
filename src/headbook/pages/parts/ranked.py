"""Relations that heads find, in the order in which heads beat fixed offsets: table and map."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headbook.analysis.flips import LEVEL
from headbook.charts import Drawing, Figure, relation_layers
from headbook.charts.drawn.dots import interval_dot
from headbook.metrics import all_metrics, ids
from headbook.pages.parts.cells import Cell
from headbook.pages.parts.table import Mark, Row, Table, words
from headbook.report.findings import REPORT
from headbook.report.findings.finding import Link, head_link
from headbook.report.numbers.inference import RelationTests, relation_tests
from headbook.report.numbers.results import NO_ESTIMATE, Estimate, StackResults
from headbook.report.wording import (
    DIRECTIONS,
    STACKS,
    counted,
    head_name,
    number,
    p_text,
    signed,
    small,
)
from headbook.study.sentencedata import HeadName
from headbook.study.summaries.sums import RelationHits
from headbook.terms import View, relation_of

METRIC, FAR = ids.RELATION_ACCURACY, ids.RELATION_ACCURACY_FAR
VIEW = View.NOSINK
MINUS = "−"


COLUMNS = (
    "Relation",
    "from query to key",
    "words",
    "head",
    Link("accuracy", f"metrics/{METRIC}.html"),
    words(Mark("chart", "hidden")),
    "best fixed offset",
    "its accuracy",
    "uniform attention",
    "difference (points)",
    "accuracy at distance ≥ 3",
    "p family-wise",
)
SURE, WEAK = "sure", "weak"  # styles of rows: whether the head beats the offset family-wise


def hits_of(results: StackResults) -> tuple[RelationHits, NDArray[np.bool_]] | None:
    """Which relations the heads of a stack find, and which heads there are; None without any.

    *Shape* of the second: ``(layer, head)``.
    """
    hits = results.study.corpus_sums.heads[results.stack.name].relation_hits
    there = [x for x in results.labels(METRIC) if results.has(METRIC, VIEW, x)]
    if results.stack.crosses or hits is None or not there:
        return None
    return hits, ~np.isnan(results.heads(METRIC, VIEW, there[0]).value)


def tests_of(results: StackResults) -> RelationTests | None:
    """The tests of a stack; None where the study did not keep what they need."""
    hits = hits_of(results)
    return relation_tests(*hits) if hits else None


def place_of(tests: RelationTests, label: int, stack: str) -> HeadName:
    """The best head of a label."""
    layer, head = map(int, tests.head[label])
    return HeadName(stack, layer, head)


def verdict(tests: RelationTests) -> str:
    """How many relations have a head that beats the best offset, in a sentence."""
    if not tests.labels:
        return ""
    asked = {relation_of(label)[0] for label in tests.labels}
    found = {relation_of(tests.labels[n])[0] for n in np.flatnonzero(tests.supported)}
    some, either = ", a head beats", "at least one"
    if not found:
        some, either = " does a head beat", "either"
    return (
        f"In {small(len(found))} of {counted(len(asked), 'relation')}{some} the best fixed offset "
        f"in {either} direction (p < {LEVEL} family-wise, over {tests.family:,} pairs "
        "of a head and a relation with its direction)."
    )


def relation_table(results: StackResults, tests: RelationTests, behind: str) -> Table:
    """The relations by margin, each with the head that finds it best; ``behind``: sentences."""
    order = np.argsort(-tests.margin.value, kind="stable")
    caption = (
        f"Relations by difference; {behind}. Filled and bold: above the offset at p < {LEVEL} "
        "family-wise; hollow and grey: not. Dots on a scale from 0 to 1, the tick is the offset."
    )
    rows = tuple(_row(results, tests, int(n)) for n in order)
    return Table(COLUMNS, rows, caption, "numbers relations")


def _row(results: StackResults, tests: RelationTests, n: int) -> Row:
    """A relation and a direction; numbers of the reporting half."""
    label, head = tests.labels[n], place_of(tests, n, results.stack.name)
    relation, direction = relation_of(label)
    accuracy = tests.accuracy.at(n)
    even = results.half(REPORT, METRIC, VIEW, label, of="uniform").value[head.layer]
    cells = (
        words(DIRECTIONS[direction], style="direction"),
        f"{accuracy.events:,.0f}",
        head_link(head),
        Cell.of(accuracy, all_metrics()[METRIC]),
        _dot(tests, n),
        signed(int(tests.offset[n])),
        number(float(tests.at_offset.value[n]), share=True),
        number(float(even), share=True),
        _margin(tests.margin.at(n)),
        Cell.of(_far(results, label, head), all_metrics()[FAR]),
        p_text(float(tests.p[n])),
    )
    return Row(relation, cells, SURE if tests.supported[n] else WEAK)


def _dot(tests: RelationTests, n: int) -> Drawing:
    value, other = tests.accuracy.at(n), float(tests.at_offset.value[n])
    sure = bool(tests.supported[n])
    dot = interval_dot(value.value, value.low, value.high, other, supported=sure)
    return Drawing(f"dot-{tests.labels[n]}", tests.labels[n], dot)


def _far(results: StackResults, label: str, head: HeadName) -> Estimate:
    """Accuracy of a head at words far apart, if there are any."""
    if not results.has(FAR, VIEW, label):
        return NO_ESTIMATE
    return results.half(REPORT, FAR, VIEW, label).at(head.layer, head.head)


def _margin(margin: Estimate) -> Cell:
    behind = f"{margin.sentences:,} sentences, {margin.events:,.0f} observations"
    ends = f"[{points(margin.low)}, {points(margin.high)}]"
    known = not np.isnan(margin.low)
    return Cell(points(margin.value), ends if known else "", behind, thin=False)


def points(difference: float) -> str:
    """A difference of shares in percentage points, with its sign."""
    return f"{100 * difference:+.1f}".replace("-", MINUS) if difference else "0.0"


def layer_figure(results: StackResults, tests: RelationTests) -> Figure:
    """Margins of the best head of each layer."""
    stack, numbers = results.stack, tests.layer_margin
    layer, label = np.nonzero(~np.isnan(numbers.value))
    columns = {n: getattr(numbers, n)[layer, label] for n in ("low", "high")}
    places = tests.layer_head[layer, label]
    heads = [
        head_name(HeadName(stack.name, int(a), int(b))) for a, b in zip(layer, places, strict=True)
    ]
    rows = pd.DataFrame(
        columns
        | {
            "relation": [relation_of(tests.labels[n])[0] for n in label],
            "way": [DIRECTIONS[relation_of(tests.labels[n])[1]] for n in label],
            "layer": layer,
            "head": heads,
            "margin": numbers.value[layer, label],
            "words": numbers.events[layer, label].astype(int),
        }
    )
    rows["supported"] = tests.layer_supported[layer, label]
    order = rows.groupby("relation")["words"].max().sort_values(ascending=False, kind="stable")
    caption = (
        "Relation accuracy of the best head of each layer minus that of the best fixed offset; "
        "both are chosen on one half of the sentences and compared on the other; "
        f"{STACKS[stack.name]}. Blue: above the offset, orange: below; with a stroke: "
        f"not clearly above (p ≥ {LEVEL} family-wise). Relations by number of words."
    )
    return relation_layers(
        f"syntax-{stack.name}-layers",
        caption,
        rows,
        relations=[*map(str, order.index)],
        numbers=places.tolist(),
    )
