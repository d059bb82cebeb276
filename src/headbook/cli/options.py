"""Options of every command: fields of `Config`, and options of single commands."""

import dataclasses
from collections.abc import Sequence
from inspect import Parameter
from pathlib import Path
from typing import Annotated

import typer

from headbook.cli.actions import WORDS, check_outside
from headbook.cli.parameters import keyword
from headbook.config import Config
from headbook.errors import ConfigError, StudyError
from headbook.model.checkpoint import DEMO, DEMO_CAUSAL
from headbook.option_values import DTYPES, OptionGroup
from headbook.output_folder import MANIFEST

# Fields of `Config` that are options of a command; FIGURE_OPTIONS also those of pack.
RENDER_OPTIONS = (*WORDS, "out", "base_url", "processes", "force", "open", "quiet", "verbose")
FIGURE_OPTIONS = ("out", "force", "quiet", "verbose")
MERGE_OPTIONS = ("out", "accept_failed_checks", "force", "quiet", "verbose")
# Options of pages, which have no effect on collect.
DISPLAY_OPTIONS = {"open", "base_url", "processes", "keep_study"}
COLLECT_OPTIONS = tuple(f.name for f in dataclasses.fields(Config) if f.name not in DISPLAY_OPTIONS)
BUILD_OPTIONS = tuple(f.name for f in dataclasses.fields(Config))
# Options of one run that can be resumed or divided, for commands that collect a single study.
RESUME_OPTIONS = {"restart", "workers", "engine", "address"}

InputArguments = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT...",
        help="Sentences: .txt, .jsonl, .json, .csv, .tsv, .conllu or .conll, also with .gz, .bz2 "
        "or .zst; .parquet or .xlsx; two parallel files such as a.en a.de; the folder or hub id of "
        "a dataset; or - for standard input.",
    ),
]
StudyArgument = Annotated[
    Path, typer.Argument(metavar="STUDY", help="Folder that collect has written.")
]
OneOrTwoStudies = Annotated[
    list[Path],
    typer.Argument(
        metavar="STUDY [STUDY_B]",
        help="Folder that collect has written; two of them for the figures of their comparison.",
    ),
]
SeveralStudies = Annotated[
    list[Path],
    typer.Argument(metavar="STUDY...", help="Folders that collect has written, two or more."),
]
SiteArgument = Annotated[
    Path, typer.Argument(metavar="SITE", help="Folder of a site, or one that collect has written.")
]


PACK_PARAMETERS = (
    keyword(
        "anonymous",
        bool,
        OptionGroup.PAGES,
        "Leave out title, notes, date, links and names of files and folders. Pages are rendered "
        "again, so SITE is the folder that collect has written.",
        common=True,
    ),
    keyword(
        "single_file",
        bool,
        OptionGroup.OUTPUT,
        "Write one HTML file with every page, which opens from disk, instead of an archive.",
        common=True,
    ),
)
FIGURE_PARAMETERS = (
    keyword(
        "only",
        list[str] | None,
        OptionGroup.PAGES,
        "A figure's name, as in its file on the site, or a pattern with * and ?; may be repeated. "
        "Default: all figures. The id of a metric stands for all of its figures.",
        common=True,
        metavar="NAME",
    ),
    keyword(
        "label",
        str,
        OptionGroup.PAGES,
        "Label that figures of heads show, such as case:to_head; those without it are left out.",
        default="",
        default_text="that of the site",
        common=True,
        metavar="LABEL",
    ),
    keyword(
        "view",
        str,
        OptionGroup.PAGES,
        "Keys that figures of heads count, by their name in the column view of heads.csv.",
        default="",
        common=True,
        metavar="VIEW",
    ),
)


NOT_FOR_COMPARE = {
    "model", "dtype", "adapter", "keep_study", "offload", "title", "section",
} | RESUME_OPTIONS  # fmt: skip
COMPARE_OPTIONS = tuple(name for name in BUILD_OPTIONS if name not in NOT_FOR_COMPARE)

CompareArguments = Annotated[
    list[str],
    typer.Argument(
        metavar="STUDY_A STUDY_B | INPUT...",
        help="Two folders that collect has written; with --models, the sentences that both read.",
    ),
]
ROUNDED_PARAMETER = keyword(
    "rounded",
    Path | None,
    OptionGroup.MEASURED,
    "The first model's study in bfloat16, for the effect of rounding alone.",
    metavar="STUDY",
)
TWO_NAMES = tuple[str, str] | None
COMPARE_PARAMETERS: tuple[Parameter, ...] = (
    keyword(
        "models",
        TWO_NAMES,
        OptionGroup.MODEL,
        "Models to collect and compare: hub ids, folders or files. 'untrained' for B is A with "
        "random weights.",
        common=True,
        metavar="A B",
    ),
    keyword(
        "dtypes",
        TWO_NAMES,
        OptionGroup.MODEL,
        "Number format of the weights of each model.",
        metavar="A B",
    ),
    keyword(
        "adapters",
        TWO_NAMES,
        OptionGroup.MODEL,
        "Adapter of each model: a folder, a hub id, or none.",
        metavar="A B",
    ),
    keyword(
        "heads",
        str,
        OptionGroup.MEASURED,
        "Heads to compare: same (heads with equal numbers), matched (heads that attend most "
        "alike), or auto (same if sizes and vocabulary agree).",
        default="auto",
        default_text="auto",
        common=True,
    ),
    ROUNDED_PARAMETER,
    keyword(
        "rounding_floor",
        str,
        OptionGroup.MEASURED,
        "Count a head as different only if its interval lies beyond the effect of rounding alone. "
        "With --models, on runs the first model twice more on up to 64 sentences.",
        default="on",
        default_text="on",
        metavar="on|off",
    ),
    keyword(
        "untrained",
        Path | None,
        OptionGroup.MEASURED,
        "The second model's study with random weights: the similarity of untrained heads decides "
        "whether a head has a counterpart.",
        metavar="STUDY",
    ),
    keyword(
        "trained_from",
        bool,
        OptionGroup.MEASURED,
        "Compare head outputs, too, because B was trained from A (with --models).",
    ),
    keyword(
        "keep_studies",
        Path | None,
        OptionGroup.OUTPUT,
        "Folder to keep both studies in, as a and b.",
        metavar="DIR",
    ),
)


def studies_of(arguments: Sequence[str]) -> tuple[Path, Path]:
    """Return the two folders of a comparison without models.

    Raises:
        ConfigError: the number of folders is not two.
    """
    if len(arguments) != 2:
        plural = "" if len(arguments) == 1 else "s"
        raise ConfigError(
            f"compare: got {len(arguments)} folder{plural}, expected two studies, or --models A B "
            "and the sentences that both read"
        )
    return Path(arguments[0]), Path(arguments[1])


def formats_of(formats: tuple[str, str] | None) -> tuple[str, str]:
    """Return the number format of each model.

    Raises:
        ConfigError: a format is unknown.
    """
    for name in formats or ():
        if name not in DTYPES:
            raise ConfigError(f"--dtypes: got {name!r}, expected two of {', '.join(DTYPES)}")
    return formats or ("float32", "float32")


def adapters_of(
    adapters: tuple[str, str] | None, models: tuple[str, str] | None, config: Config
) -> tuple[str | None, str | None]:
    """Return the adapter of each model, or None for ``none``.

    Raises:
        ConfigError: adapters without models, or nothing to merge.
    """
    if adapters is not None and models is None:
        raise ConfigError("--adapters: got two adapters and no models; expected --models A B, too")
    names = tuple(None if name == "none" else name for name in adapters or ("none", "none"))
    if config.merge_adapter and names == (None, None):
        raise ConfigError("--merge-adapter: got no adapter to merge; expected --adapters, too")
    return names[0], names[1]


def floor_of(name: str) -> bool:
    """Return whether rounding floors are requested.

    Raises:
        ConfigError: the value is neither on nor off.
    """
    if name not in {"on", "off"}:
        raise ConfigError(f"--rounding-floor: got {name!r}, expected on or off")
    return name == "on"


NOT_FOR_CHECKPOINTS = {
    "revision", "adapter", "merge_adapter", "keep_study", "processes", "section",
} | RESUME_OPTIONS  # fmt: skip
CHECKPOINTS_OPTIONS = tuple(name for name in BUILD_OPTIONS if name not in NOT_FOR_CHECKPOINTS)

CheckpointArguments = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT... | STUDY...",
        help="Sentences that the checkpoints of --model read; with --studies, folders that collect "
        "has written, one for each checkpoint, or the folder of --keep-studies.",
    ),
]
CHECKPOINTS_PARAMETERS: tuple[Parameter, ...] = (
    keyword(
        "revisions",
        str | None,
        OptionGroup.MODEL,
        "Checkpoints in order, separated by commas: revisions of a hub model, or folders inside a "
        "local one (default: all).",
        common=True,
        metavar="R1,R2,…",
    ),
    keyword(
        "studies",
        bool,
        OptionGroup.INPUT,
        "Read stored studies, without running a model.",
        common=True,
    ),
    keyword(
        "keep_studies",
        Path | None,
        OptionGroup.OUTPUT,
        "Folder to keep the study of each checkpoint in. Studies in the folder are not collected "
        "again, so that a run can be continued.",
        common=True,
        metavar="DIR",
    ),
    keyword(
        "delete_weights",
        bool,
        OptionGroup.SPEED,
        "Delete from the hub's cache the weights that this run has downloaded for a checkpoint, "
        "before the next checkpoint is downloaded.",
    ),
)


def check_checkpoints_options(
    arguments: Sequence[str],
    config: Config,
    *,
    revisions: str | None,
    studies: bool,
    keep_studies: Path | None,
    delete_weights: bool,
) -> None:
    """Check that the options of ``headbook checkpoints`` go together, before anything slow begins.

    Raises:
        ConfigError: an option has no effect, or no sentences were given.
        OutputError: studies would be kept inside the site.
    """
    if studies:
        unused = {
            "--revisions": revisions,
            "--keep-studies": keep_studies,
            "--delete-weights": delete_weights,
        }
        for name, value in unused.items():
            if value:
                raise ConfigError(f"{name}: has no effect with --studies; expected one of both")
    elif config.model in {DEMO, DEMO_CAUSAL}:
        raise ConfigError(
            f"--model: got {config.model!r}, which has one checkpoint; expected a folder that "
            "holds checkpoints, or a hub id"
        )
    check_outside("--keep-studies", keep_studies, config.out)


def stored_studies(arguments: Sequence[str]) -> dict[str, Path]:
    """Return folders of studies by the names of their checkpoints.

    Raises:
        StudyError: a folder has no study.
    """
    folders = [folder for name in arguments for folder in _studies_in(Path(name))]
    names = [folder.resolve().name for folder in folders]
    if len({*names}) < len(names):
        names = [str(folder) for folder in folders]
    return dict(zip(names, folders, strict=True))


def _studies_in(folder: Path) -> list[Path]:
    """Return the folder if it has a study, else the folders inside with a study."""
    if (folder / MANIFEST).is_file():
        return [folder]
    inside = sorted(file.parent for file in folder.glob(f"*/{MANIFEST}"))
    if not inside:
        raise StudyError(
            f"{folder}: no study is there; expected a folder that collect has written, or one that "
            "holds several"
        )
    return inside


def requested_revisions(revisions: str | None) -> list[str]:
    """Return the requested checkpoints; empty if all are requested.

    Raises:
        ConfigError: a checkpoint is repeated.
    """
    names = [name.strip() for name in (revisions or "").split(",") if name.strip()]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"--revisions: got {name} twice, expected each once")
    return names
