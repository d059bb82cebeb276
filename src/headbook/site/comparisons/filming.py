"""From the film of a training to a folder of pages."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from headbook.comparison.film import Film
from headbook.pages.film.page import PICTURES, film_data, film_page, sheets
from headbook.pages.film.parts import HEADS, DrawnFilm
from headbook.pages.filmheads.page import heads_page
from headbook.pages.filmmeasure.page import MeasurePage, measure_pages
from headbook.pages.missing.page import missing_page
from headbook.pages.parts.menu import Entry
from headbook.pages.parts.page import Page, SiteFacts
from headbook.progress import Progress, Silent
from headbook.site import markup
from headbook.site.comparisons import frame
from headbook.site.export import METRIC, PLACE, Table
from headbook.site.pagewriter import PageWriter
from headbook.site.site import Summary

MENU: tuple[Entry, ...] = (("index.html", "Overview"), (HEADS, "All heads"), frame.DATA)
STEP = {
    "step": "the last number in the checkpoint's name; else its place in the order given",
    "checkpoint": "its revision, or folder",
}
HEAD = PLACE | {"head": "counted from 0"}
TABLES = {
    "film": Table(
        "The numbers of every head that a film follows, at every step.",
        STEP
        | HEAD
        | METRIC
        | {
            "value": "ratio of sums over sentences; empty where there is no observation",
            "low": "lower end of the 95 % confidence interval, clustered by sentence",
            "high": "upper end",
        },
    ),
    "half_rise": Table(
        "When the numbers of every head changed: the first step past the middle between the first "
        "and the last value.",
        HEAD
        | METRIC
        | {
            "first": "value at the first step",
            "last": "value at the last step",
            "change": "last minus first",
            "low": "lower end of the 95 % confidence interval of the change, paired by sentence",
            "high": "upper end",
            "step": "half-rise step; empty where the interval of the change holds 0, or there is "
            "none",
            "step_low": "lower end of the 95 % interval of the half-rise step, by drawing "
            "sentences; one of the steps",
            "step_high": "upper end",
            "clusters": "sentences behind it, or buckets of them",
        },
    ),
    "types": Table(
        "The type of every head at every step.",
        STEP
        | HEAD
        | {
            "family": "the first part of its name; empty where its numbers are missing",
            "type": "its whole name",
        },
    ),
}


def render_film(
    film: Film,
    out: str | Path,
    *,
    title: str = "",
    base_url: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Summary:
    """Write the site of a film; the bytes depend on the film and zlib alone.

    Args:
        title: of the site; by default it says how many checkpoints there are.

    Raises:
        OutputError: ``out`` may not be replaced or written.
        ResourceError: the process may not use enough memory.
    """
    title = title or f"Film of {len(film.frames)} checkpoints"

    def write(folder: Path, base: str) -> int:
        return _Writer(DrawnFilm(film), folder, title, base, progress or Silent()).write()

    return frame.render_site(Path(out), base_url, write, force=force)


@dataclass
class _Writer:
    """One site while it is being written."""

    reel: DrawnFilm
    folder: Path
    title: str
    base: str
    progress: Progress

    def write(self) -> int:
        """Write every file; returns the number of pages."""
        frame.begin(self.folder, self.reel.film.stacks, "film")
        (self.folder / PICTURES).mkdir(parents=True)
        self._write_data()
        self.progress.stage("pages", len(self._measures) + 4)
        film = self.reel.film
        tables = {name: (getattr(film, name), table) for name, table in TABLES.items()}
        return frame.write_pages(self._page_writer, self.base, self._pages(), tables, self.progress)

    def _pages(self) -> Iterator[Page]:
        yield film_page(self.reel, self.title)
        yield heads_page(self.reel)
        yield from self._measures
        yield missing_page()

    @cached_property
    def _measures(self) -> tuple[MeasurePage, ...]:
        return tuple(measure_pages(self.reel))

    @cached_property
    def _page_writer(self) -> PageWriter:
        manifest = self.reel.film.frames[0].manifest
        measures = tuple((page.path, page.title) for page in self._measures)
        return frame.page_writer(
            self.folder, self.base, self._facts, manifest, MENU, measures=measures
        )

    @property
    def _facts(self) -> SiteFacts:
        frames = self.reel.film.frames
        models = f"{frames[0].name} to {frames[-1].name} ({len(frames)} checkpoints)"
        return frame.facts(self.title, models, frames[0].manifest)

    def _write_data(self) -> None:
        for address, picture in sheets(self.reel):
            (self.folder / address).write_bytes(picture)
        self._page_writer.text("data/film.js", markup.script("film", film_data(self.reel)))
        manifests = [json.loads(each.manifest.to_json()) for each in self.reel.film.frames]
        table = {
            "headbook": manifests[0]["headbook"],
            "steps": self.reel.film.steps.tolist(),
            "checkpoints": [each.name for each in self.reel.film.frames],
            "studies": manifests,
        }
        text = json.dumps(table, sort_keys=True, indent=1)
        self._page_writer.text("data/manifest.json", text + "\n")
