"""Writes `headbook.options`: the options of Python functions, with types that editors complete.

Usage: python tests/support/options_module.py
"""

import dataclasses
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

from headbook import option_values
from headbook.config import Config

FILE = Path(__file__).parents[2] / "src" / "headbook" / "options.py"
# Options that are arguments of functions, or that the command line alone has.
ARGUMENTS = {"model", "tokenizer", "out", "keep_study", "base_url", "processes", "force"}
OF_COMMANDS = {"accept_failed_checks", "restart", "open", "quiet"}
HEAD = '''"""Options of `headbook.collect` and of the functions that call it, with their types.

Written by ``tests/support/options_module.py`` from `headbook.config.Config`, which explains them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    import torch
    from spacy.language import Language


class Options(TypedDict, total=False):
    """Options by name; one that is left out, or None, has its default."""

'''


def names() -> list[str]:
    """Return the options of Python functions, in the order of `Config`."""
    left_out = ARGUMENTS | OF_COMMANDS
    return [field.name for field in dataclasses.fields(Config) if field.name not in left_out]


# Objects that stand for texts, by the options that take them.
OBJECTS = (
    dict.fromkeys(option_values.LIST_OPTIONS, "Sequence[str]")
    | dict.fromkeys(option_values.NUMBER_OR_WORD_OPTIONS, "int")
    | dict.fromkeys(option_values.OFF_AND_ON, "bool")
    | {
        "adapter": "Path",
        "annotator": "Path | Language",
        "target_annotator": "Path | Language",
        "device": "Sequence[str] | torch.device",
        "dtype": "torch.dtype",
    }
)


def type_of(name: str, kind: Any) -> str:
    """Return the type of an option as Python code."""
    if get_origin(kind) is tuple:
        return "str | Path | Sequence[str | Path] | None"
    (only,) = {*(get_args(kind) if isinstance(kind, UnionType) else (kind,))} - {type(None)}
    own = "str | Path" if only is Path else only.__name__
    text = " | ".join(filter(None, (own, OBJECTS.get(name), "None")))
    return f'"{text}"' if "torch" in text or "Language" in text else text


def module() -> str:
    """Return the text of the module."""
    kinds = {field.name: field.type for field in dataclasses.fields(Config)}
    lines = "".join(f"    {name}: {type_of(name, kinds[name])}\n" for name in names())
    return HEAD + lines


if __name__ == "__main__":
    FILE.write_text(module(), encoding="utf-8")
