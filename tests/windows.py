"""Windows of a headless browser for tests, in which nothing may go wrong unnoticed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from browser import WIDE, Open, Record, launch


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One browser for all tests of a worker."""
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture
def record() -> Record:
    """What the pages of a test say and ask for."""
    return Record()


@pytest.fixture
def open_page(chromium: Browser, record: Record) -> Iterator[Open]:
    """Open a file in a window of its own; in the end no page may have complained.

    Options are those of a Playwright context, such as ``color_scheme``.
    """
    contexts = []

    def opened(file: Path, **options: Any) -> Page:
        context = chromium.new_context(**({"viewport": WIDE} | options))
        contexts.append(context)
        context.set_default_timeout(20_000)
        page = context.new_page()
        record.watch(page)
        page.goto(file.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    record.check()
