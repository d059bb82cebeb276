"""The checkpoints of one model, collected one after the other."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from headbook.collection.collect import collect
from headbook.collection.revisions import ModelAt
from headbook.config import Config
from headbook.errors import StudyError
from headbook.model import checkpoint
from headbook.output_folder import MANIFEST
from headbook.progress import Progress
from headbook.study.study import Study


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
    if place is not None and (place / MANIFEST).is_file():
        study = Study.load(place)
        _check_weights(at, study, place)
        return study
    before = checkpoint.cached(at.model) if discard and not at.local else frozenset()
    try:
        wanted = replace(config, model=at.model, revision=at.revision)
        study = collect(inputs, wanted, progress=progress)
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
