"""The overview in a browser: where the atlas begins, its card, its keys, its strips, its state."""

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import Page, expect
from typer.testing import CliRunner

from browser import Open, each, sideways, violations
from headbook.cli.main import app
from headbook.metrics import all_metrics
from headbook.pages.parts.grid import short
from headbook.report.wording import is_share
from html_pages import html_of
from sites import Site, data_of

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

runner = CliRunner()
WORDS = """() => {
  const atlas = document.querySelector(".tiles");
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let count = 0;
  while (walk.nextNode()) {
    const text = walk.currentNode, box = text.parentElement;
    if (!(atlas.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_PRECEDING)) continue;
    if (!box.checkVisibility() || box.closest("option, .hidden, .skip")) continue;
    count += (text.textContent.match(/\\S+/g) || []).length;
  }
  return count;
}"""


BARS = "found => found.map((a) => a.style.getPropertyValue('--w'))"
BOXES = """() => {
  const box = (each) => each.getBoundingClientRect();
  const image = box(document.querySelector(".tiles img"));
  const links = [...document.querySelectorAll(".tiles td a")].map(box);
  const places = links.map((each) => [each.left, each.top, each.width]);
  return [image.left, image.top, image.width / 4, image.height / 2, places];
}"""


def cards(site: Site, stack: str = "self") -> list[list[Any]]:
    """What the card says of each head."""
    found: list[list[Any]] = data_of(site, "atlas")[stack]
    return found


def opened(open_page: Open, site: Site, **options: Any) -> Page:
    """The overview, its scripts run."""
    page = open_page(site.folder / "index.html", **options)
    page.locator("[data-strip]").wait_for()
    return page


def tile(page: Page, place: int) -> Any:
    """One tile of the first stack."""
    return page.locator("[data-tiles]").first.locator("td a").nth(place)


def reported(page: Page) -> list[str]:
    """What the card shows, as in the script."""
    names = ("name", "type", "summary", "evidence", "given", "brought", "exemplar")
    return [page.locator(f"[data-{name}]").text_content() or "" for name in names]


def wanted(card: list[Any]) -> list[str]:
    """The same from the data."""
    name, _, kind, _, _, message, evidence, given, brought, _, caption, _ = card
    return [name, kind, message, evidence, given, brought, caption]


@pytest.mark.parametrize("kind", ["encoder", "decoder", "pair"])
def test_the_atlas_begins_early_and_few_words_stand_before_it(
    request: pytest.FixtureRequest, open_page: Open, kind: str
) -> None:
    site: Site = request.getfixturevalue(f"{kind}_site")
    page = opened(open_page, site, viewport={"width": 1440, "height": 900})
    top = "document.querySelector('.tiles').getBoundingClientRect().top"
    assert page.evaluate(top) <= 220
    assert page.evaluate(WORDS) <= 120
    phone = opened(open_page, site, viewport={"width": 390, "height": 844})
    assert phone.evaluate(top) <= 844
    expect(page.locator(".stack .hint").first).to_contain_text("with all keys")


def test_letters_do_not_hide_the_small_tiles_of_deep_models(
    encoder_site: Site, open_page: Open
) -> None:
    page = opened(open_page, encoder_site, viewport={"width": 1440, "height": 900})
    letters = tile(page, 0).locator("b")
    expect(letters).to_be_visible()
    deep = "(atlas) => atlas.style.setProperty('--rows', 30)"
    page.locator(".tiles").first.evaluate(deep)
    expect(letters).to_be_hidden()
    box = tile(page, 0).bounding_box()
    assert box is not None
    assert box["width"] > 34  # twelve positions of three pixels each


def test_strips_of_deep_models_are_explained_beside_the_atlas(
    encoder_site: Site, open_page: Open
) -> None:
    page = opened(open_page, encoder_site, viewport={"width": 1440, "height": 900})
    stack = page.locator(".stack").first
    stack.evaluate("(stack) => stack.classList.add('tall')")
    atlas, *explained = (
        stack.locator(part).first.bounding_box() for part in (".tiles", ".kinds", ".hint")
    )
    assert atlas is not None
    for box in explained:
        assert box is not None
        assert box["x"] >= atlas["x"] + atlas["width"]
        assert box["y"] < 900


def test_names_of_curves_stand_beside_their_lines(encoder_site: Site, open_page: Open) -> None:
    """No letter lies on a line: names begin to the right of the last layer."""
    page = opened(open_page, encoder_site)
    gaps = page.locator(".curve svg").evaluate_all(
        """found => found.flatMap((svg) => {
          const box = (each) => each.getBoundingClientRect();
          const end = Math.max(...[...svg.querySelectorAll("circle")].map((e) => box(e).right));
          return [...svg.querySelectorAll("text:has(tspan)")].map((name) => box(name).left - end);
        })"""
    )
    assert len(gaps) > 3
    assert min(gaps) > 0


def test_the_card_follows_pointer_and_focus(encoder_site: Site, open_page: Open) -> None:
    page, known = opened(open_page, encoder_site), cards(encoder_site)
    tile(page, 5).hover()
    expect(page.locator("[data-name]")).to_have_text(known[5][0])
    assert reported(page) == wanted(known[5])
    assert page.locator("[data-name]").get_attribute("href") == known[5][1]
    assert page.locator("[data-text]").text_content() == "".join(part[1] for part in known[5][11])
    tile(page, 2).focus()
    expect(page.locator("[data-name]")).to_have_text(known[2][0])
    assert reported(page) == wanted(known[2])
    expect(tile(page, 2)).to_have_attribute("aria-current", "true")
    assert page.locator("[data-tiles] [aria-current]").count() == 1


def test_the_tile_nearest_to_the_pointer_is_told(encoder_site: Site, open_page: Open) -> None:
    """Between two tiles and beside the outermost ones."""
    page, known = opened(open_page, encoder_site), cards(encoder_site)
    places = page.evaluate(BOXES)[4]
    (left, top, wide), (after, *_) = places[0], places[1]
    last, below = places[3], places[4]
    for x, y, position in (
        ((left + wide + after) / 2 - 1, top + 9, 0),
        ((left + wide + after) / 2 + 1, top + 9, 1),
        (last[0] + wide + 10, last[1] + 9, 3),
        (below[0] + 9, below[1] + wide + 10, 4),
    ):
        page.mouse.move(x, y)
        expect(page.locator("[data-name]")).to_have_text(known[position][0])


def test_the_mark_nearest_to_the_pointer_is_told(encoder_site: Site, open_page: Open) -> None:
    page = opened(open_page, encoder_site)
    curve = page.locator(".curve").first
    mark, tip = curve.locator("circle").nth(1), curve.locator(".tip")
    still = open_page(encoder_site.folder / "index.html", java_script_enabled=False)
    text = still.locator(".curve").first.locator("circle").nth(1).locator("title").text_content()
    assert re.fullmatch(r"[a-z ]+, layer 1: .+", text or "")
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    for dx, dy in ((0, 0), (8, -6), (-6, -8)):
        page.mouse.move(x + dx, y + dy)
        expect(tip).to_have_text(text or "")
        expect(curve.locator("circle.near")).to_have_count(1)
    page.mouse.move(x, y - 40)
    expect(tip).to_be_hidden()


def test_the_card_draws_the_map_of_its_tile(encoder_site: Site, open_page: Open) -> None:
    """Pixel by pixel what stands in the picture of all maps."""
    page = opened(open_page, encoder_site)
    tile(page, 6).hover()  # layer 1, head 2
    page.locator("canvas.ink").wait_for()
    same = page.evaluate(
        """() => {
          const sheet = document.querySelector("[data-tiles] img");
          const drawn = document.querySelector(".inspect canvas"), side = drawn.width;
          const whole = document.createElement("canvas");
          whole.width = sheet.naturalWidth;
          whole.height = sheet.naturalHeight;
          const pen = whole.getContext("2d");
          pen.drawImage(sheet, 0, 0);
          const wanted = pen.getImageData(2 * (side + 1), side + 1, side, side).data;
          const found = drawn.getContext("2d").getImageData(0, 0, side, side).data;
          return side === 12 && wanted.every((value, i) => Math.abs(value - found[i]) <= 1);
        }"""
    )
    assert same


def test_arrow_keys_walk_the_atlas_which_is_one_tab_stop(
    encoder_site: Site, open_page: Open
) -> None:
    page = opened(open_page, encoder_site)
    stops = each(page.locator("[data-tiles] td a"), "tabindex")
    assert sorted(stops) == ["-1"] * 7 + ["0"]
    tile(page, 0).focus()
    for key, position in (
        ("ArrowRight", 1), ("ArrowDown", 5), ("End", 7), ("ArrowRight", 7), ("ArrowUp", 3),
        ("Home", 0), ("ArrowUp", 0), ("ArrowLeft", 0),
    ):  # fmt: skip
        page.keyboard.press(key)
        expect(tile(page, position)).to_be_focused()
    page.keyboard.press("Tab")
    assert not page.evaluate("document.activeElement.closest('[data-tiles]') !== null")
    page.keyboard.press("Shift+Tab")
    expect(tile(page, 0)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Head L0·H0")


@pytest.mark.parametrize("kind", ["encoder", "pair"])
def test_strips_show_any_metric_in_every_stack(
    request: pytest.FixtureRequest, open_page: Open, kind: str
) -> None:
    site: Site = request.getfixturevalue(f"{kind}_site")
    page, grids = opened(open_page, site), data_of(site, "grid")
    before = each(page.locator("[data-tiles] td a"), "aria-label")
    offered = {key for choices in grids.values() for key in choices}
    assert {*each(page.locator("[data-strip] option"), "value")} == {"", *offered}
    for key in ("relative_entropy/", "attention_to/first"):
        page.locator("[data-strip]").select_option(key)
        expect(page.locator("[data-strip-note]")).to_contain_text("full length")
        for stack, choices in grids.items():
            links, displayed = page.locator(f'[data-tiles="{stack}"] td a'), choices.get(key)
            expect(links.first.locator("b")).to_have_text(
                displayed["texts"][0] if displayed else "–"
            )
            widths = links.evaluate_all(
                "found => found.map((a) => a.style.getPropertyValue('--w'))"
            )
            steps = displayed["steps"] if displayed else [0] * len(widths)
            assert [float(w) for w in widths] == [max(s, 0) / 20 for s in steps]
    page.locator("[data-strip]").select_option("")
    expect(page.locator("[data-strip-note]")).to_be_empty()
    assert each(page.locator("[data-tiles] td a"), "aria-label") == before


def test_choices_stand_in_the_address_and_survive_reload_and_back(
    encoder_site: Site, open_page: Open
) -> None:
    page = opened(open_page, encoder_site)
    grid = page.locator("[data-grid=self]")
    caption = grid.locator("[data-caption]")
    usual = caption.text_content() or ""
    page.locator("[data-metric]").select_option("relative_entropy/")
    page.locator("[data-strip]").select_option("attention_to/previous")
    expect(caption).to_contain_text("Normalised entropy")
    expect(page).to_have_url(re.compile("metric=relative_entropy.*strip=attention_to"))
    page.reload()
    expect(caption).to_contain_text("Normalised entropy")
    expect(page.locator("[data-metric]")).to_have_value("relative_entropy/")
    expect(page.locator("[data-strip]")).to_have_value("attention_to/previous")
    tile(page, 1).click()
    expect(page.locator("h1")).to_have_text("Head L0·H1")
    page.go_back()
    expect(caption).to_contain_text("Normalised entropy")
    expect(page.locator("[data-metric]")).to_have_value("relative_entropy/")
    basic = opened(open_page, encoder_site)
    expect(basic.locator("[data-grid=self] [data-caption]")).to_have_text(usual)


def test_back_and_forward_show_the_metric_that_they_name(
    encoder_site: Site, open_page: Open
) -> None:
    """Picker, caption, strip and its note agree, wherever history leads."""
    page, grids = opened(open_page, encoder_site), data_of(encoder_site, "grid")["self"]
    metric, strip = page.locator("[data-metric]"), page.locator("[data-strip]")
    usual = metric.input_value()

    def agree(displayed: str, bars: str) -> None:
        expect(page.locator("[data-caption]")).to_have_text(grids[displayed]["caption"])
        expect(metric).to_have_value(displayed)
        expect(strip).to_have_value(bars)
        note = page.locator("[data-strip-note]")
        expect(note).to_contain_text(grids[bars]["caption"]) if bars else expect(note).to_be_empty()

    page.get_by_role("link", name="What these numbers cannot say").click()
    metric.select_option("relative_entropy/")
    strip.select_option("attention_to/previous")
    agree("relative_entropy/", "attention_to/previous")
    page.go_back()
    agree(usual, "")
    page.go_forward()
    agree("relative_entropy/", "attention_to/previous")
    tile(page, 1).click()
    expect(page.locator("h1")).to_have_text("Head L0·H1")
    page.go_back()
    agree("relative_entropy/", "attention_to/previous")


def test_the_heat_map_is_one_tab_stop(encoder_site: Site, open_page: Open) -> None:
    page = opened(open_page, encoder_site)
    cells = page.locator("[data-grid=self] td a")
    assert sorted(each(cells, "tabindex")) == ["-1"] * 7 + ["0"]
    cells.first.focus()
    for key, position in (("ArrowDown", 4), ("End", 7), ("ArrowUp", 3), ("Home", 0)):
        page.keyboard.press(key)
        expect(cells.nth(position)).to_be_focused()


WALKED = """(grid) => {
  const chooser = document.querySelector("select[data-metric]");
  const shown = (each) => each.checkVisibility();
  const box = document.querySelector(`[data-grid=${grid}]`);
  const files = box.querySelector("[data-files]");
  const walk = async () => {
    const found = {};
    await window.headbook.load(`${window.headbook.root()}data/grid.js`, "grid");
    for (const { value } of [...chooser.options]) {
      chooser.value = value;
      chooser.dispatchEvent(new Event("change"));
      for (let n = 0; n < 3; n += 1) await new Promise((done) => setTimeout(done));
      found[value] = {
        texts: [...box.querySelectorAll("td")].map((cell) => cell.textContent),
        links: [...files.querySelectorAll("a[href]")]
          .filter(shown)
          .map((a) => a.getAttribute("href")),
        command: [...files.querySelectorAll("code")].filter(shown).map((c) => c.textContent).join(),
      };
    }
    return found;
  };
  return walk();
}"""


def cells(file: Path, shape: tuple[int, int], *, share: bool) -> list[str]:
    """Return what the cells of a heat map read for the numbers of a figure's CSV file."""
    values = np.full(shape, np.nan)
    rows = pd.read_csv(file)
    assert not rows[["layer", "head"]].duplicated().any()
    values[rows["layer"], rows["head"]] = rows["value"]
    return [short(value, share=share) for value in values.ravel()]


@pytest.mark.parametrize("kind", ["encoder", "decoder", "pair"])
def test_files_of_every_choice_hold_the_numbers_on_show(
    request: pytest.FixtureRequest, open_page: Open, tmp_path: Path, kind: str
) -> None:
    """Where no stored file does, the page prints a command, and its file does."""
    site: Site = request.getfixturevalue(f"{kind}_site")
    page, grids = opened(open_page, site), data_of(site, "grid")
    stacks = {stack.name: stack for stack in site.study.manifest.stacks}
    stored, asked = 0, []
    for stack, choices in grids.items():
        shape = stacks[stack].n_layers, stacks[stack].n_heads
        walked = page.evaluate(WALKED, stack)
        assert {*choices} <= {*walked}
        for choice, seen in walked.items():
            metric, _, label = choice.partition("/")
            share = is_share(all_metrics()[metric])
            tables = [href for href in seen["links"] if href.endswith(".csv")]
            if choice not in choices:
                assert seen == {"texts": ["–"] * len(seen["texts"]), "links": [], "command": ""}
            elif tables:
                assert seen["command"] == ""
                (table,) = tables
                files = [f"{table.removesuffix('csv')}{each}" for each in ("svg", "pdf", "csv")]
                about = f"metrics/{metric}.html#{Path(table).stem}"
                assert seen["links"] == [*files, about]
                assert f'id="{Path(table).stem}"' in html_of(site.folder / about.partition("#")[0])
                assert seen["texts"] == cells(site.folder / table, shape, share=share), choice
                stored += 1
            else:
                assert seen["links"] == [f"metrics/{metric}.html"]
                assert f"--only {metric} --label {shlex.quote(label)}" in seen["command"]
                asked.append((stack, choice, seen, shape, share))
    assert stored
    for number, (stack, choice, seen, shape, share) in enumerate(asked[:: len(asked) // 2 + 1]):
        made = drawn_by(seen["command"], site, tmp_path / f"{kind}-{number}")
        (table,) = [file for file in made.glob(f"*-{stack}-*.csv") if "layers" not in file.stem]
        assert seen["texts"] == cells(table, shape, share=share), choice


def drawn_by(command: str, site: Site, out: Path) -> Path:
    """Run a command that a page prints on the site's study."""
    program, verb, study, *options = shlex.split(command)
    assert (program, verb, study) == ("headbook", "figures", "STUDY")
    result = runner.invoke(app, [verb, str(site.stored), *options, "--out", str(out)])
    assert result.exit_code == 0, result.output
    return out


@pytest.mark.parametrize("kind", ["encoder", "decoder", "pair"])
def test_without_scripts_links_are_those_of_the_choice_on_show(
    request: pytest.FixtureRequest, open_page: Open, kind: str
) -> None:
    site: Site = request.getfixturevalue(f"{kind}_site")
    page = open_page(site.folder / "index.html", java_script_enabled=False)
    stacks = {stack.name: stack for stack in site.study.manifest.stacks}
    checked = 0
    for name in each(page.locator("[data-grid]"), "data-grid"):
        grid, stack = page.locator(f"[data-grid={name}]"), stacks[name]
        displayed = grid.locator("td").all_text_contents()
        for table in each(grid.locator("a[href$='.csv']"), "href"):
            share = is_share(all_metrics()[Path(table).stem.partition("-")[0]])
            shape = stack.n_layers, stack.n_heads
            assert displayed == cells(site.folder / table, shape, share=share)
            checked += 1
    assert checked
    # Stored charts show other lines than the curves of the overview.
    assert page.locator(".curve a[href*='figures/']").count() == 0


def test_metrics_are_found_by_part_of_their_name(encoder_site: Site, open_page: Open) -> None:
    page = opened(open_page, encoder_site)
    page.locator("[data-narrow]").fill("entropy")
    displayed = page.locator("[data-metric] option:not([hidden])").all_text_contents()
    assert displayed
    assert all("entropy" in text.lower() for text in displayed)
    page.locator("[data-narrow]").fill("")
    assert page.locator("[data-metric] option[hidden]").count() == 0


@pytest.mark.parametrize("kind", ["encoder", "decoder", "pair"])
def test_the_overview_is_accessible_and_narrow_enough(
    request: pytest.FixtureRequest, open_page: Open, kind: str
) -> None:
    site: Site = request.getfixturevalue(f"{kind}_site")
    page = opened(open_page, site)
    tile(page, 1).hover()
    expect(page.locator("[data-name]")).to_have_text(
        each(tile(page, 1), "aria-label")[0].partition(",")[0]
    )
    assert violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert violations(page, "color-contrast") == []
    widths = (360, 390, 800, 1280, 1440)
    assert {width: sideways(page, width) for width in widths} == dict.fromkeys(widths, 0)


def test_ink_is_turned_round_on_dark_paper_alone(encoder_site: Site, open_page: Open) -> None:
    page = opened(open_page, encoder_site, color_scheme="light")
    style = "getComputedStyle(document.querySelector('.tiles img')).filter"
    assert page.evaluate(style) == "none"
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(style) == "invert(1) hue-rotate(180deg)"
    page.evaluate("document.documentElement.dataset.theme = 'light'")
    assert page.evaluate(style) == "none"


def test_tiles_lie_on_their_pictures_and_are_large_enough_to_hit(
    encoder_site: Site, open_page: Open
) -> None:
    """At any width: a tile's link begins where its map begins."""
    page = opened(open_page, encoder_site)
    for width in (390, 800, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        left, top, wide, high, links = page.evaluate(BOXES)
        for index, (x, y, size) in enumerate(links):
            row, column = divmod(index, 4)
            assert x == pytest.approx(left + column * wide, abs=1.5)
            assert y == pytest.approx(top + row * high, abs=1.5)
            assert size >= 24


def test_without_scripts_the_card_and_all_links_are_there(
    encoder_site: Site, open_page: Open
) -> None:
    page = open_page(encoder_site.folder / "index.html", java_script_enabled=False)
    expect(page.locator(".inspect img")).to_be_visible()
    assert page.locator("[data-tiles] td a").count() == 8
    name = page.locator("[data-name]").text_content()
    (card,) = [card for card in cards(encoder_site) if card[0] == name]
    assert reported(page) == wanted(card)
    expect(page.locator("[data-strip]")).to_be_hidden()
