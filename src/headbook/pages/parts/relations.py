"""Relations of words: all numbers of their tests, and examples from sentences with a page."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.accumulators import NO_ESTIMATE, Estimate
from headbook.analysis.multiple_testing import ALPHA
from headbook.charts import Arc, Drawing, arc_diagram
from headbook.metrics import all_metrics
from headbook.pages.parts.sentence_maps import text_data
from headbook.pages.parts.table import NumberCell, PageTable, Row, words_cell
from headbook.report.relation_counts import METRIC, VIEW
from headbook.report.relation_tests import RelationTests
from headbook.report.relations import FAR, arrow_words, best_head_of_relation, points_text
from headbook.report.results import StackResults
from headbook.report.word_attention import WordLink, n_words, word_attention, word_links, word_names
from headbook.report.wording import (
    DIRECTIONS,
    capital,
    count_text,
    number_word,
    p_text,
    rule_phrase,
    sentence_page,
)
from headbook.results.formats import head_name, metric_page, number
from headbook.results.sentence import Link, head_link
from headbook.schema import HeadName, relation_of, universal_relation
from headbook.study.sentence_data import StoredSentence, StoredText

COLUMNS = (
    "Relation",
    "from query to key",
    "words",
    "head",
    Link("accuracy", metric_page(METRIC)),
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


def relation_table(results: StackResults, tests: RelationTests) -> PageTable:
    """Return all numbers of the tested relations, by their margin over the rule."""
    order = np.argsort(-tests.scores.margin.value, kind="stable")
    caption = (
        "One half of the sentences chooses head and rule; numbers are of all sentences. Bold: on "
        f"the other half above the rule at p < {ALPHA} family-wise, and the right class of words "
        "more often in the relation than elsewhere; grey: not."
    )
    rows = tuple(_row(results, tests, int(n)) for n in order)
    return PageTable(COLUMNS, rows, caption, "numbers relations")


def _row(results: StackResults, tests: RelationTests, n: int) -> Row:
    """Return the row of a relation and a direction."""
    label, head = tests.labels[n], best_head_of_relation(tests, n, results.stack.name)
    relation, direction = relation_of(label)
    accuracy = tests.scores.accuracy.at(n)
    even = results.uniform(METRIC, VIEW, label).value[head.layer]
    cells = (
        words_cell(DIRECTIONS[direction], style="direction"),
        f"{accuracy.events:,.0f}",
        head_link(head),
        NumberCell.of(accuracy, all_metrics()[METRIC]),
        rule_phrase(tests.rule[n]),
        number(float(tests.scores.at_rule.value[n]), share=True),
        number(float(even), share=True),
        _margin(tests.scores.margin.at(n)),
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


def _far(results: StackResults, label: str, head: HeadName) -> Estimate:
    """Return the accuracy of a head at words far apart, if there are any."""
    if not results.has_value(FAR, VIEW, label):
        return NO_ESTIMATE
    return results.heads(FAR, VIEW, label).at(head.layer, head.head)


def _margin(margin: Estimate) -> NumberCell:
    behind = f"{margin.sentences:,} sentences, {margin.events:,.0f} observations"
    ends = f"[{points_text(margin.low)}, {points_text(margin.high)}]"
    known = not np.isnan(margin.low)
    return NumberCell(points_text(margin.value), ends if known else "", behind, too_few=False)


SHORT_WORD = 10  # letters of a word of an example
MOST_WORDS = 20  # words of a sentence that fits a window
LEAST_WEIGHT = 0.1  # weight from which on an arc is drawn


@dataclass(frozen=True)
class SyntaxExample:
    """A sentence, a claimed relation, and the head that serves the relation.

    Attributes:
        sentence: link to the sentence with the head open.
        head: link to the head.
        relation: query and key.
        found, asked: number of words of the relation that the head finds, and of all, in words.
        drawing: the tree above the words, the head's attention below.
    """

    sentence: Link
    head: Link
    relation: str
    found: str
    asked: str
    drawing: Drawing


class _Listed(NamedTuple):
    """A listed sentence with its text and its attention in one stack."""

    sentence: StoredSentence
    text: StoredText
    maps: NDArray[np.uint8]

    def weights(self, head: HeadName, *, causal: bool) -> NDArray[np.float64]:
        """Return one head's attention between words. *Shape:* ``(word, word)``."""
        return word_attention(self.maps[head.layer, head.head], self.text, causal=causal)


def example_of(results: StackResults, tests: RelationTests) -> SyntaxExample | None:
    """Return an example of a claimed relation; None without a listed sentence with a tree.

    The relation is the one with the largest margin on the selection split; the sentence is the
    listed one of at most `MOST_WORDS` words (else of any length) in which its head finds most.
    """
    listed, number = [*_listed(results)], tests.best_label(tests.claimed)
    if number is None or not listed:
        return None
    short = [each for each in listed if n_words(each.text) <= MOST_WORDS]
    label, head = tests.labels[number], best_head_of_relation(tests, number, results.stack.name)
    causal = results.stack.causal
    links = [
        (each, word_links(each.weights(head, causal=causal), each.text, label, causal=causal))
        for each in short or listed
    ]
    best, found = max(links, key=lambda each: sum(link.found for link in each[1]))
    return SyntaxExample(
        sentence=Link(f"sentence {best.sentence.number}", _view(best, head, found)),
        head=head_link(head),
        relation=arrow_words(label),
        found=number_word(sum(link.found for link in found)),
        asked=number_word(len(found)),
        drawing=_arcs(results, best, head, found),
    )


def _view(best: _Listed, head: HeadName, found: Sequence[WordLink]) -> str:
    """Return the address of a sentence's page with the head open at a word that the head finds."""
    page = sentence_page(best.sentence.number)
    if not found:
        return page
    link = max(found, key=lambda each: each.found)
    units = text_data(best.text)["units"]
    q, k = (units[best.text.words.index(word)] for word in (link.query, link.key))
    state = f"view=nosink&units=words&at={head.stack}&heads={head.layer}.{head.head}"
    return f"{page}#{state}&q={q}&k={k}"


def _listed(results: StackResults) -> Iterator[_Listed]:
    """Yield the listed sentences with a tree and maps of the stack."""
    sentence_data, stack = results.study.sentence_data, results.stack
    for index, sentence in sentence_data.sentences.items():
        if sentence.listed and (stack.name, index) in sentence_data.maps:
            text = sentence.texts[stack.queries]
            if text.heads:
                yield _Listed(sentence, text, sentence_data.maps[stack.name, index])


def _arcs(
    results: StackResults, best: _Listed, head: HeadName, found: Sequence[WordLink]
) -> Drawing:
    """Draw the tree above the words, the head's attention below; what the head finds is marked."""
    words = word_names(best.text)
    pairs = {frozenset(link[:2]) for link in found}
    tree = [
        Arc(above, word, None, frozenset((above, word)) in pairs, universal_relation(relation))
        for word, (above, relation) in enumerate(
            zip(best.text.heads[: len(words)], best.text.relations, strict=False)
        )
        if 0 <= above < len(words) and above != word
    ]
    weights = best.weights(head, causal=results.stack.causal)
    hits = {link[:2] for link in found if link.found}
    query = [
        Arc(a, b, float(weights[a, b]), (a, b) in hits)
        for a, b in np.argwhere(weights >= LEAST_WEIGHT).tolist()
        if a != b
    ]
    caption = (
        f"{capital(results.study.manifest.text_noun)} {best.sentence.number}. Above: its "
        "dependency tree, arrows from head to dependent. Below: attention of head "
        f"{head_name(head)}, arrows from query to key, as wide as the weight (sink masked), from "
        f"{LEAST_WEIGHT:.0%} on. Dark: the relation, and where "
        "the head attends along it."
    )
    return arc_diagram(f"syntax-{results.stack.name}-example", caption, words, tree, query)


def examples_of_labels(results: StackResults) -> dict[str, tuple[str, ...]]:
    """Return the first query and key with short words in stored sentences, by label."""
    found: dict[str, tuple[str, ...]] = {}
    for listed in _listed(results):
        words = word_names(listed.text)
        pairs = zip(listed.text.heads[: len(words)], listed.text.relations, strict=False)
        for word, (head, relation) in enumerate(pairs):
            if not 0 <= head < len(words) or head == word:
                continue
            name = universal_relation(relation)
            for label, query, key in (
                (f"{name}:to_head", word, head),
                (f"{name}:to_dependent", head, word),
            ):
                pair = words[query], words[key]
                short = all(0 < len(each) < SHORT_WORD for each in pair)
                if short and (not results.stack.causal or key < query):
                    found.setdefault(label, pair)
    return found
