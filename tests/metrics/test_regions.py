"""Attention between the regions of texts: naive twins, laws, and a head that was trained for it."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import cross_encoder
import naive_regions
from bare_model import half_of
from headbook.metrics.base import HeadMetric
from headbook.metrics.targets import region_attention, region_excess
from headbook.metrics.targets.region_attention import BACK
from headbook.run.collect import collect
from headbook.schema import PAIR_REGIONS, SinkView, regions_of
from headbook.study.study import Study
from layers import Marks, views_of
from metric_values import parts
from naive_ratios import Estimate, ratio
from naive_regions import SPECIAL, Map

ATTENTION, EXCESS = region_attention.METRIC, region_excess.METRIC
N_PAIRS = 24
FITTED = 1e-6  # difference of values by fits that end where they change little
Place = tuple[int, int]


class Case(NamedTuple):
    """A study of the trained cross-encoder, and its maps by head as transformers gives them."""

    study: Study
    maps: dict[Place, list[Map]]


@pytest.fixture(scope="module")
def case(cross_encoder_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Case:
    file = cross_encoder.write_pairs(tmp_path_factory.mktemp("pairs") / "a.jsonl", N_PAIRS)
    study = collect(
        file, model=str(cross_encoder_folder), dtype="float64", annotator="none",
        importance="off", circuits="off",
    )  # fmt: skip
    maps = defaultdict(list)
    for place, found in maps_of(cross_encoder_folder):
        maps[place].append(found)
    return Case(study, dict(maps))


def maps_of(folder: Path) -> Iterator[tuple[Place, Map]]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float64
    )
    for row in cross_encoder.rows(N_PAIRS, seed=0):
        inputs = tokenizer(row["premise"], row["hypothesis"], return_tensors="pt")
        with torch.no_grad():
            attentions = model(**inputs, output_attentions=True).attentions
        tokens = inputs["input_ids"][0].tolist()
        regions = [
            SPECIAL if token in tokenizer.all_special_ids else PAIR_REGIONS[kind]
            for token, kind in zip(tokens, inputs["token_type_ids"][0].tolist(), strict=True)
        ]
        for layer, of_layer in enumerate(attentions):
            for head, weights in enumerate(of_layer[0].tolist()):
                yield (layer, head), Map(weights, regions, half_of([tokens]))


def rows_of(study: Study, metric: HeadMetric) -> dict[tuple[Any, ...], Estimate]:
    table = study.heads[study.heads["metric"] == metric.id]
    columns = ["value", "low", "high", "n_sentences", "n_observations"]
    places = zip(*(table[name] for name in ("layer", "head", "view", "label")), strict=True)
    return {
        place: Estimate(value, low, high, int(sentences), observations, np.nan)
        for place, (value, low, high, sentences, observations) in zip(
            places, table[columns].to_numpy(float).tolist(), strict=True
        )
    }


def same(first: Estimate, second: Estimate, tolerance: float = 1e-9) -> None:
    """Compare all but the effective number; ends of intervals lose half of the digits."""
    for number in ("value", "sentences", "events"):
        np.testing.assert_allclose(getattr(first, number), getattr(second, number), atol=tolerance)
    np.testing.assert_allclose(first[1:3], second[1:3], atol=max(1e-6, 10 * tolerance))


def test_region_attention_equals_the_naive_computation(case: Case) -> None:
    expected = {
        (*place, view, label): ratio([part[label] for part in of_texts], ATTENTION.limits)
        for place, maps in case.maps.items()
        for view in ("raw", "nosink", "renorm")
        for of_texts in [
            [naive_regions.region_attention(text, view, PAIR_REGIONS) for text in maps]
        ]
        for label in of_texts[0]
    }
    found = rows_of(case.study, ATTENTION)
    assert found.keys() == expected.keys()
    for where, estimate in expected.items():
        same(found[where], estimate)


def test_region_excess_equals_the_naive_computation(case: Case) -> None:
    found = rows_of(case.study, EXCESS)
    for place, maps in case.maps.items():
        of_texts = naive_regions.region_excess(maps, PAIR_REGIONS)
        for label in of_texts[0]:
            estimate = ratio([part[label] for part in of_texts], EXCESS.limits)
            same(
                found[*place, "renorm", label], estimate, 1e-6
            )  # fits end where they change little
    assert len(found) == len(case.maps) * 4


def test_the_trained_head_is_found(case: Case) -> None:
    layer, head = cross_encoder.CARRIER
    for metric, least in ((EXCESS, 0.1), (ATTENTION, 0.9)):
        values = {
            place: estimate
            for (*place_, view, label), estimate in rows_of(case.study, metric).items()
            for place in (tuple(place_),)
            if (view, label) == ("renorm", BACK)
        }
        best = max(values, key=lambda place: values[place].value)
        assert best == (layer, head)
        assert values[best].low > least


@st.composite
def maps_with_regions(draw: st.DrawFn) -> tuple[torch.Tensor, Marks, bool]:
    n = draw(st.integers(2, 7))
    special = draw(st.lists(st.integers(0, n - 1), max_size=2, unique=True))
    regions = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    causal = draw(st.booleans())
    scores = torch.tensor(
        draw(st.lists(st.lists(st.floats(-3, 3), min_size=n, max_size=n), min_size=n, max_size=n))
    ).double()
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
    return scores.softmax(-1)[None], Marks(n, special=special, regions=regions), causal


@settings(max_examples=60)
@given(maps_with_regions())
def test_shares_of_all_regions_others_and_special_keys_add_up_to_the_mass(
    given_map: tuple[torch.Tensor, Marks, bool],
) -> None:
    weights, marks, causal = given_map
    for layer in views_of(weights, marks, causal=causal).values():
        numerators, _, _ = parts(ATTENTION, [layer])
        region = layer.frame.queries.region[0]
        for number, name in enumerate(PAIR_REGIONS):
            queries = (region == number) & layer.frame.counted_queries[0]
            mass = layer.mass[0, 0, queries].sum()
            rest = layer.weights[0, 0][queries][:, region < 0].sum()
            of_region = [regions_of(label)[0] == name for label in ATTENTION.labels]
            torch.testing.assert_close(numerators[0, 0, of_region].sum() + rest, mass)


def excess_of(maps: list[torch.Tensor], borders: list[int]) -> torch.Tensor:
    """Return numerators of maps of one head, texts cut in two, in the raw view."""
    layers = []
    for weights, border in zip(maps, borders, strict=True):
        marks = Marks(len(weights), regions=[0] * border + [1] * (len(weights) - border))
        layers.append(views_of(weights[None].double(), marks)[SinkView.RAW])
    numerators, _, _ = parts(EXCESS, layers)
    return numerators


@settings(max_examples=25)
@given(st.lists(st.integers(2, 70), min_size=2, max_size=4), st.integers(0, 2**16))
def test_maps_that_depend_on_distance_alone_have_no_excess(sizes: list[int], seed: int) -> None:
    """One weight a distance, within an octave too, or even weights; texts have any lengths."""
    rng = np.random.default_rng(seed)
    strength = torch.from_numpy(rng.random(region_excess.N_DISTANCES) + 0.1)
    borders = [int(rng.integers(1, n)) for n in sizes]
    for weights in (strength, torch.ones_like(strength)):
        maps = [weights[region_excess.distances(torch.ones(n))] for n in sizes]
        rows = [each / each.sum(-1, keepdim=True) for each in maps]
        assert excess_of(rows, borders).abs().max() <= 1e-6 * max(sizes)


def test_distances_are_exact_to_32_tokens_and_octaves_beyond() -> None:
    number = region_excess.distances(torch.ones(300))
    by_class = defaultdict(set)
    for offset in range(-299, 300):
        by_class[int(number[max(0, -offset), max(0, offset)])].add(offset)
    sizes = [len(by_class[key]) for key in sorted(by_class)]
    octaves = [32, 64, 128, 299 - 256]
    assert sizes == [*octaves[::-1], *[1] * 65, *octaves]
