"""What layers do one after the other, by the families of their heads."""

from dataclasses import replace

import numpy as np
import pytest

from chosen_results import Fake, fake_results
from headbook.report import families as families_module
from headbook.report.answers.overview.layer_runs import MAX_WORDS, layer_runs, layers_sentence
from headbook.report.families import Family
from headbook.report.results import StackResults
from headbook.schema import HeadKey, SinkView

POSITION, NEARBY, BROADCAST, REPEATS, SPREAD, SINK = Family
START = "Besides special tokens, "


def results_of(*layers: tuple[Family | None, ...], causal: bool = False) -> StackResults:
    """A stack whose heads have these families."""
    shape = len(layers), len(layers[0])
    results = fake_results(
        {HeadKey("sink_share", SinkView.RAW, ""): Fake(np.full(shape, 0.1))}, causal=causal
    )
    results._made[families_module._families] = {
        (layer, head): family
        for layer, row in enumerate(layers)
        for head, family in enumerate(row)
        if family is not None
    }
    return results


@pytest.mark.parametrize(
    ("layers", "sentence"),
    [
        (
            [(SPREAD,) * 6 + (NEARBY,) * 6] * 5 + [(BROADCAST,) * 8 + (SPREAD,) * 4],
            "in layers 0–4 most heads attend to nearby words or to most words; in layer 5 most to "
            "the same few words.",
        ),
        ([(SPREAD,) * 8] * 4, "in all layers most heads attend to most words."),
        (
            [(POSITION,) * 8, *[(SPREAD,) * 8] * 4, (BROADCAST,) * 8],
            "in layer 0 most heads attend at one fixed distance; in layers 1–4 most to most words; "
            "in layer 5 most to the same few words.",
        ),
        (
            [(POSITION, NEARBY, BROADCAST, REPEATS, SPREAD, SPREAD) * 3, (REPEATS,) * 18],
            "in layer 0 heads attend in many ways; in layer 1 most to equal tokens.",
        ),
        # one head of another family is no other run
        ([(SPREAD,) * 8, (SPREAD,) * 7 + (NEARBY,)], "in all layers most heads attend to most "
                                                     "words."),
    ],
)  # fmt: skip
def test_runs_of_layers_are_named_by_most_of_their_heads(
    layers: list[tuple[Family, ...]], sentence: str
) -> None:
    found = layers_sentence(results_of(*layers))
    assert found.partition(", ")[2] == sentence
    assert len(found.split()) <= MAX_WORDS


@pytest.mark.parametrize(
    "layers",
    [
        [(None,) * 4] * 3,  # not measured
        [(POSITION, NEARBY, BROADCAST, REPEATS, SPREAD)] * 4,  # no two have most heads
        [(POSITION, POSITION, NEARBY, NEARBY, BROADCAST, REPEATS, SPREAD, SPREAD)] * 4,  # half
    ],
)
def test_no_sentence_without_families_of_most_heads(layers: list[tuple[Family, ...]]) -> None:
    assert layers_sentence(results_of(*layers)) == ""


@pytest.mark.parametrize("shape", [(1, 1), (30, 9), (32, 32), (80, 64)])
def test_sentences_are_short_in_models_of_any_shape(shape: tuple[int, int]) -> None:
    n_layers, n_heads = shape
    every = [*Family]
    layers = [
        tuple(every[(3 * layer // n_layers + head % 2) % 6] for head in range(n_heads))
        for layer in range(n_layers)
    ]
    for causal in (False, True):
        results = results_of(*layers, causal=causal)
        runs = layer_runs(results)
        assert [layer for run in runs for layer in run.layers] == [*range(n_layers)]
        assert 0 < len(layers_sentence(results).split()) <= MAX_WORDS


def test_models_of_several_stacks_have_a_sentence_for_each() -> None:
    """Only runs that have something to say are printed, since these sentences stand together."""
    layers = [(POSITION, NEARBY, BROADCAST, REPEATS, SPREAD, SPREAD) * 3, (REPEATS,) * 18]
    results = results_of(*layers)
    manifest = results.study.manifest
    stacks = (results.stack, replace(results.stack, name="cross"))
    study = replace(results.study, manifest=replace(manifest, stacks=stacks))
    found = StackResults(study, results.stack)
    found._made.update(results._made)
    assert layers_sentence(found) == (
        "Self-attention, sink masked: in layer 1 most heads attend to equal tokens."
    )
