"""What processes hand to each other, and what pages need of a study."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import headbook
from headbook.errors import StudyError
from headbook.site.mappedpickle import ALIGNED, MappedPickle
from headbook.study import mappedarrays
from headbook.study.mappedarrays import leave, place_of
from headbook.study.storage import arrays, write_arrays
from headbook.study.study import Study
from headbook.study.tables import heads_table
from sites import Site


def test_values_come_back_whole(tmp_path: Path) -> None:
    """Arrays of every kind, tables with texts, and values without any array."""
    frame = pd.DataFrame({"token": ["a", "b", "ç"], "value": np.array([1, 2, np.nan], np.float32)})
    given: dict[str, NDArray[Any]] = {
        "long": np.arange(7, dtype=np.int64),
        "turned": np.arange(12.0).reshape(3, 4).T,
        "empty": np.zeros((0, 3), np.uint8),
        "bytes": np.array([1, 2, 3], np.uint8),
    }
    taken, table, text = MappedPickle.of((given, frame, "text"), tmp_path / "arrays").taken()
    assert text == "text"
    assert taken.keys() == given.keys()
    for name, array in given.items():
        np.testing.assert_array_equal(taken[name], array)
        assert taken[name].dtype == array.dtype
    pd.testing.assert_frame_equal(table, frame)
    for value in ("no array", np.zeros(0)):
        again = MappedPickle.of(value, tmp_path / "nothing").taken()
        np.testing.assert_array_equal(again, value)


def test_arrays_stand_in_the_file_and_not_in_the_message(tmp_path: Path) -> None:
    """Aligned; and what a process writes into them stays its own."""
    array = np.arange(100_000)
    mapped = MappedPickle.of([np.array([7], np.uint8), array], tmp_path / "arrays")
    assert len(mapped.pickled) < 1_000
    assert [start % ALIGNED for start, _ in mapped.ends] == [0, 0]
    assert (tmp_path / "arrays").stat().st_size == ALIGNED + array.nbytes
    _, mine = mapped.taken()
    mine[0] = 9
    assert mapped.taken()[1][0] == 0


def test_a_condensed_study_has_the_same_numbers(encoder_site: Site) -> None:
    """Also after something in it is replaced; it holds a single sentence's worth of statistics."""
    study = encoder_site.study
    layers = {stack.name: stack.attention_layers for stack in study.manifest.stacks}
    small = study.condensed
    pd.testing.assert_frame_equal(heads_table(small.condensed.head_tables, layers), study.heads)
    assert {len(sums.stats.payload) for sums in small.corpus_sums.sampled.values()} == {1}
    assert max(len(sums.stats.payload) for sums in study.corpus_sums.sampled.values()) > 1
    for act in (lambda: small.save(encoder_site.place / "less"), lambda: small + study):
        with pytest.raises(StudyError, match="condensed"):
            act()
    assert not (encoder_site.place / "less").exists()


def test_large_arrays_stay_in_the_file_of_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are passed on as places in it, whole or in parts, and cannot be written into."""
    monkeypatch.setattr(mappedarrays, "LEAST", 1_000)
    rng = np.random.default_rng(0)
    given: dict[str, NDArray[Any]] = {
        "few": np.arange(3),
        "bytes": rng.integers(0, 255, (7, 333), np.uint8),
        "halves": rng.random((3, 501)).astype(np.float16),
        "many": rng.random((4, 5, 1000)),
    }
    write_arrays(tmp_path / "all", given, "")
    found = arrays(tmp_path / "all", mapped=True)
    assert {name for name, each in found.items() if place_of(each)} == {*given} - {"few"}
    with pytest.raises(ValueError, match="read-only"):
        found["many"][0, 0, 0] = 1
    turned = found["many"].T
    value = [*found.values(), found["many"][2:, 1], turned]
    mapped = MappedPickle.of(value, tmp_path / "mapped")
    assert (tmp_path / "mapped").stat().st_size < turned.nbytes + 1_000
    for one, other in zip(value, mapped.taken(), strict=True):
        leave(one)
        np.testing.assert_array_equal(one, other)
    for name, array in given.items():
        np.testing.assert_array_equal(found[name], array)
    write_arrays(tmp_path / "all", given, "")
    with pytest.raises(OSError, match="written anew"):
        mapped.taken()


@pytest.mark.slow
def test_a_mapped_study_gives_the_same_site(
    small_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two processes that draw pages, too."""
    monkeypatch.setattr(mappedarrays, "LEAST", 1)
    headbook.render(small_site.stored, tmp_path / "site", processes=2)
    study = Study.load(small_site.stored, mapped=True)
    study.leave()
    pd.testing.assert_frame_equal(study.heads, small_site.study.heads)
    files = [file for file in small_site.folder.rglob("*") if file.is_file()]
    for file in files:
        mine = tmp_path / "site" / file.relative_to(small_site.folder)
        assert mine.read_bytes() == file.read_bytes(), file.name
    assert len([f for f in (tmp_path / "site").rglob("*") if f.is_file()]) == len(files)
