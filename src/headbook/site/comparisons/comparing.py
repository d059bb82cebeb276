"""From the comparison of two models to a folder of pages."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from headbook.comparison.comparison import Comparison
from headbook.comparison.listed import ListedSentence, listed_sentences
from headbook.comparison.pairs import PairedStack, paired_stacks
from headbook.pages.comparing.page import comparing_page
from headbook.pages.comparison.page import ComparisonPage, comparison_page
from headbook.pages.headpair.page import headpair_pages
from headbook.pages.matched.page import matched_page
from headbook.pages.metricpair.page import metric_pair_pages
from headbook.pages.missing.page import missing_page
from headbook.pages.parts.both import both_stacks
from headbook.pages.parts.menu import Entry
from headbook.pages.parts.page import Page, SiteFacts
from headbook.pages.sentencepair.page import sentencepair_pages
from headbook.pages.sentencepairs.page import sentencepairs_page
from headbook.progress import Progress, Silent
from headbook.site.comparisons import frame
from headbook.site.export import METRIC, PLACE, Table
from headbook.site.markup import script
from headbook.site.pagewriter import PageWriter
from headbook.site.site import Summary

MENU: tuple[Entry, ...] = (("index.html", "Overview"), frame.DATA)
SENTENCES: Entry = ("sentences/index.html", "Sentences")
MATCHED: Entry = ("matched.html", "Matched heads")
METHODS: Entry = ("comparing.html", "Methods")
DIFFERENCES = Table(
    "What every number of every head, and of the tokens of every layer, is in both models, and how "
    "they differ: pairs of the same sentences, the second model minus the first.",
    PLACE
    | {
        "head": "counted from 0; empty for tokens, whose labels are those of layers.csv: state, "
        "space where there is one, and class of tokens (mid/positional/content)"
    }
    | METRIC
    | {
        "a": "value in the first model; empty where a number is of both",
        "b": "value in the second model",
        "difference": "b minus a; of pattern_drift how far the attention of both is apart, in nats",
        "low": "lower end of the 95 % confidence interval of the difference; paired by sentence",
        "high": "upper end",
        "p": "two-sided, family-wise over all heads (or layers) and labels of a metric and view; 1 "
        "where both models are exactly equal, empty where there is no interval",
        "sentences": "sentences behind it, in the model where they are fewer",
        "floor": "rounding floor: twice the largest difference over heads (or layers) that another "
        "number format of the first model makes in this number; empty if not measured",
        "beyond_floor": "whether the interval lies above the floor, or below minus the floor; "
        "empty if no floor was measured. Pages count rows with p < 0.05 that are beyond it",
    },
)
MEDIANS = Table(
    "Medians over all heads of each model, of metrics of tokens over all layers, and how they "
    "differ, for models whose heads do not correspond.",
    {"stack": "kind of attention"}
    | METRIC
    | {
        "a": "median of the first model",
        "a_low": "lower end of its 95 % confidence interval, for other sentences; empty below ten "
        "effective sentences (twenty for classes of tokens)",
        "a_high": "upper end",
        "b": "median of the second model",
        "b_low": "lower end of its interval",
        "b_high": "upper end",
        "difference": "b minus a",
        "low": "lower end of its 95 % confidence interval; paired by sentence",
        "high": "upper end",
    },
)
OTHER = {"other_layer": "of the head of the second model", "other_head": "its number there"}
MATCHING = Table(
    "Which head of the second model each head of the first attends most like, one to one.",
    PLACE
    | {"head": "counted from 0"}
    | OTHER
    | {
        "similarity": "mean over words of the sum of the square roots of products of weights, sink "
        "masked and renormalised: 0 (no word in common) to 1 (the same)",
        "counterpart": "whether that is not below the 95th percentile of what heads have with "
        "random weights; empty where no such model was compared",
        "mutual": "whether each is the other's most similar head",
        "best_layer": "layer of the most similar head, which several heads may share",
        "best_head": "its number there",
        "margin": "similarity to the most similar head less that to the second",
        "sentences": "sentences that were compared",
    },
)
SIMILARITY = Table(
    "How alike every head of the first model and every head of the second attend.",
    PLACE
    | {"head": "counted from 0"}
    | OTHER
    | {"similarity": "as in matching; empty below 30 words"},
)


def render_comparison(
    comparison: Comparison,
    out: str | Path,
    *,
    base_url: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Summary:
    """Write the site of a comparison; the bytes depend on the comparison and zlib alone.

    Raises:
        OutputError: ``out`` may not be replaced or written.
        ResourceError: the process may not use enough memory.
    """

    def write(folder: Path, base: str) -> int:
        return _Writer(comparison, folder, base, progress or Silent()).write()

    return frame.render_site(Path(out), base_url, write, force=force)


@dataclass
class _Writer:
    """One site while it is being written."""

    comparison: Comparison
    folder: Path
    base: str
    progress: Progress

    def write(self) -> int:
        """Write every file; returns the number of pages."""
        studies = self.comparison.sides.a, self.comparison.sides.b
        stacks = [stack for study in studies for stack in study.manifest.stacks]
        frame.begin(self.folder, stacks, "comparison")
        self._write_manifest()
        self.progress.stage("pages", self._expected)
        return frame.write_pages(
            self._page_writer, self.base, self._pages(), self._tables, self.progress
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
    def _listed(self) -> tuple[ListedSentence, ...]:
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
        return (*MENU, *(entry for entry in (SENTENCES, MATCHED, METHODS) if entry[0] in there))

    def _metrics(self) -> tuple[Entry, ...]:
        pages = (page for page in self._across if page.path.startswith("metrics/"))
        return tuple((page.path, page.title) for page in pages)

    @cached_property
    def _page_writer(self) -> PageWriter:
        return frame.page_writer(
            self.folder, self.base, facts_of(self.comparison),
            self.comparison.sides.a.manifest, self._menu(), measures=self._metrics(),
        )  # fmt: skip

    @property
    def _tables(self) -> frame.Tables:
        return {
            "differences": (self.comparison.differences, DIFFERENCES),
            "medians": (self.comparison.medians, MEDIANS),
            "matching": (self.comparison.matching, MATCHING),
            "head_similarity": (self.comparison.similarity, SIMILARITY),
        }

    def _write_manifest(self) -> None:
        file = self.folder / "data" / "manifest.json"
        file.write_text(manifest_of(self.comparison), encoding="utf-8", newline="\n")


def pages_over_heads(comparison: Comparison) -> list[Page]:
    """The overview, each metric, matching, and methods."""
    stacks = both_stacks(comparison)
    metrics = [*metric_pair_pages(stacks)]
    matched = matched_page(stacks, comparison.sides.apart)
    overview = comparison_page(comparison, stacks, metrics, matched)
    pages = (overview, *metrics, matched, comparing_page(comparison))
    return [page for page in pages if page is not None]


def facts_of(comparison: Comparison) -> SiteFacts:
    """What every page and figure says of how the numbers were made."""
    title = " and ".join(comparison.sides.names)
    return frame.facts(title, title, comparison.sides.a.manifest)


def manifest_of(comparison: Comparison) -> str:
    """How both studies were made, as JSON."""
    sides = comparison.sides
    manifests = [json.loads(study.manifest.to_json()) for study in (sides.a, sides.b)]
    table = {
        "headbook": sides.a.manifest.headbook,
        "models": dict(zip("ab", manifests, strict=True)),
        "names": sides.names,
    }
    return json.dumps(table, sort_keys=True, indent=1) + "\n"
