"""Maps by what they carry, in a browser: weights times lengths of values, over the largest."""

import numpy as np
import pytest
from playwright.sync_api import expect

from browser import Open
from sites import Site
from test_browser_maps import check_canvas

pytest_plugins = ["windows"]
pytestmark = pytest.mark.browser


def test_the_chosen_map_changes_to_what_is_carried_and_back(
    encoder_site: Site, open_page: Open
) -> None:
    study = encoder_site.study
    (stack,) = study.manifest.stacks
    maps, norms = study.portrait.maps[stack.name, 0], study.portrait.norms[stack.name, 0]
    pieces = study.portrait.sentences[0].texts[stack.keys].pieces
    page = open_page(encoder_site.folder / "sentences/0001.html")
    layer, head = 1, 2
    page.get_by_role("link", name=f"L{layer}·H{head}", exact=True).first.click()
    canvas, status = page.locator("canvas"), page.locator(".full .status")
    check_canvas(canvas, status, (pieces, pieces), maps[layer, head])
    page.locator("[data-carried]").check()
    expect(page.locator(".maptitle")).to_contain_text("by what is carried")
    carried = maps[layer, head] * norms[layer, head].astype(float)
    steps = np.rint(255 * carried / carried.max())
    check_canvas(page.locator("canvas"), page.locator(".full .status"), (pieces, pieces), steps)
    page.locator("[data-carried]").uncheck()
    expect(page.locator(".maptitle")).to_have_text(f"L{layer}·H{head}")
