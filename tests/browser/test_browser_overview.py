"""The overview in a browser: its first screen, live sentence, lighting, wall, and keys."""

from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

from browser import Open, each
from browser_plain import plain
from headbook.report.answers.overview.live_sentence import LiveSentence, live_sentences
from headbook.results.formats import head_name
from sites import Site

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

WORDS = """() => {
  const first = document.querySelector(".lives, .walls");
  const walk = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  let count = 0;
  while (walk.nextNode()) {
    const text = walk.currentNode, box = text.parentElement;
    if (!(first.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_PRECEDING)) continue;
    if (!box.checkVisibility({ contentVisibilityAuto: true }) || box.closest(".hidden")) continue;
    if (box.closest("details:not([open])") && !box.closest("summary")) continue;
    count += (text.textContent.match(/\\S+/g) || []).length;
  }
  return count;
}"""
FADED = """(found) => found.map((a) => Number(getComputedStyle(a).opacity) < 1)"""


def opened(open_page: Open, site: Site, **options: Any) -> Page:
    """The overview, its scripts run."""
    page = open_page(site.folder / "index.html", **options)
    page.locator(".theme").wait_for()
    return page


def tiles(page: Page) -> Locator:
    """The heads of the first stack."""
    return page.locator("[data-wall]").first.locator("td a.map")


def live_of(site: Site) -> LiveSentence:
    """The live sentence of the first stack."""
    return live_sentences(site.results)[0]


def word(page: Page, place: int) -> Locator:
    """A word of the live sentence above its column."""
    return page.locator(f".roll thead [data-i='{place}']")


def steps(page: Page, family: str) -> list[int]:
    """What a row of the live sentence shows."""
    classes = each(page.locator(f".roll tr[data-family='{family}'] td i"), "class")
    return [int(name.removeprefix("o")) for name in classes]


def expected(weights: "np.ndarray[Any, np.dtype[np.float64]]") -> list[int]:
    """The same from mean weights, which scripts have in steps of 1/255."""
    coarse = np.rint(255 * weights) / 255
    return [round(10 * min(1.0, 2 * float(weight)) ** 0.5) for weight in coarse]


@pytest.mark.parametrize("kind", ["encoder", "decoder", "pair"])
def test_the_first_picture_begins_early_beside_few_words(
    request: pytest.FixtureRequest, open_page: Open, kind: str
) -> None:
    site: Site = request.getfixturevalue(f"{kind}_site")
    page = opened(open_page, site, viewport={"width": 1440, "height": 900})
    top = "document.querySelector('.lives, .walls').getBoundingClientRect().top"
    assert page.evaluate(top) <= 120
    assert page.evaluate(WORDS) <= 150
    phone = opened(open_page, site, viewport={"width": 390, "height": 844})
    assert phone.evaluate(top) <= 844


def test_the_live_sentence_follows_pointer_and_keys(encoder_site: Site, open_page: Open) -> None:
    """Who attends to a word, what the line below says, and nothing moves."""
    page, live = opened(open_page, encoder_site), live_of(encoder_site)
    read_the_line_below(page, live)
    walk_the_words(page, live)
    point_at_every_word(page, live)
    point_at_a_word(page, live)


def point_at_a_word(page: Page, live: LiveSentence) -> None:
    """Point at two words, and ask for the other direction."""
    other = next(n for n in range(live.sizes[1]) if n != live.word and not live.keys.special[n])
    for place in (other, live.word):
        word(page, place).hover()
        expect(page.locator("[data-chosen]")).to_have_text(live.keys.pieces[place])
        expect(word(page, place)).to_have_attribute("aria-pressed", "true")
        for family in live.families:
            assert steps(page, str(family.family)) == expected(family.mean[:, place])
    page.get_by_role("button", name="it attends to").click()
    expect(page.locator("[data-asks]")).to_have_text("What is attended to from")
    for family in live.families:
        assert steps(page, str(family.family)) == expected(family.mean[live.word])


def read_the_line_below(page: Page, live: LiveSentence) -> None:
    """Read the strongest head, and each cell that is pointed at."""
    still = page.locator("[data-say]").text_content()
    other = next(n for n in range(live.sizes[1]) if n != live.word)
    word(page, other).hover()
    word(page, live.word).hover()
    expect(page.locator("[data-say]")).to_have_text(still or "")
    family = live.families[0]
    page.locator(f".roll tr[data-family='{family.family}'] td").nth(1).hover()
    message = page.locator("[data-say]")
    expect(message).to_contain_text(f"mean weight {family.mean[1, live.word]:.2f}"[:16])
    expect(message).to_contain_text(head_name(live.heads[family.strongest[1, live.word]]))


def walk_the_words(page: Page, live: LiveSentence) -> None:
    """Go from word to word by keys."""
    word(page, 0).focus()
    expect(page.locator("[data-chosen]")).to_have_text(live.keys.pieces[0])
    for key, place in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1)):
        page.keyboard.press(key)
        expect(word(page, place)).to_be_focused()
        expect(page.locator("[data-chosen]")).to_have_text(live.keys.pieces[place])


def point_at_every_word(page: Page, live: LiveSentence) -> None:
    """See that no word moves."""
    places = [word(page, n).bounding_box() for n in range(live.sizes[1])]
    for n in range(live.sizes[1]):
        word(page, n).hover()
        expect(word(page, n)).to_have_attribute("aria-pressed", "true")
        assert [word(page, k).bounding_box() for k in range(live.sizes[1])] == places


def lighting(page: Page, family: str) -> tuple[list[bool], list[bool]]:
    """Which heads are faded, and which are of another family."""
    page.wait_for_timeout(200)
    classes = each(tiles(page), "class")
    others = [f"f-{family}" not in name.split() for name in classes]
    return tiles(page).evaluate_all(FADED), others


def test_a_family_lights_its_heads_without_scripts_too(encoder_site: Site, open_page: Open) -> None:
    for scripts in (True, False):
        page = open_page(encoder_site.folder / "index.html", java_script_enabled=scripts)
        for family in (str(line.family) for line in live_of(encoder_site).families):
            page.locator(f".roll tr[data-family='{family}'] th").hover()
            faded, others = lighting(page, family)
            assert faded == others
        page.mouse.move(1, 1)
        assert not any(lighting(page, "")[0])


def test_a_claim_lights_its_heads(open_page: Open, decoder_site: Site) -> None:
    page = opened(open_page, decoder_site)
    for number in range(1, page.locator(".claim").count() + 1):
        claim = page.locator(f"#c{number}")
        claim.hover()
        page.wait_for_timeout(200)
        classes = each(tiles(page), "class")
        faded = tiles(page).evaluate_all(FADED)
        assert faded == [f"k{number}" not in name.split() for name in classes]
        expect(claim.locator("details p")).to_be_hidden()
        claim.locator("summary").click()
        expect(claim.locator("details p")).to_be_visible()


def test_arrow_keys_walk_the_wall_which_is_one_tab_stop(
    encoder_site: Site, open_page: Open
) -> None:
    page = opened(open_page, encoder_site)
    assert sorted(each(tiles(page), "tabindex")) == ["-1"] * 7 + ["0"]
    tiles(page).first.focus()
    for key, place in (
        ("ArrowRight", 1), ("ArrowDown", 5), ("End", 7), ("ArrowUp", 3), ("Home", 0),
    ):  # fmt: skip
        page.keyboard.press(key)
        expect(tiles(page).nth(place)).to_be_focused()
        label = tiles(page).nth(place).get_attribute("aria-label") or ""
        expect(page.locator("[data-say-wall]")).to_have_text(label)
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Head L0·H0")


def test_tiles_and_bars_are_those_of_their_heads_in_every_window(
    encoder_site: Site, open_page: Open
) -> None:
    page = opened(open_page, encoder_site)
    check_bars(page)
    for width in (390, 800, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        check_tiles(page)


def check_tiles(page: Page) -> None:
    """Tiles show their own part of the picture of maps, and are large enough to hit."""
    for link in tiles(page).all():
        box = link.bounding_box()
        assert box is not None
        assert box["width"] >= 23
    masks = (
        tiles(page)
        .locator("i")
        .evaluate_all("found => found.map((i) => getComputedStyle(i).maskPosition)")
    )
    size = tiles(page).first.evaluate("(a) => a.getBoundingClientRect().width")
    for place, mask in enumerate(masks):
        row, column = divmod(place, 4)
        x, y = (float(part.removesuffix("px")) for part in mask.split())
        assert (-x, -y) == pytest.approx((column * size, row * size), abs=0.6)


def check_bars(page: Page) -> None:
    """Bars are as long as their steps."""
    bars = page.locator("[data-wall] td:not(.lay) > b")
    assert bars.count() == 8
    widths = bars.evaluate_all("found => found.map((b) => b.getBoundingClientRect().width)")
    steps_of = [int(name.split()[0].removeprefix("w")) for name in each(bars, "class")]
    cell_width = page.locator("[data-wall] tbody td").first.evaluate("(td) => td.clientWidth")
    for step, width in zip(steps_of, widths, strict=True):
        assert width == pytest.approx(
            min(step / 20 * cell_width, cell_width), abs=cell_width * 0.15
        )


def test_without_scripts_the_live_sentence_is_drawn_for_its_word(encoder_site: Site) -> None:
    page, live = plain(encoder_site.folder / "index.html"), live_of(encoder_site)
    assert page.one("[data-chosen]").text == live.keys.pieces[live.word]
    for family in live.families:
        weights = family.mean[:, live.word]
        cells = page.all(f'.roll tr[data-family="{family.family}"] td i')
        assert [int(cell.attributes["class"].removeprefix("o")) for cell in cells] == [
            round(10 * min(1.0, 2 * float(weight)) ** 0.5) for weight in weights
        ]
    assert len(page.one("[data-wall]").all("td a.map")) == 8
    assert page.one(".turn").is_hidden
