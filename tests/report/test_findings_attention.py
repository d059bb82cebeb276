"""Findings about where heads look: sentences that their numbers support, and none otherwise."""

from typing import Any

import pytest

from chosen_results import SENTENCES, Fake, fake_results, finding_texts, half_of, up_and_down
from headbook.report.findings import HELD_OUT, attention, language
from headbook.results.formats import interval_text, number
from headbook.schema import Baseline, BaselineRun, HeadKey, SinkView
from naive_ratios import Part, ratio

DISTANCE = HeadKey("attention_distance", SinkView.RAW, "")
SHARE = HeadKey("sink_share", SinkView.RAW, "")
CARRIED = HeadKey("sink_norm_share", SinkView.RAW, "")
VARIABILITY = HeadKey("variability", SinkView.RAW, "")
ONE_FAR = [[3, 3], [1, 1], [8, 8], [2, 2]]  # layers look near, but for one


def written(value: float, low: float, high: float, *, share: bool = False) -> str:
    return f"{number(value, share=share)} {interval_text(low, high, share=share)}"


def test_a_number_is_that_of_all_sentences_with_its_interval() -> None:
    """By a textbook's formula, from the very sentences."""
    fake = Fake([[0.2, 0.5], [0.3, 0.1]], spread=0.1, second=[[0.2, 0.4], [0.9, 0.1]])
    column = HeadKey("dependency_alignment", SinkView.RAW, "either")
    (text,) = finding_texts(language.dependencies, fake_results({column: fake}))
    parts = [
        Part((0.9 if half == HELD_OUT else 0.3) + 0.1 * sign, 1, 1)
        for sign, half in zip(up_and_down(SENTENCES), half_of(SENTENCES), strict=True)
    ]
    expected = ratio(parts, (0, 1))
    assert text.startswith("L1·H0 ")
    assert written(*expected[:3], share=True) in text


def test_a_head_that_one_half_alone_puts_above_uniform_attention_is_not_named() -> None:
    """It leads on all sentences, but the head that the other half chooses is not confirmed."""
    lucky = Fake([[0.3, 0.2]], uniform=0.4, second=[[0.3, 0.9]])
    column = HeadKey("dependency_alignment", SinkView.RAW, "either")
    assert not finding_texts(language.dependencies, fake_results({column: lucky}))


def test_a_head_is_not_above_uniform_attention_that_is_printed_alike() -> None:
    """Heads of an untrained model have 1.0002 %, with hardly any variance, and uniform 1 %."""
    column = HeadKey("dependency_alignment", SinkView.RAW, "either")
    for value, is_named in ((0.010002, False), (0.0121, True)):
        even = Fake([[value, 0.01]], uniform=0.01, spread=1e-7)
        assert bool(finding_texts(language.dependencies, fake_results({column: even}))) == is_named


def test_layers_that_look_far_are_set_against_those_that_look_near() -> None:
    of = fake_results({DISTANCE: Fake(ONE_FAR, uniform=5)})
    (text,) = finding_texts(attention.distance_trend, of)
    assert text.startswith("Layer 2 attends farthest: 8.00 tokens [")
    assert "on average; layer 1: 1.00 tokens [" in text
    assert text.endswith("; uniform attention: 5.00 tokens.")


def test_layers_that_a_test_does_not_tell_from_the_first_are_named_with_it() -> None:
    """Layer 2 is farther than layer 0 in one half of the sentences, nearer in the other."""
    other = [[8, 8], [1, 1], [3.1, 3.1], [2, 2]]
    of = fake_results({DISTANCE: Fake(ONE_FAR, second=other)})
    (text,) = finding_texts(attention.distance_trend, of)
    assert text.startswith("Layer 2 (alike: layer 0) attends farthest: 5.5")


def test_layers_that_no_test_tells_apart_are_not_set_against_each_other() -> None:
    turned = [[8, 8], [1, 1], [3, 3], [2, 2]]
    nobody = Fake([[8, 8], [1, 1]], second=[[1, 1], [8, 8]])
    for fake in (nobody, Fake([[3.0]])):
        assert not finding_texts(attention.distance_trend, fake_results({DISTANCE: fake}))
    of = fake_results({DISTANCE: Fake(ONE_FAR, second=turned, spread=50)})
    assert finding_texts(attention.distance_trend, of)  # the spread is that of all layers alike


@pytest.mark.parametrize(
    ("seeds", "says"),
    [
        (
            [[[5], [5], [5], [5]], [[6], [6], [6], [6]]],
            "no such difference: 5.50 [5.00, 6.00]",
        ),
        ([[[3], [1], [7], [2]], [[3], [2], [9], [2]]], "differs likewise: 8.00 [7.00, 9."),
        ([[[5], [5], [5], [5]]], "shows no such difference: 5.00 [5.00, 5.00] and 5.00"),
    ],
)
def test_the_trend_says_what_random_weights_show(seeds: list[Any], says: str) -> None:
    baseline_runs_ = {
        BaselineRun(Baseline.UNTRAINED, n): {DISTANCE: Fake(seed)} for n, seed in enumerate(seeds)
    }
    of = fake_results({DISTANCE: Fake([[3], [1], [8], [2]])}, baseline_runs=baseline_runs_)
    (text,) = finding_texts(attention.distance_trend, of)
    assert says in text
    assert text.endswith("2 seeds, range in brackets." if len(seeds) > 1 else "one seed.")


def test_without_an_untrained_twin_nothing_is_said_of_it() -> None:
    shuffled = {BaselineRun(Baseline.SHUFFLED, 0): {DISTANCE: Fake(ONE_FAR)}}
    nobody: dict[BaselineRun, Any] = {}
    for baseline_run in (nobody, shuffled):
        of = fake_results({DISTANCE: Fake(ONE_FAR)}, baseline_runs=baseline_run)
        assert "random weights" not in finding_texts(attention.distance_trend, of)[0]


@pytest.mark.parametrize(
    ("carried", "says"),
    [(0.06, " The sink contributes 6.0"), (0.95, " The sink contributes 95.0"), (0.8, "")],
)
def test_the_sink_is_said_to_carry_another_share_only_if_intervals_are_apart(
    carried: float, says: str
) -> None:
    numbers = {
        SHARE: Fake([[0.1], [0.2], [0.8], [0.3]], uniform=0.15),
        CARRIED: Fake([[carried]] * 4),
    }
    (text,) = finding_texts(attention.sink_layers, fake_results(numbers))
    assert text.startswith("Layer 2 attends most to special tokens: 80.0")
    assert "of its attention; layer 0: 10.0" in text
    assert "; uniform attention: 15.0\u202f%." in text
    assert (says in text) if says else ("contributes" not in text)


def test_a_sink_that_gets_no_more_than_uniform_attention_gives_is_none() -> None:
    shares = [[0.1], [0.2], [0.3]]
    assert not finding_texts(
        attention.sink_layers, fake_results({SHARE: Fake(shares, uniform=0.3)})
    )
    assert not finding_texts(
        attention.sink_layers, fake_results({SHARE: Fake(shares, uniform=0.2, spread=0.9)})
    )


def test_variability_names_both_ends_where_they_are_apart() -> None:
    values = [[0.3, 0.05], [0.7, 0.4]]
    (finding,) = attention.variability(fake_results({VARIABILITY: Fake(values, uniform=0.2)}))
    assert finding.text.startswith(
        "Attention variability (0: position only) is lowest in L0·H1, 5.0"
    )
    assert "highest in L1·H0, 70.0" in finding.text
    assert "uniform attention: 20.0" in finding.text
    assert finding.behind == "100 sentences of a sample of 40"
    assert not finding_texts(
        attention.variability, fake_results({VARIABILITY: Fake(values, spread=9)})
    )
