"""What the web asks of a site beside its pages: a picture for previews, addresses, a sitemap."""

from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

import numpy as np

from headbook.charts.base import images
from headbook.charts.base.ink import DIVERGING, colours
from headbook.pages.parts.cells import COLOUR_STEPS
from headbook.pages.parts.grid import Grid, grid
from headbook.pages.parts.page import Page
from headbook.report.numbers.results import StackResults

PREVIEW = "assets/preview.png"
PALETTE = colours(COLOUR_STEPS) + colours(COLOUR_STEPS, DIVERGING)  # of the picture
MISSING = "404.html"  # the page that a server shows for a wrong address
SITEMAP = "http://www.sitemaps.org/schemas/sitemap/0.9"  # its name by the protocol


def base(url: str | None) -> str:
    """The address of a site's folder with a slash at its end; empty where it is not known."""
    return f"{url.rstrip('/')}/" if url else ""


def address(base: str, path: str) -> str:
    """Where a page stands on the web; the first page stands at the folder itself."""
    return base + ("" if path == "index.html" else path)


def root(base: str, page: Page) -> str:
    """The way from a page to the site's root.

    The page for wrong addresses is shown at any depth, so its way begins at the host, where that
    is known.
    """
    return urlsplit(base).path if base and page.path == MISSING else page.root


def web_files(base: str, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Names and texts of the files for search engines; none without an address.

    ``robots.txt`` is read only at the root of a host, so a site below a path has none.
    """
    if not base:
        return
    places = (escape(address(base, path)) for path in sorted(paths) if path != MISSING)
    urls = "".join(f"<url><loc>{place}</loc></url>\n" for place in places)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    yield "sitemap.xml", f'{head}<urlset xmlns="{SITEMAP}">\n{urls}</urlset>\n'
    if urlsplit(base).path == "/":
        yield "robots.txt", f"User-agent: *\nAllow: /\nSitemap: {base}sitemap.xml\n"


def preview(results: Mapping[str, StackResults]) -> tuple[bytes, str]:
    """The grids of all heads as a picture for links to the site, and what it shows in words.

    Returns:
        A PNG; no bytes where there are no numbers of heads.
    """
    grids = [result.once(grid) for result in results.values() if result.metrics]
    if not grids:
        return b"", ""
    description = "; ".join(f"All heads, {each.title}: {each.caption}" for each in grids)
    return images.banner([_steps(each) for each in grids], PALETTE), description


def _steps(stack_grid: Grid) -> images.Map:
    """Colours of a grid's cells in `PALETTE`, counted from 1; 0 where a value is missing."""
    first = 1 + (COLOUR_STEPS if stack_grid.ink == "d" else 0)
    steps = np.array([[cell.step for cell in cells] for _, cells in stack_grid.rows])
    return np.where(steps < 0, 0, first + steps).astype(np.uint8)
