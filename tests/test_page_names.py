"""A page's template, its folder in the code and its address say the same word."""

import importlib
import inspect
import pkgutil

import pytest

from headbook import pages
from headbook.pages.parts.page import Page
from headbook.resources import folder
from sites import Site

NAMED = {"missing": "404"}  # the address that servers ask for; no module can have it as a name


def page_kinds() -> dict[str, type[Page]]:
    """Every kind of page by its folder."""
    found = {}
    for module in pkgutil.walk_packages(pages.__path__, f"{pages.__name__}."):
        for kind in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(kind) and issubclass(kind, Page) and kind is not Page:
                found[kind.__module__] = kind
    return {name.split(".")[-2]: kind for name, kind in found.items()}


KINDS = page_kinds()


def test_each_folder_has_one_kind_of_page() -> None:
    assert len(KINDS) > 15
    assert all(kind.__module__ == f"headbook.pages.{own}.page" for own, kind in KINDS.items())


@pytest.mark.parametrize("own", sorted(KINDS))
def test_a_template_is_named_like_the_folder_of_its_page(own: str) -> None:
    assert KINDS[own].template == f"{NAMED.get(own, own)}.html"
    assert (folder("templates") / KINDS[own].template).is_file()


def test_addresses_are_named_like_the_folders_of_their_pages(small_site: Site) -> None:
    """``metrics/index.html`` is that of the list, ``metrics/sink_share.html`` of one metric."""
    words = {NAMED.get(own, own) for own in KINDS}
    for page in small_site.pages:
        parts = page.relative_to(small_site.folder).with_suffix("").parts
        if parts[0] in {"figures", "data"}:
            continue
        word = parts[0] if len(parts) == 1 or parts[-1] == "index" else parts[0].removesuffix("s")
        assert word in words, page
