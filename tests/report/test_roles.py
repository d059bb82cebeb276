"""What is said of a head: all evidence, in one order, each claim with its numbers."""

import re
from typing import Any

import pytest

from chosen_relations import chosen_tests
from chosen_results import Fake, fake_results
from headbook.analysis.accumulators import Estimate
from headbook.attention.surface_rules import RULES, TAG_SETS
from headbook.attention.word_pairs import LABELS
from headbook.metrics.patterns.type_shares import EVEN, PARTS
from headbook.report.relation_tests import RelationTests
from headbook.report.relations import ENDS, TAGS, HeadRule, ends_of, head_rules, relation_words
from headbook.report.results import StackResults
from headbook.report.roles import Role, role_of
from headbook.report.wording import WORD_CLASS_NOUNS, rule_phrase
from headbook.schema import RELATIONS, UPOS, HeadKey, HeadName, SinkView

HEAD = HeadName("self", 0, 0)
RESIDUALS = ("vertical", "broad", "its maps are", "parks", "looks", "carries", "brings")


def column(metric: str, view: SinkView = SinkView.RAW, label: str = "") -> HeadKey:
    return HeadKey(metric, view, label)


def studied(
    more: dict[str, Fake] | None = None,
    *,
    sink: float = 0.41,
    norm: float = 0.045,
    entropy: float = 0.6,
) -> StackResults:
    """One head: half of the rest on the next token, unless others are asked for."""
    parts = dict.fromkeys(PARTS, 0.0) | {"next": 0.6, "after": 0.4}
    more = more or {}
    parts |= {name: float(fake.heads[0][0]) for name, fake in more.items() if name in PARTS}
    numbers = {
        column("sink_share"): Fake([[sink]], 0.1),
        column("sink_norm_share"): Fake([[norm]]),
        column("relative_entropy", SinkView.RENORM): Fake([[entropy]], 1.0),
        column("type_shares", SinkView.RENORM, "left_out"): Fake([[0.0]]),
        column("attention_parts", SinkView.RENORM, "key"): Fake([[0.1]]),
        **{column("type_shares", SinkView.RENORM, n): Fake([[v]], 0.08) for n, v in parts.items()},
        **{column("type_shares", SinkView.RENORM, EVEN[n]): Fake([[0.08]], 0.08) for n in parts},
    }
    metrics = {"duplicate_score": column("duplicate_score")}
    tags = {"NOUN": column("pos_received", SinkView.RENORM, "NOUN")}
    known = metrics | tags
    return fake_results(numbers | {known[n]: fake for n, fake in more.items() if n in known})


def relation(p: float = 0.005, margin: float = 0.4, others: int = 100) -> RelationTests:
    """One relation, which the head serves best."""
    return chosen_tests(
        ["case:to_head"], [(0, 0)], [0.844], [margin], [p],
        shape=(1, 1), others=others, words=45, sentences=36,
    )  # fmt: skip


def reported(found: Role) -> list[str]:
    return [claim.kind for claim in found.claims]


def test_all_evidence_stands_in_one_order() -> None:
    more = {"duplicate_score": Fake([[0.45]], 0.01), "NOUN": Fake([[0.5]], 0.2)}
    window = {"next": Fake([[0.3]]), "near": Fake([[0.4]])}
    found = role_of(studied(more | window), HEAD, relation())
    assert reported(found) == ["position", "relation", "class", "repetition", "sink"]
    assert found.text == " ".join(claim.text for claim in found.claims)
    assert found.text.startswith(
        "With special tokens masked, it keeps 70.0\u202f% of its attention within three tokens "
        "(uniform attention: 32.0\u202f%)."
    )


def test_a_relation_is_said_with_its_rule_its_p_and_what_the_rule_misses() -> None:
    found = role_of(studied(), HEAD, relation())
    claim = found.claim("relation")
    assert claim is not None
    assert claim.text == (
        "It attends most from a case marker to its noun in 84.4\u202f% [74.4, 94.4] of 45 cases: "
        "+40.0 points [+30.0, +50.0] over the best surface rule (the next noun or pronoun: "
        "44.4\u202f%), p = 0.005 family-wise. It finds 50.0\u202f% of the 20 cases "
        "that the rule misses."
    )
    assert found.short == "attends from a case marker to its noun (case)"


@pytest.mark.parametrize(
    "weak",
    [relation(p=0.2), relation(margin=-0.2), relation(p=float("nan")), relation(others=29), None],
)
def test_a_relation_that_is_not_supported_is_not_said(weak: RelationTests | None) -> None:
    found = role_of(studied(), HEAD, weak)
    assert found.claim("relation") is None
    assert found.short == "attends to the next token"


def named_by(rule: str, agreement: float, mean: float, **more: Any) -> Role:
    """The role of a head by the rule that explains it best."""
    of = studied(more)
    other = HeadRule(rule, *(Estimate(v, v - 0.02, v + 0.02, 30, 200, 30) for v in
                             (agreement, agreement, mean, agreement - mean)))  # fmt: skip
    of._made[head_rules] = {(0, 0): other}
    return role_of(of, HEAD, None)


def test_a_head_without_a_relation_is_named_by_the_rule_that_explains_it() -> None:
    window = {"next": Fake([[0.3]]), "near": Fake([[0.45]])}
    found = named_by("next:NOUN_PRON_PROPN", 0.7, 0.2, **window)
    claim = found.claim("rule")
    assert claim is not None
    assert claim.short == "mostly attends to the next noun or pronoun"
    assert claim.text == (
        "Its strongest other word is the next noun or pronoun in 70.0\u202f% [68.0, 72.0] of 200 "
        "words (mean over heads: 20.0\u202f%)."
    )
    assert claim.short in found.short
    for rule, agreement, mean in (
        ("next:NOUN", 0.49, 0.1),  # in less than half of the cases
        ("next:NOUN", 0.7, 0.69),  # not clearly above the mean head
        ("offset:1", 0.7, 0.2),  # its position was said already
    ):
        assert named_by(rule, agreement, mean).claim("rule") is None
    near = named_by("offset:1", 0.7, 0.2, **window)  # more exact than the window
    assert near.short.endswith("within three tokens, and mostly attends to the next word")


def test_a_relation_stands_before_a_rule() -> None:
    of = studied()
    of._made[head_rules] = {}
    assert role_of(of, HEAD, relation()).claim("rule") is None


def test_rules_have_names() -> None:
    assert {*WORD_CLASS_NOUNS} >= {*UPOS, *TAG_SETS}
    assert rule_phrase("offset:-1") == "the previous word"
    assert rule_phrase("offset:3") == "the word 3 words ahead"
    assert rule_phrase("nearest:VERB_AUX") == "the nearest verb or auxiliary"
    assert rule_phrase("last:nouns") == "the next noun (of several in a row, the last)"
    assert rule_phrase("next:ATOM") == "the next word tagged ATOM"
    assert all(rule_phrase(rule).startswith("the ") for rule in RULES)


def test_a_positional_head_names_its_token_and_what_uniform_attention_gives() -> None:
    (claim, *_) = role_of(studied(), HEAD, None).claims
    assert re.fullmatch(
        r"With special tokens masked, it gives 60\.0\u202f% \[[\d.]+, [\d.]+\] of its attention to "
        r"the next token \(uniform attention: 8\.0\u202f%\)\.",
        claim.text,
    )


def test_attention_and_contribution_are_set_against_each_other_only_where_they_differ() -> None:
    less, same = (role_of(studied(norm=norm), HEAD, None).claims[-1].text for norm in (0.045, 0.41))
    assert ", but contribute 4.5" in less
    assert " and contribute 41.0" in same
    assert less.startswith("Special tokens receive 41.0\u202f% [")


def test_a_sink_head_does_otherwise_what_its_rest_does() -> None:
    found = role_of(studied(sink=0.8), HEAD, None)
    assert found.short == "attends mostly to special tokens, otherwise attends to the next token"


def test_even_and_mixed_heads_say_what_they_are_made_of() -> None:
    rest = {"next": Fake([[0.1]])}
    even = role_of(studied(rest, entropy=0.9), HEAD, None)
    assert even.claims[0].text.startswith("With special tokens masked, it has a normalised ")
    mixed = role_of(studied(rest), HEAD, None)
    assert (
        "furthest above uniform attention: distant later tokens 40.0\u202f% (uniform attention: "
        "8.0\u202f%) and next token 10.0\u202f% (uniform attention: 8.0\u202f%)."
    ) in mixed.claims[0].text
    assert mixed.short == "attends to distant later tokens and next token"


def test_claims_are_short_and_name_no_residual() -> None:
    more = {"duplicate_score": Fake([[0.45]], 0.01), "NOUN": Fake([[0.5]], 0.2)}
    for found in (
        role_of(studied(more), HEAD, relation()),
        role_of(studied(entropy=0.9), HEAD, None),
    ):
        for claim in found.claims:
            assert claim.text[0].isalpha()
            assert claim.text.endswith(".")
            assert claim.text.count("[") <= 2
            assert not any(word in claim.text for word in RESIDUALS)


def test_relations_and_tags_have_names() -> None:
    assert {*ENDS} <= {*RELATIONS}
    assert {*TAGS} == {*UPOS} - {"PUNCT"}
    assert ends_of("obj:to_dependent") == ("a verb", "its direct object")
    assert relation_words("amod:to_head") == "from an adjective to its noun (amod)"
    assert ends_of("orphan:to_head") == ("an orphan dependent", "its head")
    assert all(ends_of(label).query[:2] in {"a ", "an"} for label in LABELS)
