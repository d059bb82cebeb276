r"""Names and files of models (hub, folder, GGUF file), and pooling of sentence encoders.

Imports no torch, so that a wrong name is reported at once.

Checkpoints of the library sentence-transformers define their pooling in ``modules.json`` and in the
folder of the pooling module. Modules after pooling (a dense layer, a normalisation) are not read:
cosines do not depend on a vector's length, and a dense layer is no part of the network with
attention.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import huggingface_hub
from huggingface_hub.errors import CacheNotFound

from headbook.errors import ModelError
from headbook.resources import DEMO_CAUSAL_SHA256, DEMO_SHA256, demo_causal, demo_model, sha256

if TYPE_CHECKING:
    from headbook.model.gguf import Gguf

DEMO, DEMO_CAUSAL = "demo", "demo-causal"
GGUF = ".gguf"


def is_local(name: str) -> bool:
    """Whether a model is a file or folder of this machine, or part of a package."""
    return name in {DEMO, DEMO_CAUSAL} or os.path.exists(name)  # noqa: PTH110 - accepts any characters


def check_name(name: str) -> None:
    """Raise an error for a name that is neither a folder nor a file nor a valid hub id.

    Raises:
        ModelError: the name is not valid; the message says what is accepted.
    """
    if is_local(name):
        return
    if Path(name).suffix.lower() == GGUF:
        raise ModelError(f"model '{name}': there is no such file")
    from huggingface_hub.errors import HFValidationError  # noqa: PLC0415 - none of it for a folder
    from huggingface_hub.utils._validators import validate_repo_id  # noqa: PLC0415

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise model_not_found(name, "no folder has this name, and no id is written so") from error


def model_not_found(name: str, why: str) -> ModelError:
    """Return the error to raise if a model is not found."""
    return ModelError(
        f"model '{name}': neither a folder nor a hub model that can be reached ({why}); "
        f"expected '{DEMO}', a local folder or file or a hub id"
    )


MODULES, FOLDER, CONFIG = "modules.json", "1_Pooling", "config.json"
MEAN, CLS, MAX, LAST, WEIGHTED = "mean", "cls", "max", "last token", "weighted mean"
MODES = {
    "pooling_mode_mean_tokens": MEAN,
    "pooling_mode_mean_sqrt_len_tokens": MEAN,  # another length, the same direction
    "pooling_mode_cls_token": CLS,
    "pooling_mode_max_tokens": MAX,
    "pooling_mode_lasttoken": LAST,
    "pooling_mode_weightedmean_tokens": WEIGHTED,
}


def read_pooling(folder: Path) -> str:
    """Return the pooling of a checkpoint, as in `MODES`; empty if it is no sentence encoder.

    Also empty if the checkpoint combines several poolings, or has an unknown one.
    """
    try:
        modules = json.loads((folder / MODULES).read_text(encoding="utf-8"))
        paths = [str(m["path"]) for m in modules if str(m["type"]).endswith(".Pooling")]
        if len(paths) != 1 or Path(paths[0]).name != paths[0]:
            return ""
        path = folder / paths[0] / CONFIG
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        named = [name for name, on in config.items() if name in MODES and on]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""
    return MODES.get(named[0], "") if len(named) == 1 else ""


FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]


@dataclass(frozen=True)
class ModelFiles:
    """Files of a model.

    Attributes:
        folder: folder of the files.
        name: hub id, or the name of the folder or file.
        revision: commit of a hub model; hash of the weights of a folder or file.
        gguf: the GGUF file of the model; None for other models.
    """

    folder: Path
    name: str
    revision: str
    gguf: "Gguf | None" = None


def find_model_files(name: str, revision: str | None) -> ModelFiles:
    """Find the files of a model, downloading them if necessary.

    Args:
        name: ``demo``, ``demo-causal``, a local folder, a GGUF file or a hub id.
        revision: branch, tag or commit of a hub model.

    Raises:
        ModelError: files are missing; the message says which and what to do.
    """
    check_name(name)
    path = Path(name)
    if name == DEMO:
        return ModelFiles(demo_model(), "all-MiniLM-L6-v2", f"sha256:{DEMO_SHA256}")
    if name == DEMO_CAUSAL:
        return _of_file(demo_causal(), "SmolLM2-135M-Instruct", DEMO_CAUSAL_SHA256)
    if path.is_dir():
        return _of_folder(path)
    if path.is_file():
        return _of_file(path)
    downloaded = _downloaded(name, revision)
    return ModelFiles(downloaded, name, downloaded.name)


def _of_folder(folder: Path) -> ModelFiles:
    weights, files = (sorted(folder.glob(f"*{end}")) for end in (".safetensors", GGUF))
    if weights or not files:
        digest = hashlib.sha256("".join(map(sha256, weights)).encode()).hexdigest()
        return ModelFiles(folder, folder.resolve().name, f"sha256:{digest}")
    if len(files) > 1:
        raise ModelError(
            f"model '{folder.name}': {len(files)} GGUF files; expected one, or the path of one "
            f"({', '.join(file.name for file in files[:3])})"
        )
    return _of_file(files[0])


def _of_file(path: Path, name: str = "", digest: str = "") -> ModelFiles:
    from headbook.model.gguf import read_gguf  # noqa: PLC0415 - it loads torch and transformers

    gguf = read_gguf(path)
    return ModelFiles(path.parent, name or path.stem, f"sha256:{digest or sha256(path)}", gguf)


def _downloaded(name: str, revision: str | None) -> Path:
    try:
        path = huggingface_hub.snapshot_download(
            name, revision=revision, allow_patterns=FILES, ignore_patterns=["*/*"]
        )
        if (Path(path) / MODULES).is_file():  # a sentence encoder, with its pooling in a folder
            huggingface_hub.snapshot_download(
                name, revision=revision, allow_patterns=[f"{FOLDER}/{CONFIG}"]
            )
    except (OSError, ValueError) as error:
        raise model_not_found(name, type(error).__name__) from error
    return Path(path)


def cached_commits(name: str) -> frozenset[str]:
    """Return the commits of a hub model that are in the hub's cache."""
    try:
        repos = huggingface_hub.scan_cache_dir().repos
    except CacheNotFound:
        return frozenset()
    wanted = (repo for repo in repos if (repo.repo_type, repo.repo_id) == ("model", name))
    return frozenset(each.commit_hash for repo in wanted for each in repo.revisions)


def delete_cached(name: str, commits: frozenset[str]) -> None:
    """Delete commits of a hub model from the hub's cache; files shared with other commits stay."""
    known = commits & cached_commits(name)
    if known:
        huggingface_hub.scan_cache_dir().delete_revisions(*sorted(known)).execute()
