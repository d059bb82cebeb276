"""The map of a metric by another label or with other keys, and what belongs to it, in a browser."""

import csv
import io
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import Page, expect

from browser import Open
from headbook.report.head_numbers import HeadMetricNumbers
from headbook.schema import SinkView
from headbook.site.figures import figures
from html_pages import html_of
from sites import Site

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

PATH, METRIC, NAME = "metrics/attention_to.html", "attention_to", "attention_to-self"
MAP = f"figure[data-map='{NAME}']"


def opened(site: Site, open_page: Open, address: str = PATH) -> Page:
    path, _, fragment = address.partition("#")
    page = open_page(site.folder / path, alone=True)
    if fragment:
        page.goto(f"{(site.folder / path).as_uri()}#{fragment}")
        page.reload()
    return page


def cells(page: Page) -> list[str]:
    return [cell.inner_text() for cell in page.locator(f"{MAP} td.h").all()]


def saved(page: Page, name: str) -> tuple[str, bytes]:
    with page.expect_download() as download:
        page.locator(f"{MAP} .files button", has_text=name).click()
    return download.value.suggested_filename, download.value.path().read_bytes()


def numbers(site: Site, label: str, view: str) -> pd.DataFrame:
    heads = site.study.heads
    rows = heads[(heads["metric"] == METRIC) & (heads["label"] == label) & (heads["view"] == view)]
    return rows.sort_values(["layer", "head"])


@pytest.mark.parametrize(("label", "view"), [("next", "raw"), ("previous", "nosink")])
def test_another_choice_has_its_numbers_files_address_and_citation(
    encoder_site: Site, open_page: Open, tmp_path: Path, label: str, view: str
) -> None:
    page = opened(encoder_site, open_page)
    before, files = cells(page), page.locator(f"{MAP} .files").inner_text()
    page.locator("select[data-choice=label]").select_option(label)
    page.locator("select[data-choice=view]").select_option(view)
    expect(page.locator(f"{MAP} .made")).to_be_visible()
    rows = numbers(encoder_site, label, view)
    results = encoder_site.results["self"]
    metric = results.by_id[METRIC]
    of_choice = HeadMetricNumbers(results, metric, SinkView(view), label)
    places = [(int(layer), int(head)) for layer, head in rows[["layer", "head"]].to_numpy()]
    printed = [of_choice.number(place).as_text("bare") for place in places]
    assert cells(page) == printed
    framed = page.locator(f"{MAP} td.top1")
    expect(framed).to_have_count(1)
    assert framed.inner_text() == printed[int(rows["value"].argmax())]
    caption = page.locator(f"{MAP} caption").inner_text()
    assert caption.startswith(f"To the {label} token: ")
    ends = (printed[int(index)] for index in (rows["value"].argmin(), rows["value"].argmax()))
    assert all(end in caption for end in ends)
    assert page.locator(f"{MAP} a[href*='figures/']").count() == 0
    name, table = saved(page, "CSV")
    assert name == f"{NAME}-{label}-{view}.csv"
    made = pd.read_csv(io.BytesIO(table))
    assert made["value"].to_list() == pytest.approx(rows["value"].to_list(), abs=1e-5)
    name, picture = saved(page, "SVG")
    assert name == f"{NAME}-{label}-{view}.svg"
    svg = picture.decode()
    assert svg.count("<rect") >= len(rows)
    assert encoder_site.model.name in svg
    page.locator(f"{MAP} summary", has_text="Cite").click()
    entry = page.locator(f"{MAP} pre").inner_text()
    assert entry.startswith(f"@misc{{headbook-attention-to-self-{label}-{view},")
    assert f"Attention to kinds of tokens, {label} token, of every head" in entry
    command = page.locator(f"{MAP} .made code").text_content() or ""
    options = dict(zip(*[iter(shlex.split(command)[3:])] * 2, strict=True))
    names = figures(
        encoder_site.stored, tmp_path / "figures", [options["--only"]], label=options["--label"],
        view=options["--view"],
    )  # fmt: skip
    drawn = [*csv.DictReader((tmp_path / f"figures/{names[0]}.csv").open(encoding="utf-8"))]
    assert [float(row["value"]) for row in drawn] == pytest.approx(
        made["value"].to_list(), abs=1e-5
    )
    address = page.locator(f"{MAP} .files > a").get_attribute("href") or ""
    again = opened(encoder_site, open_page, f"{PATH}{address}")
    expect(again.locator(f"{MAP} .made")).to_be_visible()
    assert cells(again) == cells(page)
    usual = re.findall(
        r"<option value=\"([^\"]*)\"[^>]* selected", html_of(encoder_site.folder / PATH)
    )
    page.locator("select[data-choice=label]").select_option(usual[0])
    page.locator("select[data-choice=view]").select_option(usual[1])
    expect(page.locator(f"{MAP} .made")).to_have_count(0)
    assert cells(page) == before
    assert page.locator(f"{MAP} .files").inner_text() == files


def test_fills_of_a_choice_are_those_that_the_page_would_have(
    encoder_site: Site, open_page: Open
) -> None:
    """The script has the rule of fills once more: it must give what Python gives."""
    from headbook.pages.metrics import heads
    from headbook.pages.metrics.figures import offered_labels
    from headbook.report.head_numbers import drawn_numbers

    found = encoder_site.results["self"]
    drawn = drawn_numbers(found, found.by_id[METRIC])
    assert drawn is not None
    ends = heads._scale_ends(drawn, offered_labels(drawn))
    page = opened(encoder_site, open_page)
    page.locator("select[data-choice=label]").select_option("next")
    expect(page.locator(f"{MAP} .made")).to_be_visible()
    of_choice = drawn._replace(label="next")
    fill = heads.fill_of(of_choice, ends)
    fills = [
        (cell.get_attribute("class") or "").split()[1] for cell in page.locator(f"{MAP} td.h").all()
    ]
    places = [*np.ndindex(of_choice.heads.value.shape)]
    assert fills == [fill(of_choice.number(place)) for place in places]


def test_the_list_of_metrics_follows_what_is_typed(encoder_site: Site, open_page: Open) -> None:
    page = open_page(encoder_site.folder / "metrics/index.html")
    lines = page.locator("#metrics li")
    every = lines.count()
    page.get_by_label("Find a metric").fill("entropy")
    expect(page.get_by_role("status").first).to_have_text(re.compile(rf"^\d+ of {every} metrics$"))
    titles = [line.inner_text() for line in lines.all() if line.is_visible()]
    assert 0 < len(titles) < every
    assert all("entropy" in title.lower() for title in titles)
