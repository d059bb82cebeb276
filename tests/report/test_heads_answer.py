"""The answer of the page of all heads, and when a head has a clear role."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from headbook.analysis.accumulators import Estimate
from headbook.report.answers import heads as answers
from headbook.report.answers.heads import heads_answer
from headbook.report.families import Family
from headbook.report.head_facts import TYPE_WORDS, HeadFacts, HeadWord, has_clear_role, type_words
from headbook.report.head_types import HeadType, OffSinkType, Share, TypeShares
from headbook.report.roles import Claim, Role
from headbook.schema import HeadName

HEAD = HeadName("self", 0, 0)
NO_FACTS = HeadFacts(
    HEAD, "L0·H0", "heads/L00-H00.html", None, HeadWord(), HeadWord(),
    beats=False, verdict=HeadWord(), has_role=False,
)  # fmt: skip


def facts_of(roles: int, **families: int) -> list[HeadFacts]:
    """Return facts of heads with a clear role, and of others by family."""
    others = [
        replace(NO_FACTS, family=Family(name)) for name, amount in families.items()
        for _ in range(amount)
    ]  # fmt: skip
    return [replace(NO_FACTS, family=Family.POSITION, has_role=True)] * roles + others


@pytest.mark.parametrize(
    ("facts", "answer"),
    [
        (
            facts_of(3, spread=40, nearby=20, broadcast=9),
            "Three of 72 heads have a clear role; most others spread their attention nearly evenly "
            "or attend to nearby words.",
        ),
        (
            facts_of(1, repeats=9),
            "One of 10 heads has a clear role; most others attend to repeated tokens.",
        ),
        (
            facts_of(0, position=5, broadcast=6, nearby=1),
            "None of 12 heads has a clear role; most attend to the same words from everywhere or "
            "attend at one distance.",
        ),
        (
            facts_of(2, position=2, nearby=2, broadcast=2, repeats=2, spread=2),
            "Two of 12 heads have a clear role; many others attend at one distance or attend to "
            "nearby words.",
        ),
        (
            facts_of(12, sink=3),
            "12 of 15 heads have a clear role; most others mix several kinds of attention.",
        ),
        (facts_of(4), "All 4 heads have a clear role."),
        ([NO_FACTS] * 5, "What single heads attend to was not measured here."),
        (
            [replace(NO_FACTS, has_role=True), *[NO_FACTS] * 5],
            "One of 6 heads has a clear role.",
        ),
    ],
)
def test_the_answer_counts_clear_roles_and_names_the_largest_families(
    monkeypatch: pytest.MonkeyPatch, facts: list[HeadFacts], answer: str
) -> None:
    names = {Family.SINK: "Mixed and others"}
    monkeypatch.setattr(answers, "family_names", lambda _: names)
    assert heads_answer(facts, {"self": SimpleNamespace()}) == answer  # type: ignore[dict-item]
    assert len(answer.split()) <= 30


def test_heads_of_the_sink_are_named_by_its_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "family_names", lambda _: {Family.SINK: "[CLS] and [SEP] only"})
    monkeypatch.setattr(answers, "sink_tokens", lambda _: "[CLS] and [SEP]")
    results: Any = {"self": SimpleNamespace()}
    answer = heads_answer(facts_of(0, sink=4), results)
    assert answer.endswith("most attend only to [CLS] and [SEP].")


def role(rest: OffSinkType, *claims: Claim, sink: bool = False) -> Role:
    head_type = HeadType(TypeShares(Share(0.1, 0.1)), sink, sink, rest)
    return Role(HEAD, head_type, claims)


def position(low: float) -> Claim:
    return Claim("position", "attends to one place", "", Estimate(0.6, low, 0.9, 9, 9))


@pytest.mark.parametrize(
    ("described", "clear"),
    [
        (role(OffSinkType.PREVIOUS, position(0.5)), True),
        (role(OffSinkType.OFFSET, position(0.52)), True),
        (role(OffSinkType.SAME, position(0.7)), True),
        (role(OffSinkType.PREVIOUS, position(0.49)), False),
        (role(OffSinkType.PREVIOUS, position(math.nan)), False),
        (role(OffSinkType.PREVIOUS, position(0.9), sink=True), False),
        (role(OffSinkType.WINDOW, position(0.9)), False),
        (role(OffSinkType.UNIFORM), False),
        (role(OffSinkType.MIXED, Claim("relation", "", "", Estimate(0.4, 0.3, 0.5, 9, 9))), True),
        (role(OffSinkType.KEYS, Claim("rule", "", "", Estimate(0.9, 0.8, 0.95, 9, 9))), False),
        (
            role(
                OffSinkType.UNIFORM,
                Claim("repetition", "", "", Estimate(0.5, 0.4, 0.6, 9, 9)),
                sink=True,
            ),
            True,
        ),
        (Role(HEAD, None, (position(0.9),)), False),
    ],
)
def test_a_role_is_clear_by_a_relation_a_place_or_repetition(
    described: Role, *, clear: bool
) -> None:
    assert has_clear_role(described) == clear


def test_every_type_has_words() -> None:
    shares = TypeShares(
        Share(0.7, 0.1), parts={"near": Share(0.4, 0.1), "next": Share(0.3, 0.1)},
        keys={"content": 0.8, "other": 0.2},
    )  # fmt: skip
    special = {OffSinkType.OFFSET, OffSinkType.KEYS, OffSinkType.MIXED}
    for rest in OffSinkType:
        words = type_words(HeadType(shares, sink=False, some_sink=False, rest=rest, offset=-3))
        assert words
        assert rest in special or words == TYPE_WORDS[rest]
    kinds = {
        rest: HeadType(shares, sink=True, some_sink=True, rest=rest, offset=2) for rest in special
    }
    assert {rest: type_words(kind) for rest, kind in kinds.items()} == {
        OffSinkType.OFFSET: "the token 2 positions ahead + sink",
        OffSinkType.KEYS: "same words from everywhere: content words + sink",
        OffSinkType.MIXED: "tokens 2–3 away + next token + sink",
    }
