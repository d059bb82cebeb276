"""Values that options and SOURCE_DATE_EPOCH accept, and their conversion to the right type."""

import datetime as dt
import operator
import os
import re
from enum import StrEnum
from os import PathLike, fspath
from pathlib import Path
from typing import Any, get_args, get_origin
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from headbook.errors import ConfigError
from headbook.schema import HeadCorrespondence


class OptionGroup(StrEnum):
    """Titles of the groups in which help and documents list options, in their order."""

    INPUT = "Input"
    MODEL = "Model"
    MEASURED = "What is measured"
    PAGES = "Pages"
    SPEED = "Speed and memory"
    OUTPUT = "Output"


DEVICES = ("auto", "cpu", "cuda", "mps")
DEVICE_PATTERN = re.compile(rf"{'|'.join(DEVICES)}|cuda:\d+")
DTYPES = ("float32", "float64", "float16", "bfloat16")  # number formats of weights
PRECISIONS = ("float32", "bfloat16")  # number formats of vocabulary products
OFFLOADS = ("off", "auto", "disk")
QUANTIZATIONS = ("none", "int8", "int4")
# Tasks in the order of pages, and values of --task that name none.
TASKS, AUTO_TASKS, NO_TASKS = ("label", "preference", "answer", "patching"), "auto", "none"
AUTO_ANNOTATOR = "auto"  # the embedded one for English
ACCEPTABLE = ("acceptable", "grammatical", "1", "true")  # values of acceptable sentences
CHOICES = {  # options with a fixed set of values
    "dtype": DTYPES,
    "offload": OFFLOADS,
    "quantization": QUANTIZATIONS,
    "vocabulary_precision": PRECISIONS,
    "importance": ("off", "auto", "full"),
    "circuits": ("on", "off"),
    "engine": ("local", "ray"),
}
ESCAPED = re.compile(
    r"[\s\"'<>\\^`{|}]|[^\x00-\x7f]|[\x00-\x1f]"
)  # characters that addresses escape
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


# Values of options for which a program may give False and True.
OFF_AND_ON = {
    "importance": ("off", "auto"), "circuits": ("off", "on"), "offload": ("off", "auto"),
}  # fmt: skip
# Pipelines of spaCy that a program has given as an annotator, by the name that stands for each.
PIPELINES: WeakValueDictionary[str, Any] = WeakValueDictionary()


def plain_value(name: str, value: Any) -> Any:
    """Return an object of torch or spaCy, or a truth value, as the text that an option takes.

    Args:
        name: name of the option.
        value: any value; returned as it is if it is no such object.
    """
    if name in OFF_AND_ON and isinstance(value, bool):
        return OFF_AND_ON[name][value]
    if name in {"dtype", "vocabulary_precision", "device"} and type(value).__module__ == "torch":
        return str(value).removeprefix("torch.")
    if name in {"annotator", "target_annotator"} and hasattr(value, "pipe_names"):
        pipeline_name = f"{value.meta['lang']}_{value.meta['name']} in memory"
        PIPELINES[pipeline_name] = value
        return pipeline_name
    return value


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


def check_base_url(address: str | None) -> None:
    """Refuse an address that is not one of a folder on the web.

    Raises:
        ConfigError: the address has no host, has a query or fragment, or has characters that
            addresses escape, such as blanks and quotes.
    """
    if address is not None and not _is_web_folder(address):
        raise ConfigError(
            f"{flag('base_url')}: got {address!r}, expected an address such as "
            "'https://somebody.github.io/heads/'"
        )


def _is_web_folder(address: str) -> bool:
    try:
        web = urlsplit(address)
        has_place = web.scheme in {"http", "https"} and bool(web.hostname) and web.port != 0
    except ValueError:  # brackets that do not close, or a port that is no number
        return False
    return has_place and not (web.query or web.fragment) and not ESCAPED.search(address)


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
