"""Find the strongest exemplar whose query and key fit the role of its head.

Exemplars are ranked by their largest weight, and the largest weight need not be an instance of the
sentence: a head that attends to the next noun in two of three cases can have its largest weight in
the third. The sentence is therefore illustrated by the strongest exemplar that fits.
"""

from collections.abc import Iterable

from headbook.report.answers.head_roles import AT_OFFSET, head_roles, named_queries
from headbook.report.head_types import OffSinkType, head_types
from headbook.report.next_word_tests import Target, next_word_tests
from headbook.report.relation_tests import best_relation, tests_of_stack
from headbook.report.results import StackResults
from headbook.schema import HeadName, relation_of, universal_relation
from headbook.study.sentence_data import Exemplar, StoredText

OFFSETS = {OffSinkType.PREVIOUS: -1, OffSinkType.NEXT: 1, OffSinkType.SELF: 0}


def strongest_that_fits(
    results: StackResults, head: HeadName, exemplars: Iterable[Exemplar]
) -> Exemplar | None:
    """Return the first exemplar whose query and key fit the role of the head, or None."""
    if results.stack.crosses:
        return None
    return next((each for each in exemplars if fits_role(results, head, each)), None)


def fits_role(results: StackResults, head: HeadName, exemplar: Exemplar) -> bool:
    """Whether query and key of an exemplar are an instance of the role of the head."""
    text = results.study.sentence_data.sentences[exemplar.index].texts[results.stack.keys]
    place, kind = (head.layer, head.head), head_roles(results)[head].kind
    query, key = exemplar.query, exemplar.key
    if kind == "next_word":
        target = next_word_tests(results)[place].target
        return is_next_word(text, query, key, target, named_queries(results, head, target))
    if kind == "relation":
        tests = results.cached(tests_of_stack)
        best = best_relation(tests, place)
        return tests is not None and best is not None and is_related(
            text, query, key, tests.labels[best]
        )  # fmt: skip
    if kind == "position":
        found = head_types(results)[place]
        assert found is not None  # the rule for this role needs the type
        offset = OFFSETS[found.rest] if found.rest in AT_OFFSET else found.offset
        return key - query == offset
    if kind == "punctuation":
        return text.tags[key] == "PUNCT"
    return kind == "same_token" and query != key and _spelling(text, query) == _spelling(text, key)


def is_next_word(
    text: StoredText, query: int, key: int, target: Target, queries: Iterable[str]
) -> bool:
    """Whether a key is the nearest word of a target's classes, seen from a case of the target.

    Args:
        queries: parts of speech of queries; empty for all that can be cases.
    """
    first, wanted = text.words[query], text.words[key]
    apart, named = {*target.tags, "PUNCT", ""}, {*queries}
    if first < 0 or text.tags[query] in apart or (named and text.tags[query] not in named):
        return False
    words = {
        word for word, tag in zip(text.words, text.tags, strict=True) if tag in target.tags
    }  # fmt: skip
    if target.side == "next":
        return wanted == min((word for word in words if word > first), default=-2)
    return wanted == max((word for word in words if word < first), default=-2)


def is_related(text: StoredText, query: int, key: int, label: str) -> bool:
    """Whether query and key are dependent and head of a relation, in the label's direction."""
    relation, direction = relation_of(label)
    dependent, head = text.words[query], text.words[key]
    if direction != "to_head":
        dependent, head = head, dependent
    if min(dependent, head) < 0 or dependent >= len(text.heads):
        return False
    found = universal_relation(text.relations[dependent])
    return text.heads[dependent] == head and relation == found


def _spelling(text: StoredText, position: int) -> str:
    return text.pieces[position].strip().casefold()
