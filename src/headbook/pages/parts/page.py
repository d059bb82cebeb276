"""What every page has: address, title, menu, site facts, remarks on what is missing.

When a page exists.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Generic, TypeVar

from headbook.report.results import StackResults
from headbook.report.wording import STACKS, count_text
from headbook.study.manifest import InputFacts, Manifest, NotAvailable

NAMED, LISTED = 3, 10  # inputs that every page names, and the overview lists
HASHES = "those with the smallest content hashes"


def coverage(manifest: Manifest) -> str:
    """How many sentences; of a part of the input also which.

    ``1,000 sentences``, ``1,000 sentences (of 25,000, those with the smallest content hashes)``.
    """
    sentences = count_text(manifest.counts["sentences"], "sentence")
    part = _part(manifest)
    return f"{sentences} ({part})" if part else sentences


def _part(manifest: Manifest) -> str:
    """What is said of sentences that are not the whole input; nothing of those that are."""
    left = [file.left for file in manifest.inputs]
    if not any(amount is None or amount for amount in left):
        return ""
    taken = sum(file.sentences for file in manifest.inputs)
    known = [amount for amount in left if amount is not None]
    total = f"{taken + sum(known):,}" if len(known) == len(left) else ""
    if taken == manifest.options.get("sample"):
        return f"of {total}, {HASHES}"
    if taken == manifest.options.get("limit"):
        packed = taken != manifest.places
        return f"{f'from the first {taken:,}' if packed else 'the first'} of {total or 'the input'}"
    return f"of {total}" if total else "a part of the input"  # several parts, added up


def input_names(manifest: Manifest) -> str:
    """The inputs that were read by name; of many the first ones, and how many more there are."""
    names = [file.name for file in manifest.inputs if file.sha256]
    more = len(names) - NAMED
    if more <= 1:
        return ", ".join(names)
    return f"{', '.join(names[:NAMED])} and {more:,} more inputs"


def input_rows(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """The inputs as terms and values, each with what was found in it."""
    files = manifest.inputs
    listed = files if len(files) <= LISTED + 1 else files[:LISTED]
    for file in listed:
        blank = f" · {count_text(file.blank, 'blank line')} skipped" if file.blank else ""
        yield "Input", f"{file.name} · {_taken(file)}{blank}"
    rest = files[len(listed) :]
    if rest:
        sentences = sum(file.sentences for file in rest)
        yield "Input", f"{len(rest):,} more inputs · {count_text(sentences, 'sentence')}"


def _taken(file: InputFacts) -> str:
    if not file.left and file.left is not None:
        return count_text(file.sentences, "sentence")
    if not file.sha256:
        return "not read"
    if file.left is None:
        return f"the first {count_text(file.sentences, 'sentence')}"
    return f"{file.sentences:,} of {count_text(file.sentences + file.left, 'sentence')}"


Entry = tuple[str, str]  # address and name

FIRST = {
    "index.html": "Overview",
    "heads.html": "Heads",
    "sentences/index.html": "Sentences",
    "tokens.html": "Tokens",
}
ALL_METRICS = "metrics/index.html"
ANALYSES = {
    "patterns.html": "Attention patterns",
    "importance.html": "Importance of heads",
    "syntax.html": "Syntax: relations and trees",
    "speech.html": "Parts of speech",
    "similar.html": "Similar heads",
    "alignment.html": "Cross-attention",
    "flow.html": "Attention flow",
    "geometry.html": "Representation geometry",
    "context.html": "Head outputs and sentence ends",
    "groups.html": "Groups of sentences",
    ALL_METRICS: "All metrics",
}
METHODS = {"methods.html": "Methods"}
FOOT = {
    "data.html": "Data",
    "about.html": "About",
}
ALWAYS = ("index.html", ALL_METRICS, "methods.html", "data.html", "about.html")
# Pages that no entry leads to, by how their addresses begin, and the entry that they belong to.
WITHIN = {
    "heads/": "heads.html",
    "sentences/": "sentences/index.html",
    "metrics/": ALL_METRICS,
    "data.html": "methods.html",
    "about.html": "methods.html",
}


@dataclass(frozen=True)
class Menu:
    """Addresses and names of the pages that a site has.

    Attributes:
        first: entries before the analyses; ``last``: those after.
        analyses: entries that open below one.
        foot: what the foot of each page leads to.
        name: of the entry below which the analyses open.
        find: whether there is a search.
    """

    first: tuple[Entry, ...]
    analyses: tuple[Entry, ...]
    last: tuple[Entry, ...]
    foot: tuple[Entry, ...]
    name: str = "Analyses"
    find: bool = True

    def entry(self, path: str) -> str:
        """Address of the entry that a page belongs to; empty where there is none."""
        if path in FIRST or path in ANALYSES:
            return path
        return next((entry for start, entry in WITHIN.items() if path.startswith(start)), path)


def menu(across: Collection[str], *, sentence_pages: bool) -> Menu:
    """The menu of a site.

    Args:
        across: addresses of its pages across metrics.
        sentence_pages: whether there are pages of sentences.
    """
    there = {*ALWAYS, *across, *(["sentences/index.html"] if sentence_pages else [])}

    def some(entries: Mapping[str, str]) -> Iterator[Entry]:
        return ((path, name) for path, name in entries.items() if path in there)

    first, analyses, last, foot = (
        tuple(some(entries)) for entries in (FIRST, ANALYSES, METHODS, FOOT)
    )
    return Menu(first, analyses, last, foot)


EVERY = slice(None)  # of the pages of a kind


@dataclass(frozen=True)
class SiteFacts:
    """What the frame around every page says.

    Attributes:
        title: of the site.
        model: name of the model.
        provenance: one line that tells how the numbers were made.
        source: the same in short, to end a figure's caption: model, revision, data, sentences.
        sentence_pages: whether there are pages of sentences.
    """

    title: str
    model: str
    provenance: str
    source: str
    sentence_pages: bool

    @classmethod
    def of(cls, manifest: Manifest, *, sentence_pages: bool) -> "SiteFacts":
        """The frame of a study's site."""
        model = manifest.model
        revision = model.revision.removeprefix("sha256:")[:12]
        data = f"{input_names(manifest)}: {coverage(manifest)}"
        return cls(
            title=manifest.title,
            model=model.name,
            provenance=(
                f"{model.name} ({revision}, {model.dtype}) on {data}. Headbook {manifest.headbook}"
                f"{manifest.created and f', {manifest.created}'}."
            ),
            source=f"{model.name} ({revision}) on {input_names(manifest)}, {coverage(manifest)}.",
            sentence_pages=sentence_pages,
        )


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page of the site.

    Attributes:
        template: file that renders it.
        path: address, relative to the site's root.
        title: of the page, for its heading and the browser.
        description: one sentence for search engines and previews.
    """

    template: ClassVar[str]
    path: str
    title: str
    description: str

    @property
    def root(self) -> str:
        """The way from this page to the site's root."""
        return "../" * self.path.count("/")


@dataclass(frozen=True)
class StackSection:
    """What a page shows of one stack.

    Attributes:
        stack: the kind of attention, as files call it.
    """

    stack: str

    @property
    def title(self) -> str:
        """The same as pages call it."""
        return STACKS[self.stack]


def gap_text(gap: NotAvailable) -> str:
    """What is missing, where and why."""
    where = f" in {STACKS[gap.stack]}" if gap.stack else ""
    return f"{gap.what}{where}: {gap.why}"


def gap_texts(gaps: Iterable[NotAvailable]) -> list[str]:
    """The same of several, those of one place and one reason together."""
    together: dict[tuple[str, str], list[str]] = {}
    for gap in gaps:
        together.setdefault((gap.stack, gap.why), []).append(gap.what)
    return [
        gap_text(NotAvailable(", ".join(what), stack, why))
        for (stack, why), what in together.items()
    ]


Results = Mapping[str, StackResults]
Made_co = TypeVar("Made_co", bound=Page, covariant=True)


@dataclass(frozen=True)
class OptionalPage(Generic[Made_co]):
    """A page that not every site has; called with the results of a study, it makes it.

    Whether it is there is known long before it is made: menus say it on the first page.

    Attributes:
        path: its address.
        there: whether a study has its numbers.
        make: makes it of a study that has.
    """

    path: str
    there: Callable[[Results], bool]
    make: Callable[[Results], Made_co]

    def __call__(self, results: Results) -> Made_co | None:
        """The page; None where a study has nothing for it."""
        return self.make(results) if self.there(results) else None


def always(_: Results) -> bool:
    """What every site has."""
    return True


def page_if(
    path: str, there: Callable[[Results], bool]
) -> Callable[[Callable[[Results], Made_co]], OptionalPage[Made_co]]:
    """Make a function that makes a page one that knows whether there is one."""
    return partial(OptionalPage, path, there)
