"""Metrics of states against their naive twins; the laws they follow; what is missing."""

import math
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import ortho_group

import naive_geometry as naive
import tiny
from bare_model import Bare, Given
from geometry_texts import METRICS, TEXTS, run
from headbook.analysis.arrays import effective_number
from headbook.analysis.state_vectors import MINIBATCH, NO_KIND, StateVectors, TokenSample
from headbook.metrics.base import LayerMetric
from headbook.metrics.geometry import layer_cka
from headbook.metrics.geometry import maximum_explainable_variance as mev
from headbook.passes import state_geometry
from headbook.study.sums.state_geometry import GeometrySums, to_ratio_sums
from naive_tokens import paths

Floats = NDArray[np.float64]
Folder = Callable[[str], Path]
FAMILIES = {"bert": 1e-9, "gpt2": 1e-9, "llama": 1e-5, "bart": 1e-9}  # llama: softmax in float32


def states(bare: Bare, texts: list[str], *, paired: bool) -> Iterator[tuple[str, naive.Tokens]]:
    """Stack and tokens in each state, the input first, from the bare model."""
    gathered: dict[tuple[str, int], list[tuple[int, int, Floats, Floats]]] = {}
    for number, text in enumerate(texts):
        sides = [text, " ".join(text.split()[::-1])] if paired else [text]
        parts = bare.texts(*(Given(side, []) for side in sides))
        rows = [[token.id for token in part.tokens] for part in parts]
        for stack, path in paths(bare, rows).items():
            outs = [path.start, *(v for (_, state), v in path.states.items() if state == "out")]
            causal = stack == "decoder" or bare.network.config.model_type in {"gpt2", "llama"}
            for index, vectors in enumerate(outs if stack != "cross" else []):
                for i, token in enumerate(parts[stack == "decoder"].tokens):
                    if not token.special and not (causal and i == 0):
                        kind = NO_KIND if token.punctuation else token.id
                        row = (number, kind, vectors[i], path.start[i])
                        gathered.setdefault((stack, index), []).append(row)
    for (stack, _), rows_of in gathered.items():
        yield (
            stack,
            naive.Tokens(
                sentence=[row[0] for row in rows_of],
                kind=[row[1] for row in rows_of],
                vectors=np.stack([row[2] for row in rows_of]),
                start=np.stack([row[3] for row in rows_of]),
            ),
        )


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_number_equals_the_naive_computation(
    family: str, tiny_folder: Folder, tmp_path: Path
) -> None:
    """Each value of each state of each stack; of metrics that do not depend on an order."""
    paired, folder = tiny.ALL[family].pairs, tiny_folder(family)
    texts = [*TEXTS, TEXTS[0]]  # the second of two equal sentences does not count
    table = run(tmp_path, folder, texts, paired=paired).geometry
    bare = Bare.load(folder, pairs=paired)
    rows = list(states(bare, TEXTS, paired=paired))
    assert len(rows) == 3 * (1 + paired)
    for number, (stack, tokens) in enumerate(rows):
        layer = number % 3 - 1
        part = table[(table["stack"] == stack) & (table["layer"].fillna(-1) == layer)]
        assert set(part["n_sentences"]) <= {14, 0}
        for (metric, label), naive_metric in naive.NAIVE.items():
            row = part[(part["metric"] == metric) & (part["label"] == label)]
            assert len(row) == 1
            assert row["value"].item() == pytest.approx(
                naive_metric(tokens), rel=0, abs=FAMILIES[family]
            )
        worst = naive.outliers(tokens, tokens.vectors, 10)
        named = part[part["label"].str.startswith("dimension")]
        assert named["label"].tolist() == [f"dimension {d}" for d in worst]
        for d, value in zip(worst, named["value"], strict=True):
            naive_value = naive.contribution(tokens, tokens.vectors, d)
            assert value == pytest.approx(naive_value, rel=0, abs=FAMILIES[family])


def made(n_sentences: int = 9, width: int = 6, seed: int = 0, longest: int = 9) -> naive.Tokens:
    """Random tokens, all of whose vectors share a direction."""
    draw = np.random.default_rng(seed)
    counts = draw.integers(1, longest, n_sentences)
    sentence = np.repeat(np.arange(n_sentences), counts)
    kind = draw.integers(-1, 5, len(sentence))
    shape = (len(sentence), width)
    shift = draw.normal(size=width)
    return naive.Tokens(
        sentence.tolist(),
        kind.tolist(),
        draw.normal(size=shape) + shift,
        draw.normal(size=shape) - shift / 2,
    )


def cloud_of(tokens: naive.Tokens, seed: int = 0) -> StateVectors:
    """The same as metrics see it."""
    sample = TokenSample(np.array(tokens.sentence), np.array(tokens.kind), seed)
    return StateVectors(sample, tokens.vectors, StateVectors(sample, tokens.start))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("metric", "label"), naive.NAIVE)
def test_values_and_intervals_equal_those_of_every_sentence_left_out(
    metric: str, label: str, seed: int
) -> None:
    """The interval is the delete-one jackknife's, computed again without each sentence."""
    tokens = made(12, seed=seed)
    estimate = METRICS[metric].measure(cloud_of(tokens))[label]
    ratios = to_ratio_sums([[estimate]], 12)
    low, high = (float(end[0, 0]) for end in ratios.interval())
    naive_metric = naive.NAIVE[metric, label]
    assert float(ratios.value[0, 0]) == pytest.approx(naive_metric(tokens), rel=0, abs=1e-9)
    assert (low, high) == pytest.approx(naive.interval(tokens, naive_metric), rel=0, abs=1e-9)


def test_random_tokens_are_as_many_as_occurrences_and_of_different_sentences() -> None:
    tokens = made(40)
    cloud = cloud_of(tokens)
    places = mev.occurrences(cloud.sample)
    drawn = mev.drawn(cloud.sample, places)
    assert [[i for i in row if i >= 0] for row in places] == naive.occurrences(tokens)
    assert np.array_equal(places == mev.NOTHING, drawn == mev.NOTHING)
    sets = [[int(i) for i in row if i >= 0] for row in drawn]
    for row in sets:
        assert len({tokens.sentence[i] for i in row}) == len(row)
    estimates = METRICS["maximum_explainable_variance"].measure(cloud)
    baseline = estimates["baseline"]
    assert baseline.value == pytest.approx(naive.explainable(tokens, sets), rel=0, abs=1e-9)
    for s in range(40):
        fewer = naive.explainable(tokens.without(s), sets)
        assert baseline.without[s] == pytest.approx(fewer, rel=0, abs=1e-9)
    difference = estimates["raw"].value - baseline.value
    assert estimates["adjusted"].value == pytest.approx(difference, rel=0, abs=1e-12)


def test_the_seed_decides_which_random_tokens_are_drawn() -> None:
    tokens = made(40)
    one, same, other = (
        mev.drawn(cloud_of(tokens, seed).sample, mev.occurrences(cloud_of(tokens).sample))
        for seed in (0, 0, 1)
    )
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


LONG = made(100, width=12, longest=14)


def test_the_effective_rank_equals_the_naive_computation() -> None:
    assert len(LONG.sentence) // MINIBATCH >= 2
    estimate = METRICS["effective_rank"].measure(cloud_of(LONG))[""]
    assert estimate.value == pytest.approx(naive.effective_rank(LONG.vectors), rel=0, abs=1e-9)


def products(*states_: Floats) -> GeometrySums:
    """What a pass keeps of some states."""
    sample = TokenSample(np.array(LONG.sentence), np.array(LONG.kind))
    found = sum(
        layer_cka.measure([state[tokens] for state in states_]) for tokens in sample.minibatches
    )
    n = len(states_)
    return GeometrySums(
        (), to_ratio_sums([[]] * n, 2), np.asarray(found), 1, np.zeros((n, 1)), np.zeros(n), 2, 9
    )


def test_cka_equals_the_naive_computation() -> None:
    bent = np.tanh(LONG.vectors)
    found = products(LONG.vectors, LONG.start, bent).cka
    for i, one in enumerate((LONG.vectors, LONG.start, bent)):
        for j, other in enumerate((LONG.vectors, LONG.start, bent)):
            assert found[i, j] == pytest.approx(naive.cka(one, other), rel=0, abs=1e-9)


def test_cka_of_a_state_with_itself_turned_and_stretched_is_one() -> None:
    turn = ortho_group.rvs(12, random_state=0)
    geometry_sums = products(LONG.vectors, 3.5 * LONG.vectors @ turn, LONG.start)
    assert geometry_sums.cka[:2, :2] == pytest.approx(np.ones((2, 2)), rel=0, abs=1e-12)
    assert geometry_sums.cka[0, 2] == pytest.approx(geometry_sums.cka[1, 2], rel=0, abs=1e-12)


def test_cka_of_states_that_share_nothing_is_near_zero_with_fewer_tokens_than_dimensions() -> None:
    """The plain estimate would be near 1 here."""
    draw = np.random.default_rng(0)
    one, other = draw.normal(size=(2, len(LONG.sentence), 1000))
    assert abs(products(one, other).cka[0, 1]) < 0.05


def test_the_effective_rank_of_even_directions_is_their_number() -> None:
    """Whatever their common length and however they are turned."""
    for rank in (1, 3, 8):
        rows = np.zeros((2 * MINIBATCH, 8))
        places = np.arange(len(rows)) // 2
        rows[np.arange(len(rows)), places % rank] = 7.0 * (-1) ** (places // rank)
        # Each minibatch has every second token: each direction as often one way as the other.
        turned = rows @ ortho_group.rvs(8, random_state=1)
        sample = TokenSample(np.repeat([0, 1], MINIBATCH), np.zeros(len(rows), dtype=np.int64))
        value = METRICS["effective_rank"].measure(StateVectors(sample, turned))[""].value
        assert value == pytest.approx(naive.effective_rank(turned), rel=0, abs=1e-9)
        assert value == pytest.approx(rank, rel=0.02)


def test_anisotropy_is_one_where_all_vectors_point_the_same_way() -> None:
    tokens = made()
    same = np.outer(np.arange(1.0, len(tokens.sentence) + 1), np.ones(6))
    assert StateVectors(cloud_of(tokens).sample, same).anisotropy.value == pytest.approx(
        1, abs=1e-12
    )


def test_contributions_of_dimensions_add_up_to_the_anisotropy() -> None:
    cloud = cloud_of(made())
    assert cloud.contributions.sum() == pytest.approx(cloud.anisotropy.value, abs=1e-12)


def test_a_large_dimension_is_found_and_does_nothing_once_standardised() -> None:
    tokens = made()
    vectors = np.random.default_rng(5).normal(size=tokens.vectors.shape)
    vectors[:, 4] = vectors[:, 4] + 50
    estimates = METRICS["anisotropy"].measure(StateVectors(cloud_of(tokens).sample, vectors))
    assert StateVectors(cloud_of(tokens).sample, vectors).outlier_dimensions[0] == 4
    assert estimates["raw"].value > 0.95
    assert abs(estimates["standardised"].value) < 0.1
    assert abs(estimates["without_outliers"].value) < 0.3


def values(cloud: StateVectors) -> dict[tuple[str, str], float]:
    return {
        (metric.id, label): estimate.value
        for metric in METRICS.values()
        for label, estimate in metric.measure(cloud).items()
    }


def test_a_state_with_a_vector_of_zeros_has_no_cosine() -> None:
    tokens = made(40)
    cloud = StateVectors(cloud_of(tokens).sample, np.zeros_like(tokens.vectors))
    assert np.isnan([*values(cloud).values()]).all()


def test_one_sentence_has_no_number_that_needs_two() -> None:
    tokens = made(1, longest=2)
    assert len(tokens.sentence) == 1
    cloud = StateVectors(cloud_of(tokens).sample, tokens.vectors)
    there = {name for name, value in values(cloud).items() if not np.isnan(value)}
    assert there == {("standardised_cosine", "raw")}


def test_kinds_that_never_recur_have_no_self_similarity() -> None:
    tokens = made(30)
    kinds = np.arange(len(tokens.sentence))
    cloud = StateVectors(TokenSample(np.array(tokens.sentence), kinds), tokens.vectors)
    found = values(cloud)
    for metric in ("self_similarity", "maximum_explainable_variance"):
        assert all(np.isnan(v) for (name, _), v in found.items() if name == metric)
    assert found["anisotropy", "raw"] == pytest.approx(naive.anisotropy(tokens), abs=1e-9)


@cache
def recorded(folder: Path, place: Path, budget: int) -> tuple[list[StateVectors], list[str]]:
    """The clouds that metrics see, and the texts that were taken, in their order."""
    clouds: list[StateVectors] = []
    taken: list[str] = []

    def keep(cloud: StateVectors) -> dict[str, Any]:
        clouds.append(cloud)
        return {"": cloud.anisotropy}

    class Recording(state_geometry.StateGeometry):
        def within(self, items: Any) -> Any:
            found = super().within(items)
            taken.extend(item.sentence.text for item in found)
            return found

        def sums(self, found: Any) -> Any:
            metric = METRICS["effective_rank"]
            fake = LayerMetric(**{**vars(metric), "measure": keep})
            return state_geometry.StateGeometry(self.model, self.architecture, (fake,), (), 0).sums(
                found
            )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headbook.run.reread.StateGeometry", Recording)
        run(place, folder, TEXTS, batch_tokens=budget)
    return clouds, taken


@pytest.mark.parametrize("budget", [1, 64, 4096])
def test_clouds_hold_the_bare_models_states_in_the_order_of_hashes(
    budget: int, tiny_folder: Folder, tmp_path: Path
) -> None:
    """Whatever the batches are."""
    folder = tiny_folder("bert")
    clouds, taken = recorded(folder, tmp_path, budget)
    assert sorted(taken) == sorted(TEXTS)
    rows = list(states(Bare.load(folder), taken, paired=False))
    assert len(clouds) == len(rows) == 3
    for cloud, (_, tokens) in zip(clouds, rows, strict=True):
        assert cloud.sample.sentence.tolist() == list(tokens.sentence)
        assert cloud.sample.kind.tolist() == list(tokens.kind)
        assert cloud.vectors == pytest.approx(tokens.vectors, rel=0, abs=1e-9)
    assert taken == recorded(folder, tmp_path, 1)[1]


@pytest.mark.parametrize(
    ("shares", "count"),
    [([0.25] * 4, 4), ([1, 0, 0], 1), ([0.5, 0.5, 0], 2), ([2, 2], 2), ([math.nan, 1], 1)],
)
def test_effective_heads_are_as_many_as_equal_heads_would_be(
    shares: list[float], count: float
) -> None:
    assert effective_number(np.array(shares)) == pytest.approx(count)


def test_without_any_share_no_number_of_heads() -> None:
    assert math.isnan(effective_number(np.array([0.0, math.nan])))
