"""What a run is asked for: checked before anything slow is imported, which takes seconds."""

from collections.abc import Sequence

from headbook.config import Config, read_notes
from headbook.dates import today
from headbook.errors import ConfigError
from headbook.inputs.sources import STDIN, file_of
from headbook.metrics import chosen_metrics
from headbook.model.modelname import check_name, is_local


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
    today()
    if config.shared and STDIN in inputs:
        raise ConfigError("--workers: standard input came, which is read once; expected files")
    check_revision(config.revision, models)
    for name in inputs:
        file_of(name)
    for name in models:
        check_name(name)
