"""Relations that heads find, in the order in which heads beat surface rules: table and map."""

import numpy as np
import pandas as pd

from headbook.analysis.accumulators import NO_ESTIMATE, Estimate
from headbook.analysis.multiple_testing import ALPHA
from headbook.charts import Drawing, Figure, relation_layers
from headbook.charts.drawing import interval_dot
from headbook.metrics import all_metrics
from headbook.pages.parts.table import MarkedText, NumberCell, PageTable, Row, words_cell
from headbook.report.findings import HELD_OUT
from headbook.report.findings.finding import Link, head_link
from headbook.report.relation_counts import METRIC, VIEW
from headbook.report.relation_tests import RelationTests
from headbook.report.relations import FAR, best_head_of_relation, points_text
from headbook.report.results import StackResults
from headbook.report.wording import (
    DIRECTIONS,
    STACKS,
    count_text,
    head_name,
    number,
    number_word,
    p_text,
    rule_phrase,
)
from headbook.schema import relation_of
from headbook.study.sentence_data import HeadName

COLUMNS = (
    "Relation",
    "from query to key",
    "words",
    "head",
    Link("accuracy", f"metrics/{METRIC}.html"),
    words_cell(MarkedText("chart", "hidden")),
    "best surface rule",
    "its accuracy",
    "uniform attention",
    "difference (points)",
    "where the rule is wrong",
    "right class, in the relation and elsewhere",
    "accuracy at distance ≥ 3",
    "p family-wise",
)
SURE, WEAK = "sure", "weak"  # styles of rows: whether the relation is claimed


def verdict(tests: RelationTests) -> str:
    """Return how many relations have a head that beats the best rule, and how many are claimed."""
    if not tests.labels:
        return ""
    asked = {relation_of(label)[0] for label in tests.labels}
    above, claimed = (
        {relation_of(tests.labels[n])[0] for n in np.flatnonzero(flags)}
        for flags in (tests.above_rule, tests.claimed)
    )
    some, either = ", a head beats", "at least one"
    if not above:
        some, either = " does a head beat", "either"
    text = (
        f"In {number_word(len(above))} of {count_text(len(asked), 'relation')}{some} the best "
        "surface rule "
        f"in {either} direction (p < {ALPHA} family-wise, over {tests.family:,} pairs "
        "of a head and a relation with its direction)"
    )
    if not above:
        return f"{text}."
    return (
        f"{text}; in {number_word(len(claimed))}, the head does more than prefer a class of words."
    )


def relation_table(results: StackResults, tests: RelationTests, behind: str) -> PageTable:
    """The relations by margin, each with the head that finds it best; ``behind``: sentences."""
    order = np.argsort(-tests.margin.value, kind="stable")
    caption = (
        f"Relations by difference; {behind}. Filled and bold: above the rule at p < {ALPHA} "
        "family-wise, and the right class of words more often in the relation than elsewhere; "
        "hollow and grey: not. Dots on a scale from 0 to 1, the tick is the rule."
    )
    rows = tuple(_row(results, tests, int(n)) for n in order)
    return PageTable(COLUMNS, rows, caption, "numbers relations")


def _row(results: StackResults, tests: RelationTests, n: int) -> Row:
    """A relation and a direction; numbers of the reporting half."""
    label, head = tests.labels[n], best_head_of_relation(tests, n, results.stack.name)
    relation, direction = relation_of(label)
    accuracy = tests.accuracy.at(n)
    even = results.split(HELD_OUT, METRIC, VIEW, label, of="uniform").value[head.layer]
    cells = (
        words_cell(DIRECTIONS[direction], style="direction"),
        f"{accuracy.events:,.0f}",
        head_link(head),
        NumberCell.of(accuracy, all_metrics()[METRIC]),
        _dot(tests, n),
        rule_phrase(tests.rule[n]),
        number(float(tests.at_rule.value[n]), share=True),
        number(float(even), share=True),
        _margin(tests.margin.at(n)),
        NumberCell.of(tests.accuracy_where_rule_fails.at(n), all_metrics()[METRIC]),
        preference_words(tests, n),
        NumberCell.of(_far(results, label, head), all_metrics()[FAR]),
        p_text(float(tests.p[n])),
    )
    return Row(relation, cells, SURE if tests.claimed[n] else WEAK)


def preference_words(tests: RelationTests, n: int) -> str:
    """Return how often the strongest word is of the right class, in a relation and elsewhere."""
    found = tests.preference
    if not found.comparable[n]:
        return f"no comparison possible ({count_text(int(found.others[n]), 'other word')})"
    inside, outside = (
        number(float(part[n]), share=True) for part in (found.share, found.elsewhere)
    )
    difference = found.difference.at(n)
    ends = "" if np.isnan(difference.low) else (
        f" ({points_text(difference.value)} points [{points_text(difference.low)}, "
        f"{points_text(difference.high)}])"
    )  # fmt: skip
    return f"{inside}, {outside}{ends}"


def _dot(tests: RelationTests, n: int) -> Drawing:
    value, other = tests.accuracy.at(n), float(tests.at_rule.value[n])
    sure = bool(tests.claimed[n])
    dot = interval_dot(value.value, value.low, value.high, other, supported=sure)
    return Drawing(f"dot-{tests.labels[n]}", tests.labels[n], dot)


def _far(results: StackResults, label: str, head: HeadName) -> Estimate:
    """Accuracy of a head at words far apart, if there are any."""
    if not results.has_value(FAR, VIEW, label):
        return NO_ESTIMATE
    return results.split(HELD_OUT, FAR, VIEW, label).at(head.layer, head.head)


def _margin(margin: Estimate) -> NumberCell:
    behind = f"{margin.sentences:,} sentences, {margin.events:,.0f} observations"
    ends = f"[{points_text(margin.low)}, {points_text(margin.high)}]"
    known = not np.isnan(margin.low)
    return NumberCell(points_text(margin.value), ends if known else "", behind, too_few=False)


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
        "Relation accuracy of the best head of each layer minus that of the best surface rule; "
        "both are chosen on one half of the sentences and compared on the other; "
        f"{STACKS[stack.name]}. Blue: above the rule, orange: below; with a stroke: "
        f"not clearly above (p ≥ {ALPHA} family-wise). Relations by number of words."
    )
    return relation_layers(
        f"syntax-{stack.name}-layers",
        caption,
        rows,
        relations=[*map(str, order.index)],
        numbers=places.tolist(),
    )
