"""A window that tests use one after the other is as a new one is."""

import pytest

from browser import WIDE, Windows
from sites import Site

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_a_window_that_is_used_again_remembers_nothing(windows: Windows, small_site: Site) -> None:
    """The theme of a visitor, as the site keeps it, and what a test has set."""
    address = (small_site.folder / "index.html").as_uri()
    page = windows.take(color_scheme="light")
    page.goto(address)
    page.get_by_role("button", name="Theme").click()
    assert page.evaluate("localStorage.length") > 0
    page.evaluate("sessionStorage.setItem('a', 'b')")
    page.set_viewport_size({"width": 390, "height": 800})
    page.emulate_media(media="print", color_scheme="dark", reduced_motion="reduce")
    windows.give_back(page)
    again = windows.take(color_scheme="light")
    assert (again, again.url) == (page, "about:blank")
    again.goto(address)
    assert again.evaluate("localStorage.length + sessionStorage.length") == 0
    assert again.evaluate("[innerWidth, innerHeight]") == [WIDE["width"], WIDE["height"]]
    for media in ("screen", "(prefers-color-scheme: light)", "not (prefers-reduced-motion)"):
        assert again.evaluate("(media) => matchMedia(media).matches", media), media
    windows.give_back(again)


def test_a_window_with_other_options_is_another(windows: Windows) -> None:
    page = windows.take(color_scheme="light")
    windows.give_back(page)
    other = windows.take()
    assert other is not page
    windows.give_back(other)


def test_a_window_that_is_alone_is_closed(windows: Windows) -> None:
    page = windows.take(alone=True)
    windows.give_back(page)
    assert page.is_closed()
    again = windows.take(alone=True)
    assert again is not page
    windows.give_back(again)
