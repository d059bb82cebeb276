"""Put faults into the code, one at a time, and see which test fails for each.

Usage: python benchmarks/mutations.py [--only NUMBER ...] [--processes 2]

Each fault is a line of ``src`` as somebody could get it wrong: a sign, an index off by one, a
swapped layer and head, a mask the other way round, a lost unit, another row. The tests that a fault
names run until the first one fails, in a copy of the working tree. Prints a line for each fault,
and ends with 1 if all tests pass in spite of one.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Fault(NamedTuple):
    """A fault.

    Attributes:
        file: file below ``src/headbook``.
        right: what stands there, once.
        wrong: what takes its place.
        tests: files and folders below ``tests`` that cover the line.
    """

    file: str
    right: str
    wrong: str
    tests: str


FAULTS = (
    Fault("ablation/targets.py", "tokens = (1 - _cosine(", "tokens = (1 + _cosine(", "ablation"),
    Fault("ablation/replacements.py", "self.length[place][donors] - 1",
          "self.length[place][donors] - 2", "ablation"),
    Fault("analysis/head_matching.py", "scores.value, -1).argmax(1)",
          "scores.value, -1).argmax(0)", "analysis comparison"),
    Fault("analysis/multiple_testing.py", "(1 + n_reaching)", "(2 + n_reaching)",
          "analysis"),
    Fault("attention/masks.py", "(~self.sink.gather(1, key))", "(self.sink.gather(1, key))",
          "attention metrics"),
    Fault("attention/token_pairs.py", "true.sum(1, keepdim=True) + 1",
          "true.sum(1, keepdim=True)", "attention metrics"),
    Fault("circuits/paths.py", "written - written.mean((0, 1))",
          "written + written.mean((0, 1))", "circuits"),
    Fault("circuits/towards.py", "items[row].sentence.index + 1", "items[row].sentence.index",
          "circuits"),
    Fault("comparison/checkpoints.py", "np.nan, self.steps[filled])",
          "np.nan, self.steps[filled - 1])", "comparison"),
    Fault("comparison/differences.py", "in zip((sampled_a, sampled_b), rows",
          "in zip((sampled_b, sampled_a), rows", "comparison"),
    Fault("metrics/attention/variability.py", "mean = weights.sum(0) / np.maximum(there.sum(0), 1)",
          "mean = weights.sum(0) / np.maximum(there.sum(0) + 1, 1)", "metrics"),
    Fault("metrics/patterns/type_shares.py", "= seeing.sum(-1) - total", "= seeing.sum(-1)",
          "metrics"),
    Fault("model/logit_lens.py", "(logits > logits.gather", "(logits >= logits.gather",
          "model passes metrics"),
    Fault("model/vocabulary.py", "+ 2 * (p @ gram) @ e.T", "- 2 * (p @ gram) @ e.T",
          "model passes metrics"),
    Fault("passes/class_flows.py", "m[:, :n_pairs].sum(1)", "m[:, 1:n_pairs].sum(1)",
          "passes study attention"),
    Fault("passes/corpus_pass.py", "missing_mass = 1 - attention.weights",
          "missing_mass = attention.weights", "model/test_attention_check.py"),
    Fault("report/answers/overview/head_losses.py", 'row["value"] / factor, row["method"]',
          'row["value"], row["method"]', "report pages/test_index_page.py"),
    Fault("report/facts/circuits/facts.py", "number(key, head.layer, head.head",
          "number(key, head.head, head.layer", "report pages"),
    Fault("study/exemplars.py", "best.score[name.layer, name.head, rank - 1]",
          "best.score[name.layer, name.head, -rank]", "study run"),
    Fault("study/token_tables.py", "cell] for part in parts)", "cell] for part in parts[::-1])",
          "study passes"),
)  # fmt: skip


def copy_tree(folder: Path) -> None:
    """Copy every file that git knows, as it is in the working tree."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "-c", "-o", "--exclude-standard"]
    listed = subprocess.check_output(command, text=True)  # noqa: S603 - git of this project
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def first_failure(folder: Path, fault: Fault, processes: int) -> str | None:
    """Return the test that fails first with a fault; None if all pass."""
    file = folder / "src" / "headbook" / fault.file
    code = file.read_text(encoding="utf-8")
    if code.count(fault.right) != 1:
        raise SystemExit(f"{fault.file} holds {code.count(fault.right)} times: {fault.right}")
    file.write_text(code.replace(fault.right, fault.wrong), encoding="utf-8")
    tests = [f"tests/{name}" for name in fault.tests.split()]
    command = [
        sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider",
        "--numprocesses", str(processes), "-m", "not soak and not browser", *tests,
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(folder / "src")}
    done = subprocess.run(  # noqa: S603 - tests of this project
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    file.write_text(code, encoding="utf-8")
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if failed is None and done.returncode:
        raise SystemExit(f"{fault.file}: tests did not run:\n{done.stdout[-2000:]}{done.stderr}")
    return failed and failed[1]


def main() -> None:
    """Try every fault."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", type=int, default=[*range(1, len(FAULTS) + 1)])
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory() as place:
        copy_tree(Path(place))
        for number in given.only:
            fault = FAULTS[number - 1]
            failed = first_failure(Path(place), fault, given.processes)
            missed += failed is None
            print(f"{number:2} {fault.file}: {failed or 'MISSED'}", flush=True)  # noqa: T201
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
