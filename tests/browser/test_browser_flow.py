"""Maps by what they carry, in a browser: weights times lengths of values, as shares of rows."""

import numpy as np
import pytest
from playwright.sync_api import expect
from test_browser_exemplars import opened
from test_browser_maps import check_canvas

from browser import Open
from browser_views import cells, strength, switch
from headbook.schema import HeadName
from sites import Site

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_the_map_changes_to_what_is_carried_and_back(encoder_site: Site, open_page: Open) -> None:
    box, head_map = opened(encoder_site, open_page, HeadName("self", 1, 2))
    pieces, weights = head_map.keys.pieces, np.array(head_map.steps)
    home = int(box.get_attribute("data-looks") or ""), int(box.get_attribute("data-looked") or "")
    check_canvas(box.locator("[data-full]"), (pieces, pieces), weights, home)
    switch(box.page, view="norm")
    expect(box).to_contain_text("‖αvW_O‖, as a share of its row")
    carried = weights * np.array(head_map.norms)
    shares = carried / carried.sum(1, keepdims=True)
    shades = strength(cells(box, shares.shape)).ravel()
    assert (np.diff(shades[np.argsort(shares, axis=None)]) > -3).all()  # colours are rounded
    assert np.ptp(shades) > 70 * np.ptp(shares)
    switch(box.page, view="raw")
    box.page.keyboard.press("Escape")
    check_canvas(box.locator("[data-full]"), (pieces, pieces), weights, home)
