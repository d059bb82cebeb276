"""What collecting and rendering cost, as ratios inside one run.

Usage: python benchmarks/measure.py CORPUS [--model demo] [--sentences 1000] [--only NAME ...]

CORPUS is any input file that Headbook reads. Machines differ and are noisy: read the ratios, not
the seconds. Repetitions alternate between the things compared, and the fastest of each counts.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import headbook
from headbook.attention.token_states import NEIGHBOURS, TRACKED_NEIGHBOURS, TokenStates
from headbook.inputs import open_corpus
from headbook.memory import keep_freed_blocks
from headbook.metrics import all_metrics, attention_metrics, token_metrics
from headbook.metrics.base import Source
from headbook.model.architecture import probe_architecture
from headbook.model.embedding import read_embedding
from headbook.model.forward import observe_states, run_forward
from headbook.model.load import Model, load_model
from headbook.model.tokenizer import SentenceTokenizer
from headbook.model.vocabulary import VocabularyEmbeddings
from headbook.passes.corpus_pass import CorpusPass
from headbook.resources import demo_model
from headbook.schema import EmbeddingSpace, ResidualPoint, Side
from headbook.text.annotate import Annotator
from headbook.text.batch import Batch, PaddedTexts, batches_by_tokens
from headbook.text.tokens import TokenizedSentence

BATCH_TOKENS = 2048
REPEATS = 5
LARGE: dict[str, Any] = {
    "vocab_size": 32_000,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
}  # 1.1 billion parameters


def fastest(*tasks: Callable[[], object], repeats: int = REPEATS) -> list[float]:
    """Seconds of the fastest run of each task; the tasks take turns."""
    best = [float("inf")] * len(tasks)
    for _ in range(repeats):
        for number, task in enumerate(tasks):
            start = time.perf_counter()
            task()
            best[number] = min(best[number], time.perf_counter() - start)
    return best


def prepared(corpus: str, name: str, sentences: int) -> tuple[Model, list[TokenizedSentence]]:
    """Return a model and the first sentences of a corpus, annotated and tokenised."""
    model = load_model(name)
    with open_corpus([corpus]) as opened:
        some = (sentence for sentence in opened if sentence.index < sentences)
        encoder = SentenceTokenizer(model, limit=model.max_length, targets=Annotator.load("none"))
        items = list(encoder.tokenize(Annotator.load("embedded").annotate(some)))
    return model, items


def batches_of(model: Model, items: list[TokenizedSentence]) -> list[Batch]:
    """Return the batches that `collect` would make."""
    groups = batches_by_tokens(items, BATCH_TOKENS)
    return [Batch.of(group, model.device, torch.float32) for group in groups]


def attention(corpus: str, name: str, sentences: int) -> dict[str, float]:
    """All attention metrics in the hook, over the bare forward pass of the same batches."""
    model, items = prepared(corpus, name, sentences)
    architecture, batches = probe_architecture(model), batches_of(model, items)
    metrics = tuple(attention_metrics(all_metrics().values(), Source.ALL))
    corpus_pass = CorpusPass(model, architecture, metrics, (), 10)
    corpus_pass.batch_sums(batches[0])  # compiles its loops
    # Batch by batch: what else the machine does seldom hits every repetition of one.
    each = [
        fastest(
            partial(run_forward, model, architecture, batch),
            partial(corpus_pass.batch_sums, batch),
        )
        for batch in batches
    ]
    bare, corpus_sums = (sum(seconds) for seconds in zip(*each, strict=True))
    return {
        "bare forward pass, s": bare,
        "corpus, s": corpus_sums,
        "ratio": corpus_sums / bare,
    }


def vocabulary(corpus: str, name: str, sentences: int) -> dict[str, float]:
    """Rank and nearest tokens in each space, over the bare product with the embedding matrix."""
    model, items = prepared(corpus, name, sentences)
    architecture, batch = probe_architecture(model), batches_of(model, items)[0]
    texts = batch.texts[Side.SOURCE]
    known = read_embedding(model, architecture, Side.SOURCE, batch).vocabulary
    assert known is not None
    found: list[torch.Tensor] = []
    with observe_states(model, architecture, lambda *state: found.append(state[-1])):
        run_forward(model, architecture, batch)
    states = torch.stack(found[1:])  # the first is the input
    rows = states[:, texts.valid].flatten(0, 1)
    per_block = max(16, (1 << 22) // len(known.embedding))

    def product() -> None:
        for block in rows.split(per_block):
            _ = block @ known.embedding.T

    kinds = [ResidualPoint.MID, ResidualPoint.POST] * (len(states) // 2)

    def measured(space: EmbeddingSpace, near: int) -> Callable[[], object]:
        every = token_metrics(all_metrics().values())
        overlaps = [m for m in every if space in m.spaces]
        lookups = [m for m in overlaps if "overlap" not in m.id]

        def run() -> None:
            view = TokenStates(states, found[0], texts, known, kinds, near=near)
            for metric in overlaps if near == TRACKED_NEIGHBOURS else lookups:
                metric.measure(view, space)

        return run

    asked = [(space, near) for near in (NEIGHBOURS, TRACKED_NEIGHBOURS) for space in known.spaces]
    for space, near in asked:
        measured(space, near)()  # what is made once a run is not what is measured here
    bare, *each = fastest(product, *(measured(*one) for one in asked))
    numbers = {"states": float(len(rows)), "bare product, s": bare}
    for (space, near), seconds in zip(asked, each, strict=True):
        name = f"{space}, overlaps too" if near == TRACKED_NEIGHBOURS else space
        numbers |= {f"{name}, s": seconds, f"{name}, ratio": seconds / bare}
    return numbers


def sorting(corpus: str, name: str, _: int) -> dict[str, float]:
    """Ranks and ten nearest entries, over the same by sorting the vocabulary for each state."""
    model, items = prepared(corpus, name, 8)
    architecture, batch = probe_architecture(model), batches_of(model, items)[0]
    texts = batch.texts[Side.SOURCE]
    known = read_embedding(model, architecture, Side.SOURCE, batch).vocabulary
    assert known is not None
    found: list[torch.Tensor] = []
    with observe_states(model, architecture, lambda *state: found.append(state[-1])):
        run_forward(model, architecture, batch)
    states = torch.stack(found[1:])
    numbers = {"states": float(len(states) * int(texts.valid.sum()))}
    for space in known.spaces:

        def together(space: EmbeddingSpace = space) -> list[torch.Tensor]:
            # A vocabulary of its own: what is made once a run is measured, too.
            compared = replace(known, _factors={}).compare(states, texts, space, NEIGHBOURS)
            return [compared.ranks[:, texts.valid], compared.ids[:, texts.valid]]

        def one_by_one(space: EmbeddingSpace = space) -> list[torch.Tensor]:
            return sorted_one_by_one(known, states, texts, space)

        same = float((together()[0] == one_by_one()[0]).float().mean())
        fast, slow = fastest(together, one_by_one, repeats=2)
        numbers |= {f"{space}, together, s": fast, f"{space}, sorted one by one, s": slow}
        numbers |= {f"{space}, times faster": slow / fast, f"{space}, share of equal ranks": same}
    return numbers


def sorted_one_by_one(
    known: VocabularyEmbeddings, states: torch.Tensor, texts: PaddedTexts, space: EmbeddingSpace
) -> list[torch.Tensor]:
    """For each token its encodings of the vocabulary; for each state all cosines, sorted whole.

    Returns:
        Ranks, ``(state, token)``, and the nearest entries, ``(state, token, k)``.
    """
    ranks, near = [], []
    raw = torch.nn.functional.normalize(known.embedding, dim=-1)
    for row, place in texts.valid.nonzero().tolist():
        table = raw
        if space is EmbeddingSpace.POSITIONAL:
            assert known.positions is not None
            table = known.embedding * known.scale + known.positions[place]
            if known.norm is not None:
                gain, bias, epsilon = known.norm
                table = torch.nn.functional.layer_norm(table, gain.shape, gain, bias, epsilon)
            table = torch.nn.functional.normalize(table, dim=-1)
        own = int(texts.ids[row, place])
        for state in states[:, row, place]:
            order = (table @ torch.nn.functional.normalize(state, dim=-1)).argsort(descending=True)
            ranks.append(int((order == own).nonzero()))
            near.append(order[:NEIGHBOURS])
    n_tokens = int(texts.valid.sum())
    by_state = torch.tensor(ranks).view(n_tokens, -1).T
    return [by_state, torch.stack(near).view(n_tokens, len(states), -1).transpose(0, 1)]


def memory(corpus: str, name: str, sentences: int) -> dict[str, float]:
    """Peak memory of collecting many sentences over collecting few, each in its own process."""
    few, many = (_peak(corpus, name, n) for n in (sentences // 10, sentences * 10))
    return {
        f"peak at {sentences // 10:,} sentences, MB": few,
        f"peak at {sentences * 10:,} sentences, MB": many,
        "ratio": many / few,
    }


def _peak(corpus: str, name: str, sentences: int) -> float:
    """Peak memory of a collection of so many sentences, the corpus repeated as often as needed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "repeated.jsonl"
        with open_corpus([corpus]) as opened:
            texts = [sentence.text for sentence in opened]
        with file.open("w", encoding="utf-8") as stream:
            for number in range(sentences):
                # A number at the end keeps repeated sentences from being the same sentence.
                turn, position = divmod(number, len(texts))
                text = texts[position] + (f" {turn}" if turn else "")
                stream.write(json.dumps({"text": text}) + "\n")
        command = [sys.executable, __file__, str(file), "--model", name, "--only", "peak"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    return float(json.loads(done.stdout.splitlines()[-1])["peak"]["MB"])


def peak(corpus: str, name: str, _: int) -> dict[str, float]:
    """Peak memory of this process after one collection."""
    headbook.collect([corpus], model=name)
    unit = 1 if platform.system() == "Darwin" else 1024
    return {"MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6}


def loading(corpus: str, name: str, _: int) -> dict[str, float]:
    """Peak memory of loading a random decoder over its weights, each format in its own process.

    The checkpoint is of 1.1 billion parameters in bfloat16 and takes 2.2 GB of disk meanwhile.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig  # noqa: PLC0415

    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        config = LlamaConfig(**LARGE)
        network = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        network.save_pretrained(folder)
        AutoTokenizer.from_pretrained(demo_model()).save_pretrained(folder)
        for dtype in ("bfloat16", "float32"):
            command = [sys.executable, __file__, dtype, "--model", folder, "--only", "load"]
            done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
            each = json.loads(done.stdout.splitlines()[-1])["load"]
            found |= {f"{dtype}, {what}": value for what, value in each.items()}
    return found


def load(dtype: str, name: str, _: int) -> dict[str, float]:
    """Peak memory of loading one model in this process, on Linux; the demo model comes before."""
    load_model("demo", device="cpu")
    before, best, done = _held(), [0, 0], threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            best[:] = map(max, best, _held())

    watcher = threading.Thread(target=watch)
    watcher.start()
    model = load_model(name, device="cpu", dtype=dtype)
    done.set()
    watcher.join()
    size = sum(each.nbytes for each in model.network.parameters())
    own, whole = ((most - first) / size for most, first in zip(best, before, strict=True))
    return {"own memory over weights": own, "with mapped file over weights": whole}


def _held() -> tuple[int, int]:
    """Bytes that this process has in memory: its own, and with the files that it maps."""
    lines = Path("/proc/self/status").read_text().splitlines()
    sizes = {key: value for key, _, value in (line.partition(":") for line in lines)}
    own, whole = (int(sizes[key].split()[0]) * 1024 for key in ("RssAnon", "VmRSS"))
    return own, whole


def site(corpus: str, name: str, sentences: int) -> dict[str, float]:
    """Seconds to collect and to render, and bytes of the site, with default options."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "some.jsonl"
        with open_corpus([corpus]) as opened:
            some = [sentence.text for sentence in opened if sentence.index < sentences]
        file.write_text("".join(json.dumps({"text": text}) + "\n" for text in some))
        start = time.perf_counter()
        study = headbook.collect([file], model=name)
        collected = time.perf_counter()
        summary = headbook.render(study, Path(folder) / "site")
        rendered = time.perf_counter()
    return {
        "collect, s": collected - start,
        "render, s": rendered - collected,
        "pages": float(summary.pages),
        "pages a second": summary.pages / (rendered - collected),
        "site, MB": summary.size / 1e6,
    }


PARTS = {
    "attention": attention,
    "vocabulary": vocabulary,
    "sorting": sorting,
    "memory": memory,
    "loading": loading,
    "site": site,
}


def main() -> None:
    """Run the parts and print each as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("corpus")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--only", nargs="*", default=[*PARTS])
    given = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    machine = f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}"
    print(json.dumps({"machine": machine, "threads": torch.get_num_threads()}))  # noqa: T201
    keep_freed_blocks()  # as the command line does
    for name in given.only:
        part = (PARTS | {"peak": peak, "load": load})[name]
        numbers = part(given.corpus, given.model, given.sentences)
        print(json.dumps({name: {key: round(value, 3) for key, value in numbers.items()}}))  # noqa: T201


if __name__ == "__main__":
    main()
