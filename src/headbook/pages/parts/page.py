"""What every page has."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from headbook.pages.parts.coverage import coverage, input_names
from headbook.report.wording import STACKS
from headbook.study.gaps import Gap
from headbook.study.manifest import Manifest

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


def gap_text(gap: Gap) -> str:
    """What is missing, where and why."""
    where = f" in {STACKS[gap.stack]}" if gap.stack else ""
    return f"{gap.what}{where}: {gap.why}"


def gap_texts(gaps: Iterable[Gap]) -> list[str]:
    """The same of several, those of one place and one reason together."""
    together: dict[tuple[str, str], list[str]] = {}
    for gap in gaps:
        together.setdefault((gap.stack, gap.why), []).append(gap.what)
    return [gap_text(Gap(", ".join(what), stack, why)) for (stack, why), what in together.items()]
