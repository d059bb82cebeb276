"""Attention along dependencies beyond distance: laws, and each half by the fit of the other."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import treebank
from bare_model import Bare, given
from drawn_maps import Floats
from headbook.analysis.attention_parts import OffsetCounts, expected_by_distance, fitted_offsets
from headbook.metrics.language.dependency_excess import REACH
from headbook.run.collect import collect
from headbook.study.corpus_sums import finish_sampled
from headbook.study.study import Study, merge
from naive_excess import dependency_excess
from naive_ratios import ratio
from single_head import Viewed

pytestmark = pytest.mark.usefixtures("of_any_number")

TREES = treebank.MANY
NAME = "dependency_excess"


def by_distance(rng: np.random.Generator, n: int, logs: Floats) -> Floats:
    """Return a map whose weights depend on distance alone, with a mass for each row."""
    places = np.clip(np.arange(n) - np.arange(n)[:, None], -REACH, REACH) + REACH
    strength = np.exp(logs[places])
    shares: Floats = strength / strength.sum(1, keepdims=True)
    return shares[None]


@pytest.mark.parametrize("spread", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("causal", [False, True])
def test_a_map_by_distance_is_expected_whatever_the_lengths(spread: float, *, causal: bool) -> None:
    """Uniform attention, and weights constant beyond the reach; fitted on other sentences."""
    rng = np.random.default_rng(3)
    logs = rng.normal(0, spread, 2 * REACH + 1)
    counts = []
    for n in rng.integers(1, 40, 50).tolist():
        seen = np.tril(np.ones((n, n), bool), 0 if causal else n)
        attention = by_distance(rng, n, logs) * seen
        attention /= attention.sum(-1, keepdims=True)
        counts.append(OffsetCounts.of(attention, seen, rng.uniform(0, 1, (1, n)), REACH))
    fitted = fitted_offsets(OffsetCounts.together(counts))
    for n in (2, 5, 17, 60):
        seen = np.tril(np.ones((n, n), bool), 0 if causal else n)
        attention = by_distance(rng, n, logs) * seen
        attention /= attention.sum(-1, keepdims=True)
        np.testing.assert_allclose(expected_by_distance(fitted, seen), attention, atol=1e-6)


def collected(folder: Path, model: Path, trees: tuple[tuple[treebank.Gold, ...], ...]) -> Study:
    folder.mkdir()
    file = treebank.write_trees(folder / "trees.conllu", trees)
    return collect(
        file, model=str(model), metrics=NAME, annotator="none", dtype="float64", importance="off"
    )


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_each_half_is_measured_by_the_fit_of_the_other(
    family: str, tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = tiny_folder(family)
    bare, attentions = Bare.load(folder), defaultdict(list)
    for tree in TREES:
        for _, layer, head, attention in bare.looks(given(tree)):
            attentions[layer, head].append(Viewed(attention, "nosink"))
    table = collected(tmp_path / "whole", folder, TREES).heads
    rows = table[table["metric"] == NAME]
    for (layer, head), sentences in attentions.items():
        assert {v.look.half for v in sentences} == {0, 1}
        wanted = ratio([part[""] for part in dependency_excess(sentences)], (-1, 1))
        (row,) = rows[(rows["layer"] == layer) & (rows["head"] == head)].to_dict("records")
        assert row["value"] == pytest.approx(wanted.value, abs=1e-8)
        assert [row["low"], row["high"]] == pytest.approx([wanted.low, wanted.high], abs=1e-6)


def test_parts_of_a_corpus_add_up_with_fits_of_their_own(
    tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    parts = [
        collected(tmp_path / name, tiny_folder("bert"), trees)
        for name, trees in (("one", TREES[:17]), ("other", TREES[17:]))
    ]
    added = finish_sampled(merge(parts).corpus_sums.sampled["self"])
    one, other = (finish_sampled(part.corpus_sums.sampled["self"]) for part in parts)
    np.testing.assert_allclose(added.heads.sums, one.heads.sums + other.heads.sums, atol=1e-12)
