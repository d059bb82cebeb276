"""Modules belong to layers, and a layer imports from those before it only.

The layers are folders that are still spread over others: `HOME` says where a folder belongs, and
`ALONE` which modules belong elsewhere than their folder does.
"""

import ast
from pathlib import Path

import pytest

import headbook

ROOT = Path(headbook.__file__).parent
LAYERS = [
    "-",
    "analysis",
    "inputs",
    "text",
    "model",
    "attention",
    "metrics",
    "study",
    "passes",
    "report",
    "collection",
    "charts",
    "pages",
    "site",
    "cli",
]
HOME = {
    "measures": "attention",
    "network": "model",
    "summaries": "study",
    "stored": "study",
    "numbers": "report",
    "findings": "report",
    "views": "pages",
    "writing": "site",
}
ALONE = """
    cli: __main__
    passes: ablation network.learned network.mapcheck network.ownattention network.rounding
      network.selfcheck
    collection: collection passes.costs passes.gaps passes.record passes.run writing.size
    cli: cli console endings network.memory options places
    analysis: measures.arithmetic measures.clouds measures.fits measures.kernel measures.mixture
      measures.mixtureloop measures.patterns measures.phrases measures.trees
      summaries.accumulators summaries.flips summaries.intervals
    -: measures.threads network.randomness
    text: network.controls
    model: text.encode text.passages text.sequences
    study: text.facets
    site: views.single views.weights
    report: wording
    charts: writing.images
"""


def alone() -> dict[str, str]:
    """The layer of each module in `ALONE`."""
    found, layer = dict[str, str](), ""
    for word in ALONE.split():
        if word.endswith(":"):
            layer = word[:-1]
        else:
            found[word] = layer
    return found


LAYER_OF = alone()
MODULES = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
    for file in sorted(ROOT.rglob("*.py"))
}


def layer_of(module: str) -> str:
    """The layer that a module belongs to; ``-`` is the package's own folder, below all."""
    folder, _, _ = module.partition(".")
    inside = module != folder or MODULES[module].name == "__init__.py"
    own = HOME.get(folder, folder) if inside and folder != "__init__" else "-"
    return LAYER_OF.get(module, own)


def imported(file: Path) -> set[str]:
    """The modules of Headbook that a file imports, inside functions and for types, too."""
    names = set[str]()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    ours = (name.removeprefix("headbook.") for name in names if name.startswith("headbook."))
    return {module for name in ours if (module := module_of(name))}


def module_of(name: str) -> str:
    """The module that a name is, or is in; empty for a name of the package itself."""
    while name and name not in MODULES:
        name = name.rpartition(".")[0]
    return name


def test_every_module_that_stands_alone_exists() -> None:
    assert set(LAYER_OF) <= set(MODULES)


@pytest.mark.parametrize("module", sorted(set(MODULES) - {"__init__"}))
def test_a_module_imports_from_its_layer_and_those_before_it(module: str) -> None:
    """All but the package's own file, which names its doors for type checkers."""
    own = LAYERS.index(layer_of(module))
    later = [m for m in imported(MODULES[module]) if LAYERS.index(layer_of(m)) > own]
    assert later == []
