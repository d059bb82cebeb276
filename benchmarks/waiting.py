"""What waiting threads cost: settings of OpenMP for ``headbook collect``, alone or beside others.

Usage: python benchmarks/waiting.py INPUT [--pairs 7] [--settings NAME ...] [--busy 0 3]
           [--model demo] [--limit N] [--importance LEVEL]

Between two products of matrices, threads of OpenMP spin until the next one begins, which takes
processors from other programs. Each setting alternates with the library's own waiting, pair by
pair, and a line of JSON has the medians of the pairs: seconds of the clock and of the processor,
and the medians of their ratios. Programs that keep a processor busy run beside it: ``--busy``.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headbook.cli.terminal import WAITING_VARIABLES

# GNU's library spins 300,000 times if nothing is set (`initialize_env` in its env.c). If the count
# is set, the command leaves the way of waiting as it is.
UNSET = {"GOMP_SPINCOUNT": "300000"}
SETTINGS: dict[str, dict[str, str]] = {
    "passive": {"OMP_WAIT_POLICY": "passive"},
    "no spins": {"GOMP_SPINCOUNT": "0"},
    "2,000 spins": {"GOMP_SPINCOUNT": "2000"},
    "10,000 spins": {"GOMP_SPINCOUNT": "10000"},
    "command": {},
}
Seconds = tuple[float, float]


def collected(arguments: list[str], setting: dict[str, str]) -> Seconds:
    """Return the seconds of the clock and of the processor that a collection takes."""
    others = {name: value for name, value in os.environ.items() if name not in WAITING_VARIABLES}
    environment = others | {"HF_HUB_OFFLINE": "1"} | setting
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "headbook", "collect", *arguments, "--quiet"]
        clock, spent = time.perf_counter(), _spent()
        subprocess.run([*command, "--out", f"{folder}/study"], env=environment, check=True)  # noqa: S603
        return time.perf_counter() - clock, _spent() - spent


def _spent() -> float:
    """Return the seconds that processors spent on commands that have ended."""
    times = os.times()
    return times.children_user + times.children_system


@contextmanager
def busy(number: int) -> Iterator[None]:
    """Run so many programs that each keep a processor busy, until the block ends."""
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def compared(arguments: list[str], name: str, *, pairs: int, beside: int) -> dict[str, object]:
    """Return the medians of pairs of collections, the first of each as the library waits."""
    unset: list[Seconds] = []
    waiting: list[Seconds] = []
    for number in range(pairs):
        turns = [(unset, UNSET), (waiting, SETTINGS[name])]
        for found, setting in turns if number % 2 == 0 else reversed(turns):
            with busy(beside):
                found.append(collected(arguments, setting))
    line: dict[str, object] = {"setting": name, "busy programs": beside, "pairs": pairs}
    for column, unit in enumerate(("seconds by the clock", "seconds of the processor")):
        before, after = ([seconds[column] for seconds in found] for found in (unset, waiting))
        ratios = [new / old for new, old in zip(after, before, strict=True)]
        line[unit] = {
            "unset": round(statistics.median(before), 1),
            "set": round(statistics.median(after), 1),
            "ratio": round(statistics.median(ratios), 3),
        }
    return line


def main() -> None:
    """Print a line of JSON for each setting and number of busy programs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("input", type=Path)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--settings", nargs="*", choices=SETTINGS, default=[*SETTINGS])
    parser.add_argument("--busy", type=int, nargs="*", default=[0, 3], help="programs beside it")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--limit", type=int, help="sentences, all by default")
    parser.add_argument("--importance", default="auto")
    given = parser.parse_args()
    arguments = [str(given.input), "--model", given.model, "--importance", given.importance]
    if given.limit:
        arguments += ["--limit", str(given.limit)]
    for beside in given.busy:
        for name in given.settings:
            line = compared(arguments, name, pairs=given.pairs, beside=beside)
            print(json.dumps(line), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
