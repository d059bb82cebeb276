"""The pages of sentences: one for each listed sentence."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from headbook.pages.parts.page import EVERY, Page
from headbook.pages.parts.text import Token, running_text
from headbook.pages.sentence.sentencestack import StackOfSentence, stack_of
from headbook.pages.sentence.sentencetree import SentenceTree, sentence_tree
from headbook.report.numbers.results import StackResults, study_of
from headbook.report.wording import counted, sentence_file, sentence_page
from headbook.study.sentencedata import StoredSentence, rows_of

ALL_HEADS = (
    "Attention maps of all heads, the paths of its tokens through the layers, and their nearest "
    "vocabulary tokens."
)
SOME_HEADS = "Attention maps of the heads that have it among their exemplars."


@dataclass(frozen=True)
class TextOfSentence:
    """One side of a sentence.

    Attributes:
        side: source or target; empty where there is one text only.
        tokens: the text, token by token.
        remarks: what became of it: cut, or written by the model.
        tree: its dependency tree; None where it is not annotated.
    """

    side: str
    tokens: tuple[Token, ...]
    remarks: tuple[str, ...]
    tree: SentenceTree | None


@dataclass(frozen=True, kw_only=True)
class SentencePage(Page):
    """One sentence.

    Attributes:
        number: its number in the input, counted from 1.
        listed: whether all heads are shown, not only those that cite it.
        previous, next: addresses of its neighbours, or None.
        metadata: other columns of the input.
        texts: its texts in tokens.
        stacks: what happens to its tokens, by stack.
        name: of its data; what follows from it is named ``0001-paths``.
        data: script with the maps' numbers.
        paths, entries: scripts with the paths of its tokens and what is nearest to them.
    """

    template: ClassVar[str] = "sentence.html"
    number: int
    listed: bool
    previous: str | None
    next: str | None
    metadata: tuple[tuple[str, str], ...]
    texts: tuple[TextOfSentence, ...]
    stacks: tuple[StackOfSentence, ...]
    name: str
    data: str
    paths: str
    entries: str


def sentence_pages(
    results: Mapping[str, StackResults], share: slice = EVERY
) -> Iterator[SentencePage]:
    """A page for each listed sentence, and for each that exemplars cite.

    Args:
        share: of these sentences, those whose pages are made.
    """
    study = study_of(results)
    chosen = study.sentence_data.paged
    tokens, nearest = rows_of(study.tokens), rows_of(study.nearest)
    for position, sentence in [*enumerate(chosen)][share]:
        before = chosen[position - 1].number if position else None
        after = chosen[position + 1].number if position + 1 < len(chosen) else None
        rows, near = tokens(sentence.number), nearest(sentence.number)
        stacks = (stack_of(result, sentence, rows, near) for result in results.values())
        name = sentence_file(sentence.number)
        yield SentencePage(
            path=sentence_page(sentence.number),
            title=f"Sentence {sentence.number}",
            description=ALL_HEADS if sentence.listed else SOME_HEADS,
            number=sentence.number,
            listed=sentence.listed,
            previous=sentence_page(before) if before else None,
            next=sentence_page(after) if after else None,
            metadata=tuple(_metadata(sentence)),
            texts=tuple(_texts(sentence)),
            stacks=tuple(stacks),
            name=name,
            data=f"data/sentences/{name}.js",
            paths=f"data/sentences/{name}-paths.js",
            entries=f"data/sentences/{name}-entries.js",
        )


def _metadata(sentence: StoredSentence) -> Iterator[tuple[str, str]]:
    if sentence.id and sentence.id != str(sentence.number):
        yield "id", sentence.id
    yield from sentence.metadata.items()


def _texts(sentence: StoredSentence) -> Iterator[TextOfSentence]:
    for side, text in sentence.texts.items():
        remarks = []
        if text.lost:
            behind = (
                f", and {counted(text.left_out, 'character')} after them" if text.left_out else ""
            )
            remarks.append(
                f"Longer than the model takes: {counted(text.lost, 'token')} at the end{behind} "
                "were cut."
            )
        if text.generated:
            remarks.append("Written by the model itself (greedy decoding).")
        name = str(side) if len(sentence.texts) > 1 else ""
        tree = sentence_tree(text, f"tree-{side}")
        yield TextOfSentence(name, running_text(text), tuple(remarks), tree)
