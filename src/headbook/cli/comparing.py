"""What the command takes that holds two models against each other."""

from collections.abc import Sequence
from inspect import Parameter
from pathlib import Path
from typing import Annotated

import typer

from headbook.cli.options import BUILDING, RESUMING, keyword
from headbook.config import DTYPES
from headbook.errors import ConfigError
from headbook.terms import Heads

USELESS = {"model", "dtype", "keep_study", "offload", "title"} | RESUMING
OPTIONS = tuple(name for name in BUILDING if name not in USELESS)

Compared = Annotated[
    list[str],
    typer.Argument(
        metavar="STUDY_A STUDY_B | INPUT...",
        help="Two folders that collect has written; with --models, the sentences that both read.",
    ),
]
Models = Annotated[
    tuple[str, str] | None,
    typer.Option(
        "--models",
        metavar="A B",
        help="Models to collect and compare: hub ids, folders or files. 'untrained' for B is A "
        "with random weights.",
    ),
]
Formats = Annotated[
    tuple[str, str] | None,
    typer.Option("--dtypes", metavar="A B", help="Number format of the weights of each model."),
]
Correspondence = Annotated[
    str,
    typer.Option(
        "--heads",
        help="Which heads are held against each other: same (those with the same number), matched "
        "(those that attend most alike), or auto: same where sizes and vocabulary agree.",
    ),
]
Rounded = Annotated[
    Path | None,
    typer.Option(
        "--rounded",
        metavar="STUDY",
        help="The first model's study in bfloat16: what rounding alone does, as a floor.",
    ),
]
Floor = Annotated[
    str,
    typer.Option(
        "--rounding-floor",
        metavar="on|off",
        help="Count a head as different only if its interval lies beyond what rounding alone "
        "does. With --models, on runs the first model twice more on up to 64 sentences.",
    ),
]
Null = Annotated[
    Path | None,
    typer.Option(
        "--null",
        metavar="STUDY",
        help="The second model's study with random weights: how alike heads are that learned "
        "nothing, which decides whether a head has a counterpart.",
    ),
]
Trained = Annotated[
    bool,
    typer.Option(
        "--trained-from",
        help="B was trained from A, so that outputs of heads can be compared, too (with --models).",
    ),
]
Kept = Annotated[
    Path | None,
    typer.Option(
        "--keep-studies", metavar="DIR", help="Folder to keep both studies in, as a and b."
    ),
]
ROUNDED = keyword("rounded", Rounded, None)
COMPARING: tuple[Parameter, ...] = (
    keyword("models", Models, None),
    keyword("dtypes", Formats, None),
    keyword("heads", Correspondence, "auto"),
    ROUNDED,
    keyword("rounding_floor", Floor, "on"),
    keyword("null", Null, None),
    keyword("trained_from", Trained, False),
    keyword("keep_studies", Kept, None),
)


def studies_of(given: Sequence[str]) -> tuple[Path, Path]:
    """The two folders of a comparison without models.

    Raises:
        ConfigError: other than two came.
    """
    if len(given) != 2:
        raise ConfigError(
            f"compare: {len(given)} folder{'s' * (len(given) != 1)} came; expected two studies, "
            "or --models A B and the sentences that both read"
        )
    return Path(given[0]), Path(given[1])


def formats_of(formats: tuple[str, str] | None) -> tuple[str, str]:
    """The number format of each model.

    Raises:
        ConfigError: one of them is not known.
    """
    for name in formats or ():
        if name not in DTYPES:
            raise ConfigError(f"--dtypes: {name!r} came; expected two of {', '.join(DTYPES)}")
    return formats or ("float32", "float32")


def floor_of(name: str) -> bool:
    """Return whether rounding floors are wanted.

    Raises:
        ConfigError: the value is neither on nor off.
    """
    if name not in {"on", "off"}:
        raise ConfigError(f"--rounding-floor: got {name!r}, expected on or off")
    return name == "on"


def heads_of(name: str) -> Heads:
    """Which heads are held against each other.

    Raises:
        ConfigError: it is not known.
    """
    if name not in {*Heads}:
        raise ConfigError(f"--heads: {name!r} came; expected one of {', '.join(Heads)}")
    return Heads(name)
