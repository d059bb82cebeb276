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
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import huggingface_hub
from huggingface_hub import get_token
from huggingface_hub.constants import ENDPOINT, is_offline_mode
from huggingface_hub.errors import (
    CacheNotFound,
    GatedRepoError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from headbook.errors import ModelError
from headbook.file_list import leads_outside
from headbook.model.loaders import PICKLED, weight_files
from headbook.resources import DEMO_CAUSAL_SHA256, DEMO_SHA256, demo_causal, demo_model, sha256
from headbook.safe_files import is_endless, read_object

if TYPE_CHECKING:
    from headbook.model.gguf import Gguf

DEMO, DEMO_CAUSAL = "demo", "demo-causal"
MODEL, ADAPTER, TOKENIZER = "model", "adapter", "tokenizer"  # what names stand for, in messages
INDEX_PATTERN = "*.index*.json"  # lists of the files that hold weights in parts
UNAUTHORISED = {401, 403}
GGUF = ".gguf"


def check_folder(name: str) -> None:
    """Raise an error for a local folder without a model.

    Raises:
        ModelError: it lacks a configuration or weights, or a list in it leads out.
    """
    folder = Path(name)
    if not folder.is_dir() or name in {DEMO, DEMO_CAUSAL} or any(folder.glob(f"*{GGUF}")):
        return
    weights = [*weight_files(folder), *_indexed_files(folder, folder.name)]
    if not weights or not (folder / CONFIG_FILE).is_file():
        lacking = "weights" if (folder / CONFIG_FILE).is_file() else CONFIG_FILE
        raise ModelError(
            f"model '{name}': the folder has no {lacking}; expected a model that transformers has "
            "saved, with config.json and safetensors, or a GGUF file"
        )


def is_local(name: str) -> bool:
    """Whether a model is a file or folder of this machine, or part of a package."""
    return name in {DEMO, DEMO_CAUSAL} or os.path.exists(name)  # noqa: PTH110 - accepts any characters


def check_name(name: str, kind: str = MODEL) -> None:
    """Raise an error for a name that is neither a folder nor a file nor a valid hub id.

    Args:
        name: the name.
        kind: `MODEL`, `ADAPTER` or `TOKENIZER`.

    Raises:
        ModelError: the name is not valid, or a folder has a link out of it; the message says what
            is accepted.
    """
    if kind == ADAPTER and name in {DEMO, DEMO_CAUSAL}:
        raise ModelError(f"adapter '{name}': a model; expected the folder or hub id of an adapter")
    if is_local(name):
        if Path(name).is_dir() and name not in {DEMO, DEMO_CAUSAL}:
            _check_entries(Path(name), kind)
        return
    if Path(name).suffix.lower() == GGUF:
        raise ModelError(f"model '{name}': there is no such file")
    from huggingface_hub.errors import HFValidationError  # noqa: PLC0415 - none of it for a folder
    from huggingface_hub.utils._validators import validate_repo_id  # noqa: PLC0415

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        accepted = f"'{DEMO}', a local folder or file" if kind == MODEL else "a local folder"
        raise ModelError(
            f"{kind} '{name}': neither a folder nor a hub {kind} (no folder has this name, and no "
            f"id is written so); expected {accepted} or a hub id"
        ) from error


LOGIN = "run hf auth login or set HF_TOKEN"


def _not_downloaded(name: str, kind: str, revision: str | None, error: Exception) -> ModelError:
    """Return the error to raise if a hub model cannot be downloaded: its cause and the next step.

    Args:
        name: hub id.
        kind: `MODEL` or `ADAPTER`.
        revision: requested revision.
        error: error of the library that downloads.
    """
    address, response = f"{ENDPOINT}/{name}", _response(error)
    status = 0 if response is None else response.status_code
    message = "" if response is None else response.headers.get("X-Error-Message", "")
    if isinstance(error, GatedRepoError):
        reason = f"gated: its authors grant access at {address}; ask there, then {LOGIN}"
    elif isinstance(error, RevisionNotFoundError):
        reason = f"no revision {revision!r}; expected a branch, tag or commit of {address}"
    elif isinstance(error, RepositoryNotFoundError) and (status == 404 or get_token() is None):
        reason = f"not on the hub, or private; see {ENDPOINT}/models; for a private one {LOGIN}"
    elif status in UNAUTHORISED:
        reason = (
            f"the hub refused the login ({message or status}); expected a valid token with read "
            f"access to {address}: {LOGIN}"
        )
    elif is_offline_mode():
        reason = (
            "not in the cache, and HF_HUB_OFFLINE keeps off the network; unset it, or download "
            f"once with hf download {name}, or give a local folder"
        )
    else:
        why = f"status {status}" if status else type(error.__cause__ or error).__name__
        reason = (
            f"not in the cache, and {ENDPOINT} cannot be reached ({why}); check the network, or "
            "give a local folder"
        )
    return ModelError(f"{kind} '{name}': {reason}")


def _response(error: BaseException | None) -> Any:
    """Return the hub's answer that an error or one of its causes holds, or None."""
    if error is None:
        return None
    response = getattr(error, "response", None)
    return _response(error.__cause__) if response is None else response


MODULES_FILE, POOLING_FOLDER, CONFIG_FILE = "modules.json", "1_Pooling", "config.json"
MEAN, CLS, MAX, LAST, WEIGHTED = "mean", "cls", "max", "last token", "weighted mean"
POOLING_MODES = {
    "pooling_mode_mean_tokens": MEAN,
    "pooling_mode_mean_sqrt_len_tokens": MEAN,  # another length, the same direction
    "pooling_mode_cls_token": CLS,
    "pooling_mode_max_tokens": MAX,
    "pooling_mode_lasttoken": LAST,
    "pooling_mode_weightedmean_tokens": WEIGHTED,
}


def read_pooling(folder: Path) -> str:
    """Return the pooling of a checkpoint, as in `POOLING_MODES`; empty without a pooling.

    Also empty if the checkpoint combines several poolings, or has an unknown one.
    """
    try:
        modules = json.loads((folder / MODULES_FILE).read_text(encoding="utf-8"))
        paths = [
            str(module["path"]) for module in modules if str(module["type"]).endswith(".Pooling")
        ]
        if len(paths) != 1 or leads_outside(folder, paths[0]):
            return ""
        path = folder / paths[0] / CONFIG_FILE
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        enabled = [name for name, is_on in config.items() if name in POOLING_MODES and is_on]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""
    return POOLING_MODES.get(enabled[0], "") if len(enabled) == 1 else ""


TOKENIZER_FILE = "tokenizer.json"
CARD = "README.md"  # model card: YAML between two lines of dashes, then Markdown
CARD_LICENSE = re.compile(r"^license(?:_name)?:[ \t]*['\"]?([^'\"\n#]{1,100})", re.MULTILINE)
MAX_CARD_LETTERS = 65_536
FILE_PATTERNS = [CARD, "*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
CODE_PATTERN = "*.py"
ADAPTER_CONFIG, ADAPTER_FILES = "adapter_config.json", "adapter_*"
# An adapter may have a tokenizer of its own.
ADAPTER_PATTERNS = [
    ADAPTER_FILES, "tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab*",
    "merges.txt", "*.model", "*.jinja",
]  # fmt: skip


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


def find_model_files(name: str, revision: str | None, *, code: bool = False) -> ModelFiles:
    """Find the files of a model, downloading them if necessary.

    Args:
        name: ``demo``, ``demo-causal``, a local folder, a GGUF file or a hub id.
        revision: branch, tag or commit of a hub model.
        code: whether to download Python files of a hub model, too.

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
    downloaded = _downloaded(name, revision, [*FILE_PATTERNS, *[CODE_PATTERN] * code])
    _indexed_files(downloaded, name)
    return ModelFiles(downloaded, name, downloaded.name)


def read_license(files: ModelFiles) -> str:
    """Return the licence that a GGUF file or the model's card names; empty if neither names one."""
    if files.gguf is not None:
        return str(files.gguf.fields.get("general.license", ""))
    card = files.folder / CARD
    if is_endless(card):
        return ""
    try:
        with card.open(encoding="utf-8", errors="replace") as stream:
            before, _, rest = stream.read(MAX_CARD_LETTERS).partition("---\n")
    except OSError:
        return ""
    names = [] if before.strip() else CARD_LICENSE.findall(rest.partition("\n---")[0])
    return ", ".join(name.strip() for name in names if name.strip() != "other")


def find_adapter_files(name: str) -> ModelFiles:
    """Find the files of an adapter, downloading them if necessary.

    Args:
        name: local folder or hub id.

    Raises:
        ModelError: the adapter cannot be found, or the folder holds none.
    """
    check_name(name, ADAPTER)
    folder = Path(name)
    is_folder = folder.exists()
    if not is_folder:
        folder = _downloaded(name, None, ADAPTER_PATTERNS, ADAPTER)
    if not (folder / ADAPTER_CONFIG).is_file():
        raise ModelError(
            f"adapter '{name}': it has no {ADAPTER_CONFIG}; expected the folder or hub id of an "
            "adapter that peft has saved"
        )
    if not is_folder:
        return ModelFiles(folder, name, folder.name)
    digests = map(sha256, sorted(folder.glob(ADAPTER_FILES)))
    digest = hashlib.sha256("".join(digests).encode()).hexdigest()
    return ModelFiles(folder, folder.resolve().name, f"sha256:{digest}")


def _of_folder(folder: Path) -> ModelFiles:
    weights = sorted({*weight_files(folder), *_indexed_files(folder, folder.name)})
    gguf_files = sorted(folder.glob(f"*{GGUF}"))
    if weights or not gguf_files:
        digest = hashlib.sha256("".join(map(sha256, weights)).encode()).hexdigest()
        return ModelFiles(folder, folder.resolve().name, f"sha256:{digest}")
    if len(gguf_files) > 1:
        raise ModelError(
            f"model '{folder.name}': {len(gguf_files)} GGUF files; expected one, or the path of "
            f"one ({', '.join(file.name for file in gguf_files[:3])})"
        )
    return _of_file(gguf_files[0])


def _indexed_files(folder: Path, name: str) -> list[Path]:
    """Return the existing files of weights that the lists of a folder name.

    Of several formats, the one that `weight_files` chooses.

    Raises:
        ModelError: a list leads out of the folder: the model would be another one than its hash
            says.
    """
    suffixes = {file.suffix for file in weight_files(folder)}
    files = []
    for index in sorted(folder.glob(INDEX_PATTERN)):
        names = read_object(index).get("weight_map", {})
        for file in dict.fromkeys(map(str, names.values() if isinstance(names, dict) else ())):
            if leads_outside(folder, file):
                raise ModelError(
                    f"model '{name}': {index.name} names {file}; expected files in its folder"
                )
            if (folder / file).is_file() and (not suffixes or Path(file).suffix in suffixes):
                files.append(folder / file)
    return files


def _check_entries(folder: Path, kind: str) -> None:
    """Refuse links out of a folder, since a vocabulary could be any file of the reader, and pipes.

    Raises:
        ModelError: a link is not of the hub's cache, or reading an entry may never end; the message
            names it.
    """
    for file in folder.iterdir():
        if is_endless(file):
            raise ModelError(
                f"{kind} '{folder.name}': {file.name} is a pipe or a device; expected a file"
            )
        if file.is_symlink() and file.is_file() and leads_outside(folder, file.name):
            raise ModelError(
                f"{kind} '{folder.name}': {file.name} is a link out of its folder; expected the "
                "file itself, or a link of the hub's cache"
            )


def _of_file(path: Path, name: str = "", digest: str = "") -> ModelFiles:
    from headbook.model.gguf import read_gguf  # noqa: PLC0415 - it loads torch and transformers

    gguf = read_gguf(path)
    return ModelFiles(path.parent, name or path.stem, f"sha256:{digest or sha256(path)}", gguf)


def _downloaded(name: str, revision: str | None, patterns: list[str], kind: str = MODEL) -> Path:
    """Download files of a hub model or adapter, or find them in the cache, and return the folder.

    Args:
        name: hub id.
        revision: branch, tag or commit; None for the main branch.
        patterns: patterns of the files' names.
        kind: `MODEL` or `ADAPTER`.
    """
    download = huggingface_hub.snapshot_download
    errors: Any = huggingface_hub.errors  # one of them comes from another library
    try:
        path = Path(
            download(name, revision=revision, allow_patterns=patterns, ignore_patterns=["*/*"])
        )
        if kind == MODEL and not [*path.glob("*.safetensors")]:
            download(name, revision=revision, allow_patterns=[PICKLED], ignore_patterns=["*/*"])
        if (path / MODULES_FILE).is_file():  # a sentence encoder, with its pooling in a folder
            pooling = f"{POOLING_FOLDER}/{CONFIG_FILE}"
            download(name, revision=revision, allow_patterns=[pooling])
    except (OSError, ValueError, errors.HTTPError) as error:
        raise _not_downloaded(name, kind, revision, error) from error
    return path


def tokenizer_folder(name: str) -> Path | None:
    """Return the folder of a tokenizer that has been loaded.

    Args:
        name: folder or hub id.
    """
    if not name or os.path.isdir(name):  # noqa: PTH112 - accepts any characters
        return Path(name) if name else None
    try:
        cached = huggingface_hub.try_to_load_from_cache(name, TOKENIZER_FILE)
    except ValueError:  # no hub id
        return None
    return Path(cached).parent if isinstance(cached, str) else None


def cached_commits(name: str) -> frozenset[str]:
    """Return the commits of a hub model that are in the hub's cache."""
    try:
        repos = huggingface_hub.scan_cache_dir().repos
    except CacheNotFound:
        return frozenset()
    model_repos = (repo for repo in repos if (repo.repo_type, repo.repo_id) == ("model", name))
    return frozenset(revision.commit_hash for repo in model_repos for revision in repo.revisions)


def delete_cached(name: str, commits: frozenset[str]) -> None:
    """Delete commits of a hub model from the hub's cache; files shared with other commits stay."""
    cached = commits & cached_commits(name)
    if cached:
        huggingface_hub.scan_cache_dir().delete_revisions(*sorted(cached)).execute()
