"""Several inputs as one stream of sentences."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Self

from headbook.errors import ConfigError, InputError
from headbook.inputs.check import InputFile, checked
from headbook.inputs.records import Layout, Record
from headbook.inputs.selection import Selection, Smallest
from headbook.inputs.sentence import Sentence
from headbook.inputs.sources import TABLES, WITH_HEADER, Source, source_of
from headbook.inputs.spool import spooled
from headbook.terms import Scheme


class Corpus:
    """Checked inputs; iterating reads them again from the disk, or from memory if it is a sample.

    Close it, or use it in a ``with`` block, to remove what was kept of what is read only once.

    Attributes:
        files: the inputs, as they were given.
        shorten: cuts a very long text before anything else is done with it; None leaves all whole.
            Sentences that come with their own words stay whole.
    """

    shorten: Callable[[str], str] | None = None

    def __init__(
        self,
        files: Sequence[InputFile],
        keep: ExitStack,
        sample: Sequence[tuple[int, Record]] | None = None,
    ) -> None:
        self.files = tuple(files)
        self._keep = keep
        self._sample = sample

    def __len__(self) -> int:
        return sum(file.sentences for file in self.files)

    def __iter__(self) -> Iterator[Sentence]:
        records = self._read() if self._sample is None else self._sample
        for index, (file, record) in enumerate(records):
            yield self._shortened(_sentence(record, index, self.files[file].name))

    def _shortened(self, sentence: Sentence) -> Sentence:
        if self.shorten is None or sentence.words is not None:
            return sentence
        text = self.shorten(sentence.text)
        target = None if sentence.target is None else self.shorten(sentence.target)
        return replace(
            sentence,
            text=text,
            target=target,
            left_out=len(sentence.text) - len(text),
            target_left_out=len(sentence.target or "") - len(target or ""),
        )

    def _read(self) -> Iterator[tuple[int, Record]]:
        for number, file in enumerate(self.files):
            taken = 0
            for record in file.source.records() if file.sentences else ():
                if isinstance(record, Record):
                    yield number, record
                    taken += 1
                    if taken == file.sentences:
                        break

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._keep.close()

    @property
    def scheme(self) -> Scheme:
        """The names of its own annotation; the same in whatever order files and sentences come."""
        tags, relations = Counter[str](), Counter[str]()
        for file in self.files:
            tags.update(file.foreign_tags)
            relations.update(file.foreign_relations)
        return Scheme.of(tags, relations)

    @property
    def pairs(self) -> bool:
        """Whether the first sentence comes with a target."""
        return any(sentence.target is not None for sentence, _ in zip(self, range(1), strict=False))


def open_corpus(
    inputs: Sequence[str | Path],
    selection: Selection | None = None,
    layout: Layout | None = None,
) -> Corpus:
    """Check inputs and open them as one corpus.

    Args:
        inputs: names of files, folders or ids of datasets; ``-`` is standard input, one sentence
            a line.
        selection: which sentences are taken; None: all.
        layout: where texts stand in them.

    Raises:
        InputError: a file is missing, of an unknown kind, not UTF-8, broken or without text.
        ConfigError: the layout says something of inputs that are not there.
        OutputError: there is no room to keep what is read only once.
    """
    selection, layout = selection or Selection(), layout or Layout()
    with ExitStack() as keep:
        sources = [source_of(str(name), layout, keep, selection.limit) for name in inputs]
        _check_layout(layout, sources)
        files, sample = _check_all(sources, selection, keep)
        if not any(file.sentences for file in files):
            rows = all(source.kind in WITH_HEADER for source in sources)
            raise InputError(
                ", ".join(file.name for file in files) or "input",
                None,
                came="a header and no row" if rows else "no text at all",
                expected="at least one row with text"
                if rows
                else "at least one line that is not blank",
            )
        return Corpus(files, keep.pop_all(), sample)


def _check_all(
    sources: Sequence[Source], selection: Selection, keep: ExitStack
) -> tuple[list[InputFile], list[tuple[int, Record]] | None]:
    """The inputs, and the sample if there is one."""
    smallest = None if selection.sample is None else Smallest(selection.sample)
    room, files = selection.limit, list[InputFile]()
    for number, source in enumerate(sources):
        if smallest is None and room != 0:
            source = spooled(source, room, keep)  # noqa: PLW2901 - the same, where it stays
        file = checked(source, room, smallest, number)
        room = None if room is None else room - file.sentences
        files.append(file)
    if smallest is None:
        return files, None
    sample = [*smallest.chosen()]
    of_file: list[list[Record]] = [[] for _ in files]
    for number, record in sample:
        of_file[number].append(record)
    return [f.sampled(records) for f, records in zip(files, of_file, strict=True)], sample


def _check_layout(layout: Layout, sources: Sequence[Source]) -> None:
    """Nothing is said in vain."""
    datasets = any(not source.kind for source in sources)
    tables = datasets or any(source.kind in TABLES for source in sources)
    for option, value, used, what in (
        ("--text-column", layout.text_column, tables, f"a dataset or one of {' '.join(TABLES)}"),
        ("--subset", layout.subset, datasets, "a dataset of Hugging Face"),
        ("--split", layout.split, datasets, "a dataset of Hugging Face"),
    ):
        if value is not None and not used:
            raise ConfigError(f"{option}: {value!r} came with other inputs; expected {what}")


def _sentence(record: Record, index: int, file: str) -> Sentence:
    return Sentence(
        index=index,
        id=record.id,
        text=record.text,
        target=record.target,
        words=record.words,
        metadata=record.metadata,
        origin=f"{file}:{record.line}",
    )
