"""Docstrings can be read alone: they begin with a verb or name a thing, and lean on no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import headbook

SOURCE = Path(headbook.__file__).parent
# Folders and modules whose docstrings are checked; "" are the modules beside the folders.
COVERED = (
    "", "ablation", "analysis", "attention", "charts", "cli", "comparison", "inputs", "metrics",
    "model", "pages", "passes", "report", "run", "site", "study", "text",
)  # fmt: skip
# Docstrings that may begin so, by module and name, with the reason.
EXCEPTIONS: dict[tuple[str, str], str] = {}
# Beginnings that refer to another docstring, or that describe a thing by a question.
LEANING = re.compile(
    r"(What|Whether|Which|Where|How|Why|The same|It|Its|They|Those|That|Them|Such|All of them"
    r"|None|Of|By|As|So|This one|One of them)\b"
)

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstrings(code: str) -> Iterator[tuple[str, Documented, str]]:
    """Yield the name, the node and the docstring of a module and of all that it defines."""

    def below(node: ast.AST, prefix: str) -> Iterator[tuple[str, Documented, str]]:
        for child in ast.iter_child_nodes(node):
            name = prefix
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{prefix}{child.name}"
                if text := ast.get_docstring(child):
                    yield name, child, text
                name += "."
            yield from below(child, name)

    tree = ast.parse(code)
    if text := ast.get_docstring(tree):
        yield "", tree, text
    yield from below(tree, "")


def leans(node: Documented, text: str) -> bool:
    """Whether a docstring cannot be read alone; "Whether" may begin that of truth values."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and text.startswith("Whether "):
        return node.returns is None or "bool" not in ast.unparse(node.returns)
    return LEANING.match(text) is not None


def modules(folder: str) -> list[Path]:
    """Return the modules of a covered folder; those beside the folders for an empty name."""
    found = sorted(SOURCE.glob("*.py") if not folder else (SOURCE / folder).rglob("*.py"))
    assert found, folder
    return found


@pytest.mark.parametrize("folder", COVERED, ids=lambda folder: folder or "top")
def test_docstrings_can_be_read_alone(folder: str) -> None:
    wrong = [
        f"{file.relative_to(SOURCE).as_posix()}: {name}: {text.splitlines()[0]}"
        for file in modules(folder)
        for name, node, text in docstrings(file.read_text(encoding="utf-8"))
        if leans(node, text) and (file.relative_to(SOURCE).as_posix(), name) not in EXCEPTIONS
        # Pages print the docstring of a metric's module below the metric's name.
        if not (folder == "metrics" and isinstance(node, ast.Module))
    ]
    assert not wrong


def test_every_exception_is_needed() -> None:
    for (file, name), reason in EXCEPTIONS.items():
        code = (SOURCE / file).read_text(encoding="utf-8")
        texts = [leans(node, text) for each, node, text in docstrings(code) if each == name]
        assert texts == [True], (file, name)
        assert reason


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ('"""What is in the file."""', True),
        ('"""Iterators of whole items."""', False),
        ('class A:\n    """The same for words."""', True),
        ('class A:\n    """Asymmetric sums."""', False),
        ('def f() -> int:\n    """None where nothing is known."""', True),
        ('def f() -> bool:\n    """Whether a file is whole."""', False),
        ('def f() -> "Tensor":\n    """Whether each word is seen."""', True),
        ('class A:\n    def f(self) -> str:\n        """Of all heads."""', True),
        (
            'class A:\n    async def f(self) -> str:\n        """Return the name of a head."""',
            False,
        ),
    ],
)
def test_docstrings_that_lean_on_others_are_found(code: str, *, wrong: bool) -> None:
    assert [leans(node, text) for _, node, text in docstrings(code)] == [wrong]
