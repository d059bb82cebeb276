"""What circuits add to a build: seconds of the processor and memory, as a share of the rest.

Usage: python benchmarks/circuit_costs.py CORPUS [--models demo demo-causal] [--importance fast]

CORPUS is any input file that Headbook reads. Each model is collected and rendered in a process of
its own, with circuits. The seconds in which circuits are measured are divided by those of all else,
so that both are of one run; for sentence encoders these are the words that heads move the vector
to (`towards`), which count apart. Memory is the peak of the process while circuits are measured,
above what it held before (Linux).
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import headbook
from headbook.run import circuits, collect

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def memory(name: str) -> float:
    """Return a number of the process's memory in GB: ``VmRSS`` (now) or ``VmHWM`` (the peak)."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024 / 1e9


def build(corpus: str, model: str, importance: str) -> dict[str, Any]:
    """Collect and render, with the circuits' own seconds and memory."""
    of_circuits: dict[str, float] = {}

    def measured(run: Any, study: Any, moved: Any = None) -> Any:
        CLEAR.write_text("5")  # the peak starts anew
        before, start = memory("VmRSS"), time.process_time()
        found = circuits.measure_circuits(run, study, moved)
        of_circuits["circuits"] = time.process_time() - start
        of_circuits["memory"] = memory("VmHWM") - before
        of_circuits["towards"] = float((found.circuits.numbers["metric"] == "towards_rank").any())
        return found

    # Only the call is timed; what it computes stays.
    collect.measure_circuits = measured  # type: ignore[attr-defined]
    with TemporaryDirectory() as folder:
        start = time.process_time()
        study = headbook.collect([corpus], model=model, importance=importance)
        study.save(Path(folder) / "study")
        headbook.render(Path(folder) / "study", out=Path(folder) / "site")
        rest = time.process_time() - start - of_circuits["circuits"]
    name = "towards" if of_circuits["towards"] else "circuits"
    return {
        "model": model,
        "importance": importance,
        f"seconds of {name}": round(of_circuits["circuits"], 1),
        "seconds of all else": round(rest, 1),
        f"{name} over all else": round(of_circuits["circuits"] / rest, 3),
        "peak memory above that before, GB": round(of_circuits["memory"], 2),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus")
    parser.add_argument("--models", nargs="+", default=["demo", "demo-causal"])
    parser.add_argument("--importance", default="auto")
    given = parser.parse_args()
    if len(given.models) == 1:
        print(json.dumps(build(given.corpus, given.models[0], given.importance)), flush=True)  # noqa: T201
    else:
        for each in given.models:
            options = ["--models", each, "--importance", given.importance]
            subprocess.run([sys.executable, __file__, given.corpus, *options], check=True)  # noqa: S603
