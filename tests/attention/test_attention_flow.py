"""What attention carries from token to token, against plain loops over a bare model."""

from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

import naive_flow
import tiny
import treebank
from bare_model import Bare
from headbook.metrics import all_metrics, flow_metrics
from headbook.run.collect import collect
from headbook.study.study import Study, merge

Folder = Callable[[str], Path]
TREES = (treebank.TREES[0], treebank.TREES[1], treebank.TREES[5])
FAMILIES = ["bert", "gpt2", "llama", "gemma3", "t5", "bart"]
SINGLE = {"llama", "gemma3"}  # softmax in float32 whatever the weights are
METRICS = "sink_share," + ",".join(m.id for m in flow_metrics(all_metrics().values()))


class Naive(NamedTuple):
    """What loops give for a family.

    Attributes:
        values: by metric, sentence, stack, layer and position.
        last: by stack, index of the sentence and kind of rollout.
    """

    values: dict[tuple[str, int, str, int, int], float]
    last: dict[tuple[str, int, str], Any]


def input_file(name: str, folder: Path) -> Path:
    if name in tiny.ALL and tiny.ALL[name].pairs:
        return treebank.write_pairs(folder / "pairs.jsonl")
    return treebank.write_trees(folder / "trees.conllu", TREES)


@pytest.fixture(scope="module")
def study(tiny_folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Study]:
    """A family's study, in float64."""

    @cache
    def of(name: str) -> Study:
        file = input_file(name, tmp_path_factory.mktemp("input"))
        model = str(tiny_folder(name))
        return collect(
            file, model=model, dtype="float64", annotator="none", metrics=METRICS, importance="off"
        )

    return of


@pytest.fixture(scope="module")
def naive(tiny_folder: Folder) -> Callable[[str], Naive]:
    @cache
    def of(name: str) -> Naive:
        pairs = tiny.ALL[name].pairs
        bare = Bare.load(tiny_folder(name), pairs=pairs)
        texts = treebank.PAIRS if pairs else [(treebank.text_of(tree),) for tree in TREES]
        found = Naive({}, {})
        for index, sides in enumerate(texts):
            stacks: dict[str, list[naive_flow.Layer]] = defaultdict(list)
            for layer in naive_flow.layers(bare, bare.ids(*sides)):
                stacks[layer.stack].append(layer)
            for stack, layers in stacks.items():
                fill(found, index, stack, layers)
        return found

    return of


def fill(found: Naive, index: int, stack: str, layers: list[naive_flow.Layer]) -> None:
    """The numbers of one sentence in one stack."""
    half, measured = naive_flow.half(layers), naive_flow.measured(layers)
    for layer, each in enumerate(layers):
        for i, mixing in enumerate(each.mixing):
            place = (index + 1, stack, layer, i)
            found.values["mixing_ratio", *place] = mixing
            found.values["rollout_self", *place] = half[layer][i, i]
            found.values["rollout_self_measured", *place] = measured[layer][i, i]
    found.last[stack, index, "half"] = half[-1]
    found.last[stack, index, "measured"] = measured[-1]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_token_has_the_number_of_the_naive_computation(
    family: str, study: Callable[[str], Study], naive: Callable[[str], Naive]
) -> None:
    rows = study(family).tokens
    where = zip(
        *(rows[c] for c in ("metric", "sentence", "stack", "layer", "position")), strict=True
    )
    found = dict(zip(where, rows["value"], strict=True))
    wanted = naive(family).values
    assert found.keys() == wanted.keys()
    tolerance = 1e-5 if family in SINGLE else 1e-9
    for place, value in wanted.items():
        assert found[place] == pytest.approx(value, abs=tolerance), place
    states = rows.groupby("metric")["state"].agg(set).to_dict()
    assert states == {
        "mixing_ratio": {"mid"},
        "rollout_self": {"out"},
        "rollout_self_measured": {"out"},
    }


@pytest.mark.parametrize("family", ["bert", "bart"])
def test_layers_have_the_mean_over_ordinary_and_over_special_tokens(
    family: str, study: Callable[[str], Study], naive: Callable[[str], Naive]
) -> None:
    found, wanted = study(family), defaultdict(list)
    for (metric, sentence, stack, layer, i), value in naive(family).values.items():
        side = found.manifest.stack(stack).queries
        special = found.sentence_data.sentences[sentence - 1].texts[side].special[i]
        wanted[metric, stack, layer, "special" if special else "all"].append(value)
    rows = found.layers[found.layers["label"].str.endswith(("/all", "/special"))]
    assert len(rows) == len(wanted)
    for row in rows.to_dict("records"):
        values = wanted[row["metric"], row["stack"], row["layer"], row["label"].partition("/")[2]]
        assert row["value"] == pytest.approx(np.mean(values), abs=1e-9)
        assert row["n_observations"] == len(values)


@pytest.mark.parametrize("family", FAMILIES)
def test_last_states_are_stored_in_steps_of_a_byte(
    family: str, study: Callable[[str], Study], naive: Callable[[str], Naive]
) -> None:
    found, wanted = study(family).sentence_data.rollouts, naive(family).last
    assert found.keys() == wanted.keys()
    for place, shares in wanted.items():
        np.testing.assert_allclose(shares.sum(1), 1, atol=1e-5)
        np.testing.assert_allclose(found[place] / 255, shares, atol=0.51 / 255)


def test_a_stored_study_and_one_of_two_parts_keep_rollouts_and_lengths(
    study: Callable[[str], Study], tmp_path: Path
) -> None:
    one = study("bert")
    one.save(tmp_path / "study")
    again = Study.load(tmp_path / "study").sentence_data
    both = merge([one, one]).sentence_data
    n = one.manifest.counts["sentences"]
    for name in ("rollouts", "norms"):
        mine, stored, joined = (getattr(each, name) for each in (one.sentence_data, again, both))
        assert mine.keys() == stored.keys()
        assert len(joined) == 2 * len(mine)
        for (stack, index, *kind), cells in mine.items():
            np.testing.assert_array_equal(cells, stored[stack, index, *kind])
            np.testing.assert_array_equal(cells, joined[stack, index + n, *kind])
    pd.testing.assert_frame_equal(Study.load(tmp_path / "study").layers, one.layers)


def test_listed_sentences_keep_the_lengths_of_values(
    study: Callable[[str], Study], tiny_folder: Folder
) -> None:
    from naive_written_vectors import Written

    bare = Bare.load(tiny_folder("bert"))
    for index, tree in enumerate(TREES):
        with Written(bare.network) as written:
            bare.run(bare.ids(treebank.text_of(tree)))
        found = study("bert").sentence_data.norms["self", index]
        for layer in range(tiny.LAYERS):
            for head in range(tiny.HEADS):
                wanted = written.norms("self", layer, head, tiny.HEADS)
                np.testing.assert_allclose(found[layer, head], wanted, rtol=1e-5)


@pytest.mark.parametrize("family", ["neomme", "xlnet"])
def test_without_values_there_is_rollout_with_one_half_alone(
    family: str, tiny_folder: Folder, tmp_path: Path
) -> None:
    study = collect(
        input_file(family, tmp_path), model=str(tiny_folder(family)), annotator="none",
        metrics=METRICS,
    )  # fmt: skip
    assert set(study.tokens["metric"]) == {"rollout_self"}
    assert {kind for _, _, kind in study.sentence_data.rollouts} == {"half"}
    assert study.sentence_data.norms == {}
    behind = study.layers[study.layers["metric"] != "rollout_self"]
    assert behind.loc[behind["metric"].isin(METRICS.split(",")[1:]), "value"].isna().all()
    (gap,) = (g for g in study.manifest.gaps if g.what == "values and their output projection")
    assert f"'{family}'" in gap.why


def test_cross_attention_has_no_number_and_the_study_says_why(
    study: Callable[[str], Study],
) -> None:
    found = study("bart")
    assert set(found.tokens["stack"]) == {"encoder", "decoder"}
    reported = {g.what for g in found.manifest.gaps if g.stack == "cross"}
    assert {m.title for m in flow_metrics(all_metrics().values())} <= reported


def test_who_asks_for_nothing_gets_nothing(tiny_folder: Folder, tmp_path: Path) -> None:
    study = collect(
        input_file("bert", tmp_path), model=str(tiny_folder("bert")), annotator="none",
        metrics="cosine_to_input",
    )  # fmt: skip
    assert study.sentence_data.rollouts == {}
    assert set(study.tokens["metric"]) == {"cosine_to_input"}
