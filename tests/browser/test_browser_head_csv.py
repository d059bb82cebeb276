"""The CSV of one head, made by a script from disk."""

import csv
from pathlib import Path

import pytest

from browser import Open
from html_pages import data_file
from sites import Site

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.mark.parametrize("kind", ["encoder", "pair"])
def test_a_head_s_rows_are_kept_as_a_file(
    request: pytest.FixtureRequest, open_page: Open, tmp_path: Path, kind: str
) -> None:
    site: Site = request.getfixturevalue(f"{kind}_site")
    name = max(file.stem for file in (site.folder / "heads").glob("*.html"))
    page = open_page(site.folder / "heads" / f"{name}.html")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV of this head").click()
    assert download.value.suggested_filename == f"{name}.csv"
    download.value.save_as(tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    layer, _, head = name.rpartition("-H")
    _, value = data_file(site.folder / "data" / "numbers" / f"{layer}.js")
    assert len(rows) == sum(map(bool, value["heads"][int(head)])) > 0
    assert {int(row["head"]) for row in rows} == {int(head)}
    keys = {f"{row['metric']},{row['view']},{row['label']}" for row in rows}
    assert keys <= {*value["keys"]}
