"""A study survives the disk unchanged, and two halves of a corpus add to the whole."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import safe_open

import headbook
from headbook.cli.main import main
from headbook.errors import OutputError, StudyError
from headbook.run.collect import collect
from headbook.schema import NO_OUTLIERS, Side
from headbook.study.manifest import Manifest
from headbook.study.storage import PackedArrays, arrays, from_layout, to_layout
from headbook.study.study import Study, merge
from machine import small_files
from treebank import write_trees

PEAK = """
import sys
from pathlib import Path
from headbook.study.storage import arrays, write_arrays
def peak():  # of this program; usage would tell that of the one that began it, too
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
before = peak()
found = arrays(Path(sys.argv[1]))
read = peak()
write_arrays(Path(sys.argv[1] + " again"), found, "")
size = sum(array.nbytes for array in found.values()) / 1024
print((read - before) / size, (peak() - before) / size)
"""
FRAMES = ("heads", "layers", "controls", "tokens", "nearest")
METRICS = "attention_to,pos_received,cosine_to_input,vocabulary_rank,nearest_tokens"
# The last sentence of the first file comes again in the second.
FIRST = ("She gave the old book to her brother.", "Nobody expected rain.", "The cat sat down.")
SECOND = ("Two dogs barked at three cats!", "The cat sat down.")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "first.txt").write_text("\n".join((*FIRST, "", "")))
    rows = [{"text": text, "id": f"s-{n}", "genre": "test"} for n, text in enumerate(SECOND)]
    (folder / "second.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "first.txt", folder / "second.jsonl"


@pytest.fixture(scope="module")
def first(files: tuple[Path, Path]) -> Study:
    return collect(files[0], model="demo", metrics=METRICS, importance="off", circuits="off")


@pytest.fixture(scope="module")
def second(files: tuple[Path, Path]) -> Study:
    return collect(files[1], model="demo", metrics=METRICS, importance="off", circuits="off")


@pytest.fixture(scope="module")
def whole(files: tuple[Path, Path]) -> Study:
    return collect(files, model="demo", metrics=METRICS, importance="off", circuits="off")


@pytest.fixture(scope="module")
def stored(first: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored") / "study"
    first.save(folder)
    return folder


@pytest.fixture
def copied(stored: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stored, tmp_path / "study"))


def test_a_study_is_three_lines_of_text(whole: Study) -> None:
    model, sentences, made = repr(whole).splitlines()
    assert model == "Study of all-MiniLM-L6-v2 (encoder-only): self 6 × 12 heads"
    assert sentences == "5 sentences of first.txt, second.jsonl"
    assert made.startswith(f"collected {whole.manifest.created} by Headbook ")
    assert made.endswith("float32 on cpu")
    inputs = whole.manifest.inputs * 3
    more = replace(whole, manifest=replace(whole.manifest, inputs=inputs))
    assert "first.txt, second.jsonl, first.txt and 3 more" in str(more)


def test_the_package_lists_its_public_names_alone() -> None:
    assert dir(headbook) == sorted(headbook.__all__)
    assert all(hasattr(headbook, name) for name in dir(headbook))


def exemplars(study: Study) -> list[tuple[object, ...]]:
    return [
        (e.head, e.ranking, e.rank, e.index, e.query, e.key) for e in study.sentence_data.exemplars
    ]


def test_a_study_holds_what_was_asked_for(whole: Study) -> None:
    assert set(whole.heads["metric"]) == {"attention_to", "pos_received"}
    assert set(whole.tokens["metric"]) == {"cosine_to_input", "vocabulary_rank", "nearest_tokens"}
    assert sorted(whole.tokens["sentence"].unique()) == [1, 2, 3, 4, 5]
    assert whole.manifest.counts["sentences"] == 5
    assert [(f.name, f.sentences, f.blank) for f in whole.manifest.inputs] == [
        ("first.txt", 3, 1),
        ("second.jsonl", 2, 0),
    ]
    assert whole.sentence_data.sentences[3].id == "s-0"
    assert whole.sentence_data.sentences[3].metadata == {"genre": "test"}
    assert whole.manifest.checks
    assert all(check.passed for check in whole.manifest.checks)


def test_a_loaded_study_equals_the_saved_one(first: Study, stored: Path) -> None:
    loaded = Study.load(stored)
    assert equal(loaded.sentence_data, first.sentence_data)
    assert equal(loaded.corpus_sums, first.corpus_sums)
    for name in FRAMES:
        pd.testing.assert_frame_equal(getattr(loaded, name), getattr(first, name))
    assert loaded.manifest == Manifest.from_json(first.manifest.to_json())
    assert loaded.manifest.to_json() == first.manifest.to_json()


def equal(one: Any, other: Any) -> bool:
    """Whether two values made of dataclasses, mappings, tuples and arrays are the same."""
    if isinstance(one, np.ndarray):
        same = np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
        return same and one.dtype == other.dtype
    if isinstance(one, pd.DataFrame):
        return one.reset_index(drop=True).equals(other)
    if is_dataclass(one):
        return type(one) is type(other) and equal(vars(one), vars(other))
    if isinstance(one, Mapping):
        return [*one] == [*other] and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    missing = isinstance(one, float) and np.isnan(one)  # a margin that was not asked for
    return bool(np.isnan(other) if missing else one == other)


class Place(NamedTuple):
    """A key of two parts."""

    stack: str
    sentence: int


@dataclass(frozen=True)
class Held:
    """Every kind of value that a study holds, one inside the other."""

    by_place: Mapping[Place, NDArray[Any]]
    by_side: Mapping[Side, tuple[tuple[int, int], ...]]
    by_index: Mapping[int, "Held | None"]
    table: pd.DataFrame
    number: NDArray[np.float64]


def test_values_of_every_kind_are_packed_and_an_array_once(tmp_path: Path) -> None:
    """Also one that stands in several places, and arrays without elements or dimensions."""
    array, none = np.arange(6.0).reshape(2, 3), np.zeros((2, 0), np.uint8)
    tokens, number = pd.DataFrame({"token": ["a", "ç"]}), np.array(0.5)
    places = {Place("self", 1): array, Place("cross", 0): array, Place("cross", 2): none}
    held = Held(places, {Side.TARGET: ((0, 2), (3, 4))}, {7: None}, tokens, number)
    packed = PackedArrays()
    layout = json.loads(json.dumps(to_layout(held, "a", packed)))
    assert [*packed.arrays] == ["a/by_place/self/1", "a/by_place/cross/2", "a/number"]
    safetensors.numpy.save_file(packed.arrays, tmp_path / "arrays")
    arrays = safetensors.numpy.load_file(tmp_path / "arrays")
    again = from_layout(Held, layout, PackedArrays(arrays, packed.tables))
    assert equal(again, held)
    assert again.by_place["self", 1] is again.by_place["cross", 0]
    assert {type(key) for key in (*again.by_place, *again.by_side)} == {Place, Side}


def test_a_study_saved_again_has_the_same_bytes(stored: Path, tmp_path: Path) -> None:
    Study.load(stored).save(tmp_path / "again")
    for file in stored.iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes(), file.name


def test_fits_are_stored_and_made_again_where_they_are_not(
    tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    """Older versions have stored none; in a study of two they are of the sentences of both."""
    file = write_trees(tmp_path / "trees.conllu")
    model, some = str(tiny_folder("bert")), "pattern,variability"
    fresh = collect(file, model=model, metrics=some, annotator="none", importance="off")
    fresh.save(tmp_path / "study")
    loaded = Study.load(tmp_path / "study")
    assert loaded.stored_sampled is not None
    columns = {column.metric for column in loaded.stored_sampled["self"].columns}
    assert columns == {"pattern", "variability"}
    pd.testing.assert_frame_equal(loaded.heads, fresh.heads)
    pd.testing.assert_frame_equal(replace(loaded, stored_sampled=None).heads, fresh.heads)
    both = merge([loaded, loaded])
    assert both.stored_sampled is None
    assert (both.heads["n_sentences"] >= fresh.heads["n_sentences"]).all()


def test_two_halves_add_to_what_both_files_give_at_once(
    first: Study, second: Study, whole: Study
) -> None:
    """Numbers differ by rounding alone: sentences were batched differently."""
    merged = merge([first, second])
    for name in FRAMES:
        added, at_once = (getattr(study, name) for study in (merged, whole))
        if name == "layers":  # each part leaves out outlier dimensions of its own
            both = [of[~of["label"].str.contains(NO_OUTLIERS)] for of in (added, at_once)]
            assert len(both[0]) < len(added)
            assert any("outlier dimensions" in text for text in merged.manifest.pooled)
            added, at_once = (of.reset_index(drop=True) for of in both)
        pd.testing.assert_frame_equal(added, at_once, rtol=1e-4, atol=1e-5)
    assert merged.manifest.counts == whole.manifest.counts
    assert merged.manifest.inputs == whole.manifest.inputs
    assert merged.sentence_data.sentences == whole.sentence_data.sentences
    assert exemplars(merged) == exemplars(whole)
    assert merged.sentence_data.maps.keys() == whole.sentence_data.maps.keys()
    for place, cells in whole.sentence_data.maps.items():
        assert abs(merged.sentence_data.maps[place].astype(int) - cells).max() <= 1


def test_stored_halves_add_like_fresh_ones(
    first: Study, second: Study, stored: Path, tmp_path: Path
) -> None:
    second.save(tmp_path / "second")
    merged = merge([Study.load(stored), Study.load(tmp_path / "second")])
    for name in FRAMES:
        pd.testing.assert_frame_equal(getattr(merged, name), getattr(merge([first, second]), name))


def test_the_command_merges_stored_parts_in_their_order(
    first: Study, second: Study, stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second.save(tmp_path / "second")
    merge([first, second]).save(tmp_path / "wanted")
    out = tmp_path / "merged"
    arguments = [str(stored), str(tmp_path / "second"), "--out", str(out), "--accept-failed-checks"]
    monkeypatch.setattr("sys.argv", ["headbook", "merge", *arguments])
    main()
    names = sorted(file.name for file in (tmp_path / "wanted").iterdir())
    assert names == sorted(file.name for file in out.iterdir())
    for name in names:
        assert (out / name).read_bytes() == (tmp_path / "wanted" / name).read_bytes(), name


@pytest.mark.parametrize(
    ("others", "message"),
    [([], "got 1, expected"), (["study"], "got this study twice"), (["x"], "manifest")],
)
def test_what_cannot_be_merged_is_refused_in_one_line(
    copied: Path, others: list[str], message: str
) -> None:
    with pytest.raises(StudyError, match=message) as caught:
        merge([copied, *(copied.parent / name for name in others)])
    assert "\n" not in str(caught.value)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def edit(file: Path, **values: object) -> None:
    table = json.loads(file.read_text())
    file.write_text(json.dumps({**table, **values}))


def resave(file: Path, *, layout: bool = True, arrays: int | None = None) -> None:
    """Write the first arrays again, with what is said of them or without."""
    with safe_open(file, framework="numpy") as opened:
        metadata = opened.metadata() if layout else None
        kept = {name: opened.get_tensor(name) for name in [*opened.keys()][:arrays]}
    file.write_bytes(safetensors.numpy.save(kept, metadata=metadata))


DAMAGE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "no manifest": ("manifest.json", Path.unlink),
    "half a manifest": ("manifest.json", cut),
    "a manifest that is not UTF-8": ("manifest.json", lambda f: f.write_bytes(b"\xff{}")),
    "a manifest of something else": ("manifest.json", lambda f: f.write_text('{"name": "app"}')),
    "a manifest that is a list": ("manifest.json", lambda f: f.write_text("[1]")),
    "a later schema": ("manifest.json", lambda f: edit(f, schema=99)),
    "a manifest with an unknown key": ("manifest.json", lambda f: edit(f, more=1)),
    "no arrays": ("arrays.safetensors", Path.unlink),
    "half the arrays": ("arrays.safetensors", cut),
    "an empty file of arrays": ("arrays.safetensors", lambda f: f.write_bytes(b"")),
    "arrays without words": ("arrays.safetensors", lambda f: resave(f, layout=False)),
    "arrays without one of them": ("arrays.safetensors", lambda f: resave(f, arrays=-1)),
    "no table of tokens": ("tokens.parquet", Path.unlink),
    "half a table of tokens": ("tokens.parquet", cut),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_study_is_refused_in_one_line(copied: Path, name: str) -> None:
    file, damage = DAMAGE[name]
    damage(copied / file)
    with pytest.raises(StudyError) as error:
        Study.load(copied)
    assert "\n" not in str(error.value)
    assert "; " in str(error.value)


def test_a_folder_that_holds_no_study_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8")
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(StudyError) as error:
            Study.load(folder)
        assert str(error.value) == (
            f"{folder}: no manifest.json; expected a folder that collect has written"
        )


def test_a_failed_save_keeps_the_old_study_and_leaves_no_traces(first: Study, copied: Path) -> None:
    """The last table cannot be written: the first files of the draft exist already by then."""
    unwritable = pd.DataFrame({"value": [object()]})
    broken = replace(first, sentence_data=replace(first.sentence_data, nearest=unwritable))
    with pytest.raises(Exception, match="object"):
        broken.save(copied, force=True)
    assert [path.name for path in copied.parent.iterdir()] == ["study"]
    pd.testing.assert_frame_equal(Study.load(copied).heads, first.heads)


def test_a_full_disk_is_one_line_and_changes_nothing(
    first: Study, second: Study, copied: Path
) -> None:
    message = "File too large; expected room"
    with small_files(10_000), pytest.raises(OutputError, match=message) as refusal:
        second.save(copied, force=True)
    assert "\n" not in str(refusal.value)
    assert [path.name for path in copied.parent.iterdir()] == ["study"]
    pd.testing.assert_frame_equal(Study.load(copied).heads, first.heads)


def test_an_old_study_is_replaced_with_force_only(
    first: Study, second: Study, copied: Path
) -> None:
    with pytest.raises(OutputError, match=r"pass force=True to replace it$"):
        second.save(copied)
    assert Study.load(copied).manifest.inputs == first.manifest.inputs
    second.save(copied, force=True)
    assert Study.load(copied).manifest.inputs == second.manifest.inputs


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere peaks are told in other units")
def test_arrays_are_not_twice_in_memory_while_they_are_read_or_written(tmp_path: Path) -> None:
    given = {f"part{number}": np.full((1 << 22,), number, np.float32) for number in range(20)}
    safetensors.numpy.save_file(given, tmp_path / "all")
    found = arrays(tmp_path / "all")
    assert found.keys() == given.keys()
    assert all((found[name] == value).all() for name, value in given.items())
    asked = [sys.executable, "-c", PEAK, str(tmp_path / "all")]
    peak = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    reading, writing = map(float, peak.split())
    assert reading < 1.5
    assert writing < 1.5
    assert (tmp_path / "all again").stat().st_size > (tmp_path / "all").stat().st_size
