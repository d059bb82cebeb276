"""Metrics that code asks for by name: each name has a constant, and is a metric's."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import headbook
from headbook.metrics import all_metrics, ids

SOURCE = Path(headbook.__file__).parent
NAMES = {name: value for name, value in vars(ids).items() if name.isupper()}
# What stands before metrics in the order of folders, and so cannot ask for its constants.
BEFORE = ("schema.py", "attention/", "metrics/")
# What only looks like an id: the name of a chart, a kind of exemplar.
OTHER = {"charts/__init__.py": {"offset_profile"}, "study/sentence_data.py": {"variability"}}


@pytest.mark.parametrize("name", NAMES)
def test_each_constant_is_the_id_of_a_metric(name: str) -> None:
    assert NAMES[name] == name.lower()
    assert NAMES[name] in all_metrics()


def test_no_id_is_a_literal_outside_the_metrics() -> None:
    wrong = {}
    for file in sorted(SOURCE.rglob("*.py")):
        name = file.relative_to(SOURCE).as_posix()
        found = {*ids_in(file.read_text(encoding="utf-8"))} - OTHER.get(name, set())
        if found and not name.startswith(BEFORE):
            wrong[name] = sorted(found)
    assert wrong == {}


def ids_in(code: str) -> Iterator[str]:
    """Texts that are ids of metrics, whole."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant) and node.value in all_metrics():
            yield node.value


def test_an_id_is_seen() -> None:
    code = '"""pattern."""\nx = ["pattern", f"{y}-mine", 1]  # variability'
    assert [*ids_in(code)] == ["pattern"]


def test_every_constant_is_used() -> None:
    text = "".join(file.read_text(encoding="utf-8") for file in SOURCE.rglob("*.py"))
    assert not [name for name in NAMES if f"ids.{name}" not in text]
