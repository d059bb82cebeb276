"""Parts of every page: address, title, scripts, provenance, and remarks on what is missing."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

from headbook.report.wording import STACKS, count_text
from headbook.study.input_facts import InputFacts
from headbook.study.manifest import Manifest, NotAvailable

NAMED, LISTED = 3, 10  # inputs that every page names, and the overview lists
HASHES = "those with the smallest content hashes"


def coverage(manifest: Manifest) -> str:
    """Return the number of sentences; if they are a part of the input, also which part.

    ``1,000 sentences``, ``1,000 sentences (of 25,000, those with the smallest content hashes)``.
    """
    sentences = count_text(manifest.counts["sentences"], manifest.text_noun)
    part = _part(manifest)
    return f"{sentences} ({part})" if part else sentences


def _part(manifest: Manifest) -> str:
    """Return which part of the input was read; empty for the whole input."""
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
    # Several inputs were read in part; their numbers are added up.
    return f"of {total}" if total else "a part of the input"


def input_names(manifest: Manifest) -> str:
    """Return the names of the read inputs; of many, the first names and the number of others."""
    names = [file.name for file in manifest.inputs if file.sha256]
    more = len(names) - NAMED
    if more <= 1:
        return ", ".join(names)
    return f"{', '.join(names[:NAMED])} and {more:,} more inputs"


def input_rows(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yield the inputs as terms and values, each with the number of its sentences."""
    files, noun = manifest.inputs, "pair" if manifest.text_noun == "pair" else "sentence"
    listed = files if len(files) <= LISTED + 1 else files[:LISTED]
    for file in listed:
        blank = f" · {count_text(file.blank, 'blank line')} skipped" if file.blank else ""
        remarks = "".join(f" · {remark}: {number:,}" for remark, number in file.remarks.items())
        yield "Input", f"{file.name} · {_taken(file, noun)}{blank}{remarks}"
    rest = files[len(listed) :]
    if rest:
        sentences = sum(file.sentences for file in rest)
        yield "Input", f"{len(rest):,} more inputs · {count_text(sentences, noun)}"


def _taken(file: InputFacts, noun: str) -> str:
    if not file.left and file.left is not None:
        return count_text(file.sentences, noun)
    if not file.sha256:
        return "not read"
    if file.left is None:
        return f"the first {count_text(file.sentences, noun)}"
    return f"{file.sentences:,} of {count_text(file.sentences + file.left, noun)}"


# Scripts that draw attention maps, in the order of loading.
ATTENTION_SCRIPTS = ("view_math", "view_switches", "attention_canvas")
EVERY = slice(None)  # all pages of a kind


@dataclass(frozen=True)
class SiteFacts:
    """Facts that the frame of every page prints.

    Attributes:
        title: title of the site.
        model: name of the model.
        provenance: model, data, sentences and version of Headbook in one line.
        source: model, revision, data and sentences, to end a figure's caption.
        sentence_pages: whether there are pages of sentences.
    """

    title: str
    model: str
    provenance: str
    source: str
    sentence_pages: bool

    @classmethod
    def of(cls, manifest: Manifest, *, sentence_pages: bool) -> "SiteFacts":
        """Return the facts of a study's site."""
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
class TemplatePage:
    """A page of the site.

    Attributes:
        template: file that renders it.
        scripts: names of the scripts in ``templates/assets`` that it loads after ``site``.
        styles: names of the style sheets in ``templates/assets`` that it loads after ``site``.
        contents: whether it has a table of contents if it has several headings.
        path: address, relative to the site's root.
        title: title of the page, for its heading and the browser.
        description: one sentence for search engines and previews.
    """

    template: ClassVar[str]
    scripts: ClassVar[tuple[str, ...]] = ()
    styles: ClassVar[tuple[str, ...]] = ()
    contents: ClassVar[bool] = True
    path: str
    title: str
    description: str

    @property
    def root(self) -> str:
        """Relative address of the site's root."""
        return "../" * self.path.count("/")


class TextPart(Protocol):
    """A part of a sentence with markup: a link, a number with its row, or marked words."""

    @property
    def text(self) -> str:
        """Words of the part."""


SentenceParts = tuple[str | TextPart, ...]  # words and other parts in order


def plain_text(sentence: SentenceParts) -> str:
    """Return the words of a sentence without markup."""
    return "".join(part if isinstance(part, str) else part.text for part in sentence)


@dataclass(frozen=True)
class TemplateQuestion:
    """A further question of a page, with its answer.

    Attributes:
        id: fragment of its address.
        title: the question.
        answer: one sentence that answers it.
        keywords: words by which the search finds it, beside those of the title.
    """

    id: str
    title: str
    answer: SentenceParts
    keywords: str = ""


@dataclass(frozen=True, kw_only=True)
class AnalysisPage(TemplatePage):
    """A page that answers a question about all heads; its title is the question.

    Attributes:
        topic: subject of the page, as the menu calls it.
        answer: one sentence that answers the question.
        scope: pairs of a term and a fact: measured sentences, comparison, and the like.
        questions: further questions, in the order of the page.
        absent: a sentence for each number that was not measured, with the option that measures it.
    """

    styles: ClassVar[tuple[str, ...]] = ("plots", "maps", "analysis")
    contents = False
    topic: str
    answer: SentenceParts
    scope: tuple[tuple[str, str], ...]
    questions: tuple[TemplateQuestion, ...] = ()
    absent: tuple[str, ...] = ()


@dataclass(frozen=True)
class StackSection:
    """A section of a page on one stack.

    Attributes:
        stack: the kind of attention, as files call it.
    """

    stack: str

    @property
    def title(self) -> str:
        """Name of the stack on pages."""
        return STACKS[self.stack]


def gap_text(gap: NotAvailable) -> str:
    """Return a message on missing numbers: which, in which stack, and why."""
    where = f" in {STACKS[gap.stack]}" if gap.stack else ""
    return f"{gap.what}{where}: {gap.why}"


def gap_texts(gaps: Iterable[NotAvailable]) -> list[str]:
    """Return messages on missing numbers, one for all gaps of one stack with one reason."""
    together: dict[tuple[str, str], list[str]] = {}
    for gap in gaps:
        together.setdefault((gap.stack, gap.why), []).append(gap.what)
    return [
        gap_text(NotAvailable(", ".join(what), stack, why))
        for (stack, why), what in together.items()
    ]
