"""A stopped run goes on from what is done, and ends with the same bytes as one left alone."""

import contextlib
import os
import resource
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from headbook.errors import OutputError
from headbook.output_folder import store_folder
from headbook.run import prepare, shards
from headbook.run.collect import collect
from headbook.run.shards import SHARD_SENTENCES, canonical_order, sum_shards
from headbook.run.store import PART_SUFFIX, Part, Store, open_store, remove_store
from headbook.schema import HeadKey, SinkView
from headbook.study.corpus_sums import CorpusSums
from headbook.study.study import Study
from headbook.study.sums.buckets import MAX_BUCKETS, HeadBuckets, bucket_of
from machine import Lines, small_files

SMALL = 100  # sentences of a shard where what happens in between is what counts
OPTIONS: dict[str, Any] = {
    "metrics": "attention_to,cosine_to_input,type_shares",
    "annotator": "none",
    "language": "none",
    "importance": "auto",
    "sample_sentences": 20,
    "importance_sentences": 10,
    "sentence_pages": "3",
    "exemplars": 1,
}
# Ends a process, without a word, where the so manieth part has been written but has no name yet.
DIES = """
import os, sys
from headbook.cli.main import main
from headbook.run.store import Store
write, left = Store._write, [int(sys.argv.pop(1))]
def dying(self, name, body):
    left[0] -= 1
    if not left[0]:
        os.fsync = lambda number: os._exit(9)
    write(self, name, body)
Store._write = dying
main()
"""

# Kills fifty runs after times that are drawn, each of which goes on from the one before; prints how
# many parts are done after each. They are forked from a process in which one run has ended, so that
# none imports everything again; that one takes no gradients, after which torch cannot be forked.
KILLS = """
import gc, os, random, signal, sys, time
from pathlib import Path
import headbook.run.collect
from headbook.cli.main import main
from headbook.run import prepare, shards
from headbook.output_folder import store_folder

prepare.SHARD_SENTENCES = shards.SHARD_SENTENCES = int(sys.argv.pop(1))
(out,) = [Path(each[6:]) for each in sys.argv if each.startswith("--out=")]
given, sys.argv = sys.argv, [*sys.argv, "-q", f"--out={out}-first", "--importance=off"]
main()
sys.argv = given
gc.freeze()

def begin():
    number = os.fork()
    if number:
        return number
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    try:
        main()
    finally:
        os._exit(0)

def parts():
    return len([*store_folder(out).rglob("*.part")])

def end(number):
    os.kill(number, signal.SIGKILL)
    os.waitpid(number, 0)
    print(parts() if not out.exists() else "finished")

started, number = time.monotonic(), begin()
while not parts():
    time.sleep(0.01)
usual = time.monotonic() - started  # until a part is done
end(number)
draw = random.Random(0)
for _ in range(49):
    before, number = parts(), begin()
    time.sleep(draw.expovariate(2 / usual))
    end(number)
    if parts() == before:  # a busy machine takes longer
        usual *= 1.1
    if out.exists():
        for file in out.iterdir():
            file.unlink()
        out.rmdir()
assert os.waitpid(begin(), 0)[1] == 0
"""


def write_texts(folder: Path, size: int) -> Path:
    """So many sentences, some of them twice."""
    draw = np.random.default_rng(0)
    words = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    lines = (" ".join(draw.choice(words, draw.integers(2, 9))) for _ in range(size))
    file = folder / "texts.txt"
    file.write_text("\n".join(lines))
    return file


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shards of sentences."""
    return write_texts(tmp_path_factory.mktemp("texts"), SHARD_SENTENCES + 40)


@pytest.fixture(scope="module")
def model(tiny_folder: Callable[[str], Path]) -> str:
    return str(tiny_folder("bert"))


@pytest.fixture(scope="module")
def whole(texts: Path, model: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The study of a run that nothing stopped."""
    folder = tmp_path_factory.mktemp("whole")
    study = collect(texts, model=model, work=folder / "work", **OPTIONS)
    study.save(folder / "study")
    return content(folder / "study")


def load_or_save(store: Store, kind: type[Any], name: str, value: object) -> Any:
    """A value as it was stored; where none is, this one is stored."""
    found = store.load(name, kind)
    return store.save(name, kind, value) if found is None else found


def content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def command(texts: Path, model: str, out: Path) -> list[str]:
    options = (f"--{name.replace('_', '-')}={value}" for name, value in OPTIONS.items())
    return [
        "collect",
        str(texts),
        f"--model={model}",
        f"--out={out}",
        "--accept-failed-checks",
        *options,
    ]


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("part", [2, 5])
def test_a_run_that_dies_goes_on_and_ends_with_the_same_bytes(
    texts: Path, model: str, whole: dict[str, bytes], tmp_path: Path, part: int
) -> None:
    """Of the shards, one at most is measured again."""
    out = tmp_path / "study"
    given = [sys.executable, "-c", DIES, str(part), *command(texts, model, out)]
    assert subprocess.run(given, check=False, capture_output=True).returncode == 9
    assert not out.exists()
    shards = len([*store_folder(out).glob(f"model/corpus/*{PART_SUFFIX}")])
    assert shards == min(part - 1, 2)
    progress = Lines()
    study = collect(texts, model=model, work=store_folder(out), progress=progress, **OPTIONS)
    study.save(out)
    assert f"resuming: {shards} of 2 shards done" in progress.lines
    assert content(out) == whole
    remove_store(store_folder(out))
    assert [path.name for path in tmp_path.iterdir()] == ["study"]


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 5])
def test_workers_that_are_killed_change_no_byte(
    texts: Path, model: str, whole: dict[str, bytes], tmp_path: Path, workers: int
) -> None:
    """One after the other, while they measure; as many as a shard survives."""
    work = tmp_path / "work"
    with killing(is_worker, 2, (work / "model/corpus").exists) as killed:
        study = collect(texts, model=model, work=work, workers=workers, **OPTIONS)
    study.save(tmp_path / "study")
    assert killed
    assert content(tmp_path / "study") == whole


@pytest.mark.soak
@pytest.mark.slow
def test_an_actor_that_is_killed_changes_no_byte(
    texts: Path, model: str, whole: dict[str, bytes], tmp_path: Path
) -> None:
    """Of Ray, as the command begins it."""
    out = tmp_path / "study"
    given = [sys.executable, "-m", "headbook", *command(texts, model, out)]
    with killing(is_actor, 1, lambda: True) as killed:
        subprocess.run([*given, "--engine=ray", "--workers=2"], check=True, capture_output=True)
    assert killed
    assert content(out) == whole


def is_worker(process: psutil.Process) -> bool:
    """And not the process that it was forked from, which this one has begun itself."""
    given = " ".join(process.cmdline())
    forked = "multiprocessing.forkserver" in given and process.ppid() != os.getpid()
    return forked or "multiprocessing.spawn" in given


def is_actor(process: psutil.Process) -> bool:
    return "ray::ShardActor.measure" in " ".join(process.cmdline())


@contextlib.contextmanager
def killing(
    wanted: Callable[[psutil.Process], bool], most: int, begun: Callable[[], bool]
) -> Iterator[list[int]]:
    """Kill so many processes that this one has begun, once they have; gives their numbers."""
    killed: list[int] = []
    over = threading.Event()

    def kill() -> None:
        me = psutil.Process()
        while len(killed) < most and not over.wait(0.05):
            for process in me.children(recursive=True) if begun() else ():
                with contextlib.suppress(psutil.Error):
                    if wanted(process):
                        process.kill()
                        killed.append(process.pid)
                        break

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


@pytest.mark.soak
@pytest.mark.slow
def test_an_interrupt_says_how_to_go_on(texts: Path, model: str, tmp_path: Path) -> None:
    out = tmp_path / "study"
    given = [sys.executable, "-m", "headbook", *command(texts, model, out)]
    with subprocess.Popen(given, stderr=subprocess.PIPE, text=True) as process:
        while not [*store_folder(out).rglob(f"*{PART_SUFFIX}")]:
            time.sleep(0.02)
        process.terminate()  # as Ctrl-C does, which a shell may have told programs to ignore
        assert process.stderr is not None
        assert "the same command goes on from there; --restart begins" in process.stderr.read()
    assert process.returncode == 2


@pytest.mark.soak
@pytest.mark.slow
def test_kills_at_any_moment_change_no_byte(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty of them, of runs into one folder; one that is left alone in the end goes on."""
    for module in (prepare, shards):
        monkeypatch.setattr(module, "SHARD_SENTENCES", SMALL)
    texts, out, whole = (
        write_texts(tmp_path, prepare.MAX_UNSTORED_SENTENCES + 40),
        tmp_path / "study",
        tmp_path / "whole",
    )
    collect(texts, model=model, work=tmp_path / "work", **OPTIONS).save(whole)
    given = [sys.executable, "-c", KILLS, str(SMALL), *command(texts, model, out)]
    script = subprocess.run(given, check=True, capture_output=True, text=True)
    assert len(script.stdout.split()) == 50
    parts = [[*map(int, run.split())] for run in script.stdout.split("finished")]
    assert all(run == sorted(run) for run in parts)  # what is done stays
    assert len({*chain.from_iterable(parts)}) > 2
    assert content(out) == content(whole)
    assert not store_folder(out).exists()


@pytest.mark.slow
def test_numbers_are_those_of_a_run_that_keeps_nothing(
    texts: Path, model: str, whole: dict[str, bytes], tmp_path: Path
) -> None:
    collect(texts, model=model, **OPTIONS).save(tmp_path / "study")
    assert content(tmp_path / "study") == whole


def test_other_options_or_sentences_are_refused_unless_begun_anew(
    texts: Path, model: str, tmp_path: Path
) -> None:
    plan = {"input": "a", "--seed": "0"}
    with open_store(tmp_path, plan, restart=False) as work:
        assert load_or_save(work, int, "model/x", 3) == 3
    with (
        pytest.raises(OutputError, match="--seed 0, not 1; expected the same options") as caught,
        open_store(tmp_path, plan | {"--seed": "1"}, restart=False),
    ):
        pass
    assert "\n" not in str(caught.value)
    with open_store(tmp_path, plan, restart=False) as work:
        assert load_or_save(work, int, "model/x", 4) == 3
    with open_store(tmp_path, plan | {"--seed": "1"}, restart=True) as work:
        assert load_or_save(work, int, "model/x", 4) == 4


def test_of_two_runs_into_one_folder_one_says_so(tmp_path: Path) -> None:
    with (
        open_store(tmp_path, {}, restart=False) as work,
        pytest.raises(OutputError, match="another run works here"),
        open_store(tmp_path, {}, restart=True),
    ):
        pass
    assert load_or_save(work, int, "x", 1) == 1


def test_a_full_disk_keeps_what_is_done(tmp_path: Path) -> None:
    work = Store(tmp_path)
    load_or_save(work, np.ndarray, "first", np.ones(10))
    message = "the same command goes on from there"
    with small_files(1 << 16), pytest.raises(OutputError, match=message):
        load_or_save(work, np.ndarray, "second", np.random.default_rng(0).random(1 << 16))
    assert [file.name for file in tmp_path.iterdir()] == [f"first{PART_SUFFIX}"]
    assert load_or_save(work, np.ndarray, "second", np.ones(2)).tolist() == [1, 1]


def test_what_is_put_by_stands_in_a_file_alone(tmp_path: Path) -> None:
    sums, wanted = simulated(np.arange(5)), simulated(np.arange(5))
    seen = weakref.ref(sums.buckets[""][0])
    taken_up = Store(tmp_path).spill(CorpusSums, sums)
    del sums
    assert seen() is None
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size > wanted.buckets[""][0].n.nbytes
    (found,), (same,) = taken_up().buckets[""], wanted.buckets[""]
    np.testing.assert_array_equal(found.n, same.n)
    assert (found.columns, found.keys.tolist()) == (same.columns, same.keys.tolist())
    assert [*tmp_path.iterdir()] == []


def test_a_store_without_a_folder_keeps_nothing() -> None:
    store, sums = Store(), simulated(np.arange(5))
    assert store.save("x", CorpusSums, sums) is sums
    assert store.load("x", CorpusSums) is None
    assert not store.has("x")
    assert store.count("") == 0
    assert store.spill(CorpusSums, sums)() is sums


def test_a_part_is_stored_with_what_it_took(tmp_path: Path) -> None:
    part = Part(simulated(np.arange(5)), 2, {3: "why", 17: "why not"})
    store = Store(tmp_path)
    for found in (store.save("x", Part[CorpusSums], part), store.load("x", Part[CorpusSums])):
        assert found is not None
        assert (found.halvings, found.failed_sentences, found.error) == (
            2,
            {3: "why", 17: "why not"},
            "",
        )
        np.testing.assert_array_equal(found.value.buckets[""][0].n, part.value.buckets[""][0].n)


def test_a_full_disk_is_known_where_sums_are_put_by(tmp_path: Path) -> None:
    message = "the same command goes on from there"
    with small_files(1 << 10), pytest.raises(OutputError, match=message):
        Store(tmp_path).spill(CorpusSums, simulated(np.arange(100)))


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b"", lambda b: b[:30] + b"#" + b[31:]]
)
def test_a_damaged_part_is_made_again(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    work, file = Store(tmp_path), tmp_path / f"x{PART_SUFFIX}"
    load_or_save(work, np.ndarray, "x", np.ones(10))
    file.write_bytes(damage(file.read_bytes()))
    assert load_or_save(work, np.ndarray, "x", np.zeros(10)).sum() == 0


def test_a_part_under_the_name_of_another_is_made_again(tmp_path: Path) -> None:
    """Else a file that somebody copied would count one shard twice, and nobody would know."""
    work = Store(tmp_path)
    for name in ("corpus/000000", "corpus/000001"):
        load_or_save(work, str, name, name)
    first, second = sorted(tmp_path.rglob(f"*{PART_SUFFIX}"))
    second.write_bytes(first.read_bytes())
    assert load_or_save(work, str, "corpus/000001", "measured again") == "measured again"
    assert load_or_save(work, str, "corpus/000000", "measured again") == "corpus/000000"


@pytest.mark.parametrize("body", [b"", b"rubbish" * 9, (1 << 62).to_bytes(8, "little") + b"x" * 9])
def test_a_whole_part_without_a_value_is_made_again(tmp_path: Path, body: bytes) -> None:
    """It is no fault of the sentences that it was made of, which are not set aside."""
    work = Store(tmp_path)
    work._write("x", body)
    assert load_or_save(work, int, "x", 3) == 3
    assert load_or_save(work, int, "x", 4) == 3


def test_a_folder_in_the_place_of_a_part_is_one_line(tmp_path: Path) -> None:
    (tmp_path / f"x{PART_SUFFIX}").mkdir()
    (tmp_path / "corpus").write_text("")
    for name, place in (("x", f"x{PART_SUFFIX}"), ("corpus/000000", "corpus")):
        with pytest.raises(OutputError, match="--restart begins anew") as caught:
            load_or_save(Store(tmp_path), int, name, 3)
        assert str(caught.value).startswith(f"{tmp_path / place}: ")
        assert "\n" not in str(caught.value)


def simulated(keys: np.ndarray) -> CorpusSums:
    """A shard of a model with few heads."""
    column, there = HeadKey("m", SinkView.RAW, ""), np.unique(keys)
    sums = np.full((len(there), 4, 4, 1), 0.1)
    return CorpusSums(
        buckets={"": (HeadBuckets(MAX_BUCKETS, there, sums, sums, columns=(column,)),)}
    )


def hashes_of(sentences: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2**63, sentences).astype(np.uint64)


def shards_of(hashes: np.ndarray) -> list[np.ndarray]:
    bucket = bucket_of(hashes[canonical_order(hashes)], MAX_BUCKETS)
    return [
        bucket[start : start + SHARD_SENTENCES] for start in range(0, len(bucket), SHARD_SENTENCES)
    ]


def test_shards_hold_every_sentence_once_and_few_buckets() -> None:
    hashes = hashes_of(2 * SHARD_SENTENCES * MAX_BUCKETS)
    order = canonical_order(hashes)
    assert sorted(order) == [*range(len(hashes))]
    assert max(len(set(keys)) for keys in shards_of(hashes)) == 2
    twice = np.array([5, 5, 5] * SHARD_SENTENCES, np.uint64)
    assert canonical_order(twice).tolist() == [*range(len(twice))]


@pytest.mark.soak
@pytest.mark.slow
def test_ten_million_sentences_take_flat_time_and_memory() -> None:
    """Of each shard's sums, in one process."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    shards = shards_of(hashes_of(10_000_000))
    spent = []
    for part in (shards[: len(shards) // 4], shards):
        start = time.process_time()
        sum_shards(map(simulated, part))
        spent.append((time.process_time() - start) / len(part))
    assert spent[1] < 2 * spent[0]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1_000_000


def test_sums_of_groups_are_those_of_all() -> None:
    shards = [simulated(keys) for keys in shards_of(hashes_of(150 * SHARD_SENTENCES))]
    total = sum(shard.buckets[""][0].n.sum() for shard in shards)
    found = sum_shards(iter(shards)).buckets[""][0]
    assert found.keys.tolist() == [*range(MAX_BUCKETS)]
    assert np.isclose(found.n.sum(), total)


@pytest.mark.slow
def test_a_study_goes_through_its_parts_unchanged(whole: dict[str, bytes], tmp_path: Path) -> None:
    """As it does through a study's own files."""
    for name, body in whole.items():
        (tmp_path / name).write_bytes(body)
    sums = Study.load(tmp_path).corpus_sums
    kept = load_or_save(Store(tmp_path / "work"), CorpusSums, "x", sums)
    assert kept.heads.keys() == sums.heads.keys()
    for stack, heads in sums.heads.items():
        np.testing.assert_array_equal(kept.heads[stack].table.heads.sums, heads.table.heads.sums)
    assert kept.counts == sums.counts
