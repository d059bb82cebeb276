"""The answer of the page of all heads, and the heads with the highest numbers."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headbook.metrics import ids
from headbook.report.facts.functions import WHERE_OF_FAMILY, FunctionFamily
from headbook.report.facts.head_facts import HeadFacts
from headbook.report.leaders import chosen_head
from headbook.report.linked_rows import LinkedNumber, head_number, relation_number
from headbook.report.relation_tests import tests_of_stack
from headbook.report.relations import best_head_of_relation, relation_words
from headbook.report.results import StackResults
from headbook.report.sink import sink_words
from headbook.report.wording import (
    capital,
    is_share,
    number_word,
    p_family_wise_text,
    rule_phrase,
    value_and_interval,
)
from headbook.results.formats import percent
from headbook.results.sentence import Link, Sentence, head_link, listed, say
from headbook.schema import HeadKey, SinkView

# What heads of a family do: of one head, and of several.
FAMILY_VERBS = {
    **{
        family: (f"attends {where}", f"attend {where}") for family, where in WHERE_OF_FAMILY.items()
    },
    FunctionFamily.EVEN: ("spreads its attention evenly", "spread their attention evenly"),
    FunctionFamily.MIXED: ("has no single function", "have no single function"),
}
MAX_FAMILIES = 3  # families that the answer names, the largest first


def heads_answer(facts: Sequence[HeadFacts]) -> Sentence:
    """Return how many heads the largest families have."""
    functions = [each.function for each in facts]
    untold = next((f for f in functions if f.family and not f.is_known), None)
    if untold is not None:
        return untold.text
    families = Counter(function.family for function in functions if function.family)
    if not families:
        return say("What single heads attend to was not measured here.")
    (first, n_first), *others = families.most_common(MAX_FAMILIES)
    total = say("{n} of {total} heads", n=capital(number_word(n_first)), total=len(facts))
    parts = [say("{total} {verb}", total=total, verb=FAMILY_VERBS[first][n_first > 1])]
    parts += [
        say("{n} {verb}", n=number_word(n), verb=FAMILY_VERBS[family][n > 1])
        for family, n in others
    ]
    return say("{parts}.", parts=listed(parts))


class HeadRanking(NamedTuple):
    """A metric by which the page names the highest or the lowest head.

    Attributes:
        text: what the head does most; empty for relations, and with ``{sink}`` for the sink.
        metric, label: metric and label.
        lowest: whether the lowest head is named.
    """

    text: str
    metric: str
    label: str = ""
    lowest: bool = False


RANKINGS = (
    HeadRanking("Most attention to the previous token", ids.ATTENTION_TO, "previous"),
    HeadRanking("Most attention to the next token", ids.ATTENTION_TO, "next"),
    HeadRanking("Most attention to the first token", ids.ATTENTION_TO, "first"),
    HeadRanking("Most attention to separators such as [SEP]", ids.ATTENTION_TO, "separator"),
    HeadRanking("Most attention to punctuation", ids.ATTENTION_TO, "punctuation"),
    HeadRanking("Most attention to other occurrences of the token", ids.ATTENTION_TO, "same_token"),
    HeadRanking(
        "Most attention to the rest of the token's own word", ids.ATTENTION_TO, "rest_of_word"
    ),
    HeadRanking("", ids.RELATION_ACCURACY, "obj:to_dependent"),
    HeadRanking("", ids.RELATION_ACCURACY, "obj:to_head"),
    HeadRanking("", ids.RELATION_ACCURACY, "nsubj:to_dependent"),
    HeadRanking("", ids.RELATION_ACCURACY, "det:to_head"),
    HeadRanking("Largest attention distance, as a ratio to uniform attention", ids.DISTANCE_RATIO),
    HeadRanking("Most attention to {sink}", ids.SINK_SHARE),
    HeadRanking("Lowest normalised entropy", ids.RELATIVE_ENTROPY, lowest=True),
    HeadRanking("Largest induction score", ids.INDUCTION_SCORE),
)


def ranking_text(ranking: HeadRanking, results: StackResults) -> str:
    """Return what the head of a ranking does most, in words."""
    text = ranking.text.format(sink=sink_words(results))
    return capital(text or relation_words(ranking.label))


@dataclass(frozen=True)
class RankedHead:
    """The head that leads a ranking.

    Attributes:
        head: head with its address.
        number: number over all sentences, with its row.
        interval: interval of the number, with the unit; empty without one.
        behind: what the number is compared with.
        supported: whether the held-out half supports it: by a family-wise test, or an interval
            that is clear of uniform attention.
    """

    head: Link
    number: LinkedNumber
    interval: str
    behind: str
    supported: bool


def first_head(results: StackResults, ranking: HeadRanking, view: SinkView) -> RankedHead | None:
    """Return the first head of a ranking; None without enough observations."""
    if ranking.metric == ids.RELATION_ACCURACY:
        tested = _first_of_relation(results, ranking.label)
        if tested is not None:
            return tested
    key = HeadKey(ranking.metric, view, ranking.label)
    best = chosen_head(results, key, lowest=ranking.lowest)
    if best is None:
        return None
    metric, uniform = results.by_id[ranking.metric], best.uniform.value
    share = is_share(metric)
    unit = f" {metric.unit}" if metric.unit and not share else ""
    text, ends = value_and_interval(best.value, share=share)
    text, ends = (text, ends + unit) if ends else (text + unit, "")
    is_below = best.held_out.high < best.held_out_uniform.value
    is_clear = is_below if ranking.lowest else best.is_above_uniform
    uniform_text = percent(uniform) if share else f"{uniform:.3g}"
    behind = "" if math.isnan(uniform) else f"uniform attention: {uniform_text}"
    linked = head_number(text, best.head, key)
    behind = (behind + best.note).strip()
    return RankedHead(head_link(best.head), linked, ends, behind, supported=bool(is_clear))


def _first_of_relation(results: StackResults, label: str) -> RankedHead | None:
    """Return the best head of a relation beside the best surface rule on the same words."""
    tests = results.cached(tests_of_stack)
    if tests is None or label not in tests.labels:
        return None
    n = tests.labels.index(label)
    scores, phrase = tests.scores, rule_phrase(tests.rule[n])
    at_rule = percent(float(scores.at_rule.value[n]))
    if tests.claimed[n]:
        p = p_family_wise_text(float(tests.p[n]))
        behind = f"best surface rule ({phrase}): {at_rule}, {p}"
    elif tests.above_rule[n]:
        behind = (
            f"above the best surface rule ({phrase}), {at_rule}, but no more than a preference for "
            "a class of words"
        )
    else:
        behind = f"not clearly above the best surface rule ({phrase}), {at_rule}"
    head = best_head_of_relation(tests, n, results.stack.name)
    text, ends = value_and_interval(scores.accuracy.at(n))
    number = relation_number(results, tests, n, text)
    return RankedHead(head_link(head), number, ends, behind, supported=bool(tests.claimed[n]))
