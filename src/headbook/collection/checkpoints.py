"""The checkpoints of one model, collected one after the other."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headbook.collection.collect import collect
from headbook.config import Config
from headbook.errors import ConfigError, ModelError, StudyError
from headbook.model import checkpoint
from headbook.progress import Progress, Wordless
from headbook.study.study import Study

UNFIT = re.compile(r"[^\w.\-]+")  # in a folder's name
FEW = 5  # folders that a message names


@dataclass(frozen=True)
class ModelAt:
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


def checkpoints(model: str, revisions: Sequence[str]) -> list[ModelAt]:
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
        found = [ModelAt(name, model, name) for name in revisions]
    else:
        there = sorted(file.parent.name for file in place.glob("*/config.json"))
        for name in revisions:
            if name not in there:
                some = ", ".join(there[:FEW]) or "none"
                raise ModelError(
                    f"model '{model}': it has no checkpoint {name}; expected folders with "
                    f"config.json inside it ({some}{', …' if len(there) > FEW else ''})"
                )
        found = [ModelAt(name, str(place / name)) for name in revisions or there]
    if len({each.folder for each in found}) < len(found):
        raise ConfigError("--revisions: two names differ in signs alone; expected other names")
    return found


def study_at(
    at: ModelAt,
    inputs: Sequence[str],
    config: Config,
    *,
    kept: Path | None = None,
    discard: bool = False,
    progress: Progress,
) -> Study:
    """The study of a checkpoint: the one that is kept, else a new one.

    Args:
        kept: folder with a study for each checkpoint; a new one is put there.
        discard: delete from the hub's cache what this call has downloaded.

    Raises:
        StudyError: the study that is kept is of other weights.
        HeadbookError: as `headbook.collect`.
    """
    place = None if kept is None else kept / at.folder
    if place is not None and (place / "manifest.json").is_file():
        study = Study.load(place)
        _check_weights(at, study, place)
        return study
    before = checkpoint.cached(at.model) if discard and not at.local else frozenset()
    try:
        wanted = replace(config, model=at.model, revision=at.revision)
        study = collect(inputs, wanted, progress=Wordless(progress))
    finally:
        if discard and not at.local:
            checkpoint.discard(at.model, checkpoint.cached(at.model) - before)
    if place is not None:
        study.save(place)
    return study


def _check_weights(at: ModelAt, study: Study, place: Path) -> None:
    """Refuse a kept study of a folder whose weights have changed since."""
    if at.local and checkpoint.find(at.model, None).revision != study.manifest.model.revision:
        raise StudyError(
            f"{place}: of other weights than {at.model} holds now; expected another folder for "
            "--keep-studies, or no such study in it"
        )
