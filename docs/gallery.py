"""Pictures of a site for README and gallery, and the text of the gallery.

Usage: python docs/gallery.py SITE PAIRS [--out docs]

SITE is what `headbook demo` wrote, PAIRS a site of `sample_inputs/nli.jsonl`. Pages are opened from
disk in Chromium, as they look at first; nothing is drawn that is not on them. `make gallery` builds
both sites and runs this.
"""

import argparse
import io
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd
from PIL import Image
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from headbook.results.formats import head_name, head_page
from headbook.schema import HeadName

Theme = Literal["light", "dark"]

INSTALLED = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-background-networking"]
WINDOW: ViewportSize = {"width": 1440, "height": 900}
WIDTH = 960  # of the gallery's pictures, in pixels
WAIT = 500  # ms after loading, for what scripts draw
CHOSEN_BY = "dependency_excess"  # the head with the most of it is shown


@dataclass(frozen=True)
class Shot:
    """A picture of the gallery: the first screen of a page.

    Attributes:
        name: of the file, without suffix.
        page: its address in the site; fields in braces are those of `subjects`.
        title, text: what stands above and below the picture.
        theme: light or dark.
        of_pairs: whether the page is one of the site of pairs.
    """

    name: str
    page: str
    title: str
    text: str
    theme: Theme = "light"
    of_pairs: bool = False


SHOTS = (
    Shot(
        "overview", "index.html", "Overview",
        "What the model is, up to four claims, a live sentence, and all heads as "
        "maps of their mean attention; below it the families of heads, which head does what, and "
        "the answers of all pages.",
    ),
    Shot(
        "head", "{head}", "Head",
        "{head_name}, the head whose attention aligns most with dependencies: what it does, its "
        "mean attention, attention by offset, its strongest exemplars. Further down: its place "
        "among all heads, relations, exemplars over the whole range, every number.",
    ),
    Shot(
        "sentence", "{sentence}", "Sentence",
        "A sentence in every head: maps, lines between tokens, every weight, token paths through "
        "the layers.",
    ),
    Shot(
        "heads", "heads.html", "Heads",
        "Which head does what; all heads by any number, to sort, filter and draw.",
    ),
    Shot(
        "tokens", "tokens.html", "Tokens",
        "Whether a word stays the same in every sentence: nearest vocabulary tokens that its "
        "occurrences share, what it becomes, and the mean path of every vocabulary token.",
    ),
    Shot(
        "syntax", "syntax.html", "Syntax",
        "For each relation the best head against the best surface rule, with a family-wise test; "
        "trees induced from attention.",
    ),
    Shot(
        "regions", "regions.html", "Two texts at once",
        "Which heads of an encoder attend from one text of a pair to the other, beyond what "
        "distance explains (24 pairs of premise and hypothesis).", of_pairs=True,
    ),
    Shot(
        "geometry", "geometry.html", "How words travel",
        "Whether tokens stay nearest to their own vocabulary token, kinds of words, context "
        "mixing, and the space of states.",
    ),
    Shot(
        "metric", "metrics/attention_distance.html", "Metric",
        "Each metric has a page: definition, source, all heads, all layers, all numbers.",
    ),
    Shot(
        "methods", "methods.html", "Methods",
        "Definitions, self-checks with the largest differences, model, options and versions.",
    ),
    Shot(
        "overview-dark", "index.html", "Dark theme",
        "Every page follows the system's theme, or the switch in its header.", "dark",
    ),
)  # fmt: skip

HEAD = """# Gallery

First screens of the sample site (64 sentences, the demo model, all-MiniLM-L6-v2) and of a site of
pairs, 1440 pixels wide, scaled down. Built by `make gallery`, which also writes this page.
"""


def subjects(site: Path) -> dict[str, str]:
    """Return the head and sentence to show: addresses of their pages, and name of the head."""
    heads = pd.read_csv(site / "data" / "heads.csv")
    best = heads[heads["metric"] == CHOSEN_BY].nlargest(1, "value").to_dict("records")[0]
    head = HeadName(best["stack"], best["layer"], best["head"])
    sentences = sorted((site / "sentences").glob("[0-9]*.html"))
    sentence = sentences[:3][-1].relative_to(site).as_posix()
    return {"head": head_page(head), "head_name": head_name(head), "sentence": sentence}


def text(displayed: Mapping[str, str]) -> str:
    """Return the gallery as Markdown."""
    parts = [HEAD]
    for shot in SHOTS:
        picture = f"![First screen: {shot.title.lower()}](gallery/{shot.name}.webp)"
        parts.append(f"## {shot.title}\n\n{picture}\n\n{shot.text.format_map(displayed)}\n")
    return "\n".join(parts)


def opened(browser: Browser, file: Path, theme: Theme) -> Page:
    """Return a page in a window of its own."""
    page = browser.new_context(viewport=WINDOW, color_scheme=theme).new_page()
    page.goto(file.resolve().as_uri())
    page.wait_for_timeout(WAIT)
    return page


def shoot(browser: Browser, site: Path, shot: Shot, displayed: Mapping[str, str]) -> Image.Image:
    """Return the first screen of a page, scaled down."""
    page = opened(browser, site / shot.page.format_map(displayed), shot.theme)
    image = Image.open(io.BytesIO(page.screenshot()))
    page.context.close()
    return image.resize((WIDTH, image.height * WIDTH // image.width), Image.Resampling.LANCZOS)


def make(site: Path, pairs: Path, out: Path, browser: Browser) -> None:
    """Write all pictures and the gallery below a folder; pictures there are replaced."""
    displayed = subjects(site)
    shutil.rmtree(out / "gallery", ignore_errors=True)
    (out / "gallery").mkdir(parents=True)
    for shot in SHOTS:
        image = shoot(browser, pairs if shot.of_pairs else site, shot, displayed)
        save(image, out / "gallery" / f"{shot.name}.webp")
    (out / "gallery.md").write_text(text(displayed), encoding="utf-8")


def save(image: Image.Image, file: Path) -> None:
    """Write a picture so that its text stays readable."""
    image.convert("RGB").save(file, quality=82, method=6)


def main() -> None:
    """Make the gallery of a site and of a site of pairs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("site", type=Path)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    given = parser.parse_args()
    found = next(filter(None, map(shutil.which, INSTALLED)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        make(given.site, given.pairs, given.out, browser)
        browser.close()


if __name__ == "__main__":
    main()
