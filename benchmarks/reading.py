"""How fast pages are written, and how soon a browser shows them.

Usage: python benchmarks/reading.py STUDY [--only write paint weigh]

STUDY is a folder that `headbook collect` wrote. `write` draws pages of heads and of sentences in
one process, without the first one, which loads libraries. `paint` renders the whole site and opens
the overview and a page of a head from disk in Chromium (Debian's, or Playwright's own), each
several times in a fresh context; the median counts. `weigh` renders the site and sums up its bytes.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

import headbook
from headbook.progress import NoProgress
from headbook.site.archive import pack
from headbook.site.export import sizes
from headbook.study.study import Study

TURNS = 7
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"


class Clock(NoProgress):
    """Notes the processor time whenever a page is done."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def advance(self, sentences: int, tokens: int) -> None:
        """Print that a page is done."""
        self.times.append(time.process_time())


def write(study: Study) -> dict[str, float]:
    """Pages a second and process, by processor time, which other work does not lengthen."""
    clock = Clock()
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        headbook.render(study, Path(folder) / "site", progress=clock)
        heads = len([*(Path(folder) / "site" / "heads").iterdir()])
    sentences = len(study.sentence_data.paged)
    # Sentences come last, heads before them; the list of sentences is one of the single pages.
    ends = len(clock.times) - sentences - heads, len(clock.times) - sentences, len(clock.times)
    for kind, start, end in zip(("head", "sentence"), ends, ends[1:], strict=False):
        if end - start > 1:
            seconds = clock.times[end - 1] - clock.times[start]
            found |= {f"{kind} pages": end - start}
            found |= {f"{kind} pages a second": (end - start - 1) / seconds}
    return found


def paint(study: Study) -> dict[str, float]:
    """Milliseconds from the start of loading to the first text, and to the end of loading."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        site = Path(folder) / "site"
        headbook.render(study, site, progress=NoProgress())
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-background-networking"],
        )
        head = min((site / "heads").iterdir())
        found: dict[str, float] = {}
        for name, file in {"overview": site / "index.html", "head page": head}.items():
            marks = [_marks(browser, file) for _ in range(TURNS)]
            first, whole, nodes = (statistics.median(each) for each in zip(*marks, strict=True))
            found |= {
                f"{name}, first paint, ms": first,
                f"{name}, loaded, ms": whole,
                f"{name}, elements": nodes,
                f"{name}, kB": file.stat().st_size / 1000,
            }
        browser.close()
    return found


def _marks(browser: Browser, file: Path) -> tuple[float, float, float]:
    """First paint, end of loading, and number of elements."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(file.as_uri(), wait_until="load")
    page.wait_for_timeout(200)
    marks = page.evaluate(PAINT), page.evaluate(LOADED)
    nodes = page.evaluate("document.querySelectorAll('*').length")
    context.close()
    return *marks, nodes


def weigh(study: Study) -> dict[str, float]:
    """Megabytes of the site by what they show, and of the same as one file."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        headbook.render(study, site, progress=NoProgress())
        for name, size in sizes(site).items():
            counts[_kind(Path(name))] += size
        one = pack(site, Path(folder) / "site.html", single_file=True).size
    kinds = {name: size / 1e6 for name, size in counts.most_common()}
    return {"all": counts.total() / 1e6, **kinds, "in one file": one / 1e6}


def _kind(name: Path) -> str:
    if len(name.parts) == 1:
        return "other pages"
    if name.parts[0] != "data":
        return name.parts[0]
    return "tables" if name.suffix != ".js" and len(name.parts) == 2 else f"{name.parent}"


PARTS = {"write": write, "paint": paint, "weigh": weigh}


def main() -> None:
    """Run the parts and print each as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("study")
    parser.add_argument("--only", nargs="*", default=[*PARTS])
    given = parser.parse_args()
    study = Study.load(given.study)
    for name in given.only:
        numbers = PARTS[name](study)
        print(json.dumps({name: {key: round(value, 1) for key, value in numbers.items()}}))  # noqa: T201


if __name__ == "__main__":
    main()
