"""What the command takes that films a training, and which checkpoints these are."""

from collections.abc import Sequence
from inspect import Parameter
from pathlib import Path
from typing import Annotated

import typer

from headbook.cli.folders import check_outside
from headbook.cli.options import BUILDING, RESUMING, keyword
from headbook.config import Config
from headbook.errors import ConfigError, StudyError
from headbook.output_folder import MANIFEST

USELESS = {"model", "revision", "keep_study", "processes"} | RESUMING
OPTIONS = tuple(name for name in BUILDING if name not in USELESS)

Filmed = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL INPUT... | STUDY...",
        help="A model and the sentences that its checkpoints read; with --studies, folders that "
        "collect has written, one for each checkpoint, or one that --keep-studies has filled.",
    ),
]
Revisions = Annotated[
    str | None,
    typer.Option(
        "--revisions",
        metavar="R1,R2,…",
        help="Checkpoints in order, separated by commas: revisions of a hub model, or folders "
        "inside a local one (default: all that are there).",
    ),
]
Studies = Annotated[
    bool, typer.Option("--studies", help="Film studies that are there already; no model runs.")
]
Kept = Annotated[
    Path | None,
    typer.Option(
        "--keep-studies",
        metavar="DIR",
        help="Folder to keep the study of each checkpoint in. Those that are there already are "
        "not collected again, so that a film can be continued.",
    ),
]
Discarding = Annotated[
    bool,
    typer.Option(
        "--discard",
        help="Delete the weights of each checkpoint that this run has downloaded from the hub's "
        "cache before the next one is.",
    ),
]
FILMING: tuple[Parameter, ...] = (
    keyword("revisions", Revisions, None),
    keyword("studies", Studies, False),
    keyword("keep_studies", Kept, None),
    keyword("discard", Discarding, False),
)


def check_options(
    given: Sequence[str],
    config: Config,
    *,
    revisions: str | None,
    studies: bool,
    keep_studies: Path | None,
    discard: bool,
) -> None:
    """Refuse what does not go together, before anything slow begins.

    Raises:
        ConfigError: an option has no use, or no sentences came.
        OutputError: studies would be kept inside the site.
    """
    if studies:
        useless = {"--revisions": revisions, "--keep-studies": keep_studies, "--discard": discard}
        for name, value in useless.items():
            if value:
                raise ConfigError(f"{name}: came with --studies; expected one of both")
    elif len(given) < 2:
        raise ConfigError(
            "film: no sentences came; expected a model and the sentences that its checkpoints "
            "read, or --studies and their studies"
        )
    check_outside("--keep-studies", keep_studies, config.out)


def stored(given: Sequence[str]) -> dict[str, Path]:
    """Folders of studies by the names of their checkpoints.

    Raises:
        StudyError: a folder holds no study.
    """
    folders = [folder for name in given for folder in _studies_in(Path(name))]
    names = [folder.resolve().name for folder in folders]
    if len({*names}) < len(names):
        names = [str(folder) for folder in folders]
    return dict(zip(names, folders, strict=True))


def _studies_in(folder: Path) -> list[Path]:
    """The folder, or those inside it that hold a study."""
    if (folder / MANIFEST).is_file():
        return [folder]
    inside = sorted(file.parent for file in folder.glob(f"*/{MANIFEST}"))
    if not inside:
        raise StudyError(
            f"{folder}: no study is there; expected a folder that collect has written, or one that "
            "holds several"
        )
    return inside


def listed(revisions: str | None) -> list[str]:
    """The checkpoints that were asked for; none where all are wanted.

    Raises:
        ConfigError: one came twice.
    """
    names = [name.strip() for name in (revisions or "").split(",") if name.strip()]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"--revisions: {name} came twice; expected each once")
    return names
