"""Heads taken away from Python: the table, and one line for what does not fit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headbook
import tiny
import treebank
from headbook.errors import ConfigError, HeadbookError

COLUMNS = [
    "heads", "replacement", "target", "value", "low", "high", "full",
    "interaction", "interaction_low", "interaction_high", "n_sentences", "n_observations",
]  # fmt: skip
pytestmark = pytest.mark.usefixtures("of_any_number")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    def of(family: str) -> Path:
        return tiny.write(family, tmp_path_factory.mktemp("model") / family, head=True)

    return of


@pytest.fixture(scope="module")
def gpt2(folder: Callable[[str], Path]) -> str:
    return str(folder("gpt2"))


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("input") / "texts.txt"
    file.write_text(
        "".join(
            f"the {word} sees a small bird .\n"
            for word in ("cat", "dog", "old fisher", "bird", "house", "water")
        )
    )
    return file


def test_a_row_for_each_set_and_target(gpt2: str, texts: Path) -> None:
    heads: Any = ["L0-H1", (1, 3), ["L0-H1", "self-L1-H3"]]
    frame = headbook.ablate(texts, gpt2, heads=heads, replacement="zero", dtype="float64")
    assert [*frame] == COLUMNS
    assert [*frame["heads"]] == 2 * ["self-L0-H1", "self-L1-H3", "self-L0-H1 self-L1-H3"]
    assert [*frame["target"]] == 3 * ["loss"] + 3 * ["kl"]
    kl, loss = frame[frame["target"] == "kl"], frame[frame["target"] == "loss"]
    assert (kl["value"] > 0).all()
    assert (kl["low"] >= 0).all()
    assert (frame["low"] <= frame["value"]).all()
    assert (frame["value"] <= frame["high"]).all()
    assert loss["full"].nunique() == 1
    assert (loss["full"] > 1).all()
    assert kl["full"].isna().all()
    assert set(frame["n_sentences"]) == {6}


def test_another_tokenizer_reads_the_texts(
    gpt2: str, folder: Callable[[str], Path], texts: Path
) -> None:
    """Pieces of words in place of bytes: other tokens are scored."""
    own = headbook.ablate(texts, gpt2, heads=["L0-H1"], replacement="zero")
    other = headbook.ablate(
        texts, gpt2, heads=["L0-H1"], replacement="zero", tokenizer=str(folder("opt"))
    )
    assert set(own["n_observations"]) != set(other["n_observations"])


def test_fewer_sentences_are_those_of_the_smallest_hashes(gpt2: str, texts: Path) -> None:
    """Whatever the order of the file."""
    turned = texts.with_name("turned.txt")
    turned.write_text("\n".join(reversed(texts.read_text().splitlines())) + "\n")
    one, other = (
        headbook.ablate(file, gpt2, heads=["L1-H0"], sentences=4, dtype="float64")
        for file in (texts, turned)
    )
    assert set(one["n_sentences"]) == {4}
    for column in ("value", "low", "high", "full"):
        np.testing.assert_allclose(one[column], other[column], rtol=1e-9)


@pytest.mark.parametrize(
    ("family", "head", "target"),
    [
        ("bert", "L1-H0", "masked_loss"),
        ("bart", "cross-L0-H2", "loss"),
        ("albert", "L1-H1", "masked_loss"),
        ("t5", "encoder-L0-H0", "loss"),
    ],
)
def test_other_kinds_of_models(
    family: str, head: str, target: str, folder: Callable[[str], Path], texts: Path
) -> None:
    pairs = family in {"bart", "t5"}
    file = treebank.write_pairs(texts.with_name("pairs.jsonl")) if pairs else texts
    frame = headbook.ablate(file, str(folder(family)), heads=[head])
    assert [*frame["target"]] == [target, "kl"]
    assert (frame["value"].abs() > 0).all()


@pytest.mark.parametrize(
    ("heads", "replacement", "message"),
    [
        (
            ["L9-H1"],
            "mean",
            r"heads: got 'L9-H1', expected heads up to self-L1-H3, counted from 0",
        ),
        (["nonsense"], "mean", "heads: got 'nonsense'"),
        ([(0, 4)], "mean", r"heads: got \(0, 4\)"),
        (["L0-H0"], "nothing", "replacement: got 'nothing', expected one of mean, zero,"),
    ],
)
def test_what_does_not_fit_is_one_line(
    heads: Any, replacement: str, message: str, gpt2: str, texts: Path
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        headbook.ablate(texts, gpt2, heads=heads, replacement=replacement)
    assert isinstance(error.value, HeadbookError)
    assert "\n" not in str(error.value)
