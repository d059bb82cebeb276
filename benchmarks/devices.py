"""What a GPU brings, and whether it gives the numbers of the processor, with random models.

Usage: python benchmarks/devices.py CORPUS [--devices cpu cuda] [--sentences 2048] [--like demo]
           [--shapes NAME ...] [--annotator none] [--batch-tokens 2048] [--dtype float32]
           [--levels auto full] [--processes 1]
           [--only numbers families options speed importance workers]

CORPUS is any file that Headbook reads; where it has too few sentences it is repeated. Each part
prints lines of JSON. The models have random weights and the tokenizer of the model `--like`. A run
is a process of its own, which first collects eight sentences, so that no import, no compiling of
loops and no start of a driver is timed. Seconds are of the clock, as a processor waits for a GPU.

`numbers`: tables of the first and the last device, from a model of the demo's shape. `families`:
the same from tiny models of all families of the tests, in float32 and in float64. `options`: the
same for options whose code depends on the device, and two runs on the last device, with other
options or with the same ones. `speed`: sentences a second of the pass over the corpus, without
importance. `importance`: planned passes of ablation a second. `workers`: one and two workers on the
last device.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))

import torch
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

import tiny
from headbook.errors import HeadbookError
from headbook.model.load import load_model
from headbook.progress import NoProgress
from headbook.run.collect import collect
from same_tables import differences, tables
from whole import repeated

Line = dict[str, Any]
SAMPLES = Path(__file__).resolve().parents[1] / "sample_inputs"
DTYPES = ("float32", "float64")
WARM = 8  # sentences of the first collection of a process, which is not timed
SPREAD = 0.06  # of random weights: three times the usual, so that attention is uneven
TOLERANCE = 1e-4  # of a number, or of 1 where it is smaller
FEW = 256  # sentences of runs with importance


@dataclass(frozen=True)
class Shape:
    """Architecture and sizes of a model."""

    kind: str
    layers: int
    heads: int
    width: int
    inner: int
    entries: int
    groups: int = 0  # heads of keys and values, if fewer


SHAPES = {
    "6 x 12, width 384": Shape("bert", 6, 12, 384, 1536, 30_522),  # the demo's
    "12 x 12, width 768": Shape("bert", 12, 12, 768, 3072, 30_522),  # of BERT-base
    "30 x 9, width 576, causal": Shape("llama", 30, 9, 576, 1536, 49_152, 3),  # of SmolLM2-135M
}
FIRST = next(iter(SHAPES))


@dataclass(frozen=True)
class Case:
    """Options of two runs of a tiny model of a family that are compared.

    Attributes:
        both: options of both runs.
        second: options of the second of two runs on the last device; None for a run on each device.
    """

    family: str
    both: Line
    second: Line | None = None
    corpus: str = "sentences.conllu"


OFF: Line = {"importance": "off"}
CASES = {
    "importance full": Case(
        "gpt2", {"importance": "full", "importance_sentences": 10}, corpus="minimal_pairs.jsonl"
    ),
    "importance full, float64": Case(
        "bert", {"importance": "full", "dtype": "float64", "limit": 12}
    ),
    "passages": Case("bert", OFF | {"pack": 64, "limit": 24}),
    "baselines": Case(
        "bert", OFF | {"control": "untrained,shuffled", "control_seeds": 2, "limit": 12}
    ),
    "vocabulary in bfloat16": Case("gpt2", OFF | {"vocabulary_precision": "bfloat16", "limit": 12}),
    "bfloat16": Case("llama", {"dtype": "bfloat16", "limit": 12}),
    "float16": Case("bert", {"dtype": "float16", "limit": 12}),
    "twice": Case("bert", {"limit": 40}, {}),
    "twice, causal": Case("llama", {"limit": 40}, {}),
    "other batches": Case("bert", OFF | {"limit": 40}, {"batch_tokens": 256}),
    "offload disk": Case("llama", {"limit": 12}, {"offload": "disk"}),
    "offload auto": Case("llama", {"limit": 12}, {"offload": "auto"}),
}


def write_model(folder: Path, like: str, shape: Shape) -> Path:
    """Write a model of a shape with random weights, and the tokenizer of another, to a folder."""
    torch.manual_seed(0)
    logging.disable_progress_bar()
    sizes: dict[str, Any] = {
        "vocab_size": shape.entries, "hidden_size": shape.width, "initializer_range": SPREAD,
        "num_hidden_layers": shape.layers, "num_attention_heads": shape.heads,
        "intermediate_size": shape.inner, "max_position_embeddings": 512,
    }  # fmt: skip
    if shape.kind == "llama":
        sizes |= {"num_key_value_heads": shape.groups, "tie_word_embeddings": True}
        LlamaForCausalLM(LlamaConfig(**sizes)).save_pretrained(folder)
    else:
        BertModel(BertConfig(**sizes)).save_pretrained(folder)
    load_model(like, device="cpu").tokenizer.save_pretrained(folder)
    return folder


class Timed(NoProgress):
    """Reporter that keeps messages, and when each stage begins."""

    def __init__(self) -> None:
        self.began: list[tuple[str, float]] = []
        self.messages: list[str] = []

    def stage(self, name: str, amount: int) -> None:
        """Keep the time."""
        self.began.append((name, time.perf_counter()))

    def message(self, text: str) -> None:
        """Keep the message."""
        self.messages.append(text)

    def seconds(self) -> dict[str, float]:
        """Seconds of each stage; the last one ends now."""
        ends = [*self.began, ("", time.perf_counter())]
        found: dict[str, float] = {}
        for (name, start), (_, end) in pairwise(ends):
            found[name] = found.get(name, 0.0) + end - start
        return found


def timed(file: str, options: Line) -> Line:
    """Collect in this process, after a first collection of few sentences."""
    alone = {"workers": 1, "limit": WARM}
    collect(file, **options | alone)
    on_gpu = options["device"] != "cpu"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    progress, start = Timed(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        collect(file, progress=progress, work=Path(folder) / "work", **options)
    line: Line = {"seconds": time.perf_counter() - start, "stages": progress.seconds()}
    if on_gpu:
        line["peak GB of the GPU"] = torch.cuda.max_memory_allocated() / 1e9
        line["reserved GB"] = torch.cuda.max_memory_reserved() / 1e9
    return line | {"messages": progress.messages}


def compared(file: str, options: Line) -> Line:
    """Collect twice in this process, and return the largest difference of each table."""
    runs = options.pop("runs")
    try:
        one, other = (tables(collect(file, **options | own)) for own in runs)
    except HeadbookError as error:
        return {"error": str(error)}
    found = [*differences(one, other, TOLERANCE)]
    return {
        "largest": {each.table: each.largest for each in found if each.rows},
        "cells": {each.table: each.cells for each in found if each.cells},
        "of cells": sum(one[each.table].size for each in found),
        "where": {each.table: each.where[:3] for each in found if each.where},
    }


def process(task: str, file: Path | str, **options: Any) -> Line:
    """Run `timed` or `compared` in a process of its own; an error becomes a line as well."""
    command = [sys.executable, __file__, str(file), "--task", task, "--options"]
    done = subprocess.run(  # noqa: S603
        [*command, json.dumps(options)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return {"error": done.stderr.strip()[-300:]}
    line: Line = json.loads(done.stdout.splitlines()[-1])
    return line


def both_devices(given: argparse.Namespace) -> list[Line]:
    """Return the options of a run on the first device and of one on the last."""
    return [{"device": device} for device in (given.devices[0], given.devices[-1])]


def numbers(given: argparse.Namespace, folder: Path) -> Iterator[Line]:
    """Yield the largest difference of each table between two devices."""
    model = write_model(folder / "model", given.like, SHAPES[FIRST])
    for dtype in DTYPES:
        yield {"shape": FIRST, "dtype": dtype} | process(
            "compared", given.corpus, model=str(model), runs=both_devices(given), dtype=dtype
        )


def families(given: argparse.Namespace, folder: Path) -> Iterator[Line]:
    """Yield the largest differences between two devices, for each family."""

    def line(name: str, dtype: str) -> Line:
        pairs = {**tiny.ALL, **tiny.OTHERS}[name].pairs
        corpus, model = SAMPLES / "pairs.tsv" if pairs else given.corpus, str(folder / name)
        found = process(
            "compared", corpus, model=model, runs=both_devices(given), dtype=dtype, limit=16
        )
        return {"family": name, "dtype": dtype} | found

    names = given.families or [*tiny.ALL]
    for name in names:
        tiny.write(name, folder / name, head=True)
    with ThreadPoolExecutor(given.processes) as crew:
        yield from crew.map(line, *zip(*product(names, DTYPES), strict=True))


def options(given: argparse.Namespace, folder: Path) -> Iterator[Line]:
    """Yield the largest differences of two runs, for options whose code depends on the device."""

    def line(name: str) -> Line:
        case, last = CASES[name], {"device": given.devices[-1]}
        runs = both_devices(given) if case.second is None else [last, last | case.second]
        model = str(folder / case.family)
        found = process("compared", SAMPLES / case.corpus, model=model, runs=runs, **case.both)
        return {"case": name} | found

    for family in {case.family for case in CASES.values()}:
        tiny.write(family, folder / family, head=True)
    with ThreadPoolExecutor(given.processes) as crew:
        yield from crew.map(line, CASES)


def speed(given: argparse.Namespace, folder: Path) -> Iterator[Line]:
    """Yield sentences a second of each shape on each device."""
    file = repeated(given.corpus, given.sentences, folder)
    for name in given.shapes:
        model = write_model(folder / name, given.like, SHAPES[name])
        for device in given.devices:
            yield {"shape": name, "device": device} | paced(
                given.sentences,
                process("timed", file, model=str(model), device=device, importance="off",
                        annotator=given.annotator, batch_tokens=given.batch_tokens,
                        dtype=given.dtype),
            )  # fmt: skip


def paced(sentences: int, line: Line) -> Line:
    """Add the sentences a second of the pass over the corpus."""
    if "error" in line:
        return line
    return {"sentences a second": sentences / line["stages"]["corpus"]} | line


def importance(given: argparse.Namespace, folder: Path) -> Iterator[Line]:
    """Yield seconds and passes a second of ablation, with a model of the first shape."""
    file = repeated(given.corpus, FEW, folder)
    model = write_model(folder / "model", given.like, SHAPES[FIRST])
    for level in given.levels:
        for device in given.devices:
            line = process(
                "timed", file, model=str(model), device=device, importance=level, annotator="none"
            )
            if "error" not in line:
                spent = line["stages"]["importance"]
                (message,) = (text for text in line["messages"] if "passes" in text)
                words = message.split()
                passes = float(words[words.index("forward") - 1].replace(",", ""))
                line = {"passes": passes, "s": spent, "passes a second": passes / spent} | line
            yield {"level": level, "device": device} | line


def workers(given: argparse.Namespace, folder: Path) -> Iterator[Line]:
    """Yield sentences a second of one and of two workers on the last device."""
    file = repeated(given.corpus, 2 * given.sentences, folder)
    model = write_model(folder / "model", given.like, SHAPES[FIRST])
    for crew in (1, 2):
        yield {"workers": crew, "device": given.devices[-1]} | paced(
            2 * given.sentences,
            process("timed", file, model=str(model), device=given.devices[-1], importance="off",
                    annotator=given.annotator, workers=crew),
        )  # fmt: skip


Part = Callable[[argparse.Namespace, Path], Iterator[Line]]
PARTS: dict[str, Part] = {
    "numbers": numbers, "families": families, "options": options, "speed": speed,
    "importance": importance, "workers": workers,
}  # fmt: skip
TASKS: dict[str, Callable[[str, Line], Line]] = {"timed": timed, "compared": compared}


def arguments() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("corpus")
    parser.add_argument("--devices", nargs="+", default=["cpu", "cuda"])
    parser.add_argument("--sentences", type=int, default=2048)
    parser.add_argument("--like", default="demo", help="model that has the tokenizer")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=[*SHAPES])
    parser.add_argument("--families", nargs="+", default=[])
    parser.add_argument("--processes", type=int, default=1, help="that compare at once")
    parser.add_argument("--levels", nargs="+", default=["auto", "full"])
    parser.add_argument("--annotator", default="none")
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)
    parser.add_argument("--options", type=json.loads, help=argparse.SUPPRESS)
    return parser.parse_args()


def rounded(value: Any) -> Any:
    """Return numbers with four digits."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def main(given: argparse.Namespace) -> None:
    """Print each line when it is known."""
    if given.task:
        print(json.dumps(TASKS[given.task](given.corpus, given.options)))  # noqa: T201
        return
    for part in given.only:
        with tempfile.TemporaryDirectory() as folder:
            for line in PARTS[part](given, Path(folder)):
                print(json.dumps(rounded({"part": part} | line)), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(arguments())
