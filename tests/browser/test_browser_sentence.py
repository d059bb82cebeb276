"""The workspace of a sentence in a browser: it shows the study's numbers, its address tells all."""

import re
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Locator, Page, expect

import headbook
import naive_sentences as naive
import tiny
from browser import Open
from browser_plain import plain
from browser_views import cells, choose, map_of, pair, picture, ranked, ready, switch, tile, word
from headbook.charts.theme import coarse, ink_steps, rgba_ramp
from headbook.pages.parts import sentence_maps
from headbook.results.formats import head_name
from headbook.schema import HeadName, heads_of
from naive_sentences import written
from sites import Site, make_study

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

SENTENCE = "sentences/0001.html"
VIEWS = ("raw", "nosink", "renorm", "norm")
PLACES = [
    ("encoder", "self"),
    ("decoder", "self"),
    pytest.param("pair", "cross", marks=pytest.mark.slow),
]


def address(page: Page) -> dict[str, list[str]]:
    """What the address holds."""
    return parse_qs(urlparse(page.url).fragment)


@pytest.mark.parametrize(("kind", "stack"), PLACES)
def test_ranked_weights_are_those_of_the_study(
    request: pytest.FixtureRequest, open_page: Open, kind: str, stack: str
) -> None:
    """From a query and to a key, in every view, by subword tokens and by words."""
    site: Site = request.getfixturevalue(f"{kind}_site")
    page = open_page(site.folder / SENTENCE)
    choose(page, head_name(HeadName(stack, 1, 2)))
    head_map = map_of(site, stack, 1, 2)
    for view, units in [(view, units) for view in VIEWS for units in ("pieces", "words")]:
        switch(page, view=view, units=units)
        values = np.array(naive.weights(head_map, view, units))
        for names, line, place in (
            (naive.names(head_map.keys, units), values[1], (1, "")),
            (naive.names(head_map.queries, units), values[:, 1], ("", 1)),
        ):
            pair(page, *place)
            rows = [[f"{k} {names[k]}", written(line[k])] for k in naive.ranked([*line])]
            seen = ranked(page)
            if view == "norm":  # lengths in a page's data have four digits
                assert [len(seen), *sorted(t for t, _ in seen)] == [
                    len(rows),
                    *sorted(t for t, _ in rows),
                ]
                wanted = {token: float(value) for token, value in rows}
                assert all(abs(float(v) - wanted[t]) < 0.011 for t, v in seen)
            else:
                assert seen == rows or (not rows and len(seen) == 1)


def test_rows_can_be_those_of_the_word_about_to_be_written(
    pair_site: Site, encoder_site: Site, open_page: Open
) -> None:
    """A token has the row that predicts it; nothing predicts the first one."""
    page = open_page(pair_site.folder / SENTENCE)
    choose(page, head_name(HeadName("cross", 1, 2)))
    head_map = map_of(pair_site, "cross", 1, 2)
    values = np.array(naive.weights(head_map, "raw", "pieces"))
    switch(page, view="raw", units="pieces", rows="written")
    for query in (1, 2, 3):
        pair(page, query, "")
        line = values[query - 1]
        assert ranked(page) == [
            [f"{k} {head_map.keys.pieces[k]}", written(line[k])] for k in naive.ranked([*line])
        ]
    assert address(page)["rows"] == ["written"]
    without = open_page(encoder_site.folder / SENTENCE)
    expect(without.locator("select[data-switch=rows]")).to_have_count(0)


def test_small_maps_lists_and_masking_are_those_of_the_study(
    encoder_site: Site, open_page: Open
) -> None:
    """Every shade of small maps, the heads that attend most from a word, and masked tokens."""
    page = ready(open_page(encoder_site.folder / SENTENCE))
    see_every_shade(page, encoder_site)
    list_heads_by_weight(page, encoder_site)
    switch(page, view="raw")
    mask_special_tokens(page, encoder_site)


def list_heads_by_weight(page: Page, encoder_site: Site) -> None:
    """Without the word itself and without special tokens; masking changes nothing of that."""
    choose(page, "L0·H1")
    (stack,) = encoder_site.study.manifest.stacks
    found = []
    for head in heads_of(stack):
        head_map = map_of(encoder_site, *head)
        row = np.array(naive.weights(head_map, "raw", "pieces")[2])
        row[[*map(bool, head_map.keys.special)]] = 0
        row[2] = 0
        found.append((-float(row.max()), head, int(row.argmax())))
    pieces = head_map.keys.pieces
    wanted = [[f"{head_name(h)} → {pieces[k]}", written(-v)] for v, h, k in sorted(found)]
    word(page, 2).click()
    assert ranked(page, "others") == wanted
    switch(page, view="nosink")
    assert ranked(page, "others") == wanted


def test_a_map_docks_the_panel_and_escape_lets_it_go(encoder_site: Site, open_page: Open) -> None:
    page = open_page(encoder_site.folder / SENTENCE, viewport={"width": 1440, "height": 400})
    panel = choose(page, "L1·H2")
    expect(panel).to_have_css("position", "sticky")
    box = panel.bounding_box()
    assert box is not None
    assert abs(box["y"] + box["height"] - 400) <= 1
    expect(tile(page, "L1·H2")).to_have_attribute("aria-current", "true")
    page.keyboard.press("Escape")
    expect(panel).not_to_have_css("position", "sticky")
    assert address(page)["dock"] == ["0"]
    tile(page, "L0·H0").click()
    panel.get_by_role("button", name="Close").click()
    expect(panel).not_to_have_css("position", "sticky")
    expect(tile(page, "L0·H0")).to_be_focused()
    page.set_viewport_size({"width": 390, "height": 800})
    tile(page, "L0·H2").click()
    expect(panel).to_have_css("position", "static")


def mask_special_tokens(page: Page, encoder_site: Site) -> None:
    """Mask them in map, list, lines and small maps, whose columns are empty in every head."""
    choose(page, "L0·H2")
    image = page.locator(".field > img").first
    still = image.get_attribute("src") or ""
    stack = encoder_site.study.manifest.stack("self")
    head_map = map_of(encoder_site, "self", 0, 2)
    special = [k for k, is_special in enumerate(head_map.keys.special) if is_special]
    pair(page, 3)

    def named() -> set[int]:
        return {int(token.split()[0]) for token, _ in ranked(page)}

    assert named() >= {*special}
    page.get_by_label("mask special tokens").check()
    expect(image).not_to_have_attribute("src", still)
    assert not named() & {*special}
    lines = page.locator(".lines path").evaluate_all("(all) => all.map((e) => Number(e.dataset.k))")
    assert lines
    assert not {*lines} & {*special}
    left = np.array(naive.weights(head_map, "nosink", "pieces"))
    assert ((cells(page.locator(".dock"), left.shape)[..., 3] == 0) == np.isnan(left)).all()
    n = len(head_map.keys.pieces)
    alpha = picture(image.get_attribute("src") or "")[..., 3]
    tiles = alpha.reshape(len(stack.attention_layers), n + 1, stack.n_heads, n + 1)
    assert not tiles[:, :, :, special].any()
    assert tiles[:, :n, :, 1:-2].any()
    page.get_by_label("mask special tokens").uncheck()
    expect(image).to_have_attribute("src", still)


def see_every_shade(page: Page, encoder_site: Site) -> None:
    """See shades as scripts draw them; the file has a few, for readers without scripts."""
    drawn = picture(page.locator(".field > img").first.get_attribute("src") or "")
    maps = encoder_site.study.sentence_data.maps["self", 0]
    layers, heads, n, _ = maps.shape
    tiles = drawn.reshape(layers, n + 1, heads, n + 1, 4)[:, :n, :, :n].swapaxes(1, 2)
    steps = ink_steps(maps / 255)
    opacity = np.array(rgba_ramp())[..., 3]
    assert np.abs(tiles[..., 3].astype(int) - opacity[steps]).max() <= 6  # coarse ones up to 10
    file = encoder_site.folder / f"data/sentences/{SENTENCE[-9:-5]}-self.png"
    few = np.array(Image.open(file).convert("RGBA")).reshape(layers, n + 1, heads, n + 1, 4)
    few = few[:, :n, :, :n].swapaxes(1, 2)
    assert (few[..., 3] == opacity[coarse(steps)]).all()


def compare_two_heads(page: Page, encoder_site: Site) -> None:
    """Choose two heads, and read their difference."""
    panel = choose(page, "L1·H3")
    panel.get_by_label("Compare with").select_option(label="L0·H2")
    pair(page, 4)
    maps = [map_of(encoder_site, "self", 1, 3), map_of(encoder_site, "self", 0, 2)]
    one, other = (np.array(naive.weights(head_map, "raw", "pieces")) for head_map in maps)
    names = naive.names(maps[0].keys, "pieces")
    assert ranked(page) == [
        [f"{k} {names[k]}", f"{written(one[4][k])} · {written(other[4][k])}"]
        for k in naive.ranked([*one[4]])
    ]
    assert panel.locator(".pane h3").all_text_contents()[1:4] == [
        "A: L1·H3",
        "B: L0·H2",
        "Difference, A − B",
    ]
    assert page.locator(".over [aria-current]").count() == 2
    colours = cells(panel.locator(".difference"), one.shape).astype(int)
    warm = colours[..., 0] - colours[..., 2]  # B is larger: orange; A: blue
    size = np.abs(one - other) > 0.05
    assert (np.sign(warm[size]) == np.sign(other - one)[size]).all()
    key = int(np.argmax(one[4]))
    reported = f"L1·H3 {written(one[4][key])}, L0·H2 {written(other[4][key])}; difference "
    expect(panel.locator(".status")).to_contain_text(reported)


def test_the_address_alone_brings_the_view_back(encoder_site: Site, open_page: Open) -> None:
    """Heads, word, direction, masking: on reload and in another window; Back goes step by step."""
    page = open_page(encoder_site.folder / SENTENCE)
    first = page.url
    panel = choose(page, "L1·H2")
    panel.get_by_label("Compare with").select_option(label="L0·H3")
    page.get_by_role("button", name="key (what attends to it)").click()
    word(page, 2).click()
    page.get_by_label("mask special tokens").check()

    def seen(page: Page) -> list[object]:
        ready(page)
        return [
            page.locator(".dock [data-title]").text_content(),
            page.locator(".words [aria-pressed=true]").evaluate_all(
                "(e) => e.map((t) => t.dataset.i)"
            ),
            page.locator(".turn [data-direction][aria-pressed=true]").text_content(),
            page.get_by_label("mask special tokens").is_checked(),
            ranked(page),
        ]

    before = seen(page)
    assert before[:4] == ["A: L1·H2 B: L0·H3", ["2"], "key (what attends to it)", True]
    page.reload()
    assert seen(page) == before
    other = open_page(encoder_site.folder / "index.html")
    other.goto(page.url)
    assert seen(other) == before
    steps = []
    for _ in range(5):
        page.go_back()
        page.wait_for_timeout(50)
        steps.append(seen(page)[:4])
    assert steps[0] == ["A: L1·H2 B: L0·H3", ["2"], "key (what attends to it)", False]
    assert [step[2] for step in steps[1:3]] == [
        "key (what attends to it)",
        "query (where it attends)",
    ]
    assert steps[3][0] == "L1·H2"
    assert page.url == first


def test_a_head_is_pointed_at_and_compared(encoder_site: Site, open_page: Open) -> None:
    page = open_page(encoder_site.folder / SENTENCE, viewport={"width": 1440, "height": 900})
    point_near_cells_and_lines(page, encoder_site)
    compare_two_heads(page, encoder_site)


def point_near_cells_and_lines(page: Page, encoder_site: Site) -> None:
    """Point a few pixels beside a cell or a line, which means it, and far away."""
    panel = choose(page, "L0·H2")
    pair(page, 3)
    canvas, status = panel.locator("canvas.cells").first, panel.locator(".status")
    row = naive.weights(map_of(encoder_site, "self", 0, 2), "raw", "pieces")
    left, top, size = map(float, (canvas.get_attribute("data-grid") or "").split())
    n = len(row)
    canvas.hover(position={"x": left + n * size + 8, "y": top + 1.5 * size})
    expect(status).to_contain_text(
        re.compile(rf"^1 .* attends to {n - 1} .*: {written(row[1][-1])}$")
    )
    line = panel.locator(".lines path.on").last
    at = line.evaluate(
        """(path) => {
          const { x, y } = path.getPointAtLength(path.getTotalLength() * 0.2);
          const box = path.ownerSVGElement.getBoundingClientRect();
          return [box.x + x, box.y + y, Number(path.dataset.q), Number(path.dataset.k)];
        }"""
    )
    page.mouse.move(at[0], at[1] + 1)
    expect(status).to_have_text(re.compile(r"^\d+ .* attends to \d+ "))
    expect(panel.locator(".lines path.near")).to_have_count(1)
    page.mouse.move(at[0] - 1000 if at[0] > 1200 else 1, 1)
    expect(panel.locator(".lines path.near")).to_have_count(0)


def choose_words_of_two_texts(page: Page, pair_site: Site) -> None:
    """Choose a word of the target, which is a query, and one of the source, a key."""
    choose(page, "cross L1·H2")
    head_map = map_of(pair_site, "cross", 1, 2)
    values = np.array(naive.weights(head_map, "raw", "pieces"))
    word(page, 3, side=1).click()
    assert [float(v) for _, v in ranked(page)] == [
        round(v, 2) for v in sorted(values[3], reverse=True)
    ]
    word(page, 2, side=0).click()
    expect(page.locator(".pane.ranked h3")).to_contain_text("What attends to")
    assert [float(v) for _, v in ranked(page)] == [
        round(v, 2) for v in sorted(values[:, 2], reverse=True)
    ]
    assert address(page)["k"] == ["2"]


@pytest.mark.parametrize("kind", ["encoder", pytest.param("pair", marks=pytest.mark.slow)])
def test_nearest_tokens_follow_the_word(
    request: pytest.FixtureRequest, open_page: Open, kind: str
) -> None:
    """Every choice shows the first five rows of the study's table, layer by layer."""
    site: Site = request.getfixturevalue(f"{kind}_site")
    page = ready(open_page(site.folder / SENTENCE))
    near = site.study.nearest
    near = near[(near["sentence"] == 1) & (near["rank"] <= 5) & (near["position"] == 1)]
    for box in page.locator("[data-entries]").all():
        stack = box.get_attribute("data-entries")
        choose(page, head_name(HeadName(str(stack), 0, 0)))
        word(page, 1, side=int(stack == "decoder")).click()
        rows = near[near["stack"] == stack]
        select = box.get_by_role("combobox")
        for choice in select.locator("option").all_text_contents():
            select.select_option(choice)
            state = "mid" if "(mid)" in choice or "after attention" in choice else "out"
            lens = choice.startswith("logit lens")
            mine = rows[(rows["state"] == state) & ((rows["space"] == "logits") == lens)]
            mine = mine.sort_values(["layer", "rank"])
            spaces = [m for _, m in mine.groupby("space") if len(m)]
            expect(box.locator("tbody tr")).to_have_count(mine["layer"].nunique())
            texts = [text.strip() for text in box.locator("td bdi").all_text_contents()]
            assert texts in [[str(n).strip() for n in m["neighbour"]] for m in spaces]


def test_paths_light_up_and_keys_go_through_maps_words_and_weights(
    encoder_site: Site, open_page: Open
) -> None:
    page = ready(open_page(encoder_site.folder / SENTENCE))
    light_up_paths(page)
    page.goto("about:blank")
    page.goto((encoder_site.folder / SENTENCE).as_uri())
    go_by_keys(ready(page))


def light_up_paths(page: Page) -> None:
    """Light the chosen word's, or the one that is pointed at or has the focus; Enter chooses."""
    word(page, 3).click()
    figure = page.locator("figure.paths").first
    expect(figure.locator("g.on")).to_have_attribute("data-i", "3")
    n = page.locator(".words button").count()
    assert figure.locator("g[data-i]").count() == n
    assert figure.locator(".hit").first.evaluate("(e) => getComputedStyle(e).strokeWidth") == "12px"
    group = figure.locator('g[data-i="5"]')
    group.dispatch_event("pointerenter")
    expect(group).to_have_class(re.compile(r"\bon\b"))
    group.dispatch_event("pointerleave")
    expect(figure.locator("g.on")).to_have_attribute("data-i", "3")
    group.focus()
    page.keyboard.press("Enter")
    expect(word(page, 5)).to_have_attribute("aria-pressed", "true")
    *titles, joint = figure.get_by_label("Measure").locator("option").all_text_contents()
    for title in titles:
        figure.get_by_label("Measure").select_option(title)
        expect(figure.locator("svg")).to_have_attribute(
            "aria-label", re.compile(f"^{re.escape(title)},")
        )
    places = figure.locator("g text").evaluate_all(
        "(all) => all.map((e) => Number(e.getAttribute('y')))"
    )
    assert min(np.diff(sorted(places))) >= 12.5
    see_one_token(page, figure, joint)


def see_one_token(page: Page, figure: Locator, joint: str) -> None:
    """See cosine, neighbours and rank of the chosen token in one chart, which follows the word."""
    figure.get_by_label("Measure").select_option(joint)
    lines = figure.locator("path.mean")
    expect(lines).to_have_count(3)
    for i in (5, 2):
        word(page, i).click()
        name = re.escape(str(word(page, i).text_content()).strip())
        label = re.compile(f"^{name}: ")
        expect(figure.locator("svg")).to_have_attribute("aria-label", label)
    expect(figure.locator("[data-summary]")).to_contain_text("log scale")


def test_paths_and_words_choose_in_their_own_text_of_two(pair_site: Site, open_page: Open) -> None:
    """Each text has paths, which choose no token at the same place of the other text."""
    page = ready(open_page(pair_site.folder / SENTENCE))
    for side, stack in enumerate(("encoder", "decoder")):
        figure = page.locator(f'figure[data-paths="{stack}"]')
        figure.locator('g[data-i="2"]').focus()
        page.keyboard.press("Enter")
        expect(word(page, 2, side=side)).to_have_attribute("aria-pressed", "true")
        expect(word(page, 2, side=1 - side)).to_have_attribute("aria-pressed", "false")
        expect(figure.locator("g.on")).to_have_attribute("data-i", "2")
    choose_words_of_two_texts(page, pair_site)


def test_without_scripts_a_head_and_its_lists_stand_there(encoder_site: Site) -> None:
    page = plain(encoder_site.folder / SENTENCE)
    assert page.one(".pane.js").is_hidden
    for pane in ("matrix", "ranked", "others"):
        assert not page.one(f"[data-{pane}]").is_hidden
    assert page.all("[data-ranked] li")
    assert len(page.all("[data-others] li")) == 8
    assert page.all("[data-entries] tbody tr")
    assert page.one("noscript p").text
    assert not page.one(".maps img").is_hidden


def go_by_keys(page: Page) -> None:
    """Go from map to map, from word to word and from weight to weight."""
    tile(page, "L0·H0").focus()
    for key, name in (("ArrowRight", "L0·H1"), ("ArrowDown", "L1·H1"), ("End", "L1·H3")):
        page.keyboard.press(key)
        expect(tile(page, name)).to_be_focused()
    assert page.locator(".over button[tabindex='0']").count() == 1
    page.keyboard.press("Enter")
    expect(page.locator(".dock [data-title]")).to_have_text("L1·H3")
    word(page, 1).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(word(page, 2)).to_have_attribute("aria-pressed", "true")
    canvas = page.locator(".dock canvas.cells").first
    canvas.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".dock .status")).to_contain_text(re.compile(r"^3 .* attends to 1 "))
    page.keyboard.press("Enter")
    assert (address(page)["q"], address(page)["k"]) == (["3"], ["1"])


def test_a_map_without_numbers_leads_to_its_head(
    monkeypatch: pytest.MonkeyPatch, small_site: Site, open_page: Open, tmp_path: Path
) -> None:
    monkeypatch.setattr(sentence_maps, "MOST_BYTES", 0)
    out = tmp_path / "site"
    headbook.render(small_site.study, out, processes=1)
    page = open_page(out / SENTENCE)
    assert page.locator(".dock").count() == 0
    page.locator(".over a").nth(6).click()
    page.wait_for_url("**/heads/L01-H02.html")


def test_pages_of_cited_sentences_work_alike(encoder_site: Site, open_page: Open) -> None:
    """With the heads that cite them, one by one."""
    study = encoder_site.study
    cited = next(s for s in study.sentence_data.paged if not s.listed)
    page = ready(open_page(encoder_site.folder / f"sentences/{cited.number:04}.html"))
    links = page.locator(".cited a")
    heads = sorted({e.head for e in study.sentence_data.by_weight if e.index == cited.index})
    assert links.all_text_contents() == [head_name(head) for head in heads]
    links.last.click()
    expect(page.locator(".dock [data-title]")).to_have_text(head_name(heads[-1]))
    own = next(
        e for e in study.sentence_data.exemplars if (e.head, e.index) == (heads[-1], cited.index)
    )
    word(page, 1).click()
    values = sorted(own.attention[1] / 255, reverse=True)
    assert [float(v) for _, v in ranked(page)] == [round(float(v), 2) for v in values]


HEBREW = ("הילד ראה כלב גדול ליד הבית", "הבית היה ישן")


@pytest.fixture(scope="module")
def hebrew(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of two sentences that are written from right to left."""
    folder = tmp_path_factory.mktemp("hebrew")
    (folder / "texts.txt").write_text("\n".join(HEBREW), encoding="utf-8")
    model = tiny.write("bert", folder / "model")
    study = make_study(folder / "texts.txt", model, metrics="attention_distance", control="none")
    headbook.render(study, folder / "site")
    return folder / "site"


def test_words_run_from_right_to_left_where_their_letters_do(hebrew: Path, open_page: Open) -> None:
    """With scripts, which make words buttons, as without; arrow keys follow."""
    still = open_page(hebrew / SENTENCE, java_script_enabled=False)
    direction = "(line) => getComputedStyle(line).direction"
    assert still.locator(".words .text").evaluate(direction) == "rtl"
    page = ready(open_page(hebrew / SENTENCE))
    line = page.locator(".words .text")
    assert line.evaluate(direction) == "rtl"
    words = page.locator(".words button")
    boxes = [each.bounding_box() for each in words.all()]
    places = [box["x"] for box in boxes if box]
    assert len(places) == len(boxes) > len(HEBREW[0].split())
    assert places == sorted(places, reverse=True)
    line_box = line.bounding_box()
    assert line_box
    assert places[0] > line_box["x"] + line_box["width"] - 100
    words.nth(1).focus()
    page.keyboard.press("ArrowLeft")
    expect(words.nth(2)).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(words.nth(1)).to_be_focused()
