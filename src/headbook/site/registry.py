"""Pages of a study's site: address, place in the menu, search words, and the maker of each.

A new page is a module in `headbook.pages`, a template, and an entry in `PAGES`. Its scripts, style
sheets and table of contents are class variables of its `TemplatePage`. Menu, search and
number of pages follow from the entries.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from headbook.pages.about import section_pages
from headbook.pages.alignment import alignment_page, has_alignment
from headbook.pages.circuits import circuits_page
from headbook.pages.geometry import geometry_page, has_geometry
from headbook.pages.groups import groups_page, has_groups
from headbook.pages.heads import has_heads, heads_page
from headbook.pages.importance import has_importance, importance_page
from headbook.pages.methods import methods_page
from headbook.pages.metric import metrics_page, study_metrics
from headbook.pages.metrics.depth import depth_page, has_depth
from headbook.pages.outputs import has_outputs, outputs_page
from headbook.pages.parts.page import TemplatePage
from headbook.pages.patterns import has_patterns, patterns_page
from headbook.pages.sentences import sentences_page
from headbook.pages.similar import has_similar, similar_page
from headbook.pages.speech import speech_page
from headbook.pages.syntax import syntax_page
from headbook.pages.texts.regions import has_regions, regions_page
from headbook.pages.tokens import has_types, types_page
from headbook.report.facts.circuits.rules import has_circuits
from headbook.report.results import StackResults, study_of

Results = Mapping[str, StackResults]


class MenuPlace(Enum):
    """Place of a page in the menu."""

    MAIN = "before the analyses"
    ANALYSES = "below one entry"
    END = "after the analyses"
    FOOT = "foot of every page"


def _always(_: Results) -> bool:
    return True


@dataclass(frozen=True)
class PageEntry:
    """An entry of the registry.

    Attributes:
        path: address of the page, relative to the site's root.
        name: name of the page in the menu.
        place: place in the menu.
        make: makes the page from the results of a study by stack; None for a page that the site
            makes itself because it needs more than the results.
        exists: whether a study has what the page shows.
        keywords: words by which the search finds the page, beside those of its title.
        within: beginnings of addresses of pages that have no entry of their own and belong to it.
    """

    path: str
    name: str
    place: MenuPlace
    make: Callable[[Results], TemplatePage] | None = None
    exists: Callable[[Results], bool] = _always
    keywords: str = ""
    within: tuple[str, ...] = ()


# Words of the search that several pages share.
POSITION = "positional head fixed offset diagonal band"
SINK = "attention sink no-op null attention parking bos cls sep massive activations vertical"
USELESS = "useless dead idle inactive unimportant redundant no-op prunable pruning importance"
FILES = "download pdf svg csv parquet latex bibtex export heat map figure"

PAGES = (
    PageEntry(
        "index.html", "Overview", MenuPlace.MAIN,
        keywords="atlas tiles wall map of all heads families claims start home findings answers",
    ),
    PageEntry(
        "heads.html", "Heads", MenuPlace.MAIN, heads_page, has_heads,
        keywords="list of heads table sort filter compare scatter",
        within=("heads/",),
    ),
    PageEntry(
        "sentences/index.html", "Sentences", MenuPlace.MAIN,
        sentences_page,
        lambda results: bool(study_of(results).sentence_data.paged),
        keywords="texts examples corpus compare two heads share link permalink",
        within=("sentences/",),
    ),
    PageEntry(
        "tokens.html", "Tokens", MenuPlace.MAIN, types_page, has_types,
        keywords="vocabulary types words trajectories function words content words",
    ),
    PageEntry(
        "patterns.html", "Attention patterns", MenuPlace.ANALYSES, patterns_page, has_patterns,
        keywords=f"{USELESS} {SINK} {POSITION} stripes columns",
    ),
    PageEntry(
        "depth.html", "Depth", MenuPlace.ANALYSES, depth_page, has_depth,
        keywords="layers deeper shallow first last third distance entropy variability alignment "
        "correlation of heads",
    ),
    PageEntry(
        "outputs.html", "Head outputs", MenuPlace.ANALYSES, outputs_page, has_outputs,
        keywords="context similarity passages sentence ends segmentation anchors repetition "
        "separators pack outputs of heads",
    ),
    PageEntry(
        "regions.html", "Between the parts of a text", MenuPlace.ANALYSES, regions_page,
        has_regions,
        keywords="pairs premise hypothesis question passage cross-encoder nli reranker segments "
        "token types regions two texts",
    ),
    PageEntry(
        "circuits.html", "Circuits", MenuPlace.ANALYSES, circuits_page, has_circuits,
        keywords="ov qk circuit induction copying copy suppression name mover composition path "
        "patching logit attribution promote suppress writes reads mechanistic interpretability",
    ),
    PageEntry(
        "importance.html", "Importance of heads", MenuPlace.ANALYSES, importance_page,
        has_importance,
        keywords=f"{USELESS} ablation ablate causal knockout remove removed removal removable "
        "delete drop prune michel voita",
    ),
    PageEntry(
        "syntax.html", "Syntax", MenuPlace.ANALYSES, syntax_page,
        keywords="dependency parse phrase trees grammar relations uas treebank dobj nsubj",
    ),
    PageEntry(
        "speech.html", "Parts of speech", MenuPlace.ANALYSES, speech_page,
        keywords="punctuation content function words pos tags upos part of speech nouns verbs",
    ),
    PageEntry(
        "similar.html", "Similar heads", MenuPlace.ANALYSES, similar_page, has_similar,
        keywords=f"{USELESS} clusters groups near-duplicates near duplicates doubles "
        "jensen-shannon divergence",
    ),
    PageEntry(
        "alignment.html", "Cross-attention", MenuPlace.ANALYSES, alignment_page, has_alignment,
        keywords="encoder decoder translation word alignment cross attention aer",
    ),
    PageEntry(
        "geometry.html", "How words travel", MenuPlace.ANALYSES, geometry_page, has_geometry,
        keywords="representation geometry isotropy anisotropy intrinsic dimension cka rogue "
        "outlier dimensions rollout context mixing attention flow identity",
    ),
    PageEntry(
        "groups.html", "Groups of sentences", MenuPlace.ANALYSES, groups_page, has_groups,
        keywords="metadata compare corpora minimal pairs subsets genres",
    ),
    PageEntry(
        "metrics/index.html", "All metrics", MenuPlace.ANALYSES,
        lambda results: metrics_page(study_metrics(results), results),
        keywords=f"definitions formulas glossary {FILES}",
        within=("metrics/",),
    ),
    PageEntry(
        "methods.html", "Methods", MenuPlace.END,
        lambda results: methods_page(results, study_metrics(results)),
        keywords="definitions intervals self-checks versions",
        within=("data.html", "about.html"),
    ),
    PageEntry(
        "data.html", "Data", MenuPlace.FOOT,
        keywords=f"row table source of a number cite column {FILES}",
    ),
    PageEntry(
        "about.html", "About", MenuPlace.FOOT, keywords="cite citation bibtex licence license",
    ),
)  # fmt: skip


class MenuEntry(NamedTuple):
    """A link of the menu."""

    path: str
    name: str


@dataclass(frozen=True)
class Menu:
    """Links to the pages that a site has.

    Attributes:
        first: entries before the analyses.
        analyses: entries that open below one entry.
        last: entries after the analyses.
        foot: entries at the foot of each page.
        name: name of the entry below which the analyses open.
        within: address of an entry by the beginning of the addresses that belong to it.
        search: whether the site has a search.
    """

    first: tuple[MenuEntry, ...]
    analyses: tuple[MenuEntry, ...]
    last: tuple[MenuEntry, ...]
    foot: tuple[MenuEntry, ...]
    name: str = "Analyses"
    within: Mapping[str, str] = field(default_factory=dict)
    search: bool = True

    def entry(self, path: str) -> str:
        """Return the address of the entry that a page belongs to; its own if it has none."""
        if any(path == each.path for each in (*self.first, *self.analyses, *self.last)):
            return path
        return next((entry for start, entry in self.within.items() if path.startswith(start)), path)


def study_menu(entries: Iterable[PageEntry]) -> Menu:
    """Return the menu of a study's site that has the pages of these entries."""
    entries = tuple(entries)
    first, analyses, last, foot = (
        tuple(MenuEntry(e.path, e.name) for e in entries if e.place is place) for place in MenuPlace
    )
    within = {start: entry.path for entry in entries for start in entry.within}
    return Menu(first, analyses, last, foot, within=within)


def study_pages(results: Results) -> tuple[PageEntry, ...]:
    """Return the entries of the pages that a study has, those of the author's own last.

    The menu has room for one page of the author's own; several open below the analyses.
    """
    pages = [*section_pages(study_of(results).manifest)]
    place = MenuPlace.ANALYSES if len(pages) > 1 else MenuPlace.END
    own = (
        PageEntry(page.path, page.title, place, lambda _, page=page: page)  # type: ignore[misc]
        for page in pages
    )
    return (*(entry for entry in PAGES if entry.exists(results)), *own)
