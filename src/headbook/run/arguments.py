"""Checks of inputs, options and models, and lists of checkpoints, before torch is imported."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headbook.author import read_words
from headbook.config import Config
from headbook.errors import ConfigError, ModelError
from headbook.inputs.parallel import with_pairs
from headbook.inputs.sources import STDIN, InputSource, input_file
from headbook.metrics import chosen_metrics
from headbook.model.checkpoint import (
    ADAPTER,
    TOKENIZER,
    check_folder,
    check_name,
    find_adapter_files,
    is_local,
)
from headbook.option_values import creation_date
from headbook.text.annotate import check_annotator


def check_revision(revision: str | None, models: Sequence[str]) -> None:
    """Refuse a revision if no model is on the hub: folders and files have no revisions.

    Raises:
        ConfigError: all models are folders or files; the message names the first one.
    """
    if revision is not None and models and all(map(is_local, models)):
        raise ConfigError(
            f"--revision: got {revision!r} with the model {models[0]}, which is not of the hub; "
            "expected a hub id, or no revision"
        )


def check_arguments(inputs: Sequence[str | InputSource], config: Config, *models: str) -> None:
    """Refuse options, models and files that cannot be used.

    Args:
        inputs: files, folders and ids of datasets; sources in memory are checked later.
        config: options.
        models: names of the models that read the inputs.

    Raises:
        ConfigError: an option has a wrong value.
        InputError: an input cannot be read.
        ModelError: a name of a model or adapter is neither a folder, a file nor a hub id, or a
            folder holds none.
        AnnotatorError: a pipeline is not installed.
    """
    chosen_metrics(config.metrics)
    piped = config.notes is not None and config.notes.is_fifo()  # is read once, by the run
    read_words(None if piped else config.notes, config.section)
    creation_date()
    if config.shared and STDIN in inputs:
        raise ConfigError(
            "--workers: got standard input, which can be read only once; expected files"
        )
    check_revision(config.revision, models)
    for name in with_pairs(inputs):
        if isinstance(name, str):
            input_file(name)
    for name in models:
        check_name(name)
        check_folder(name)
    if config.tokenizer is not None:
        check_name(config.tokenizer, TOKENIZER)
    for name in (config.annotator, config.target_annotator):
        check_annotator(name)
    if config.adapter is not None:
        check_name(config.adapter, ADAPTER)
        if is_local(config.adapter):
            find_adapter_files(config.adapter)
    elif config.merge_adapter:
        raise ConfigError("--merge-adapter: got no adapter to merge; expected --adapter, too")


UNSAFE_CHARACTERS = re.compile(r"[^\w.\-]+")  # characters that are replaced in names of folders
MAX_LISTED_FOLDERS = 5  # folders that a message lists


@dataclass(frozen=True)
class ModelCheckpoint:
    """Model at one step of its training.

    Attributes:
        name: revision, or name of the folder inside the model's folder.
        model: hub id, or path of the checkpoint's folder.
        revision: revision of a hub model, or None for a folder.
    """

    name: str
    model: str
    revision: str | None = None

    @property
    def local(self) -> bool:
        """Whether the checkpoint is a folder."""
        return self.revision is None

    @property
    def folder(self) -> str:
        """Name of the folder of the checkpoint's study."""
        return UNSAFE_CHARACTERS.sub("-", self.name)


def list_checkpoints(model: str, revisions: Sequence[str]) -> list[ModelCheckpoint]:
    """Return the checkpoints of a model.

    Args:
        model: hub id; or a folder with a folder for each checkpoint.
        revisions: names of checkpoints in order; empty for all folders.

    Raises:
        ConfigError: a hub model has no revisions named, or two names give the same folder.
        ModelError: a named folder is missing.
    """
    folder = Path(model)
    if not folder.is_dir():
        if not revisions:
            raise ConfigError("--revisions: got none; expected revisions of the hub model")
        checkpoints = [ModelCheckpoint(name, model, name) for name in revisions]
    else:
        folders = sorted(file.parent.name for file in folder.glob("*/config.json"))
        for name in revisions:
            if name not in folders:
                listed = ", ".join(folders[:MAX_LISTED_FOLDERS]) or "none"
                more = ", …" if len(folders) > MAX_LISTED_FOLDERS else ""
                raise ModelError(
                    f"model '{model}': it has no checkpoint {name}; expected folders with "
                    f"config.json inside it ({listed}{more})"
                )
        checkpoints = [ModelCheckpoint(name, str(folder / name)) for name in revisions or folders]
    if len({checkpoint.folder for checkpoint in checkpoints}) < len(checkpoints):
        raise ConfigError(
            "--revisions: got two names that give the same folder; expected names that differ in "
            "letters, digits, '.', '_' or '-'"
        )
    return checkpoints
