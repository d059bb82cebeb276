"""The golden studies: six studies, a comparison and checkpoints, their inputs, models and sites.

Sites are built by the ``headbook`` command, as users build them, so that code inside the package
may be renamed. `SITES` names them; each is built in a folder of its own, with paths relative to
that folder, so that no page holds the path of a machine. Studies are kept beside their site, so
that other code can draw the site of the same studies (`draw`).
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parent
SAMPLES = TESTS.parent / "sample_inputs"
SOURCE = TESTS.parent / "src"
CHECKPOINTS = HERE / "checkpoints"
CLASSIFIER = HERE / "classifier"
STEPS = (0, 362, 640)  # of the tests' training; its induction head begins at about step 500
KEPT = {"build": "--keep-study", "compare": "--keep-studies", "checkpoints": "--keep-studies"}
OPTIONS: dict[str, str] = {}  # options that have a new name, such as {"--sample": "--subset"}
GROUPED = (
    "attention_distance,attention_to,type_shares,attention_parts,sink_share,relation_accuracy,offset_profile,"
    "same_sentence_preference,segmentation,cosine_to_input,head_distance,layer_cka,mixing_ratio"
)
EPOCH = "1700000000"  # the date of every golden study: 2023-11-14


def _encoder(place: Path) -> list[str]:
    """Return the demo encoder with everything that can be asked for."""
    shutil.copy(SAMPLES / "sentences.conllu", place)
    return [
        "build", "sentences.conllu", "--importance", "full", "--importance-sentences", "12",
        "--control", "untrained,shuffled", "--control-seeds", "1", "--sentence-pages", "6",
    ]  # fmt: skip


def _causal(place: Path) -> list[str]:
    """Return a trained causal model, with default options."""
    shutil.copy(SAMPLES / "sentences.txt", place)
    return ["build", "sentences.txt", "--model", "demo-causal", "--limit", "24"]


def _pair(place: Path) -> list[str]:
    """Return an encoder-decoder on pairs of texts, with gold alignments of some."""
    import tiny
    import treebank

    rows = [{"source": source, "target": target} for source, target in treebank.MANY_PAIRS]
    for row in rows[4:]:
        row["alignment"] = "0-0 1-1 2-2"
    _write_rows(place / "pairs.jsonl", rows)
    tiny.write("marian", place / "marian")
    return ["build", "pairs.jsonl", "--model", "marian", "--control", "shuffled"]


def _classifier(place: Path) -> list[str]:
    """Return a classifier of texts with their labels, and groups of them."""
    import classifier

    write_classifier(CLASSIFIER)
    shutil.copytree(CLASSIFIER, place / "classifier")
    _write_rows(place / "labels.jsonl", classifier.rows(40, seed=1))
    return ["build", "labels.jsonl", "--model", "classifier", "--facet", "label,where"]


def _groups(place: Path) -> list[str]:
    """Return groups of sentences and minimal pairs, each sentence behind another one in a passage.

    Some metrics are enough here: groups hold each of them once more for each value of a column.
    """
    lines = (SAMPLES / "minimal_pairs.jsonl").read_text(encoding="utf-8").splitlines()
    before = (SAMPLES / "sentences.txt").read_text(encoding="utf-8").splitlines()
    rows = []
    for number, row in enumerate(map(json.loads, lines[:24])):
        document = {"document": f"{row['pair_id']} {row['label']}"}
        rows += [row | document | {"text": before[number // 2]}, row | document]
    _write_rows(place / "passages.jsonl", rows)
    return [
        "build", "passages.jsonl", "--pack", "64", "--facet", "label,phenomenon",
        "--metrics", GROUPED, "--importance-sentences", "6", "--sentence-pages", "4",
    ]  # fmt: skip


def _gguf(place: Path) -> list[str]:
    """Return a tiny model in a GGUF file, with weights of eight bits."""
    import gguf_files
    import tiny

    shutil.copy(SAMPLES / "sentences.txt", place)
    words = tiny.write("gpt2", place / "gpt2")
    llama = gguf_files.original(words, place / "llama", rms_norm_eps=1e-5)
    gguf_files.write(llama, place / "tiny.gguf", kind="Q8_0")
    return ["build", "sentences.txt", "--model", "tiny.gguf", "--limit", "24"]


def _comparison(place: Path) -> list[str]:
    """Return the demo encoder beside itself with random weights."""
    shutil.copy(SAMPLES / "sentences.conllu", place)
    return [
        "compare", "sentences.conllu", "--models", "demo", "untrained", "--limit", "16",
        "--importance-sentences", "6", "--sentence-pages", "2",
    ]  # fmt: skip


def _checkpoints(place: Path) -> list[str]:
    """Three checkpoints of the model that tests train."""
    shutil.copy(SAMPLES / "sentences.txt", place)
    write_checkpoints(CHECKPOINTS)
    shutil.copytree(CHECKPOINTS, place / "run", dirs_exist_ok=True)
    return ["checkpoints", "sentences.txt", "--model", "run", "--limit", "24",
            "--importance-sentences", "8", "--sentence-pages", "2"]  # fmt: skip


SITES: dict[str, Callable[[Path], list[str]]] = {
    "encoder": _encoder, "causal": _causal, "pair": _pair, "classifier": _classifier,
    "comparison": _comparison, "checkpoints": _checkpoints, "groups": _groups, "gguf": _gguf,
}  # fmt: skip


def write_checkpoints(folder: Path) -> None:
    """Train the model of the checkpoints, unless they are stored.

    They are stored, with weights of 16 bits, since 640 steps of training enlarge what two machines
    round differently; only the checkpoints are compared, not the training.
    """
    if folder.exists():
        return
    import torch
    from transformers import AutoModelForCausalLM

    import training
    from trained_runs import RATE

    with tempfile.TemporaryDirectory() as place, _whole(folder) as draft:
        training.train(Path(place), STEPS[-1], texts=0, rate=RATE)
        for step in STEPS:
            name = f"step-{step}"
            shutil.copytree(Path(place) / name, draft / name)
            model = AutoModelForCausalLM.from_pretrained(draft / name, dtype=torch.float16)
            model.save_pretrained(draft / name)


def write_classifier(folder: Path) -> None:
    """Fine-tune the classifier, unless it is stored, with weights of 16 bits.

    It is stored for the reason of the checkpoints.
    """
    if folder.exists():
        return
    import torch
    from transformers import AutoModelForSequenceClassification

    import classifier

    with _whole(folder) as draft:
        classifier.write(draft)
        model = AutoModelForSequenceClassification.from_pretrained(draft, dtype=torch.float16)
        model.save_pretrained(draft)


@contextmanager
def _whole(folder: Path) -> Iterator[Path]:
    """Yield a draft of a folder that takes its place in the end, and not after a stop."""
    draft = folder.with_name(f"{folder.name}-draft")
    shutil.rmtree(draft, ignore_errors=True)
    yield draft
    draft.rename(folder)


def build(name: str, folder: Path, source: Path = SOURCE) -> Path:
    """Build a golden site below a folder, unless it is there, and return where it is.

    Prints the seconds that the command took, and the seconds of all processors together.

    Args:
        source: folder of the package's code.
    """
    place = folder / name
    site = place / "site"
    if site.exists():
        _print(f"{name}: taken from {site}")
        return site
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    given = [OPTIONS.get(each, each) for each in SITES[name](place)]
    start, busy = time.perf_counter(), _busy()
    _run(source, place, *given, KEPT[given[0]], "studies", "--out", "site", "--quiet")
    took = time.perf_counter() - start
    _print(f"{name}: built in {took:.0f} s, {_busy() - busy:.0f} s of processors")
    return site


def draw(name: str, folder: Path, source: Path, out: Path) -> None:
    """Draw the site of studies that `build` has kept, with the code of another folder.

    Raises:
        subprocess.CalledProcessError: that code cannot read the studies.
    """
    place = folder / name
    match name:
        case "comparison":
            command = ["compare", "studies/a", "studies/b"]
        case "checkpoints":
            command = ["checkpoints", "studies", "--studies"]
        case _:
            command = ["render", "studies"]
    _run(source, place, *command, "--out", str(out), "--quiet")


def _run(source: Path, place: Path, *arguments: str) -> None:
    """Run ``headbook`` in a folder, with the code of another one."""
    environment = os.environ | {
        "PYTHONPATH": str(source),
        "SOURCE_DATE_EPOCH": EPOCH,
        "HF_HUB_OFFLINE": "1",
        "USER": "golden",
        "LOGNAME": "golden",
    }
    command = [sys.executable, "-m", "headbook", *arguments]
    subprocess.run(command, cwd=place, env=environment, check=True)


def _busy() -> float:
    """Return the seconds that processors spent on commands that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def _write_rows(file: Path, rows: list[dict[str, str]]) -> None:
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def _print(text: str) -> None:
    print(text, flush=True)  # noqa: T201
