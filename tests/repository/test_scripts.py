"""The scripts of the site find what they need: the order in which pages load them."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from headbook import pages
from headbook.pages.parts.page import TemplatePage
from headbook.resources import folder
from headbook.site import sites  # noqa: F401 - imports every page
from headbook.site.assets import SCRIPTS_ON_DEMAND

ASSETS = folder("templates") / "assets"
SOURCES = Path(pages.__file__).parent
OURS = {file.stem for file in ASSETS.glob("*.js")}
SHARED = r"window\.headbook"
TAKEN = re.compile(rf"const \{{([^}}]*)\}} =\s+{SHARED};")  # const { all, svg: draw } = ...
NAMED = re.compile(rf"{SHARED}\.(\w+)")
GIVEN = re.compile(rf"{SHARED}\.(\w+) =[^=]")
TOGETHER = re.compile(rf"Object\.assign\({SHARED}, \{{([^}}]*)\}}")


def _kinds(kind: type[TemplatePage]) -> Iterator[type[TemplatePage]]:
    """Yield the classes of pages below a class."""
    for each in kind.__subclasses__():
        yield each
        yield from _kinds(each)


PAGES = [*_kinds(TemplatePage)]


@cache
def text_of(script: str) -> str:
    return (ASSETS / f"{script}.js").read_text(encoding="utf-8")


def names_in(listed: str) -> set[str]:
    return {part.split(":")[0].strip() for part in listed.split(",") if part.strip()}


def given(script: str) -> set[str]:
    """What a script puts where others find it."""
    if script not in OURS:
        return set()
    together = (names_in(listed) for listed in TOGETHER.findall(text_of(script)))
    return {*GIVEN.findall(text_of(script))}.union(*together)


def needed(script: str) -> set[str]:
    """What it takes from others."""
    if script not in OURS:
        return set()
    taken = (names_in(listed) for listed in TAKEN.findall(text_of(script)))
    return {*NAMED.findall(text_of(script))}.union(*taken) - given(script)


def missing(script: str, before: Iterable[str]) -> list[str]:
    """What neither the scripts before it have put there nor those for which it asks."""
    asked, lacks = [*before, script], []
    for text in SCRIPTS_ON_DEMAND.get(script, ()):
        lacks += missing(text, asked)
        asked.append(text)
    there = set().union(*map(given, asked))
    return [*lacks, *(f"{script}: {name}" for name in sorted(needed(script) - there))]


def of_functions(argument: str) -> set[str]:
    """Names that functions give to the pages of blocks that they return."""
    texts = (file.read_text(encoding="utf-8") for file in SOURCES.rglob("*.py"))
    given_lines = (line for text in texts for line in re.findall(rf"\b{argument}=(.+)", text))
    return {name for line in given_lines for name in re.findall(r'"(\w+)"', line)}


def test_every_script_is_loaded_by_some_page() -> None:
    loaded = {"site"}.union(*(kind.scripts for kind in PAGES), *SCRIPTS_ON_DEMAND.values())
    loaded |= of_functions("scripts")
    assert loaded == OURS


def test_every_style_sheet_is_loaded_by_some_page() -> None:
    loaded = {"site"}.union(*(kind.styles for kind in PAGES)) | of_functions("styles")
    # Each site writes a style sheet of its own with the maps of its heads.
    assert loaded - {"maps"} == {file.stem for file in ASSETS.glob("*.css")}


@pytest.mark.parametrize("kind", PAGES)
def test_scripts_come_after_those_that_they_need(kind: type[TemplatePage]) -> None:
    scripts = ("site", *kind.scripts)
    lacks = [text for n, script in enumerate(scripts) for text in missing(script, scripts[:n])]
    assert not lacks


def test_scripts_ask_for_what_the_list_says() -> None:
    asked = re.compile(r"\buse\((?:\"(\w+)\"|name)\)")
    for script in OURS:
        found = {name for name in asked.findall(text_of(script)) if name}
        assert found <= {*SCRIPTS_ON_DEMAND.get(script, ())}, script
        assert bool(asked.search(text_of(script))) == (script in SCRIPTS_ON_DEMAND), script
