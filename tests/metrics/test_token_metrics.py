"""Every token metric against its naive twin, in every state, space and class of tokens."""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

import tiny
import treebank
from bare_model import Bare, Given, Word, given
from headbook.metrics import all_metrics, metrics_without_outliers, token_metrics
from headbook.metrics.base import Need
from headbook.run.collect import collect
from headbook.schema import NO_OUTLIERS, ResidualPoint
from headbook.study.study import Study
from headbook.study.sums.token_sums import PATH_STATES
from naive_ratios import Part, ratio
from naive_tokens import (
    AVERAGED,
    CLASSES,
    NAIVE_TOKENS,
    At,
    Floats,
    Outliers,
    classes,
    companion,
    cosines,
    originals,
    outlier_dimensions,
    paths,
    raw_table,
    without,
)
from single_head import Text

pytestmark = pytest.mark.usefixtures("of_any_number")

METRICS = {  # what the language-model head says: test_lens.py
    metric.id: metric
    for metric in token_metrics(all_metrics().values())
    if Need.HEAD not in metric.needs
}
REDUCED = [metric.id for metric in metrics_without_outliers(METRICS.values())]
TREES = (treebank.TREES[0], treebank.TREES[1], treebank.TREES[2], treebank.TREES[5])
SPACES = {  # the families tested, and whether they add positions at their input
    "bert": ("positional", "raw"),
    "gpt2": ("positional", "raw"),
    "bart": ("positional", "raw"),
    "llama": ("raw",),
    "gemma3": ("raw",),
    "gpt_neox": ("raw",),
    "t5": ("raw",),
}
SINGLE = {"llama", "gemma3", "gpt_neox"}  # softmax in float32 whatever the weights are


OUTLIER, OTHER = 7, 19  # dimensions that `plant` makes outliers


class Followed(NamedTuple):
    """One token in one state; ``number`` is its sentence's."""

    number: int
    stack: str
    position: int
    layer: int
    state: str
    classes: set[str]
    at: dict[str, At]


@pytest.fixture(scope="module")
def study(
    tiny_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Study]:
    """A family's study, in float64; by option one of a model with outlier dimensions."""

    @cache
    def of(name: str, *, planted: bool = False, batch_tokens: int = 4096) -> Study:
        folder = tmp_path_factory.mktemp("input")
        model = plant(tiny_folder(name), folder / "model") if planted else tiny_folder(name)
        file = (
            treebank.write_pairs(folder / "pairs.jsonl")
            if tiny.ALL[name].pairs
            else treebank.write_trees(folder / "trees.conllu", TREES)
        )
        options: dict[str, Any] = {"metrics": ",".join(REDUCED)} if planted else {}
        return collect(
            file, model=str(model), dtype="float64", annotator="none", importance="off",
            circuits="off", batch_tokens=batch_tokens, **options,
        )  # fmt: skip

    return of


@pytest.fixture(scope="module")
def followed(
    tiny_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., list[Followed]]:
    """Every state of every token, by the bare model."""

    @cache
    def of(name: str, *, planted: bool = False) -> list[Followed]:
        folder = tiny_folder(name)
        if planted:
            folder = plant(folder, tmp_path_factory.mktemp("planted") / "model")
        bare = Bare.load(folder, pairs=tiny.ALL[name].pairs)
        return list(follow(bare, name))

    return of


def plant(folder: Path, place: Path) -> Path:
    """Return a copy of a model whose states have outlier dimensions, other ones in layer 1."""
    network = AutoModel.from_pretrained(folder, dtype=torch.float64)
    weights = network.state_dict()
    for name, values in weights.items():
        if name == "embeddings.LayerNorm.bias" or ("layer.0" in name and "LayerNorm.bias" in name):
            values[OUTLIER] += 25  # BERT norms its states
        elif "layer.1" in name and "LayerNorm.bias" in name:
            values[[OUTLIER, OTHER]] += 25
        elif name in {"wte.weight", "embed_tokens.weight"}:
            values[:, OUTLIER] += 400
    network.save_pretrained(place)
    AutoTokenizer.from_pretrained(folder).save_pretrained(place)
    return place


def follow(bare: Bare, name: str) -> Iterator[Followed]:
    """The tokens of every sentence, in every state."""
    raw = raw_table(bare)
    pairs = [tuple(Given(text, words_of(text)) for text in pair) for pair in treebank.PAIRS]
    inputs = pairs if tiny.ALL[name].pairs else [(given(tree),) for tree in TREES]
    for number, sides in enumerate(inputs, start=1):
        texts = bare.texts(*sides)
        rows = [[token.id for token in text.tokens] for text in texts]
        tables = [originals(bare, rows, side) if len(SPACES[name]) > 1 else None
                  for side in range(len(rows))]  # fmt: skip
        for stack, path in paths(bare, rows).items():
            side = int(stack in {"decoder", "cross"})
            text: Text = texts[side]
            members = classes(text)
            for (layer, state), vectors in path.states.items():
                for i, token in enumerate(text.tokens):
                    earlier = path.states.get((layer - 1, state), path.start)
                    other = companion(text, i)
                    table: Floats | None = tables[side]
                    flat = {"": raw[None, :0], "raw": raw[None], "positional": table}
                    at = {}
                    for space, each in flat.items():
                        if each is not None:
                            here = np.broadcast_to(each, (len(text.tokens), *each.shape[1:]))
                            at[space] = At(
                                vectors[i], path.start[i], here[i], token.id, earlier[i],
                                None if other is None else (vectors[other], here[other]),
                            )  # fmt: skip
                    yield Followed(number, stack, i, layer, state, members[i], at)


def words_of(text: str) -> list[Word]:
    """Words of the pairs: runs of letters, or single marks."""
    return [Word(m.start(), m.end(), "", None, "") for m in re.finditer(r"\w+|[^\w\s]", text)]


@pytest.mark.parametrize("name", METRICS)
def test_every_token_metric_has_a_naive_twin(name: str) -> None:
    assert name in NAIVE_TOKENS, f"define '{name}' in tests/naive/naive_tokens.py"


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("family", tiny.by_level(SPACES))
def test_tokens_and_their_averages_equal_the_naive_computation(
    family: str,
    name: str,
    study: Callable[[str], Study],
    followed: Callable[[str], list[Followed]],
) -> None:
    tolerance = 1e-5 if family in SINGLE else 1e-9
    spaces = [s for s in SPACES[family] if s in METRICS[name].spaces] or [""]
    values = {
        (each.number, each.stack, each.position, each.layer, each.state, space): NAIVE_TOKENS[name](
            each.at[space]
        )
        for each in followed(family)
        for space in spaces
    }
    rows = study(family).tokens
    rows = rows[rows["metric"] == name]
    columns = ("sentence", "stack", "position", "layer", "state", "space")
    where = list(zip(*(rows[column] for column in columns), strict=True))
    assert len(where) == len(values)
    wanted = np.array([values[each] for each in where])
    np.testing.assert_allclose(rows["value"].to_numpy(float), wanted, rtol=0, atol=tolerance)
    check_averages(study(family), family, name, followed(family), values)


def check_averages(
    found: Study,
    family: str,
    name: str,
    tokens: list[Followed],
    values: dict[tuple[int, str, int, int, str, str], float],
) -> None:
    """The layer table holds the averages of every class, with their intervals."""
    transform = AVERAGED.get(name, float)
    n_sentences = max(token.number for token in tokens)
    parts: dict[tuple[str, int, str], list[Part]] = defaultdict(
        lambda: [Part(0, 0, 0)] * n_sentences
    )
    for (number, stack, position, layer, state, space), value in values.items():
        members = next(
            token.classes
            for token in tokens
            if (token.number, token.stack, token.position) == (number, stack, position)
        )
        for label in members:
            cell = parts[stack, layer, "/".join(filter(None, (state, space, label)))]
            n, d, events = cell[number - 1]
            if not math.isnan(value):
                cell[number - 1] = Part(n + transform(value), d + 1, events + 1)
    rows = found.layers[found.layers["metric"] == name]
    rows = rows[~rows["label"].str.endswith(NO_OUTLIERS)]
    assert {label.rpartition("/")[2] for label in rows["label"]} == set(CLASSES)
    tolerance = 1e-5 if family in SINGLE else 1e-9
    for row in rows.to_dict("records"):
        cell = parts.get((row["stack"], row["layer"], row["label"]), [])
        wanted = ratio(cell, METRICS[name].limits, METRICS[name].spread(row["label"]))
        assert row["value"] == pytest.approx(wanted.value, abs=tolerance, nan_ok=True)
        assert row["low"] == pytest.approx(wanted.low, abs=1e-5, nan_ok=True)
        assert row["high"] == pytest.approx(wanted.high, abs=1e-5, nan_ok=True)
        assert (row["n_sentences"], row["n_observations"]) == (wanted.sentences, wanted.events)


def outliers_by_state(tokens: list[Followed]) -> dict[tuple[str, int, str], Outliers]:
    """The outlier dimensions of every state of a model, and those of the state before it."""
    inside = [token for token in tokens if "all" in token.classes]
    vectors: dict[tuple[str, int, str], list[Floats]] = defaultdict(list)
    for token in inside:
        at = next(iter(token.at.values()))
        vectors[token.stack, token.layer, token.state].append(at.state)
        if token.layer == 0:
            vectors[token.stack, -1, token.state].append(at.start)
    found = {place: outlier_dimensions(each) for place, each in vectors.items()}
    return {
        (stack, layer, state): Outliers(found[stack, layer, state], found[stack, layer - 1, state])
        for stack, layer, state in found
        if layer >= 0
    }


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
def test_averages_without_outlier_dimensions_equal_the_naive_computation(
    family: str, study: Callable[..., Study], followed: Callable[..., list[Followed]]
) -> None:
    tokens, found = followed(family, planted=True), study(family, planted=True)
    tolerance = 1e-5 if family in SINGLE else 1e-9
    outliers, means = outliers_by_state(tokens), found.corpus_sums.state_means
    for (stack, layer, state), lacking in outliers.items():
        assert [*means[stack].outliers(layer, ResidualPoint(state))] == lacking.here
    assert sum(OUTLIER in lacking.here for lacking in outliers.values()) >= len(outliers) / 2
    layers = found.layers
    for name in REDUCED:
        space = next((s for s in SPACES[family] if s in METRICS[name].spaces), "")
        values = defaultdict(list)
        for token in tokens:
            if "all" in token.classes:
                place = (token.stack, token.layer, token.state)
                value = without(token.at[space], outliers[place], NAIVE_TOKENS[name])
                values[place].append(AVERAGED.get(name, float)(value))
        rows = layers[(layers["metric"] == name) & layers["label"].str.endswith(NO_OUTLIERS)]
        averages = {
            (row["stack"], row["layer"], row["label"].partition("/")[0]): row["value"]
            for row in rows[rows["value"].notna()].to_dict("records")
        }
        assert set(rows["label"].str.count("/")) == {2 if space else 1}
        assert averages.keys() == values.keys()
        for place, of_tokens in values.items():
            assert averages[place] == pytest.approx(np.mean(of_tokens), abs=tolerance)


def test_batches_change_no_outlier_dimension_and_no_average(study: Callable[..., Study]) -> None:
    whole, single = study("bert", planted=True), study("bert", planted=True, batch_tokens=1)
    assert not whole.outliers.empty
    pd.testing.assert_frame_equal(whole.outliers, single.outliers, rtol=1e-9, atol=1e-9)
    pd.testing.assert_frame_equal(whole.layers, single.layers, rtol=1e-9, atol=1e-9)


def test_without_outlier_dimensions_an_average_is_that_of_all_dimensions(
    study: Callable[..., Study],
) -> None:
    found = study("bert")
    means = found.corpus_sums.state_means["self"]
    assert not any(means.outliers(layer, state) for layer, state in product(range(2), PATH_STATES))
    for name in REDUCED:
        of_metric = found.layers[found.layers["metric"] == name].set_index(["layer", "label"])
        for layer, label in of_metric.index:
            if label.endswith(NO_OUTLIERS):
                whole = of_metric.loc[(layer, label.replace(NO_OUTLIERS, "all"))]
                assert of_metric.loc[(layer, label)]["value"] == whole["value"]


@pytest.mark.parametrize("family", ["bert", "llama", "t5"])
def test_nearest_tokens_are_the_head_of_a_full_sort(
    family: str,
    study: Callable[[str], Study],
    followed: Callable[[str], list[Followed]],
    tiny_folder: Callable[[str], Path],
) -> None:
    tokenizer = Bare.load(tiny_folder(family), pairs=tiny.ALL[family].pairs).tokenizer
    roles = ("bos", "eos", "cls", "sep", "pad")
    special = {getattr(tokenizer, f"{role}_token_id") for role in roles}
    space = SPACES[family][0]
    near = study(family).nearest
    near = near[near["space"] != "logits"]  # those of the logit lens: test_lens.py
    assert set(near["space"]) == {space}
    groups = dict(iter(near.groupby(["sentence", "stack", "position", "layer", "state"])))
    assert len(groups) == len(followed(family))
    for each in followed(family):
        rows = groups[each.number, each.stack, each.position, each.layer, each.state]
        found = cosines(each.at[space].state, each.at[space].table)
        best = np.argsort(-found)[:11]
        assert list(rows["rank"]) == list(range(1, 12))
        np.testing.assert_allclose(rows["cosine"].to_numpy(float), found[best], atol=1e-5)
        assert list(rows["neighbour"]) == tokenizer.convert_ids_to_tokens(best.tolist())
        marks = [
            "own" if entry == each.at[space].own else "special" * (entry in special)
            for entry in best.tolist()
        ]
        assert list(rows["mark"]) == marks
