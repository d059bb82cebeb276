"""Pages in headless Chromium, and a record of everything that goes wrong there."""

import os
import shutil
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Error,
    Locator,
    Page,
    Playwright,
    Request,
)

# The shell has no window around its pages: a third less work for the processor.
INSTALLED = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-background-networking"]
MISSING = "Executable doesn't exist"  # how Playwright says that it has no browser of its own
WIDE = {"width": 1280, "height": 800}
OWN = ("file:", "data:")  # what a page may ask for
AXE = {"preload": False, "resultTypes": ["violations"]}
# Pages have few colours, each of which axe reads anew for every element: a third of its time.
COLOURS_ONCE = """(() => {
  const colour = axe.commons.color.Color.prototype, parse = colour.parseString, known = new Map();
  colour.parseString = function (text) {
    const seen = known.get(text);
    if (seen) [this.r, this.g, this.b, this.alpha] = seen;
    else parse.call(this, text);
    known.set(text, [this.r, this.g, this.b, this.alpha]);
    return this;
  };
})();
"""
LIGHT, DARK = "rgb(255, 255, 255)", "rgb(22, 24, 28)"  # of paper
# Less than the width of a short word, and higher than two lines.
CRAMPED = """() => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
  const blocks = [...document.querySelectorAll("header *, nav *, main *, footer *")].filter((e) => {
    const { width, height } = e.getBoundingClientRect();
    const style = getComputedStyle(e);
    const text = [...e.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE);
    return text.map((node) => node.data).join("").trim().length > 7 && width && height
      && style.display !== "inline" && style.writingMode === "horizontal-tb"
      && !e.closest("svg, select, table, .scroll")
      && ((width < 48 && height > 60)
        || (e.scrollWidth > e.clientWidth + 4 && style.overflowX === "visible"));
  });
  return blocks.map((e) => `${e.outerHTML.slice(0, 100)} ${e.clientWidth}x${e.clientHeight}`);
}"""

Open = Callable[..., Page]


@dataclass
class Record:
    """What pages said and asked for.

    Attributes:
        complaints: lines of the console, whatever their level, and uncaught errors.
        requests: addresses, in order.
    """

    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def observe(self, page: Page) -> None:
        """Note what happens on a page from now on."""
        page.on("console", self._line)
        page.on("pageerror", self._error)
        page.on("request", self._request)

    def leave(self, page: Page) -> None:
        """Note no more of it."""
        page.remove_listener("console", self._line)
        page.remove_listener("pageerror", self._error)
        page.remove_listener("request", self._request)

    def _line(self, message: ConsoleMessage) -> None:
        self.complaints.append(f"{message.type}: {message.text}")

    def _error(self, error: Error) -> None:
        self.complaints.append(str(error))

    def _request(self, request: Request) -> None:
        self.requests.append(request.url)

    def check(self) -> None:
        """Nothing was said, and nothing asked of the network."""
        foreign = [address for address in self.requests if not address.startswith(OWN)]
        assert not self.complaints + foreign, self.complaints + foreign


class Windows:
    """Windows that tests use one after the other, as a new one takes longer than most pages.

    What a test has changed does not reach the next. What cannot be taken back, as scripts that run
    before those of a page, is for a window that is `alone`.
    """

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.free: dict[str, list[Page]] = defaultdict(list)
        self.taken: dict[Page, dict[str, Any]] = {}

    def take(self, **options: Any) -> Page:
        """Return an empty page in a window of its own, with the options of a Playwright context.

        A window that is ``alone`` is closed afterwards.
        """
        free = self.free[_key(options)]
        page = free.pop() if free else self._opened(**options)
        self.taken[page] = options
        return page

    def _opened(self, *, alone: bool = False, **options: Any) -> Page:
        context = self.browser.new_context(**({"viewport": WIDE} | options))
        context.set_default_timeout(20_000)
        return context.new_page()

    def give_back(self, page: Page) -> None:
        """Make a window as good as new; close it if it is alone or its page does not answer."""
        options = self.taken.pop(page)
        try:
            if page.context.pages != [page] or options.keys() & {"alone", "permissions"}:
                page.context.close()
                return
            page.evaluate("localStorage.clear(), sessionStorage.clear()")
            page.goto("about:blank")
            page.set_viewport_size(options.get("viewport", WIDE))
            page.emulate_media(
                media="null",
                color_scheme=options.get("color_scheme", "light"),
                reduced_motion=options.get("reduced_motion", "no-preference"),
            )
            page.unroute_all()
            page.mouse.move(0, 0)
            page.context.clear_cookies()
        except Error:
            page.context.close()
        else:
            self.free[_key(options)].append(page)


def _key(options: dict[str, Any]) -> str:
    return repr(sorted(options.items()))


def launch(playwright: Playwright) -> Browser:
    """Return the system's browser, else Playwright's own.

    Without any, tests are skipped; in continuous integration they fail.
    """
    text = next(filter(None, map(shutil.which, INSTALLED)), None)
    try:
        return playwright.chromium.launch(executable_path=text, args=ARGUMENTS)
    except Error as error:
        if text or MISSING not in error.message or os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no browser: neither {', '.join(INSTALLED)} nor Playwright's own")


def violations(page: Page, *rules: str) -> list[str]:
    """Return violations that axe finds on a page, by all rules or some: rule, element and why."""
    options = AXE | ({"runOnly": [*rules]} if rules else {})
    axe = Axe(Axe().axe_script + COLOURS_ONCE)
    results = axe.run(page, options=options)
    return [
        f"{rule['id']}: {node['html'][:120]} {_why(node)}"
        for rule in results.response["violations"]
        for node in rule["nodes"]
    ]


def _why(node: dict[str, Any]) -> str:
    checks = [check["message"] for kind in ("any", "all", "none") for check in node[kind]]
    return "; ".join(checks)


def each(found: Locator, name: str) -> list[str]:
    """Return an attribute of each element, empty where it lacks it."""
    values: list[str] = found.evaluate_all(
        "(found, name) => found.map((each) => each.getAttribute(name) ?? '')", name
    )
    return values


def background(page: Page) -> str:
    """Return the colour behind the text."""
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def sideways(page: Page, width: int) -> int:
    """How many pixels a page is wider than a window of some width."""
    page.set_viewport_size({"width": width, "height": 800})
    return int(page.evaluate("document.documentElement.scrollWidth - innerWidth"))


def cramped(page: Page) -> list[str]:
    """Blocks whose text runs out of them or is squeezed into a column, folded parts unfolded."""
    return [str(block) for block in page.evaluate(CRAMPED)]
