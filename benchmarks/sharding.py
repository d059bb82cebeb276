"""What shards cost, what workers bring, how a stopped run goes on, and what grows with a corpus.

Usage: python benchmarks/sharding.py CORPUS [--sentences 4096] [--model demo] [--repeats 2]
           [--only workers shards resume growth]

CORPUS is any file that Headbook reads; it is repeated where it has too few sentences. Each part
prints one line of JSON. What is compared takes turns, each in a process of its own, and the fastest
counts: seconds of the clock for workers, of the processor for the rest. Importance is off, as it
does not grow with a corpus.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path

from headbook.inputs import open_corpus
from headbook.run import shards
from headbook.run.shards import SHARD_SENTENCES, split_into_shards, sum_shards
from headbook.run.store import PART_SUFFIX, Part, Store
from headbook.study.corpus_sums import CorpusSums

Line = dict[str, object]
# Collects as `headbook collect` does; prints seconds of the clock and of the processor.
RUN = """
import os, sys, time
from pathlib import Path
from headbook.run import collect as module, shards
corpus, model, work, workers, one = sys.argv[1:]
if one == "one shard":
    shards.SHARD_SENTENCES = 10**9
clock, spent = time.monotonic(), sum(os.times()[:4])
module.collect(corpus, model=model, importance="off", annotator="none", metrics="all",
    workers=int(workers), work=Path(work) if work else None)
print(time.monotonic() - clock, sum(os.times()[:4]) - spent)
"""
MILLION = 1_000_000


def run(file: Path, model: str, *, work: str = "", workers: int = 1, threads: int = 1,
        one: bool = False) -> tuple[float, float]:  # fmt: skip
    """Seconds of the clock and of the processor that a collection takes."""
    given = [str(file), model, work, str(workers), "one shard" if one else ""]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-c", RUN, *given]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)  # noqa: S603
    clock, spent = map(float, done.stdout.split()[-2:])
    return clock, spent


def workers(file: Path, given: argparse.Namespace, folder: Path) -> Iterator[Line]:
    """Two processes with a thread each over one with two, in all and for what more shards add."""
    double = folder / "double.txt"
    double.write_text(f"{file.read_text(encoding='utf-8')}\n" * 2, encoding="utf-8")
    least = {}
    for name, corpus in (("whole", file), ("double", double)):
        for crew in (1, 2):
            turns = (folder / f"{name}{crew}{turn}" for turn in range(given.repeats))
            clocks = [run(corpus, given.model, work=str(work), workers=crew, threads=2)[0]
                      for work in turns]  # fmt: skip
            least[name, crew] = min(clocks)
    one, two = (given.sentences / (least["double", crew] - least["whole", crew]) for crew in (1, 2))
    yield {"part": "workers", "one process": least["whole", 1], "two": least["whole", 2],
           "speed-up": least["whole", 1] / least["whole", 2],
           "sentences a second of further shards": [one, two],
           "speed-up of further shards": two / one}  # fmt: skip


def parts(file: Path, given: argparse.Namespace, folder: Path) -> Iterator[Line]:
    """Shards that are kept over one that is not."""
    one, many = [], []
    for turn in range(given.repeats):
        one.append(run(file, given.model, one=True)[1])
        many.append(run(file, given.model, work=str(folder / f"kept{turn}"))[1])
    yield {"part": "shards", "shards": -(-given.sentences // SHARD_SENTENCES), "one": min(one),
           "kept": min(many), "ratio": min(many) / min(one)}  # fmt: skip


def resume(file: Path, given: argparse.Namespace, folder: Path) -> Iterator[Line]:
    """Yield the time of a resumed run that is complete, divided by that of the run."""
    work = str(folder / "again")
    first = run(file, given.model, work=work)[0]
    again = min(run(file, given.model, work=work)[0] for _ in range(given.repeats))
    yield {"part": "resume", "whole run": first, "all done": again}


def growth(file: Path, given: argparse.Namespace, folder: Path) -> Iterator[Line]:
    """Yield the time for each sentence and each shard without the model."""
    many = folder / "many.txt"
    lines = f"{file.read_text(encoding='utf-8')}\n"
    many.write_text(lines * (MILLION // 10 // given.sentences + 1), encoding="utf-8")
    start = time.process_time()
    with open_corpus([many]) as corpus, split_into_shards(corpus, len(corpus), paired=False):
        spent, sentences = time.process_time() - start, len(corpus)
    yield {"part": "growth", "what": "seconds to check, read and order a million sentences",
           "value": spent / sentences * MILLION}  # fmt: skip
    work = folder / "grown"
    run(file, given.model, work=str(work))
    kept = sorted((work / "model" / "corpus").glob(f"*{PART_SUFFIX}"))
    sizes = [part.stat().st_size for part in kept]
    yield {"part": "growth", "what": "megabytes of a shard", "value": max(sizes) / MILLION}
    wanted = 2 * shards.SHARDS_PER_GROUP
    start = time.process_time()
    sum_shards(_stored(work, part) for part in islice(cycle(kept), wanted))
    yield {"part": "growth", "what": "seconds to read and add a shard",
           "value": (time.process_time() - start) / wanted}  # fmt: skip


def _stored(work: Path, part: Path) -> CorpusSums:
    name = part.relative_to(work).with_suffix("").as_posix()
    found = Store(work).load(name, Part[CorpusSums])
    if found is None:
        raise RuntimeError("a shard is gone")
    return found.value


PARTS: dict[str, Callable[[Path, argparse.Namespace, Path], Iterator[Line]]] = {
    "workers": workers, "shards": parts, "resume": resume, "growth": growth,
}  # fmt: skip


def main() -> None:
    """Print a line of JSON for each part."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("corpus")
    parser.add_argument("--sentences", type=int, default=4 * SHARD_SENTENCES)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "corpus.txt"
        with open_corpus([given.corpus]) as corpus:
            texts = [" ".join(sentence.text.split()) for sentence in corpus]
        every = (texts * (given.sentences // len(texts) + 1))[: given.sentences]
        file.write_text("\n".join(every), encoding="utf-8")
        for part in given.only:
            for line in PARTS[part](file, given, Path(name)):
                print(json.dumps(line), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
