"""The answer of the page of all heads, and the heads with the highest numbers."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headbook.metrics import ids
from headbook.report.families import Family, family_names
from headbook.report.findings.finding import choose_head, uniform_estimate
from headbook.report.head_facts import HeadFacts
from headbook.report.linked_rows import LinkedNumber, claim_number
from headbook.report.relation_counts import VIEW
from headbook.report.relation_tests import tests_of_stack
from headbook.report.relations import best_head_of_relation, relation_words
from headbook.report.results import StackResults
from headbook.report.sink import sink_tokens, sink_words
from headbook.report.wording import (
    capital,
    is_share,
    number_word,
    p_family_wise_text,
    rule_phrase,
    value_and_interval,
)
from headbook.results.formats import percent
from headbook.results.sentence import Link, head_link
from headbook.schema import HELD_OUT_SPLIT, HIGHEST, LOWEST, HeadKey, HeadName, SinkView

# What most heads of a family do, after "most others".
FAMILY_VERBS = {
    Family.POSITION: "attend at one distance",
    Family.NEARBY: "attend to nearby words",
    Family.BROADCAST: "attend to the same words from everywhere",
    Family.REPEATS: "attend to repeated tokens",
    Family.SPREAD: "spread their attention nearly evenly",
}


def heads_answer(facts: Sequence[HeadFacts], results: Mapping[str, StackResults]) -> str:
    """Return how many heads have a clear role, and what most others do."""
    others = [each for each in facts if not each.has_role]
    n_roles, families_of_others = len(facts) - len(others), [each.family for each in others]
    if not n_roles and not any(families_of_others):
        return "What single heads attend to was not measured here."
    if not others:
        return f"All {len(facts):,} heads have a clear role."
    verb = "has" if n_roles < 2 else "have"
    start = f"{number_word(n_roles).capitalize()} of {len(facts):,} heads {verb} a clear role"
    largest = Counter(filter(None, families_of_others)).most_common(2)
    if not largest:
        return f"{start}."
    share = sum(amount for _, amount in largest) / len(others)
    who = f"{'most' if share > 1 / 2 else 'many'}{' others' if n_roles else ''}"
    verbs = [FAMILY_VERBS.get(family) or _sink_verb(results) for family, _ in largest]
    return f"{start}; {who} {' or '.join(verbs)}."


def _sink_verb(results: Mapping[str, StackResults]) -> str:
    """Return the verb of heads of the sink, among which may be heads without a single type."""
    names = {family_names(each)[Family.SINK] for each in results.values()}
    if any(name.endswith(" only") for name in names) and len(names) == 1:
        return f"attend only to {sink_tokens(next(iter(results.values())))}"
    return "mix several kinds of attention"


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
    """The first head of a ranking, chosen on one half of the sentences.

    Attributes:
        head: head with its address.
        number: number on the held-out half, with its row.
        interval: interval of the number, with the unit; empty without one.
        behind: what the number is compared with.
        supported: whether the number was tested family-wise, or is clear of uniform attention.
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
    best = choose_head(results, ranking.metric, view, ranking.label, lowest=ranking.lowest)
    if best is None:
        return None
    value, metric = best.value, results.by_id[ranking.metric]
    uniform = uniform_estimate(results, ranking.metric, view, ranking.label, best.head.layer).value
    share = is_share(metric)
    unit = f" {metric.unit}" if metric.unit and not share else ""
    text, ends = value_and_interval(value, share=share)
    text, ends = (text, ends + unit) if ends else (text + unit, "")
    is_clear = value.high < uniform if ranking.lowest else value.low > uniform
    uniform_text = percent(uniform) if share else f"{uniform:.3g}"
    behind = "" if math.isnan(uniform) else f"uniform attention: {uniform_text}"
    column = HeadKey(ranking.metric, view, ranking.label)
    claim, behind = LOWEST if ranking.lowest else HIGHEST, (behind + best.tied).strip()
    linked = _held_out_number(text, claim, best.head, column)
    return RankedHead(head_link(best.head), linked, ends, behind, supported=bool(is_clear))


def _held_out_number(text: str, claim: str, head: HeadName, column: HeadKey) -> LinkedNumber:
    """Return a number of a head on the held-out split, from the table of tests."""
    stack, layer, number = head
    return claim_number(text, claim, stack, column, split=HELD_OUT_SPLIT, layer=layer, head=number)


def _first_of_relation(results: StackResults, label: str) -> RankedHead | None:
    """Return the best head of a relation beside the best surface rule on the same words."""
    tests = results.cached(tests_of_stack)
    if tests is None or label not in tests.labels:
        return None
    n = tests.labels.index(label)
    at_rule, phrase = percent(float(tests.at_rule.value[n])), rule_phrase(tests.rule[n])
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
    text, ends = value_and_interval(tests.accuracy.at(n))
    number = _held_out_number(text, "relation", head, HeadKey(ids.RELATION_ACCURACY, VIEW, label))
    return RankedHead(head_link(head), number, ends, behind, supported=bool(tests.claimed[n]))
