"""What layers do one after the other, by the families of their heads' functions."""

from dataclasses import replace

import numpy as np
import pytest

from chosen_results import Fake, fake_results
from headbook.report.answers.overview.layer_runs import MAX_WORDS, layer_runs, layers_sentence
from headbook.report.facts import functions
from headbook.report.facts.functions import FunctionFamily, HeadFunction
from headbook.report.results import StackResults
from headbook.results.sentence import NOTHING
from headbook.schema import HeadKey, HeadName, SinkView

POSITION, NEARBY, WORDS, SAME_KEYS, REPEATS, EVEN, SINK, MIXED = FunctionFamily
Families = tuple[FunctionFamily | None, ...]


def results_of(*layers: Families, causal: bool = False) -> StackResults:
    """A stack whose heads have functions of these families."""
    shape = len(layers), len(layers[0])
    results = fake_results(
        {HeadKey("sink_share", SinkView.RAW, ""): Fake(np.full(shape, 0.1))}, causal=causal
    )
    heads = {
        HeadName("self", layer, head): family
        for layer, row in enumerate(layers)
        for head, family in enumerate(row)
    }
    results._made[functions._functions] = {
        head: HeadFunction(head, str(family), str(family), NOTHING, family)
        for head, family in heads.items()
    }
    return results


@pytest.mark.parametrize(
    ("layers", "runs"),
    [
        (
            [(EVEN,) * 6 + (NEARBY,) * 6] * 5 + [(SAME_KEYS,) * 8 + (EVEN,) * 4],
            [((0, 1, 2, 3, 4), {NEARBY, EVEN}), ((5,), {SAME_KEYS})],
        ),
        ([(EVEN,) * 8] * 4, [((0, 1, 2, 3), {EVEN})]),
        (
            [(POSITION,) * 8, *[(EVEN,) * 8] * 4, (WORDS,) * 8],
            [((0,), {POSITION}), ((1, 2, 3, 4), {EVEN}), ((5,), {WORDS})],
        ),
        (
            [(POSITION, NEARBY, SAME_KEYS, REPEATS, EVEN, EVEN) * 3, (REPEATS,) * 18],
            [((0,), set()), ((1,), {REPEATS})],
        ),
        # one head of another family is no other run
        ([(EVEN,) * 8, (EVEN,) * 7 + (NEARBY,)], [((0, 1), {EVEN})]),
        # of mixed heads nothing is said
        ([(MIXED,) * 8, (SINK,) * 8], [((0,), set()), ((1,), {SINK})]),
    ],
)
def test_runs_of_layers_are_named_by_most_of_their_heads(
    layers: list[Families], runs: list[tuple[tuple[int, ...], set[FunctionFamily]]]
) -> None:
    results = results_of(*layers)
    assert [(run.layers, {*run.named}) for run in layer_runs(results)] == runs
    sentence = layers_sentence(results)
    assert 0 < len(sentence.split()) <= MAX_WORDS
    assert ("in many ways" in sentence) == any(not named for _, named in runs)


@pytest.mark.parametrize(
    "layers",
    [
        [(None,) * 4] * 3,  # not measured
        [(MIXED,) * 4] * 3,
        [(POSITION, NEARBY, SAME_KEYS, REPEATS, EVEN)] * 4,  # no two have most heads
        [(POSITION, POSITION, NEARBY, NEARBY, SAME_KEYS, REPEATS, EVEN, EVEN)] * 4,  # half
    ],
)
def test_no_sentence_without_families_of_most_heads(layers: list[Families]) -> None:
    assert layers_sentence(results_of(*layers)) == ""


@pytest.mark.parametrize("shape", [(1, 1), (30, 9), (32, 32), (80, 64)])
def test_sentences_are_short_in_models_of_any_shape(shape: tuple[int, int]) -> None:
    n_layers, n_heads = shape
    every = [family for family in FunctionFamily if family is not MIXED]
    layers = [
        tuple(every[(3 * layer // n_layers + head % 2) % 7] for head in range(n_heads))
        for layer in range(n_layers)
    ]
    for causal in (False, True):
        results = results_of(*layers, causal=causal)
        runs = layer_runs(results)
        assert [layer for run in runs for layer in run.layers] == [*range(n_layers)]
        assert 0 < len(layers_sentence(results).split()) <= MAX_WORDS


def test_models_of_several_stacks_have_a_sentence_for_each() -> None:
    """Only runs that have something to say are printed, since these sentences stand together."""
    layers = [(POSITION, NEARBY, SAME_KEYS, REPEATS, EVEN, EVEN) * 3, (REPEATS,) * 18]
    results = results_of(*layers)
    manifest = results.study.manifest
    stacks = (results.stack, replace(results.stack, name="cross"))
    study = replace(results.study, manifest=replace(manifest, stacks=stacks))
    found = StackResults(study, results.stack)
    found._made.update(results._made)
    sentence = layers_sentence(found)
    assert sentence.startswith("Self-attention, ")
    assert "layer 1" in sentence
    assert "layer 0" not in sentence
