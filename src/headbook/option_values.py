"""Values that options and SOURCE_DATE_EPOCH accept, and their conversion to the right type."""

import datetime as dt
import operator
import os
import re
from os import PathLike, fspath
from pathlib import Path
from typing import Any, get_args, get_origin
from urllib.parse import urlsplit

from headbook.errors import ConfigError
from headbook.schema import HeadCorrespondence

DEVICES = ("auto", "cpu", "cuda", "mps")
DEVICE_PATTERN = re.compile(rf"{'|'.join(DEVICES)}|cuda:\d+")
DTYPES = ("float32", "float64", "float16", "bfloat16")  # number formats of weights
PRECISIONS = ("float32", "bfloat16")  # number formats of vocabulary products
OFFLOADS = ("off", "auto", "disk")
QUANTIZATIONS = ("none", "int8", "int4")
# Tasks in the order of pages, and values of --task that name none.
TASKS, AUTO_TASKS, NO_TASKS = ("label", "preference", "answer", "patching"), "auto", "none"
ACCEPTABLE = ("acceptable", "grammatical", "1", "true")  # values of acceptable sentences
CHOICES = {  # options with a fixed set of values
    "dtype": DTYPES,
    "offload": OFFLOADS,
    "quantization": QUANTIZATIONS,
    "vocabulary_precision": PRECISIONS,
    "importance": ("off", "fast", "full"),
    "circuits": ("on", "off"),
    "engine": ("local", "ray"),
}
MAX_SEED = 2**32 - 1  # largest seed that all random generators accept
MIN_VALUES = {
    "batch_tokens": 1,
    "max_length": 1,
    "pack": 1,
    "limit": 1,
    "sample": 1,
    "exemplars": 1,
    "query_key_sentences": 0,
    "vocabulary_sentences": 1,
    "processes": 0,
    "workers": 1,
}
RANGES = {  # smallest and largest value
    "sample_sentences": (1, 2000),
    "importance_sentences": (2, 2000),
    "control_seeds": (1, 5),
    "seed": (0, MAX_SEED),
}
LIST_OPTIONS = {
    "metrics",
    "facet",
    "control",
    "device",
    "task",
}  # accept several values with commas
NUMBER_OR_WORD_OPTIONS = {"sentence_pages"}
UNIT_BYTES = {"kb": 1e3, "mb": 1e6, "gb": 1e9}
SIZE_PATTERN = re.compile(r"(\d+(?:\.\d+)?) ?([kmg]b)", re.IGNORECASE)
MAX_WHOLE_NUMBER = 10**9  # of an option; all libraries can represent it
KIND_NAMES = {
    int: "a whole number", float: "a number", str: "text", bool: "true or false", Path: "a path",
}  # fmt: skip


def option_value(
    kind: Any,
    value: Any,
    *,
    accepts_list: bool = False,
    accepts_number: bool = False,
    maximum: int = MAX_WHOLE_NUMBER,
) -> Any:
    """Convert a value to the type of an option.

    A list may stand for comma-separated values, a number for its text, a path for a folder, and a
    single value for a tuple.

    Args:
        kind: type of the option, perhaps a union with None.
        accepts_list: whether the option takes values separated by commas.
        accepts_number: whether the option is a text that may be a number.
        maximum: largest whole number.

    Raises:
        ValueError: the value does not fit; the message says what is expected.
    """
    if value is None and type(None) in get_args(kind):
        return None
    if get_origin(kind) is tuple:
        parts = value if isinstance(value, list | tuple) else [value]
        return tuple(option_value(get_args(kind)[0], part) for part in parts)
    (only_kind,) = (member for member in get_args(kind) or (kind,) if member is not type(None))
    if isinstance(value, only_kind) and isinstance(value, bool) == (only_kind is bool):
        converted = value
    elif only_kind is float and isinstance(value, int) and not isinstance(value, bool):
        converted = float(value)
    elif only_kind is Path and isinstance(value, str | PathLike):
        converted = Path(value)
    elif only_kind is str and isinstance(value, PathLike):
        converted = str(fspath(value))
    elif only_kind is str and accepts_list and _is_list_of_names(value):
        converted = ",".join(value)
    else:
        converted = _whole_number(only_kind, value, accepts_number=accepts_number)
        if converted is None:
            raise ValueError(KIND_NAMES[only_kind] + " or a list of texts" * accepts_list)
    if only_kind is int and abs(converted) > maximum:
        raise ValueError(f"at most {maximum:,}")
    return converted


def _is_list_of_names(value: Any) -> bool:
    """Whether a value is a list of texts without commas."""
    is_filled_list = isinstance(value, list | tuple) and len(value) > 0
    return is_filled_list and all(isinstance(name, str) and "," not in name for name in value)


def _whole_number(kind: type, value: Any, *, accepts_number: bool) -> Any:
    """Return a whole number, also of numpy, in the option's type; None if the option takes none."""
    if isinstance(value, bool) or not (kind is int or accepts_number):
        return None
    try:
        number = operator.index(value)
    except TypeError:
        return None
    return number if kind is int else str(number)


def creation_date() -> str:
    """Return the date that a study records: ``SOURCE_DATE_EPOCH`` if set, else today, in UTC.

    Raises:
        ConfigError: ``SOURCE_DATE_EPOCH`` holds no date.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if not epoch:
        return dt.datetime.now(dt.UTC).date().isoformat()
    try:
        return dt.datetime.fromtimestamp(int(epoch), dt.UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        raise ConfigError(
            f"SOURCE_DATE_EPOCH: got {epoch!a}, expected whole seconds since 1970, up to the "
            "year 9999, or no such variable"
        ) from None


def named_tasks(value: str) -> tuple[str, ...]:
    """Return the tasks that a value of ``--task`` names, in the order of `TASKS`."""
    names = {name.strip() for name in value.split(",")}
    return tuple(task for task in TASKS if task in names)


def is_list_of_tasks(value: str) -> bool:
    """Whether a value of ``--task`` is 'auto', 'none' or a list of tasks."""
    return value in {AUTO_TASKS, NO_TASKS} or {name.strip() for name in value.split(",")} <= {
        *TASKS
    }


def is_web_folder(address: str) -> bool:
    """Whether an address is one of a folder on the web."""
    web = urlsplit(address)
    has_place = web.scheme in {"http", "https"} and bool(web.netloc)
    return has_place and not (web.query or web.fragment)


def correspondence_of(name: str) -> HeadCorrespondence:
    """Return how heads of two models correspond.

    Raises:
        ConfigError: the name is unknown.
    """
    if name not in {*HeadCorrespondence}:
        raise ConfigError(f"--heads: got {name!r}, expected one of {', '.join(HeadCorrespondence)}")
    return HeadCorrespondence(name)


def flag(name: str) -> str:
    """Return the spelling of an option on the command line, such as ``--out``."""
    return "--" + name.replace("_", "-")


def texts_in(value: Any) -> list[str]:
    """Return the texts and paths of an option as texts; empty for numbers and nothing."""
    parts = value if isinstance(value, tuple) else (value,)
    return [str(part) for part in parts if isinstance(part, str | Path)]


def is_utf8(text: str) -> bool:
    """Whether UTF-8 can encode a text, and files can have it as their name."""
    return "\0" not in text and text == text.encode(errors="replace").decode()


def read_failure(error: Exception) -> str:
    """Return the reason why a file cannot be read, without its name and without Python's words."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(getattr(error, "strerror", None) or error)
