"""A click on a number opens its row, in place, from disk; without scripts the table is shown."""

import csv
import gzip
import io
import re
from pathlib import Path

import pandas as pd
import pytest
from playwright.sync_api import Page, expect

from browser import Open, Record, sideways
from browser_plain import plain
from sites import Site

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser]

PANEL = ".behind-number"
NUMBER = ".answer a.n"


def opened(open_page: Open, site: Site) -> Page:
    """The page of files, with the row of the number in its answer."""
    page = open_page(site.folder / "data.html")
    page.locator(NUMBER).click()
    expect(page.locator(PANEL)).to_be_visible()
    return page


def row_of(page: Page) -> dict[str, str]:
    """Columns and values in the panel, without meanings."""
    names = page.locator(f"{PANEL} dt").all_inner_texts()
    return dict(zip(names, page.locator(f"{PANEL} dd bdi").all_inner_texts(), strict=True))


def written(site: Site, table: str, line: int) -> dict[str, str]:
    """What a line of a table's CSV holds, without empty columns."""
    plain = site.folder / f"data/{table}.csv"
    content = (
        plain.read_bytes()
        if plain.exists()
        else gzip.decompress(plain.with_suffix(".csv.gz").read_bytes())
    )
    lines = content.decode().split("\n")
    row = next(csv.DictReader(io.StringIO(f"{lines[0]}\n{lines[line - 1]}\n")))
    return {name: value for name, value in row.items() if value}


def same(row: dict[str, str], line: dict[str, str]) -> bool:
    """Whether a panel shows a line; 1061.0 may be 1061."""

    def number(text: str) -> float | str:
        try:
            return float(text)
        except ValueError:
            return text

    return {n: number(v) for n, v in row.items()} == {n: number(v) for n, v in line.items()}


def test_a_click_opens_the_row_of_a_number(
    encoder_site: Site, open_page: Open, record: Record
) -> None:
    page = open_page(encoder_site.folder / "data.html")
    assert not any("data/rows/" in address for address in record.requests)
    page.locator(NUMBER).click()
    expect(page.locator(PANEL)).to_be_visible()
    assert [a.rpartition("/")[2] for a in record.requests if "data/rows/" in a] == ["data.js"]
    number, panel = page.locator(NUMBER), page.locator(PANEL)
    text, href = number.inner_text(), number.get_attribute("href") or ""
    place = re.search(r"row=(\w+):(\d+)", href)
    assert place
    table, line = place[1], int(place[2])
    assert panel.locator("h2").inner_text() == f"Behind “{text}”"
    lines = sum(1 for _ in (encoder_site.folder / f"data/{table}.csv").open("rb"))
    assert f"data/{table}.csv, line {line:,} of {lines:,}" in panel.inner_text()
    assert same(row_of(page), written(encoder_site, table, line))
    assert panel.locator("dd.printed bdi").inner_text() == row_of(page)["value"]
    expect(panel.get_by_role("link", name="Link to this row")).to_have_attribute("href", href)
    head = panel.get_by_role("link", name="Head L")
    assert (encoder_site.folder / (head.get_attribute("href") or "")).is_file()
    assert page.url.endswith("data.html")
    assert sideways(page, 360) == 0
    record.check()


def test_keys_open_and_close_a_row(encoder_site: Site, open_page: Open) -> None:
    page = open_page(encoder_site.folder / "data.html")
    number = page.locator(NUMBER)
    number.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="The row behind this number")).to_be_visible()
    expect(page.get_by_role("button", name="Close")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(PANEL)).to_have_count(0)
    expect(number).to_be_focused()
    number.press("Enter")
    page.get_by_role("button", name="Close").press("Enter")
    expect(page.locator(PANEL)).to_have_count(0)
    expect(number).to_be_focused()


def test_a_copied_link_opens_the_row_on_the_page_of_files(
    encoder_site: Site, open_page: Open
) -> None:
    page = opened(open_page, encoder_site)
    row, href = row_of(page), page.locator(NUMBER).get_attribute("href") or ""
    other = open_page(encoder_site.folder / "index.html")
    other.goto(f"{(encoder_site.folder / 'data.html').as_uri()}{href.removeprefix('data.html')}")
    expect(other.locator(PANEL)).to_be_visible()
    assert row_of(other) == row
    page.locator("figure a.n").dispatch_event("click")  # a second number takes its place
    expect(page.locator(PANEL)).to_have_count(1)
    expect(page.locator("a.n.on")).to_have_count(1)


def test_a_link_to_a_row_that_is_not_there_says_so(
    encoder_site: Site, open_page: Open, record: Record
) -> None:
    page = open_page(encoder_site.folder / "index.html")
    for query in ("row=heads:1&on=data", "row=heads:2&on=nowhere"):
        page.goto(f"{(encoder_site.folder / 'data.html').as_uri()}?{query}#heads")
        expect(page.locator(PANEL)).to_contain_text("prints no number of line")
    missing = "error: Failed to load resource: net::ERR_FILE_NOT_FOUND"
    record.complaints[:] = [line for line in record.complaints if line != missing]


def test_without_scripts_a_number_leads_to_its_table(encoder_site: Site) -> None:
    page = plain(encoder_site.folder / "data.html")
    assert re.fullmatch(
        r"data\.html\?row=heads:\d+&on=data#heads", page.one(NUMBER).attributes["href"]
    )
    (line,) = page.all("#heads")
    assert line.text.strip().startswith("data/heads.csv")


def test_the_row_is_copied(encoder_site: Site, open_page: Open) -> None:
    page = open_page(
        encoder_site.folder / "data.html", permissions=["clipboard-read", "clipboard-write"]
    )
    page.locator(NUMBER).click()
    page.get_by_role("button", name="Copy row").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    (copied,) = csv.DictReader(io.StringIO(page.evaluate("navigator.clipboard.readText()")))
    assert same({name: value for name, value in copied.items() if value}, row_of(page))


def test_the_line_of_python_reads_the_row(
    encoder_site: Site, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = opened(open_page, encoder_site)
    monkeypatch.chdir(encoder_site.folder)
    first, second = page.locator(f"{PANEL} [data-code=python]").inner_text().split("\n")
    assert first == "import pandas as pd"
    frame = eval(second, {"pd": pd})  # noqa: S307 - our own line
    (row,) = frame.to_dict("records")
    displayed = row_of(page)
    assert float(displayed["value"]) == pytest.approx(row["value"], rel=1e-5)
    assert (displayed["metric"], int(displayed["layer"])) == (row["metric"], row["layer"])


HOSTILE = """(row) => {
  const { headbook } = window;
  headbook.take("tables", { words: { files: ["data/words.csv", "data/words.parquet"], rows: 1,
    columns: [["class", "kind", true], ["token", "text", true], ["value", "v", false]] } });
  headbook.take("rows-data", { words: { lines: 2, rows: { "2": [[0, 1], ...row, 0.5] } } });
  const a = headbook.make("a", { class: "n", href: "data.html?row=words:2&on=data#words" }, "0.50");
  document.querySelector("main").append(a);
  a.click();
}"""


@pytest.mark.parametrize("token", ["it's", 'say "\\n"', "=1+1", "</script>", "\\", "´ü\u202e"])
def test_texts_from_outside_stay_texts_in_code(
    encoder_site: Site, open_page: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    token: str,
) -> None:  # fmt: skip
    page = open_page(encoder_site.folder / "data.html")
    page.evaluate(HOSTILE, ["content", token])
    expect(page.locator(PANEL)).to_be_visible()
    assert row_of(page)["token"] == token.replace("\u202e", r"\u202e")
    (tmp_path / "data").mkdir()
    rows = pd.DataFrame({"class": ["content", "content"], "token": [token, "x"], "value": [0.5, 1]})
    rows.to_parquet(tmp_path / "data/words.parquet")
    monkeypatch.chdir(tmp_path)
    _, line = page.locator(f"{PANEL} [data-code=python]").inner_text().split("\n")
    frame = eval(line, {"pd": pd})  # noqa: S307 - our own line
    assert frame["token"].tolist() == [token]
    in_r = page.locator(f"{PANEL} [data-code=r]").inner_text()
    assert ('token == "\'=1+1"' in in_r) == token.startswith("=")


@pytest.mark.slow
def test_a_row_opens_in_a_site_in_one_file(
    encoder_site: Site, open_page: Open, tmp_path: Path
) -> None:
    from headbook.site.archive import pack

    pack(encoder_site.folder, tmp_path / "report.html", single_file=True)
    page = open_page(tmp_path / "report.html")
    page.goto(f"{(tmp_path / 'report.html').as_uri()}#/data.html")
    page.locator(NUMBER).click()
    expect(page.locator(PANEL)).to_be_visible()
    row, link = row_of(page), page.get_by_role("link", name="Link to this row")
    href = link.get_attribute("href") or ""
    assert href.startswith("#/data.html?row=heads:")
    page.goto("about:blank")
    page.goto(f"{(tmp_path / 'report.html').as_uri()}{href}")
    expect(page.locator(PANEL)).to_be_visible()
    assert row_of(page) == row
