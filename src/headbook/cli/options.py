"""What commands take: options made from the fields of `Config`, and what they are given to do."""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from headbook.config import Config, flag

# The options of the command render, and of figures and pack.
RENDERING = ("out", "base_url", "processes", "force", "open", "quiet", "verbose")
DRAWING = ("out", "force", "quiet", "verbose")
MERGING = ("out", "accept_checks", "force", "quiet", "verbose")
SHOWING = {"open", "base_url", "processes", "keep_study"}  # of no use to collect
COLLECTING = tuple(f.name for f in dataclasses.fields(Config) if f.name not in SHOWING)
BUILDING = tuple(f.name for f in dataclasses.fields(Config))
RESUMING = {"restart", "workers", "engine", "address"}  # of no use to what collects several studies

Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT...",
        help="Sentences: .txt, .jsonl, .csv, .tsv, .conllu, also with .gz or .zst; .parquet; a "
        "folder or hub id of a dataset; - for standard input.",
    ),
]
Stored = Annotated[Path, typer.Argument(metavar="STUDY", help="Folder that collect has written.")]
OneOrTwo = Annotated[
    list[Path],
    typer.Argument(
        metavar="STUDY [STUDY_B]",
        help="Folder that collect has written; two of them for the figures of their comparison.",
    ),
]
Several = Annotated[
    list[Path],
    typer.Argument(metavar="STUDY...", help="Folders that collect has written, two or more."),
]
Packable = Annotated[
    Path, typer.Argument(metavar="SITE", help="Folder of a site, or one that collect has written.")
]
Nameless = Annotated[
    bool,
    typer.Option(
        "--anonymous",
        help="Leave out title, notes, date, links and names of files and folders. It renders the "
        "pages again, so it takes the folder that collect has written.",
    ),
]
OneFile = Annotated[
    bool,
    typer.Option(
        "--single-file",
        help="One HTML file with every page, which opens from disk, instead of an archive.",
    ),
]
Named = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="NAME",
        help="A figure's name, as in its file on the site, or a pattern with * and ?; may be "
        "repeated. Default: all figures. The id of a metric stands for all of its figures.",
    ),
]
Label = Annotated[
    str,
    typer.Option(
        "--label",
        metavar="LABEL",
        help="Label that figures of heads show, such as case:to_head; those without it are left "
        "out. [dim]\\[default: that of the site][/dim]",
        show_default=False,
    ),
]
Keys = Annotated[
    str,
    typer.Option(
        "--view",
        metavar="VIEW",
        help="Keys that figures of heads count, by their name in the column view of heads.csv.",
        show_default=False,
    ),
]


def takes(
    names: Sequence[str], first: str = "", annotation: Any = None, *more: inspect.Parameter
) -> Callable[..., Any]:
    """Give a command the options it takes, as a signature that Typer reads.

    Args:
        names: of the options, fields of `Config`.
        first: the argument that comes before them, with its annotation; empty where there is none.
        more: options that are no fields of `Config`.
    """

    def given(command: Callable[..., None]) -> Callable[..., None]:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [inspect.Parameter(first, kind, annotation=annotation)] if first else []
        command.__signature__ = inspect.Signature([*parameters, *more, *_options(names)])  # type: ignore[attr-defined]
        return command

    return given


def _options(names: Sequence[str]) -> list[inspect.Parameter]:
    fields = {f.name: f for f in dataclasses.fields(Config)}
    made = [_parameter(fields[name]) for name in names]
    text = "TOML file with any of these options; those given on the command line win."
    file = typer.Option("--config", "-c", help=text)
    made.append(keyword("config", Annotated[Path | None, file], None))
    return made


def _parameter(field: "dataclasses.Field[Any]") -> inspect.Parameter:
    """One option. Its default is None, so that a configuration file can tell what was given."""
    default = "" if field.default is None or field.default is False else str(field.default)
    names = [flag(field.name), *field.metadata["flags"]]
    text = field.metadata["help"] + (f" [dim]\\[default: {default}][/dim]" if default else "")
    option = typer.Option(*names, help=text, show_default=False)
    if field.type is bool:
        return keyword(field.name, Annotated[bool, option], False)
    wanted: Any = field.type
    return keyword(field.name, Annotated[wanted | None, option], None)


def keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """One option of a command that is no field of `Config`."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


PACKING = (keyword("anonymous", Nameless, False), keyword("single_file", OneFile, False))
CHOOSING = (
    keyword("only", Named, None),
    keyword("label", Label, ""),
    keyword("view", Keys, ""),
)
