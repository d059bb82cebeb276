"""What pages of metrics say: a headline where an end is notable, else where all values lie."""

from typing import Any

import numpy as np
import pytest

from chosen_results import Fake, fake_results
from headbook.metrics import all_metrics, ids
from headbook.metrics.base import HeadMetric, LayerwiseMetric, Notable
from headbook.report import relation_tests
from headbook.report.facts.metrics import head_values, label_phrase, token_values
from headbook.report.head_numbers import HeadMetricNumbers, drawn_numbers
from headbook.report.results import StackResults
from headbook.results.number import Number, Printed
from headbook.results.sentence import Sentence
from headbook.schema import EmbeddingSpace, HeadKey, HeadName, ResidualPoint, SinkView, TokenKey
from sites import Site

RAW, NOSINK = SinkView.RAW, SinkView.NOSINK
METRICS = all_metrics()
HEAD_METRICS = [metric for metric in METRICS.values() if isinstance(metric, HeadMetric)]


def head_metric(name: str) -> HeadMetric:
    metric = METRICS[name]
    assert isinstance(metric, HeadMetric)
    return metric


def numbers_of(text: Sentence) -> list[Number]:
    return [part.number for part in text.parts if isinstance(part, Printed)]


def of_metric(
    name: str, values: Any, *, view: SinkView = RAW, label: str = "", **options: Any
) -> HeadMetricNumbers:
    """Return the numbers of a metric, view and label alone."""
    results = fake_results({HeadKey(name, view, label): Fake(values, **options)})
    return HeadMetricNumbers(results, head_metric(name), view, label)


@pytest.mark.parametrize("metric", HEAD_METRICS, ids=lambda metric: metric.id)
def test_a_head_is_named_only_if_the_definition_says_which_end_is_notable(
    metric: HeadMetric,
) -> None:
    label, view = metric.headline, metric.views[0]
    fact = head_values(of_metric(metric.id, [[0.1, 0.7], [0.4, 0.5]], view=view, label=label))
    (named,) = fact.heads or (None,)
    low = metric.is_low(label)
    expected = {Notable.NONE: None, Notable.HIGH: (0, 1), Notable.LOW: (0, 0)}
    place = expected[Notable.LOW if low else metric.notable]
    assert named == (place and HeadName("self", *place))
    assert fact.holds == (named is not None)
    for number in numbers_of(fact.text):
        assert dict(number.row.key)["metric"] == metric.id


def test_ranks_are_led_by_the_lowest() -> None:
    """The best rank is 1; the last of 19,530 words is no headline."""
    values = [[1.5, 2.0, 19_530.0], [10_680.0, 500.0, 12_000.0]]
    fact = head_values(of_metric(ids.TOWARDS_RANK, values, spread=0.01))
    assert fact.heads == (HeadName("self", 0, 0),)
    assert numbers_of(fact.text)[0].value == pytest.approx(1.5)
    median = head_values(of_metric("attended_rank", [[49_152.0, 3.0], [800.0, 20.0]]))
    assert median.heads == (HeadName("self", 0, 1),)
    counts = head_values(of_metric("attended_rank", [[12.0, 3.0]], label="in top 10"))
    assert counts.heads == (HeadName("self", 0, 0),)


def test_every_label_has_words() -> None:
    """Also the label of a single number, beside others."""
    for metric in HEAD_METRICS:
        assert all(label_phrase(label, metric) for label in metric.labels)


def test_values_lie_between_those_of_the_table_with_and_without_the_sink() -> None:
    random = np.random.default_rng(0)
    raw, masked = random.uniform(2, 12, (3, 4)), random.uniform(2, 9, (3, 4))
    name = ids.ATTENTION_DISTANCE
    results = fake_results(
        {HeadKey(name, RAW, ""): Fake(raw), HeadKey(name, NOSINK, ""): Fake(masked)}
    )
    fact = head_values(HeadMetricNumbers(results, head_metric(name), RAW))
    assert not fact.heads
    assert not fact.holds
    values = [number.value for number in numbers_of(fact.text)]
    naive = [end for array in (raw, masked) for end in (min(array.flat), max(array.flat))]
    np.testing.assert_allclose(values, naive, rtol=1e-12)


def test_a_pooled_number_of_a_layer_is_not_an_average_over_its_heads() -> None:
    """The answer has numbers of heads; the table by layer has rows of the pooled numbers."""
    numbers = of_metric(ids.SINK_NORM_SHARE, [[0.02, 0.2], [0.05, 0.3]])
    assert {number.row.table for number in numbers_of(head_values(numbers).text)} == {"heads"}
    layer = numbers.layer(1)
    assert layer.row.table == "layers"
    assert layer.value == float(numbers.results.layers(*numbers.key).value[1])


def test_values_that_no_test_tells_apart_have_no_leader() -> None:
    rule = head_metric(ids.SURFACE_RULE).headline
    impossible = of_metric(ids.SURFACE_RULE, np.zeros((2, 2)), view=NOSINK, label=rule, spread=0.0)
    fact = head_values(impossible)
    assert not fact.heads
    assert [number.value for number in numbers_of(fact.text)] == [0.0]
    halves = [[0.2, 0.3], [0.25, 0.1]], [[0.3, 0.21], [0.25, 0.4]]
    alike = of_metric(ids.INDUCTION_SCORE, halves[0], second=halves[1])
    assert not head_values(alike).heads
    clear = of_metric(ids.INDUCTION_SCORE, [[0.2, 0.9], [0.25, 0.1]])
    assert head_values(clear).heads == (HeadName("self", 0, 1),)


@pytest.mark.parametrize(("even", "is_less"), [(0.05, False), (0.95, True)])
def test_a_headline_says_if_its_number_is_below_its_baseline(even: float, is_less: bool) -> None:
    numbers = {HeadKey(ids.POS_RECEIVED, RAW, label): Fake([[0.8, 0.1]], even)
               for label in ("NOUN", "VERB")}  # fmt: skip
    results = fake_results(numbers)
    fact = head_values(HeadMetricNumbers(results, head_metric(ids.POS_RECEIVED), RAW, "NOUN"))
    value, uniform = numbers_of(fact.text)
    assert value.value == pytest.approx(0.8)
    assert uniform.value == pytest.approx(even)
    assert uniform.row.table == "controls"
    assert ("less than uniform attention" in fact.text.text) == is_less


def test_a_relation_is_held_against_the_best_surface_rule(encoder_site: Site) -> None:
    """Without a test of the relation against uniform attention."""
    results = encoder_site.results["self"]
    metric = head_metric(ids.RELATION_ACCURACY)
    numbers, tests = drawn_numbers(results, metric), relation_tests.tests_of_stack(results)
    assert numbers is not None
    assert tests is not None
    fact = head_values(numbers)
    if numbers.label in tests.labels:
        n = tests.labels.index(numbers.label)
        values = [number.value for number in numbers_of(fact.text)]
        assert values == [float(s.value[n]) for s in (tests.scores.accuracy, tests.scores.at_rule)]
        assert [part.head for part in fact.heads] == [int(tests.head[n][1])]
    alone = of_metric(metric.id, [[0.9, 0.1]], view=NOSINK, label="obj:to_head", uniform=0.2)
    assert [n.value for n in numbers_of(head_values(alone).text)] == pytest.approx([0.9, 0.2])


def of_tokens(name: str, space: EmbeddingSpace | None, values: list[float]) -> StackResults:
    layers = Fake(np.zeros((len(values), 1)))
    return fake_results(
        {HeadKey(ids.ATTENTION_DISTANCE, RAW, ""): layers},
        tokens={TokenKey(name, ResidualPoint.POST, space, "all"): (values, 0.3)},
    )


@pytest.mark.parametrize(
    ("name", "space", "values", "layers"),
    [
        ("vocabulary_rank", EmbeddingSpace.POSITIONAL, [0.0, 0.02, 0.1, 0.27], (0, 3)),
        ("logit_lens_kl", None, [12.8, 14.0, 18.8, 6.0, 0.0], (0, 2, 4)),
        ("cosine_to_input", None, [0.5, 0.2, 0.9, 0.6], (0, 1, 2, 3)),
        ("cosine_to_input", None, [0.5, 0.5], (0, 1)),
        ("cosine_to_input", None, [0.5], (0,)),
    ],
)  # fmt: skip
def test_tokens_have_their_first_and_last_number_and_those_beyond_both(
    name: str, space: EmbeddingSpace | None, values: list[float], layers: tuple[int, ...]
) -> None:
    """Numbers alone: wide intervals do not make two of them about the same."""
    metric = METRICS[name]
    assert isinstance(metric, LayerwiseMetric)
    fact = token_values(of_tokens(name, space, values), metric)
    numbers = numbers_of(fact.text)
    assert [number.place("layer") for number in numbers] == [*layers]
    assert [n.value for n in numbers] == pytest.approx([values[layer] for layer in layers])
    assert {number.row.table for number in numbers} == {"words"}


def test_every_fact_on_a_site_is_that_of_its_table(any_site: Site) -> None:
    """No head is named beside a larger number of a head that a test could compare."""
    named = 0
    for results in any_site.results.values():
        for metric in results.metrics:
            numbers = drawn_numbers(results, metric)
            fact = head_values(numbers) if numbers is not None else None
            if fact is None or not fact.heads or metric.id == ids.RELATION_ACCURACY:
                continue
            assert numbers is not None
            trusted = numbers.heads.trusted
            known = numbers.heads.value if np.isnan(trusted).all() else trusted
            best = np.nanmin(known) if numbers.notable is Notable.LOW else np.nanmax(known)
            assert numbers.heads.value[fact.heads[0][1:]] == best
            named += 1
    assert named or any_site.kind != "encoder"
