"""Where a model's files are: what stands behind a name of the command line."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import huggingface_hub
from huggingface_hub.errors import CacheNotFound

from headbook.errors import ModelError
from headbook.model.gguf import Gguf, read_gguf
from headbook.model.modelname import DEMO, DEMO_CAUSAL, GGUF, check_name, unknown
from headbook.model.weights.pooling import CONFIG, FOLDER, MODULES
from headbook.resources import DEMO_CAUSAL_SHA256, DEMO_SHA256, demo_causal, demo_model, sha256

FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]


@dataclass(frozen=True)
class Checkpoint:
    """Files of a model.

    Attributes:
        folder: where they are.
        name: hub id, or the folder's or file's own name.
        revision: commit of a hub model; hash of the weights of a folder or file.
        gguf: the file that holds all; None where there are several.
    """

    folder: Path
    name: str
    revision: str
    gguf: Gguf | None = None


def find(name: str, revision: str | None) -> Checkpoint:
    """The files of a model.

    Args:
        name: ``demo``, ``demo-causal``, a local folder, a GGUF file or a hub id.
        revision: branch, tag or commit of a hub model.

    Raises:
        ModelError: in one line, what is missing and what to do.
    """
    check_name(name)
    path = Path(name)
    if name == DEMO:
        return Checkpoint(demo_model(), "all-MiniLM-L6-v2", f"sha256:{DEMO_SHA256}")
    if name == DEMO_CAUSAL:
        gguf = read_gguf(demo_causal())
        known = f"sha256:{DEMO_CAUSAL_SHA256}"
        return Checkpoint(gguf.path.parent, "SmolLM2-135M-Instruct", known, gguf)
    if path.is_dir():
        return _of_folder(path)
    if path.is_file():
        return _of_file(path)
    downloaded = _downloaded(name, revision)
    return Checkpoint(downloaded, name, downloaded.name)


def _of_folder(folder: Path) -> Checkpoint:
    weights, files = (sorted(folder.glob(f"*{end}")) for end in (".safetensors", GGUF))
    if weights or not files:
        digest = hashlib.sha256("".join(map(sha256, weights)).encode()).hexdigest()
        return Checkpoint(folder, folder.resolve().name, f"sha256:{digest}")
    if len(files) > 1:
        raise ModelError(
            f"model '{folder.name}': {len(files)} GGUF files; expected one, or the path of one "
            f"({', '.join(file.name for file in files[:3])})"
        )
    return _of_file(files[0])


def _of_file(path: Path) -> Checkpoint:
    gguf = read_gguf(path)
    return Checkpoint(path.parent, path.stem, f"sha256:{sha256(path)}", gguf)


def _downloaded(name: str, revision: str | None) -> Path:
    try:
        path = huggingface_hub.snapshot_download(
            name, revision=revision, allow_patterns=FILES, ignore_patterns=["*/*"]
        )
        if (Path(path) / MODULES).is_file():  # of a sentence encoder, whose pooling is in a folder
            huggingface_hub.snapshot_download(
                name, revision=revision, allow_patterns=[f"{FOLDER}/{CONFIG}"]
            )
    except (OSError, ValueError) as error:
        raise unknown(name, type(error).__name__) from error
    return Path(path)


def cached(name: str) -> frozenset[str]:
    """Commits of a hub model that are in the hub's cache."""
    try:
        repos = huggingface_hub.scan_cache_dir().repos
    except CacheNotFound:
        return frozenset()
    wanted = (repo for repo in repos if (repo.repo_type, repo.repo_id) == ("model", name))
    return frozenset(each.commit_hash for repo in wanted for each in repo.revisions)


def discard(name: str, commits: frozenset[str]) -> None:
    """Delete commits of a hub model from the hub's cache; files that others share stay."""
    known = commits & cached(name)
    if known:
        huggingface_hub.scan_cache_dir().delete_revisions(*sorted(known)).execute()
