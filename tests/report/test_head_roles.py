"""The sentence on a head: each template with numbers that do and that do not support it."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from chosen_relations import chosen_tests
from chosen_results import Fake, fake_results
from headbook.analysis.accumulators import Estimate
from headbook.metrics.patterns.type_shares import EVEN, PARTS
from headbook.report import class_flows, next_word_tests, relation_tests
from headbook.report.answers.head_numbers import RoleSentence
from headbook.report.answers.head_roles import head_roles
from headbook.report.linked_rows import LinkedNumber
from headbook.report.next_word_tests import TARGETS, NextWordTest
from headbook.report.relation_tests import RelationTests
from headbook.report.results import StackResults
from headbook.results.formats import whole_percent
from headbook.schema import HeadKey, HeadName, SinkView
from headbook.study.sums.word_samples import FLOW_CELLS, FlowEstimates

HEAD = HeadName("self", 0, 0)
RENORM, RAW = SinkView.RENORM, SinkView.RAW
SENTENCES = 400  # with one query each
# Shares of two heads: of a mixed head, and of one that spreads its attention.
MIXED = dict.fromkeys(PARTS, 0.05) | {"next": 0.3, "near": 0.15, "before": 0.2, "after": 0.15}


def shares(label: str) -> HeadKey:
    return HeadKey("type_shares", RENORM, label)


def studied(
    more: Mapping[HeadKey, Fake] | None = None,
    *,
    parts: Mapping[str, float] | None = None,
    even: float = 0.08,
    sink: float = 0.1,
    norm: float = 0.04,
    entropy: float = 0.6,
    key: float = 0.1,
    spread: float = 0.01,
    causal: bool = False,
    sentences: int = SENTENCES,
) -> StackResults:
    """A mixed head beside a near-uniform one, unless other numbers are given."""
    own = MIXED | dict(parts or {})
    numbers = {
        HeadKey("sink_share", RAW, ""): Fake([[sink, 0.1]], 0.1, spread=spread),
        HeadKey("sink_norm_share", RAW, ""): Fake([[norm, 0.05]], spread=spread),
        HeadKey("relative_entropy", RENORM, ""): Fake([[entropy, 0.9]], 1.0, spread=spread),
        shares("left_out"): Fake([[0.0, 0.0]]),
        HeadKey("attention_parts", RENORM, "key"): Fake([[key, 0.1]], spread=spread),
        **{shares(n): Fake([[v, 0.1]], 0.08, spread=spread) for n, v in own.items()},
        **{shares(EVEN[n]): Fake([[even, 0.08]], 0.08) for n in own},
        **(more or {}),
    }
    return fake_results(numbers, causal=causal, sentences=sentences)


def sentence_of(results: StackResults) -> RoleSentence:
    return head_roles(results)[HEAD]


ONE = {"next": 0.01, "near": 0.01, "before": 0.01, "after": 0.01}
PREVIOUS = {**ONE, "previous": 0.7}
SAME = {
    shares("same_token"): Fake([[0.7, 0.1]], 0.05),
    shares("even_same_token"): Fake([[0.05, 0.05]]),
}
VARIABILITY = HeadKey("variability", RAW, "")
PUNCT = HeadKey("pos_received", RENORM, "PUNCT")
INDUCTION, DUPLICATE = HeadKey("induction_score", RAW, ""), HeadKey("duplicate_score", RAW, "")


@pytest.mark.parametrize(
    ("results", "kind", "text"),
    [
        (studied(parts=PREVIOUS), "position", "Attends to the previous token."),
        (
            studied({VARIABILITY: Fake([[0.01, 0.4]])}, parts=PREVIOUS),
            "position",
            "Attends to the previous token, whatever it is.",
        ),
        (
            studied({VARIABILITY: Fake([[0.2, 0.4]])}, parts=PREVIOUS),
            "position",
            "Attends to the previous token.",
        ),
        (studied(parts={**ONE, "next": 0.7}), "position", "Attends to the next token."),
        (studied(parts={**ONE, "self": 0.7}), "position", "Attends to the token itself."),
        (
            studied({shares("-2"): Fake([[0.7, 0.1]]), shares("even_-2"): Fake([[0.05, 0.05]])}),
            "position",
            "Attends to the token two before.",
        ),
        # The share is above one half once corrected, but its interval begins below.
        (studied(parts=PREVIOUS | {"previous": 0.53}, even=0.05, spread=1.2), "mixed", ""),
        (studied(parts=PREVIOUS | {"previous": 0.49}), "mixed", ""),
        (studied(SAME), "same_token", "Attends to other occurrences of the same token."),
        (studied({shares("same_token"): Fake([[0.45, 0.1]])}), "mixed", ""),
        (
            studied({INDUCTION: Fake([[0.4, 0.0]], 0.01)}),
            "induction",
            "Attends to what followed an earlier occurrence of the current token.",
        ),
        (studied({INDUCTION: Fake([[0.29, 0.0]], 0.01)}), "mixed", ""),
        (
            studied({DUPLICATE: Fake([[0.4, 0.0]], 0.01)}),
            "duplicate",
            "Attends to the earlier occurrence of the current token.",
        ),
        (studied({DUPLICATE: Fake([[0.31, 0.0]], 0.01, spread=0.5)}), "mixed", ""),
        (studied({PUNCT: Fake([[0.6, 0.1]], 0.1)}), "mixed", ""),  # 1.7 times the mean of heads
        (studied({PUNCT: Fake([[0.6, 0.0]], 0.1)}), "mixed", ""),
        (
            studied(key=0.9),
            "broadcast",
            "Attends from every word to the same words.",
        ),
        (studied(key=0.52, spread=0.3), "mixed", ""),
        (studied(entropy=0.85), "near_uniform", "Attends nearly evenly to all words."),
        (studied(entropy=0.81, spread=0.5), "mixed", ""),
        (
            studied(parts={**ONE, "previous": 0.25, "next": 0.25, "near": 0.25}),
            "nearby",
            "Attends to nearby words, within three tokens.",
        ),
        (
            studied(sink=0.95, norm=0.3),
            "sink",
            "Attends almost only to special tokens, and takes little from them.",
        ),
        (studied(sink=0.95, norm=0.7), "sink", "Attends almost only to special tokens."),
        (
            studied(sink=0.7, norm=0.5),
            "mostly_sink",
            "Attends mostly to special tokens.",
        ),
        (studied(sink=0.4), "mixed", ""),
        (
            studied(sink=0.95, norm=0.2, causal=True),
            "sink",
            "Attends almost only to the first token, and takes little from it.",
        ),
        (studied(sentences=18), "too_few", "No role can be told from these 18 sentences."),
        (studied(sentences=120), "too_few", "No role can be told from these 120 sentences."),
    ],
)
def test_each_sentence_needs_its_numbers(results: StackResults, kind: str, text: str) -> None:
    found = sentence_of(results)
    assert found.kind == kind
    if text:
        assert found.plain == text
    assert len(found.plain.split()) <= 20
    assert sum(isinstance(part, LinkedNumber) for part in found.line) <= 3


def test_a_head_without_a_single_role_names_its_two_largest_shares() -> None:
    found = sentence_of(studied())
    assert found.plain == (
        "No single role: next token 30\u202f%, distant earlier tokens 20\u202f%."
    )
    assert found.details[0].startswith("30.0\u202f% [")


def test_what_was_not_measured_is_said() -> None:
    results = fake_results(
        {HeadKey("attention_distance", RAW, ""): Fake([[2.0, 1.0]])}, sentences=SENTENCES
    )
    assert sentence_of(results).plain == "The role was not measured."
    nothing = fake_results(
        {HeadKey("sink_share", RAW, ""): Fake([[math.nan, math.nan]])}, sentences=SENTENCES
    )
    assert sentence_of(nothing).kind == "unmeasured"


@pytest.mark.parametrize(
    ("results", "text"),
    [
        (
            studied(parts=PREVIOUS, sink=0.7),
            "Attends mostly to special tokens, otherwise to the previous token.",
        ),
        (
            studied(entropy=0.9, sink=0.7, causal=True),
            "Attends mostly to the first token, otherwise nearly evenly to all words.",
        ),
    ],
)
def test_a_large_share_of_the_sink_is_in_every_sentence(results: StackResults, text: str) -> None:
    found = sentence_of(results)
    assert found.plain == text
    assert any("70.0\u202f%" in detail for detail in found.details)


def relation(p: float = 0.005, margin: float = 0.4, others: int = 100) -> RelationTests:
    return chosen_tests(
        ["obj:to_head"], [(0, 0)], [0.84], [margin], [p], shape=(1, 2), others=others
    )


@pytest.mark.parametrize(
    ("tests", "kind"),
    [
        (relation(), "relation"),
        (relation(p=0.2), "mixed"),
        (relation(margin=-0.1), "mixed"),
        (relation(others=10), "mixed"),  # may be no more than a preference for a class of words
    ],
)
def test_a_relation_is_said_if_it_is_claimed(tests: RelationTests, kind: str) -> None:
    results = studied()
    results._made[relation_tests.tests_of_stack] = tests
    found = sentence_of(results)
    assert found.kind == kind
    if kind == "relation":
        assert found.plain == "Attends from a direct object to its verb."
        line = "".join(part if isinstance(part, str) else part.text for part in found.line)
        assert line == (
            "In 84\u202f% of cases; the best surface rule (the next noun or pronoun) reaches "
            "44\u202f%, p = 0.005 family-wise."
        )


def next_noun(**changes: object) -> NextWordTest:
    def number(value: float) -> Estimate:
        return Estimate(value, value - 0.05, value + 0.05, 36, 259, 30)

    test = NextWordTest(
        TARGETS[0], number(0.66), 1, number(0.52), number(0.16), number(0.14), 0.001, 0.15
    )
    return test._replace(**changes)  # type: ignore[arg-type]


def flow_of(flows: Mapping[tuple[str, str], tuple[float, float]]) -> FlowEstimates:
    """Shares and lower ends of ratios of the first of two heads; the ratio is 2."""
    share, low = np.full((2, 1, 2, len(FLOW_CELLS)), np.nan)
    for cell, (value, end) in flows.items():
        share[0, 0, FLOW_CELLS.index(cell)] = value
        low[0, 0, FLOW_CELLS.index(cell)] = end
    ratio = np.where(np.isnan(share), np.nan, 2.0)
    return FlowEstimates(share, share / 2, ratio, low, low + 1, np.full(share.shape, 30))


@pytest.mark.parametrize(
    ("test", "kind"),
    [
        (next_noun(), "next_word"),
        (next_noun(p=0.06), "mixed"),
        (next_noun(share=Estimate(0.45, 0.4, 0.5, 36, 259, 30)), "mixed"),
        (next_noun(share=Estimate(0.66, 0.6, 0.7, 36, 40, 30)), "mixed"),
        (next_noun(share=Estimate(0.66, 0.6, 0.7, 15, 259, 30)), "mixed"),
        (next_noun(margin=Estimate(0.05, -0.01, 0.1, 36, 259, 30)), "mixed"),
    ],
)
def test_the_next_word_of_a_class_needs_its_test(test: NextWordTest, kind: str) -> None:
    results = studied()
    results._made[next_word_tests._tests] = {(0, 0): test}
    found = sentence_of(results)
    assert found.kind == kind
    if kind == "next_word":
        assert found.plain == "Attends to the next noun or verb."
        line = "".join(part if isinstance(part, str) else part.text for part in found.line)
        assert line.startswith(
            "This holds for 66\u202f% of all words that are neither noun, verb nor punctuation "
            "(held-out half)"
        )


def test_queries_are_named_where_their_flow_is_clearly_above_the_mean_head() -> None:
    results = studied()
    results._made[next_word_tests._tests] = {(0, 0): next_noun()}
    results._made[class_flows._flows] = flow_of(
        {
            ("DET", "NOUN"): (0.14, 1.5),
            ("ADP", "PROPN"): (0.05, 1.2),
            ("ADP", "NOUN"): (0.04, 1.2),
            ("PRON", "VERB"): (0.04, 0.9),  # the interval begins below 1
            ("ADV", "VERB"): (0.01, 1.3),  # too small a share
            ("ADJ", "ADJ"): (0.2, 1.5),  # to other words
            ("VERB", "NOUN"): (0.3, 1.5),  # no case of the rule
            ("AUX", "VERB"): (0.03, 1.4),
            ("NUM", "NOUN"): (0.02, 1.4),
        }
    )
    assert sentence_of(results).plain == (
        "Attends from determiners, adpositions and auxiliaries to the next noun or verb."
    )


@pytest.mark.parametrize(("low", "kind"), [(2.1, "punctuation"), (1.9, "mixed")])
def test_punctuation_needs_twice_the_mean_head(low: float, kind: str) -> None:
    results = studied({PUNCT: Fake([[0.6, 0.1]], 0.1)})
    results._made[class_flows._flows] = flow_of({("", "PUNCT"): (0.6, low)})
    assert sentence_of(results).kind == kind
    few = studied({PUNCT: Fake([[0.45, 0.1]], 0.1)})
    few._made[class_flows._flows] = flow_of({("", "PUNCT"): (0.45, 3.0)})
    assert sentence_of(few).kind == "mixed"


@pytest.mark.parametrize(
    ("flows", "text"),
    [
        ({("", "NOUN"): (0.55, 1.2)}, "Attends from every word to the same nouns."),
        (
            {("", "NOUN"): (0.4, 1.2), ("", "PROPN"): (0.2, 1.1)},
            "Attends from every word to the same nouns and proper nouns.",
        ),
        ({("", "NOUN"): (0.4, 1.2)}, "Attends from every word to the same words."),
        ({("", "NOUN"): (0.55, 0.9)}, "Attends from every word to the same words."),
    ],
)
def test_classes_of_keys_are_named_if_they_make_up_half(
    flows: Mapping[tuple[str, str], tuple[float, float]], text: str
) -> None:
    tags = {HeadKey("pos_received", RENORM, tag): Fake([[0.4, 0.2]]) for tag in ("NOUN", "PROPN")}
    results = studied(tags, key=0.9)
    results._made[class_flows._flows] = flow_of(flows)
    assert sentence_of(results).plain == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0\u202f%"),
        (0.002, "<\u202f1\u202f%"),
        (0.126, "13\u202f%"),
        (0.9996, ">\u202f99\u202f%"),
        (1.0, "100\u202f%"),
    ],
)
def test_only_bounds_are_printed_as_bounds(value: float, text: str) -> None:
    assert whole_percent(value) == text


def test_sentences_of_two_stacks_do_not_mix() -> None:
    first, second = studied(parts=PREVIOUS), studied(entropy=0.9)
    assert sentence_of(first).kind == "position"
    assert sentence_of(second).kind == "near_uniform"
    assert sentence_of(replace(second)).kind == "near_uniform"
