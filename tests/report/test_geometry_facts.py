"""Facts on how words travel, by numbers that support them and that do not."""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest

from chosen_results import NO_ESTIMATES, fake_results
from headbook.analysis.accumulators import Estimates
from headbook.report import token_neighbours as module
from headbook.report.facts.states import geometry, travel
from headbook.report.facts.states.geometry import (
    COSINE,
    HALF,
    KEPT,
    MIXING,
    RANK,
    identity,
    leaves_embedding,
    most_replaced,
    own_numbers,
    stays_nearest,
    word_classes,
)
from headbook.report.facts.states.mixing import falls_throughout, mixing_by_class, mixing_range
from headbook.report.facts.states.travel import function_shift, observations, walk_back
from headbook.report.results import StackResults, stack_results
from headbook.report.token_neighbours import OwnTokens, class_name, own_tokens
from headbook.results.formats import whole_percent
from headbook.schema import NO_OUTLIERS, EmbeddingSpace, ResidualPoint, Side, TokenKey
from headbook.study.sentence_data import SentenceData, StoredSentence, StoredText
from headbook.study.sums.buckets import TokenBuckets
from headbook.study.sums.state_geometry import StateMeans
from sites import Site

POST, MID = ResidualPoint.POST, ResidualPoint.MID
POSITIONAL = EmbeddingSpace.POSITIONAL


def estimates(values: list[float], half: float = 0.02) -> Estimates:
    """Values by layer with intervals of that half width."""
    value = np.array(values, float)
    ones = np.ones(len(values))
    return Estimates(
        value, value - half, value + half, ones.astype(int) * 40, ones * 100, ones * 40
    )


def with_shares(
    shares: dict[str, list[float]],
    tokens: dict[str, dict[str, list[float]]] | None = None,
    half: float = 0.02,
) -> StackResults:
    """Results whose tokens are nearest to their own vocabulary token with these shares."""
    results = of_tokens(**(tokens or {}))
    by_class = {kind: estimates(values, half) for kind, values in shares.items()}
    results._made[module._own_tokens] = OwnTokens(POSITIONAL, by_class, 40)
    return results


def of_tokens(**numbers: Any) -> StackResults:
    """Results with averages over tokens: names are those of metrics, values by class of tokens."""
    columns = {}
    for name, by_class in numbers.items():
        state = MID if name == MIXING else POST
        space = POSITIONAL if name in {RANK, KEPT} else None
        for kind, values in by_class.items():
            columns[TokenKey(name, state, space, kind)] = (values, 0.01)
    results = fake_results(NO_ESTIMATES, tokens=columns)
    return with_buckets(results, {key: values for key, (values, _) in columns.items()})


def with_buckets(results: StackResults, columns: dict[TokenKey, list[float]]) -> StackResults:
    """Results with sums by bucket: each bucket has values of its own around the given ones."""
    if not columns:
        return results
    noise = np.random.default_rng(0).normal(0, 0.01, (BUCKETS, len(next(iter(columns.values())))))
    n = np.stack([np.array(values) + noise for values in columns.values()], -1)
    n = n - noise.mean(0)[:, None]
    buckets = TokenBuckets(BUCKETS, np.arange(BUCKETS), n, np.ones_like(n), columns=(*columns,))
    sums = replace(results.study.corpus_sums, token_buckets={"self": (buckets,)})
    stack = replace(results.stack, n_layers=n.shape[1])
    return StackResults(replace(results.study, corpus_sums=sums), stack)


BUCKETS = 40


HIGH, LOW = [1.0, 0.9], [1.0, 0.5]


@pytest.mark.parametrize(
    ("shares", "holds", "value", "words"),
    [
        ({"content": HIGH, "function": LOW, "punctuation": LOW}, True, 0.9, "often are not"),
        ({"content": HIGH, "function": [1, 0.8], "punctuation": HIGH}, True, 0.9, "less often"),
        ({"content": HIGH, "function": HIGH, "punctuation": LOW}, True, 0.9, "Most do"),
        ({"content": HIGH, "function": [1, 0.87]}, True, 0.9, "Most do"),
        ({"content": LOW, "function": [1, 0.3]}, False, 0.5, "Some do"),
        ({"content": [1, 0.2]}, False, 0.2, "Few do"),
        ({"all": [0.1, 0.004]}, False, 0.004, "Hardly any do"),
    ],
)
def test_the_answer_follows_from_shares_and_intervals(
    shares: dict[str, list[float]], holds: bool, value: float, words: str
) -> None:
    results = with_shares(shares)
    fact = identity(results)
    kind = next(iter(shares))
    assert fact.holds is holds
    assert own_numbers(results, kind)[-1].value == value
    assert words in fact.text.text
    assert len(fact.text.text.split()) <= 30


def test_without_intervals_classes_are_not_compared() -> None:
    fact = identity(with_shares({"content": HIGH, "function": LOW}, half=math.nan))
    assert fact.holds
    assert "function" not in fact.text.text


@pytest.mark.parametrize(
    ("numbers", "printed"),
    [
        ({COSINE: {"all": [0.8, 0.3], "content": [0.9, 0.4]}}, "0.40"),
        ({COSINE: {"all": [0.8, 0.3]}}, "0.30"),
        ({HALF: {"all": [0.5, 0.25]}}, "25"),
        ({MIXING: {"all": [0.5, 0.25]}}, "25"),
        ({}, "Not known here"),
    ],
)
def test_without_ranks_the_answer_is_the_best_of_the_other_measures(
    numbers: dict[str, Any], printed: str
) -> None:
    fact = identity(of_tokens(**numbers))
    assert printed in fact.text.text
    assert not fact.holds


@pytest.mark.parametrize(
    ("values", "spread", "holds"),
    [([0.8, 0.6, 0.5, 0.45], 0.01, True), ([0.98, 0.96, 0.95, 0.93], 0.01, False)],
)
def test_states_leave_their_embedding_by_the_interval_in_the_end(
    values: list[float], spread: float, holds: bool
) -> None:
    assert leaves_embedding(of_tokens(**{COSINE: {"all": values}})).holds is holds


def test_a_share_of_one_per_cent_is_not_many() -> None:
    """99 % of all tokens are not nearest to themselves: "many are not" would be too weak."""
    fact = stays_nearest(with_shares({"all": [0.01, 0.01]}))
    assert not fact.holds
    assert fact.text.text.startswith("Hardly any ")


def test_tokens_that_stay_nearest_to_the_end_are_not_said_to_leave_before() -> None:
    assert stays_nearest(with_shares({"all": [1, 0.97, 0.86, 0.75]})).holds


def test_the_layer_that_keeps_fewest_neighbours_is_tested() -> None:
    results = of_tokens(**{KEPT: {"all": [0.8, 0.7, 0.3, 0.6]}})
    fact = most_replaced(results)
    (tested,) = fact.evidence
    assert fact.holds
    assert (tested.layer, tested.baseline) == (2, "layer 3")
    assert tested.value.value == pytest.approx(0.3, abs=0.01)
    assert tested.p < 0.05
    alike = most_replaced(of_tokens(**{KEPT: {"all": [0.8, 0.5, 0.5, 0.6]}}))
    assert not alike.holds
    assert "layer" not in alike.text.text


def test_a_share_that_falls_at_the_end_is_not_fewer_replaced() -> None:
    """Kept neighbours fall from 70 to 51 %, after a first layer that keeps almost none."""
    fact = most_replaced(of_tokens(**{KEPT: {"all": [0.2, 0.7, 0.65, 0.51]}}))
    assert fact.holds
    assert fact.evidence[0].layer == 0
    assert "Fewer" not in fact.text.text


def test_the_sentence_that_joins_the_curves_says_what_they_support() -> None:
    kept = {"all": [0.8, 0.7, 0.3, 0.6]}
    stay = with_shares(
        {"all": [1, 1, 0.95, 0.9]}, {COSINE: {"all": [0.9, 0.7, 0.5, 0.4]}, KEPT: kept}
    )
    text = geometry.travel(stay).text.text
    assert "but" in text
    assert "layer 2" in text
    leave = with_shares(
        {"all": [1, 0.5, 0.1, 0.05]}, {COSINE: {"all": [0.9, 0.7, 0.5, 0.4]}, KEPT: kept}
    )
    assert "but" not in geometry.travel(leave).text.text
    alike = with_shares(
        {"all": [1, 1, 1, 0.9]}, {COSINE: {"all": [0.9] * 4}, KEPT: {"all": [0.5] * 4}}
    )
    assert "layer 2" not in geometry.travel(alike).text.text
    assert not geometry.travel(of_tokens()).text


OUTLIER = 223  # dimension of `with_outlier`


def with_outlier(results: StackResults) -> StackResults:
    """Results whose states have one outlier dimension in every layer."""
    mean = np.random.default_rng(0).normal(0, 1, 384)
    mean[OUTLIER] = 100
    means = StateMeans(mean, np.tile(mean, (results.stack.n_layers, 2, 1)), 1)
    sums = replace(results.study.corpus_sums, state_means={"self": means})
    return StackResults(replace(results.study, corpus_sums=sums), results.stack)


def both(metric: str, whole: list[float], without: list[float]) -> StackResults:
    """Results with an outlier dimension: averages with all dimensions, and without outliers."""
    return with_outlier(of_tokens(**{metric: {"all": whole, NO_OUTLIERS: without}}))


def test_states_leave_their_embedding_only_without_outliers_too() -> None:
    far, near = [0.8, 0.6, 0.5, 0.45], [0.98, 0.96, 0.95, 0.93]
    assert leaves_embedding(both(COSINE, far, far)).holds
    for results in (both(COSINE, far, near), both(COSINE, near, far)):
        fact = leaves_embedding(results)
        assert not fact.holds
        assert str(OUTLIER) in fact.text.text
    assert str(OUTLIER) not in leaves_embedding(both(COSINE, near, near)).text.text


def test_states_walk_back_only_without_outliers_too() -> None:
    back, falls = [0.7, 0.3, 0.2, 0.4], [0.7, 0.5, 0.4, 0.3]
    fact = walk_back(both(COSINE, back, back))
    assert fact.holds
    assert [(row.label, row.baseline) for row in fact.evidence] == [
        ("all", "layer 2"), (NO_OUTLIERS, "layer 2")
    ]  # fmt: skip
    for whole, without in ((back, falls), (falls, back)):
        fact = walk_back(both(COSINE, whole, without))
        assert not fact.holds
        assert str(OUTLIER) in fact.text.text
        values = [row.value.value for row in fact.evidence]
        assert values == pytest.approx([whole[-1], without[-1]], abs=0.01)
        baselines = [row.baseline_value for row in fact.evidence]
        assert baselines == pytest.approx([whole[2], without[2]], abs=0.01)
    assert str(OUTLIER) not in walk_back(both(COSINE, falls, falls)).text.text


def test_a_layer_replaces_most_neighbours_only_without_outliers_too() -> None:
    third, second = [0.8, 0.7, 0.3, 0.6], [0.8, 0.3, 0.7, 0.6]
    assert most_replaced(both(KEPT, third, third)).holds
    fact = most_replaced(both(KEPT, third, second))
    assert not fact.holds
    assert [row.layer for row in fact.evidence] == [2, 1]
    assert str(OUTLIER) in fact.text.text


@pytest.mark.parametrize(
    ("rank", "without", "holds"),
    [(0.1, 0.2, True), (0.1, 1.5, False), (1.5, 0.1, False), (1.5, 1.6, True)],
)
def test_tokens_stay_nearest_only_without_outliers_too(
    rank: float, without: float, holds: bool
) -> None:
    ranks = {RANK: {"all": [0.0, rank], NO_OUTLIERS: [0.0, without]}}
    results = with_outlier(with_shares({"all": [1, 0.9]}, ranks))
    shares = {"all": estimates([1, 0.9])}
    results._made[module._own_tokens] = OwnTokens(POSITIONAL, shares, 40)
    assert stays_nearest(results).holds is holds
    assert identity(results).holds is holds
    assert (str(OUTLIER) in stays_nearest(results).text.text) is not holds


@pytest.mark.parametrize(
    ("metric", "holds", "fails"),
    [
        (COSINE, [0.7, 0.5, 0.45, 0.4], [0.95, 0.9, 0.6, 0.2]),
        (RANK, [0.1, 0.1, 0.1, 0.9], [0.1, 0.3, 0.6, 0.9]),
        (KEPT, [0.8, 0.4, 0.3, 0.7], [0.8, 0.6, 0.4, 0.2]),
    ],
)
def test_observations_hold_only_without_outliers_too(
    metric: str, holds: list[float], fails: list[float]
) -> None:
    for whole, without in product((True, False), repeat=2):
        values = [holds if each else fails for each in (whole, without)]
        (found,) = observations(both(metric, *values), POST)
        assert found.holds is (whole and without)
        assert found.is_decided_by_outliers is (whole != without)
        labels = [row.label for row in found.tested("self")]
        assert len({*labels}) == 2


def test_without_outlier_dimensions_all_dimensions_decide() -> None:
    """The sample without outliers is smaller, and says nothing new if no dimension is left out."""
    back, falls = [0.7, 0.3, 0.2, 0.4], [0.7, 0.5, 0.4, 0.3]
    results = of_tokens(**{COSINE: {"all": back, NO_OUTLIERS: falls}})
    assert walk_back(results).holds
    assert all(each.without is None for each in observations(results, POST))


def test_states_walk_back_only_if_the_end_is_above_an_earlier_layer() -> None:
    back = walk_back(of_tokens(**{COSINE: {"all": [0.7, 0.3, 0.2, 0.4]}}))
    (tested,) = back.evidence
    assert back.holds
    assert (tested.layer, tested.baseline) == (3, "layer 2")
    assert tested.baseline_value == pytest.approx(0.2)
    assert tested.p < 0.05
    assert not walk_back(of_tokens(**{COSINE: {"all": [0.7, 0.5, 0.4, 0.3]}})).holds
    assert not walk_back(of_tokens(**{COSINE: {"all": [0.7, 0.5]}})).evidence


def shifted(function: list[float], content: list[float]) -> StackResults:
    return of_tokens(**{RANK: {"function": function, "content": content}})


def test_function_words_shift_only_in_a_layer_above_both_neighbours_and_content_words() -> None:
    fact = function_shift(shifted([0.2, 0.3, 2.0, 0.4, 0.5], [0.2, 0.3, 0.4, 0.3, 0.5]))
    assert fact.holds
    assert fact.evidence[0].layer == 2
    assert fact.evidence[0].baseline == "layer 3"
    both = shifted([0.2, 0.3, 2.0, 0.4, 0.5], [0.2, 0.3, 2.1, 0.3, 0.5])
    assert not function_shift(both).holds
    stays = shifted([0.2, 0.3, 2.0, 2.0, 2.0], [0.2, 0.3, 0.4, 0.3, 0.5])
    assert not function_shift(stays).holds


def test_contrasts_of_the_shift_are_those_of_plain_loops() -> None:
    function, content = [0.2, 0.3, 2.0, 0.4], [0.1, 0.5, 0.4, 0.3]
    wanted = []
    for layer in (1, 2):
        steps = [[v[layer] - v[layer + side] for side in (-1, 1)] for v in (function, content)]
        wanted += [*steps[0], *(one - other for one, other in zip(*steps, strict=True))]
    found = travel._steps(4) @ np.array([*function, *content])
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_a_contrast_is_tested_by_the_differences_of_each_sentence() -> None:
    """The p value of one contrast is that of a paired difference, by sums of each bucket."""
    results = of_tokens(**{COSINE: {"all": [0.7, 0.3, 0.2, 0.4]}})
    key = TokenKey(COSINE, POST, None, "all")
    columns = travel._columns(results, [key])
    sums = results.token_buckets(key)
    assert columns is not None
    assert sums is not None
    n, d = sums
    for layer in range(4):
        value = n[:, layer].sum() / d[:, layer].sum()
        assert columns.value[layer] == pytest.approx(value, rel=1e-12)
        residuals = [
            (a - value * b) / d[:, layer].sum()
            for a, b in zip(n[:, layer], d[:, layer], strict=True)
        ]
        np.testing.assert_allclose(columns.residuals[:, layer], residuals, rtol=1e-12)


def test_the_title_of_rollout_says_that_shares_fall_only_if_all_do() -> None:
    assert falls_throughout(of_tokens(rollout_self={"all": [0.5, 0.3]})).holds
    assert not falls_throughout(of_tokens(rollout_self={"all": [0.3, 0.5]})).holds
    assert not falls_throughout(of_tokens()).holds


def test_function_and_content_words_differ_by_intervals_alone() -> None:
    def mixing(function: list[float], content: list[float]) -> StackResults:
        classes = {"all": [0.3, 0.2, 0.25], "function": function, "content": content}
        return of_tokens(mixing_ratio=classes)

    results = mixing([0.5, 0.1, 0.2], [0.2, 0.3, 0.2])
    assert "20.0\u202f% (layer 1) to 30.0\u202f% (layer 0)" in mixing_range(results).text.text
    assert "more context than content words in one and" in mixing_by_class(results).text.text
    assert mixing_by_class(mixing([0.5, 0.5, 0.5], [0.2, 0.3, 0.2])).holds
    assert not mixing_by_class(mixing([0.2, 0.2, 0.2], [0.2, 0.2, 0.2])).holds
    assert not mixing_range(of_tokens()).text


def test_observations_hold_or_not_by_their_numbers() -> None:
    def holds(**numbers: list[float]) -> list[bool]:
        results = of_tokens(**{name: {"all": values} for name, values in numbers.items()})
        return [each.holds for each in observations(results, POST)]

    assert holds(cosine_to_input=[0.7, 0.5, 0.45, 0.4]) == [True]
    assert holds(cosine_to_input=[0.95, 0.9, 0.6, 0.2]) == [False]
    assert holds(vocabulary_rank=[0.1, 0.1, 0.1, 0.9]) == [True]
    assert holds(vocabulary_rank=[0.1, 0.3, 0.6, 0.9]) == [False]
    assert holds(neighbour_overlap=[0.8, 0.4, 0.3, 0.7]) == [True]
    assert holds(neighbour_overlap=[0.8, 0.6, 0.4, 0.2]) == [False]
    assert holds(cosine_to_input=[0.7, 0.5]) == []  # too few layers to compare halves


def test_the_fall_of_the_cosine_names_the_layer_of_most_of_it() -> None:
    """A fall that is all in layer 0 is not told as so much a layer."""
    (early,) = observations(of_tokens(cosine_to_input={"all": [0.3, 0.3, 0.29, 0.28]}), POST)
    assert early.compared.numbers == pytest.approx((0.7, 0.02), abs=1e-9)
    assert early.compared.layer == 0


def test_classes_of_words_are_drawn_only_with_annotation() -> None:
    assert word_classes(of_tokens(mixing_ratio={"all": [0.5], "content": [0.4]}))[0] == "content"
    without = word_classes(of_tokens(mixing_ratio={"all": [0.5]}))
    assert without == ("all", "start", "separator")


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0.0, "0\u202f%"), (0.001, "<\u202f1\u202f%"), (0.006, "1\u202f%"), (0.5, "50\u202f%"),
        (0.999, ">\u202f99\u202f%"), (1.0, "100\u202f%"), (math.nan, "–"),
    ],
)  # fmt: skip
def test_whole_shares_are_0_or_100_only_if_they_are(share: float, expected: str) -> None:
    assert whole_percent(share) == expected


def sentence(index: int, pieces: str, tags: str) -> StoredSentence:
    """A sentence between two special tokens, a word a token."""
    names, n = ("[CLS]", *pieces.split(), "[SEP]"), len(pieces.split())
    text = StoredText(
        text=pieces, pieces=names, spans=((0, 0),) * (n + 2), special=(True, *(False,) * n, True),
        words=(-1, *range(n), -1), tags=("", *tags.split(), ""), lost=0, generated=False,
        separators=(n + 1,),
    )  # fmt: skip
    return StoredSentence(index, "", {}, {Side.SOURCE: text}, listed=True)


def test_shares_of_own_tokens_are_counted_by_class() -> None:
    results = of_tokens(mixing_ratio={"all": [0.5, 0.5]})
    sentences = {n: sentence(n, "the cat sleeps .", "DET NOUN VERB PUNCT") for n in range(20)}
    ranks = {0: (0, 0, 0, 0, 0, 0), 1: (0, 7, 0, 1, 2, 3)}  # by layer, of each token
    rows = [
        {"sentence": n + 1, "position": position, "stack": "self", "layer": layer, "state": "out",
         "metric": RANK, "space": space, "value": rank if space == "positional" else 5}
        for n in sentences for layer in ranks for position, rank in enumerate(ranks[layer])
        for space in ("positional", "raw")
    ]  # fmt: skip
    data = SentenceData(sentences=sentences, tokens=pd.DataFrame(rows))
    results = StackResults(replace(results.study, sentence_data=data), results.stack)
    found = own_tokens(results)
    assert found is not None
    assert class_name(results, "start") == "[CLS]"
    assert class_name(results, "separator") == "[SEP]"
    assert (found.space, found.sentences) == (POSITIONAL, 20)
    shares = {kind: each.value.tolist() for kind, each in found.shares.items()}
    assert shares == {
        "all": [1, 0.25], "content": [1, 0.5], "function": [1, 0], "punctuation": [1, 0],
        "start": [1, 1], "separator": [1, 0],
    }  # fmt: skip
    assert found.shares["all"].events.tolist() == [80, 80]


def test_shares_of_own_tokens_agree_with_plain_loops(encoder_site: Site) -> None:
    study = encoder_site.study
    found = own_tokens(stack_results(study)["self"])
    assert found is not None
    tokens = study.tokens[(study.tokens["metric"] == RANK) & (study.tokens["state"] == "out")]
    for layer in range(study.manifest.stacks[0].n_layers):
        own = counted = 0
        for row in tokens[tokens["layer"] == layer].to_dict("records"):
            text = study.sentence_data.sentences[row["sentence"] - 1].texts[Side.SOURCE]
            if row["space"] == found.space and not text.special[row["position"]]:
                own, counted = own + int(row["value"] == 0), counted + 1
        assert found.shares["all"].value[layer] == pytest.approx(own / counted)


def test_without_sentence_pages_there_are_no_shares() -> None:
    assert own_tokens(of_tokens()) is None
