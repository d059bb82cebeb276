"""Modules import in one direction, each library has one door, and pages need no model."""

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import headbook

ROOT = Path(headbook.__file__).parent

# A module imports from its own row and from rows above it. A new module needs a place here.
ORDER = """
    __init__ errors terms memory memo
    listing workspace dates limits
    swap
    config resources folders progress threads
    inputs
    annotate controls
    families
    projection
    hook
    loading names randomness
    model probe
    arithmetic kernel intervals accumulators flips
    tokens rarity encode sequences texts batch passages
    anatomy calls chains frame loops plain compiled maps layerview scopes capture shortcut
    mixtureloop nearestloop
    learned ownattention mapcheck replacements intervention
    lens nearest vocabulary embedding tokenview
    judges
    flow cosines segments tokenpairs outputs
    trees phrases fits mixture patterns
    relations repeats wordtrees
    clouds metrics
    shapes anchors affinities typesums grouped positions sums contrasts packing finish
    reduce tokentable
    scores manifest facets shown wordmaps exemplars storage tables toptokens
    likeness study anonymous demonstration
    watch costs
    gaps selfcheck rounding foundtable affinitytable positiontable typetable headtable survey
    sampler pairs geometry retrace portrait trajectories flowpass context
    effects slopes
    size record run collection ablation
    results wording similar detail
    typeshares headtypes relationnames claims findings roles
    inference headrelations quantities published alignment alignmenttable
    images charts
    views
    latex markup contents export scripts publish handed parallel later scripttags press
    stylesheet site papers solid
    onefile
    pack
    console options endings places cli __main__
"""
GROUPS = ("text", "network", "measures", "summaries", "passes", "stored", "numbers", "writing")
PACKAGES = {"headbook", *(f"headbook.{group}" for group in GROUPS)}
ROW = {name: number for number, row in enumerate(ORDER.split("\n")) for name in row.split()}

ANYWHERE = {"numpy", "pandas", "torch"}
DOORS = {
    "altair": {"charts"},
    "conllu": {"inputs"},
    "huggingface_hub": {"model"},
    "jinja2": {"press", "markup"},
    "latex2mathml": {"markup"},
    "markdown": {"markup"},
    "markupsafe": {"markup", "site"},
    "nh3": {"markup"},
    "numba": {"kernel"},
    "PIL": {"images"},
    "pyarrow": {"inputs", "export"},
    "regex": {"annotate"},
    "rich": {"cli", "console"},
    "safetensors": {"storage"},
    "scipy": {"intervals", "contrasts", "similar"},
    "spacy": {"annotate"},
    "transformers": {"hook", "loading", "model"},
    "typer": {"cli", "options"},
    "vl_convert": {"charts"},
    "wordfreq": {"rarity"},
}


def imported(file: Path) -> Iterator[str]:
    """Full names of what a file imports when it runs, inside functions, too."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module in PACKAGES:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)


def module_of(file: Path) -> str:
    """The module or subpackage of Headbook that a file belongs to."""
    return place([part.removesuffix(".py") for part in file.relative_to(ROOT).parts])


def place(parts: Sequence[str]) -> str:
    """What the order knows: a module, of a folder that only groups them, too, or a subpackage."""
    return parts[1] if parts[0] in GROUPS and len(parts) > 1 else parts[0]


FILES = {file: set(imported(file)) for file in sorted(ROOT.rglob("*.py"))}


def graph() -> dict[str, set[str]]:
    """Which modules of Headbook each of them imports."""
    found: dict[str, set[str]] = defaultdict(set)
    for file, names in FILES.items():
        own = {place(name.split(".")[1:]) for name in names if name.startswith("headbook.")}
        found[module_of(file)] |= own - {module_of(file), "__version__"}
    return found


def test_imports_go_in_one_direction() -> None:
    for module, others in graph().items():
        for other in others:
            assert ROW[other] <= ROW[module], f"{module} imports {other}, which comes later"


def test_every_module_has_a_place_in_the_order() -> None:
    assert not set(graph()) - set(ROW), "add it to ORDER"


def test_imports_never_go_round() -> None:
    TopologicalSorter(graph()).prepare()


def test_every_library_has_its_door() -> None:
    for file, names in FILES.items():
        libraries = {name.split(".")[0] for name in names} - set(sys.stdlib_module_names)
        for library in libraries - ANYWHERE - {"headbook"}:
            assert module_of(file) in DOORS.get(library, set()), f"{file.name} imports {library}"


def test_tables_are_read_from_files_in_one_place() -> None:
    """Inputs have readers of their own; pandas reads stored studies only."""
    users = {
        module_of(file)
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("read_")
        and ast.unparse(node.value) in {"pd", "pandas"}
    }
    assert users == {"storage"}


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.mark.slow
def test_pages_need_neither_torch_nor_transformers_nor_spacy() -> None:
    """What draws pages from a stored study imports none of them, nor does the command line."""
    code = (
        "import sys, headbook.stored.study, headbook.charts, headbook.writing.site, headbook.cli;"
        "headbook.render;"
        "print({'torch', 'transformers', 'spacy', 'headbook.views.head'} & set(sys.modules))"
    )
    assert run(code) == "{'headbook.views.head'}"


def test_a_name_that_headbook_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'headbook' has no attribute 'colect'"):
        _ = headbook.colect


@pytest.mark.parametrize("name", [name for name in headbook.__all__ if "__" not in name])
def test_every_name_that_headbook_has_leads_somewhere(name: str) -> None:
    assert callable(getattr(headbook, name))


SLOW = ("torch", "transformers", "spacy", "pandas", "altair", "scipy", "numba", "wordfreq")


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
    ],
)
def test_what_answers_at_once_loads_nothing_slow(arguments: tuple[str, ...]) -> None:
    """Help, lists and faults in options; what is imported is counted, not timed."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], check=False, capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode in {0, 2}
    lines = (line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line)
    loaded = {name.partition(".")[0] for name in lines}
    assert "headbook" in loaded
    assert not loaded & {*SLOW}
