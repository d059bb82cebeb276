"""Facts about random weights: metrics in which no layer differs from them."""

import pytest

from chosen_results import Fake, fake_results
from headbook.report.facts.random_weights import like_random_weights, no_layer_differs
from headbook.report.facts.tested.extremes import extreme_layers
from headbook.results.sentence import Link
from headbook.schema import Baseline, BaselineRun, HeadKey, SinkView

FIRST, SECOND = (BaselineRun(Baseline.UNTRAINED, seed) for seed in range(2))
DISTANCE = HeadKey("attention_distance", SinkView.RAW, "")
SHARE = HeadKey("sink_share", SinkView.RAW, "")
VARIABILITY = HeadKey("variability", SinkView.RAW, "")


def test_metrics_in_which_no_layer_differs_from_random_weights_are_named() -> None:
    model = {
        DISTANCE: Fake([[5.0], [5.2]]),
        SHARE: Fake([[0.5], [0.1]]),
        VARIABILITY: Fake([[0.2]] * 2),
    }
    same = model | {DISTANCE: Fake([[4.0], [5.1]]), SHARE: Fake([[0.1], [0.1]])}
    other = model | {DISTANCE: Fake([[6.0], [5.3]]), SHARE: Fake([[0.2], [0.1]])}
    results = fake_results(model, baseline_runs={FIRST: same, SECOND: other})
    fact = like_random_weights(results)
    assert fact.holds
    links = [part for part in fact.text.parts if isinstance(part, Link)]
    assert [link.href for link in links] == [
        "metrics/attention_distance.html", "metrics/variability.html"
    ]  # fmt: skip
    assert [no_layer_differs(results, key) for key in model] == [True, False, True]
    assert not like_random_weights(fake_results(model)).holds


@pytest.mark.parametrize(("spread", "alike"), [(5.0, True), (0.01, False)])
def test_with_one_seed_the_band_is_the_interval_of_random_weights(
    spread: float, *, alike: bool
) -> None:
    runs = {FIRST: {DISTANCE: Fake([[5.5]], spread=spread)}}
    results = fake_results({DISTANCE: Fake([[5.0]], spread=0.01)}, baseline_runs=runs)
    assert no_layer_differs(results, DISTANCE) == alike


@pytest.mark.parametrize("seeds", [[[5.0, 4.0, 6.0]], [[5.0, 4.0, 6.0], [6.0, 8.0, 1.0]]])
def test_the_layer_that_leads_stands_beside_the_mean_and_range_of_random_weights(
    seeds: list[list[float]],
) -> None:
    runs = {
        BaselineRun(Baseline.UNTRAINED, n): {DISTANCE: Fake([[layer] for layer in seed])}
        for n, seed in enumerate(seeds)
    }
    results = fake_results({DISTANCE: Fake([[3.0], [8.0], [1.0]])}, baseline_runs=runs)
    rows = {row.claim: row for row in extreme_layers(results)}
    random = rows["highest of all layers, untrained"]
    values = [seed[1] for seed in seeds]
    assert random.layer == rows["highest of all layers"].layer == 1
    assert random.value.value == pytest.approx(sum(values) / len(values))
    if len(seeds) > 1:
        assert random.value[1:3] == pytest.approx((min(values), max(values)))
