"""A window that tests use one after the other is as a new one is."""

import pytest

from browser import Windows
from sites import Site

pytest_plugins = ["windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_a_window_that_is_used_again_remembers_nothing(windows: Windows, small_site: Site) -> None:
    """The theme of a visitor, as the site keeps it, and pages that stand open."""
    address = (small_site.folder / "index.html").as_uri()
    context = windows.take(color_scheme="light")
    page = context.new_page()
    page.goto(address)
    page.get_by_role("button", name="Theme").click()
    assert page.evaluate("localStorage.length") > 0
    windows.give_back(context, color_scheme="light")
    again = windows.take(color_scheme="light")
    assert (again, again.pages) == (context, [])
    page = again.new_page()
    page.goto(address)
    assert page.evaluate("localStorage.length + sessionStorage.length") == 0
    windows.give_back(again, color_scheme="light")
    other = windows.take()
    assert other is not again
    windows.give_back(other)
