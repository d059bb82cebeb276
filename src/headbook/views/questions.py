"""What readers ask for, each answered by a head and led to the list in that order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from headbook.findings import Link
from headbook.findings.said import Best, Parts, chosen, head_link, said
from headbook.numbers.claims import estimate
from headbook.numbers.results import StackResults
from headbook.views.headvalues import Column, Results
from headbook.views.ranked import place_of, tests_of
from headbook.wording import percent, signed

RELATION = "relation_accuracy"
# What is asked, and the metric, its label and whether its lowest value answers.
ASKED = (
    ("Most attention to the previous token", "attention_to", "previous", False),
    ("Most attention to the next token", "attention_to", "next", False),
    ("Most attention to the first token", "attention_to", "first", False),
    ("Most attention to separators such as [SEP]", "attention_to", "separator", False),
    ("Most attention to other occurrences of the token", "attention_to", "same_token", False),
    ("Most attention to the rest of the word", "attention_to", "rest_of_word", False),
    ("From a verb to its direct object", RELATION, "obj:to_dependent", False),
    ("From a direct object to its verb", RELATION, "obj:to_head", False),
    ("From a verb to its subject", RELATION, "nsubj:to_dependent", False),
    ("From a determiner to its noun", RELATION, "det:to_head", False),
    ("Highest attention distance", "attention_distance", "", False),
    ("Most attention to the sink", "sink_share", "", False),
    ("Lowest normalised entropy", "relative_entropy", "", True),
    ("Highest induction score", "induction_score", "", False),
)


@dataclass(frozen=True)
class Question:
    """A question with its answer.

    Attributes:
        text: what is asked.
        answer: heads with their numbers.
        view: the list in the order that answers it, as addresses write it after their #.
        key: the number that answers it, as a column of the list.
    """

    text: str
    answer: Parts
    view: str
    key: str


def questions(
    results: Results, offered: Sequence[Column], shown: Sequence[Column]
) -> Iterator[Question]:
    """The questions that a study has numbers for.

    Args:
        shown: columns that the list shows first; those asked for come before them.
    """
    there = {(column.metric.id, column.label): column for column in offered}
    for text, name, label, lowest in ASKED:
        column = there.get((name, label))
        answer = _answer(results, column, lowest=lowest) if column else ()
        if column and answer:
            yield Question(text, answer, _view(column, shown, lowest=lowest), column.key)


def _view(column: Column, shown: Sequence[Column], *, lowest: bool) -> str:
    keys = dict.fromkeys([column.key, *(other.key for other in shown)])
    sort = column.key if lowest else f"-{column.key}"
    return urlencode({"columns": " ".join(keys), "sort": sort})


def _answer(results: Results, column: Column, *, lowest: bool) -> Parts:
    """The head of each stack, chosen on one half of the sentences and reported on the other."""
    parts: list[str | Link] = []
    for name, r in results.items():
        if name not in column.views:
            continue
        found = _tested(r, column.label) if column.metric.id == RELATION else ()
        if not found:
            best = chosen(r, column.metric.id, column.views[name], column.label, lowest=lowest)
            found = (
                (head_link(best.head), f", {said(best.value, column.metric.id)}") if best else ()
            )
        if found:
            parts += ["; " if parts else "", *found]
    return tuple(part for part in parts if part)


def _said(best: Best, metric: str) -> Parts:
    return head_link(best.head), f", {said(best.value, metric)}"


def _tested(results: StackResults, label: str) -> Parts:
    """The best head for a relation beside the best fixed offset on the same words."""
    tests = results.once(tests_of)
    if tests is None or label not in tests.labels:
        return ()
    n = tests.labels.index(label)
    best = Best(place_of(tests, n, results.stack.name), tests.accuracy.at(n))
    share = percent(float(tests.at_offset.value[n]))
    offset = f"best fixed offset ({signed(int(tests.offset[n]))})"
    if tests.margin.low[n] > 0:
        beside = f", {offset} {share}"
    else:
        beside = f"; no clear difference from the {offset}, {share}"
    return head_link(best.head), f", {estimate(best.value)}{beside}"
