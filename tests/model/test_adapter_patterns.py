"""Configurations of adapters that would take years are refused before peft reads weights."""

import re
from types import SimpleNamespace
from typing import Any

import pytest

from headbook.errors import ModelError
from headbook.model.loaders.adapter_patterns import MAX_ITERATIONS, check_bounds

USUAL = (
    "q_proj", r".*\.layers\.\d+\.(q|v)_proj", r"model\.(\w+)\.(?:.*)proj", r"^(?!.*vision).*(q|k)$",
    r"(layers\.)?\d{1,2}\.(q_proj|k_proj|v_proj|o_proj)", "all-linear",
)  # fmt: skip
ENDLESS = (
    "(a+)+$", "(?:a|b+)*c", ".*.*.*.*x", "(a{1,40}){1,40}", "(x+x+)+y", "a?" * 30 + "a" * 30,
    "(a|a)" * 30, "(?=(a+)+$)b", "(?>(?:a+)+)b", "a" * 2000, "(a",
)  # fmt: skip


def config(**values: Any) -> SimpleNamespace:
    return SimpleNamespace(target_modules={"q_proj"}, rank_pattern={}, **values)


@pytest.mark.parametrize("pattern", USUAL)
def test_usual_patterns_are_accepted(pattern: str) -> None:
    re.compile(pattern)
    check_bounds("a", config(exclude_modules=pattern, alpha_pattern={pattern: 4}))


@pytest.mark.parametrize("pattern", ENDLESS)
def test_patterns_without_a_bound_are_refused_wherever_they_stand(pattern: str) -> None:
    for values in ({"exclude_modules": pattern}, {"exclude_modules": [pattern]},
                   {"alpha_pattern": {pattern: 4}}, {"layers_pattern": pattern}):  # fmt: skip
        (option,) = values
        with pytest.raises(ModelError, match=option):
            check_bounds("a", config(**values))


def test_decompositions_are_repeated_at_most_a_hundred_times() -> None:
    check_bounds("a", config(init_lora_weights=f"pissa_niter_{MAX_ITERATIONS}"))
    check_bounds("a", config(init_lora_weights="pissa"))
    for number in (str(MAX_ITERATIONS + 1), "1000000", "9" * 5000):
        with pytest.raises(ModelError, match="init_lora_weights"):
            check_bounds("a", config(init_lora_weights=f"pissa_niter_{number}"))
