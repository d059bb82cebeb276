"""What a site consists of: of one study, of two models, of a film.

Nothing here imports torch, transformers or spaCy.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from headbook import charts
from headbook.comparison.comparison import COMPARISON_TABLES, Comparison
from headbook.comparison.film import FILM_TABLES, Film
from headbook.comparison.head_pairs import (
    PairedStack,
    SharedSentence,
    listed_sentences,
    paired_stacks,
)
from headbook.errors import StudyError
from headbook.memory import check_address_space
from headbook.output_folder import OutputKind, check_output_folder, replace_folder, temporary_folder
from headbook.pages.about import about_page, missing_page
from headbook.pages.alignment import alignment_page
from headbook.pages.comparison.comparing import comparing_page
from headbook.pages.comparison.comparison import ComparisonPage, comparison_page
from headbook.pages.comparison.headpair import headpair_pages
from headbook.pages.comparison.matched import matched_page
from headbook.pages.comparison.metricpair import metric_pair_pages
from headbook.pages.comparison.parts import both_stacks
from headbook.pages.comparison.sentencepair import sentencepair_pages, sentencepairs_page
from headbook.pages.context import context_page
from headbook.pages.data import DataPage, data_page
from headbook.pages.film.film import PICTURES, film_data, film_page, sheets
from headbook.pages.film.filmheads import filmheads_page
from headbook.pages.film.filmmeasure import MeasurePage, measure_pages
from headbook.pages.film.parts import HEADS, DrawnFilm
from headbook.pages.flow import flow_page
from headbook.pages.geometry import geometry_page
from headbook.pages.groups import groups_page
from headbook.pages.head import head_pages
from headbook.pages.heads import heads_page
from headbook.pages.importance import importance_page
from headbook.pages.index import DRAWN, overview_page
from headbook.pages.methods import methods_page
from headbook.pages.metric import MetricPage, metric_pages, metrics_page, study_metrics
from headbook.pages.parts.page import EVERY, Entry, OptionalPage, Page, SiteFacts, always, menu
from headbook.pages.patterns import patterns_page
from headbook.pages.sentence import sentence_pages
from headbook.pages.sentences import sentences_page
from headbook.pages.similar import similar_page
from headbook.pages.speech import speech_page
from headbook.pages.syntax import syntax_page
from headbook.pages.tokens import types_page
from headbook.progress import NoProgress, Progress
from headbook.report.results import StackResults
from headbook.report.results import stack_results as results_of
from headbook.report.tables import STUDY_TABLES
from headbook.site import data_files, export, markup, writer
from headbook.site.assets import write_assets, write_runtime
from headbook.site.markup import script
from headbook.site.page_writer import PageWriter, site_address
from headbook.site.parallel import DrawingPool, default_processes
from headbook.site.writer import PARALLEL_FROM, TEXTS, WrittenSite, _draw, exported
from headbook.study.study import Study

COMPARISON_MENU: tuple[Entry, ...] = (("index.html", "Overview"), writer.DATA)
SENTENCES: Entry = ("sentences/index.html", "Sentences")
MATCHED: Entry = ("matched.html", "Matched heads")
METHODS: Entry = ("comparing.html", "Methods")


def render_comparison(
    comparison: Comparison,
    out: str | Path,
    *,
    base_url: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> WrittenSite:
    """Write the site of a comparison; the bytes depend on the comparison and zlib alone.

    Raises:
        OutputError: ``out`` may not be replaced or written.
        ResourceError: the process may not use enough memory.
    """

    def write(folder: Path, base: str) -> int:
        return _ComparisonSite(comparison, folder, base, progress or NoProgress()).write()

    return writer.render_site(Path(out), base_url, write, force=force)


@dataclass
class _ComparisonSite:
    """One site while it is being written."""

    comparison: Comparison
    folder: Path
    base: str
    progress: Progress

    def write(self) -> int:
        """Write every file; returns the number of pages."""
        studies = self.comparison.sides.a, self.comparison.sides.b
        stacks = [stack for study in studies for stack in study.manifest.stacks]
        writer.write_site_start(self.folder, stacks, "comparison")
        self._write_manifest()
        self.progress.stage("pages", self._expected)
        tables = [(table, table.build(self.comparison)) for table in COMPARISON_TABLES]
        return writer.write_pages(
            self._page_writer, self.base, self._pages(), tables, self.progress
        )

    def _pages(self) -> Iterator[Page]:
        for page in self._across:
            if isinstance(page, ComparisonPage):
                for path, picture in page.pictures:
                    (self.folder / path).write_bytes(picture)
            yield page
        yield missing_page()
        sides, listed = self.comparison.sides, self._listed
        cited = frozenset(each.a.index for each in listed)
        for paired in self._paired:
            for page, maps in headpair_pages(paired, cited):
                self._write_script(page.data, maps)
                yield page
        if listed:
            yield sentencepairs_page(sides, listed)
        for each, paths in sentencepair_pages(sides, self._paired, listed):
            self._write_script(each.data, paths)
            yield each

    def _write_script(self, path: str, value: Any) -> None:
        """What the scripts of a page read, where there is something."""
        if value:
            self._page_writer.text(path, script(Path(path).stem, value))

    @cached_property
    def _paired(self) -> tuple[PairedStack, ...]:
        return paired_stacks(self.comparison)

    @cached_property
    def _listed(self) -> tuple[SharedSentence, ...]:
        return listed_sentences(self.comparison.sides, self._paired)

    @property
    def _expected(self) -> int:
        """How many pages there will be, for the progress bar."""
        alone = len(self._across) + 2  # and those for files and for wrong addresses
        heads = sum(len(paired.pairs) for paired in self._paired)
        return alone + heads + len(self._listed) + bool(self._listed)

    @cached_property
    def _across(self) -> list[Page]:
        """Pages over all heads: the overview, each metric, matching, and methods."""
        return pages_over_heads(self.comparison)

    def _menu(self) -> tuple[Entry, ...]:
        there = {page.path for page in self._across}
        there |= {SENTENCES[0]} if self._listed else set()
        return (
            *COMPARISON_MENU,
            *(entry for entry in (SENTENCES, MATCHED, METHODS) if entry[0] in there),
        )

    def _metrics(self) -> tuple[Entry, ...]:
        pages = (page for page in self._across if page.path.startswith("metrics/"))
        return tuple((page.path, page.title) for page in pages)

    @cached_property
    def _page_writer(self) -> PageWriter:
        return writer.page_writer(
            self.folder, self.base, facts_of(self.comparison),
            self.comparison.sides.a.manifest, self._menu(), measures=self._metrics(),
        )  # fmt: skip

    def _write_manifest(self) -> None:
        file = self.folder / "data" / "manifest.json"
        file.write_text(comparison_manifest(self.comparison), encoding="utf-8", newline="\n")


def pages_over_heads(comparison: Comparison) -> list[Page]:
    """The overview, each metric, matching, and methods."""
    stacks = both_stacks(comparison)
    metrics = [*metric_pair_pages(stacks)]
    matched = matched_page(stacks, comparison.sides.mismatch)
    overview = comparison_page(comparison, stacks, metrics, matched)
    pages = (overview, *metrics, matched, comparing_page(comparison))
    return [page for page in pages if page is not None]


def facts_of(comparison: Comparison) -> SiteFacts:
    """What every page and figure says of how the numbers were made."""
    title = " and ".join(comparison.sides.names)
    return writer.site_facts(title, title, comparison.sides.a.manifest)


def comparison_manifest(comparison: Comparison) -> str:
    """How both studies were made, as JSON."""
    sides = comparison.sides
    manifests = [json.loads(study.manifest.to_json()) for study in (sides.a, sides.b)]
    table = {
        "headbook": sides.a.manifest.headbook,
        "models": dict(zip("ab", manifests, strict=True)),
        "names": sides.names,
    }
    return json.dumps(table, sort_keys=True, indent=1) + "\n"


FILM_MENU: tuple[Entry, ...] = (("index.html", "Overview"), (HEADS, "All heads"), writer.DATA)


def render_film(
    film: Film,
    out: str | Path,
    *,
    title: str = "",
    base_url: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> WrittenSite:
    """Write the site of a film; the bytes depend on the film and zlib alone.

    Args:
        title: of the site; by default it says how many checkpoints there are.

    Raises:
        OutputError: ``out`` may not be replaced or written.
        ResourceError: the process may not use enough memory.
    """
    title = title or f"Film of {len(film.frames)} checkpoints"

    def write(folder: Path, base: str) -> int:
        return _FilmSite(DrawnFilm(film), folder, title, base, progress or NoProgress()).write()

    return writer.render_site(Path(out), base_url, write, force=force)


@dataclass
class _FilmSite:
    """One site while it is being written."""

    reel: DrawnFilm
    folder: Path
    title: str
    base: str
    progress: Progress

    def write(self) -> int:
        """Write every file; returns the number of pages."""
        writer.write_site_start(self.folder, self.reel.film.stacks, "film")
        (self.folder / PICTURES).mkdir(parents=True)
        self._write_data()
        self.progress.stage("pages", len(self._measures) + 4)
        film = self.reel.film
        tables = [(table, table.build(film)) for table in FILM_TABLES]
        return writer.write_pages(
            self._page_writer, self.base, self._pages(), tables, self.progress
        )

    def _pages(self) -> Iterator[Page]:
        yield film_page(self.reel, self.title)
        yield filmheads_page(self.reel)
        yield from self._measures
        yield missing_page()

    @cached_property
    def _measures(self) -> tuple[MeasurePage, ...]:
        return tuple(measure_pages(self.reel))

    @cached_property
    def _page_writer(self) -> PageWriter:
        manifest = self.reel.film.frames[0].manifest
        measures = tuple((page.path, page.title) for page in self._measures)
        return writer.page_writer(
            self.folder, self.base, self._facts, manifest, FILM_MENU, measures=measures
        )

    @property
    def _facts(self) -> SiteFacts:
        frames = self.reel.film.frames
        models = f"{frames[0].name} to {frames[-1].name} ({len(frames)} checkpoints)"
        return writer.site_facts(self.title, models, frames[0].manifest)

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


OPTIONAL_PAGES: tuple[OptionalPage[Page], ...] = (
    heads_page,
    alignment_page,
    OptionalPage("speech.html", always, speech_page),
    OptionalPage("syntax.html", always, syntax_page),
    patterns_page,
    importance_page,
    similar_page,
    types_page,
    flow_page,
    geometry_page,
    context_page,
    groups_page,
)


def render(
    study: Study | str | Path,
    out: str | Path,
    *,
    base_url: str | None = None,
    force: bool = False,
    processes: int = 1,
    progress: Progress | None = None,
) -> WrittenSite:
    """Write a study's site.

    The same study gives the same bytes on one machine, with one version of zlib.

    Args:
        study: a study, or the folder of a stored one.
        out: folder to write; it appears when it is complete.
        base_url: address where the folder will be published, if that is known.
        force: replace a site of Headbook that is there; one with foreign files is refused.
        processes: number of processes that draw pages, this one included; 0: one for every two
            cores if there are many pages, at most three. A script that asks for several needs
            ``if __name__ == "__main__"``. Each loads the study from its folder; a study that has
            none is saved to a temporary folder meanwhile.
        progress: told how many pages are done.

    Raises:
        StudyError: the stored study cannot be read.
        OutputError: ``out`` may not be replaced or written.
        ResourceError: the process may not use enough memory.
    """
    check_output_folder(Path(out), OutputKind.SITE, force=force)
    check_address_space()
    stored = None if isinstance(study, Study) else Path(study)
    if not isinstance(study, Study):
        study = Study.load(study)
    with (
        replace_folder(Path(out), OutputKind.SITE, force=force) as draft,
        charts.without_schema_checks(),
    ):
        base = site_address(base_url)
        pages = _StudySite(study, draft, progress or NoProgress(), base, processes, stored).write()
    return WrittenSite(Path(out) / "index.html", pages, sum(export.sizes(Path(out)).values()))


@dataclass
class _StudySite:
    """One site while it is being written.

    Attributes:
        stored: folder of the study, or None if it has none.
    """

    study: Study
    folder: Path
    progress: Progress
    base: str
    processes: int
    stored: Path | None = None

    def write(self) -> int:
        """Write every file; return the number of pages."""
        self._copy_assets()
        (self.folder / "data" / "charts").mkdir(parents=True)
        paths = [self._write_overview()]  # first, for whoever waits
        with self._many_drawn() as many:
            write_runtime(self.folder)
            left_out = self._write_data()
            export.release_memory()
            figures = self._write_exported()
            self.progress.stage("pages", self._expected)
            self.progress.advance(1, 0)
            single = _draw(self._page_writer, self._single_pages(figures, left_out))
            for path in chain(single, many):
                self.progress.advance(1, 0)
                paths.append(path)
        for name, text in writer.web_files(self.base, paths):
            self._page_writer.text(name, text)
        (self.folder / ".nojekyll").touch()
        for name in TEXTS:
            self._page_writer.text(name, self._page_writer.drawn(name))
        return len(paths)

    def _write_overview(self) -> str:
        """Write the first page and say where it can be read meanwhile; returns its path."""
        curves = [metric for metric in study_metrics(self._results) if metric.id in DRAWN]
        drawn = [
            *metric_pages(self._results, curves)
        ]  # made again with the others, which take long
        page = overview_page(self._results, drawn)
        self._page_writer.page(page)
        self.progress.message(f"overview, while the rest is made: {self.folder / page.path}")
        return page.path

    @contextmanager
    def _many_drawn(self) -> Iterator[Iterable[str]]:
        """Write the pages of heads and sentences, and yield an iterable of their paths.

        If there are many, other processes write them while this one makes everything else.
        """
        processes = self.processes or (
            default_processes() if self._expected >= PARALLEL_FROM else 1
        )
        if processes == 1:
            yield _draw(self._page_writer, _many_pages(self._results))
            return
        with ExitStack() as stack:
            stored = self.stored
            if stored is None:
                stored = stack.enter_context(temporary_folder("study")) / "study"
                self.study.save(stored)
            given = stored, self._page_writer
            yield stack.enter_context(DrawingPool(_draw_share, given, processes - 1))

    @cached_property
    def _results(self) -> Mapping[str, StackResults]:
        return results_of(self.study)

    @cached_property
    def _metric_pages(self) -> tuple[MetricPage, ...]:
        return tuple(metric_pages(self._results, study_metrics(self._results)))

    @cached_property
    def _across(self) -> tuple[Page, ...]:
        """Pages across metrics; some are there only where the study has their numbers."""
        return across_pages(self._results)

    @cached_property
    def _across_paths(self) -> frozenset[str]:
        """Their addresses, known before they are made."""
        return frozenset(page.path for page in OPTIONAL_PAGES if page.there(self._results))

    @cached_property
    def _facts(self) -> SiteFacts:
        paged = self.study.sentence_data.paged
        return SiteFacts.of(self.study.manifest, sentence_pages=bool(paged))

    @cached_property
    def _page_writer(self) -> PageWriter:
        frame = {
            "site": self._facts,
            "manifest": self.study.manifest,
            "across": self._across_paths,
            "menu": menu(self._across_paths, sentence_pages=self._facts.sentence_pages),
            "base": self.base,
            "preview": self._preview[1],
        }
        return PageWriter(self.folder, self.base, frame)

    @cached_property
    def _preview(self) -> tuple[bytes, str]:
        return writer.link_preview(self._results)

    @property
    def _expected(self) -> int:
        """How many pages there will be, for the progress bar."""
        heads = sum(len(s.attention_layers) * s.n_heads for s in self.study.manifest.stacks)
        paged = len(self.study.sentence_data.paged)
        lists = 1 + self._facts.sentence_pages  # of metrics and of sentences
        alone = 5  # overview, methods, data, about, and the one for wrong addresses
        metrics = len(study_metrics(self._results))
        return heads + paged + metrics + len(self._across_paths) + lists + alone

    def _single_pages(self, figures: int, left_out: list[str]) -> Iterator[Page]:
        """All pages but the first and those of heads and sentences."""
        metrics = study_metrics(self._results)
        yield metrics_page(metrics)
        yield from self._metric_pages
        yield from self._across
        if self._facts.sentence_pages:
            yield sentences_page(self.study)
        yield methods_page(self._results, metrics)
        yield self._data_page(figures, left_out)
        yield about_page(self.study.manifest, self._bibtex())
        yield missing_page()

    def _copy_assets(self) -> None:
        most = max(n for s in self.study.manifest.stacks for n in (s.n_layers, s.n_heads))
        write_assets(self.folder, most)
        if self._preview[0]:
            (self.folder / writer.PREVIEW).write_bytes(self._preview[0])

    def _write_data(self) -> list[str]:
        data = self.folder / "data"
        left_out = export.write_tables(self.study, data)
        export.write_exemplars(self.study, data)
        data_files.write_scripts(self._results, data)
        data_files.write_find(self._results, (*self._metric_pages, *self._across), data)
        manifest = json.loads(self.study.manifest.to_json())
        manifest["sizes"] = {k: v for k, v in export.sizes(data).items() if "/" not in k}
        text = json.dumps(manifest, sort_keys=True, indent=1)
        (data / "manifest.json").write_text(text + "\n", encoding="utf-8", newline="\n")
        return left_out

    def _write_exported(self) -> int:
        """The charts of metrics and of pages across metrics as files for papers."""
        folder = self.folder / "figures"
        folder.mkdir()
        figures = exported((*self._metric_pages, *self._across))
        for figure in figures:
            export.write_figure(figure, folder, columns=False)
            self._page_writer.live(figure)
            figure.forget()  # all of them together take hundreds of megabytes
        return len(figures)

    def _data_page(self, figures: int, left_out: list[str]) -> DataPage:
        about = "Exemplar sentences of every head, one a line."
        files = export.table_files(STUDY_TABLES.values())
        files |= {f"exemplars.jsonl{suffix}": (about, export.EXEMPLARS) for suffix in ("", ".gz")}
        files["manifest.json"] = ("Options, model, versions, checks and sizes.", {})
        return data_page(self.folder / "data", files, figures, tuple(left_out))

    def _bibtex(self) -> str:
        return self._page_writer.drawn("references.bib").partition("\n\n")[0]


def _many_pages(results: Mapping[str, StackResults], share: slice = EVERY) -> Iterator[Page]:
    """The pages of heads and sentences, or a share of them, one at a time."""
    for result in results.values():
        yield from head_pages(result, share)
    yield from sentence_pages(results, share)


def _draw_share(stored: Path, page_writer: PageWriter, share: slice) -> Iterator[str]:
    """Write a share of the pages of heads and sentences; runs in a process of its own.

    Yields:
        Paths of the pages.

    Raises:
        StudyError: the folder does not hold the study of this site any more.
    """
    study = Study.load(stored)
    if study.manifest.to_json() != page_writer.frame["manifest"].to_json():
        raise StudyError(
            f"{stored}: another study was saved here while its site was written; expected the "
            "same one to the end; render it again"
        )
    with charts.without_schema_checks():
        yield from _draw(page_writer, _many_pages(results_of(study), share))


def across_pages(results: Mapping[str, StackResults]) -> tuple[Page, ...]:
    """The pages across metrics of a study, those that it has the numbers for."""
    return tuple(page.make(results) for page in OPTIONAL_PAGES if page.there(results))
