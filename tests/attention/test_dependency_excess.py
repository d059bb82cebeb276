"""Attention along dependencies beyond parts of speech and distance: cells with enough pairs."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import treebank
from bare_model import Bare, given
from headbook.run.collect import collect
from headbook.study.corpus_sums import finish_sampled
from headbook.study.study import Study, merge
from headbook.study.sums import word_samples
from naive import dependency_excess
from naive_ratios import ratio
from single_head import Viewed

pytestmark = pytest.mark.usefixtures("of_any_number")

LEAST = 4  # pairs of a cell, so that most cells of the small corpus have enough
TREES = treebank.MANY
NAME = "dependency_excess"


def collected(folder: Path, model: Path, trees: tuple[tuple[treebank.Gold, ...], ...]) -> Study:
    folder.mkdir()
    file = treebank.write_trees(folder / "trees.conllu", trees)
    return collect(
        file, model=str(model), metrics=NAME, annotator="none", dtype="float64", importance="off"
    )


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_cells_with_enough_pairs_have_their_own_mean(
    family: str, tiny_folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the corpus is measured at once or in two parts that are added up."""
    monkeypatch.setattr(word_samples, "MIN_CELL_PAIRS", LEAST)
    folder = tiny_folder(family)
    bare, attentions = Bare.load(folder), defaultdict(list)
    for tree in TREES:
        for _, layer, head, attention in bare.looks(given(tree)):
            attentions[layer, head].append(Viewed(attention, "nosink"))
    whole = collected(tmp_path / "whole", folder, TREES)
    one, other = (
        collected(tmp_path / name, folder, trees)
        for name, trees in (("one", TREES[:17]), ("other", TREES[17:]))
    )
    table = whole.heads
    by_distance = []
    for (layer, head), sentences in attentions.items():
        parts = dependency_excess(sentences, LEAST)
        for label in ("surface", "distance"):
            wanted = ratio([part[label] for part in parts], (-1, 1))
            rows = table[(table["metric"] == NAME) & (table["label"] == label)]
            (row,) = rows[(rows["layer"] == layer) & (rows["head"] == head)].to_dict("records")
            assert row["value"] == pytest.approx(wanted.value, abs=1e-9)
            assert [row["low"], row["high"]] == pytest.approx([wanted.low, wanted.high], abs=1e-6)
        coarse = ratio([p["surface"] for p in dependency_excess(sentences, 10**9)], (-1, 1))
        by_distance.append(ratio([p["surface"] for p in parts], (-1, 1)).value - coarse.value)
    assert np.abs(by_distance).max() > 1e-3  # parts of speech matter here
    added = finish_sampled(merge([one, other]).corpus_sums.sampled["self"])
    at_once = finish_sampled(whole.corpus_sums.sampled["self"])
    np.testing.assert_allclose(added.heads.sums, at_once.heads.sums, atol=1e-9)
    np.testing.assert_allclose(added.uniform.sums, at_once.uniform.sums, atol=1e-9)
