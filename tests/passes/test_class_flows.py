"""Attention between classes of words: as plain loops have it, whatever the batches."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import treebank
from bare_model import Bare, given
from headbook.analysis.intervals import critical_value
from headbook.run.collect import collect
from headbook.study.study import Study, merge
from headbook.study.sums.word_samples import FLOW_CELLS
from headbook.study.token_tables import CLASS_FLOWS
from naive_class_flows import jackknife, shares
from single_head import HeadAttention

Folder = Callable[[str], Path]
OPTIONS: dict[str, Any] = {
    "dtype": "float64",
    "annotator": "none",
    "importance": "off",
    "metrics": "attention_distance",
    "exemplars": 1,
    "sentence_pages": "1",
}


def attentions_of(folder: Path, trees: Sequence[Any]) -> Mapping[Any, Sequence[HeadAttention]]:
    found: dict[tuple[int, int], list[HeadAttention]] = {}
    bare = Bare.load(folder)
    for tree in trees:
        for _, layer, head, attention in bare.looks(given(tree)):
            found.setdefault((layer, head), []).append(attention)
    return found


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_every_share_is_that_of_plain_loops(
    family: str, tiny_folder: Folder, tmp_path: Path
) -> None:
    file = treebank.write_trees(tmp_path / "trees.conllu", treebank.TREES)
    study = collect(file, model=str(tiny_folder(family)), **OPTIONS)
    numbers = study.corpus_sums.class_flows["self"].estimates()
    expected = shares(attentions_of(tiny_folder(family), treebank.TREES))
    assert len(expected) == numbers.share[..., 0].size
    for place, flows in expected.items():
        assert {*flows} == {FLOW_CELLS[n] for n in np.flatnonzero(numbers.mean_share[place] > 0)}
        for name, (own, mean) in flows.items():
            cell = (*place, FLOW_CELLS.index(name))
            assert numbers.share[cell] == pytest.approx(own, abs=1e-9)
            assert numbers.mean_share[cell] == pytest.approx(mean, abs=1e-9)
            assert numbers.ratio[cell] == pytest.approx(own / mean, abs=1e-7)
    assert np.isnan(numbers.low).all()  # too few sentences


def test_intervals_are_close_to_those_of_a_jackknife(tiny_folder: Folder, tmp_path: Path) -> None:
    file = treebank.write_trees(tmp_path / "trees.conllu", treebank.MANY[6:])
    study = collect(file, model=str(tiny_folder("bert")), **OPTIONS)
    numbers = study.corpus_sums.class_flows["self"].estimates()
    attentions = attentions_of(tiny_folder("bert"), treebank.MANY[6:])
    for name in (("DET", "NOUN"), ("VERB", ""), ("", "ADJ")):
        cell = (1, 2, FLOW_CELLS.index(name))
        error = np.log(numbers.high[cell] / numbers.low[cell]) / 2
        error /= critical_value(numbers.sentences[cell])
        assert error == pytest.approx(jackknife(attentions, (1, 2), name), rel=0.1)


def test_any_split_and_any_padding_give_the_same(tiny_folder: Folder, tmp_path: Path) -> None:
    model = str(tiny_folder("bert"))
    parts = [
        treebank.write_trees(tmp_path / f"{name}.conllu", trees)
        for name, trees in (("a", treebank.MANY[:9]), ("b", treebank.MANY[9:]))
    ]
    whole = collect(parts, model=model, **OPTIONS)
    one_by_one = collect(parts, model=model, **OPTIONS, batch_tokens=1)
    studies = [collect(part, model=model, **OPTIONS) for part in parts]
    studies[0].save(tmp_path / "stored")
    merged = merge([Study.load(tmp_path / "stored"), studies[1]])
    for other in (one_by_one, merged):
        pd.testing.assert_frame_equal(other.class_flows, whole.class_flows, rtol=1e-7)
    assert [*whole.class_flows.columns] == [*CLASS_FLOWS.columns]
    assert whole.class_flows["low"].notna().any()
    assert (whole.class_flows["n_sentences"] >= 5).all()


def test_sums_of_one_part_alone_are_dropped(tiny_folder: Folder, tmp_path: Path) -> None:
    """A study of an earlier version has none: those of the other are of half the sentences."""
    studies = []
    for name, trees in (("a", treebank.MANY[:9]), ("b", treebank.MANY[9:])):
        file = treebank.write_trees(tmp_path / f"{name}.conllu", trees)
        studies.append(collect(file, model=str(tiny_folder("bert")), **OPTIONS))
    sums = replace(studies[0].corpus_sums, class_flows={})
    merged = merge([replace(studies[0], corpus_sums=sums), studies[1]])
    assert merged.class_flows.empty


def test_words_without_a_part_of_speech_and_two_texts_have_none(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    (tmp_path / "few.txt").write_text("the dog sees the bird\nthe bird sings\n")
    study = collect(tmp_path / "few.txt", model=str(tiny_folder("bert")), **OPTIONS)
    assert study.class_flows.empty
    pairs = treebank.write_pairs(tmp_path / "pairs.jsonl")
    flows = collect(pairs, model=str(tiny_folder("bart")), **OPTIONS).corpus_sums.class_flows
    assert {*flows} == {"encoder", "decoder"}
