"""Relations that heads find, in the order in which heads beat fixed offsets: table and map."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from headbook.analysis.flips import LEVEL
from headbook.charts import Drawing, Figure, relation_layers
from headbook.charts.drawn.dots import interval_dot
from headbook.metrics import all_metrics
from headbook.pages.parts.cells import Cell
from headbook.report.findings import REPORT
from headbook.report.numbers.inference import RelationTests, relation_tests
from headbook.report.numbers.results import Estimate, StackResults
from headbook.report.wording import (
    DIRECTIONS,
    STACKS,
    counted,
    head_name,
    head_page,
    number,
    p_text,
    signed,
    small,
)
from headbook.study.sentencedata import HeadName
from headbook.terms import View, relation_of

METRIC, FAR = "relation_accuracy", "relation_accuracy_far"
VIEW = View.NOSINK
MINUS = "−"


@dataclass(frozen=True)
class RelationRow:
    """A relation and a direction, with the head that finds it best.

    Attributes:
        relation, direction: the label in two parts, as words.
        words: how many were asked for in the reporting half.
        head, href: the head and its page.
        accuracy: share of the words that it finds.
        offset, at_offset: the best fixed offset and what it finds.
        uniform: what a look at any other visible word alike would find.
        margin: head minus offset, in percentage points, with its interval.
        dot: accuracy, its interval and the offset as a picture.
        supported: whether the head beats the offset family-wise.
        far: accuracy of the same head at words three or more apart.
        p: family-wise.
    """

    relation: str
    direction: str
    words: str
    head: str
    href: str
    accuracy: Cell
    offset: str
    at_offset: str
    uniform: str
    margin: Cell
    dot: Drawing
    supported: bool
    far: Cell
    p: str


def tests_of(results: StackResults) -> RelationTests | None:
    """The tests of a stack; None where the study did not keep what they need."""
    sums = results.study.corpus_sums.heads.get(results.stack.name)
    if results.stack.crosses or sums is None or sums.relation_hits is None:
        return None
    there = [x for x in all_metrics()[METRIC].labels if results.has(METRIC, VIEW, x)]
    if not there:
        return None
    present = ~np.isnan(results.heads(METRIC, VIEW, there[0]).value)
    return relation_tests(sums.relation_hits, present)


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
    return (
        f"In {small(len(found))} of {counted(len(asked), 'relation')}, a head beats the best fixed "
        f"offset in at least one direction (p < {LEVEL} family-wise, over {tests.family:,} pairs "
        "of a head and a relation with its direction)."
    )


def relation_rows(results: StackResults, tests: RelationTests) -> Iterator[RelationRow]:
    """The table of relations, by margin."""
    metric, far = all_metrics()[METRIC], all_metrics()[FAR]
    for n in np.argsort(-tests.margin.value, kind="stable"):
        label = tests.labels[n]
        head = place_of(tests, int(n), results.stack.name)
        accuracy, margin = tests.accuracy.at(n), tests.margin.at(n)
        even = results.half(REPORT, METRIC, VIEW, label, of="uniform").value[head.layer]
        yield RelationRow(
            relation=relation_of(label)[0],
            direction=DIRECTIONS[relation_of(label)[1]],
            words=f"{accuracy.events:,.0f}",
            head=head_name(head),
            href=head_page(head),
            accuracy=Cell.of(accuracy, metric),
            offset=signed(int(tests.offset[n])),
            at_offset=number(float(tests.at_offset.value[n]), share=True),
            uniform=number(float(even), share=True),
            margin=_margin(margin),
            dot=_dot(tests, int(n)),
            supported=bool(tests.supported[n]),
            far=Cell.of(_far(results, label, head), far),
            p=p_text(float(tests.p[n])),
        )


def _dot(tests: RelationTests, n: int) -> Drawing:
    value, other = tests.accuracy.at(n), float(tests.at_offset.value[n])
    sure = bool(tests.supported[n])
    dot = interval_dot(value.value, value.low, value.high, other, supported=sure)
    return Drawing(f"dot-{tests.labels[n]}", tests.labels[n], dot)


def _far(results: StackResults, label: str, head: HeadName) -> Estimate:
    """Accuracy of a head at words far apart, if there are any."""
    if not results.has(FAR, VIEW, label):
        return Estimate(np.nan, np.nan, np.nan, 0, 0)
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
        f"{STACKS[stack.name]}. Blue: above the offset, orange: below, hatched: no clear "
        f"difference (p ≥ {LEVEL} family-wise). Relations by number of words."
    )
    return relation_layers(
        f"syntax-{stack.name}-layers", caption, rows, relations=[*map(str, order.index)]
    )
