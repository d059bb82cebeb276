"""Options in messages: flags on the command line, arguments of functions in Python.

All messages are written with flags, which the command line prints. A function that is called from
Python carries the decorator `names_arguments`, so that its errors name arguments.
"""

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import ParamSpec, TypeVar

from headbook import option_values
from headbook.errors import HeadbookError, HeadbookWarning
from headbook.schema import Baseline, HeadCorrespondence

P = ParamSpec("P")
R = TypeVar("R")
# Commands with their flags, which stay; else a flag, perhaps with a value after = or a blank.
FLAG = re.compile(
    r"headbook [a-z]+(?: --?\w\S*)+"
    r"|(?<![\w'\"-])--(?P<name>[a-z]+(?:-[a-z]+)*)"
    r"(?:=(?P<given>[^\s;,]+?)(?=[\s;,]|:\s|[.:]?$)| (?P<next>\w+))?(?P<bare>(?=:\s| \())?"
)
VALUES: Mapping[str, tuple[str, ...]] = {  # by which a word after a flag is known to be its value
    **option_values.CHOICES,
    "device": option_values.DEVICES,
    "control": tuple(Baseline),
    "heads": tuple(HeadCorrespondence),
}
COMMON_VALUES = ("all", "auto", "none")
# All options, which `headbook.config` enters, and whether each is true or false.
OPTIONS: dict[str, bool] = {}


def names_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function whose errors name options as arguments of Python functions.

    ``--text-column`` becomes ``text_column=``, for fields of `Config` and the function's own
    arguments.
    """
    own = {
        name: isinstance(parameter.default, bool)
        for name, parameter in inspect.signature(function).parameters.items()
    }

    @functools.wraps(function)
    def called(*arguments: P.args, **options: P.kwargs) -> R:
        try:
            return function(*arguments, **options)
        except HeadbookError as error:
            error.python_text = python_text(str(error), own)
            raise

    return called


def python_text(text: str, own: Mapping[str, bool] | None = None) -> str:
    """Return a message with arguments of Python functions in place of flags.

    Args:
        text: the message, with flags.
        own: arguments of the function that are no fields of `Config`, and whether each is true or
            false.
    """
    return FLAG.sub(partial(_argument, {**(own or {}), **OPTIONS}), text)


def _argument(known: Mapping[str, bool], match: "re.Match[str]") -> str:
    """Return an argument in place of a flag; a flag of another program stays."""
    name = (match["name"] or "").replace("-", "_")
    if name not in known:
        return match[0]
    value, word = match["given"], match["next"]
    values = (*VALUES.get(name, ()), *COMMON_VALUES)
    if word is not None and not known[name] and (word in values or word.isdecimal()):
        value, word = word, None
    if value is not None:
        argument = f"{name}={value if value.isdecimal() else repr(value)}"
    elif match["bare"] is not None and word is None:
        argument = name
    else:
        argument = f"{name}=True" if known[name] else f"{name}="
    return argument if word is None else f"{argument} {word}"


HeadbookWarning.in_python = staticmethod(python_text)
