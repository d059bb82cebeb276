"""Refusal of values of options that do not fit, alone or beside other options."""

import difflib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headbook import option_values
from headbook.errors import ConfigError
from headbook.languages import code_problem
from headbook.option_values import DEVICES, MAX_WHOLE_NUMBER, TASKS, flag
from headbook.options import Options
from headbook.schema import Baseline

if TYPE_CHECKING:
    from headbook.config import Config

MIN_MEMORY = 1e6  # bytes
MAX_WORKERS_PER_CORE = 4  # processes beyond that would only wait for each other


def check_options(config: "Config") -> None:
    """Check all options, whose values have their types.

    Raises:
        ConfigError: a value does not fit; the message says what is expected.
    """
    for name in type(config).__dataclass_fields__:
        _check_letters(config, name)
    for name, choices in option_values.CHOICES.items():
        _check(config, getattr(config, name) in choices, name, f"one of {', '.join(choices)}")
    for name, minimum in option_values.MIN_VALUES.items():
        value = getattr(config, name)
        _check(config, value is None or value >= minimum, name, f"at least {minimum}")
    for name, (minimum, maximum) in option_values.RANGES.items():
        fits = minimum <= getattr(config, name) <= maximum
        _check(config, fits, name, f"{minimum} to {maximum}")
    for name in ("language", "target_language"):
        code = getattr(config, name)
        problem = "" if code is None else code_problem(code)
        _check(config, not problem, name, problem)
    for name in ("annotator", "target_annotator"):
        in_memory = getattr(config, name) in option_values.PIPELINES
        expected = "a name with --workers or several devices, which other processes can load"
        _check(config, not (in_memory and config.shared), name, expected)
    for check in (_check_sample, _check_controls, _check_tasks, _check_devices, _check_loading):
        check(config)
    option_values.check_base_url(config.base_url)
    in_range = config.margin is None or 0 < config.margin < float("inf")
    _check(config, in_range, "margin", "a number above 0")
    is_size = config.memory is None or (config.memory_bytes or 0) >= MIN_MEMORY
    _check(config, is_size, "memory", "a size from 1 MB on, such as '50MB' or '1.5GB'")
    pages = config.sentence_pages
    is_number = pages.isascii() and pages.isdecimal() and len(pages) <= len(str(MAX_WHOLE_NUMBER))
    fits = pages == "all" or (is_number and int(pages) <= MAX_WHOLE_NUMBER)
    _check(config, fits, "sentence_pages", "a number up to 1,000,000,000, or 'all'")


def _check(config: "Config", fits: object, name: str, expected: str) -> None:
    if not fits:
        raise ConfigError(f"{flag(name)}: got {getattr(config, name)!r}, expected {expected}")


def _check_letters(config: "Config", name: str) -> None:
    """Refuse text that UTF-8 cannot encode, and blank text except as the title."""
    for text in option_values.texts_in(getattr(config, name)):
        if not option_values.is_utf8(text):
            raise ConfigError(f"{flag(name)}: got {text!a}, expected text in UTF-8")
        has_text = bool(text.strip()) or name == "title"
        _check(config, has_text, name, "something that is not blank")


def _check_sample(config: "Config") -> None:
    """Refuse ``--sample`` together with ``--limit`` or ``--pack``."""
    for name in ("limit", "pack"):
        if config.sample is not None and getattr(config, name) is not None:
            raise ConfigError(
                f"--sample: got {config.sample} with {flag(name)}, expected one of the two"
            )


def _check_controls(config: "Config") -> None:
    """Refuse unknown controls, and an untrained model whose weights are not in memory."""
    controls = set(config.control.split(","))
    known = {"none"} if "none" in controls else {*Baseline}
    _check(config, controls <= known, "control", f"'none' or some of {', '.join(Baseline)}")
    packed = config.pack is not None or str(Baseline.NO_SEPARATORS) not in controls
    _check(config, packed, "control", "no_separators beside --pack only")
    in_memory = config.offload == "off" or str(Baseline.UNTRAINED) not in controls
    expected = "off beside --control untrained, whose weights are in memory"
    _check(config, in_memory, "offload", expected)


def _check_tasks(config: "Config") -> None:
    """Refuse unknown tasks, and tasks without the ablation of heads."""
    is_known = option_values.is_list_of_tasks(config.task)
    _check(config, is_known, "task", f"'auto', 'none' or some of {', '.join(TASKS)}")
    can_ablate = config.importance != "off" or not option_values.named_tasks(config.task)
    _check(config, can_ablate, "task", "auto or none beside --importance off")


def _check_devices(config: "Config") -> None:
    """Refuse unknown devices, too many processes, and a cluster without the engine ray."""
    are_devices = all(option_values.DEVICE_PATTERN.fullmatch(device) for device in config.devices)
    expected = f"one of {', '.join(DEVICES)}, cuda:0, or several with commas"
    _check(config, are_devices, "device", expected)
    most = MAX_WORKERS_PER_CORE * (os.cpu_count() or 1)
    fits = config.engine == "ray" or config.workers <= most
    _check(config, fits, "workers", f"at most {most}, four for each core, or --engine ray")
    has_engine = config.address is None or config.engine == "ray"
    _check(config, has_engine, "address", "also --engine ray")


def _check_loading(config: "Config") -> None:
    """Refuse options of loading that exclude each other."""
    is_quantized = config.quantization != "none"
    expected = "none beside --merge-adapter: sums with the adapter are not whole numbers"
    _check(config, not (config.merge_adapter and is_quantized), "quantization", expected)
    in_memory = config.offload == "off" or not (config.adapter or is_quantized)
    expected = "off beside --adapter and --quantization, whose weights are in memory"
    _check(config, in_memory, "offload", expected)


def check_option_names(options: Mapping[str, Any]) -> None:
    """Refuse options that Python functions do not take.

    Raises:
        ConfigError: an option is unknown, or belongs to the command line.
    """
    for name in options:
        if name not in Options.__annotations__:
            near = difflib.get_close_matches(name, Options.__annotations__, n=1)
            hint = f"; did you mean '{near[0]}'?" if near else "; help() of the function lists them"
            raise ConfigError(f"unknown option '{name}'{hint}")
