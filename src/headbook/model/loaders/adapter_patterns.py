"""Bounds on what an adapter's configuration may ask for: a stranger wrote it.

peft matches regular expressions of the configuration against the name of every module, and repeats
the decomposition of weights as often as the configuration says. Both may take years.
"""

import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from headbook.errors import ModelError

# The parsed form of a regular expression, which has no public name.
parser, codes = (import_module(f"re.{name}") for name in ("_parser", "_constants"))

# Values of the configuration that are regular expressions if they are texts, or have them as keys.
PATTERNS = ("target_modules", "exclude_modules", "layers_pattern", "modules_to_save")
PATTERN_TABLES = ("rank_pattern", "alpha_pattern")
MAX_LENGTH = 1000  # characters of a pattern
LONGEST_NAME = 100  # characters that an unbounded repeat is taken to match
MAX_MATCHES = 2 * 10**6  # to match a name: three unbounded repeats, none inside another
PISSA = re.compile(r"pissa_niter_(\d+)")
MAX_ITERATIONS = 100  # of the decomposition of each weight


def check_bounds(adapter: str, config: Any) -> None:
    """Refuse patterns and numbers of steps that may take years.

    Args:
        adapter: name of the adapter, for messages.
        config: configuration of the adapter, as peft reads it.

    Raises:
        ModelError: a value is too large, or no regular expression.
    """
    for option, pattern in _patterns(config):
        if fault := _fault(pattern):
            raise ModelError(f"adapter '{adapter}': {option} in its configuration: {fault}")
    weights = str(getattr(config, "init_lora_weights", ""))
    match = PISSA.fullmatch(weights)
    if match and (len(match[1]) > len(str(MAX_ITERATIONS)) or int(match[1]) > MAX_ITERATIONS):
        raise ModelError(
            f"adapter '{adapter}': init_lora_weights in its configuration: got {weights[:40]!r}, "
            f"expected at most {MAX_ITERATIONS} iterations"
        )


def _patterns(config: Any) -> Iterator[tuple[str, str]]:
    """Yield the regular expressions of a configuration with the names of their values."""
    for name in PATTERNS:
        value = getattr(config, name, None)
        for pattern in [value] if isinstance(value, str) else value or ():
            if isinstance(pattern, str):
                yield name, pattern
    for name in PATTERN_TABLES:
        table = getattr(config, name, None)
        for pattern in table if isinstance(table, Mapping) else ():
            yield name, str(pattern)


def _fault(pattern: str) -> str:
    """Return why a pattern is refused, or an empty text."""
    quoted = repr(pattern[:40])
    if len(pattern) > MAX_LENGTH:
        return f"got {len(pattern):,} characters, expected a pattern of at most {MAX_LENGTH:,}"
    try:
        number = _n_matches(parser.parse(pattern))
    except (re.error, RecursionError, OverflowError):
        return f"got {quoted}, expected a regular expression"
    if number <= MAX_MATCHES:
        return ""
    return f"got {quoted}, expected a pattern that matches a name in at most {MAX_MATCHES:,} ways"


def _n_matches(parsed: Any) -> int:
    """Return in how many ways an expression can match a name, `MAX_MATCHES` + 1 if in more."""
    number = 1
    for code, argument in parsed:
        if code in {codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT}:
            least, most, part = argument
            most = min(most, LONGEST_NAME)
            one = _n_matches(part)
            counts = max(most - least, 0) + 1
            # Two ways in each of many repeats are more than all limits.
            number *= counts * (one if one == 1 else one ** min(most, MAX_MATCHES.bit_length()))
        elif code is codes.BRANCH:
            number *= sum(map(_n_matches, argument[1]))
        else:
            parts = argument if isinstance(argument, tuple | list) else [argument]
            for part in parts:
                number *= _n_matches(part) if isinstance(part, parser.SubPattern) else 1
        number = min(number, MAX_MATCHES + 1)
    return number
