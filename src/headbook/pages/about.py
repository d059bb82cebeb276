"""Pages that hold no numbers: on citing a site, for wrong addresses, and the author's own."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from headbook.author import plain_words, section_parts, section_paths
from headbook.pages.parts.blocks import Block, Code, Details, Page, Question, Symbols, Text
from headbook.pages.parts.page import TemplatePage, coverage, input_names
from headbook.pages.parts.run_facts import text_facts
from headbook.resources import DEMO_PACKAGES
from headbook.results.sentence import Link, Marked, Sentence, say
from headbook.study.manifest import NOT_GIVEN, Manifest, ModelFacts

HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+|[\w.-]+")  # of a model, with or without an owner
MAX_DESCRIPTION = 160  # characters of the text that search engines and the search show
COMMIT = re.compile(r"[0-9a-f]{40}")  # revision of a model of the hub


WHERE = (
    "It needs no network: pages, charts and numbers are in this folder, which opens from disk and "
    "can be published or archived as it is."
)
FILES = (
    "Each figure has its own entry, below “Cite”. Sources of the metrics: {sources}; for "
    "repositories: {repository}."
)
FOR_AUTHORS = (
    ("--author", "author of the site, for the entry above"),
    ("--base-url", "address of the site"),
    ("--text-source, --text-license", "origin and licence of the texts"),
)


def about_page(manifest: Manifest, bibtex: str, base: str = "") -> Page:
    """Return the page on how to cite and reuse the site.

    Args:
        bibtex: BibTeX entry of the site.
        base: address of the site; empty if it is not known.
    """
    model = manifest.model
    made = f" on {manifest.created}" if manifest.created else ""
    return Page(
        path="about.html",
        title="Who made this site, and what may be reused?",
        topic="About",
        description="How to cite it, what may be reused, and what made it.",
        answer=f"A report on the attention heads and token states of {model.name}, made with "
        f"Headbook {manifest.headbook}{made}.",
        blocks=(
            Question("site", "Site", WHERE, (Symbols(tuple(_site(manifest, base))),)),
            Question(
                "texts", "Texts", f"{input_names(manifest)}: {coverage(manifest)}.",
                (Symbols(tuple(_texts(manifest))),), "licence license origin source corpus",
            ),
            Question(
                "model", "Model", f"{model.name}, {model.parameters:,} parameters.",
                (Symbols(tuple(_model(model))),), "licence license origin",
            ),
            Question(
                "cite", "Cite", "Cite the model as its authors ask, too.",
                (Code(bibtex), *_reuse()), "cite citation bibtex",
            ),
        ),
    )  # fmt: skip


def _site(manifest: Manifest, base: str) -> Iterator[tuple[str, Sentence | str]]:
    """Yield author, address, licence and versions."""
    yield "Author", manifest.author or NOT_GIVEN
    yield "Address", Sentence((Link(base, base),)) if base else NOT_GIVEN
    yield "Code and styles", Sentence((Link("Apache License 2.0", "assets/LICENSES.txt"),))
    yield "Versions", Sentence((Link("Options and libraries", "methods.html#run"),))


def _reuse() -> Iterator[Block]:
    """Yield what else there is to cite, and the options that fill this page."""
    sources, repository = (Link(name, name) for name in ("references.bib", "CITATION.cff"))
    yield Text(say(FILES, sources=sources, repository=repository))
    options = tuple((Sentence((Marked(flag, "code"),)), text) for flag, text in FOR_AUTHORS)
    yield Details("For who publishes this site: options of “headbook render”", (Symbols(options),))


def _texts(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yield origin, licence and annotation of the texts."""
    yield from text_facts(manifest)
    if manifest.annotators:
        yield "Annotation", "; ".join(manifest.annotators.values())


def _model(model: ModelFacts) -> Iterator[tuple[str, Sentence | str]]:
    """Yield origin and licence of the model, and where it is described."""
    yield "Origin", _origin(model)
    yield "Licence", model.license or NOT_GIVEN
    yield "As loaded", Sentence((Link("Revision, sizes and tokenizer", "methods.html#model"),))


def _origin(model: ModelFacts) -> Sentence | str:
    """Return where the model comes from: the hub, or a package; a folder or file has no origin."""
    package = DEMO_PACKAGES.get(model.revision, "")
    if package:
        return f"Python package {package}"
    address = hub_address(model)
    return Sentence((Link("Hugging Face hub", address),)) if address else NOT_GIVEN


def hub_address(model: ModelFacts) -> str:
    """Return the address of a model on the Hugging Face hub; empty for a folder or a file."""
    if HUB_NAME.fullmatch(model.name) and COMMIT.fullmatch(model.revision):
        return f"https://huggingface.co/{model.name}/tree/{model.revision}"
    return ""


@dataclass(frozen=True, kw_only=True)
class MissingPage(TemplatePage):
    """The page that a web server sends for a wrong address."""

    template: ClassVar[str] = "404.html"
    contents = False


def missing_page() -> MissingPage:
    """Return the page for wrong addresses."""
    return MissingPage(
        path="404.html",
        title="Page not found",
        description="There is no page at this address.",
    )


@dataclass(frozen=True, kw_only=True)
class SectionPage(TemplatePage):
    """A page of the author's own.

    Attributes:
        text: the page below its heading, in Markdown.
    """

    template: ClassVar[str] = "section.html"
    text: str


def section_pages(manifest: Manifest) -> Iterator[SectionPage]:
    """Yield the pages of the author's own, in the order given."""
    parts = [section_parts(text) for text in manifest.sections]
    for path, (title, text) in zip(section_paths(title for title, _ in parts), parts, strict=True):
        start = plain_words(text.partition("\n\n")[0])
        short = start if len(start) <= MAX_DESCRIPTION else f"{start[:MAX_DESCRIPTION]}…"
        yield SectionPage(path=path, title=title, description=short or title, text=text)
