"""Commands and code of the documents run: in order, each document in a folder of its own.

Models are tiny random ones and texts few. Where a document does not name its own, there is one
metric, no annotator, and no head is taken away; everything else is as the document has it.
"""

import gzip
import io
import logging
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
import warnings
import webbrowser
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModel

import headbook
from code_blocks import DOCUMENTS, ROOT, all_commands, blocks, commands, name, read
from headbook.cli import main as cli

LANGUAGES = {"sh", "python", "toml", "yaml", "text"}
FAMILIES = {  # what stands for the models of documents
    "demo": "bert",
    "bert-base-uncased": "bert",
    "./my-model": "bert",
    "demo-causal": "llama",
    "SmolLM2-135M-Instruct.Q4_1.gguf": "llama",
    "gpt2": "gpt2",
    "Helsinki-NLP/opus-mt-en-de": "marian",
    "facebook/nllb-200-distilled-600M": "nllb",
    "answerdotai/ModernBERT-base": "modernbert",
    "cross-encoder/nli-MiniLM2-L6-H768": "bert",
}
CHEAP = {
    "--metrics": "attention_distance",
    "--annotator": "none",
    "--importance": "off",
    "--exemplars": "1",
    "--sentence-pages": "1",
}
STEPS = "step-0,step-16"  # checkpoints of a training that a document has made
FEW = "attention_distance,offset_profile"  # metrics of what documents begin with
NOT_HERE = {  # words of commands that are left out or replaced, and why
    "en_core_web_trf": ("embedded", "a pipeline that the reader installs"),
    "cuda": ("cpu", "a machine may have no GPU"),
    "main": ("", "folders have no revisions"),
    "256": ("64", "tiny models have positions for 72 tokens"),
    "4000": ("64", "tiny models have positions for 72 tokens"),
    "cuda:0,cuda:1": ("cpu,cpu", "there is no GPU"),
    "ray": ("local", "no cluster"),
    "16": ("2", "workers of a cluster: here are two cores"),
    "--address": ("", "no cluster"),
    "head:6379": ("", "no cluster"),
    "--revision": ("", "folders have no revisions"),
    "owner/name": ("my-dataset", "there is no network"),
}
ONLY_LOOKED_AT = {  # programs whose commands do not run, and why
    "make": "installs, builds and tests everything; its own commands are printed",
    "pip": "asks a registry; its extras are looked up",
    "python": "measures for minutes to hours; it is asked for its options",
}
TEXTS = "the cat sees a dog\nthe old dog runs near the garden\nthe small bird sings\n"
FILES = {
    "sentences.txt": TEXTS,
    "corpus.txt": TEXTS,
    "part-1.txt": TEXTS,
    "part-2.txt": "a red house\nthe fisherman sees the water\n",
    "questions.csv": "question,answer\nwhere is the dog,near the house\nwho sings,the small bird\n",
    "more.jsonl": '{"text": "the bird sees a house"}\n',
    "notes.md": "My *notes*.\n",
    "notes.toml": '[pages]\nindex = "My *notes*."\n[heads.L1-H1]\nname = "mine"\n',
    "limits.md": "# Limits\n\nFew sentences.\n",
}
PACKED = {"corpus.jsonl.gz": '{"body": "the bird sees a house"}\n'}
DATASET = "my-dataset"  # what documents call one; its library is an extra
PARTS = {  # files of the sample inputs, and what stands between their texts
    "sentences.txt": "\n",
    "pairs.tsv": "\n",
    "nli.jsonl": "\n",
    "minimal_pairs.jsonl": "\n",
    "prompts.jsonl": "\n",
    "sentences.conllu": "\n\n",
}
OPTIONS = re.compile(r"--[\w-]+")


@dataclass(frozen=True)
class World:
    """Where a document is followed.

    Attributes:
        place: its folder.
        models: folder of a tiny model, by its family.
    """

    place: Path
    models: Callable[[str], Path]

    def model(self, name: str) -> str:
        """The folder that stands for a model."""
        return str(self.models(FAMILIES[name]))

    def provide(self, kind: str = "") -> None:
        """Put the study or the site there that a command takes and nothing before it has made."""
        if kind not in {"study", "site"} or (self.place / kind).exists():
            return
        study = headbook.collect(
            "sentences.txt",
            model=self.model("demo"),
            metrics=FEW,
            annotator="none",
            sentence_pages="1",
        )
        if kind == "study":
            study.save(kind)
        else:
            headbook.render(study, kind)

    def adapt(self) -> None:
        """Put an adapter of the tiny encoder there, and weights in the format of `torch.save`."""
        if not (self.place / "my-lora").exists():
            network = AutoModel.from_pretrained(self.models("bert"))
            torch.save(network.state_dict(), self.place / "pytorch_model.bin")
            config = LoraConfig(target_modules=["query", "value"], r=2, init_lora_weights=False)
            get_peft_model(network, config).save_pretrained(str(self.place / "my-lora"))

    def train(self, model: str, names: list[str]) -> None:
        """Put checkpoints there, a folder each."""
        for each in names:
            shutil.copytree(self.models("llama"), self.place / model / each, dirs_exist_ok=True)


@pytest.fixture
def world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_folder: Callable[[str], Path]
) -> Iterator[World]:
    """A new folder with the files that documents speak of, as the current one."""
    for file, text in FILES.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    for file, text in PACKED.items():
        (tmp_path / file).write_bytes(gzip.compress(text.encode()))
    (tmp_path / DATASET).mkdir()
    rows = [{"text": text, "sentence": text} for text in TEXTS.splitlines()]
    for split in ("train", "validation"):
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / DATASET / f"{split}.parquet")
    (tmp_path / "sample_inputs").mkdir()
    for file, part in PARTS.items():
        whole = read(ROOT / "sample_inputs" / file).split(part)
        few = part.join(whole[:8]) + part
        (tmp_path / "sample_inputs" / file).write_text(few, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(webbrowser, "open", lambda _: True)
    with warnings.catch_warnings():
        yield World(tmp_path, tiny_folder)
    logging.disable(logging.NOTSET)


def follow(world: World, text: str) -> None:
    """Do what a document says, in order."""
    for language, code in blocks(text):
        if language == "sh":
            for command in commands(code):
                run(world, command)
        elif language == "toml":
            (world.place / "headbook.toml").write_text(of_tiny(world, code), encoding="utf-8")
        elif language == "python":
            exec(compile(of_tiny(world, code), "document", "exec"), {"__name__": "document"})  # noqa: S102


def of_tiny(world: World, code: str) -> str:
    """Python or TOML with a tiny model; Python with one metric and a page."""

    def model(found: re.Match[str]) -> str:
        name = f'model{found[1]}"{world.model(found[2])}"'
        more = ', metrics="attention_distance", sentence_pages="1"'
        return name + more * (found[1] == "=")

    code = re.sub(
        r'from_pretrained\("([^"]+)"',
        lambda found: f'from_pretrained("{world.model(found[1])}"',
        code,
    )
    return re.sub(r'\bmodel( ?= ?)"([^"]+)"', model, code)


def run(world: World, command: str) -> None:
    """Run a command, or look at one that cannot run."""
    before, _, last = command.rpartition(" | ")
    program, *words = shlex.split(last)
    if program != "headbook":
        assert program in ONLY_LOOKED_AT, command
        CHECKS[program](words)
        return
    piped = subprocess.run(["sh", "-c", before], check=True, capture_output=True).stdout
    words = [text for text in (NOT_HERE.get(word, (word,))[0] for word in words) if text]
    if DATASET in words and find_spec("datasets") is None:
        return
    out = Path(words[words.index("--out") + 1]) if "--out" in words else None
    if out is not None and "--force" not in words:
        shutil.rmtree(out, ignore_errors=True)
        out.unlink(missing_ok=True)
    world.provide(*words[1:2])
    if "./my-lora" in words:
        world.adapt()
    if words[0] == "checkpoints" and "--studies" not in words:
        listed = words[words.index("--revisions") + 1] if "--revisions" in words else STEPS
        world.train(words[words.index("--model") + 1], listed.split(","))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(piped), encoding="utf-8"))
        cli.app(tiny_words(world, words), standalone_mode=False)
    assert out is None or out.exists(), command


def tiny_words(world: World, words: list[str]) -> list[str]:
    """A command with a tiny model, one metric and a page, unless it says itself."""
    if words[0] == "checkpoints" and "--studies" not in words:
        return words + [w for pair in CHEAP.items() for w in pair]
    if words[0] not in {"build", "collect", "demo"}:
        return compared_words(world, words) if words[0] == "compare" else words
    words = [*words]
    if "--model" in words:
        at = words.index("--model") + 1
        words[at] = world.model(words[at])
    elif "--config" not in words:
        words += ["--model", world.model("demo")]
    return words + [w for pair in CHEAP.items() if pair[0] not in words for w in pair]


def compared_words(world: World, words: list[str]) -> list[str]:
    """The same of two models; studies are compared as they are."""
    if "--models" not in words:
        return words
    words, at = [*words], words.index("--models") + 1
    words[at : at + 2] = map(world.model, words[at : at + 2])
    return words + [w for pair in CHEAP.items() if pair[0] not in words for w in pair]


def check_make(words: list[str]) -> None:
    """A target of the Makefile, which prints what it would do."""
    command = ["make", "--dry-run", "--directory", str(ROOT), *words]
    subprocess.run(command, check=True, capture_output=True)


def check_pip(words: list[str]) -> None:
    """The package in this folder, with extras that it has; or one of a fixed version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    command, *options, package = words
    assert command == "install"
    if options:
        assert options == ["--no-deps"]
        assert re.fullmatch(r"[\w-]+==[\d.]+", package)
        return
    match = re.fullmatch(r"\.\[(\w+)\]", package)
    assert match is not None
    assert match[1] in project["optional-dependencies"]


def check_python(words: list[str]) -> None:
    """A script of this project, which takes the options that stand behind it."""
    script = ROOT / words[0]
    message = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(script), "--help"])
        patch.setattr(sys, "path", [str(script.parent), *sys.path])
        patch.setattr(sys, "stdout", message)
        patch.setenv("HF_HUB_OFFLINE", "1")
        with pytest.raises(SystemExit, match="0"):
            runpy.run_path(str(script), run_name="__main__")
    given = {option for word in words[1:] for option in OPTIONS.findall(word)}
    assert given <= {*OPTIONS.findall(message.getvalue())}


CHECKS = {"make": check_make, "pip": check_pip, "python": check_python}
RUNNING = [file for file in DOCUMENTS if blocks(read(file))]


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("file", RUNNING, ids=name)
def test_what_a_document_says_can_be_done(file: Path, world: World) -> None:
    follow(world, read(file))


@pytest.mark.soak
def test_the_example_of_the_package_runs(world: World) -> None:
    assert blocks(headbook.__doc__ or "", "python")
    follow(world, headbook.__doc__ or "")
    assert (world.place / "site" / "index.html").is_file()


@pytest.mark.parametrize("file", RUNNING, ids=name)
def test_blocks_say_their_language(file: Path) -> None:
    assert {language for language, _ in blocks(read(file))} <= LANGUAGES


def test_every_exemption_is_needed() -> None:
    found = all_commands()
    words = {word for command in found for word in shlex.split(command)}
    assert {*NOT_HERE} <= words
    assert {*ONLY_LOOKED_AT} <= {command.split()[0] for command in found}
    assert all(reason for *_, reason in NOT_HERE.values())


@pytest.mark.soak
@pytest.mark.slow
def test_a_command_that_fails_is_seen(world: World) -> None:
    """What follows documents must itself be able to fail."""
    for wrong in ("headbook build missing.txt --out s", "headbook render study --oot s", "rm -r x"):
        with pytest.raises(Exception, match=r"missing|oot|rm"):
            follow(world, f"```sh\n{wrong}\n```\n")
    nowhere = replace(world, models=lambda family: world.place / family)
    example = 'import headbook\n\nheadbook.collect("sentences.txt", model="demo")\n'
    with pytest.raises(headbook.errors.HeadbookError):
        follow(nowhere, f"```python\n{example}```\n")
