"""Pages name a head or layer as the first only if the table of tests has it, tested, too."""

import html
import re
from collections.abc import Iterator

import pandas as pd
import pytest

from sites import Site

WORDS = "most|highest|lowest|largest|least|farthest|fewest|smallest|no clear difference"
SUPERLATIVE = re.compile(rf"\b({WORDS})\b", re.IGNORECASE)
PLACE = re.compile(r"\bL(\d+)·H(\d+)|\b[Ll]ayer (\d+)")
NOT_LEADING = re.compile(r"alike|not tested|largest weight of head|at most")
TAGS = "p|li|td|th|h\\d|caption|figcaption|summary|dd|dt|div|section|tr|small"
BLOCK = re.compile(rf"</?(?:{TAGS})\b[^>]*>")
HIDDEN = re.compile(r"<(script|style|svg|template)\b.*?</\1>", re.DOTALL)


def superlatives(page: str) -> Iterator[str]:
    """Yield the clauses of a page that name a head or layer with a superlative, without a note."""
    for block in BLOCK.split(HIDDEN.sub("", page)):
        text = " ".join(html.unescape(re.sub(r"<[^>]+>", "", block)).split())
        for clause in re.split(r"(?<=[.;]) ", text):
            wanted, unwanted = (SUPERLATIVE, PLACE), NOT_LEADING.search(clause)
            if not unwanted and all(pattern.search(clause) for pattern in wanted):
                yield clause


def is_recorded(clause: str, rows: pd.DataFrame) -> bool:
    """Check whether the first place of a clause leads something by a test."""
    layer, head, whole_layer = next(PLACE.finditer(clause)).groups()
    tested = rows[(rows["p"] < 0.05) & (rows["layer"] == int(layer or whole_layer))]
    return bool((tested["head"] == int(head) if head else tested["head"].isna()).any())


@pytest.mark.parametrize("kind", ["encoder", "decoder", "pair"])
def test_every_superlative_has_a_tested_row(kind: str, request: pytest.FixtureRequest) -> None:
    site: Site = request.getfixturevalue(f"{kind}_site")
    tests = pd.read_parquet(site.folder / "data" / "tests.parquet")
    n_clauses = 0
    for page in site.pages:
        name = page.relative_to(site.folder)
        rows = tests[tests["metric"] == page.stem] if name.parts[0] == "metrics" else tests
        for clause in superlatives(page.read_text(encoding="utf-8")):
            assert is_recorded(clause, rows), f"{name}: {clause}"
            n_clauses += 1
    assert n_clauses > 5


@pytest.mark.parametrize(
    ("page", "clauses"),
    [
        ("<p>Most in <a href='x'>L0·H1</a>, 30 %.</p>", ["Most in L0·H1, 30 %."]),
        ("<li>Most in L0·H1 (alike: L0·H2)</li><td>L1·H1</td>", []),
        ("<p>Layer 2 attends farthest: 8; layer 1: 3.</p>", ["Layer 2 attends farthest: 8;"]),
    ],
)
def test_clauses_are_found(page: str, clauses: list[str]) -> None:
    assert [*superlatives(page)] == clauses


def test_a_place_without_a_tested_row_is_missed() -> None:
    rows = pd.DataFrame({"layer": [0, 1], "head": [1, None], "p": [0.01, 0.2]})
    assert is_recorded("Most in L0·H1.", rows)
    assert not is_recorded("Most in L0·H2.", rows)
    assert not is_recorded("Most in layer 1.", rows)
