"""What holds for every metric: it explains itself, keeps its word and does not see batches."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from latex2mathml.converter import convert

import cross_encoder
import headbook.metrics
import tiny
import treebank
from headbook.metrics import (
    all_metrics,
    chosen_metrics,
    head_metrics,
    pair_metrics,
    token_metrics,
)
from headbook.metrics.base import (
    AnchorMetric,
    CircuitMetric,
    ContextMetric,
    FlowMetric,
    HeadMetric,
    LayerMetric,
    LayerPairMetric,
    Metric,
    Need,
    PairMetric,
    TokenMetric,
    needs_regions,
)
from headbook.metrics.examples import Example
from headbook.run import shards
from headbook.run.collect import collect
from headbook.schema import UPOS, ModelKind, SinkView
from headbook.study.study import Study, merge
from layers import Marks, example_layer, views_of
from metric_values import parts, values
from sites import QUICK, Once

METRICS = all_metrics()

# Metrics of attention maps; those of circuits have laws of their own (tests/circuits).
HEADS = {
    metric.id: metric
    for metric in head_metrics(METRICS.values())
    if not isinstance(metric, CircuitMetric)
}
CIRCUITS = {name for name, metric in METRICS.items() if isinstance(metric, CircuitMetric)}

EXAMPLES = {
    f"{name}: {description}": (metric, *example)
    for name, metric in HEADS.items()
    for description, example in metric.examples.items()
}

T = TypeVar("T")


class Layer(NamedTuple):
    """A random layer over one sentence, or across two."""

    weights: torch.Tensor
    queries: Marks
    keys: Marks | None
    causal: bool


@st.composite
def marks(draw: st.DrawFn) -> Marks:
    """A short text with words of one or more pieces, tags, heads and special tokens; values."""
    n = draw(st.integers(1, 6))
    some = st.lists(st.integers(0, n - 1), max_size=2)
    vectors = st.lists(st.tuples(*[st.floats(-9, 9)] * 2), min_size=n, max_size=n)
    special = draw(some)
    steps = draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    numbers = np.cumsum([0, *steps[1:]])
    word = [-1 if i in special else int(numbers[i]) for i in range(n)]
    n_words = max(word) + 1

    def each_word(values: st.SearchStrategy[T]) -> list[T]:
        return draw(st.lists(values, min_size=n_words, max_size=n_words))

    return Marks(
        n,
        ids=draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)),
        special=special,
        separator=special[:1],
        punctuation=draw(some),
        word=word,
        tags=each_word(st.sampled_from(UPOS)),
        heads=each_word(st.integers(-1, n_words - 1)),
        rarest=draw(st.integers(-1, n_words - 1)),
        norms=draw(st.just([]) | st.lists(st.floats(0, 9), min_size=n, max_size=n)),
        values=draw(st.just([]) | vectors),
        stops=draw(some),
        **draw(
            st.just({})
            | st.just({"sentences": numbers.tolist()})
            | st.fixed_dictionaries(
                {"regions": st.lists(st.integers(0, 2), min_size=n, max_size=n)}
            )
        ),
    )


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    """Attention of one head, from uniform to a single key a row."""
    queries = draw(marks())
    keys = draw(st.none() | marks())
    causal = keys is None and draw(st.booleans())
    m = (keys or queries).n
    row = st.lists(st.floats(-1, 1), min_size=m, max_size=m)
    scores = torch.tensor(draw(st.lists(row, min_size=queries.n, max_size=queries.n)))
    scores = scores.double() * draw(st.sampled_from([0, 1, 10, 1000]))
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
    return Layer(scores.softmax(-1)[None], queries, keys, causal)


TOKENS = {metric.id: metric for metric in token_metrics(METRICS.values())}
EVERYWHERE = (TokenMetric, PairMetric, FlowMetric, LayerMetric, LayerPairMetric)
PAIRS = {metric.id: metric for metric in pair_metrics(METRICS.values())}
MORE = {  # need longer texts or more of them: test_metrics.py, test_geometry.py
    "block_ratio", "effective_rank", "maximum_explainable_variance", "layer_cka",
}  # fmt: skip
STUDIES = ("whole", "first", "second", "one-by-one")


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_a_metric_explains_itself(metric: Metric) -> None:
    assert metric.summary.endswith(".")
    assert len(metric.prose.split()) > 30
    assert metric.title
    assert metric.title[0].isupper()
    assert metric.reference
    assert "<math" in convert(metric.formula)
    assert not re.findall(r"\\\w+", convert(metric.formula)), "a command that is printed as it is"
    assert metric.headline in metric.labels
    assert len(set(metric.labels)) == len(metric.labels)
    lowest, highest = metric.bounds(10)
    assert lowest < highest
    assert metric.limits[0] <= lowest
    assert highest <= metric.limits[1]
    # A number with a natural unit names it; shares and ratios have none.
    assert metric.unit or highest <= 2 or metric.is_share or "ratio" in metric.id


@pytest.mark.parametrize("metric", HEADS.values(), ids=HEADS)
def test_a_head_metric_has_two_worked_examples(metric: HeadMetric) -> None:
    assert len(metric.examples) >= 2


@pytest.mark.parametrize("metric", HEADS.values(), ids=HEADS)
def test_a_head_metric_has_a_number_in_an_example(metric: HeadMetric) -> None:
    """That nothing comes of something is an example, too, but not the only one."""
    expected_values = [expected for _, expected in metric.examples.values()]
    numbers = [n for a in expected_values for n in (a.values() if isinstance(a, Mapping) else [a])]
    assert np.isfinite(numbers).any()


@pytest.mark.parametrize("case", EXAMPLES.values(), ids=EXAMPLES)
def test_the_worked_examples_hold(
    case: tuple[HeadMetric, Example | tuple[Example, ...], float | dict[str, float]],
) -> None:
    metric, examples, expected = case
    sentences = examples if isinstance(examples, tuple) else (examples,)
    found = values(metric, [example_layer(example, metric.views[0]) for example in sentences])
    for label, value in (expected if isinstance(expected, dict) else {"": expected}).items():
        assert found[0, metric.labels.index(label)] == pytest.approx(
            value, abs=1e-12, nan_ok=True
        ), label


@pytest.mark.slow
@settings(max_examples=80)
@given(layers())
def test_no_value_leaves_its_bounds(layer: Layer) -> None:
    views = views_of(layer.weights, layer.queries, layer.keys, causal=layer.causal)
    n = max(layer.queries.n, (layer.keys or layer.queries).n)
    for metric in HEADS.values():
        if (Need.ONE_TEXT in metric.needs and layer.keys) or (
            Need.CAUSAL in metric.needs and not layer.causal
        ):
            continue
        lowest, highest = metric.bounds(n)
        for view in metric.views:
            found = values(metric, [views[view]])
            found = found[~found.isnan()]
            where = f"{metric.id} in view {view}"
            assert bool((found >= lowest - 1e-9).all()), where
            assert bool((found <= highest + 1e-9).all()), where
            _, denominators, events = parts(metric, [views[view]])
            assert bool(denominators.isfinite().all()), where
            assert bool((events >= 0).all()), where


@settings(max_examples=40)
@given(layers())
def test_views_differ_by_the_sink_alone(layer: Layer) -> None:
    views = views_of(layer.weights, layer.queries, layer.keys, causal=layer.causal)
    raw, nosink, renorm = (views[view] for view in (SinkView.RAW, SinkView.NOSINK, SinkView.RENORM))
    torch.testing.assert_close(raw.mass, nosink.mass + raw.sink_mass)
    for view in views.values():
        torch.testing.assert_close(view.mass, view.weights.sum(-1))
        torch.testing.assert_close(view.received, view.weights.sum(-2))
    left = renorm.weights.sum(-1)
    torch.testing.assert_close(left, (nosink.mass > 0).to(left))


class Runs(NamedTuple):
    """One corpus, collected in three ways."""

    whole: Study
    joined: Study
    one_by_one: Study


@pytest.fixture(
    scope="module",
    params=["bert", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gpt2", "t5"))],
)
def runs(request: pytest.FixtureRequest, once: Once) -> Runs:
    """At once; in two halves that are added; and with a batch for each sentence."""
    place = once(f"metric-laws-{request.param}", lambda p: write_runs(p, request.param))
    whole, first, second, one_by_one = (Study.load(place / name) for name in STUDIES)
    return Runs(whole, merge([first, second]), one_by_one)


def write_runs(place: Path, family: str) -> None:
    """Store the studies of a family."""
    if family == "t5":
        halves = [
            treebank.write_pairs(place / f"{name}.jsonl", pairs)
            for name, pairs in (("a", treebank.PAIRS[:2]), ("b", treebank.PAIRS[2:]))
        ]
    else:
        halves = [
            treebank.write_trees(place / f"{name}.conllu", trees)
            for name, trees in (("a", treebank.TREES[:3]), ("b", treebank.TREES[3:]))
        ]
    options: dict[str, Any] = {
        "model": str(tiny.write(family, place / family)),
        "dtype": "float64",
        "annotator": "none",
        "exemplars": 20,
        "importance": "off",
        "circuits": "off",
    }
    studies = (
        collect(halves, **options),
        collect(halves[0], **options),
        collect(halves[1], **options),
        collect(halves, **options, batch_tokens=1),
    )
    for name, study in zip(STUDIES, studies, strict=True):
        study.save(place / name)


@pytest.mark.parametrize("name", sorted(METRICS.keys() - CIRCUITS))
@pytest.mark.parametrize("other", ["joined", "one_by_one"])
@pytest.mark.usefixtures("of_any_number")
def test_splits_padding_and_batches_change_nothing(runs: Runs, name: str, other: str) -> None:
    tables = ["heads", "layers", "controls"] if name in HEADS else ["layers", "tokens"]
    if isinstance(METRICS[name], ContextMetric) and other == "joined":
        tables = []  # what is high is decided in each part: test_context.py
    if name in {"attention_parts", "dependency_excess", "output_anisotropy"} and other == "joined":
        tables = []  # each part has its own fit: test_merging.py
    if isinstance(METRICS[name], LayerMetric | LayerPairMetric):
        tables = ["geometry"] if other == "one_by_one" else []  # a mean: test_geometry_page.py
    for table in ["pairs"] if name in PAIRS else tables:
        one, two = (
            frame[frame["metric"] == name].reset_index(drop=True)
            for frame in (getattr(runs.whole, table), getattr(getattr(runs, other), table))
        )
        assert (len(one) > 0) == anywhere(METRICS[name], runs.whole), table
        # What is missing equals what is missing, whatever was to be computed.
        if len(one) and table != "controls" and offered(METRICS[name], runs.whole):
            assert one["value"].notna().any(), table
        # Variances are differences of sums, so that ends of intervals lose half of the digits.
        ends = [column for column in ("low", "high") if column in one]
        same(one.drop(columns=ends), two.drop(columns=ends), 1e-9)
        same(one[ends], two[ends], 1e-6)


REGION_METRICS = sorted(name for name, metric in HEADS.items() if needs_regions(metric))
N_PAIRS = 24


@pytest.fixture(scope="module")
def pair_runs(cross_encoder_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Study]:
    """Pairs for an encoder at once; in shards; with a batch for each; in two halves."""
    folder = tmp_path_factory.mktemp("pairs")
    whole = cross_encoder.write_pairs(folder / "all.jsonl", N_PAIRS).read_text().splitlines()
    files = []
    for name, lines in (("a", whole[: N_PAIRS // 2]), ("b", whole[N_PAIRS // 2 :])):
        files.append(folder / f"{name}.jsonl")
        files[-1].write_text("\n".join(lines) + "\n")
    options: dict[str, Any] = QUICK | {
        "model": str(cross_encoder_folder), "dtype": "float64",
        "metrics": ",".join(REGION_METRICS),
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "SHARD_SENTENCES", 7)
        in_shards = collect(files, **options)
    one_by_one = collect(files, **options, batch_tokens=1)
    joined = merge([collect(file, **options) for file in files])
    return [collect(files, **options), in_shards, one_by_one, joined]


@pytest.mark.parametrize("name", REGION_METRICS)
def test_shards_and_batches_change_no_number_of_regions(pair_runs: list[Study], name: str) -> None:
    whole, *others = pair_runs
    if METRICS[name].id == "region_excess":
        others = others[:-1]  # each merged part has its own weights per distance
    assert set(whole.heads["metric"]) == {*REGION_METRICS}
    for table in ("heads", "layers", "controls"):
        frame = getattr(whole, table)
        frame = frame[frame["metric"] == name].reset_index(drop=True)
        assert frame["value"].notna().all()
        assert len(frame) or (table, name) == ("controls", "region_excess")
        for other in others:
            two = getattr(other, table)
            two = two[two["metric"] == name].reset_index(drop=True)
            ends = [column for column in ("low", "high") if column in frame]
            same(frame.drop(columns=ends), two.drop(columns=ends), 1e-9)
            same(frame[ends], two[ends], 1e-6)


def anywhere(metric: Metric, study: Study) -> bool:
    """Whether a metric makes sense for some stack of a model."""
    if isinstance(metric, TokenMetric) and Need.HEAD in metric.needs:
        return (
            study.manifest.model.kind is ModelKind.ENCODER_DECODER
        )  # the others come without a head
    if needs_regions(metric):  # test_regions.py
        return False
    return isinstance(metric, EVERYWHERE) or any(
        metric.applies(stack) for stack in study.manifest.stacks if isinstance(metric, HeadMetric)
    )


def offered(metric: Metric, study: Study) -> bool:
    """Whether the few sentences of a study have what a metric cannot do without."""
    needs: frozenset[Need] = getattr(metric, "needs", frozenset())
    annotated = study.manifest.model.kind is not ModelKind.ENCODER_DECODER  # these have bare texts
    return (
        metric.id not in MORE
        and Need.PASSAGES not in needs
        and (annotated or not needs & {Need.TAGS, Need.TREE})
    )


def same(one: pd.DataFrame, two: pd.DataFrame, tolerance: float) -> None:
    """Equal up to rounding."""
    pd.testing.assert_frame_equal(one, two, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("other", ["joined", "one_by_one"])
@pytest.mark.usefixtures("of_any_number")
def test_splits_and_batches_change_no_exemplar_map_or_neighbour(runs: Runs, other: str) -> None:
    one, two = runs.whole, getattr(runs, other)
    chosen = [
        [(e.head, e.ranking, e.rank, e.index, e.query, e.key) for e in s.sentence_data.exemplars]
        for s in (one, two)
    ]
    assert chosen[0] == chosen[1]
    assert one.sentence_data.sentences == two.sentence_data.sentences
    assert one.sentence_data.maps.keys() == two.sentence_data.maps.keys()
    for place, cells in one.sentence_data.maps.items():
        np.testing.assert_array_equal(cells, two.sentence_data.maps[place])
    same(one.nearest, two.nearest, 1e-9)
    assert one.manifest.counts == two.manifest.counts


def test_words_that_are_each_others_head_count_once() -> None:
    """A multiword token made one word can be its own head's head."""
    layer = views_of(torch.tensor([[[0.25, 0.75], [1.0, 0.0]]]), Marks(2, heads=(1, 0)))
    metric = HEADS["dependency_alignment"]
    found = values(metric, [layer[SinkView.RAW]])
    assert found[0].tolist() == [1.75 / 2] * 3


def test_the_registry_knows_every_file_and_options_choose_from_it() -> None:
    assert list(chosen_metrics("all")) == list(METRICS)
    assert list(chosen_metrics("sink_share, attention_entropy")) == [
        name for name in METRICS if name in {"sink_share", "attention_entropy"}
    ]
    others = {n for n, metric in METRICS.items() if isinstance(metric, (AnchorMetric, *EVERYWHERE))}
    assert HEADS.keys() | TOKENS.keys() | PAIRS.keys() | CIRCUITS | others == METRICS.keys()
    folder = Path(headbook.metrics.__file__).parent
    files = {file.stem for file in folder.rglob("*.py") if "METRIC = " in file.read_text()}
    assert files == METRICS.keys()
