"""Help explains the most used options first and names the others, which --help-all explains."""

import dataclasses
import re
import typing
from typing import Any

import pytest
from typer.main import get_command

from command_line import Run
from headbook.cli import main as cli
from headbook.cli.parameters import HELP, MOST_USED, PANELS
from headbook.config import Config
from headbook.option_values import OptionGroup

PROGRAM = typing.cast("Any", get_command(cli.app))
COMMANDS = [*PROGRAM.commands]
WITH_OPTIONS = [name for name in COMMANDS if name != "metrics"]
MARKUP = re.compile(r"\[/?dim\]|\\(?=\[)")
FRAME = re.compile(r"[│╭╮╰╯─]")


def options(command: str) -> list[Any]:
    """Options of a command, without its arguments."""
    return [p for p in PROGRAM.commands[command].params if p.param_type_name == "option"]


def panels(out: str) -> list[str]:
    """Titles of the panels of a help, in order."""
    return re.findall(r"^╭─ (.+?) ─*╮$", out, re.MULTILINE)


@pytest.mark.parametrize("command", ["", *COMMANDS])
@pytest.mark.parametrize("short", ["-h", "--help"])
def test_help_has_at_most_100_lines_of_100_columns(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: str, short: str
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    code, out, err = run(*command.split(), short)
    assert (code, err) == (0, "")
    assert 5 < len(out.splitlines()) <= 100
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize("command", WITH_OPTIONS)
def test_help_explains_the_most_used_options_and_names_the_others(run: Run, command: str) -> None:
    out = run(command, "--help").out
    assert panels(out) == ["Arguments"] * (command != "demo") + [MOST_USED, HELP]
    words = FRAME.sub(" ", out).split()
    assert "--help-all" in words
    for option in options(command):
        long_name, *_ = option.opts
        assert {long_name, f"{long_name},"} & {*words}, long_name
        is_explained = re.search(rf"│ {long_name} ", out) is not None
        assert is_explained == (option.rich_help_panel in {MOST_USED, HELP}), long_name


def test_about_ten_options_of_build_are_most_used() -> None:
    most_used = {o.name for o in options("build") if o.rich_help_panel == MOST_USED}
    assert 10 <= len(most_used) <= 12
    assert {"model", "out", "metrics", "limit", "force"} <= most_used


@pytest.mark.parametrize("command", WITH_OPTIONS)
def test_all_options_are_explained_on_request_by_group(run: Run, command: str) -> None:
    out = run(command, "--help-all").out
    titles = [title for title in panels(out) if title != "Arguments"]
    assert titles[0] == MOST_USED
    assert titles[-1] == HELP
    assert titles == [panel for panel in PANELS if panel in titles]
    words = " ".join(FRAME.sub(" ", out).split())
    for option in options(command):
        assert all(name in words for name in option.opts), option.name
        assert re.search(rf"│ {option.opts[0]} ", out), option.name
        help_words = MARKUP.sub("", option.help).split()
        assert all(word in words for word in help_words), option.name


@pytest.mark.parametrize("command", WITH_OPTIONS)
def test_options_of_a_command_stand_in_the_panels_of_their_groups(command: str) -> None:
    fields = {field.name: field for field in dataclasses.fields(Config)}
    for option in options(command):
        assert option.rich_help_panel in PANELS
        assert option.hidden == (option.rich_help_panel not in {MOST_USED, HELP})
        if option.name in fields:
            metadata = fields[option.name].metadata
            assert option.rich_help_panel == (
                MOST_USED if metadata["common"] else metadata["group"]
            )


def test_every_option_has_a_group_and_every_group_several_options() -> None:
    groups = [field.metadata["group"] for field in dataclasses.fields(Config)]
    assert {*groups} == {*OptionGroup}
    assert min(groups.count(group) for group in OptionGroup) >= 5
