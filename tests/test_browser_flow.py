"""Maps by what they carry, in a browser: weights times lengths of values, as shares of rows."""

import numpy as np
import pytest
from playwright.sync_api import expect

from browser import Open
from panels import cells, strength, switch
from sites import Site
from test_browser_maps import check_canvas

pytest_plugins = ["windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]


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
    box = page.locator(".full")
    check_canvas(box, (pieces, pieces), maps[layer, head])
    switch(page, view="norm")
    expect(box).to_contain_text("each weight times the length of its value after W_O")
    carried = maps[layer, head] * norms[layer, head].astype(float)
    shares = carried / carried.sum(1, keepdims=True)
    shades = strength(cells(box, shares.shape)).ravel()
    assert (np.diff(shades[np.argsort(shares, axis=None)]) > -3).all()  # colours are rounded
    assert np.ptp(shades) > 70 * np.ptp(shares)
    switch(page, view="raw")
    page.keyboard.press("Escape")
    check_canvas(box, (pieces, pieces), maps[layer, head])
