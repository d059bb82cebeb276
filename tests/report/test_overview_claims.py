"""Claims of the overview: each rule with numbers that support its claim and numbers that do not."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ablation_results import SENTENCES, TOKENS, ablation_results, around
from chosen_results import NO_ESTIMATES, Fake, fake_results, half_of, up_and_down
from headbook.analysis.accumulators import SELECTION
from headbook.metrics.patterns.type_shares import EVEN, PARTS, WITHIN
from headbook.pages.overview_parts.answers import words_text
from headbook.report.answers.overview.ablation_claims import layer_claim, sink_heads_claim
from headbook.report.answers.overview.attention_claims import (
    induction_claim,
    random_weights_claim,
    same_keys_claim,
    sink_claim,
)
from headbook.report.answers.overview.claim_parts import OverviewClaim
from headbook.report.answers.overview.claims import MAX_CLAIMS, RULES, overview_claims
from headbook.report.answers.overview.family_claim import (
    family_claim,
    family_heads,
    function_heads,
)
from headbook.report.answers.overview.numbers import pooled
from headbook.report.facts.functions import families_of, functions_of
from headbook.report.facts.tested.ablation import layer_ratio_rows
from headbook.report.linked_rows import LinkedNumber, Parts
from headbook.report.results import StackResults, stack_results
from headbook.results.formats import number, whole_percent
from headbook.results.number import Printed, RowAddress
from headbook.results.sentence import Sentence
from headbook.schema import (
    AblationTarget,
    Baseline,
    BaselineRun,
    HeadKey,
    HeadName,
    SinkView,
    heads_of,
)
from headbook.study.ablation.results import AblationResults, HeadSet, HeadSetKind
from headbook.study.study import Study
from sites import Site

RAW, RENORM = SinkView.RAW, SinkView.RENORM
SINK, NORM = HeadKey("sink_share", RAW, ""), HeadKey("sink_norm_share", RAW, "")
HeadNumbers = dict[HeadKey, Fake]
PERCENT = "\u202f%"


def texts(claims: list[OverviewClaim]) -> list[str]:
    return [words_text(claim.sentence) for claim in claims]


def only(rule: Any, results: StackResults) -> str:
    """The sentence of a rule's claim; empty without one."""
    (claim,) = [*rule(results)] or [None]
    return words_text(claim.sentence) if claim else ""


def lit(claim: OverviewClaim) -> set[tuple[int, int]]:
    return {(head.layer, head.head) for head in claim.heads}


def typed(
    heads: list[list[dict[str, float]]], entropy: float = 0.5, key: float = 0.1
) -> HeadNumbers:
    """Numbers of heads that decide their functions; each head names what is not 0."""

    def table(name: str, usual: float, even: float = 0.0) -> Fake:
        return Fake([[head.get(name, usual) for head in row] for row in heads], even, 0.001)

    labels = (*PARTS, WITHIN, "same_token")
    shares = {name: table(name, 0.0) for name in (*labels, "left_out")}
    even = np.full((len(heads), len(heads[0])), 0.05)
    shares |= {EVEN[name]: Fake(even) for name in labels}
    return {
        SINK: table("sink", 0.1, 0.1),
        HeadKey("relative_entropy", RENORM, ""): table("entropy", entropy),
        HeadKey("attention_parts", RENORM, "key"): table("key", key),
        **{HeadKey("type_shares", RENORM, name): fake for name, fake in shares.items()},
    }


NEARBY = {"near": 0.6, "within_3": 0.6, "after": 0.4}
PREVIOUS = {"previous": 0.9, "after": 0.1}
NEXT = {"next": 0.7, "after": 0.3}
MIXED = {"after": 0.5, "before": 0.5}
SPREAD = {"entropy": 0.95, "after": 0.5}
SAME = {"key": 0.95, "after": 1.0}
REPEATS = {"same_token": 0.8, "after": 1.0}


def test_the_sink_is_claimed_in_the_longest_run_of_layers_that_give_it_twice_as_much() -> None:
    shares = [[0.15] * 2, [0.6] * 2, [0.3, 0.5], [0.1] * 2]
    numbers = {SINK: Fake(shares, 0.1), NORM: Fake(np.full((4, 2), 0.05))}
    (claim,) = sink_claim(fake_results(numbers))
    assert words_text(claim.sentence) == (
        f"In layers 1–2, 50{PERCENT} of attention goes to special tokens, which contribute little."
    )
    # Sink heads: halfway from uniform attention to all of it, so that 0.5 is not enough.
    assert lit(claim) == {(1, 0), (1, 1)}
    evidence = words_text(claim.evidence)
    assert f"50.0{PERCENT} [" in evidence
    assert f"sink heads, at least 55.0{PERCENT} of their attention on special tokens" in evidence
    assert f"uniform attention would give 10.0{PERCENT}" in evidence
    assert "100 sentences" in evidence


@pytest.mark.parametrize(("norm", "little"), [(0.2, True), (0.24, False), (0.4, False)])
def test_little_is_said_of_less_than_half_of_the_attention(norm: float, little: bool) -> None:
    numbers = {SINK: Fake([[0.5] * 2], 0.1, 0.1), NORM: Fake([[norm] * 2], 0.0, 0.1)}
    assert ("little" in only(sink_claim, fake_results(numbers))) == little


@pytest.mark.parametrize(("share", "uniform", "claimed"), [(0.5, 0.2, True), (0.39, 0.2, False)])
def test_the_sink_is_claimed_from_twice_uniform_attention_on(
    share: float, uniform: float, claimed: bool
) -> None:
    results = fake_results({SINK: Fake([[share] * 2], uniform)})
    assert bool(only(sink_claim, results)) == claimed


def test_a_wide_interval_supports_no_claim_on_the_sink() -> None:
    assert not only(sink_claim, fake_results({SINK: Fake([[0.3] * 2], 0.12, spread=0.9)}))
    assert not only(sink_claim, fake_results({SINK: Fake([[0.5] * 2], 0.1)}, sentences=2))
    assert not only(sink_claim, fake_results(NO_ESTIMATES))


def of_heads(
    heads: list[list[dict[str, float]]], more: HeadNumbers | None = None, **options: Any
) -> StackResults:
    """Results of 400 queries, from which functions can be told."""
    return fake_results(typed(heads) | (more or {}), sentences=400, **options)


def example(claim: OverviewClaim) -> tuple[HeadName, float]:
    """The head that a claim names, and the number that stands behind it in the sentence."""
    assert isinstance(claim.sentence, Sentence)
    (printed,) = (part for part in claim.sentence.parts if isinstance(part, Printed))
    row = dict(printed.number.row.key)
    head = HeadName(str(row["stack"]), int(row["layer"]), int(row["head"]))
    text = printed.text
    return head, float(text.removesuffix(PERCENT)) / (100 if PERCENT in text else 1)


def test_a_family_is_claimed_with_the_best_head_of_its_commonest_function() -> None:
    heads = [[PREVIOUS | {"previous": 0.8}, PREVIOUS, NEXT], [MIXED] * 3]
    results = of_heads(heads)
    (claim,) = family_claim(results)
    assert lit(claim) == {(0, 0), (0, 1), (0, 2)}
    assert example(claim) == (HeadName("self", 0, 1), 0.9)
    assert "previous token" in words_text(claim.sentence)
    assert "previous token 2, next token 1" in words_text(claim.evidence)
    function = functions_of(results)[HeadName("self", 0, 1)]
    assert function.number is not None
    assert isinstance(claim.sentence, Sentence)
    assert function.number.printed("") in claim.sentence.parts


@pytest.mark.parametrize(
    ("row", "head", "members"),
    [
        ([SPREAD] * 5 + [PREVIOUS] + [REPEATS] * 2, 6, {6, 7}),
        ([SPREAD] * 5 + [MIXED] * 3, 0, {0, 1, 2, 3, 4}),
        ([PREVIOUS] * 2 + [NEARBY] * 3 + [SAME] * 6, 2, {2, 3, 4}),
    ],
)
def test_the_largest_family_comes_first_and_evenly_spread_heads_last(
    row: list[dict[str, float]], head: int, members: set[int]
) -> None:
    """Heads of the same words from everywhere have a claim of their own."""
    (claim,) = family_claim(of_heads([row]))
    assert example(claim)[0] == HeadName("self", 0, head)
    assert lit(claim) == {(0, member) for member in members}


@pytest.mark.parametrize(("amount", "claimed"), [(2, True), (1, False)])
def test_a_family_has_a_tenth_of_the_heads_of_its_layers(amount: int, claimed: bool) -> None:
    row = [PREVIOUS] * amount + [MIXED] * (20 - amount)
    assert bool(only(family_claim, of_heads([row]))) == claimed


def test_families_and_their_functions_count_every_head_once() -> None:
    heads = [[PREVIOUS, NEXT, PREVIOUS | {"previous": 0.95}, MIXED], [SAME, SPREAD, NEARBY, MIXED]]
    results = of_heads(heads)
    found = family_heads({"self": results})
    assert [each.family for each in found] == [*families_of(results)]
    assert sorted(head for each in found for head in each.heads) == heads_of(results.stack)
    for each in found:
        in_functions = [head for function in each.functions for head in function.heads]
        assert sorted(in_functions) == sorted(each.heads)
    counts = {group.example.noun: len(group.functions) for group in function_heads(results)}
    assert counts == {"previous token": 2, "next token": 1, "nearby words": 1, "mixed": 2,
                      "the same words from everywhere": 1, "spread evenly": 1}  # fmt: skip
    position = found[0]
    assert (position.family, position.example.head) == ("position", HeadName("self", 0, 2))


@pytest.mark.parametrize(("amount", "claimed"), [(3, True), (2, False)])
def test_same_keys_need_three_heads_of_a_layer(amount: int, claimed: bool) -> None:
    heads = [[SAME] + [MIXED] * 3, [SAME] * amount + [MIXED] * (4 - amount)]
    found = only(same_keys_claim, of_heads(heads))
    expected = (
        f"Three heads of layer 1 attend from everywhere to the same words (95{PERCENT} of their "
        "departure from even attention)."
    )
    assert found == (expected if claimed else "")


@pytest.mark.parametrize(("others", "named"), [(0.2, True), (0.42, False)])
def test_a_class_of_words_is_named_if_other_heads_surely_attend_to_it_less(
    others: float, named: bool
) -> None:
    heads = [[MIXED] * 3, [SAME] * 3]
    nouns = {
        HeadKey("pos_received", RENORM, tag): Fake([[others / 2] * 3, [0.22] * 3], 0.1, spread=0.1)
        for tag in ("NOUN", "PROPN")
    }
    (claim,) = same_keys_claim(of_heads(heads, nouns))
    found = words_text(claim.sentence)
    assert (": 44\u202f% nouns and names." in found) == named
    assert ("departure from even" in found) != named
    assert ("of that of the other heads, 20.0" in words_text(claim.evidence)) == named
    assert lit(claim) == {(1, 0), (1, 1), (1, 2)}


INDUCTION = HeadKey("induction_score", RAW, "")


@pytest.mark.parametrize(
    ("score", "spread", "claimed"), [(0.4, 0.01, True), (0.29, 0.01, False), (0.32, 0.5, False)]
)
def test_heads_of_induction_are_those_with_the_function(
    score: float, spread: float, claimed: bool
) -> None:
    numbers = {INDUCTION: Fake([[score, 0.1], [score / 2, score]], 0.02, spread)}
    results = of_heads([[MIXED] * 2] * 2, numbers, causal=True)
    found = [*induction_claim(results)]
    assert bool(found) == claimed
    if claimed:
        functions = functions_of(results)
        assert {*found[0].heads} == {h for h, each in functions.items() if each.id == "induction"}
        assert lit(found[0]) == {(0, 0), (1, 1)}
        assert example(found[0]) == (HeadName("self", 0, 0), score)


def test_a_head_with_another_function_before_induction_has_no_part_in_the_claim() -> None:
    numbers = {INDUCTION: Fake([[0.4, 0.5]], 0.02)}
    (claim,) = induction_claim(of_heads([[MIXED, REPEATS]], numbers, causal=True))
    assert lit(claim) == {(0, 0)}


def replaced(
    effects: Mapping[str, float],
    *,
    random: tuple[float, ...] = (),
    target: str = AblationTarget.EMBEDDING,
    spread: float = 0.002,
) -> StackResults:
    """Results of two layers of two heads with effects of groups of heads."""
    results = fake_results({SINK: Fake([[0.1, 0.6], [0.1, 0.6]], 0.1)})
    singles = ablation_results(around(0.01, 0.01, 0.01, 0.01, spread=0.002), target)
    sets = [HeadSet(HeadSetKind.GROUP, "self", name, 0, "mean") for name in effects]
    sets += [HeadSet(HeadSetKind.RANDOM, "self", "sink", n, "mean") for n, _ in enumerate(random)]
    changes = around(*effects.values(), *random, spread=spread, seed=3)
    members = {"layer 0": [1, 1, 0, 0], "layer 1": [0, 0, 1, 1], "sink": [0, 1, 0, 1]}
    rows = [members[name] for name in effects] + [[1, 0, 1, 0]] * len(random)
    heads = tuple(HeadName("self", layer, head) for layer in (0, 1) for head in (0, 1))
    ablation: AblationResults = replace(
        singles,
        heads=heads,
        sets=(*singles.sets, *sets),
        members=np.concatenate([singles.members, np.reshape(np.array(rows, dtype=bool), (-1, 4))]),
        changes={target: np.concatenate([singles.changes[target], changes * TOKENS], 1)},
    )
    sums = replace(results.study.corpus_sums, ablation=ablation)
    study = replace(results.study, corpus_sums=sums)
    return StackResults(study, results.stack)


def test_a_layer_is_claimed_if_its_effect_lies_above_every_other_one() -> None:
    (claim,) = layer_claim(replaced({"layer 0": 0.03, "layer 1": 0.24}))
    assert words_text(claim.sentence) == (
        "Without layer 1, the sentence vector changes 8.0 times as much as without layer 0 "
        "(second largest); partly by construction: the last layer writes straight into the output."
    )
    assert lit(claim) == {(1, 0), (1, 1)}
    evidence = words_text(claim.evidence)
    assert "ratio 8.0 [" in evidence
    assert evidence.startswith("1 minus the cosine of sentence vectors")
    assert f"{SENTENCES} sentences" in evidence
    (claim,) = layer_claim(replaced({"layer 0": 0.24, "layer 1": 0.03}))
    assert words_text(claim.sentence) == (
        "Without layer 0, the sentence vector changes 8.0 times as much as without layer 1 "
        "(second largest)."
    )
    loss = replaced({"layer 0": 0.05, "layer 1": 0.06}, target=AblationTarget.LOSS)
    assert only(layer_claim, loss) == (
        "Without layer 1, the loss rises 1.2 times as much as without layer 0 (second largest)."
    )


@pytest.mark.parametrize(
    ("effects", "spread"),
    [
        ({"layer 0": 0.03, "layer 1": 0.031}, 0.05),
        ({"layer 1": 0.24}, 0.002),
        ({"layer 0": -0.01, "layer 1": 0.24}, 0.002),
        ({}, 0.002),
    ],
)
def test_a_layer_is_not_claimed_otherwise(effects: dict[str, float], spread: float) -> None:
    target = AblationTarget.LOSS
    assert not only(layer_claim, replaced(effects, spread=spread, target=target))
    assert not only(layer_claim, fake_results({SINK: Fake([[0.1, 0.6]])}))


def test_a_layer_that_one_half_does_not_choose_is_not_claimed() -> None:
    """Its effect is the largest on all sentences, but the other half alone would choose another."""
    results = replaced({"layer 0": 0.05, "layer 1": 0.06}, spread=0.0001)
    ablation = results.study.corpus_sums.ablation
    assert ablation is not None
    assert only(layer_claim, results)
    changes = ablation.changes[AblationTarget.EMBEDDING].copy()
    chosen = ablation.half == SELECTION
    changes[chosen, -1], changes[~chosen, -1] = 0.04 * TOKENS, 0.2 * TOKENS
    turned = replace(ablation, changes={AblationTarget.EMBEDDING: changes})
    sums = replace(results.study.corpus_sums, ablation=turned)
    assert not only(
        layer_claim, StackResults(replace(results.study, corpus_sums=sums), results.stack)
    )


@pytest.mark.parametrize(
    ("effect", "sets", "change"),
    [(0.01, 50, "less"), (0.09, 50, "more"), (0.05, 50, ""), (0.01, 20, ""), (0.01, 0, "")],
)
def test_sink_heads_are_claimed_outside_the_range_of_random_sets(
    effect: float, sets: int, change: str
) -> None:
    random = tuple(np.linspace(0.02, 0.08, sets))
    found = only(sink_heads_claim, replaced({"sink": effect}, random=random))
    expected = (
        f"Without the two sink heads, the sentence vector changes {change} than "
        f"without random heads: {number(1000 * effect)} thousandths."
    )
    assert found == (expected if change else "")


@pytest.mark.parametrize(("apart", "claimed"), [(0.0, True), (0.3, False)])
def test_random_weights_are_claimed_if_no_layer_differs(apart: float, claimed: bool) -> None:
    names = ("relative_entropy", "sink_share", "attention_distance")
    own = {HeadKey(name, RAW, ""): Fake([[0.5] * 2, [0.5 + apart] * 2], 0.5) for name in names}
    random = {HeadKey(name, RAW, ""): Fake([[0.5] * 2] * 2, 0.5) for name in names}
    runs = {BaselineRun(Baseline.UNTRAINED, seed): random for seed in (0, 1)}
    found = only(random_weights_claim, fake_results(own, baseline_runs=runs))
    expected = (
        "The heads do not differ clearly from random weights: normalised entropy 0.50."
        if claimed
        else ""
    )
    assert found == expected
    assert not only(random_weights_claim, fake_results(own))


def test_at_most_four_claims_light_different_heads_the_sink_first_then_by_depth() -> None:
    heads = [[PREVIOUS | {"sink": 0.6}] * 3, [SAME] * 3, [MIXED | {"sink": 0.7}] * 3]
    induction = {HeadKey("induction_score", RAW, ""): Fake([[0.1] * 3, [0.1] * 3, [0.9, 0.1, 0.1]])}
    found = overview_claims({"self": of_heads(heads, induction, causal=True)})
    assert len(found) == MAX_CLAIMS
    assert [claim.kind for claim in found] == ["sink", "family", "same keys", "induction"]
    assert len({claim.heads for claim in found}) == len(found)


def test_no_claim_is_made_where_nothing_is_supported() -> None:
    assert overview_claims({"self": of_heads([[MIXED] * 4] * 2)}) == []
    assert overview_claims({"self": fake_results(NO_ESTIMATES)}) == []


def test_stacks_share_the_claims_and_the_first_of_each_kind_come_first() -> None:
    sink = {SINK: Fake([[0.6] * 3], 0.1)}
    results = {
        stack: of_heads([[SAME] * 3], sink, stack=stack, causal=stack == "decoder")
        for stack in ("encoder", "decoder", "cross")
    }
    found = overview_claims(results)
    assert (found[0].kind, found[0].stack) == ("sink", "encoder")
    assert {claim.stack for claim in found} == {"encoder", "decoder", "cross"}
    assert len(found) <= MAX_CLAIMS
    assert any("of the encoder" in text for text in texts(found))


def rows_of(words: Sentence | Parts) -> list[RowAddress]:
    """The rows of the numbers of a sentence."""
    assert isinstance(words, Sentence)
    return [
        part.place if isinstance(part, LinkedNumber) else part.number.row
        for part in words.parts
        if isinstance(part, LinkedNumber | Printed)
    ]


def every_claim(results: Mapping[str, StackResults]) -> list[OverviewClaim]:
    return [claim for each in results.values() if each.metrics for rule in (
        *RULES, random_weights_claim) for claim in rule(each)]  # fmt: skip


def tables_of(study: Study) -> dict[str, pd.DataFrame]:
    return {"tests": study.tests, "heads": study.heads, "head_groups": study.head_groups}


def rows_behind(tables: Mapping[str, pd.DataFrame], address: RowAddress) -> int:
    table = tables[address.table]
    for column, value in address.key:
        table = table[table[column] == value]
    return len(table)


def test_every_number_of_a_claim_leads_to_one_row(any_site: Site) -> None:
    study = any_site.study
    claims, tables = every_claim(stack_results(study)), tables_of(study)
    # Models with random weights may support none.
    assert claims or any_site.kind != "decoder"
    for claim in claims:
        assert len(words_text(claim.sentence).split()) <= 18, words_text(claim.sentence)
        assert len(rows_of(claim.sentence)) == 1
        for address in (*rows_of(claim.sentence), *rows_of(claim.evidence)):
            assert rows_behind(tables, address) == 1, address


def test_rows_hold_the_numbers_of_chosen_claims() -> None:
    results = replaced({"layer 0": 0.03, "layer 1": 0.24})
    (claim,) = layer_claim(results)
    ratio = next(address for address in rows_of(claim.sentence) if address.table == "tests")
    ablation = results.study.corpus_sums.ablation
    assert ablation is not None
    rows = (tested.columns for tested in layer_ratio_rows(ablation, "self"))
    (row,) = [row for row in rows if dict(ratio.key).items() <= row.items()]
    assert row["value"] == pytest.approx(8.0)
    assert row["low"] < 8 < row["high"]


def test_pooled_numbers_are_ratios_of_sums_over_heads_and_sentences(any_site: Site) -> None:
    """By loops over heads, and equal to the numbers of layers and of single heads."""
    for results in any_site.results.values():
        column = HeadKey("relative_entropy", results.stack.default_view, "")
        n_heads = results.stack.n_heads
        of_layers = results.layers(*column)
        sums = results._table.heads[..., results._columns[column]].total
        for layer in results.stack.attention_layers:
            found = pooled(results, [column], {(layer, head) for head in range(n_heads)})
            assert found.value == pytest.approx(of_layers.value[layer])
            assert found.low <= found.value <= found.high
        some = [(layer, 1) for layer in results.stack.attention_layers]
        n, d = (sum(sums[name][place] for place in some) for name in ("n", "d"))
        assert pooled(results, [column], some).value == pytest.approx(n / d)


def test_intervals_of_pooled_numbers_are_clustered_by_sentence() -> None:
    """Two heads that vary together are no more certain than one; opposite ones cancel."""
    together = fake_results({SINK: Fake([[0.5, 0.5]], spread=0.1)})
    one, both = (pooled(together, [SINK], {*heads}) for heads in ([(0, 0)], [(0, 0), (0, 1)]))
    assert both.high - both.low == pytest.approx(one.high - one.low)
    usual = 2 * 1.984 * np.std(up_and_down(100) / 10, ddof=1) / 10  # Student's t, 99 degrees
    assert one.high - one.low == pytest.approx(usual, rel=0.05)
    assert set(half_of(100)) == {0, 1}
    assert np.isnan(pooled(together, [NORM], [(0, 0)]).value)


def test_shares_are_never_rounded_to_nothing() -> None:
    shares = {
        0.001: "<\u202f1\u202f%",
        0.999: ">\u202f99\u202f%",
        1.0: "100\u202f%",
        0.481: "48\u202f%",
    }
    assert {value: whole_percent(value) for value in shares} == shares
