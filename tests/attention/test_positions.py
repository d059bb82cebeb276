"""Mean attention by position: as plain loops have it, whatever the batches, stored and merged."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import treebank
from bare_model import Bare, given
from headbook.run.collect import collect
from headbook.schema import AttentionStack, Side
from headbook.study.corpus_sums import PositionSums, kept_positions
from headbook.study.study import Study, merge

Folder = Callable[[str], Path]
Array = NDArray[np.float64]
OPTIONS: dict[str, Any] = {
    "dtype": "float64",
    "annotator": "none",
    "importance": "off",
    "metrics": "attention_distance",
    "exemplars": 1,
    "sentence_pages": "1",
}


def naive(folder: Path, side: int) -> dict[Any, float]:
    """Mean weight by layer, head, query and key: each pair over the sentences that have it."""
    bare = Bare.load(folder)
    cells: dict[Any, list[float]] = {}
    for tree in treebank.TREES:
        for _, layer, head, attention in bare.looks(given(tree)):
            for i, row in enumerate(attention.weights[:side]):
                for j, weight in enumerate(row[:side]):
                    cells.setdefault((layer, head, i, j), []).append(weight)
    return {where: sum(cell) / len(cell) for where, cell in cells.items()}


def positions(study: Study, stack: str = "self") -> PositionSums:
    position_sums = study.corpus_sums.heads[stack].positions
    assert position_sums is not None
    return position_sums


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_the_mean_of_each_cell_is_that_of_plain_loops(
    family: str, tiny_folder: Folder, tmp_path: Path
) -> None:
    """Sentences of 3 to 38 tokens in one padded batch; special tokens on both sides."""
    file = treebank.write_trees(tmp_path / "trees.conllu")
    position_sums = positions(collect(file, model=str(tiny_folder(family)), **OPTIONS))
    wanted = naive(tiny_folder(family), 12)
    assert position_sums.mean.shape == (2, 4, 12, 12)
    assert position_sums.count.max() == len(treebank.TREES)
    for (layer, head, i, j), value in wanted.items():
        assert position_sums.mean[layer, head, i, j] == pytest.approx(value, abs=1e-9)
    there = {(i, j) for _, _, i, j in wanted}
    assert {*zip(*map(tuple, np.nonzero(position_sums.count)), strict=True)} == there


def test_any_split_and_any_padding_give_the_same(tiny_folder: Folder, tmp_path: Path) -> None:
    model = str(tiny_folder("bert"))
    parts = [
        treebank.write_trees(tmp_path / f"{name}.conllu", trees)
        for name, trees in (("a", treebank.TREES[:2]), ("b", treebank.TREES[2:]))
    ]
    whole = positions(collect(parts, model=model, **OPTIONS))
    one_by_one = positions(collect(parts, model=model, **OPTIONS, batch_tokens=1))
    studies = [collect(part, model=model, **OPTIONS) for part in parts]
    studies[0].save(tmp_path / "stored")
    merged = positions(merge([Study.load(tmp_path / "stored"), studies[1]]))
    for other in (one_by_one, merged):
        np.testing.assert_array_equal(other.count, whole.count)
        np.testing.assert_allclose(other.total, whole.total, atol=1e-9)


def test_queries_and_keys_of_two_texts_are_counted_apart(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    """`water` alone is the shorter side of its pair."""
    file = treebank.write_pairs(tmp_path / "pairs.jsonl")
    options = OPTIONS | {"sentence_pages": "all"}
    study = collect(file, model=str(tiny_folder("bart")), **options)
    lengths = [
        [len(s.texts[side].pieces) for side in (Side.TARGET, Side.SOURCE)]
        for s in study.sentence_data.sentences.values()
    ]
    long = [[[q > i and k > j for j in range(12)] for i in range(12)] for q, k in lengths]
    position_sums = positions(study, "cross")
    np.testing.assert_array_equal(position_sums.count, np.sum(long, axis=0))
    # In steps of 1/255, as pages keep them.
    maps = [
        study.sentence_data.maps["cross", index] / 255 for index in study.sentence_data.sentences
    ]
    here = [cells[:, :, 1, 1] for cells, (q, k) in zip(maps, lengths, strict=True) if min(q, k) > 1]
    np.testing.assert_allclose(position_sums.mean[:, :, 1, 1], np.mean(here, axis=0), atol=1 / 255)


def test_a_stack_of_many_heads_keeps_fewer_positions() -> None:
    few, many = (
        AttentionStack(
            "self", 1, (0,), n, n, 8, causal=False, queries=Side.SOURCE, keys=Side.SOURCE
        )
        for n in (23, 24)
    )
    assert [kept_positions(few), kept_positions(many)] == [12, 8]
