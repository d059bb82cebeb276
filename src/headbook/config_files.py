"""Reading of options from a configuration file, and conversion of values to their types."""

import dataclasses
import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headbook import option_values
from headbook.errors import ConfigError
from headbook.safe_files import is_endless

Fields = Mapping[str, "dataclasses.Field[Any]"]  # fields of `Config` by name


def read_toml(file: Path, fields: Fields) -> dict[str, Any]:
    """Read options from a TOML file.

    Raises:
        ConfigError: the file cannot be read or holds an unknown or unsuitable option; the message
            gives the file and, if known, the line or the key.
    """
    if is_endless(file, pipes=False):
        raise ConfigError(f"{file.name}: a device; expected a TOML file of options")
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{file.name}: {option_values.read_failure(error)}; expected a TOML file of options"
        ) from error
    return dict(_option_of_key(file, key, value, fields) for key, value in table.items())


def _option_of_key(file: Path, key: str, value: object, fields: Fields) -> tuple[str, object]:
    """Return the name and the converted value of an option from a key of a configuration file."""
    name = key.replace("-", "_")
    check_known(name, fields, f"{file.name}: ", key)
    try:
        value = converted_value(fields[name], value)
    except ValueError as error:
        raise ConfigError(f"{file.name}: {key}: got {value!r:.100}, expected {error}") from error
    if isinstance(value, Path):
        value = file.parent / value  # paths are relative to the file that names them
    elif isinstance(value, tuple):
        value = tuple(file.parent / part for part in value)
    return name, value


def check_known(name: str, fields: Fields, prefix: str = "", written: str | None = None) -> None:
    """Raise an error if no option has this name.

    Args:
        prefix: source of the name, such as the file, which begins the message.
        written: spelling of the name in that source.

    Raises:
        ConfigError: no option has this name; the message names a similar one, or all.
    """
    if name not in fields:
        similar = difflib.get_close_matches(name, fields, n=1)
        hint = (
            f"; did you mean '{similar[0]}'?" if similar else f"; options are {', '.join(fields)}"
        )
        raise ConfigError(f"{prefix}unknown option '{written or name}'{hint}")


def converted_value(option_field: "dataclasses.Field[Any]", value: Any) -> Any:
    """Return a value converted to the type of its option.

    Raises:
        ValueError: the value does not fit; the message says what is expected.
    """
    is_seed = option_field.name == "seed"
    return option_values.option_value(
        option_field.type,
        option_values.plain_value(option_field.name, value),
        accepts_list=option_field.name in option_values.LIST_OPTIONS,
        accepts_number=option_field.name in option_values.NUMBER_OR_WORD_OPTIONS,
        maximum=option_values.MAX_SEED if is_seed else option_values.MAX_WHOLE_NUMBER,
    )
