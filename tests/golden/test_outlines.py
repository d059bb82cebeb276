"""Outlines of pages: what they list, and that they tell what changed."""

import shutil
from pathlib import Path

import pytest

from golden import outlines
from sites import Site

PAGE = "metrics/attention_distance.html"
LINKED = "number: ", " of heads: stack=self layer="


@pytest.fixture
def site(small_site: Site) -> Path:
    """The site of a small study."""
    return small_site.folder


def linked(lines: list[str]) -> list[str]:
    """The texts of numbers that lead to rows of heads."""
    return [line.split(LINKED[1])[0].removeprefix(LINKED[0]) for line in lines if LINKED[1] in line]


@pytest.fixture
def other(site: Path, tmp_path: Path) -> Path:
    """A copy of that site, to be changed."""
    return Path(shutil.copytree(site, tmp_path / "site"))


def test_two_outlines_of_one_site_are_equal(site: Path, other: Path) -> None:
    assert outlines.differences(outlines.outline(site), outlines.outline(other)) == []


def test_an_outline_lists_what_a_page_has(site: Path) -> None:
    lines = outlines.outline(site)[PAGE]
    kinds = {line.split(":")[0].rstrip(" 123456") for line in lines}
    assert kinds == {"heading", "id", "table", "figure", "download", "link", "label", "number"}
    assert linked(lines)


def test_a_number_a_heading_and_a_link_are_told(site: Path, other: Path) -> None:
    page = other / PAGE
    html = page.read_text(encoding="utf-8")
    # Marks of charts are links, too, with their text elsewhere.
    number = next(n for n in linked(outlines.outline(site)[PAGE]) if f">{n}</a>" in html)
    changed = (
        html.replace(f">{number}</a>", ">12.34</a>", 1)
        .replace("<h1>", "<h1>Mean ", 1)
        .replace('href="../methods.html"', 'href="../method.html"', 1)
    )
    page.write_text(changed, encoding="utf-8")
    first, *rest = outlines.differences(outlines.outline(site), outlines.outline(other))
    assert first == PAGE
    went = [line.strip() for line in rest if line.strip().startswith("-")]
    came = [line.strip() for line in rest if line.strip().startswith("+")]
    assert {line[1:].split(":")[0] for line in went} == {"number", "heading 1", "link"}
    assert len(went) == len(came) == 3
    assert any(line.startswith("+number: 12.34 of heads: ") for line in came)


def test_equal_changes_of_pages_are_listed_once() -> None:
    before = {name: ["One"] for name in ("a.html", "b.html", "c.html", "d.html")}
    after = {name: ["Two"] for name in ("a.html", "b.html")} | {"c.html": ["One"], "e.html": []}
    assert outlines.differences(before, after) == [
        "missing: d.html",
        "added: e.html",
        "a.html and 1 more: b.html …",
        "    -One",
        "    +Two",
    ]


def test_what_machines_round_differently_is_not_recorded() -> None:
    lines = ["heading 2: 12 heads", "number: 0.53", "table: All: 12 × 5", "link: a.html"]
    found = outlines.without_machine({"a.html": lines})
    assert found == {"a.html": ["heading 0: 0 heads", "table: All: 0 × 0"]}
