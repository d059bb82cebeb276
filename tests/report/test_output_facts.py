"""Facts on head outputs: similarity by layer, in sentences and of repeated tokens, and anchors."""

import math
from dataclasses import replace

import numpy as np
import pytest

from block_parts import every
from chosen_results import Fake, fake_results
from headbook.report.facts.outputs import (
    ANCHORS,
    MASKED_OUTPUTS,
    MASKED_ROWS,
    OUTPUTS,
    REPETITION,
    ROWS,
    SENTENCE,
    AnchorCounts,
    alike,
    anchor_counts,
    anchors,
    by_distance,
    different_outputs,
    layers_above,
    repetition,
    sentence_range,
    separator_key,
    separators,
    separators_add,
    sink_masked_note,
)
from headbook.report.results import StackResults
from headbook.results.fact import Fact
from headbook.results.number import Number
from headbook.results.sentence import Sentence
from headbook.schema import Baseline, BaselineRun, SinkView
from headbook.study.sums.token_sums import Anchors


def numbers(found: Fact | Sentence) -> list[Number]:
    """Return the numbers in the text of a fact, which is short."""
    text = found.text if isinstance(found, Fact) else found
    assert isinstance(text, Sentence)
    assert len(text.text.split()) <= 40, text.text
    return every(Number, text)


@pytest.mark.parametrize(
    ("first", "last", "start"),
    [(0.4, 0.6, "More so"), (0.6, 0.4, "Less so"), (0.5, 0.5001, "No more")],
)
def test_outputs_grow_alike_only_if_intervals_are_apart(
    first: float, last: float, start: str
) -> None:
    fact = alike(fake_results({OUTPUTS: Fake([[first] * 2, [0.9] * 2, [last] * 2])}))
    assert fact.holds == (start == "More so")
    assert fact.text.text.startswith(start)
    (number,) = numbers(fact)
    assert number.value == pytest.approx(last)
    assert number.place("layer") == 2
    one = alike(fake_results({OUTPUTS: Fake([[math.nan] * 2, [0.9] * 2])}))
    assert not one.holds
    assert numbers(one)[0].place("layer") == 1


def test_the_sink_is_masked_in_a_number_of_its_own() -> None:
    masked = OUTPUTS._replace(view=SinkView.NOSINK)
    found = fake_results({OUTPUTS: Fake([[0.9, 0.9]]), masked: Fake([[0.3, 0.5]])})
    (number,) = numbers(sink_masked_note(found))
    assert number.value == pytest.approx(0.4)
    assert not sink_masked_note(fake_results({OUTPUTS: Fake([[0.9, 0.9]])}))


def test_heads_with_other_outputs_than_rows_have_intervals_apart() -> None:
    rows, outputs = [[0.9, 0.8, 0.5, 0.4]], [[0.3, 0.1, 0.499, 0.6]]
    found = fake_results({MASKED_ROWS: Fake(rows), MASKED_OUTPUTS: Fake(outputs)})
    assert different_outputs(found) == [(0, 1), (0, 0)]
    assert different_outputs(fake_results({MASKED_ROWS: Fake(rows)})) == []
    # A shared sink makes rows alike; without it, they are not.
    apart = {ROWS: Fake(rows), MASKED_ROWS: Fake([[0.0] * 4]), MASKED_OUTPUTS: Fake(outputs)}
    assert different_outputs(fake_results(apart)) == []


@pytest.mark.parametrize(
    ("excess", "words", "layer"),
    [
        ([0.0, 0.02, 0.05, 0.03, 0.0], "in layers 1–3, most in layer 2 ", 2),
        ([0.0, 0.0, 0.05, 0.0, 0.03], "in layers 2 and 4, most in layer 2 ", 2),
        ([0.02, 0.03, 0.05, 0.03, 0.02], "in every layer, most in layer 2 ", 2),
        ([0.0, 0.0, 0.05, 0.0, 0.0], "in layer 2 (by a cosine of ", 2),
    ],
)
def test_outputs_keep_to_a_sentence_where_intervals_are_above_a_hundredth(
    excess: list[float], words: str, layer: int
) -> None:
    found = fake_results({SENTENCE: Fake([[value] * 2 for value in excess], spread=0.001)})
    fact = sentence_range(found)
    assert fact.holds
    assert f"keep to a sentence {words}" in fact.text.text
    assert ("not in the last" in fact.text.text) == (excess[-1] < 0.01)
    (number,) = numbers(fact)
    assert number.value == pytest.approx(0.05)
    assert number.place("layer") == layer


@pytest.mark.parametrize(
    ("without", "words"),
    [(0.04, "; inner separators are not the reason."), (0.014, "; without inner separators 0.01")],
)
def test_the_control_without_separators_is_part_of_the_answer(without: float, words: str) -> None:
    excess, control = [[0.0], [0.05]], [[0.0], [without]]
    runs = {BaselineRun(Baseline.NO_SEPARATORS, 0): {SENTENCE: Fake(control, spread=0.001)}}
    found = fake_results({SENTENCE: Fake(excess, spread=0.001)}, baseline_runs=runs)
    assert words in sentence_range(found).text.text


def test_each_layer_is_checked_alone() -> None:
    """The interval of layer 1 reaches below a hundredth; layer 2 is alike and leads."""
    wide = [[0.03, 0.03], [0.05, 0.05], [0.06, 0.06]]
    other = [[0.03, 0.03], [-0.02, -0.02], [0.05, 0.05]]
    found = fake_results({SENTENCE: Fake(wide, second=other, spread=0.001)})
    low = found.layers(*SENTENCE).low
    assert layers_above(found, SENTENCE) == [n for n in range(3) if low[n] > 0.01]
    assert 0 in layers_above(found, SENTENCE)


def test_without_a_layer_the_largest_difference_is_given_with_what_is_possible() -> None:
    found = fake_results({SENTENCE: Fake([[0.0], [0.008]]), REPETITION: Fake([[0.0], [-0.2]])})
    for fact, value, layer in ((sentence_range(found), 0.008, 1), (repetition(found), 0.0, 0)):
        assert not fact.holds
        assert "not tested" in fact.text.text
        (number,) = numbers(fact)
        assert number.value == pytest.approx(value)
        assert number.place("layer") == layer
        assert number.low < value < number.high
    assert not sentence_range(fake_results({OUTPUTS: Fake([[0.3]])})).text


def with_anchors(tokens: list[list[int]], low: list[list[float]]) -> StackResults:
    """Return results with an anchor of each head, and the same one token with permuted types."""
    found = fake_results({OUTPUTS: Fake([[0.5] * len(tokens[0])] * len(tokens))})
    token = np.stack([np.array(tokens), np.zeros_like(tokens)])[None]
    ends = np.stack([np.array(low), np.full(np.shape(low), 1.5)])[None]
    of_stack = Anchors((ANCHORS,), {"0": "the", "1": "a", "2": "of"}, token, ends + 1, ends)
    sums = replace(found.study.corpus_sums, anchors={"self": of_stack})
    return StackResults(replace(found.study, corpus_sums=sums), found.stack)


def test_anchors_count_whose_lift_is_above_that_of_all_pairs() -> None:
    found = with_anchors([[1, 2, 1], [1, 2, 0]], [[2.0, 3.0, 4.0], [2.0, 0.5, math.nan]])
    assert anchor_counts(found) == [AnchorCounts(0, 2, 1, 3, 3), AnchorCounts(1, 1, 1, 1, 3)]
    text = anchors(found).text.text
    assert "around 1 (layer 1) to 2 (layer 0) different tokens" in text
    assert text.endswith("around 1 to 1.")
    nobody = with_anchors([[1, 2]], [[0.5, 0.9]])
    assert [counts.n_above for counts in anchor_counts(nobody)] == [0]
    assert not anchors(nobody).text


def test_a_sink_gets_twice_uniform_attention_and_adds_less_than_half() -> None:
    """The first special token alone: inner separators add what they get, the last gets little."""
    shares = {"start": (0.3, 0.02), "inner_separator": (0.06, 0.06), "last_separator": (0.01, 0.0)}
    numbers = {}
    for kind, (share, norm) in shares.items():
        numbers[separator_key(kind)] = Fake([[0.0], [share]], uniform=0.02, spread=0.001)
        numbers[separator_key(kind, by_norm=True)] = Fake([[0.0], [norm]], spread=0.001)
    fact = separators(fake_results(numbers))
    assert fact.holds
    assert fact.text.text.endswith("The first special token is a sink there.")
    assert [n.value for n in every(Number, fact.text)] == pytest.approx(
        [value for pair in shares.values() for value in pair], abs=1e-9
    )
    assert {n.place("layer") for n in every(Number, fact.text)} == {1}
    assert not separators(fake_results({OUTPUTS: Fake([[0.3]])})).text


@pytest.mark.parametrize(("inner", "adds"), [(0.06, True), (0.01, False)])
def test_separators_of_passages_that_add_half_of_what_they_get_are_no_sink(
    inner: float, adds: bool
) -> None:
    shares = {"inner_separator": (0.06, inner), "last_separator": (0.02, 0.001)}
    numbers = {
        separator_key(kind, by_norm=by_norm): Fake([[pair[by_norm]]] * 2)
        for kind, pair in shares.items() for by_norm in (False, True)
    }  # fmt: skip
    found = fake_results(numbers)
    manifest = found.study.manifest
    packed = replace(manifest, options={**manifest.options, "pack": 128})
    passages = StackResults(replace(found.study, manifest=packed), found.stack)
    assert separators_add(passages, (0, 1)) == adds
    assert not separators_add(found, (0, 1))


def test_the_fall_with_distance_is_that_of_the_layers_that_fall_most_and_least() -> None:
    at = {1: [[0.9], [0.8], [0.7]], 5: [[0.2], [0.2], [0.2]], 9: [[0.3], [0.6], [0.4]]}
    numbers = {OUTPUTS._replace(label=f"within:{d}"): Fake(values) for d, values in at.items()}
    found = fake_results(numbers | {OUTPUTS._replace(label="across:20"): Fake(at[1])})
    cosines = [(n.value, n.place("layer")) for n in every(Number, by_distance(found).text)]
    assert [layer for _, layer in cosines] == [0, 0, 1, 1]
    assert [value for value, _ in cosines] == pytest.approx([0.9, 0.3, 0.8, 0.6])
    assert "tokens 1 and 9 apart" in by_distance(found).text.text
    assert not by_distance(fake_results({OUTPUTS: Fake([[0.3]])})).text
