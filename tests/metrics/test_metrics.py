"""Every head metric against its naive twin, on every kind of stack; found by the registry."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

import tiny
import treebank
from bare_model import Bare, Given, Word, given
from headbook.metrics import all_metrics, head_metrics
from headbook.metrics.base import HeadMetric, Source, needs_regions
from headbook.run.collect import collect
from headbook.study.study import Study
from headbook.text.annotate import Annotator
from naive import CHANCES, NAIVE, NAIVE_LAYERS, NAIVE_SAMPLED
from naive_ratios import Estimate, Part, ratio, together
from single_head import Viewed

pytestmark = pytest.mark.usefixtures("of_any_number")

METRICS = {
    metric.id: metric
    for metric in head_metrics(all_metrics().values())
    if metric.source in {Source.ALL, Source.SAMPLE}  # of random tokens: test_random.py
    and not needs_regions(metric)  # test_regions.py
}
SINGLE = 1e-5  # models that take their softmax in float32 whatever the weights are
DOUBLE = 1e-9


class Case(NamedTuple):
    """A kind of model.

    ``window``: how far each layer's tokens see to either side; ``learned``: whether the softmax has
    a sink of its own.
    """

    family: str
    tolerance: float
    window: dict[int, int] | None = None
    pairs: bool = False
    learned: bool = False


CASES = {
    "encoder": Case("bert", DOUBLE),
    "causal": Case("gpt2", DOUBLE),
    "grouped keys, begins with a special token": Case("llama", SINGLE),
    "local windows": Case("modernbert", SINGLE, window={1: 2}),
    "a learned sink": Case("gpt_oss", SINGLE, window={0: tiny.WINDOW - 1}, learned=True),
    "encoder, decoder and cross": Case("bart", DOUBLE, pairs=True),
}
OF_PASSAGES = ("block_ratio",)  # texts of a single sentence take no part
OF_PASSAGES_TOO = ("type_shares", "separator_attention")  # some labels alone need passages
PASSAGES = (
    "the old gardener sees the bird [SEP] the dog sleeps near the house",
    "water [SEP] the small dogs [SEP] the bird sings",
    "the dog sees the dog .",
)
Folder = Callable[[str], Path]
Where = tuple[str, int, int, str]  # stack, layer, head, view
Expected = dict[Where, list[Viewed]]  # the sentences


@pytest.fixture(scope="module")
def study(tiny_folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Study]:
    """The study of a case, in float64."""

    @cache
    def of(name: str) -> Study:
        case, folder = CASES[name], tmp_path_factory.mktemp("input")
        if case.pairs:
            file, annotator = treebank.write_pairs(folder / "pairs.jsonl"), "embedded"
        else:
            file, annotator = treebank.write_trees(folder / "trees.conllu"), "none"
        return collect(
            file,
            model=str(tiny_folder(case.family)),
            dtype="float64",
            importance="off",
            circuits="off",
            annotator=annotator,
            target_annotator=annotator,
            target_language="en",
        )

    return of


@pytest.fixture(scope="module")
def naive(tiny_folder: Folder) -> Callable[[str], Expected]:
    """What every head does in every sentence of a case, in every view."""

    @cache
    def of(name: str) -> Expected:
        case = CASES[name]
        bare = Bare.load(tiny_folder(case.family), pairs=case.pairs)
        found: Expected = defaultdict(list)
        for sides in annotated_pairs() if case.pairs else ((given(t),) for t in treebank.TREES):
            for stack, layer, head, basic in bare.looks(*sides, window=case.window):
                attention = replace(basic, learned=case.learned)
                for view in ("raw", "nosink", "renorm"):
                    found[stack, layer, head, view].append(Viewed(attention, view))
        return found

    return of


def annotated_pairs() -> Iterator[tuple[Given, ...]]:
    """The pairs with their words; annotation is input, not what is tested here."""
    annotator = Annotator.load("embedded")
    for pair in treebank.PAIRS:
        yield tuple(
            Given(
                text,
                [
                    Word(w.start, w.end, w.upos, None if w.head < 0 else w.head, w.relation)
                    for w in words
                ],
            )
            for text, words in zip(pair, annotator.words(pair), strict=True)
        )


@pytest.mark.parametrize("name", METRICS)
def test_every_head_metric_has_a_naive_twin(name: str) -> None:
    assert name in {**NAIVE, **NAIVE_SAMPLED, **NAIVE_LAYERS}, (
        f"write the definition of '{name}' as plain loops into tests/naive/naive.py"
    )


@pytest.mark.parametrize("case", tiny.by_level(CASES, lambda case: CASES[case].family))
@pytest.mark.parametrize("name", METRICS)
def test_heads_and_layers_equal_the_naive_computation(
    name: str, case: str, study: Callable[[str], Study], naive: Callable[[str], Expected]
) -> None:
    metric, sentences = METRICS[name], measured(METRICS[name], naive(case))
    bounds = metric.bounds(study(case).corpus_sums.max_tokens)
    heads: dict[tuple[object, ...], Estimate] = {
        (*where, label): within(ratio(parts, metric.limits, metric.spread(label)), bounds)
        for (where, label), parts in sentences.items()
    }
    by_layer: dict[tuple[Any, ...], list[list[Part]]] = defaultdict(list)
    for ((stack, layer, _, view), label), parts in sentences.items():
        by_layer[stack, layer, view, label].append(parts)
    layers = {
        where: within(
            ratio(
                [*map(together, zip(*parts, strict=True))], metric.limits, metric.spread(where[-1])
            ),
            bounds,
        )
        for where, parts in by_layer.items()
    }
    tolerance = CASES[case].tolerance
    compare(study(case).heads, name, ["stack", "layer", "head", "view", "label"], heads, tolerance)
    compare(study(case).layers, name, ["stack", "layer", "view", "label"], layers, tolerance)


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_has_a_number_in_some_case(name: str, study: Callable[[str], Study]) -> None:
    """Two that have none anywhere would be equal, whatever they compute."""
    if name in OF_PASSAGES:
        pytest.skip("its own test is below")
    tables = (study(case).heads for case in CASES)
    assert any(table.loc[table["metric"] == name, "value"].notna().any() for table in tables)


@pytest.mark.parametrize("name", [*OF_PASSAGES, *OF_PASSAGES_TOO])
def test_metrics_of_passages_equal_the_naive_computation(
    name: str, tiny_folder: Folder, tmp_path: Path
) -> None:
    folder, file = tiny_folder("bert"), tmp_path / "passages.txt"
    file.write_text("\n".join(PASSAGES))
    model = str(folder)
    table = collect(
        file, model=model, dtype="float64", annotator="none", metrics=name, importance="off",
        circuits="off",
    ).heads  # fmt: skip
    attentions: Expected = defaultdict(list)
    for text in PASSAGES:
        for stack, layer, head, attention in Bare.load(folder).looks(Given(text, [])):
            for view in METRICS[name].views:
                attentions[stack, layer, head, view].append(Viewed(attention, view))
    expected: dict[tuple[object, ...], Estimate] = {
        (*where, label): ratio(parts, METRICS[name].limits, METRICS[name].spread(label))
        for (where, label), parts in measured(METRICS[name], attentions).items()
    }
    assert table["value"].notna().all()
    compare(table, name, ["stack", "layer", "head", "view", "label"], expected, DOUBLE)


@pytest.mark.parametrize("case", ["encoder", "causal"])
@pytest.mark.parametrize("name", [name for name, m in METRICS.items() if m.source is Source.ALL])
def test_uniform_attention_gives_what_plain_loops_give(
    name: str, case: str, tiny_folder: Folder, study: Callable[[str], Study]
) -> None:
    metric, naive_metric = METRICS[name], CHANCES.get(name, NAIVE[name])
    bare = Bare.load(tiny_folder(CASES[case].family))
    found: dict[tuple[Any, ...], list[Part]] = defaultdict(list)
    for tree in treebank.TREES:
        stack, _, _, attention = next(bare.looks(given(tree)))
        even = [[1 / len(seen) if j in seen else 0.0 for j in range(len(attention.seen))]
                for seen in attention.seen]  # fmt: skip
        for view in metric.views:
            # Uniform attention has no values.
            norms = () if name == "separator_attention" else attention.norms
            uniform = Viewed(replace(attention, weights=even, norms=norms), view)
            for label, part in naive_metric(uniform).items():
                found[stack, 0, view, label].append(part)
    table = study(case).controls
    table = table[table["layer"] == 0]
    bounds = metric.bounds(study(case).corpus_sums.max_tokens)
    expected = {
        where: within(ratio(parts, metric.limits, metric.spread(where[-1])), bounds)
        for where, parts in found.items()
    }
    if name == "sink_norm_share":  # uniform attention has no values
        assert table.loc[table["metric"] == name, "value"].isna().all()
        return
    compare(table, name, ["stack", "layer", "view", "label"], expected, DOUBLE)


def within(estimate: Estimate, bounds: tuple[float, float]) -> Estimate:
    """The estimate with its interval inside what texts of their length allow."""
    low, high = (min(max(end, bounds[0]), bounds[1]) for end in (estimate.low, estimate.high))
    return estimate._replace(low=low, high=high)


def measured(metric: HeadMetric, attentions: Expected) -> dict[tuple[Where, str], list[Part]]:
    """What each sentence adds to each number of each head."""
    layers: dict[tuple[object, ...], dict[Where, list[Viewed]]] = defaultdict(dict)
    for where, sentences in attentions.items():
        if where[3] not in metric.views or (where[0] == "cross" and "ONE_TEXT" in needs(metric)):
            continue
        stack, layer, _, view = where
        layers[stack, layer, view][where] = sentences
    found: dict[tuple[Where, str], list[Part]] = defaultdict(list)
    for heads in layers.values():
        for where, each in zip(heads, of_heads(metric, [*heads.values()]), strict=True):
            for parts in each:
                for label, part in parts.items():
                    found[where, label].append(part)
    return found


def of_heads(metric: HeadMetric, heads: list[list[Viewed]]) -> list[list[dict[str, Part]]]:
    """What each sentence adds to the number of each head of a layer."""
    if metric.id in NAIVE_LAYERS:
        by_sentence = [NAIVE_LAYERS[metric.id]([*each]) for each in zip(*heads, strict=True)]
        return [[*each] for each in zip(*by_sentence, strict=True)]
    return [of_sentences(metric, sentences) for sentences in heads]


def of_sentences(metric: HeadMetric, sentences: list[Viewed]) -> list[dict[str, Part]]:
    """What each sentence adds to a head's number."""
    if metric.id in NAIVE_SAMPLED:
        return NAIVE_SAMPLED[metric.id](sentences)
    return [NAIVE[metric.id](sentence) for sentence in sentences]


def needs(metric: HeadMetric) -> set[str]:
    """Names of what a metric cannot do without."""
    return {need.name for need in metric.needs}


def compare(
    table: pd.DataFrame,
    metric: str,
    keys: list[str],
    expected: dict[tuple[object, ...], Estimate],
    tolerance: float,
) -> None:
    """A study's rows are those expected, number by number."""
    rows = table[table["metric"] == metric]
    where = list(zip(*(rows[key] for key in keys), strict=True))
    assert set(where) == set(expected)
    assert len(where) == len(expected)
    for index, number in enumerate(Estimate._fields[:-1]):  # tables do not have the last
        counts = {"sentences": "n_sentences", "events": "n_observations"}
        found = rows[counts.get(number, number)].to_numpy(float)
        wanted = np.array([expected[each][index] for each in where], float)
        # Variances are differences of sums, so that ends of intervals lose digits: half of those of
        # float64, and in single precision 1.5e-5 of 1.8 was seen.
        within = max(10 * tolerance, 1e-7) if number in {"low", "high"} else tolerance
        np.testing.assert_allclose(found, wanted, rtol=within, atol=within, err_msg=number)
