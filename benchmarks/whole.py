"""What a study and its site cost from command to page, over the least that they could cost.

Usage: python benchmarks/whole.py CORPUS [--sentences 64 1000] [--repeats 1] [--importance auto]
           [--only NAME ...]

CORPUS is any file that Headbook reads; it is repeated where it has too few sentences. Times are
seconds of the processor, with one thread and one process each, so that neither other programs nor
its own disturb much; what a user waits for is said beside, by the clock and with as many processes
as by default. The least is the sum of what no tool can do without: Python with torch and
transformers, the model, one bare pass over all sentences, one over those that pages show and one
over the random sequences that some metrics are taken on, and the bare float32 products of states
with the vocabulary. Both take turns, and the fastest of each counts. Passes without heads are no
part of the least: `--importance off` measures a build without them.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

from headbook import Study
from headbook.inputs import open_corpus
from headbook.model.architecture import probe_architecture
from headbook.model.embedding import read_embedding
from headbook.model.forward import run_forward
from headbook.model.load import Model, load_model
from headbook.model.tokenizer import SentenceTokenizer, random_sequences
from headbook.model.vocabulary import MAX_BLOCK_SCORES
from headbook.schema import Side
from headbook.text.annotate import Annotator
from headbook.text.batch import Batch, batches_by_tokens
from headbook.text.tokens import TokenizedSentence

GOALS = {64: 3.0, 1000: 2.5}  # of a build of so many sentences; of others 3
FEW = 8  # sentences for models of many heads: these end within minutes
LONG = 4000  # tokens of one text
START = "import torch; from transformers import AutoModel, AutoTokenizer"
FIRST = """
import sys, time
from headbook.progress import NoProgress
from headbook.site.sites import render
class Told(NoProgress):
    def message(self, text):
        print(time.process_time())
        sys.exit()
render(sys.argv[1], sys.argv[2], progress=Told())
"""  # says when the overview is on disk, and goes
GIGA = 1e9
BATCH_TOKENS = 2048


class Shape(NamedTuple):
    """A kind of model and its sizes."""

    kind: str
    layers: int
    heads: int
    width: int


SHAPES = {
    "30 x 9 heads, causal": Shape("llama", 30, 9, 576),
    "32 x 32 heads": Shape("bert", 32, 32, 512),
}


class Spent(NamedTuple):
    """What a process and its children took.

    Attributes:
        seconds: of the processor.
        clock: seconds of the clock.
        peak: most memory of the process itself, in bytes.
    """

    seconds: float
    clock: float
    peak: float
    output: str


@dataclass(frozen=True)
class Line:
    """One result beside its goal."""

    name: str
    value: float
    goal: str
    note: str

    def __str__(self) -> str:
        return f"{self.name:52}{self.value:9.2f}   goal {self.goal:8} {self.note}"


def spend(*command: str, folder: Path) -> Spent:
    """Run a process and wait for it."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    start = time.monotonic()
    with (folder / "said").open("w+") as message:
        process = subprocess.Popen(command, stdout=message, env=environment)  # noqa: S603
        _, status, used = os.wait4(process.pid, 0)
        clock = time.monotonic() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        message.seek(0)
        output = message.read()
    if process.returncode not in {0, 3}:  # a self-check may fail with random weights
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    return Spent(used.ru_utime + used.ru_stime, clock, used.ru_maxrss * unit, output)


def headbook(*arguments: str, folder: Path) -> Spent:
    """Run a command of Headbook."""
    return spend(sys.executable, "-m", "headbook", *arguments, "--quiet", folder=folder)


def repeated(corpus: str, sentences: int, folder: Path) -> Path:
    """So many sentences of a corpus; a number makes repeated ones different."""
    with open_corpus([corpus]) as opened:
        texts = [sentence.text for sentence in opened]
    file = folder / f"{sentences}.jsonl"
    with file.open("w", encoding="utf-8") as stream:
        for number in range(sentences):
            turn, position = divmod(number, len(texts))
            text = texts[position] + (f" {turn}" if turn else "")
            stream.write(json.dumps({"text": text}) + "\n")
    return file


class Built(NamedTuple):
    """What a study, its site and the least that both take have cost, in seconds, and bytes.

    All seconds are of the processor but ``clock``: those that a user waits for study and site.
    """

    least: float
    collect: float
    render: float
    first: float
    clock: float
    pages: int
    sizes: Counter[str]


def built(file: Path, model: str, folder: Path, given: argparse.Namespace) -> Built:
    """Collect, render, and measure the least, in turns."""
    study, site = folder / "study", folder / "site"
    rounds = []
    for _ in range(given.repeats):
        options = ("--importance", given.importance, "--out", str(study), "--force")
        collect = headbook("collect", str(file), "--model", model, *options, folder=folder)
        start = spend(sys.executable, "-c", START, folder=folder).seconds
        asked = ("--least", model, "--study", str(study))
        least = spend(sys.executable, __file__, str(file), *asked, folder=folder).output
        render_args = ("render", str(study), "--out", str(site), "--force")
        render = headbook(*render_args, "--processes", "1", folder=folder)
        waited = collect.clock + headbook(*render_args, folder=folder).clock
        page = spend(sys.executable, "-c", FIRST, str(study), str(folder / "first"), folder=folder)
        least_of_all = start + float(least.split()[-1])
        first = float(page.output.split()[-1])
        rounds.append((least_of_all, collect.seconds, render.seconds, first, waited))
    files = [path for path in site.rglob("*") if path.is_file()]
    sizes = Counter[str]()
    for path in files:
        sizes[path.suffix or path.name] += path.stat().st_size
    pages = sum(path.suffix == ".html" for path in files)
    floor, collected, rendered, soonest, clock = map(min, zip(*rounds, strict=True))
    return Built(floor, collected, rendered, soonest, clock, pages, sizes)


def least(file: str, name: str, study: str) -> float:
    """Seconds for the model, the passes over all that is asked for, and the bare products."""
    loaded_study = Study.load(study)
    displayed, tracked = _kept(loaded_study)
    start = time.process_time()
    model = load_model(name)
    loaded = time.process_time() - start
    items = _prepared(file, model)
    some = [item for item in items if item.sentence.index in displayed]
    random = _random(model, loaded_study)
    return loaded + _passes(model, items, some, random) + _products(model, items, tracked)


def _random(model: Model, study: Study) -> list[TokenizedSentence]:
    """Return the random sequences of a study."""
    if not study.corpus_sums.random:
        return []
    encoder = SentenceTokenizer(model, model.max_length, Annotator.load("none"))
    return [*random_sequences(encoder, study.manifest.options["seed"])]


def _passes(model: Model, *parts: Sequence[TokenizedSentence]) -> float:
    """Bare passes over some sentences each."""
    architecture = probe_architecture(model)
    batches = [batch for part in parts for batch in _batches(model, part)]
    start = time.process_time()
    for batch in batches:
        run_forward(model, architecture, batch)
    return time.process_time() - start


def _products(model: Model, items: Sequence[TokenizedSentence], tracked: set[int]) -> float:
    """Every state of the tokens times all word embeddings, in each space; and the head, if any.

    The largest blocks that products with the vocabulary are made in, of any numbers.
    """
    architecture, size = (
        probe_architecture(model),
        model.base_model.get_input_embeddings().weight.shape,
    )
    some = [item for item in items if item.sentence.index in tracked]
    (batch, *_) = _batches(model, some)
    known = read_embedding(model, architecture, Side.SOURCE, batch).vocabulary
    spaces = len(known.spaces) if known is not None else 0
    (stack, *_) = architecture.stacks.values()
    states = 2 * stack.n_layers + 1  # the input, and two of each layer
    headed = 0 if model.headless else 2 * stack.n_layers
    rows = sum(len(item.tokens[Side.SOURCE]) for item in some) * (spaces * states + headed)
    embedding, block = torch.rand(size), max(16, MAX_BLOCK_SCORES // size[0])
    vectors = torch.rand(block, size[1])
    start = time.process_time()
    for _ in range(0, rows, block):
        _ = vectors @ embedding.T
    return time.process_time() - start


def _prepared(file: str, model: Model) -> list[TokenizedSentence]:
    """Return the tokenized sentences."""
    none = Annotator.load("none")
    with open_corpus([file]) as opened:
        return [
            *SentenceTokenizer(model, limit=model.max_length, targets=none).tokenize(
                none.annotate(opened)
            )
        ]


def _batches(model: Model, items: Sequence[TokenizedSentence]) -> list[Batch]:
    groups = batches_by_tokens(items, BATCH_TOKENS)
    return [Batch.of(group, model.device) for group in groups]


def _kept(study: Study) -> tuple[set[int], set[int]]:
    """Return indices of sentences with pages, and of those compared with the vocabulary."""
    sentence_data, options = study.sentence_data, study.manifest.options
    listed = {index for index, sentence in sentence_data.sentences.items() if sentence.listed}
    sums = next(iter(study.corpus_sums.heads.values()))
    sampled = sums.sample.first(options["vocabulary_sentences"]).index
    tracked = listed | set(map(int, sampled))
    return {*sentence_data.sentences} | tracked, tracked


def builds(given: argparse.Namespace, folder: Path) -> Iterator[Line]:
    """Yield builds of a number of sentences."""
    for sentences in given.sentences:
        file = repeated(given.corpus, sentences, folder)
        name = f"build of {sentences:,} sentences"
        yield from _ratios(name, built(file, given.model, folder, given), sentences)


def shapes(given: argparse.Namespace, folder: Path) -> Iterator[Line]:
    """Yield builds of few sentences with models of many heads, random weights, 50,000 entries."""
    file = repeated(given.corpus, FEW, folder)
    for name, shape in SHAPES.items():
        model = write_model(folder / "model", given.model, shape)
        yield from _ratios(f"build, {name}", built(file, str(model), folder, given), FEW)


def _ratios(name: str, found: Built, sentences: int) -> Iterator[Line]:
    whole = found.collect + found.render
    note = f"least {found.least:.1f} s; {found.clock:.1f} s on the clock"
    yield Line(f"{name}, over the least", whole / found.least, f"{GOALS.get(sentences, 3.0)}", note)
    message = f"{found.collect:.1f} s"
    yield Line(f"{name}: of this collect", found.collect / found.least, "", message)
    message = f"{found.pages} pages, {found.render:.1f} s of the processor"
    yield Line(f"{name}: pages a second of a processor", found.pages / found.render, "", message)
    yield Line(f"{name}: seconds to the first page", found.first, "3", "of the processor")
    sizes = ", ".join(f"{kind} {size / 1e6:.1f}" for kind, size in found.sizes.most_common(6))
    yield Line(f"{name}: site, MB", found.sizes.total() / 1e6, "", sizes)


def memory(given: argparse.Namespace, folder: Path) -> Iterator[Line]:
    """Peak memory of collecting 10,000 sentences, over 100 sentences."""
    peaks = []
    for sentences in (100, 10_000):
        file = repeated(given.corpus, sentences, folder)
        asked = (str(file), "--model", given.model, "--out", str(folder / "study"), "--force")
        peaks.append(headbook("collect", *asked, folder=folder).peak)
    few, many = peaks
    note = f"{many / GIGA:.2f} over {few / GIGA:.2f} GB"
    yield Line("peak memory, 10,000 over 100 sentences", many / few, "1.1", note)


def long(given: argparse.Namespace, folder: Path) -> Iterator[Line]:
    """Peak memory of one long text, above that of the loaded model."""
    model = write_model(folder / "long", given.model, Shape("bert", 12, 12, 384))
    file = folder / "long.txt"
    file.write_text("The cat sat on the mat and looked at it. " * (LONG // 11) + "\n")
    code = f"from headbook.model.load import load_model; load_model({str(model)!r})"
    bare = spend(sys.executable, "-c", code, folder=folder).peak
    asked = ("--model", str(model), "--max-length", str(LONG), "--memory", "4GB")
    out = ("--out", str(folder / "study"), "--force")
    peak = headbook("collect", str(file), *asked, *out, folder=folder).peak
    message = f"{peak / GIGA:.2f} GB with the model"
    yield Line(
        f"one text of {LONG:,} tokens, 12 x 12 heads, GB", (peak - bare) / GIGA, "4", message
    )


def write_model(folder: Path, like: str, shape: Shape) -> Path:
    """Return a model of some shape with random weights and the tokenizer of another."""
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 50_000, "hidden_size": shape.width, "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads, "intermediate_size": 4 * shape.width,
        "max_position_embeddings": LONG + 8,
    }  # fmt: skip
    kinds = {"bert": (BertConfig, BertModel), "llama": (LlamaConfig, LlamaForCausalLM)}
    config, network = kinds[shape.kind]
    network(config(**sizes)).save_pretrained(folder)
    load_model(like).tokenizer.save_pretrained(folder)
    return folder


Part = Callable[[argparse.Namespace, Path], Iterator[Line]]
PARTS: dict[str, Part] = {"builds": builds, "shapes": shapes, "memory": memory, "long": long}


def main() -> None:
    """Print each line when it is known."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("corpus")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--sentences", type=int, nargs="*", default=[64, 1000])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--importance", default="auto", help="as headbook's own option")
    parser.add_argument("--only", nargs="*", default=[*PARTS])
    parser.add_argument("--least", metavar="MODEL", help="measure the least, for a study")
    parser.add_argument("--study")
    given = parser.parse_args()
    if given.least:
        print(least(given.corpus, given.least, given.study))  # noqa: T201
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in given.only:
            for line in PARTS[name](given, Path(folder)):
                print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
