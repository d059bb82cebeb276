"""What heads read and write: each role and claim with numbers that do and do not support it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from block_parts import every
from chosen_results import Fake, fake_results
from circuits import VOCABULARY, WORDS, circuit_results, head_rows, number_rows, pair_rows
from headbook.metrics.patterns.type_shares import EVEN, PARTS
from headbook.pages.overview_parts.answers import words_text
from headbook.report.answers.overview.attention_claims import induction_claim
from headbook.report.facts.circuits.facts import (
    agreement,
    circuits,
    copying,
    intervention,
    vector_words,
    writers,
)
from headbook.report.facts.circuits.head_outputs import HeadOutput, outputs_of
from headbook.report.facts.circuits.rules import (
    change_text,
    copying_heads,
    main_feeder,
    used_feeds,
    visible_token,
    why_no_circuits,
    writes_into_vector,
    written_tokens,
)
from headbook.report.facts.functions import functions_of
from headbook.report.results import StackResults
from headbook.results.number import Number, Printed
from headbook.schema import HeadKey, HeadName, SinkView
from headbook.study.circuits import EXEMPLAR_TOKENS, CircuitResults, OutputSpace

INDUCTION, PREVIOUS = (HeadKey(f"{n}_score", SinkView.RAW, "") for n in ("induction", "previous"))
SCORES: dict[HeadKey, Fake] = {
    PREVIOUS: Fake([[0.9, 0.6], [0.1, 0.1]]),
    INDUCTION: Fake([[0.0, 0.0], [0.8, 0.5]], 0.01),
}
# Heads without a single role, unless other numbers say more.
MIXED = dict.fromkeys(PARTS, 0.05) | {"next": 0.3, "near": 0.15, "before": 0.2, "after": 0.15}
TYPED: dict[HeadKey, Fake] = {
    HeadKey("sink_share", SinkView.RAW, ""): Fake([[0.1] * 2] * 2, 0.1),
    HeadKey("relative_entropy", SinkView.RENORM, ""): Fake([[0.6] * 2] * 2, 1.0),
    **{
        HeadKey("type_shares", SinkView.RENORM, name): Fake([[value] * 2] * 2, 0.08)
        for name, value in (
            MIXED | dict.fromkeys((EVEN[part] for part in MIXED), 0.08)
            | {"left_out": 0.0}
        ).items()
    },
}  # fmt: skip
PAIRS = [
    ((1, 0), (0, 0), 0.12, -0.7),
    ((1, 0), (0, 1), 0.16, -0.1),
    ((1, 1), (0, 0), 0.15, -0.4),
]


def studied(
    pairs: Any = (), *, scores: dict[HeadKey, Fake] = SCORES, causal: bool = True, **heads: Any
) -> StackResults:
    """Two layers of two heads that do nothing but what numbers say."""
    results = fake_results(TYPED | scores, causal=causal, sentences=400)
    rows = head_rows("self", 2, 2, **heads)
    circuits = circuit_results(results.study, rows, pair_rows(pairs))
    return StackResults(replace(results.study, circuits=circuits), results.stack)


def heads(*places: tuple[int, int]) -> list[HeadName]:
    return [HeadName("self", *place) for place in places]


def claims_on_output(results: StackResults, place: tuple[int, int]) -> tuple[HeadOutput, ...]:
    """Return what the output of a head does."""
    return outputs_of(results, functions_of(results)[HeadName("self", *place)])


def test_an_induction_head_uses_what_lowers_its_score() -> None:
    results = studied(PAIRS)
    used = used_feeds(results)
    assert [feed.lower for feed in used] == heads((0, 0), (0, 0), (0, 1))
    assert main_feeder(used) == HeadName("self", 0, 0)
    assert circuits({"self": results}).heads == (*heads((0, 0), (1, 0), (1, 1)),)
    fact = intervention({"self": results})
    assert fact.holds
    assert fact.heads == (*heads((0, 0), (1, 0)),)
    before, change, composition, random = every(Number, fact.text)
    assert (before.value, composition.value, random.value) == (0.8, 0.12, 0.042)
    assert (change.value, change.low, change.high) == pytest.approx((-0.7, -0.72, -0.68))
    assert change.as_text("interval") == "−0.70 [−0.72, −0.68]"
    row = {"stack": "self", "kind": "k", "layer": 1, "head": 0, "lower_layer": 0, "lower_head": 0,
           "measure": "induction_score"}  # fmt: skip
    assert {(number.row.table, number.row.key) for number in every(Number, fact.text)} == {
        ("composition", tuple(row.items()))
    }
    assert "20 sequences" in fact.text.text
    assert "rank 3 " in fact.text.text


@pytest.mark.parametrize(
    ("pair", "scores"),
    [
        (((1, 0), (0, 0), 0.3, -0.04), SCORES),  # a loss that is too small
        (((1, 0), (0, 0), 0.3, 0.2), SCORES),
        (((1, 0), (0, 0), 0.3, np.nan), SCORES),  # weights alone
        (((1, 0), (0, 0), 0.3, -0.4), SCORES | {PREVIOUS: Fake([[0.29, 0.1], [0.1, 0.1]])}),
        (((1, 0), (0, 0), 0.3, -0.4), SCORES | {INDUCTION: Fake([[0.0, 0.0], [0.29, 0.1]])}),
    ],
)
def test_without_a_loss_or_a_score_nothing_is_used(pair: Any, scores: dict[HeadKey, Fake]) -> None:
    results = studied([pair], scores=scores)
    assert not used_feeds(results)
    assert not circuits({"self": results}).heads
    assert not intervention({"self": results}).holds
    assert not claims_on_output(results, (1, 0))


def test_an_interval_that_reaches_zero_is_no_loss() -> None:
    results = studied([((1, 0), (0, 0), 0.3, -0.06)])
    assert used_feeds(results)
    table = results.study.circuits.composition.assign(high=0.01)
    circuits = replace(results.study.circuits, composition=table)
    wide = StackResults(replace(results.study, circuits=circuits), results.stack)
    assert not used_feeds(wide)


def test_only_the_keys_count() -> None:
    results = studied(PAIRS)
    table = results.study.circuits.composition.assign(kind="v")
    circuits = replace(results.study.circuits, composition=table)
    assert not used_feeds(StackResults(replace(results.study, circuits=circuits), results.stack))


@pytest.mark.parametrize(
    ("score", "rate", "negative", "sign"),
    [
        (0.9, 0.1, 0.0, 1),
        (0.9, 0.09, 0.0, 0),
        (0.05, 0.9, 0.0, 0),  # within the band of permuted types
        (-0.9, 0.0, 0.1, -1),
        (-0.9, 0.0, 0.09, 0),
        (-0.9, 0.5, 0.0, 0),
    ],
)
def test_copying_takes_score_and_rate(
    score: float, rate: float, negative: float, sign: int
) -> None:
    place = (1, 0)
    results = studied(
        copying_score={place: score}, copy_rate={place: rate}, copy_rate_negative={place: negative}
    )
    assert copying_heads(results) == ({place: sign} if sign else {})
    fact = copying({"self": results})
    assert fact.holds is bool(sign)
    counted = {1: "One of 4 heads copies", -1: "None of 4 heads copy", 0: "None of 4 heads copies"}
    assert fact.text.text.startswith(counted[sign])
    assert ("; one lowers" in fact.text.text) is (sign < 0)
    assert circuits({"self": results}).heads == ((HeadName("self", *place),) if sign > 0 else ())


@pytest.mark.parametrize(
    ("rank", "verb"),
    [
        (1.0, "promotes"), (10.0, "promotes"), (10.5, ""), (VOCABULARY - 10.0, ""),
        (VOCABULARY - 9.0, "suppresses"), (float(VOCABULARY), "suppresses"), (np.nan, ""),
    ],
)  # fmt: skip
def test_a_head_promotes_what_is_among_its_ten_highest_tokens(rank: float, verb: str) -> None:
    place = (1, 0)
    results = studied(exemplar_key_rank={place: rank}, scores={})
    assert written_tokens(results) == ({place: verb} if verb else {})
    assert [output.text.text.split()[0].lower() for output in claims_on_output(results, place)] == (
        [verb] if verb else []
    )
    fact = writers({"self": results})
    assert fact.holds is bool(verb)
    heads_measured = 3 if np.isnan(rank) else 4
    one = "One" if verb == "promotes" else "None"
    assert fact.text.text.startswith(f"{one} of {heads_measured} heads promotes ")
    assert ("; one suppresses it." in fact.text.text) is (verb == "suppresses")


def test_disagreements_of_weights_and_interventions_come_first() -> None:
    fact = agreement(studied(PAIRS))
    assert not fact.holds
    assert fact.heads == (*heads((1, 0), (0, 0), (0, 1)),)
    assert [number.value for number in every(Number, fact.text)] == [-0.7, -0.1]
    agreed = agreement(studied([PAIRS[0], ((1, 0), (0, 1), 0.05, -0.1)]))
    assert agreed.holds
    assert "not tested" in agreed.text.text
    assert not agreement(studied()).text


def test_the_outputs_of_an_induction_head_name_the_head_that_it_uses() -> None:
    results = studied(PAIRS, exemplar_key_rank={(1, 0): 2.0})
    used, promoted = claims_on_output(results, (1, 0))
    assert (used.text.text, promoted.text.text) == (
        "Uses what L0·H0 writes.", "Promotes the token that it attends to.",
    )  # fmt: skip
    change, rank = (
        part.number for output in (used, promoted) for part in output.evidence.parts
        if isinstance(part, Printed)
    )  # fmt: skip
    assert (change.value, change.low, change.high) == pytest.approx((-0.7, -0.72, -0.68))
    assert change.row.table == "composition"
    assert (rank.value, dict(rank.row.key)["metric"]) == (2, "attended_rank")
    assert f"2 of {VOCABULARY}" in promoted.evidence.text


def test_the_claim_on_induction_lights_the_heads_that_are_needed() -> None:
    (claim,) = induction_claim(studied(PAIRS))
    assert claim.heads == {*heads((0, 0), (0, 1), (1, 0), (1, 1))}
    assert "previous-token heads without which in their keys it falls" in words_text(claim.evidence)
    (alone,) = induction_claim(studied())
    assert alone.heads == {*heads((1, 0), (1, 1))}
    assert "in their keys" not in words_text(alone.evidence)


@pytest.mark.parametrize(
    ("rank", "control", "writes"),
    [
        ((97.0, 19.0, 420.0), 11_000.0, True),
        ((97.0, 19.0, WORDS / 19), 11_000.0, False),  # the interval reaches too far
        ((97.0, 19.0, 420.0), WORDS / 5, False),  # other words of the sentences move as much
        ((97.0, np.nan, np.nan), 11_000.0, False),
    ],
)
def test_writing_into_the_vector_takes_rank_and_control(
    rank: tuple[float, float, float], control: float, writes: bool
) -> None:
    results = fake_results(TYPED, sentences=400)
    numbers = number_rows(
        ("self", 1, 0), {("towards_rank", ""): rank, ("towards_control", ""): control}
    )
    circuits = CircuitResults(OutputSpace.SENTENCE_VECTORS, vocabulary=WORDS, numbers=numbers)
    found = StackResults(replace(results.study, circuits=circuits), results.stack)
    assert writes_into_vector(found, (1, 0)) is writes
    assert not writes_into_vector(found, (0, 0))
    text = " ".join(output.text.text for output in claims_on_output(found, (1, 0)))
    assert ("into the sentence vector" in text) is writes


def test_heads_of_a_layer_that_write_words_into_the_vector_are_named() -> None:
    results = fake_results(TYPED, sentences=400)
    written = {("towards_rank", ""): (97.0, 19.0, 420.0), ("towards_control", ""): 11_000.0}
    numbers = number_rows(("self", 1, 0), written)
    columns = {"stack": "self", "layer": 1, "head": 0, "kind": "to", "key_token": "bat"}
    words = {1: ("bat", 5.0), 2: ("batted", 2.0)}
    exemplars = pd.DataFrame(
        [
            columns | {"exemplar": n, "rank": rank, "token": f"{word}{rank}", "key_rank": key_rank}
            for n, (word, key_rank) in words.items()
            for rank in (2, 1)
        ],
        columns=[*EXEMPLAR_TOKENS.columns],
    )
    circuits = CircuitResults(
        OutputSpace.SENTENCE_VECTORS, vocabulary=WORDS, numbers=numbers, exemplars=exemplars
    )
    writing = StackResults(replace(results.study, circuits=circuits), results.stack)
    fact = vector_words(writing, 1)
    assert fact.holds
    assert fact.heads == (HeadName("self", 1, 0),)
    assert "bat → batted1, batted2." in fact.text.text
    (rank,) = every(Number, fact.text)
    assert (rank.value, rank.low, rank.high) == (97.0, 19.0, 420.0)
    assert not vector_words(writing, 0).holds


def test_a_study_without_the_page_says_why() -> None:
    results = fake_results(TYPED)
    assert "--circuits on" in why_no_circuits({"self": results})
    assert why_no_circuits({"self": studied(PAIRS)}) == ""
    vectors = CircuitResults(OutputSpace.SENTENCE_VECTORS, vocabulary=WORDS)
    of_encoder = StackResults(replace(results.study, circuits=vectors), results.stack)
    assert "no output vocabulary" in why_no_circuits({"self": of_encoder})


@pytest.mark.parametrize(
    ("token", "printed"),
    [
        (" door", "␣door"),
        ("␣door", "␣door"),
        (" ", "␣"),
        ("", "∅"),
        ("\ufffd", "▯"),
        ("\n", "↵"),
        ("a b", "a b"),
    ],
)
def test_spaces_and_breaks_of_tokens_are_visible(token: str, printed: str) -> None:
    assert visible_token(token) == printed


def test_small_changes_are_bounds() -> None:
    assert change_text(0.004) == "< +0.01"
    assert change_text(-0.004) == "> −0.01"
    assert change_text(-0.5) == "−0.50"
    assert change_text(0.0) == "0.00"
