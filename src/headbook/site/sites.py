"""Contents of the three kinds of site: of one study, of two studies, and of many checkpoints.

Nothing here imports torch, transformers or spaCy.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

from headbook import charts
from headbook.author import known_heads, read_words, unknown_page
from headbook.comparison.checkpoints import CHECKPOINT_TABLES, Checkpoints
from headbook.comparison.checkpoints import CURVES as CURVES_TABLE
from headbook.comparison.comparison import COMPARISON_TABLES, DIFFERENCES_TABLE, Comparison
from headbook.comparison.head_pairs import (
    PairedStack,
    SharedSentence,
    listed_sentences,
    paired_stacks,
)
from headbook.errors import StudyError, warn
from headbook.output_folder import temporary_folder
from headbook.pages.about import about_page, missing_page
from headbook.pages.checkpoints.checkpointheads import checkpointheads_page
from headbook.pages.checkpoints.checkpointmeasure import measure_pages
from headbook.pages.checkpoints.checkpoints import (
    PICTURES,
    checkpoints_data,
    checkpoints_page,
    sheets,
)
from headbook.pages.checkpoints.parts import HEADS, DrawnCheckpoints
from headbook.pages.comparison.comparing import comparing_page
from headbook.pages.comparison.comparison import ComparisonPage, comparison_page
from headbook.pages.comparison.headpair import headpair_pages
from headbook.pages.comparison.matched import matched_page
from headbook.pages.comparison.metricpair import metric_pairs
from headbook.pages.comparison.parts import both_stacks
from headbook.pages.comparison.sentencepair import sentencepair_pages, sentencepairs_page
from headbook.pages.head import head_pages
from headbook.pages.index import overview_page
from headbook.pages.methods import not_installed
from headbook.pages.metric import metric_pages, study_metrics
from headbook.pages.parts.atlas import map_sheets
from headbook.pages.parts.page import EVERY, SiteFacts, TemplatePage
from headbook.pages.sentence import sentence_pages
from headbook.progress import Progress
from headbook.python_options import names_arguments
from headbook.report.answers.data import NumberExample, first_number, number_example
from headbook.report.results import StackResults
from headbook.report.results import stack_results as results_of
from headbook.report.tables import STUDY_TABLES
from headbook.report.wording import count_text
from headbook.report.wording import sentence_page as page_of_sentence
from headbook.results.formats import metric_page
from headbook.site import data_files, export
from headbook.site.markup import script
from headbook.site.page_writer import PageWriter
from headbook.site.registry import Menu, MenuEntry, study_menu, study_pages
from headbook.site.rows import SiteRows
from headbook.site.writer import SiteContents, Work, draw_pages, link_preview, write_site
from headbook.study.manifest import Manifest
from headbook.study.study import Study
from headbook.written_site import Site

SENTENCES = MenuEntry("sentences/index.html", "Sentences")
MATCHED = MenuEntry("matched.html", "Matched heads")
METHODS = MenuEntry("comparing.html", "Methods")
OVERVIEW = MenuEntry("index.html", "Overview")
DATA = MenuEntry("data.html", "Data")


@names_arguments
def render(
    study: Study | str | Path,
    out: str | Path,
    *,
    title: str | None = None,
    author: str | None = None,
    text_source: str | None = None,
    text_license: str | None = None,
    notes: str | Path | None = None,
    section: Sequence[str | Path] | str | Path = (),
    base_url: str | None = None,
    force: bool = False,
    processes: int = 1,
    progress: Progress | bool = True,
) -> Site:
    """Write a study's site.

    The same study gives the same bytes on one machine, with one version of zlib.

    Args:
        study: a study, or the folder of a stored one.
        out: folder to write; it appears when it is complete.
        title, author: title and author of the site, in place of those of the study.
        text_source, text_license: origin and licence of the texts, likewise.
        notes, section: file of notes (Markdown or TOML) and Markdown files of pages of your own,
            in place of those of the study.
        base_url: address where the folder will be published, if that is known.
        force: replace a site of Headbook that is there; one with foreign files is refused.
        processes: number of processes that draw pages, this one included; 0: one for every two
            cores if there are many pages, at most three. A script that asks for several needs
            ``if __name__ == "__main__"``. A study without a folder is saved to a temporary one.
        progress: whether to show a bar in terminals and notebooks; or a `headbook.Progress`.

    Raises:
        ConfigError: a file of notes or of a section cannot be read or does not fit the study.
        StudyError: the stored study cannot be read.
        OutputError: ``out`` may not be replaced or written.
        ResourceError: the process may not use enough memory.
    """
    file = None if notes is None else Path(notes)
    given = {
        "title": title, "author": author, "text_source": text_source, "text_license": text_license,
    }  # fmt: skip
    words = read_words(file, section) | {name: text for name, text in given.items() if text}
    return write_site(
        lambda: StudySite(study, words, file), Path(out), base_url=base_url, force=force,
        progress=progress, processes=processes,
    )  # fmt: skip


class StudySite(SiteContents):
    """Site of one study.

    Args:
        study: a study, or the folder of a stored one.
        words: words of the author in place of those of the study, by field of the manifest.
        notes: file of the notes among these words, for messages.

    Raises:
        ConfigError: there are words on a head or a page that the study does not have.
    """

    texts = ("CITATION.cff", "references.bib", "README.txt")

    def __init__(
        self,
        study: Study | str | Path,
        words: Mapping[str, Any] = MappingProxyType({}),
        notes: Path | None = None,
    ) -> None:
        self.stored = None if isinstance(study, Study) else Path(study)
        self.study = study if isinstance(study, Study) else Study.load(study)
        if words:
            words = known_heads(words, self.study.manifest.stacks, notes)
            self.study = replace(self.study, manifest=self.study.manifest.with_words(words))
        self.manifest, self.stacks = self.study.manifest, self.study.manifest.stacks
        for text in not_installed(self.manifest):
            warn(text)
        paged = bool(self.study.sentence_data.paged)
        self.facts = SiteFacts.of(self.manifest, sentence_pages=paged)
        self.results = results_of(self.study)
        self.entries = study_pages(self.results)
        self.across = frozenset(entry.path for entry in self.entries)
        self.metrics = study_metrics(self.results)
        for path in self._unknown_pages():
            if "page_notes" in words:
                raise unknown_page(notes, path)
            warn(str(unknown_page(None, path)))
        about = "Exemplar sentences of every head, one a line."
        exemplars = about, export.EXEMPLARS
        self.records = {f"exemplars.jsonl{suffix}": exemplars for suffix in ("", ".gz")}
        self.records |= {"manifest.json": ("Options, model, versions, checks and sizes.", {})}
        self.rows = SiteRows(STUDY_TABLES, self.study)

    def _unknown_pages(self) -> list[str]:
        """Return the addresses of notes for which the site has no page."""
        of_metrics = (metric_page(metric.id).partition("#")[0] for metric in self.metrics)
        known = {*self.across, *of_metrics}
        known |= {page_of_sentence(each.number) for each in self.study.sentence_data.paged}
        return [path for path in self.manifest.page_notes if path not in known]

    @cached_property
    def preview(self) -> tuple[bytes, str]:
        """Grids of all heads as a picture, and its description."""
        return link_preview(self.results)

    def example(self) -> NumberExample | None:
        """Return the largest share of the sink of any head, or else a number of another metric."""
        return number_example(self.results)

    def map_sheet(self) -> str:
        """Return the style sheet with the mean maps of all heads."""
        return map_sheets(self.results.values())

    @property
    def menu(self) -> Menu:
        """Menu with the pages that the study has."""
        return study_menu(self.entries)

    @property
    def n_pages(self) -> int:
        """Number of pages, including the one for wrong addresses."""
        heads = sum(len(stack.attention_layers) * stack.n_heads for stack in self.stacks)
        sentences = len(self.study.sentence_data.paged)
        return len(self.entries) + len(self.metrics) + heads + sentences + 1

    @cached_property
    def charted(self) -> tuple[TemplatePage, ...]:
        """Pages of metrics and pages of the registry."""
        made = (entry.make(self.results) for entry in self.entries if entry.make)
        return (*metric_pages(self.results, self.metrics), *made)

    def first(self) -> TemplatePage:
        """Make the overview, which needs no chart of another page, but its answer."""
        return overview_page(self.results, self.charted)

    def write_data(self, writer: PageWriter) -> list[str]:
        """Write tables, exemplars, data of scripts, and the manifest with the sizes of files."""
        data = writer.folder / "data"
        _ = self.study.head_tables, self.study.pair_differences  # made once: pages need them, too
        left_out = export.write_tables(self.rows.entries, self.study, data)
        export.write_exemplars(self.study, data)
        data_files.write_scripts(self.results, data)
        data_files.write_find(self.results, self.charted, data)
        sizes = {name: size for name, size in export.sizes(data).items() if "/" not in name}
        table = json.loads(self.manifest.to_json()) | {"sizes": sizes}
        writer.write_text("data/manifest.json", _manifest_text(table))
        return left_out

    def pages(self, writer: PageWriter) -> Iterator[TemplatePage]:
        """Make all pages but the overview, the page of files, and those of heads and sentences."""
        yield from self.charted
        bibtex = writer.render("references.bib").partition("\n\n")[0]
        yield about_page(self.manifest, bibtex, writer.base)
        yield missing_page()

    def many(self, share: slice = EVERY) -> Iterator[TemplatePage]:
        """Make the pages of heads and sentences, or a share of them."""
        return _many_pages(self.results, share)

    def work(self, stack: ExitStack, /) -> tuple[Work, Path]:
        """Return `draw_share` and the folder of the study, which may be a temporary one."""
        stored = self.stored
        if stored is None:
            stored = stack.enter_context(temporary_folder("study")) / "study"
            self.study.save(stored)
        return draw_share, stored


def _many_pages(results: Mapping[str, StackResults], share: slice) -> Iterator[TemplatePage]:
    for result in results.values():
        yield from head_pages(result, share)
    yield from sentence_pages(results, share)


def draw_share(stored: Path, page_writer: PageWriter, share: slice) -> Iterator[str]:
    """Write a share of the pages of heads and sentences; runs in a worker process.

    Yields:
        Paths of the pages.

    Raises:
        StudyError: the folder does not hold the study of this site any more.
    """
    study, manifest = Study.load(stored), page_writer.frame["manifest"]
    if study.manifest.with_words(manifest.words).to_json() != manifest.to_json():
        raise StudyError(
            f"{stored}: another study was saved here while its site was written; expected the "
            "same one to the end; render it again"
        )
    study = replace(study, manifest=manifest)
    kept = page_writer.rows.kept if page_writer.rows else {}
    rows = SiteRows(STUDY_TABLES, study, kept)
    page_writer = replace(page_writer, rows=rows)
    with charts.without_schema_checks():
        yield from draw_pages(page_writer, _many_pages(results_of(study), share))


def across_pages(results: Mapping[str, StackResults]) -> tuple[TemplatePage, ...]:
    """Make the pages of the registry that need the results of a study alone."""
    return tuple(entry.make(results) for entry in study_pages(results) if entry.make)


def render_comparison(
    comparison: Comparison,
    out: str | Path,
    *,
    base_url: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Site:
    """Write the site of a comparison; the bytes depend on the comparison and zlib alone.

    Raises:
        OutputError: ``out`` may not be replaced or written.
        ResourceError: the process may not use enough memory.
    """
    return write_site(
        lambda: ComparisonSite(comparison), Path(out), base_url=base_url, force=force,
        progress=progress,
    )  # fmt: skip


class ComparisonSite(SiteContents):
    """Site of two models on the same sentences."""

    kind = "comparison"

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        sides = comparison.sides
        manifests = sides.a.manifest, sides.b.manifest
        for text in dict.fromkeys(chain.from_iterable(map(not_installed, manifests))):
            warn(text)
        self.stacks = [s for study in (sides.a, sides.b) for s in study.manifest.stacks]
        self.manifest, self.facts = sides.a.manifest, facts_of(comparison)
        self.rows = SiteRows({table.name: table for table in COMPARISON_TABLES}, comparison)

    @cached_property
    def paired(self) -> tuple[PairedStack, ...]:
        """Pairs of stacks whose heads have pages."""
        return paired_stacks(self.comparison)

    @cached_property
    def listed(self) -> tuple[SharedSentence, ...]:
        """Sentences that have pages."""
        return listed_sentences(self.comparison.sides, self.paired)

    @cached_property
    def charted(self) -> tuple[TemplatePage, ...]:
        """Pages over all heads: the overview, each metric, matching, and methods."""
        return tuple(pages_over_heads(self.comparison))

    @cached_property
    def menu(self) -> Menu:
        """Menu with the pages that the comparison has."""
        paths = {page.path for page in self.charted} | ({SENTENCES.path} if self.listed else set())
        optional = (entry for entry in (SENTENCES, MATCHED, METHODS) if entry.path in paths)
        metrics = (page for page in self.charted if page.path.startswith("metrics/"))
        return _metrics_menu((OVERVIEW, *optional), metrics)

    @property
    def n_pages(self) -> int:
        """Number of pages, with those for files and for wrong addresses."""
        heads = sum(len(paired.pairs) for paired in self.paired)
        return len(self.charted) + 2 + heads + len(self.listed) + bool(self.listed)

    def write_data(self, writer: PageWriter) -> list[str]:
        """Write tables and the manifests of both studies."""
        writer.write_text("data/manifest.json", comparison_manifest(self.comparison))
        data = writer.folder / "data"
        return export.write_tables(self.rows.entries, self.comparison, data)

    def example(self) -> NumberExample | None:
        """Return the first difference of a head."""
        table = DIFFERENCES_TABLE
        return first_number(table, table.build(self.comparison), "difference")

    def pages(self, writer: PageWriter) -> Iterator[TemplatePage]:
        """Make all pages but the page of files, and write their pictures and data of scripts."""

        def write_script(path: str, value: Any) -> None:
            if value:
                writer.write_text(path, script(Path(path).stem, value))

        for page in self.charted:
            if isinstance(page, ComparisonPage):
                for path, picture in page.pictures:
                    (writer.folder / path).write_bytes(picture)
            yield page
        yield missing_page()
        cited = frozenset(each.a.index for each in self.listed)
        for paired in self.paired:
            for head_page, maps in headpair_pages(paired, cited):
                write_script(head_page.data, maps)
                yield head_page
        sides = self.comparison.sides
        if self.listed:
            yield sentencepairs_page(sides, self.listed)
        for sentence_page, paths in sentencepair_pages(sides, self.paired, self.listed):
            write_script(sentence_page.data, paths)
            yield sentence_page


def pages_over_heads(comparison: Comparison) -> list[TemplatePage]:
    """Make the overview, the pages of metrics, of matched heads, and of methods."""
    stacks = both_stacks(comparison)
    metrics = [*metric_pairs(stacks)]
    matched = matched_page(stacks, comparison.sides.mismatch)
    overview = comparison_page(comparison, stacks, metrics, matched)
    pages = (overview, *(each.page for each in metrics), matched, comparing_page(comparison))
    return [page for page in pages if page is not None]


def facts_of(comparison: Comparison) -> SiteFacts:
    """Return the provenance of a comparison, for pages and captions."""
    title = " and ".join(comparison.sides.names)
    return _site_facts(title, title, comparison.sides.a.manifest)


def comparison_manifest(comparison: Comparison) -> str:
    """Return the manifests of both studies as JSON."""
    sides = comparison.sides
    manifests = [json.loads(study.manifest.to_json()) for study in (sides.a, sides.b)]
    table = {
        "headbook": sides.a.manifest.headbook,
        "models": dict(zip("ab", manifests, strict=True)),
        "names": sides.names,
    }
    return _manifest_text(table)


def render_checkpoints(
    checkpoints: Checkpoints,
    out: str | Path,
    *,
    title: str = "",
    base_url: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Site:
    """Write the site of checkpoints; the bytes depend on them and zlib alone.

    Args:
        title: title of the site; by default that of the checkpoints.

    Raises:
        OutputError: ``out`` may not be replaced or written.
        ResourceError: the process may not use enough memory.
    """
    title = title or checkpoints.title
    return write_site(
        lambda: CheckpointsSite(checkpoints, title),
        Path(out),
        base_url=base_url,
        force=force,
        progress=progress,
    )


class CheckpointsSite(SiteContents):
    """Site of many checkpoints of one model."""

    kind = "checkpoints"

    def __init__(self, checkpoints: Checkpoints, title: str) -> None:
        self.drawn, self.title, frames = DrawnCheckpoints(checkpoints), title, checkpoints.frames
        self.stacks, self.manifest = checkpoints.stacks, frames[0].manifest
        models = f"{frames[0].name} to {frames[-1].name} ({len(frames)} checkpoints)"
        self.facts = _site_facts(title, models, self.manifest)
        self.rows = SiteRows({table.name: table for table in CHECKPOINT_TABLES}, checkpoints)

    @cached_property
    def charted(self) -> tuple[TemplatePage, ...]:
        """Pages of metrics."""
        return tuple(measure_pages(self.drawn))

    @property
    def menu(self) -> Menu:
        """Menu with the pages of metrics."""
        return _metrics_menu((OVERVIEW, MenuEntry(HEADS, "All heads")), self.charted)

    @property
    def n_pages(self) -> int:
        """Number of pages: those of metrics, overview, heads, files, wrong addresses."""
        return len(self.charted) + 4

    def write_data(self, writer: PageWriter) -> list[str]:
        """Write pictures and data of scripts, tables, and the manifests of all checkpoints."""
        checkpoints = self.drawn.checkpoints
        (writer.folder / PICTURES).mkdir(parents=True)
        for address, picture in sheets(self.drawn):
            (writer.folder / address).write_bytes(picture)
        writer.write_text(
            "data/checkpoints.js", script("checkpoints", checkpoints_data(self.drawn))
        )
        manifests = [json.loads(each.manifest.to_json()) for each in checkpoints.frames]
        table = {
            "headbook": manifests[0]["headbook"],
            "steps": checkpoints.steps.tolist(),
            "checkpoints": [each.name for each in checkpoints.frames],
            "studies": manifests,
        }
        writer.write_text("data/manifest.json", _manifest_text(table))
        return export.write_tables(self.rows.entries, checkpoints, writer.folder / "data")

    def example(self) -> NumberExample | None:
        """Return the first number of a head."""
        return first_number(CURVES_TABLE, CURVES_TABLE.build(self.drawn.checkpoints), "value")

    def pages(self, _: PageWriter) -> Iterator[TemplatePage]:
        """Make all pages but the page of files."""
        yield checkpoints_page(self.drawn, self.title)
        yield checkpointheads_page(self.drawn)
        yield from self.charted
        yield missing_page()


def _metrics_menu(first: tuple[MenuEntry, ...], metrics: Iterable[TemplatePage]) -> Menu:
    """Return a menu of a few entries, and one below which the pages of metrics open."""
    entries = tuple(MenuEntry(page.path, page.title) for page in metrics)
    return Menu(first, entries, last=(DATA,), foot=(DATA,), name="Metrics", search=False)


def _site_facts(title: str, models: str, manifest: Manifest) -> SiteFacts:
    """Return the provenance of a site of several studies.

    Args:
        models: names of the models in words.
        manifest: manifest of the first study.
    """
    files = ", ".join(file.name for file in manifest.inputs)
    sentences = count_text(manifest.counts["sentences"], manifest.text_noun)
    made = f"Headbook {manifest.headbook}{manifest.created and f', {manifest.created}'}"
    return SiteFacts(
        title=title,
        model=models,
        provenance=f"{models} on {files}: {sentences}. {made}.",
        source=f"{models} on {files}, {sentences}.",
        sentence_pages=False,
    )


def _manifest_text(table: Mapping[str, Any]) -> str:
    return json.dumps(table, sort_keys=True, indent=1) + "\n"
