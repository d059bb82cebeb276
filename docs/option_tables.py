"""Write the tables of options in docs/commands.md, from the options of the program.

``.venv/bin/python docs/option_tables.py``
"""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from typer.main import get_command

from headbook.cli import main as cli
from headbook.cli.parameters import HELP
from headbook.config import Config
from headbook.option_values import OptionGroup

PAGE = Path(__file__).parent / "commands.md"
START, END = "<!-- options: docs/option_tables.py writes them -->", "<!-- end of options -->"
DEFAULT = re.compile(r" \[dim\]\\\[default: (.*)\]\[/dim\]")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")


def tables() -> str:
    """Return a table for each group of options, and one of the options of single commands."""
    program = cast("Any", get_command(cli.app))
    metadata = {field.name: field.metadata for field in dataclasses.fields(Config)}
    options = [o for o in _options(program.commands["build"]) if o.name in metadata]
    parts = []
    for group in OptionGroup:
        of_group = [o for o in options if metadata[o.name]["group"] == group]
        of_group.sort(key=lambda option: not metadata[option.name]["common"])
        parts.append(_table(group, ["option", "does"], [[_flags(o), _text(o)] for o in of_group]))
    rows = [
        [f"`headbook {command.name}`", _flags(option), _text(option)]
        for command in program.commands.values()
        for option in _options(command)
        if option.name not in {*metadata, "config"}
    ]
    parts.append(_table("Of single commands", ["command", "option", "does"], rows))
    return "\n".join(parts)


def with_tables(page: str) -> str:
    """Return the text of the page with the tables between two comments."""
    before, _, rest = page.partition(START)
    return f"{before}{START}\n\n{tables()}\n{END}{rest.partition(END)[2]}"


def _options(command: Any) -> Iterator[Any]:
    """Yield the options of a command, without arguments and help."""
    for parameter in command.params:
        if parameter.param_type_name == "option" and parameter.rich_help_panel != HELP:
            yield parameter


def _flags(option: Any) -> str:
    return ", ".join(f"`{name}`" for name in option.opts)


def _text(option: Any) -> str:
    """Return the help of an option in Markdown, with its default."""
    text = DEFAULT.sub(r" Default: `\1`.", option.help)
    return FLAG.sub(r"`\g<0>`", text).replace("|", r"\|").replace("*", r"\*")


def _table(title: str, columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return f"### {title}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
