"""From a study to a folder of pages: gather everything, then write it whole.

Nothing here imports torch, transformers or spaCy.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

from headbook import charts
from headbook.charts import Figure
from headbook.errors import StudyError
from headbook.limits import check_room
from headbook.output_folder import (
    OutputKind,
    check_output_folder,
    replace_folder,
    temporary_folder,
)
from headbook.pages.about.page import about_page
from headbook.pages.alignment.page import alignment_page
from headbook.pages.context.page import context_page
from headbook.pages.data.page import DataFile, DataPage
from headbook.pages.flow.page import flow_page
from headbook.pages.geometry.page import geometry_page
from headbook.pages.groups.page import groups_page
from headbook.pages.head.page import head_pages
from headbook.pages.heads.page import heads_page
from headbook.pages.importance.page import importance_page
from headbook.pages.index.layercurves import DRAWN
from headbook.pages.index.page import overview_page
from headbook.pages.methods.page import methods_page
from headbook.pages.metric.page import MetricPage, metric_pages, study_metrics
from headbook.pages.metrics.page import metrics_page
from headbook.pages.missing.page import missing_page
from headbook.pages.parts.across import Across, always
from headbook.pages.parts.menu import menu
from headbook.pages.parts.page import EVERY, Page, SiteFacts
from headbook.pages.patterns.page import patterns_page
from headbook.pages.sentence.page import sentence_pages
from headbook.pages.sentences.page import sentences_page
from headbook.pages.similar.page import similar_page
from headbook.pages.speech.page import speech_page
from headbook.pages.syntax.page import syntax_page
from headbook.pages.tokens.page import types_page
from headbook.progress import Progress, Silent
from headbook.report.numbers.results import StackResults
from headbook.report.numbers.results import results as results_of
from headbook.report.wording import written
from headbook.site import export, publish, scripts
from headbook.site.assets import write_assets, write_runtime
from headbook.site.pagewriter import PageWriter, figures_of
from headbook.site.parallel import Shares, default_processes
from headbook.study.study import Study

TEXTS = ("CITATION.cff", "references.bib", "README.txt")
ACROSS: tuple[Across[Page], ...] = (
    heads_page,
    alignment_page,
    Across("speech.html", always, speech_page),
    Across("syntax.html", always, syntax_page),
    patterns_page,
    importance_page,
    similar_page,
    types_page,
    flow_page,
    geometry_page,
    context_page,
    groups_page,
)
# Pages from which on several processes are worth their start: each takes as long for it as to draw
# about a hundred.
MANY = 400


@dataclass(frozen=True)
class Summary:
    """What was written.

    Attributes:
        index: the page to open.
        pages: number of pages.
        size: bytes of the whole site.
    """

    index: Path
    pages: int
    size: int


def render(
    study: Study | str | Path,
    out: str | Path,
    *,
    base_url: str | None = None,
    force: bool = False,
    processes: int = 1,
    progress: Progress | None = None,
) -> Summary:
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
    check_room()
    stored = None if isinstance(study, Study) else Path(study)
    if not isinstance(study, Study):
        study = Study.load(study)
    with replace_folder(Path(out), OutputKind.SITE, force=force) as draft, charts.unchecked():
        base = publish.base(base_url)
        pages = _Writer(study, draft, progress or Silent(), base, processes, stored).write()
    return Summary(Path(out) / "index.html", pages, sum(export.sizes(Path(out)).values()))


@dataclass
class _Writer:
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
            export.let_go()
            figures = self._write_exported()
            self.progress.stage("pages", self._expected)
            self.progress.advance(1, 0)
            single = _draw(self._page_writer, self._single_pages(figures, left_out))
            for path in chain(single, many):
                self.progress.advance(1, 0)
                paths.append(path)
        for name, text in publish.web_files(self.base, paths):
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
        self.progress.say(f"overview, while the rest is made: {self.folder / page.path}")
        return page.path

    @contextmanager
    def _many_drawn(self) -> Iterator[Iterable[str]]:
        """Write the pages of heads and sentences, and yield an iterable of their paths.

        If there are many, other processes write them while this one makes everything else.
        """
        processes = self.processes or (default_processes() if self._expected >= MANY else 1)
        if processes == 1:
            yield _draw(self._page_writer, _many_pages(self._results))
            return
        with ExitStack() as stack:
            stored = self.stored
            if stored is None:
                stored = stack.enter_context(temporary_folder("study")) / "study"
                self.study.save(stored)
            given = stored, self._page_writer
            yield stack.enter_context(Shares(_draw_share, given, processes - 1))

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
        return frozenset(page.path for page in ACROSS if page.there(self._results))

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
        return publish.preview(self._results)

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
            (self.folder / publish.PREVIEW).write_bytes(self._preview[0])

    def _write_data(self) -> list[str]:
        data = self.folder / "data"
        left_out = export.write_tables(self.study, data)
        export.write_exemplars(self.study, data)
        scripts.write_scripts(self._results, data)
        scripts.write_find(self._results, (*self._metric_pages, *self._across), data)
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
        exemplars = export.Table(about, export.EXEMPLARS)
        records = {f"exemplars.jsonl{suffix}": exemplars for suffix in ("", ".gz")}
        records["manifest.json"] = export.Table("Options, model, versions, checks and sizes.", {})
        files = export.files_of(export.TABLES) | records
        return data_page(self.folder / "data", files, figures, tuple(left_out))

    def _bibtex(self) -> str:
        return self._page_writer.drawn("references.bib").partition("\n\n")[0]


def _many_pages(results: Mapping[str, StackResults], share: slice = EVERY) -> Iterator[Page]:
    """The pages of heads and sentences, or a share of them, one at a time."""
    for result in results.values():
        yield from head_pages(result, share)
    yield from sentence_pages(results, share)


def _draw(page_writer: PageWriter, pages: Iterable[Page]) -> Iterator[str]:
    """Write pages; yields their paths."""
    for page in pages:
        page_writer.page(page)
        yield page.path


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
    with charts.unchecked():
        yield from _draw(page_writer, _many_pages(results_of(study), share))


def across_pages(results: Mapping[str, StackResults]) -> tuple[Page, ...]:
    """The pages across metrics of a study, those that it has the numbers for."""
    return tuple(page.make(results) for page in ACROSS if page.there(results))


def exported(pages: Iterable[Page]) -> list[Figure]:
    """The charts of pages that are files as well, one a name."""
    return [*{figure.name: figure for page in pages for figure in figures_of(page)}.values()]


def data_page(
    data: Path, files: Mapping[str, export.Table], figures: int, left_out: tuple[str, ...] = ()
) -> DataPage:
    """The page of a site's files.

    Args:
        files: what each holds, by its name in the folder ``data``; some may not be there.
    """
    return DataPage(
        path="data.html",
        title="Data",
        description="Every number of this site as a file, with the meaning of each column.",
        files=tuple(
            DataFile(f"data/{name}", table.what, tuple(table.columns.items()), written(size))
            for name, table in files.items()
            if (data / name).exists()
            for size in [(data / name).stat().st_size]
        ),
        figures=figures,
        left_out=left_out,
    )
