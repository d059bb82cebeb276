"""Checks of what was asked for, and which checkpoints there are, before torch is imported."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headbook.config import Config, creation_date, read_notes
from headbook.errors import ConfigError, ModelError
from headbook.inputs.sources import STDIN, input_file
from headbook.metrics import chosen_metrics
from headbook.model.checkpoint import check_name, is_local


def check_revision(revision: str | None, models: Sequence[str]) -> None:
    """Refuse a revision if no model is one of the hub: folders and files have none.

    Raises:
        ConfigError: with the first of the models.
    """
    if revision is not None and models and all(map(is_local, models)):
        raise ConfigError(
            f"--revision: got {revision!r} with the model {models[0]}, which is not of the hub; "
            "expected a hub id, or no revision"
        )


def check_arguments(inputs: Sequence[str], config: Config, *models: str) -> None:
    """Refuse options, models and files that cannot be meant.

    Args:
        inputs: as for `headbook.collect`.
        models: that read them.

    Raises:
        ConfigError: an option does not fit.
        InputError: an input is nothing that can be read.
        ModelError: nothing can stand behind the name of a model.
    """
    chosen_metrics(config.metrics)
    if config.notes is None or not config.notes.is_fifo():  # a pipe is read once, by the run
        read_notes(config.notes)
    creation_date()
    if config.shared and STDIN in inputs:
        raise ConfigError("--workers: standard input came, which is read once; expected files")
    check_revision(config.revision, models)
    for name in inputs:
        input_file(name)
    for name in models:
        check_name(name)


UNFIT = re.compile(r"[^\w.\-]+")  # in a folder's name
FEW = 5  # folders that a message names


@dataclass(frozen=True)
class ModelCheckpoint:
    """A model at one step of its training.

    Attributes:
        name: the revision, or the folder inside the model's.
        model: hub id, or that folder.
        revision: of a hub model.
    """

    name: str
    model: str
    revision: str | None = None

    @property
    def local(self) -> bool:
        """Whether it is a folder."""
        return self.revision is None

    @property
    def folder(self) -> str:
        """A name for the folder of its study."""
        return UNFIT.sub("-", self.name)


def list_checkpoints(model: str, revisions: Sequence[str]) -> list[ModelCheckpoint]:
    """The checkpoints of a model.

    Args:
        model: hub id; or a folder, whose checkpoints are folders inside it.
        revisions: their names in order; none stands for all folders.

    Raises:
        ConfigError: no revisions of a hub model were named, or two would share a folder.
        ModelError: a folder is not there.
    """
    place = Path(model)
    if not place.is_dir():
        if not revisions:
            raise ConfigError("--revisions: nothing came; expected revisions of the hub model")
        found = [ModelCheckpoint(name, model, name) for name in revisions]
    else:
        there = sorted(file.parent.name for file in place.glob("*/config.json"))
        for name in revisions:
            if name not in there:
                some = ", ".join(there[:FEW]) or "none"
                raise ModelError(
                    f"model '{model}': it has no checkpoint {name}; expected folders with "
                    f"config.json inside it ({some}{', …' if len(there) > FEW else ''})"
                )
        found = [ModelCheckpoint(name, str(place / name)) for name in revisions or there]
    if len({each.folder for each in found}) < len(found):
        raise ConfigError("--revisions: two names differ in signs alone; expected other names")
    return found
