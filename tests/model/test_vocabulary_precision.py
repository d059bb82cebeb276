"""A coarser product with the vocabulary: only where it is asked for, and its effect is measured."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import treebank
from headbook.errors import ConfigError
from headbook.model.vocabulary import VocabularyEmbeddings
from headbook.pages.methods_parts.rules import rules
from headbook.run.collect import collect
from headbook.schema import EmbeddingSpace
from headbook.study.manifest import Rounding
from headbook.study.study import Study, merge
from headbook.text.batch import PaddedTexts
from layers import Marks

Folder = Callable[[str], Path]
TREES = treebank.TREES[:3]  # fewer tokens than the self-checks take


def study(folder: Path, place: Path, **options: Any) -> Study:
    """A study of a few sentences."""
    file = treebank.write_trees(place / "trees.conllu", TREES)
    return collect(file, model=str(folder), annotator="none", metrics="vocabulary_rank", **options)


def test_the_product_is_taken_in_the_format_that_was_asked_for() -> None:
    torch.manual_seed(3)
    words, states = torch.randn(300, 24), torch.randn(1, 1, 5, 24)
    texts = PaddedTexts.of([Marks(5, ids=[0, 4, 2, 9, 7]).tokens()], torch.device("cpu"))
    comparison = VocabularyEmbeddings(words, coarse=torch.bfloat16).compare(
        states, texts, EmbeddingSpace.RAW, 300
    )
    unit = (states[0, 0] / states[0, 0].norm(dim=-1, keepdim=True)).bfloat16()
    wanted = (unit @ words.bfloat16().T).float() / words.norm(dim=1)
    torch.testing.assert_close(comparison.cosines[0, 0], wanted.sort(descending=True).values)
    exact = VocabularyEmbeddings(words).compare(states, texts, EmbeddingSpace.RAW, 300)
    assert not torch.allclose(comparison.cosines, exact.cosines, atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_the_manifest_counts_the_ranks_that_change(
    family: str, tiny_folder: Folder, tmp_path: Path
) -> None:
    exact = study(tiny_folder(family), tmp_path)
    coarse = study(tiny_folder(family), tmp_path, vocabulary_precision="bfloat16")
    assert exact.manifest.roundings == ()
    spaces = set(coarse.tokens["space"])
    assert {r.space for r in coarse.manifest.roundings} == spaces
    for rounding in coarse.manifest.roundings:
        one, other = (
            s.tokens[s.tokens["space"] == rounding.space]["value"].to_numpy(float)
            for s in (exact, coarse)
        )
        assert rounding.states == len(one)
        assert rounding.changed == int((one != other).sum()) > 0
        assert rounding.largest == int(np.abs(one - other).max())


def test_the_methods_page_prints_the_effect_and_stored_studies_keep_it(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    found = study(tiny_folder("gpt2"), tmp_path, vocabulary_precision="bfloat16")
    found.save(tmp_path / "study")
    stored = Study.load(tmp_path / "study")
    manifest = stored.manifest
    assert manifest.roundings == found.manifest.roundings
    first = manifest.roundings[-1]
    text = dict(rules(stored))["Precision"]
    assert "bfloat16" in text
    assert f"Of {first.states:,} ranks" in text
    assert text.endswith(f"largest difference: {first.largest:,}.")


def test_studies_that_add_up_add_their_effects(tiny_folder: Folder, tmp_path: Path) -> None:
    one = study(tiny_folder("gpt2"), tmp_path, vocabulary_precision="bfloat16")
    (first, _) = one.manifest.roundings
    (both, _) = merge([one, one]).manifest.roundings
    assert both == Rounding(
        first.side, first.space, 2 * first.states, 2 * first.changed, first.largest
    )


def test_a_run_in_double_precision_stays_so(tiny_folder: Folder, tmp_path: Path) -> None:
    basic = study(tiny_folder("bert"), tmp_path, dtype="float64")
    asked = study(tiny_folder("bert"), tmp_path, dtype="float64", vocabulary_precision="bfloat16")
    assert asked.manifest.roundings == ()
    assert basic.tokens.equals(asked.tokens)


def test_an_unknown_format_is_known(tiny_folder: Folder, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="vocabulary_precision: got 'int8', expected one of"):
        study(tiny_folder("bert"), tmp_path, vocabulary_precision="int8")
