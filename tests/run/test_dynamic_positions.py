"""Frequencies of positions that depend on the longest text of a batch: each text is as if alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bare_model import Bare
from headbook.model.architecture import probe_architecture
from headbook.model.load import load_model
from headbook.passes import self_checks
from headbook.run.collect import collect
from headbook.schema import Side
from headbook.study.sentence_data import UINT8_STEPS
from headbook.study.study import Study
from headbook.text.batch import batches_by_tokens

LIMIT = 16
LONG = "the old fisher sees small dogs , sings and sleeps near the garden house in the water and"
TEXTS = (
    "the cat sees a bird .",
    f"{LONG} the bird runs and the small cat sings .",
    "water !",
    LONG,
    "the cat sees a small bird in the old house near the water .",  # 16 tokens with the first one
    "the dog runs .",
)
ORDERS = {
    "mixed": (0, 1, 2, 3, 4, 5), "longest first": (1, 3, 4, 0, 5, 2), "last": (2, 5, 0, 4, 3, 1),
}  # fmt: skip


@pytest.fixture
def collected(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> Callable[..., Study]:
    def of(name: str, order: tuple[int, ...], **options: Any) -> Study:
        file = tmp_path / "texts.txt"
        file.write_text("\n".join(TEXTS[i] for i in order) + "\n", encoding="utf-8")
        given: dict[str, Any] = {
            "annotator": "none", "dtype": "float64", "metrics": "sink_share", "max_length": 64,
            "importance": "off", "device": "cpu", "language": "none",
        }  # fmt: skip
        return collect(file, model=str(tiny_folder(name)), **given | options)

    return of


def alone(folder: Path, text: str) -> list[Any]:
    """The weights that a fresh model returns for one text."""
    bare = Bare.load(folder, pairs=False)
    output = bare.run(bare.ids(text), output_attentions=True)
    return [weights[0].numpy() for weights in output.attentions]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", ["longrope", "dynamic"])
def test_maps_are_those_of_each_text_alone_in_any_order(
    name: str, order: str, collected: Callable[..., Study], tiny_folder: Callable[[str], Path]
) -> None:
    study = collected(name, ORDERS[order])
    assert study.manifest.failed == ()
    lengths = []
    for (_, index), maps in study.sentence_data.maps.items():
        text = study.sentence_data.sentences[index].texts[Side.SOURCE].text
        lengths.append(maps[0].shape[-1])
        for layer, weights in enumerate(alone(tiny_folder(name), text)):
            assert np.abs(maps[layer] / UINT8_STEPS - weights).max() < 0.6 / UINT8_STEPS
    assert len(lengths) == len(TEXTS)
    assert sum(length > LIMIT for length in lengths) >= 2
    assert sum(length <= LIMIT for length in lengths) >= 3


@pytest.mark.parametrize("name", ["longrope", "dynamic"])
def test_numbers_do_not_depend_on_the_order(name: str, collected: Callable[..., Study]) -> None:
    tables = [collected(name, order).heads["value"].to_numpy() for order in ORDERS.values()]
    for table in tables[1:]:
        np.testing.assert_allclose(table, tables[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["longrope", "dynamic"])
def test_self_checks_read_the_longest_text(
    name: str, collected: Callable[..., Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[list[int]] = []
    checks = self_checks.self_checks

    def seen(model: Any, architecture: Any, batch: Any, *others: Any) -> Any:
        read.append([item.length for item in batch.items])
        return checks(model, architecture, batch, *others)

    monkeypatch.setattr("headbook.run.collect.self_checks", seen)
    study = collected(name, ORDERS["last"], sentence_pages="1", exemplars=1)
    longest = max(len(TEXTS[1].split()) + 1, 0)
    assert len(read[-1]) == 1
    assert read[-1][0] >= longest
    assert len({check.name for check in study.manifest.checks}) == len(study.manifest.checks)


def test_only_such_models_keep_long_texts_apart(tiny_folder: Callable[[str], Path]) -> None:
    found = {
        name: probe_architecture(load_model(str(tiny_folder(name)), device="cpu")).shared_length
        for name in ("llama", "longrope", "dynamic")
    }
    assert found == {"llama": float("inf"), "longrope": LIMIT, "dynamic": LIMIT}


class _Item:
    """A text of some length."""

    def __init__(self, length: int) -> None:
        self.length, self.lengths = length, (length,)


def test_long_texts_are_batches_of_one() -> None:
    items: Any = [_Item(n) for n in (5, 40, 16, 17, 3, 40)]
    groups = batches_by_tokens(items, 1000, shared_length=16)
    assert [[item.length for item in group] for group in groups] == [[3, 5, 16], [17], [40], [40]]
