"""A study from somebody else is checked on loading: its sums, its manifest, each of its arrays."""

import dataclasses
import hashlib
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from safetensors import safe_open

import grouped_studies
from headbook.cli.main import main
from headbook.errors import StudyError
from headbook.run.collect import collect
from headbook.schema import AttentionStack, Side
from headbook.site.archive import anonymise
from headbook.study.array_checks import check_arrays
from headbook.study.array_rules import RULES
from headbook.study.circuits import COMPOSITION, NUMBER_COLUMNS, SENTENCE_COLUMNS, TEXT_COLUMNS
from headbook.study.manifest import SCHEMA, Manifest
from headbook.study.storage import TABLE_NAMES, PackedArrays, StoredParts, from_layout
from headbook.study.study import Study, merge
from headbook.study.table_checks import table_faults
from sealed_studies import edit_arrays, edit_manifest, reseal

# Hashes take all values, and whether there is a limit nobody knows.
HASHES = ("content_hash", "prints", "text_hash", "pair", "texts")
# Arrays in which NaN says that a number is not known.
GAPS = {
    "corpus_sums/anchors/lift",
    "corpus_sums/anchors/low",  # of heads without an anchor
    "corpus_sums/heads/members/values",
    "corpus_sums/heads/sample/payload",
    "corpus_sums/ablation/changes/embedding",
    "corpus_sums/ablation/changes/state",
    "corpus_sums/ablation/direct",
    "corpus_sums/sampled/stats/payload",
    "corpus_sums/types/squares",
    "corpus_sums/types/total",
}
FILES = ("arrays.safetensors", "tokens.parquet", "nearest.parquet")
Arrays = dict[str, NDArray[Any]]


@pytest.fixture(scope="module")
def study(tiny_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A study with everything: groups, pairs, what is compared, heads taken away."""
    file = grouped_studies.write_rows(tmp_path_factory.mktemp("rows") / "rows.jsonl")
    given: dict[str, Any] = {"control": "shuffled", "importance": "full", "sentence_pages": "2"}
    return collect(file, model=str(tiny_folder("bert")), annotator="none", exemplars=1, **given)


@pytest.fixture(scope="module")
def stored(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored") / "study"
    study.save(folder)
    return folder


@pytest.fixture
def copied(stored: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stored, tmp_path / "study"))


@pytest.fixture(scope="module")
def arrays(stored: Path) -> Arrays:
    with safe_open(stored / "arrays.safetensors", framework="numpy") as file:
        return {name: file.get_tensor(name) for name in [*file.keys()]}


def refusal(folder: Path) -> str:
    """The line with which a study is refused."""
    with pytest.raises(StudyError) as caught:
        Study.load(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(folder))
    return message


def _inside(hint: Any) -> Iterator[Any]:
    yield hint
    for part in get_args(hint):
        yield from _inside(part)


def _array_fields(kind: Any, seen: set[Any]) -> Iterator[tuple[Any, str]]:
    """Fields that are arrays, or mappings of them, in a type and all types in it."""
    if kind in seen or not dataclasses.is_dataclass(kind):
        return
    seen.add(kind)
    for name, hint in get_type_hints(kind).items():
        parts = [*_inside(hint)]
        if any(isinstance(part, type) and issubclass(part, np.generic) for part in parts):
            yield kind, name
        for part in parts:
            yield from _array_fields(part, seen)


def test_every_array_of_a_study_has_a_rule() -> None:
    found = [*_array_fields(StoredParts, set())]
    assert len(found) > 50
    lacking = [(kind.__name__, name) for kind, name in found if name not in RULES.get(kind, {})]
    assert lacking == []


@cache
def layout_and_tables(stored: Path) -> tuple[Any, dict[str, pd.DataFrame]]:
    with safe_open(stored / "arrays.safetensors", framework="numpy") as file:
        layout = json.loads(file.metadata()["layout"])
    return layout, {name: pd.read_parquet(stored / f"{name}.parquet") for name in TABLE_NAMES}


def message_of(arrays: Arrays, stored: Path, name: str, wrong: NDArray[Any]) -> str:
    """The fault that is found where one array is another one; empty if none is."""
    layout, tables = layout_and_tables(stored)
    parts = from_layout(StoredParts, layout, PackedArrays(arrays | {name: wrong}, tables))
    try:
        check_arrays(Manifest.read(stored), parts.sentence_data.sentences, parts)
    except StudyError as error:
        return str(error)
    return ""


def kinds_of(arrays: Arrays) -> Iterator[tuple[str, str, NDArray[Any]]]:
    """Each array with what kind it is of; of many alike, as those of exemplars, the first."""
    seen = set[str]()
    for name, array in arrays.items():
        kind = "/".join(word for word in name.split("/") if not word.isdigit())
        if kind not in seen and array.size:
            seen.add(kind)
            yield kind.removeprefix("study/"), name, array


def test_numbers_that_cannot_be_are_refused_in_each_array(arrays: Arrays, stored: Path) -> None:
    tried = 0
    for kind, name, array in kinds_of(arrays):
        whole = array.dtype.kind in "iu" and array.dtype.itemsize > 1
        no_pair = kind.endswith("links/payload")  # the largest number says so
        if whole and not no_pair and kind.rpartition("/")[2] not in HASHES:
            tried += 1
            most = min(10**9, np.iinfo(array.dtype).max)
            message = message_of(arrays, stored, name, np.full_like(array, most))
            assert "got" in message, name
    assert tried > 20


def test_another_shape_is_refused_in_each_array(arrays: Arrays, stored: Path) -> None:
    tried = 0
    for _, name, array in kinds_of(arrays):
        tried += 1
        assert "got shape" in message_of(arrays, stored, name, array[..., None]), name
    assert tried > 50


def test_nan_is_refused_but_where_it_has_a_meaning(arrays: Arrays, stored: Path) -> None:
    accepted, refused = set[str](), set[str]()
    for kind, name, array in kinds_of(arrays):
        if array.dtype.kind == "f":
            message = message_of(arrays, stored, name, np.full_like(array, np.nan))
            (refused if message else accepted).add(kind.replace("/self", ""))
    assert accepted == GAPS
    assert len(refused) > 20


@pytest.mark.parametrize("name", FILES)
def test_a_study_that_was_changed_says_so(copied: Path, name: str) -> None:
    Study.load(copied)
    data = bytearray((copied / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copied / name).write_bytes(data)
    assert refusal(copied).startswith(f"{copied / name}: changed since the study was saved")


def test_a_manifest_that_was_changed_says_so(copied: Path) -> None:
    file = copied / "manifest.json"
    file.write_text(file.read_text().replace('"seed": 0', '"seed": 1'))
    assert refusal(copied).startswith(f"{file}: changed since the study was saved")


def test_sums_are_those_of_the_files_whatever_made_the_study(
    study: Study, stored: Path, tmp_path: Path
) -> None:
    anonymise(study).save(tmp_path / "anonymous")
    study.save(tmp_path / "other")
    merge([stored, tmp_path / "other"]).save(tmp_path / "merged")
    for folder in (stored, tmp_path / "anonymous", tmp_path / "merged"):
        sums = json.loads((folder / "manifest.json").read_text())["sha256"]
        own = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in FILES}
        assert {name: sums[name] for name in FILES} == own
        Study.load(folder)


def stack(**values: object) -> Callable[[dict[str, Any]], object]:
    """Change the description of the only stack."""
    return lambda table: table["stacks"][0].update(values)


MANIFESTS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a billion layers": (stack(n_layers=10**9), "got shape .*, expected .*layer 1000000000"),
    "a billion heads": (stack(n_heads=10**9), "got shape .*, expected .*head 1000000000"),
    "fewer than no layers": (stack(n_layers=-1), "stacks/self/n_layers: got -1, expected at least"),
    "half a layer": (stack(n_layers=1.5), "n_layers: got 1.5, expected a whole number"),
    "layers without end": (stack(n_layers=10**30), "expected less than"),
    "attention in layers that are not there": (stack(attention_layers=[0, 7]), "layers: got"),
    "a stack that is no object": (lambda t: t.update(stacks=[5]), "stacks/0: got 5, expected"),
    "a stack that no model has": (stack(name="other"), "stacks: got other, expected self or"),
    "no stack": (lambda t: t.update(stacks=[]), "stacks: got none"),
    "a kind of model that is none": (lambda t: t["model"].update(kind="x"), "model/kind: got 'x'"),
    "a title of numbers": (lambda t: t.update(title=5), "title: got 5, expected a text"),
    "half a character": (lambda t: t.update(title="\ud800"), "expected text in UTF-8"),
    "options of other types": (lambda t: t["options"].update(seed=[1]), r"options/seed: got \[1\]"),
    "options that are a list": (lambda t: t.update(options=[]), r"options: got \[\], expected"),
    "fewer than no sentences": (lambda t: t["counts"].update(sentences=-1), "sentences: got -1"),
    "no number of sentences": (lambda t: t["counts"].pop("sentences"), "counts/sentences"),
    "a key too many": (lambda t: t.update(more=1), "expected keys among"),
    "a key too few": (lambda t: t.pop("checks"), "expected checks as well"),
    "one sentence": (lambda t: t["counts"].update(sentences=1), "expected .* to 0"),
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_that_cannot_be_is_one_line_at_once(copied: Path, name: str) -> None:
    edit, message = MANIFESTS[name]
    edit_manifest(copied, edit)
    start = time.monotonic()
    with pytest.raises(StudyError, match=message) as caught:
        Study.load(copied)
    assert time.monotonic() - start < 5
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500 + len(str(copied))


BROKEN = {
    "nested deeply": "[" * 100_000,
    "a list": "[]",
    "null": "null",
    "half an object": '{"schema": 6,',
    "a schema that is an object": '{"schema": {}}',
    "sums that are a list": f'{{"schema": {SCHEMA}, "sha256": []}}',
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_manifest_is_one_line_with_its_folder(
    copied: Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (copied / "manifest.json").write_text(BROKEN[name])
    out = str(copied.parent / "site")
    monkeypatch.setattr(sys, "argv", ["headbook", "render", str(copied), "--out", out])
    with pytest.raises(SystemExit) as stopped:
        main()
    message = capsys.readouterr().err
    assert stopped.value.code == 2
    assert message.startswith(f"headbook: {copied / 'manifest.json'}: ")
    assert message.count("\n") == 1
    assert "Error(" not in message


def test_arrays_of_somebody_else_end_with_one_line(
    copied: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All integers are 10^9, and sums are right."""

    def spoil(found: Arrays) -> None:
        for name, array in found.items():
            if array.dtype.kind in "iu":
                found[name] = np.full_like(array, min(10**9, np.iinfo(array.dtype).max))

    edit_arrays(copied, spoil)
    out = str(copied.parent / "site")
    monkeypatch.setattr(sys, "argv", ["headbook", "render", str(copied), "--out", out])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_tables_of_tokens_are_checked(copied: Path) -> None:
    file = copied / "tokens.parquet"
    table = pd.read_parquet(file)
    for wrong, message in (
        (table.assign(sentence=10**9), "tokens/sentence: got 1e\\+09"),
        (table.assign(layer=-1), "tokens/layer: got -1 in self"),
        (table.assign(stack="other"), "tokens/stack: got other, expected self"),
        (table.drop(columns="value"), "expected the columns of a table of the study"),
        (table.assign(position="one"), "expected numbers"),
    ):
        wrong.to_parquet(file, index=False)
        reseal(copied)
        with pytest.raises(StudyError, match=message):
            Study.load(copied)


def circuits(**columns: Any) -> dict[str, pd.DataFrame]:
    """Return tables of circuits of one row each, with some columns changed."""
    head = {"stack": "self", "layer": 1, "head": 2}
    pair = {"kind": "k", "lower_layer": 0, "lower_head": 1, "value": 0.5, "random": 0.1, "rank": 1}
    rows: dict[str, dict[str, Any]] = {
        "numbers": head | {"metric": "copy_rate", "label": "", "value": 0.5},
        "composition": head | pair,
        "sentences": {"sentence": 1, "text": "A dog", "starts": [0, 2], "ends": [1, 5]},
    }
    names = {"numbers": NUMBER_COLUMNS, "composition": [*COMPOSITION.columns],
             "sentences": SENTENCE_COLUMNS}  # fmt: skip
    tables = {}
    for name, row in rows.items():
        changed = {key: value for key, value in columns.items() if key in row}
        empty = {column: "" if column in TEXT_COLUMNS else np.nan for column in names[name]}
        tables[name] = pd.DataFrame([empty | row | changed])[[*names[name]]]
    return tables


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("numbers", "stack", "other"), ("numbers", "metric", "copy_rat"), ("numbers", "head", 3),
        ("numbers", "head", -1), ("numbers", "layer", 2), ("numbers", "layer", 0.5),
        ("numbers", "label", 5), ("numbers", "value", "much"), ("composition", "head", -1),
        ("composition", "lower_head", 3), ("composition", "lower_layer", -1),
        ("sentences", "ends", "15"), ("sentences", "ends", ["1", "5"]),
        ("sentences", "ends", [1, 6]), ("sentences", "starts", [-1, 2]),
        ("sentences", "ends", [1]), ("sentences", "starts", [2, 6]), ("sentences", "sentence", 9),
    ],
)  # fmt: skip
def test_tables_of_circuits_are_checked(table: str, column: str, value: Any) -> None:
    stacks = {"self": AttentionStack("self", 2, (0, 1), 3, 3, 4, False, Side.SOURCE, Side.SOURCE)}

    def faults(**columns: Any) -> dict[str, list[str]]:
        return {
            name: [fault[0] for fault in table_faults(
                frame, stacks, {"copy_rate"}.__contains__, n_sentences=4, n_tokens=16
            )]
            for name, frame in circuits(**columns).items()
        }  # fmt: skip

    assert not any(faults().values())
    assert faults(**{column: value})[table][:1] in ([column], ["ends"])


def test_numbers_of_a_metric_that_nobody_knows_are_refused(stored: Path, arrays: Arrays) -> None:
    with safe_open(stored / "arrays.safetensors", framework="numpy") as file:
        layout = file.metadata()["layout"].replace('"sink_share"', '"sink_shape"')
    tables = {name: pd.read_parquet(stored / f"{name}.parquet") for name in TABLE_NAMES}
    parts = from_layout(StoredParts, json.loads(layout), PackedArrays(arrays, tables))
    with pytest.raises(StudyError, match="columns: got sink_shape, expected metrics"):
        check_arrays(Manifest.read(stored), parts.sentence_data.sentences, parts)
