"""Folders import in one direction, each library has one door, and pages need no model."""

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import headbook

ROOT = Path(headbook.__file__).parent

# A folder imports from itself and from those before it; the first is the package's own.
FOLDERS = [
    "headbook",
    "analysis",
    "inputs",
    "text",
    "model",
    "attention",
    "metrics",
    "study",
    "passes",
    "ablation",
    "circuits",
    "results",
    "report",
    "comparison",
    "run",
    "charts",
    "pages",
    "site",
    "notebook",
    "cli",
]
# Modules of classes that notebooks show: their methods import the folder inside, when it is needed.
DISPLAYED = {
    "headbook.study.study", "headbook.comparison.comparison", "headbook.comparison.checkpoints"
}  # fmt: skip
MOST = 20  # files in a folder

ANYWHERE = {"numpy", "pandas", "torch"}
DOORS = {
    "altair": {
        "charts.comparison",
        "charts.axes",
        "charts.checkpoints",
        "charts.heads",
        "charts.layers",
        "charts.theme",
    },
    "conllu": {"inputs.conllu"},
    "datasets": {"inputs.huggingface"},
    "accelerate": {"model.devices"},
    "gguf": {"model.gguf"},
    "huggingface_hub": {"model.checkpoint", "model.load", "model.loaders.messages"},
    "jinja2": {"site.html", "site.page_writer"},
    "langcodes": {"languages"},
    "latex2mathml": {"site.markup"},
    "markdown": {"site.markup"},
    "markupsafe": {"site.html", "site.markup"},
    "nh3": {"site.markup"},
    "numba": {"analysis.numba_kernel"},
    "PIL": {"charts.images"},
    "peft": {"model.loaders.adapters"},
    "openpyxl": {"inputs.tables"},
    "pyarrow": {"inputs.records", "inputs.tables", "site.export", "study.storage"},
    "ray": {"run.workers"},
    "regex": {"text.annotate", "text.languages"},
    "rich": {"cli.actions", "progress"},
    "safetensors": {"model.weights", "study.storage"},
    "scipy": {
        "analysis.attention_divergence",
        "analysis.head_matching",
        "analysis.intervals",
        "analysis.paired",
        "report.similar_heads",
        "study.contrasts",
    },
    "spacy": {"text.annotate"},
    "tokenizers": {"model.gguf", "model.tokens.files"},
    "torchao": {"model.loaders.quantization"},
    "transformers": {
        "run.objects",
        "model.attention_hook",
        "model.gguf",
        "model.load",
        "model.loaders.adapters",
        "model.loaders.quantization",
        "model.output_projection",
        "model.weights",
    },
    "typer": {"cli.main", "cli.options", "cli.parameters"},
    "vl_convert": {"charts.figure"},
    "wordfreq": {"text.annotate", "text.languages"},
}

MODULES = {
    ".".join(("headbook", *file.relative_to(ROOT).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): file
    for file in sorted(ROOT.rglob("*.py"))
}


@cache
def imported(file: Path, *, types: bool) -> tuple[str, ...]:
    """Full names of what a file imports, inside functions, too.

    Args:
        types: whether what only type checkers import counts as well.
    """
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not types:
            node.body = []
    found = list[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found += (f"{node.module}.{alias.name}" for alias in node.names)
    return tuple(found)


def module_named(name: str) -> str:
    """The module that a name is, or is in; empty where it is not of Headbook."""
    while name and name not in MODULES:
        name = name.rpartition(".")[0]
    return name


def module_of(file: Path) -> str:
    """A module's name below the package: ``study.storage``."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def folder_of(module: str) -> str:
    """The folder of a module, with those that it lies in: ``pages.heads``.

    ``__main__`` belongs to the command line, whose second door it is.
    """
    if module == "headbook.__main__":
        return "cli"
    package = MODULES[module].name == "__init__.py"
    folder = module if package else module.rpartition(".")[0]
    return folder.removeprefix("headbook.")


def arrows(*, types: bool) -> Iterator[tuple[str, str]]:
    """Every import of one module of Headbook by another.

    All but those of the package's own file, which names its doors for type checkers, and those of
    outputs of notebooks by the classes that have them.
    """
    for module, file in MODULES.items():
        for name in imported(file, types=types) if module != "headbook" else ():
            other = module_named(name)
            if other and not (module in DISPLAYED and other.startswith("headbook.notebook")):
                yield module, other


def test_every_folder_has_a_place_in_the_order() -> None:
    assert {folder_of(module).partition(".")[0] for module in MODULES} == set(FOLDERS)


def test_no_import_goes_up() -> None:
    rank = {folder: place for place, folder in enumerate(FOLDERS)}
    up = [
        f"{module} imports {other}"
        for module, other in arrows(types=True)
        if rank[folder_of(other).partition(".")[0]] > rank[folder_of(module).partition(".")[0]]
    ]
    assert up == []


def test_neither_modules_nor_folders_inside_folders_go_round() -> None:
    for name in (str, folder_of):
        graph: dict[str, set[str]] = defaultdict(set)
        for module, other in arrows(types=False):
            if name(module) != name(other):
                graph[name(module)].add(name(other))
        TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("module", sorted(DISPLAYED))
def test_classes_that_notebooks_show_import_outputs_inside_methods(module: str) -> None:
    """So that a study is read and computed without any page."""
    inside, outside = 0, set[str]()
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            outside.add(node.module or "")
        inside += sum(
            isinstance(each, ast.ImportFrom) and (each.module or "").startswith("headbook.notebook")
            for each in ast.walk(node)
            if isinstance(node, ast.ClassDef)
        )
    assert inside
    assert not {name for name in outside if name.startswith("headbook.notebook")}


def test_no_folder_is_a_corridor() -> None:
    files = Counter(
        folder_of(module) for module, file in MODULES.items() if file.name != "__init__.py"
    )
    assert {folder: n for folder, n in files.items() if n > MOST} == {}
    assert sum(files.values()) > 5 * MOST


def test_every_library_has_its_door() -> None:
    for file in MODULES.values():
        names = imported(file, types=False)
        libraries = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names)
        for library in libraries - ANYWHERE - {"headbook"}:
            assert module_of(file) in DOORS.get(library, set()), f"{file.name} imports {library}"


def test_every_door_is_used() -> None:
    for library, doors in DOORS.items():
        for door in doors:
            names = imported(MODULES[f"headbook.{door}"], types=False)
            assert library in {name.partition(".")[0] for name in names}, f"{door}: {library}"


def test_tables_are_read_from_files_in_one_place() -> None:
    """Inputs have readers of their own; pandas reads stored studies only."""
    users = {
        module_of(file)
        for file in MODULES.values()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("read_")
        and ast.unparse(node.value) in {"pd", "pandas"}
    }
    assert users == {"study.storage"}


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.mark.slow
def test_pages_need_neither_torch_nor_transformers_nor_spacy() -> None:
    """What draws pages from a stored study imports none of them, nor does the command line."""
    code = (
        "import sys, headbook.study.study, headbook.charts, headbook.site.sites, headbook.cli.main;"
        "headbook.render;"
        "print({'torch', 'transformers', 'spacy', 'headbook.pages.head'} & set(sys.modules))"
    )
    assert run(code) == "{'headbook.pages.head'}"


def test_a_name_that_headbook_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'headbook' has no attribute 'colect'"):
        _ = headbook.colect


@pytest.mark.parametrize("name", [name for name in headbook.__all__ if "__" not in name])
def test_every_name_that_headbook_has_leads_somewhere(name: str) -> None:
    assert callable(getattr(headbook, name))


README, SENTENCES = "README.md", "sample_inputs/sentences.conllu"
SLOW = ("torch", "transformers", "spacy", "pandas", "altair", "scipy", "numba", "wordfreq")


@pytest.mark.soak
@pytest.mark.parametrize(
    "arguments",
    [
        ("-c", "import headbook"),
        ("-m", "headbook", "--help"),
        ("-m", "headbook", "build", "--help"),
        ("-m", "headbook", "metrics"),
        ("-m", "headbook", "build", "nothing.txt", "--out", "nowhere", "--dtype", "int3"),
        ("-m", "headbook", "build", "nothing.txt", "--outt", "nowhere"),
        ("-m", "headbook", "collect", "nothing.txt"),
        ("-m", "headbook", "build", "nothing.txt", "--out", "nowhere"),
        ("-m", "headbook", "build", README, "--out", "nowhere"),
        ("-m", "headbook", "collect", SENTENCES, "--out", "nowhere", "--metrics", "depth"),
        ("-m", "headbook", "collect", SENTENCES, "--out", "nowhere", "--notes", "nothing.md"),
        ("-m", "headbook", "build", SENTENCES, "--out", "nowhere", "--model", "./nothing"),
        ("-m", "headbook", "build", SENTENCES, "--out", "nowhere", "--model", "nothing.gguf"),
        ("-m", "headbook", "compare", "x.txt", "--out", "nowhere", "--models", "demo", "demo"),
        ("-m", "headbook", "compare", "nothing", "nobody", "--out", "nowhere"),
        ("-m", "headbook", "checkpoints", SENTENCES, "--model", "gpt2", "--out", "nowhere"),
        ("-m", "headbook", "checkpoints", "--studies", "tests", "--out", "nowhere"),
        ("-m", "headbook", "render", "nothing", "--out", "nowhere"),
        ("-m", "headbook", "merge", "nothing", "nobody", "--out", "nowhere"),
        ("-m", "headbook", "figures", "nothing", "--out", "nowhere"),
        ("-m", "headbook", "pack", "tests"),
    ],
)
def test_what_answers_at_once_loads_nothing_slow(arguments: tuple[str, ...]) -> None:
    """Help, lists, and faults in what is asked for; imports are counted, not timed."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], check=False, capture_output=True,
        text=True, cwd=ROOT.parents[1],
    )  # fmt: skip
    assert done.returncode in {0, 2}
    assert not (ROOT.parents[1] / "nowhere").exists()
    lines = (line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line)
    loaded = {name.partition(".")[0] for name in lines}
    assert "headbook" in loaded
    assert not loaded & {*SLOW}
