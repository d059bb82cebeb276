"""What documents say is true of the code."""

import ast
import dataclasses
import importlib
import inspect
import math
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
import option_tables
from code_blocks import (
    CONTRIBUTING,
    DOCUMENTS,
    README,
    ROOT,
    all_commands,
    blocks,
    name,
    prose,
    read,
)
from headbook import pages as views
from headbook.cli import main as cli
from headbook.config import SITE_QUERY_KEY_BYTES, Config
from headbook.metrics import all_metrics, base
from headbook.pages.parts.page import AnalysisPage, StackSection, TemplatePage, TemplateQuestion
from headbook.report.facts.functions import RULES
from headbook.report.tables import STUDY_TABLES
from sites import Site

TEXT = {file: read(file) for file in DOCUMENTS}
SOURCE = Path(headbook.__file__).parent
FOLDERS = sorted({
    file.relative_to(SOURCE).parts[0] for file in SOURCE.glob("*/*") if file.name != "__pycache__"
} - {"__pycache__"})  # fmt: skip
GUIDES = [
    file for file in DOCUMENTS
    if file.parent in {ROOT, ROOT / "docs"} and file.name != "CHANGELOG.md"
]  # fmt: skip
NOT_OURS = {  # what looks like a path of this project or of a site, and whose it is
    ".github/workflows/pages.yml": "the reader's",
    "/docs": "a choice on a page of GitHub",
    "headbook.toml": "the reader's",
    "tokenizer.json": "in the folder of a model",
    "model.safetensors.index.json": "in the folder of a model",
    "../x": "outside a folder, in attacks",
    "far_heads.py": "of a package that docs/extending.md describes",
    "section-limits.html": "made of a file of the reader's",
    "owner/name": "an id of the hub",
    "site/": "what the demo writes",
    "groups.csv": "of sites with groups",
    "minimal_pairs.csv": "of sites with pairs",
    "compared.csv": "of sites with controls",
    "figures.tex": "of a folder of figures",
    "figures.bib": "of a folder of figures",
    "mid/positional/content": "a label of a table",
    "out/all": "a label of a table",
}
SUFFIXES = r"md|py|toml|cff|yml|txt|html|csv|json|tex|bib"
PATH = re.compile(rf"`(\.?/?(?:[\w.-]+/)+[\w.-]*|[\w.-]+\.(?:{SUFFIXES})|/\w+)`")
DEFINED = re.compile(r"^ *(?:def |class )?(\w+)(?=[(:\[]| =)", re.MULTILINE)
HOST = re.compile(r"(?<![\w./:~])/(?:home|root|tmp|usr|opt|mnt|srv|work|Users)/")
REGISTRY = re.compile(r"--(?:extra-)?index-url|--proxy|pypi\.org/simple|/simple/|HF_ENDPOINT")


def dataclasses_of_views() -> list[type]:
    """Every dataclass that a module of views defines."""
    modules = [
        importlib.import_module(module.name)
        for module in pkgutil.walk_packages(views.__path__, f"{views.__name__}.")
    ]
    return [
        kind
        for module in modules
        for kind in vars(module).values()
        if inspect.isclass(kind)
        and dataclasses.is_dataclass(kind)
        and kind.__module__ == module.__name__
    ]


def test_documents_have_commands_and_code() -> None:
    assert len(all_commands()) > 30
    assert any(blocks(text, "python") for text in TEXT.values())


OURS = [c for c in all_commands() if c.rpartition(" | ")[2].startswith("headbook ")]


@pytest.mark.parametrize("command", OURS)
def test_a_command_of_a_document_is_one_that_headbook_takes(command: str) -> None:
    """Parsed as the program parses it, without running it."""
    program = get_command(cli.app)
    words = shlex.split(command.rpartition(" | ")[2])[1:]
    known = typing.cast("Any", program).commands[words[0]]
    context = known.make_context(words[0], words[1:])
    given = {name: value for name, value in context.params.items() if value is not None}
    file = given.pop("config", None)
    fields = {field.name for field in dataclasses.fields(Config)}
    given = {k: v for k, v in given.items() if k in fields and v is not False}
    if file is None:
        Config.of(**given)


def test_the_readme_begins_with_a_picture_two_commands_and_three_examples() -> None:
    """In this order, before anything else has a heading."""
    text = read(README)
    headings = ("Two commands", "Three examples", "Large corpora", "Documentation")
    parts = ["<picture>", *(f"## {heading}" for heading in headings)]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert text.count("\nmake ") == 2
    examples = text[places[2] : places[3]]
    assert examples.count("\nheadbook ") == 3
    assert len(text.splitlines()) < 100


def test_the_readme_leads_to_every_document() -> None:
    links = set(re.findall(r"\]\(([\w/.-]+\.md)\)", read(README)))
    missing = {name(file) for file in GUIDES} - links
    assert missing == {"README.md"}


def test_the_list_of_metrics_is_that_of_the_program() -> None:
    """Section by section."""
    text = read(ROOT / "docs" / "metrics.md")
    for section in {metric.section for metric in all_metrics().values()}:
        listed = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
        rows = re.findall(r"^\| `(\w+)` \| \w", listed, re.MULTILINE)
        assert sorted(rows) == sorted(m.id for m in all_metrics().values() if m.section == section)


def test_commands_and_exit_codes_are_those_of_the_program() -> None:
    text = read(ROOT / "docs" / "commands.md")
    program = typing.cast("Any", get_command(cli.app))
    assert set(re.findall(r"^\| `headbook (\w+)` \|", text, re.MULTILINE)) == {*program.commands}
    codes = [int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)]
    assert codes == sorted([cli.EXIT_DONE, cli.EXIT_BUG, cli.EXIT_WRONG_USE, cli.EXIT_INCOMPLETE])


def test_defaults_are_those_of_the_program() -> None:
    text = read(ROOT / "docs" / "large-corpora.md")
    rows = dict(re.findall(r"^\| `--([\w-]+)` \| .* \| (.+) \|$", text, re.MULTILINE))
    defaults = {name.replace("-", "_"): value for name, value in rows.items() if "," not in value}
    assert len(defaults) > 5
    assert defaults.pop("query_key_sentences").startswith("as many as fit into 5 MB")
    assert Config().query_key_sentences is None
    assert SITE_QUERY_KEY_BYTES == 5_000_000
    assert defaults == {name: str(getattr(Config(), name)) for name in defaults}


def test_tables_of_a_study_are_those_that_it_has() -> None:
    named = set(re.findall(r"`study\.(\w+)`", read(ROOT / "docs" / "python.md")))
    assert len(named) > 10
    assert all(hasattr(headbook.Study, each) for each in named)
    assert named >= {table for table in STUDY_TABLES if hasattr(headbook.Study, table)}


def test_functions_and_thresholds_are_those_of_the_rules() -> None:
    text = read(ROOT / "docs" / "metrics.md").partition("## Functions of heads")[2]
    rows = re.findall(r"^\| `(\w+)` \| .* \|(.*)\|$", text.partition("\n## ")[0], re.MULTILINE)
    assert [(name, cell.strip()) for name, cell in rows] == [
        (rule.id, "" if math.isnan(rule.threshold.value) else f"{rule.threshold.value:g}")
        for rule in RULES
    ]


@pytest.mark.parametrize("file", DOCUMENTS, ids=name)
def test_links_between_documents_lead_somewhere(file: Path) -> None:
    text = prose(read(file))
    found = re.findall(r"\]\(([^)\s]+)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text)
    for link in found:
        place, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = file.parent / place if place else file
        assert target.exists(), link
        assert target.resolve().is_relative_to(ROOT), link
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), link


@pytest.mark.parametrize("file", GUIDES, ids=name)
def test_paths_that_documents_name_are_in_the_project_or_in_a_site(
    file: Path, small_site: Site
) -> None:
    site = small_site.folder
    places = (ROOT, ROOT / "tests", SOURCE.parent, SOURCE, file.parent, site, site / "data")
    for path in PATH.findall(prose(read(file))):
        there = any((p / path).exists() or (p / f"{path}.py").exists() for p in places)
        assert there or path in NOT_OURS, path


def test_what_is_not_ours_is_named_somewhere() -> None:
    named = {path for file in GUIDES for path in PATH.findall(prose(read(file)))}
    assert {*NOT_OURS} <= named
    assert len(named) > 2 * len(NOT_OURS)


@pytest.mark.parametrize("file", DOCUMENTS, ids=name)
def test_documents_name_no_place_of_a_machine_and_no_address_of_a_registry(file: Path) -> None:
    assert not HOST.findall(read(file))
    assert not REGISTRY.findall(read(file))


def test_the_map_has_every_folder_of_the_code_and_no_other() -> None:
    rows = re.findall(r"^\| `src/headbook/(\w+)` \|", read(CONTRIBUTING), re.MULTILINE)
    assert sorted(rows) == FOLDERS


def test_the_picture_of_the_flow_has_every_folder() -> None:
    """All but the command line and the annotator's data, through which nothing flows."""
    (_, picture), *_ = blocks(read(CONTRIBUTING), "text")
    assert {*FOLDERS} - {*re.findall(r"\w+", picture)} == {"cli", "data"}


def test_functions_that_documents_link_are_in_their_files() -> None:
    """``[`Class.method`](file.py)``; those of the way of a number, and those to change."""
    links = [
        (file.parent / path, wanted)
        for file in DOCUMENTS
        for wanted, path in re.findall(r"\[`([\w.]+)`\]\(([\w/.-]+\.py)\)", read(file))
    ]
    assert len(links) > 12
    for path, wanted in links:
        assert wanted in defined(ast.parse(path.read_text(encoding="utf-8")).body), wanted


def defined(body: list[ast.stmt], of: str = "") -> Iterator[str]:
    """Functions, classes and constants of a module, and ``Class.method``."""
    for node in body:
        match node:
            case ast.FunctionDef():
                yield of + node.name
            case ast.ClassDef():
                yield of + node.name
                yield from defined(node.body, f"{node.name}.")
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield of + name


def test_names_that_contributing_uses_exist() -> None:
    """A name of code in running text is defined somewhere, or is a file, a folder, a program."""
    text = prose(read(CONTRIBUTING))
    spans = set(re.findall(r"`([A-Za-z_][\w.]*)`", text))
    code = [*SOURCE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    known = {name for file in code for name in DEFINED.findall(read(file))}
    known |= {name for file in code for name in (file.name, file.stem)}
    known |= {file.name for file in ROOT.iterdir()} | {
        Path(path).name for path in PATH.findall(text)
    }
    known |= {"sh", "python", "tsc", "window.headbook"}  # of blocks, of programs and of scripts
    wanted = {span for span in spans if {span, span.rpartition(".")[2]}.isdisjoint(known)}
    assert len(spans) > 30
    assert wanted == set()


def test_modules_that_documents_name_exist() -> None:
    """`headbook.x.y` is a module, or a name in one; in types of scripts, too."""
    text = "".join((*TEXT.values(), read(ROOT / "templates" / "headbook.d.ts")))
    dotted = set(re.findall(r"`(headbook(?:\.\w+)+)`", text)) - {"headbook.toml"}
    assert len(dotted) > 5
    for each in dotted:
        assert found(each), each


def found(name: str) -> bool:
    """Whether a dotted name is a module or something in one."""
    home, _, last = name.rpartition(".")
    try:
        importlib.import_module(name)
    except ImportError:
        return bool(home) and hasattr(importlib.import_module(home), last)
    return True


def kinds_of_metrics() -> list[str]:
    """The classes that metrics are made of: those that no other builds on."""
    classes = [kind for kind in vars(base).values() if inspect.isclass(kind)]
    made = {type(metric).__name__ for metric in all_metrics().values()}
    ends = {c.__name__ for c in classes if issubclass(c, base.Metric) and not c.__subclasses__()}
    return sorted(made | ends)


def test_contributing_has_a_row_for_every_kind_of_metric_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+Metric)` \|", read(CONTRIBUTING), re.MULTILINE)
    assert sorted(rows) == kinds_of_metrics()
    assert len(rows) > 1


def anchors(text: str) -> set[str]:
    """The addresses of a document's headings, as forges make them."""
    headings = re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_option_of_every_command_has_help() -> None:
    program = typing.cast("Any", get_command(cli.app))
    for command in program.commands.values():
        for parameter in command.params:
            assert parameter.help, f"{command.name} {parameter.name}"
    taken = {p.name for p in program.commands["build"].params}
    assert {field.name for field in dataclasses.fields(Config)} <= taken


def test_the_list_of_options_is_that_of_the_program() -> None:
    """As ``docs/option_tables.py`` writes it; each option of a command stands in it once."""
    page = read(option_tables.PAGE)
    assert page == option_tables.with_tables(page)
    program = typing.cast("Any", get_command(cli.app))
    listed = re.findall(r"^\| (?:`headbook \w+` \| )?`--([\w-]+)`", page, re.MULTILINE)
    wanted = {p.opts[0].removeprefix("--") for p in program.commands["build"].params[1:]}
    assert wanted - {"config", "help", "help-all"} <= {*listed}
    assert {"models", "only", "single-file", "revisions"} <= {*listed}


def test_options_that_documents_name_exist() -> None:
    """In running text, too; those of other programs stand only in commands."""
    program = typing.cast("Any", get_command(cli.app))
    known = {each for c in program.commands.values() for p in c.params for each in p.opts}
    known |= {"--help", "--version"}
    for file in GUIDES:
        options = set(re.findall(r"`(?:[^`\n]* )?(--[a-z-]+)", prose(read(file))))
        assert options <= known, file.name


def test_there_are_pages_to_explain() -> None:
    assert sum(issubclass(kind, TemplatePage) for kind in dataclasses_of_views()) >= 9


@pytest.mark.parametrize("kind", dataclasses_of_views(), ids=lambda kind: str(kind.__name__))
def test_every_field_of_a_page_is_explained(kind: type[Any]) -> None:
    """By name under ``Attributes:``, or, in small records, by a docstring that needs no list."""
    text = kind.__doc__ or ""
    assert text
    assert not text.startswith(f"{kind.__name__}("), "made by dataclass itself"
    inherited = {
        field.name
        for base in (TemplatePage, AnalysisPage, TemplateQuestion, StackSection)
        if base in kind.__mro__[1:]
        for field in dataclasses.fields(base)
    }  # fmt: skip
    own = {field.name for field in dataclasses.fields(kind)} - inherited
    if "Attributes:" in text or len(own) > 5 or issubclass(kind, TemplatePage):
        missing = {name for name in own if not re.search(rf"\b{name}\b", text)}
        assert missing == set()


def test_every_error_has_its_place_in_the_tree_of_the_docstring() -> None:
    from headbook import errors

    found = [kind for kind in vars(errors).values() if inspect.isclass(kind)]
    kinds = [kind for kind in found if kind.__module__ == errors.__name__]
    assert len(kinds) > 4
    for kind in kinds:
        assert kind.__name__ in (errors.__doc__ or "")


def test_the_changelog_groups_what_is_new() -> None:
    """In the order of Keep a Changelog, each group with an entry at once below its heading."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    new = text.partition("\n## Unreleased\n")[2].partition("\n## ")[0]
    groups = re.findall(r"^### (\w+)$", new, re.MULTILINE)
    assert groups == re.findall(r"^### (Added|Changed|Fixed|Removed)\n\n- ", new, re.MULTILINE)
    assert groups
    assert groups == sorted(set(groups))
    assert not re.search(r"^[^-#\s]", new, re.MULTILINE), "an entry outside of a list"
