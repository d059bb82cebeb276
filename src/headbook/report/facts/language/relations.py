"""Facts about dependency relations: heads against the best surface rule, and their trees."""

from typing import NamedTuple

import numpy as np

from headbook.analysis.intervals import MIN_EFFECTIVE
from headbook.metrics import ids
from headbook.report.facts.tested.relations import relation_test
from headbook.report.leaders import chosen_head
from headbook.report.relation_counts import METRIC, VIEW
from headbook.report.relation_tests import MOST_HALF_WIDTH, RelationTests, tests_of_stack
from headbook.report.relations import arrow_words, best_head_of_relation, ends_of
from headbook.report.results import StackResults
from headbook.report.trees import heads_with_better_trees
from headbook.report.wording import NUMBER_WORDS, capital, count_text, number_word, rule_phrase
from headbook.results.fact import Fact, Tested
from headbook.results.formats import metric_page
from headbook.results.number import SHARE, Number, Unit
from headbook.results.sentence import NOTHING, Link, Sentence, say
from headbook.schema import HELD_OUT_SPLIT, HeadKey, HeadName, relation_of

BEST = "the best rule of word order and word class"
WIDE = f"± {100 * MOST_HALF_WIDTH:.0f} points"


def _points(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1.5 else f"{value:.1f}"


POINTS = Unit(" points", _points, 100)


def follows_grammar(results: StackResults) -> Fact:
    """Return which heads beat the best surface rule for a relation.

    Relations are named in the order of their margins on the selection split, so that the held-out
    margin, which is the evidence, is not inflated by the choice.
    """
    tests = results.cached(tests_of_stack)
    if tests is None:
        text = say(
            "Not measured here: the texts have no relations between words, or --metrics left them "
            "out."
        )
    elif not tests.labels:
        text = say(
            f"Not known: no relation has words in at least {MIN_EFFECTIVE} sentences of the half "
            "that reports."
        )
    elif tests.claimed.any():
        return _claimed(results, tests)
    else:
        text = _nothing_claimed(results, tests)
    return Fact("follows_grammar", text, holds=False)


def _claimed(results: StackResults, tests: RelationTests) -> Fact:
    """Return the head with the largest margin, and the one after it."""
    best = tests.best_label(tests.claimed)
    assert best is not None, "some relation is claimed"
    heads, tested = claimed_heads(results, tests), relation_test(results, tests, best)
    count, ends = len(heads), ends_of(tests.labels[best])
    more = f"More than {NUMBER_WORDS[-1]}"
    fields = {
        "number": capital(number_word(count)) if count < len(NUMBER_WORDS) else more,
        "does": "head clearly does" if count == 1 else "heads clearly do",
        "head": heads[0], "query": ends.query, "key": ends.key, "margin": over_rule(tested),
        "second": heads[1] if count > 1 else "",
        "rest": number_word(count - 2) if count < len(NUMBER_WORDS) else "more",
    }  # fmt: skip
    start = (
        "{number} {does}: {head} attends from {query} to {key} {margin} more often than the best "
        "surface rule"
    )
    text = say(f"{start}{OTHERS.get(count, MORE_OTHERS)}", **fields)
    if len(text.text.split()) > MAX_WORDS:
        text = say(f"{start}.", **fields)
    return Fact("follows_grammar", text, (tested,), tuple(heads))


MAX_WORDS = 30  # of an answer
OTHERS = {1: ".", 2: "; the other is {second}.", 3: "; {second} and one other follow."}
MORE_OTHERS = "; {second} and {rest} others follow."


def over_rule(tested: Tested) -> Number:
    """Return the difference of a head from the rule, in points, without its sign."""
    return Number.of(tested.difference, POINTS, tested.row)


def _nothing_claimed(results: StackResults, tests: RelationTests) -> Sentence:
    """Return in how many relations no head beats the rule, and in how many nothing is decided."""
    kind = "" if results.stack.name == "self" else f"{results.stack.name} "
    n_tested, n_above = len(tests.labels), int(tests.above_rule.sum())
    n_open = int(tests.undecided.sum())
    tested = f"{n_tested} relation{'s and directions' * (n_tested > 1)}"
    if n_above:
        return say(
            f"No {kind}head clearly does: in {number_word(n_above)} of {tested} one beats {BEST}, "
            "perhaps by preferring a word class."
        )
    if n_open == n_tested:
        return say(
            f"Too few words to decide: in all {tested} the 95 % interval of a {kind}head’s lead "
            f"over the best surface rule is wider than {WIDE}."
        )
    if n_open:
        return say(
            f"No {kind}head clearly beats the best surface rule in {n_tested - n_open} of {tested};"
            f" for {n_open} there are too few words to decide (intervals wider than {WIDE})."
        )
    where = f"any of {tested}" if n_tested > 1 else "the relation tested"
    return say(f"No {kind}head clearly beats {BEST} in {where}.") + _better_trees(results)


def _better_trees(results: StackResults) -> Sentence:
    """Return how many heads have better dependency trees than linking neighbours.

    A tree is a weaker test than a relation: any word at either end of a dependency counts.
    """
    count = len(heads_with_better_trees(results, ids.DEPENDENCY_TREES))
    if not count:
        return NOTHING
    trees = f"{capital(number_word(count))} {'heads’' if count > 1 else 'head’s'} trees"
    return say(
        "{trees} match dependencies better than linking neighbours.",
        trees=Link(trees, f"syntax.html#trees-{results.stack.name}"),
    )


def claimed_heads(results: StackResults, tests: RelationTests) -> list[HeadName]:
    """Return the heads with a claimed relation, by their margin on the selection split."""
    margins = tests.selection.margin.value
    order = sorted(tests.claimed.nonzero()[0].tolist(), key=lambda label: -margins[label])
    heads = (best_head_of_relation(tests, label, results.stack.name) for label in order)
    return [*dict.fromkeys(heads)]


def aligned_head(results: StackResults) -> Fact:
    """Return the head that gives dependencies most weight beyond distance, if any does.

    The named head leads on all sentences; one half of them chooses a head, and the other half has
    to confirm it. Weight on dependencies supports no claim of a relation.
    """
    key = HeadKey(ids.DEPENDENCY_EXCESS, VIEW, "")
    best = chosen_head(results, key)
    if best is None or not best.held_out.low > 0:
        return Fact("aligned_head", holds=False)
    text = say(
        "By weight, {head}{note} aligns most with dependencies: {excess:interval} beyond {even}. "
        "All its weight counts here; the relations above ask for the strongest word alone.",
        head=best.head, note=best.note, excess=results.number(key, *best.place, unit=POINTS),
        even=Link("what distances explain", metric_page(ids.DEPENDENCY_EXCESS)),
    )  # fmt: skip
    return Fact("aligned_head", text, heads=(best.head,))


class Untested(NamedTuple):
    """Relations without a test.

    Attributes:
        seldom: relations with words in too few sentences.
        masked: labels whose key follows the query in most words, so that a causal mask hides it.
    """

    seldom: tuple[str, ...]
    masked: tuple[str, ...]


def untested(results: StackResults) -> Untested:
    """Return the relations that were not tested, by the reason."""
    tests = results.cached(tests_of_stack)
    labels, tested = results.labels(METRIC), tests.labels if tests else ()
    words = {label: _n_words(results, label) for label in labels}
    occurs = [label for label in labels if words[label] + words.get(_reversed(label), 0)]
    left_out = [label for label in occurs if label not in tested]
    masked = tuple(
        label
        for label in left_out
        if results.stack.causal and words[label] < words.get(_reversed(label), 0)
    )
    seldom = (relation_of(x)[0] for x in left_out if x not in masked and words[x])
    return Untested(tuple(dict.fromkeys(seldom)), masked)


def _n_words(results: StackResults, label: str) -> int:
    """Return the number of words with a relation whose key their query sees."""
    if not results.has_value(METRIC, VIEW, label):
        return 0
    return int(np.nanmax(results.heads(METRIC, VIEW, label).events))


def _reversed(label: str) -> str:
    relation, direction = relation_of(label)
    return f"{relation}:{'to_dependent' if direction == 'to_head' else 'to_head'}"


def worked_example(results: StackResults, tests: RelationTests, n: int) -> Sentence:
    """Return the numbers of a relation as a worked example."""
    tested = relation_test(results, tests, n)
    accuracy, rule, family = tested.value, tested.baseline_value, tests.family
    words, p = round(accuracy.events), relation_test(results, tests, n, HELD_OUT_SPLIT).p_number
    text = (
        "{arrow}, {head}: right for {right} of {words} = {accuracy}. {Rule} is right for "
        "{by_rule}: {rule}. Difference {difference:interval}"
    )
    if p.known:
        text += "; on the half that did not choose p = {p} family-wise over {family} pairs of a "
        text += "head and a relation with its direction"
    return say(
        f"{text}.", arrow=arrow_words(tests.labels[n]), words=count_text(words, "word"),
        head=best_head_of_relation(tests, n, results.stack.name), accuracy=tested.number(SHARE),
        right=round(accuracy.value * words), Rule=capital(rule_phrase(tests.rule[n])),
        by_rule=round(rule * words), rule=tested.baseline_number(SHARE),
        difference=tested.change(share=True), p=p, family=family,
    )  # fmt: skip
