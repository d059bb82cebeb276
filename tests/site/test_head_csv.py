"""The CSV of one head: the rows of the table of all heads, with the number of uniform attention."""

import csv
import io
from typing import Any

from test_export import rows_of

from headbook.site.head_csv import BASELINE
from html_pages import data_file, html_of
from sites import Site

Rows = dict[tuple[str, ...], dict[str, str]]
KEY = ("metric", "view", "label")


def of_script(value: dict[str, Any], head: int) -> list[dict[str, str]]:
    """Return the rows of a head as ``head_csv.js`` joins them."""
    parts = zip(value["keys"], value["heads"][head], value["uniform"], strict=True)
    lines = [
        f"{value['start']},{head},{key},{numbers},{uniform}"
        for key, numbers, uniform in parts
        if numbers
    ]
    text = "\n".join([value["columns"], *lines])
    return list(csv.DictReader(io.StringIO(text, newline="")))


def by_key(rows: list[dict[str, str]], *more: str) -> Rows:
    return {tuple(row[name] for name in ("stack", "layer", *more, *KEY)): row for row in rows}


def test_every_head_has_its_rows_with_their_baselines(any_site: Site) -> None:
    data = any_site.folder / "data"
    expected = by_key(rows_of(data / "heads.csv"), "head")
    controls = by_key(rows_of(data / "controls.csv"))
    rows = [
        row
        for file in sorted((data / "numbers").iterdir())
        for value in [data_file(file)[1]]
        for head in range(len(value["heads"]))
        for row in of_script(value, head)
    ]
    assert len(rows) == len(expected) > 0
    for key, row in by_key(rows, "head").items():
        uniform = row.pop(BASELINE)
        assert row == expected[key]
        control = controls.get((*key[:2], *key[3:]))
        assert uniform == (control["value"] if control else "")


def test_the_link_leads_to_the_table_without_scripts(any_site: Site) -> None:
    for page in any_site.folder.glob("heads/*-H00.html"):
        link = f'<a href="../data.html#heads" data-rows="{page.stem}">CSV of this head</a>'
        assert link in html_of(page)
        layer = page.stem.rpartition("-")[0]
        assert (any_site.folder / "data" / "numbers" / f"{layer}.js").exists()
