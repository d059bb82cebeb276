"""Commands of Headbook run as forked processes, with tiny models, for `benchmarks/faults.py`.

A trial is a process forked from one that has imported everything, so that none imports it again.
"""

import ctypes
import os
import random
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import headbook.run.collect
import headbook.site.sites  # noqa: F401 - so that no trial imports them
from headbook.cli.main import main as run_command
from headbook.output_folder import store_folder
from headbook.run import prepare, shards

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/support"))
import tiny  # of the tests

Line = dict[str, object]
SHARD = 16  # sentences, so that a short corpus has several shards
FAST = (
    "--metrics=attention_to,cosine_to_input,type_shares", "--annotator=none", "--language=none",
    "--sample-sentences=12", "--importance-sentences=6", "--sentence-pages=2", "--exemplars=1",
    "--accept-failed-checks",
)  # fmt: skip
OFF = "--importance=off"
LIMIT = 120  # seconds after which a trial counts as a hang
WORDS = ("the", "cat", "dog", "sees", "small", "bird", "house", "old", "runs", "and")
CAPABILITIES = 0x20080522  # version 3 of their header, see capset(2)


def begin(argv: list[str], log: Path, *, plain: bool = False) -> int:
    """Start ``headbook`` with these arguments in a forked process, and return its number.

    Args:
        log: takes what is printed.
        plain: without root's right to ignore permissions, see `_drop_rights`.
    """
    number = os.fork()
    if number:
        return number
    code = 70
    try:
        os.setsid()
        stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(stream, 1)
        os.dup2(stream, 2)
        if plain:
            _drop_rights()
        sys.argv = ["headbook", *argv]
        run_command()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _drop_rights() -> None:
    """Give up all capabilities of root: permissions of files hold, as they do for other users.

    The process stays root's, which may own the interpreter, or no module could be read.
    """
    if ctypes.CDLL(None).capset(struct.pack("<Ii", CAPABILITIES, 0), bytes(24)):
        raise PermissionError("capset")


def ended(number: int, limit: float = LIMIT) -> int | None:
    """Wait for a forked process and return its exit code; None if it hangs, then it is killed."""
    start = time.monotonic()
    while time.monotonic() - start < limit:
        done, status = os.waitpid(number, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.killpg(number, signal.SIGKILL)
    os.waitpid(number, 0)
    return None


def trial(
    name: str,
    argv: list[str],
    *,
    wanted: tuple[int, ...] = (2,),
    plain: bool = False,
    limit: float = LIMIT,
) -> Line:
    """Run one command to its end.

    Args:
        wanted: exit codes that are right.
    """
    with tempfile.TemporaryDirectory(prefix="headbook-faults-") as folder:
        log, start = Path(folder, "log"), time.monotonic()
        code = ended(begin(argv, log, plain=plain), limit)
        text = log.read_text(errors="replace").replace("\r", "\n").strip()
    line: Line = {
        "trial": name,
        "code": code,
        "seconds": round(time.monotonic() - start, 1),
        "said": (text.splitlines() or [""])[-1],
    }
    if code is None:
        line["fault"] = "hangs"
    elif "Traceback" in text:
        line["fault"] = "a traceback"
    elif code not in wanted:
        line["fault"] = f"code {code}"
    return line


class Desk:
    """A folder with a tiny model and inputs.

    Attributes:
        folder: where all trials work.
        draw: random numbers of the run's seed.
        model: a BERT of two layers.
        few: an input of five sentences.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.draw = folder, random.Random(seed)  # noqa: S311 - no secret
        self.model = tiny.write("bert", folder / "bert")
        self.few = self.texts("few.txt", 5)

    def texts(self, name: str, size: int) -> Path:
        """Write a file of so many sentences, and return it."""
        file = self.folder / name
        lines = (" ".join(self.draw.choices(WORDS, k=self.draw.randint(2, 9))) for _ in range(size))
        file.write_text("\n".join(lines) + "\n")
        return file

    def command(self, inputs: Path, out: Path, *more: str, model: Path | None = None) -> list[str]:
        """Return the arguments of a short collection."""
        given = [f"--model={model or self.model}", f"--out={out}", *FAST, *more]
        return ["collect", str(inputs), *given]

    def stopped(self, texts: Path, out: Path, *, plain: bool = False, parts: int = 3) -> Path:
        """Kill a collection when so many parts are kept, and return the folder of its parts."""
        work, log = store_folder(out), self.folder / "stopped.log"
        process = begin(self.command(texts, out, OFF), log, plain=plain)
        start = time.monotonic()
        while time.monotonic() < start + LIMIT and len([*work.rglob("*.part")]) < parts:
            time.sleep(0.005)
        os.kill(process, signal.SIGKILL)
        ended(process)
        return work


def content(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder."""
    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def left(folder: Path) -> list[str]:
    """Return the names in a folder, hidden ones too."""
    return sorted(entry.name for entry in folder.iterdir())


@contextmanager
def small_shards() -> Iterator[None]:
    """Keep parts of small corpora too, in small shards."""
    places = (
        (prepare, "SHARD_SENTENCES"),
        (shards, "SHARD_SENTENCES"),
        (prepare, "MAX_UNSTORED_SENTENCES"),
    )
    before = [getattr(module, name) for module, name in places]
    for module, name in places:
        setattr(module, name, SHARD)
    try:
        yield
    finally:
        for (module, name), value in zip(places, before, strict=True):
            setattr(module, name, value)
