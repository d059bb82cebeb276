"""Marginal cost of collecting head metrics, over a bare forward pass and over a script by hand.

Usage: python benchmarks/marginal.py CORPUS [--sentences 2400] [--model demo] [--repeats 2]
           [--against SRC]

CORPUS is any file that Headbook reads; it is repeated if it has too few sentences. Three programs
take turns, each a process of its own, and the fastest run of each counts:

- `headbook collect --importance off --annotator none` with seven attention metrics, on N and on 2 N
  sentences: the difference is the marginal cost of N sentences, without imports, loading, samples
  and pages;
- a forward pass of N sentences with scaled dot-product attention (`forward_pass` below);
- what a user would write with transformers and NumPy for the same numbers of N sentences, without
  intervals, exemplars and views (`by_hand` below).

The last two are timed once the model is loaded. `--against` names the folder ``src`` of another
checkout, whose `collect` takes turns with this one's. Prints one line of JSON: seconds of the clock
and of the processor. On a machine with other load, set OMP_NUM_THREADS=1 and compare the latter.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModel, AutoTokenizer

from headbook import Study
from headbook.resources import demo_model
from headbook.schema import SinkView
from whole import repeated

METRICS = (
    "attention_distance", "distance_ratio", "attention_entropy", "relative_entropy",
    "offset_profile", "confidence", "sink_share",
)  # fmt: skip
BATCH_TOKENS, REACH = 2048, 32
OWN = Path(__file__).parents[1] / "src"

Floats = NDArray[np.float64]


class Spent(NamedTuple):
    """Seconds of one program."""

    clock: float
    processor: float


def batches(texts: list[str], tokenizer: Any) -> Iterator[Any]:
    """Yield padded batches of at most `BATCH_TOKENS` tokens, of texts sorted by length."""
    rows = sorted(tokenizer(texts, truncation=True, max_length=512)["input_ids"], key=len)
    group: list[list[int]] = []
    for row in rows:
        if group and len(row) * (len(group) + 1) > BATCH_TOKENS:
            yield tokenizer.pad({"input_ids": group}, return_tensors="pt")
            group = []
        group.append(row)
    yield tokenizer.pad({"input_ids": group}, return_tensors="pt")


def forward_pass(texts: list[str], model: Any, tokenizer: Any) -> Spent:
    """Return the time of a bare forward pass of the model; batches are made before."""
    made = [*batches(texts, tokenizer)]
    start = time.perf_counter(), time.process_time()
    for batch in made:
        model(**batch)
    return Spent(time.perf_counter() - start[0], time.process_time() - start[1])


def by_hand(texts: list[str], model: Any, tokenizer: Any) -> dict[str, Floats]:
    """Return metrics of all heads, ``(layer, head)``; attention by offset, ``(layer, head, 65)``.

    Queries that are special tokens or padding do not count.
    """
    shape = model.config.num_hidden_layers, model.config.num_attention_heads
    distance, entropy, confidence, sink = (np.zeros(shape) for _ in range(4))
    offsets, n_queries = np.zeros((*shape, 2 * REACH + 1)), 0.0
    for batch in batches(texts, tokenizer):
        attentions = model(**batch, output_attentions=True).attentions
        special = np.isin(batch["input_ids"], tokenizer.all_special_ids)
        rows = (batch["attention_mask"].numpy() * ~special).astype(np.float32)
        special &= batch["attention_mask"].numpy() > 0
        places = np.arange(rows.shape[1])
        offset = places - places[:, None]
        bins = (offset.clip(-REACH, REACH) + REACH).ravel()
        n_queries += rows.sum()
        for layer, maps in enumerate(attentions):
            weights = maps.numpy() * rows[:, None, :, None]
            logs = np.log(np.maximum(weights, np.finfo(np.float32).tiny))
            entropy[layer] -= np.einsum("shqk,shqk->h", weights, logs)
            confidence[layer] += weights.max(-1).sum((0, 2))
            sink[layer] += np.einsum("shqk,sk->h", weights, special.astype(np.float32))
            summed = weights.sum(0)
            distance[layer] += (summed * abs(offset)).sum((1, 2))
            for head, pairs in enumerate(summed):
                offsets[layer, head] += np.bincount(bins, pairs.ravel(), 2 * REACH + 1)
    sums = {"attention_distance": distance, "attention_entropy": entropy, "sink_share": sink,
            "confidence": confidence, "offset_profile": offsets}  # fmt: skip
    return {name: found / n_queries for name, found in sums.items()}


def run_program(program: str, file: Path, name: str, out: Path) -> Spent:
    """Return the time of the forward pass or of the script by hand, once the model is loaded."""
    folder = demo_model() if name == "demo" else name
    texts = [json.loads(line)["text"] for line in file.read_text(encoding="utf-8").splitlines()]
    kind = "sdpa" if program == "forward" else "eager"
    model = AutoModel.from_pretrained(folder, attn_implementation=kind)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        model(**tokenizer(texts[:8], padding=True, return_tensors="pt"))  # the first one is slow
        if program == "forward":
            return forward_pass(texts, model, tokenizer)
        start = time.perf_counter(), time.process_time()
        found = by_hand(texts, model, tokenizer)
        spent = Spent(time.perf_counter() - start[0], time.process_time() - start[1])
    out.write_text(json.dumps({name: values.tolist() for name, values in found.items()}))
    return spent


def collect(file: Path, name: str, out: Path, source: Path) -> Spent:
    """Return the time of a whole `headbook collect` with the code of some folder."""
    command = [
        sys.executable, "-m", "headbook", "collect", str(file), "--model", name, "--importance",
        "off", "--annotator", "none", "--metrics", ",".join(METRICS), "--out", str(out), "--force",
        "--quiet",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(source), "HF_HUB_OFFLINE": "1"}
    start = time.perf_counter()
    process = subprocess.Popen(command, env=environment)  # noqa: S603
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    return Spent(time.perf_counter() - start, used.ru_utime + used.ru_stime)


def largest_difference(study: Study, mine: Path) -> float:
    """Return how far numbers by hand are from the study's, over the largest of their metric."""
    heads, differences = study.heads, []
    for metric, numbers in json.loads(mine.read_text()).items():
        values = np.array(numbers)
        table = heads[(heads["metric"] == metric) & (heads["view"] == str(SinkView.RAW))]
        found = table["value"].to_numpy().reshape(values.shape)
        differences.append(float(abs(found - values).max() / abs(values).max()))
    return max(differences)


def run_all(given: argparse.Namespace, sources: dict[str, Path]) -> tuple[dict[str, Any], float]:
    """Return the runs of each program, and how far numbers by hand are from those collected."""
    runs: dict[str, list[Spent]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        study, mine = folder / "study", folder / "by_hand.json"
        few, once, twice = (
            repeated(given.corpus, n, folder) for n in (8, given.sentences, 2 * given.sentences)
        )
        for source in sources.values():
            collect(few, given.model, study, source)  # compiles its loops
        for _ in range(given.repeats):
            for program in ("forward", "by hand"):
                command = [sys.executable, __file__, str(once), "--model", given.model,
                           "--program", program, "--out", str(mine)]  # fmt: skip
                done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
                runs.setdefault(program, []).append(Spent(*json.loads(done.stdout)))
            for which, source in sources.items():
                for file, size in ((twice, "2 N"), (once, "N")):
                    spent = collect(file, given.model, study, source)
                    runs.setdefault(f"{which}, {size}", []).append(spent)
        return runs, largest_difference(Study.load(study), mine)


def main() -> None:
    """Run the programs in turns and print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("corpus")
    parser.add_argument("--sentences", type=int, default=2400)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--against", type=Path, metavar="SRC")
    parser.add_argument("--program", choices=("forward", "by hand"), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.program:
        spent = run_program(given.program, Path(given.corpus), given.model, given.out)
        print(json.dumps(spent))  # noqa: T201
        return
    # This checkout's study is the last one: another one's may not be readable here.
    sources = ({"the other collect": given.against} if given.against else {}) | {"collect": OWN}
    runs, difference = run_all(given, sources)
    line: dict[str, object] = {
        "part": "marginal", "sentences": given.sentences, "threads": torch.get_num_threads()
    }  # fmt: skip
    for field in Spent._fields:
        best = {name: min(getattr(run, field) for run in each) for name, each in runs.items()}
        for which in sources:
            best[f"{which}, marginal"] = best[f"{which}, 2 N"] - best[f"{which}, N"]
            for base in ("forward", "by hand"):
                best[f"{which}, marginal over {base}"] = best[f"{which}, marginal"] / best[base]
        line[f"{field}, s"] = {name: round(value, 2) for name, value in best.items()}
    print(json.dumps(line | {"largest difference": difference}))  # noqa: T201


if __name__ == "__main__":
    main()
