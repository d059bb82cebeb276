"""What documents say is true of the code."""

import dataclasses
import importlib
import inspect
import pkgutil
import re
import shlex
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import headbook
from headbook import cli, views
from headbook.config import Config
from headbook.metrics import all_metrics, base
from headbook.views.page import Page

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    file for file in ROOT.rglob("*.md")
    if not {".venv", "node_modules", "dist", "build", "site"} & {*file.relative_to(ROOT).parts}
)  # fmt: skip
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SOURCE = Path(headbook.__file__).parent
FOLDERS = sorted({
    file.relative_to(SOURCE).parts[0] for file in SOURCE.glob("*/*") if file.name != "__pycache__"
} - {"__pycache__"})  # fmt: skip
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(text: str, *languages: str) -> list[str]:
    """Code blocks in some languages."""
    return [code for language, code in BLOCK.findall(text) if language in languages]


def commands(text: str) -> Iterator[list[str]]:
    """The ``headbook`` commands of a document, as arguments."""
    for block in blocks(text, "sh", "bash", "shell", "console", "text", ""):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if "|" in words:
                words = words[words.index("|") + 1 :]
            if words[:1] == ["headbook"]:
                yield words[1:]


def dataclasses_of_views() -> list[type]:
    """Every dataclass that a module of views defines."""
    modules = [
        importlib.import_module(f"headbook.views.{module.name}")
        for module in pkgutil.iter_modules(views.__path__)
    ]
    return [
        kind
        for module in modules
        for kind in vars(module).values()
        if inspect.isclass(kind)
        and dataclasses.is_dataclass(kind)
        and kind.__module__ == module.__name__
    ]


def test_the_readme_has_commands_and_code() -> None:
    assert list(commands(README))
    assert blocks(README, "python")


@pytest.mark.parametrize("words", list(commands(README)), ids=" ".join)
def test_a_command_of_the_readme_is_one_that_headbook_takes(words: list[str]) -> None:
    """Parsed as the program parses it, without running it."""
    program = get_command(cli.app)
    if set(words) & {"-h", "--help", "--version"}:
        return
    command = typing.cast("Any", program).commands[words[0]]
    context = command.make_context(words[0], words[1:])
    given = {name: value for name, value in context.params.items() if value is not None}
    file = given.pop("config", None)
    fields = {field.name for field in dataclasses.fields(Config)}
    given = {k: v for k, v in given.items() if k in fields and v is not False}
    if file is None:
        Config.of(**given)


@pytest.mark.parametrize("metric", all_metrics())
def test_the_readme_lists_every_metric(metric: str) -> None:
    assert f"`{metric}`" in README


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(file: Path) -> None:
    text = BLOCK.sub("", file.read_text(encoding="utf-8"))
    for link in re.findall(r"\]\(([^)\s]+)", text):
        place, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = file.parent / place if place else file
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), link


@pytest.mark.parametrize("folder", FOLDERS)
def test_documents_name_every_folder_of_the_code(folder: str) -> None:
    assert f"| `src/headbook/{folder}` |" in CONTRIBUTING
    assert re.search(rf"`headbook[./]{folder}`", README.partition("## In the code")[2])


def test_modules_and_folders_that_documents_name_exist() -> None:
    """`headbook.x.y` is a module, or a name in one; `src/headbook/x` and its like are paths."""
    dotted = set(re.findall(r"`(headbook(?:\.\w+)+)`", README + CONTRIBUTING))
    paths = set(
        re.findall(r"`(src/[\w/]+|headbook/[\w/]+|templates|tests|benchmarks)`", CONTRIBUTING)
    )
    assert len(dotted) > len(FOLDERS)
    assert len(paths) > len(FOLDERS)
    for name in dotted:
        assert found(name), name
    for path in paths:
        assert (ROOT / path).exists(), path
    for short in re.findall(r"`(\w+/\w+(?:\.py)?)`", CONTRIBUTING):
        places = (ROOT / short, SOURCE / short, SOURCE / f"{short}.py")
        assert any(place.exists() for place in places), short


def found(name: str) -> bool:
    """Whether a dotted name is a module or something in one."""
    home, _, last = name.rpartition(".")
    try:
        importlib.import_module(name)
    except ImportError:
        return bool(home) and hasattr(importlib.import_module(home), last)
    return True


def kinds_of_metrics() -> list[str]:
    """The classes that metrics are made of: those that no other builds on, and `HeadMetric`."""
    classes = [kind for kind in vars(base).values() if inspect.isclass(kind)]
    made = {type(metric).__name__ for metric in all_metrics().values()}
    ends = {c.__name__ for c in classes if issubclass(c, base.Metric) and not c.__subclasses__()}
    return sorted(made | ends)


def test_contributing_has_a_row_for_every_kind_of_metric_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+Metric)` \|", CONTRIBUTING, re.MULTILINE)
    assert sorted(rows) == kinds_of_metrics()
    assert len(rows) > 1


def anchors(text: str) -> set[str]:
    """The addresses of a document's headings, as forges make them."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("text", [README, headbook.__doc__], ids=["README", "package"])
def test_python_in_documents_compiles(text: str) -> None:
    found = blocks(text, "python")
    assert found
    for code in found:
        compile(code, "example", "exec")


def test_names_that_examples_use_exist() -> None:
    for text in (README, headbook.__doc__ or ""):
        for code in blocks(text, "python"):
            for name in re.findall(r"\bheadbook\.(\w+)\(", code):
                assert name in headbook.__all__


def test_every_option_of_every_command_has_help() -> None:
    program = typing.cast("Any", get_command(cli.app))
    for command in program.commands.values():
        for parameter in command.params:
            assert parameter.help, f"{command.name} {parameter.name}"
    taken = {p.name for p in program.commands["build"].params}
    assert {field.name for field in dataclasses.fields(Config)} <= taken


def test_options_that_documents_name_exist() -> None:
    program = typing.cast("Any", get_command(cli.app))
    known = {name for each in program.commands.values() for p in each.params for name in p.opts}
    known |= {"--help", "--version"}
    for words in commands(README):
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert options <= known


def test_there_are_pages_to_explain() -> None:
    assert sum(issubclass(kind, Page) for kind in dataclasses_of_views()) >= 9


@pytest.mark.parametrize("kind", dataclasses_of_views(), ids=lambda kind: str(kind.__name__))
def test_every_field_of_a_page_is_explained(kind: type[Any]) -> None:
    """By name under ``Attributes:``, or, in small records, by a docstring that needs no list."""
    text = kind.__doc__ or ""
    assert text
    assert not text.startswith(f"{kind.__name__}("), "made by dataclass itself"
    inherited = {field.name for field in dataclasses.fields(Page)} if issubclass(kind, Page) else ()
    own = {field.name for field in dataclasses.fields(kind)} - set(inherited)
    if "Attributes:" in text or len(own) > 5 or issubclass(kind, Page):
        missing = {name for name in own if not re.search(rf"\b{name}\b", text)}
        assert missing == set()


def test_every_error_has_its_place_in_the_tree_of_the_docstring() -> None:
    from headbook import errors

    kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind)]
    assert len(kinds) > 4
    for kind in kinds:
        assert kind.__name__ in (errors.__doc__ or "")


def test_the_changelog_has_a_place_for_what_is_new() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## Unreleased\n\n- ", text, re.MULTILINE)
