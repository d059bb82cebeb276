"""Options of every command: fields of `Config`, and options of single commands."""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, get_origin

import typer

from headbook.cli.actions import WORDS, check_outside
from headbook.config import Config
from headbook.errors import ConfigError, StudyError
from headbook.option_values import DTYPES, flag
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
        help="Sentences: .txt, .jsonl, .csv, .tsv or .conllu, also with .gz or .zst; .parquet; the "
        "folder or hub id of a dataset; or - for standard input.",
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
AnonymousOption = Annotated[
    bool,
    typer.Option(
        "--anonymous",
        help="Leave out title, notes, date, links and names of files and folders. Pages are "
        "rendered again, so SITE is the folder that collect has written.",
    ),
]
SingleFileOption = Annotated[
    bool,
    typer.Option(
        "--single-file",
        help="Write one HTML file with every page, which opens from disk, instead of an archive.",
    ),
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="NAME",
        help="A figure's name, as in its file on the site, or a pattern with * and ?; may be "
        "repeated. Default: all figures. The id of a metric stands for all of its figures.",
    ),
]
LabelOption = Annotated[
    str,
    typer.Option(
        "--label",
        metavar="LABEL",
        help="Label that figures of heads show, such as case:to_head; those without it are left "
        "out. [dim]\\[default: that of the site][/dim]",
        show_default=False,
    ),
]
ViewOption = Annotated[
    str,
    typer.Option(
        "--view",
        metavar="VIEW",
        help="Keys that figures of heads count, by their name in the column view of heads.csv.",
        show_default=False,
    ),
]


def with_options(
    names: Sequence[str], argument: str = "", annotation: Any = None, *more: inspect.Parameter
) -> Callable[..., Any]:
    """Return a decorator that gives a command its options, as a signature that Typer reads.

    Args:
        names: names of the options, fields of `Config`.
        argument: name of the argument before the options; empty for none.
        annotation: annotation of that argument.
        more: options that are not fields of `Config`.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = (
            [inspect.Parameter(argument, positional, annotation=annotation)] if argument else []
        )
        command.__signature__ = inspect.Signature([*parameters, *more, *_parameters(names)])  # type: ignore[attr-defined]
        return command

    return decorate


def _parameters(names: Sequence[str]) -> list[inspect.Parameter]:
    """Return fields of `Config`, and the option ``--config``, as parameters of a command."""
    fields = {f.name: f for f in dataclasses.fields(Config)}
    parameters = [_parameter(fields[name]) for name in names]
    text = "TOML file with any of these options; options on the command line take precedence."
    file = typer.Option("--config", "-c", help=text)
    parameters.append(keyword("config", Annotated[Path | None, file], None))
    return parameters


def _parameter(field: "dataclasses.Field[Any]") -> inspect.Parameter:
    """Return the option of a field of `Config`.

    The default is None, so that a configuration file can set options that were not given.
    """
    unset = field.default is None or field.default is False or field.default == ()
    default = "" if unset else str(field.default)
    names = [flag(field.name), *field.metadata["flags"]]
    text = field.metadata["help"] + (f" [dim]\\[default: {default}][/dim]" if default else "")
    several = get_origin(field.type) is tuple
    metavar = "<path>" if several else None  # the name of the list's type is too wide
    option = typer.Option(*names, help=text, show_default=False, metavar=metavar)
    if field.type is bool:
        return keyword(field.name, Annotated[bool, option], False)
    kind: Any = list[Path] if several else field.type
    return keyword(field.name, Annotated[kind | None, option], None)


def keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """Return an option of a command that is not a field of `Config`."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


PACK_PARAMETERS = (
    keyword("anonymous", AnonymousOption, False),
    keyword("single_file", SingleFileOption, False),
)
FIGURE_PARAMETERS = (
    keyword("only", OnlyOption, None),
    keyword("label", LabelOption, ""),
    keyword("view", ViewOption, ""),
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
ModelsOption = Annotated[
    tuple[str, str] | None,
    typer.Option(
        "--models",
        metavar="A B",
        help="Models to collect and compare: hub ids, folders or files. 'untrained' for B is A "
        "with random weights.",
    ),
]
DtypesOption = Annotated[
    tuple[str, str] | None,
    typer.Option("--dtypes", metavar="A B", help="Number format of the weights of each model."),
]
AdaptersOption = Annotated[
    tuple[str, str] | None,
    typer.Option(
        "--adapters",
        metavar="A B",
        help="Adapter of each model: a folder, a hub id, or none.",
    ),
]
HeadsOption = Annotated[
    str,
    typer.Option(
        "--heads",
        help="Heads to compare: same (heads with equal numbers), matched (heads that attend most "
        "alike), or auto (same if sizes and vocabulary agree).",
    ),
]
RoundedOption = Annotated[
    Path | None,
    typer.Option(
        "--rounded",
        metavar="STUDY",
        help="The first model's study in bfloat16, for the effect of rounding alone.",
    ),
]
FloorOption = Annotated[
    str,
    typer.Option(
        "--rounding-floor",
        metavar="on|off",
        help="Count a head as different only if its interval lies beyond the effect of rounding "
        "alone. With --models, on runs the first model twice more on up to 64 sentences.",
    ),
]
UntrainedOption = Annotated[
    Path | None,
    typer.Option(
        "--untrained",
        metavar="STUDY",
        help="The second model's study with random weights: the similarity of untrained heads "
        "decides whether a head has a counterpart.",
    ),
]
TrainedFromOption = Annotated[
    bool,
    typer.Option(
        "--trained-from",
        help="Compare head outputs, too, because B was trained from A (with --models).",
    ),
]
KeepPairOption = Annotated[
    Path | None,
    typer.Option(
        "--keep-studies", metavar="DIR", help="Folder to keep both studies in, as a and b."
    ),
]
ROUNDED_PARAMETER = keyword("rounded", RoundedOption, None)
COMPARE_PARAMETERS: tuple[Parameter, ...] = (
    keyword("models", ModelsOption, None),
    keyword("dtypes", DtypesOption, None),
    keyword("adapters", AdaptersOption, None),
    keyword("heads", HeadsOption, "auto"),
    ROUNDED_PARAMETER,
    keyword("rounding_floor", FloorOption, "on"),
    keyword("untrained", UntrainedOption, None),
    keyword("trained_from", TrainedFromOption, False),
    keyword("keep_studies", KeepPairOption, None),
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


NOT_FOR_FILM = {
    "model", "revision", "adapter", "merge_adapter", "keep_study", "processes", "section",
} | RESUME_OPTIONS  # fmt: skip
FILM_OPTIONS = tuple(name for name in BUILD_OPTIONS if name not in NOT_FOR_FILM)

FilmArguments = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL INPUT... | STUDY...",
        help="A model and the sentences that its checkpoints read; with --studies, folders that "
        "collect has written, one for each checkpoint, or the folder of --keep-studies.",
    ),
]
RevisionsOption = Annotated[
    str | None,
    typer.Option(
        "--revisions",
        metavar="R1,R2,…",
        help="Checkpoints in order, separated by commas: revisions of a hub model, or folders "
        "inside a local one (default: all).",
    ),
]
StudiesOption = Annotated[
    bool, typer.Option("--studies", help="Film stored studies, without running a model.")
]
KeepCheckpointsOption = Annotated[
    Path | None,
    typer.Option(
        "--keep-studies",
        metavar="DIR",
        help="Folder to keep the study of each checkpoint in. Studies in the folder are not "
        "collected again, so that a film can be continued.",
    ),
]
DeleteWeightsOption = Annotated[
    bool,
    typer.Option(
        "--delete-weights",
        help="Delete from the hub's cache the weights that this run has downloaded for a "
        "checkpoint, before the next checkpoint is downloaded.",
    ),
]
FILM_PARAMETERS: tuple[Parameter, ...] = (
    keyword("revisions", RevisionsOption, None),
    keyword("studies", StudiesOption, False),
    keyword("keep_studies", KeepCheckpointsOption, None),
    keyword("delete_weights", DeleteWeightsOption, False),
)


def check_film_options(
    arguments: Sequence[str],
    config: Config,
    *,
    revisions: str | None,
    studies: bool,
    keep_studies: Path | None,
    delete_weights: bool,
) -> None:
    """Check that the options of a film go together, before anything slow begins.

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
    elif len(arguments) < 2:
        raise ConfigError(
            "film: got no sentences; expected a model and the sentences that its checkpoints "
            "read, or --studies and their studies"
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
