"""Relations of words: all numbers of their tests, and examples from sentences with a page."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headbook.analysis.multiple_testing import ALPHA
from headbook.charts import Arc, Drawing, arc_diagram
from headbook.pages.parts.blocks import Group, Picture, Row, Table, row
from headbook.pages.parts.sentence_maps import text_data
from headbook.report.facts.tested.relations import (
    class_preference,
    relation_test,
    where_rule_fails,
)
from headbook.report.relation_counts import METRIC, VIEW
from headbook.report.relation_tests import RelationTests
from headbook.report.relations import FAR, arrow_words, best_head_of_relation
from headbook.report.results import StackResults
from headbook.report.word_attention import WordLink, n_words, word_attention, word_links, word_names
from headbook.report.wording import (
    DIRECTIONS,
    capital,
    count_text,
    number_word,
    rule_phrase,
    sentence_page,
)
from headbook.results.formats import head_name, metric_page
from headbook.results.number import SHARE
from headbook.results.sentence import Link, Sentence, say
from headbook.schema import HELD_OUT_SPLIT, HeadKey, HeadName, relation_of, universal_relation
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
    "difference",
    "where the rule is wrong",
    "right class, in the relation and elsewhere",
    "accuracy at distance ≥ 3",
    "p family-wise",
)
CAPTION = (
    "One half of the sentences chooses head and rule; numbers are of all sentences. Grey: not "
    f"above the rule at p < {ALPHA} family-wise on the other half, or the right class of words no "
    "more often in the relation than elsewhere."
)


def relation_table(results: StackResults, tests: RelationTests) -> Table:
    """Return all numbers of the tested relations, by their margin over the rule."""
    order = np.argsort(-tests.scores.margin.value, kind="stable").tolist()
    grey = frozenset(place for place, n in enumerate(order) if not tests.claimed[n])
    rows = tuple(_row(results, tests, n) for n in order)
    return Table(COLUMNS, rows, CAPTION, grey=grey)


def _row(results: StackResults, tests: RelationTests, n: int) -> Row:
    """Return the row of a relation and a direction."""
    label, head = tests.labels[n], best_head_of_relation(tests, n, results.stack.name)
    tested, fails = relation_test(results, tests, n), where_rule_fails(results, tests, n)
    far = HeadKey(FAR, VIEW, label)
    relation, direction = relation_of(label)
    return row(
        relation,
        DIRECTIONS[direction],
        round(tested.value.events),
        head,
        tested.number(SHARE),
        rule_phrase(tests.rule[n]),
        tested.baseline_number(SHARE),
        results.uniform_number(HeadKey(METRIC, VIEW, label), head.layer),
        tested.change(share=True),
        fails.number(SHARE) if fails else None,
        _preference(results, tests, n),
        results.number(far, head.layer, head.head) if results.has_value(*far) else None,
        relation_test(results, tests, n, HELD_OUT_SPLIT).p_number,
    )


def _preference(results: StackResults, tests: RelationTests, n: int) -> Sentence:
    """Return how often the strongest word is of the right class, in a relation and elsewhere."""
    tested = class_preference(results, tests, n)
    if tested is None:
        others = count_text(int(tests.preference.others[n]), "other word")
        return say("no comparison possible ({others})", others=others)
    return say(
        "{inside}, {elsewhere} ({difference:interval})", inside=tested.number(SHARE),
        elsewhere=tested.baseline_number(SHARE), difference=tested.change(share=True),
    )  # fmt: skip


SHORT_WORD = 10  # letters of a word of an example
MOST_WORDS = 20  # words of a sentence that fits a window
LEAST_WEIGHT = 0.1  # weight from which on an arc is drawn


class _Listed(NamedTuple):
    """A listed sentence with its text and its attention in one stack."""

    sentence: StoredSentence
    text: StoredText
    maps: NDArray[np.uint8]

    def weights(self, head: HeadName, *, causal: bool) -> NDArray[np.float64]:
        """Return one head's attention between words. *Shape:* ``(word, word)``."""
        return word_attention(self.maps[head.layer, head.head], self.text, causal=causal)


def example_of(results: StackResults, tests: RelationTests) -> Group | None:
    """Return an example of a claimed relation; None without a listed sentence with a tree.

    The relation is the one with the largest margin on the selection split; the sentence is the
    listed one of at most `MOST_WORDS` words (else of any length) in which its head finds most.
    """
    listed, number = [*_listed(results)], tests.best_label(tests.claimed)
    if number is None or not listed:
        return None
    short = [entry for entry in listed if n_words(entry.text) <= MOST_WORDS]
    label, head = tests.labels[number], best_head_of_relation(tests, number, results.stack.name)
    causal = results.stack.causal
    linked = [
        (entry, word_links(entry.weights(head, causal=causal), entry.text, label, causal=causal))
        for entry in short or listed
    ]
    best, links = max(linked, key=lambda entry: sum(link.found for link in entry[1]))
    title = say(
        "An example: {head} is right for {right} of {cases}",
        head=head, right=number_word(sum(link.found for link in links)),
        cases=number_word(len(links)),
    )  # fmt: skip
    name = f"{results.study.manifest.text_noun} {best.sentence.number}"
    note = say(
        "{relation} in {sentence}, chosen by rule: where this head is right most often, of the "
        f"sentences with a page and at most {MOST_WORDS} words",
        relation=arrow_words(label),
        sentence=Link(name, _view(best, head, links)),
    )
    picture = Picture(_arcs(results, best, head, links))
    return Group((picture,), title, note, f"example-{results.stack.name}", "an example")


def _view(best: _Listed, head: HeadName, links: Sequence[WordLink]) -> str:
    """Return the address of a sentence's page with the head open at a word that the head finds."""
    page = sentence_page(best.sentence.number)
    if not links:
        return page
    link = max(links, key=lambda entry: entry.found)
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
    results: StackResults, best: _Listed, head: HeadName, links: Sequence[WordLink]
) -> Drawing:
    """Draw the tree above the words, the head's attention below; what the head finds is marked."""
    words = word_names(best.text)
    pairs = {frozenset(link[:2]) for link in links}
    tree = [
        Arc(above, word, None, frozenset((above, word)) in pairs, universal_relation(relation))
        for word, (above, relation) in enumerate(
            zip(best.text.heads[: len(words)], best.text.relations, strict=False)
        )
        if 0 <= above < len(words) and above != word
    ]
    weights = best.weights(head, causal=results.stack.causal)
    hits = {link[:2] for link in links if link.found}
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


def examples_of_labels(results: StackResults) -> Mapping[str, tuple[str, str]]:
    """Return the first query and key with short words in stored sentences, by label."""
    examples: dict[str, tuple[str, str]] = {}
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
                short = all(0 < len(text) < SHORT_WORD for text in pair)
                if short and (not results.stack.causal or key < query):
                    examples.setdefault(label, pair)
    return examples
