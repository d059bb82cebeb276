"""Windows of a headless browser for tests, in which nothing may go wrong unnoticed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from browser import Open, Record, Windows, launch

# Pages load their numbers as scripts; beside other tests, a busy machine takes seconds for one.
expect.set_options(timeout=20_000)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One browser for all tests of a worker."""
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def windows(chromium: Browser) -> Windows:
    """Return the windows of a worker."""
    return Windows(chromium)


@pytest.fixture
def record() -> Record:
    """Return the console messages and requests of the pages of a test."""
    return Record()


@pytest.fixture
def open_page(windows: Windows, record: Record) -> Iterator[Open]:
    """Open a file in a window of its own; in the end no page may have complained.

    Options are those of `Windows.take`, such as ``color_scheme``.
    """
    taken = []

    def opened(file: Path, **options: Any) -> Page:
        taken.append(page := windows.take(**options))
        record.observe(page)
        page.goto(file.as_uri())
        return page

    yield opened
    for page in taken:
        record.leave(page)
        windows.give_back(page)
    record.check()
