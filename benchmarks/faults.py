"""Faults that are provoked: kills, disks that refuse, damaged files, strange inputs.

Usage: python benchmarks/faults.py [--only kills workers parts disks ggufs models archives
           sentences] [--kills 20] [--seed 0]

Prints one line of JSON for each trial: what was done, the exit code, seconds of the clock, the last
printed line, and ``fault`` if the outcome is neither the right bytes nor one line that explains.
Models are tiny and random, those of the tests. Linux; `disks` needs root.
"""

import argparse
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}

import psutil

from headbook.output_folder import store_folder
from headbook.run import shards
from headbook.safe_files import write_checked
from trials import LIMIT, OFF, SHARD, Desk, Line, begin, content, ended, left, small_shards, trial

import faultydisks  # isort: skip
import faultyfiles  # isort: skip - both after trials, which finds the tests' models


def kills(desk: Desk, count: int) -> Iterator[Line]:
    """Kill collections at random moments; each is resumed and compared with an undisturbed run."""
    texts, place = desk.texts("many.txt", 5 * SHARD), desk.folder / "kills"
    more = ("--importance=auto", "--quiet")
    with small_shards():
        for name in ("first", "whole"):  # the first one takes longer
            line = trial("undisturbed", desk.command(texts, place / name, *more), wanted=(0,))
            yield line
        usual, whole = float(str(line["seconds"])), content(place / "whole")
        number = 0
        while number < count:
            out = place / f"study{number}"
            process = begin(desk.command(texts, out, *more), place / "log")
            moment = desk.draw.uniform(0, usual)
            time.sleep(moment)
            os.kill(process, signal.SIGKILL)
            if ended(process) != -signal.SIGKILL:  # it had come to its end: another one
                shutil.rmtree(out)
                usual *= 0.95
                continue
            number += 1
            finished, kept = out.exists(), len([*store_folder(out).rglob("*.part")])
            torn = finished and content(out) != whole
            again = desk.command(texts, out, *more, *["--force"] * finished)
            line = trial(f"kill {number} after {moment:.2f} s", again, wanted=(0,))
            line |= {"parts": kept, "finished": finished}
            beside = [name for name in left(place) if f".{out.name}." in name]
            if torn or content(out) != whole or beside:
                line["fault"] = f"torn at the kill: {torn}; or other bytes; or left: {beside}"
            yield line


def workers(desk: Desk) -> Iterator[Line]:
    """Kill one of two workers while it measures; the bytes are those of one process."""
    texts, place = desk.texts("workers.txt", 4 * shards.SHARD_SENTENCES), desk.folder / "workers"
    yield trial("one process", desk.command(texts, place / "whole", OFF), wanted=(0,))
    for number in range(3):
        out, log = place / f"study{number}", place / "log"
        start = time.monotonic()
        process = begin(desk.command(texts, out, OFF, "--workers=2"), log)
        victim = None
        while victim is None and time.monotonic() < start + LIMIT and not out.exists():
            time.sleep(0.02)
            if len([*store_folder(out).rglob("*.part")]) > number:
                victim = _worker(process)
        if victim is not None:
            victim.kill()
        code = ended(process)
        line: Line = {
            "trial": f"a worker killed after {number + 1} parts",
            "code": code,
            "seconds": round(time.monotonic() - start, 1),
            "killed": victim is not None,
        }
        if code != 0 or content(out) != content(place / "whole"):
            line["fault"] = "hangs" if code is None else "other bytes"
        yield line


def _worker(process: int) -> psutil.Process | None:
    """Return a worker of a command: a process that its fork server has begun."""
    try:
        found = psutil.Process(process).children(recursive=True)
        return next((each for each in found if each.ppid() != process), None)
    except psutil.Error:  # one has ended meanwhile
        return None


def parts(desk: Desk) -> Iterator[Line]:
    """Tamper with the parts that a stopped run has left."""
    texts, place = desk.texts("parts.txt", 5 * SHARD), desk.folder / "parts"
    out = place / "study"
    with small_shards():
        yield trial("undisturbed", desk.command(texts, place / "whole", OFF), wanted=(0,))
        for name, change in CHANGES.items():
            work = desk.stopped(texts, out)
            change(work)
            line = trial(name, desk.command(texts, out, OFF), wanted=(0, 2))
            if line["code"] == 0 and content(out) != content(place / "whole"):
                line["fault"] = "other bytes"
            yield line
            shutil.rmtree(work, ignore_errors=True)
            shutil.rmtree(out, ignore_errors=True)


Change = Callable[[Path], object]


def _every(change: Callable[[bytes], bytes]) -> Change:
    """Return what changes the bytes of every part of a work folder."""
    return lambda work: [file.write_bytes(change(file.read_bytes())) for file in _parts(work)]


def _sealed(change: Callable[[bytes], bytes]) -> Change:
    """Return what changes every part, with the hash that belongs to its name and content."""

    def changed(work: Path) -> None:
        for file in _parts(work):
            label = str(file.relative_to(work)).removesuffix(".part")
            write_checked(file, change(file.read_bytes()[16:]), label)

    return changed


def _parts(work: Path) -> list[Path]:
    return sorted(work.rglob("*.part"))


def _swapped(work: Path) -> None:
    first, second, *_ = _parts(work)
    first.write_bytes(second.read_bytes())


def _folder_for(name: str, work: Path) -> None:
    file = next(iter(work.rglob(name)))
    file.unlink()
    file.mkdir()


def _plan(text: bytes) -> Change:
    return lambda work: (work / "plan.json").write_bytes(text)


CHANGES: dict[str, Change] = {
    "cut by a byte": _every(lambda body: body[:-1]),
    "empty": _every(lambda _: b""),
    "a bit flipped": _every(lambda body: body[:-9] + bytes([body[-9] ^ 1]) + body[-8:]),
    "another part under its name": _swapped,
    "sealed rubbish": _sealed(lambda _: b"rubbish" * 9),
    "sealed nothing": _sealed(lambda _: b""),
    "sealed, length 2^62": _sealed(lambda body: (1 << 62).to_bytes(8, "little") + body[8:]),
    "sealed, cut": _sealed(lambda body: body[:-40]),
    "a part is a folder": partial(_folder_for, "*.part"),
    "the lock is a folder": partial(_folder_for, "lock"),
    "a part is a link": lambda work: (work / "x.part").symlink_to("/etc/passwd"),
    "a FIFO": lambda work: os.mkfifo(work / "x.part"),
    "a file of somebody else": lambda work: (work / "notes.txt").write_text("mine"),
    "no plan": lambda work: (work / "plan.json").unlink(),
    "plan: []": _plan(b"[]"),
    "plan: null": _plan(b"null"),
    "plan: not UTF-8": _plan(b"\xff\xfe{"),
    "plan: nested 100,000 deep": _plan(b"[" * 100_000),
    "plan: values that are no text": _plan(b'{"--seed": [1], "input": {"a": null}}'),
    "lock emptied": lambda work: (work / "lock").write_text(""),
    "lock of somebody else": lambda work: (work / "lock").write_text("mine"),
}
PARTS: dict[str, Callable[[Desk], Iterator[Line]]] = {
    "kills": partial(kills, count=20),
    "workers": workers,
    "parts": parts,
    "disks": faultydisks.disks,
    "ggufs": faultyfiles.gguf_files,
    "models": faultyfiles.models,
    "archives": faultyfiles.archives,
    "sentences": faultyfiles.sentences,
}


def main() -> None:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=PARTS, default=[*PARTS])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chosen: dict[str, Callable[[Desk], Iterator[Line]]] = {
        **PARTS,
        "kills": partial(kills, count=given.kills),
    }
    with tempfile.TemporaryDirectory(prefix="headbook-faults-") as folder:
        desk = Desk(Path(folder), given.seed)
        for part in given.only:
            for line in chosen[part](desk):
                print(json.dumps({"part": part} | line), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
