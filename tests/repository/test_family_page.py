"""The page of families, and what it says of two that once ended in a traceback."""

import re
from pathlib import Path

import pytest

import families
import familypage
from code_blocks import ROOT

PAGE = (ROOT / "docs" / "families.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([^`]+)` \| (.*) \|$", PAGE, re.MULTILINE)


def test_every_architecture_that_reads_text_stands_on_the_page_once() -> None:
    """Of the transformers that is installed."""
    assert sorted(name for name, _ in ROWS) == families.types()


def test_counts_are_those_of_the_tables() -> None:
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    found = {s.partition("\n")[0]: len(re.findall(r"^\| `", s, re.MULTILINE)) for s in sections}
    counts = re.findall(r"^\| ([^|]+) \| (\d+) \| (?:\d+ %|–) \|$", PAGE, re.MULTILINE)
    assert {name: int(number) for name, number in counts} == found
    assert found.keys() <= set(familypage.OUTCOMES.values())


def test_no_architecture_ends_in_a_traceback() -> None:
    assert familypage.OUTCOMES["bug"] not in PAGE


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "gap"),
    [
        ("dots3_note_text", "importance of heads"),  # layers of 4 and of 64 heads
        ("lilt", "queries, keys and values"),  # weights do not come of one product of its own
        ("mobilebert", "states after attention"),  # linear maps lie on its residual path
    ],
)
def test_what_is_out_of_reach_is_a_gap(name: str, gap: str, tmp_path: Path) -> None:
    row = families.check_family(name, tmp_path)
    assert row["state"] != "bug", row
    assert not row["failed"]
    assert gap in row["lacks"]
    stated = dict(ROWS)[name]
    assert familypage.SHORT[gap] in stated


@pytest.mark.soak
@pytest.mark.parametrize(
    "name",
    [
        "trocr",  # no word embedding that transformers finds; called by its network in another way
        "rembert",  # each query of its first layer looks at one token alone
        "falcon",  # adds to its feed-forward's output in place; fewer key heads
    ],
)
def test_attention_outside_the_interface_lacks_nothing(name: str, tmp_path: Path) -> None:
    row = families.check_family(name, tmp_path)
    assert row["state"] == "right", row
    assert familypage.outcome(row) == "whole"
