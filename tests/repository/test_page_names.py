"""A page's module, its template and its address say the same word."""

import importlib
import inspect
import pkgutil
from collections import defaultdict
from pathlib import PurePosixPath

import pytest

from headbook import pages
from headbook.pages.parts.page import TemplatePage
from headbook.resources import folder
from sites import Site

# Modules that make further kinds of pages: lists, the page that servers ask for, and the author's.
FURTHER = {
    "about": {"404.html", "section.html"},
    "comparison/sentencepair": {"comparison/sentencepairs.html"},
}


MODULES = [*pkgutil.walk_packages(pages.__path__, f"{pages.__name__}.")]


def page_templates() -> dict[str, set[str]]:
    """Templates of the kinds of pages that each module defines, by its path in the folder."""
    found: dict[str, set[str]] = defaultdict(set)
    for module in MODULES:
        path = module.name.removeprefix(f"{pages.__name__}.").replace(".", "/")
        for kind in vars(importlib.import_module(module.name)).values():
            if (
                inspect.isclass(kind)
                and issubclass(kind, TemplatePage)
                and kind.__module__ == module.name
            ):
                found[path].add(getattr(kind, "template", ""))
    return {path: names - {""} for path, names in found.items() if names - {""}}


TEMPLATES = page_templates()
BLOCKS = TEMPLATES.pop("parts/blocks")  # of all pages that are functions


def test_there_are_pages() -> None:
    assert {"page.html"} == BLOCKS
    assert len(TEMPLATES) > 10
    assert FURTHER.keys() <= TEMPLATES.keys()


@pytest.mark.parametrize("path", sorted(TEMPLATES))
def test_a_template_is_named_like_the_module_of_its_page(path: str) -> None:
    # The page about a site is of blocks; its module has those for servers and of the author.
    expected = FURTHER.get(path, set()) | ({f"{path}.html"} if path != "about" else set())
    assert TEMPLATES[path] == expected
    assert all((folder("templates") / name).is_file() for name in expected)


def test_addresses_are_named_like_the_templates_of_their_pages(small_site: Site) -> None:
    """``metrics/index.html`` is that of the list, ``metrics/sink_share.html`` of one metric."""
    words = {PurePosixPath(name).stem for names in TEMPLATES.values() for name in names}
    words |= {module.name.rpartition(".")[2] for module in MODULES}
    for page in small_site.pages:
        parts = page.relative_to(small_site.folder).with_suffix("").parts
        if parts[0] in {"figures", "data"}:
            continue
        word = parts[0] if len(parts) == 1 or parts[-1] == "index" else parts[0].removesuffix("s")
        assert word in words, page
