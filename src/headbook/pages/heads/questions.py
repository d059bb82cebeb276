"""What readers ask for, each answered by a head and led to the list in that order."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from headbook.metrics import ids
from headbook.pages.heads.headvalues import Column, Results
from headbook.pages.parts.ranked import place_of
from headbook.report.findings import Link
from headbook.report.findings.finding import chosen, head_link, uniform
from headbook.report.numbers.claims import value_and_interval
from headbook.report.numbers.inference import tests_of
from headbook.report.numbers.relationnames import relation_words
from headbook.report.numbers.results import StackResults
from headbook.report.numbers.roles import sink_words
from headbook.report.wording import capital, is_share, percent, rule_phrase, tested

RELATION = ids.RELATION_ACCURACY
# What is asked, and the metric, its label and whether its lowest value answers; the sink's name is
# put in, and relations are named after their label.
ASKED = (
    ("Most attention to the previous token", ids.ATTENTION_TO, "previous", False),
    ("Most attention to the next token", ids.ATTENTION_TO, "next", False),
    ("Most attention to the first token", ids.ATTENTION_TO, "first", False),
    ("Most attention to separators such as [SEP]", ids.ATTENTION_TO, "separator", False),
    ("Most attention to punctuation", ids.ATTENTION_TO, "punctuation", False),
    ("Most attention to other occurrences of the token", ids.ATTENTION_TO, "same_token", False),
    ("Most attention to the rest of the token's own word", ids.ATTENTION_TO, "rest_of_word", False),
    ("", RELATION, "obj:to_dependent", False),
    ("", RELATION, "obj:to_head", False),
    ("", RELATION, "nsubj:to_dependent", False),
    ("", RELATION, "det:to_head", False),
    ("Largest attention distance, as a ratio to uniform attention", ids.DISTANCE_RATIO, "", False),
    ("Most attention to {sink}", ids.SINK_SHARE, "", False),
    ("Lowest normalised entropy", ids.RELATIVE_ENTROPY, "", True),
    ("Largest induction score", ids.INDUCTION_SCORE, "", False),
)


@dataclass(frozen=True)
class AnsweringHead:
    """A head with its number.

    Attributes:
        head: with its address.
        value, interval: the number; the interval is empty without one, the unit comes last.
        behind: what it is set against.
        supported: as everywhere on the site: tested family-wise, or clear of uniform attention.
    """

    head: Link
    value: str
    interval: str
    behind: str
    supported: bool


@dataclass(frozen=True)
class Question:
    """A question with its answers.

    Attributes:
        text: what is asked.
        heads: a head of each stack.
        view: the list in the order that answers it, as addresses write it after their #.
        column: the number that answers it.
    """

    text: str
    heads: tuple[AnsweringHead, ...]
    view: str
    column: Column


def questions(
    results: Results, offered: Sequence[Column], first: Sequence[Column]
) -> Iterator[Question]:
    """The questions that a study has numbers for.

    Args:
        first: columns that the list shows first; those asked for come before them.
    """
    there = {(column.metric.id, column.label): column for column in offered}
    for text, name, label, lowest in ASKED:
        column = there.get((name, label))
        answering_heads = tuple(_heads(results, column, lowest=lowest)) if column else ()
        if column and answering_heads:
            named = _named(text, label, next(iter(results.values())))
            yield Question(named, answering_heads, _view(column, first, lowest=lowest), column)


def _named(text: str, label: str, results: StackResults) -> str:
    return capital(text.format(sink=sink_words(results)) or relation_words(label))


def _view(column: Column, first: Sequence[Column], *, lowest: bool) -> str:
    keys = dict.fromkeys([column.key, *(other.key for other in first)])
    sort = column.key if lowest else f"-{column.key}"
    return urlencode({"columns": " ".join(keys), "sort": sort})


def _heads(results: Results, column: Column, *, lowest: bool) -> Iterator[AnsweringHead]:
    """The head of each stack, chosen on one half of the sentences and reported on the other."""
    for name, r in results.items():
        if name in column.views:
            answering_head = _tested(r, column.label) if column.metric.id == RELATION else None
            answering_head = answering_head or _described(r, column, lowest=lowest)
            if answering_head is not None:
                yield answering_head


def _described(results: StackResults, column: Column, *, lowest: bool) -> AnsweringHead | None:
    """The best head beside uniform attention, which its interval should leave out."""
    metric, view = column.metric, column.views[results.stack.name]
    best = chosen(results, metric.id, view, column.label, lowest=lowest)
    if best is None:
        return None
    even = uniform(results, metric.id, view, column.label, best.head.layer)
    share, value = is_share(metric), best.value
    unit = f" {metric.unit}" if metric.unit and not share else ""
    value_text, ends = value_and_interval(value, share=share)
    value_text, ends = (value_text, ends + unit) if ends else (value_text + unit, "")
    clear = value.high < even.value if lowest else value.low > even.value
    other = percent(even.value) if share else f"{even.value:.3g}"
    behind = "" if math.isnan(even.value) else f"uniform attention: {other}"
    behind = (behind + best.tied).strip()
    return AnsweringHead(head_link(best.head), value_text, ends, behind, supported=bool(clear))


def _tested(results: StackResults, label: str) -> AnsweringHead | None:
    """The best head for a relation beside the best surface rule on the same words."""
    tests = results.once(tests_of)
    if tests is None or label not in tests.labels:
        return None
    n = tests.labels.index(label)
    other = percent(float(tests.at_rule.value[n]))
    rule = rule_phrase(tests.rule[n])
    if tests.claimed[n]:
        behind = f"best surface rule ({rule}): {other}, {tested(float(tests.p[n]))}"
    elif tests.above_rule[n]:
        behind = (
            f"above the best surface rule ({rule}), {other}, but no more than a preference for a "
            "class of words"
        )
    else:
        behind = f"not clearly above the best surface rule ({rule}), {other}"
    head = head_link(place_of(tests, n, results.stack.name))
    value, ends = value_and_interval(tests.accuracy.at(n))
    return AnsweringHead(head, value, ends, behind, supported=bool(tests.claimed[n]))
