"""Facts on depth: by numbers, rows and what they hold, not by their English."""

from dataclasses import replace

import numpy as np
import pytest

from chosen_results import Fake, fake_results
from headbook.report.facts import depth
from headbook.report.facts.depth import ALIGNMENT, DISTANCE, ENTROPY, MASKED_DISTANCE
from headbook.report.leaders import layer_leaders
from headbook.report.results import StackResults
from headbook.report.tables.few_table import few_table
from headbook.results.number import Number, Printed
from headbook.results.sentence import Sentence
from headbook.schema import HeadKey, SinkView

RISING = [[3.0, 3.2], [3.1, 3.0], [4.0, 4.1], [4.2, 4.0], [5.0, 5.1], [5.2, 5.5]]


def numbers(sentence: Sentence) -> list[Number]:
    return [part.number for part in sentence.parts if isinstance(part, Printed)]


def with_planted(results: StackResults, key: HeadKey, values: list[float]) -> StackResults:
    """Add a sentence of 60 tokens, with a number for each layer and so many times its tokens."""
    (buckets,) = results.study.corpus_sums.buckets[results.stack.name]
    column, shape = buckets.columns.index(key), buckets.n.shape[1:]
    n, d = np.zeros((1, *shape)), np.zeros((1, *shape))
    d[..., column] = 60.0
    n[..., column] = 60.0 * np.array(values)[:, None]
    planted = replace(
        buckets, size=buckets.size + 1, keys=np.append(buckets.keys, buckets.size),
        n=np.concatenate([buckets.n, n]), d=np.concatenate([buckets.d, d]),
    )  # fmt: skip
    manifest = results.study.manifest
    counts = {**manifest.counts, "sentences": len(planted.keys)}
    study = replace(
        results.study,
        corpus_sums=replace(results.study.corpus_sums, buckets={results.stack.name: (planted,)}),
        manifest=replace(manifest, counts=counts),
    )
    return StackResults(study, results.stack)


def test_a_number_that_rises_has_a_change_with_its_row() -> None:
    fact = depth.by_depth(fake_results({DISTANCE: Fake(RISING)}), DISTANCE)
    assert fact.holds
    (change,) = fact.evidence
    layers = np.mean(RISING, 1)
    expected = layers[-2:].mean() - layers[:2].mean()
    assert change.difference.value == pytest.approx(expected)
    assert (change.value.value, change.baseline_value) == pytest.approx(
        (layers[-2:].mean(), layers[:2].mean())
    )
    assert change.p < 0.05
    (number,) = numbers(fact.text)
    assert number.value == pytest.approx(expected)
    assert dict(number.row.key)["claim"] == depth.CHANGE


def test_a_number_whose_halves_disagree_does_not_change() -> None:
    turned = Fake(RISING, second=RISING[::-1])
    fact = depth.by_depth(fake_results({DISTANCE: turned}), DISTANCE)
    assert not fact.holds
    assert len(numbers(fact.text)) == 1  # what the interval leaves possible


@pytest.mark.parametrize("heads", [[[3.0, 4.0]], [[np.nan, np.nan], [np.nan, np.nan]]])
def test_one_layer_and_numbers_that_are_missing_have_no_change(heads: list[list[float]]) -> None:
    fact = depth.by_depth(fake_results({DISTANCE: Fake(heads)}), DISTANCE)
    assert (fact.holds, bool(fact.text), fact.evidence) == (False, False, ())


@pytest.mark.parametrize("far", [40.0, 200.0])
def test_a_planted_sentence_changes_no_headline(far: float) -> None:
    """One sentence of 60 tokens attends far in the first layer alone, against all others."""
    plain = fake_results({DISTANCE: Fake(RISING, spread=0.3)})
    planted = with_planted(plain, DISTANCE, [far, 3.0, 4.0, 4.0, 5.0, 5.0])
    without, with_it = (depth.by_depth(results, DISTANCE) for results in (plain, planted))
    assert without.holds
    assert with_it.holds
    change, decisive, few = with_it.evidence
    assert change.difference.value < 0  # of all sentences
    assert decisive.difference.value == pytest.approx(without.evidence[0].difference.value)
    assert few.value.sentences == 1
    n = 2 * np.array(RISING).mean(1).sum() * 100
    held = 2 * 60 * (far + 3 + 4 + 4 + 5 + 5)
    assert few.value.value == pytest.approx(held / (n + held))
    leaders = layer_leaders(planted, DISTANCE)
    assert leaders is not None
    assert not leaders.leads_alone


def test_a_number_that_one_sentence_decides_says_so() -> None:
    plain = fake_results({DISTANCE: Fake(RISING, spread=0.3)})
    planted = with_planted(plain, DISTANCE, [400.0] * 6)
    number, head = planted.number(DISTANCE, 0), planted.number(DISTANCE, 0, 1)
    assert number.few is not None
    assert head.few is not None
    assert number.few.sentences == head.few.sentences == 1
    assert number.few.without == pytest.approx(np.mean(RISING[0]))
    assert head.few.without == pytest.approx(RISING[0][1])
    assert number.few.share == pytest.approx(24000 / (24000 + 310))
    assert plain.number(DISTANCE, 0).few is None


def test_a_number_that_one_sentence_decides_has_a_row_with_its_value_without_it() -> None:
    plain = fake_results({DISTANCE: Fake(RISING, spread=0.3)})
    assert few_table(plain.study).empty
    planted = with_planted(plain, DISTANCE, [400.0, 3.0, 4.0, 4.0, 5.0, 5.0])
    rows = few_table(planted.study)
    heads, layers = rows[rows["head"].notna()], rows[rows["head"].isna()]
    own = np.array(RISING) * 100
    share = 60 * np.array([[400.0], [3], [4], [4], [5], [5]])
    held = share / (own + share)
    places = heads[["layer", "head"]].to_numpy(np.int64)
    np.testing.assert_array_equal(places, np.argwhere(held > 1 / 3))
    assert {*heads["few"]} == {1}
    np.testing.assert_allclose(heads["few_share"], held[tuple(places.T)])
    np.testing.assert_allclose(heads["without"], np.array(RISING)[tuple(places.T)])
    assert [*layers["layer"]] == [*range(6)]
    np.testing.assert_allclose(layers["without"], np.mean(RISING, 1))


def test_the_layers_of_the_largest_and_the_smallest_number_are_named() -> None:
    fact = depth.leading_layer(fake_results({DISTANCE: Fake(RISING, uniform=6)}), DISTANCE)
    assert fact.holds
    most, least = fact.evidence
    assert (most.layer, least.layer) == (5, 1)
    assert most.p < 0.05
    found = [number.value for number in numbers(fact.text)]
    assert found == pytest.approx([5.35, 6.0, 3.05, 6.0])


def test_parts_of_speech_are_tested_as_a_family() -> None:
    keys = {tag: HeadKey("pos_received", SinkView.RENORM, tag) for tag in ("NOUN", "VERB", "DET")}
    values = {"NOUN": [0.2, 0.3, 0.4], "VERB": [0.3, 0.2, 0.1], "DET": [0.2, 0.3, 0.2]}
    fakes = {keys[tag]: Fake(np.array(x)[:, None]) for tag, x in values.items()}
    ratios = {HeadKey("pos_received_ratio", SinkView.RENORM, tag): fakes[keys[tag]] for tag in keys}
    results = fake_results({**fakes, **ratios})
    counts = {**results.study.manifest.counts, **{f"source.tag.{tag}": 40 for tag in keys}}
    manifest = replace(results.study.manifest, counts=counts)
    fact = depth.received_by_depth(StackResults(replace(results.study, manifest=manifest),
                                                results.stack))  # fmt: skip
    assert fact.holds
    signs = {x.label: np.sign(round(x.difference.value, 9)) for x in fact.evidence}
    assert signs == {"NOUN": 1, "VERB": -1, "DET": 0}
    assert len(numbers(fact.text)) == 2


def test_correlations_are_over_the_heads_that_have_both_numbers() -> None:
    entropies = [[1.0, 1.2], [1.1, 1.0], [2.0, 2.1], [2.2, np.nan], [3.0, 3.1], [3.2, 3.5]]
    alignments = [[0.5, 0.4], [0.5, 0.5], [0.4, 0.3], [0.3, 0.3], [0.2, 0.2], [0.2, 0.1]]
    results = fake_results(
        {MASKED_DISTANCE: Fake(RISING), ENTROPY: Fake(entropies), ALIGNMENT: Fake(alignments)}
    )
    first, second = depth.head_correlations(results)
    known = ~np.isnan(np.array(entropies))
    for found, other in ((first, np.array(entropies)), (second, np.array(alignments))):
        both = known if found.other == ENTROPY else np.ones_like(known)
        expected = np.corrcoef(np.array(RISING)[both], other[both])[0, 1]
        assert found.number.value == pytest.approx(expected, abs=1e-3)
        assert found.tested.value.low <= found.number.value <= found.tested.value.high
        assert found.tested.value.events == both.sum()
    assert depth.correlations(results).evidence == (first.tested, second.tested)
