"""The answer of the page of all heads counts the heads of the largest families."""

from collections.abc import Iterator

from headbook.report.answers.heads import FAMILY_VERBS, heads_answer
from headbook.report.facts.functions import FunctionFamily, HeadFunction
from headbook.report.facts.head_facts import HeadFacts, HeadWord
from headbook.results.sentence import NOTHING, Sentence, say
from headbook.schema import HeadName


def facts_of(
    family: FunctionFamily | None, amount: int, kind: str = "", text: Sentence = NOTHING
) -> Iterator[HeadFacts]:
    """Yield facts of heads of one family."""
    for number in range(amount):
        head = HeadName("self", 0, number)
        function = HeadFunction(head, kind, "", text, family)
        yield HeadFacts(head, "", "", function, HeadWord(), HeadWord(), HeadWord())


def test_every_family_can_be_named() -> None:
    assert {*FAMILY_VERBS} == {*FunctionFamily}


def test_the_three_largest_families_are_counted_the_largest_first() -> None:
    facts = [
        *facts_of(FunctionFamily.REPEATS, 2),
        *facts_of(FunctionFamily.MIXED, 1),
        *facts_of(FunctionFamily.POSITION, 20),
        *facts_of(FunctionFamily.EVEN, 14),
    ]
    assert heads_answer(facts).text == (
        "20 of 37 heads attend at one fixed distance, 14 spread their attention evenly and two "
        "attend to repeated tokens."
    )
    assert heads_answer([*facts_of(FunctionFamily.MIXED, 1)]).text == (
        "One of 1 heads has no single function."
    )


def test_what_cannot_be_told_is_said() -> None:
    text = say("No function can be told from 3 sentences.")
    few = [*facts_of(FunctionFamily.MIXED, 4, "too_few", text)]
    assert heads_answer(few) is text
    assert "not measured" in heads_answer([*facts_of(None, 4)]).text
