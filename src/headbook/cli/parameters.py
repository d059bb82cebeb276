"""Options of commands as parameters of functions, which Typer reads, and the help on them.

Help explains the most used options and names the others, which ``--help-all`` explains, too.
"""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, get_origin

import typer

from headbook.config import Config
from headbook.option_values import OptionGroup, flag

KEYWORD = Parameter.KEYWORD_ONLY
MOST_USED, HELP = "Most used", "Help"  # panels of help before and after those of groups
PANELS = (MOST_USED, *OptionGroup, HELP)


def with_options(
    names: Sequence[str], argument: str = "", annotation: Any = None, *more: Parameter
) -> Callable[..., Any]:
    """Return a decorator that gives a command its options, as a signature that Typer reads.

    Args:
        names: names of the options, fields of `Config`.
        argument: name of the argument before the options; empty for none.
        annotation: annotation of that argument.
        more: options that are not fields of `Config`.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        positional = Parameter.POSITIONAL_OR_KEYWORD
        parameters = [Parameter(argument, positional, annotation=annotation)] if argument else []
        # Panels are printed in the order of their first options.
        ordered = sorted((*more, *_parameters(names), *HELP_PARAMETERS), key=_panel_index)
        command.__signature__ = inspect.Signature([*parameters, *ordered])  # type: ignore[attr-defined]
        return command

    return decorate


def _panel_index(parameter: Parameter) -> int:
    return PANELS.index(parameter.annotation.__metadata__[0].rich_help_panel)


def _parameters(names: Sequence[str]) -> list[Parameter]:
    """Return fields of `Config`, and the option ``--config``, as parameters of a command."""
    fields = {f.name: f for f in dataclasses.fields(Config)}
    text = "TOML file with any of these options; options on the command line take precedence."
    file = keyword("config", Path | None, OptionGroup.INPUT, text, "-c", common=True)
    return [*(_parameter(fields[name]) for name in names), file]


def _parameter(field: "dataclasses.Field[Any]") -> Parameter:
    """Return the option of a field of `Config`.

    The default is None, so that a configuration file can set options that were not given.
    """
    several = get_origin(field.type) is tuple
    kind: Any = list[Path] if several else field.type
    unset = field.default is None or field.default is False or field.default == ()
    return keyword(
        field.name,
        bool if kind is bool else kind | None,
        field.metadata["group"],
        field.metadata["help"],
        *field.metadata["flags"],
        common=field.metadata["common"],
        default_text="" if unset else str(field.default),
        metavar="<path>" if several else None,  # the name of the list's type is too wide
    )


def keyword(
    name: str,
    kind: Any,
    group: OptionGroup,
    text: str,
    *flags: str,
    default: Any = None,
    default_text: str = "",
    common: bool = False,
    metavar: str | None = None,
) -> Parameter:
    """Return an option of a command.

    Args:
        kind: type of the values.
        group: title of the panel that has the option, unless it is among the most used.
        text: help of the option.
        flags: short flags.
        default: value of an option that is not given; of a flag it is False.
        default_text: default that the help names.
        common: whether the option is among the most used ones of the command.
        metavar: placeholder of the value, if it is not the type.
    """
    option = typer.Option(
        flag(name),
        *flags,
        help=text + (f" [dim]\\[default: {default_text}][/dim]" if default_text else ""),
        show_default=False,
        metavar=metavar,
        rich_help_panel=MOST_USED if common else str(group),
        hidden=not common,  # until _explain_all shows it
    )
    value = False if kind is bool else default
    return Parameter(name, KEYWORD, default=value, annotation=Annotated[kind, option])


def _explain(context: typer.Context, requested: bool) -> bool:
    """Print the help of the most used options and the names of the others, and exit."""
    if requested:
        command: Any = context.command
        others: dict[str, list[str]] = {}
        for option in command.params:
            if option.hidden:
                others.setdefault(option.rich_help_panel, []).append(flag(option.name))
        lines = [f"{panel}: {', '.join(names)}" for panel, names in others.items()]
        if lines:
            command.epilog = "\n".join([f"Also, as {flag('help_all')} explains:", *lines])
        typer.echo(context.get_help())
        raise typer.Exit
    return requested


def _explain_all(context: typer.Context, requested: bool) -> bool:
    """Print the help of all options, and exit."""
    if requested:
        command: Any = context.command
        for option in command.params:
            option.hidden = False
        typer.echo(context.get_help())
        raise typer.Exit
    return requested


def _help_parameter(name: str, text: str, show: Callable[..., bool], *flags: str) -> Parameter:
    option = typer.Option(
        flag(name), *flags, help=text, callback=show, is_eager=True, rich_help_panel=HELP
    )
    return Parameter(name, KEYWORD, default=False, annotation=Annotated[bool, option])


HELP_PARAMETERS = (
    _help_parameter("help", "Explain the most used options and exit.", _explain, "-h"),
    _help_parameter("help_all", "Explain all options and exit.", _explain_all),
)
