"""Corpus of checked inputs, read as one stream of sentences."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from headbook.errors import ConfigError, InputError, warn
from headbook.inputs.huggingface import DatasetSource
from headbook.inputs.objects import ObjectSource
from headbook.inputs.parallel import with_pairs
from headbook.inputs.records import (
    NO_HEAD,
    BlankLine,
    InputLayout,
    Record,
    Remark,
    Selection,
    SmallestHashes,
    TextRecord,
    joined_pair,
    within,
)
from headbook.inputs.sources import (
    TABLE_READERS,
    TREEBANK,
    WITH_HEADER,
    InputSource,
    line_of,
    source_of,
    spool,
    unreadable_error,
)
from headbook.schema import (
    MAX_REGIONS,
    PAIR_REGIONS,
    RELATIONS,
    UPOS,
    AnnotationScheme,
    ModelKind,
    universal_relation,
)

SKIPPED = {Remark.COMMENTS}  # remarks on lines without a sentence
# Sentences of a treebank whose forms may differ from their text: so many, or this share.
MAX_MISSPELLED, MAX_MISSPELLED_SHARE = 10, 0.1


@dataclass(frozen=True)
class InputFile:
    """One input after a check, with its hash and its numbers of sentences.

    Attributes:
        source: source that the input is read from.
        sha256: hash of the file's bytes, or of the rows read from a dataset; empty if nothing
            was read.
        sentences: number of sentences taken from the input.
        blank: number of blank lines, which are skipped.
        left: number of sentences not taken, or of rows not taken if the input was not read to its
            end but states its number of rows; None if unknown.
        remarks: what the reader did beyond reading, with how often.
        regions: names of the regions of its texts, with the number of texts that have them.
        foreign_tags, foreign_relations: names in the input's own annotation outside `UPOS` and
            `RELATIONS`, with their frequencies.
    """

    source: InputSource
    sha256: str
    sentences: int
    blank: int
    left: int | None = 0
    remarks: Mapping[Remark, int] = field(default_factory=dict)
    regions: Mapping[str, int] = field(default_factory=dict)
    foreign_tags: Mapping[str, int] = field(default_factory=dict)
    foreign_relations: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the input on pages and in the manifest: the file's own name, without folder."""
        return self.source.name

    @property
    def annotated(self) -> bool:
        """Whether the input has its own words, tags and heads."""
        return self.source.kind == TREEBANK

    def sampled(self, records: Iterable[Record]) -> "InputFile":
        """Return a copy that counts only the sampled sentences."""
        counts = _InputCounts()
        for record in records:
            counts.add(record)
        n_sampled = counts.kinds[Record]
        tags, relations = counts.foreign()
        return replace(
            self,
            sentences=n_sampled,
            left=self.sentences - n_sampled,
            remarks={r: n for r, n in self.remarks.items() if r in SKIPPED} | counts.remarks,
            regions=counts.regions,
            foreign_tags=tags,
            foreign_relations=relations,
        )


def check_input(
    source: InputSource, limit: int | None, sample: SmallestHashes | None, number: int
) -> InputFile:
    """Read an input to its end or limit, and count its sentences.

    Args:
        limit: largest number of sentences; the rest of the input is not checked.
        sample: hash sample that gets every record; None without sampling.
        number: number of the input, for the sample.

    Raises:
        InputError: the input is faulty or cannot be read.
    """
    try:
        file_hash = None if limit == 0 else source.sha256()
        digest = hashlib.sha256()
        hash_line = digest.update if file_hash is None else None
        counts = _InputCounts()
        if limit != 0:
            _count(source, counts, limit, sample=sample, number=number, hash_line=hash_line)
        _check_forms(source.name, counts)
        n_left = 0 if counts.whole else _rows_left(source, counts)
    except OSError as error:
        raise unreadable_error(source.label, error) from error
    tags, relations = counts.foreign()
    return InputFile(
        source,
        sha256=file_hash or (digest.hexdigest() if counts.kinds else ""),
        sentences=counts.kinds[Record],
        blank=counts.kinds[BlankLine] - sum(counts.remarks[remark] for remark in SKIPPED),
        left=n_left,
        remarks=dict(counts.remarks),
        regions=dict(counts.regions),
        foreign_tags=tags,
        foreign_relations=relations,
    )


def _count(
    source: InputSource,
    counts: "_InputCounts",
    limit: int | None,
    *,
    sample: SmallestHashes | None,
    number: int,
    hash_line: Callable[[bytes], None] | None,
) -> None:
    """Read an input to its end or limit, and add its records to counts, sample and hash."""
    for record in source.records():
        if isinstance(record, Record):
            if counts.kinds[Record] == limit:
                return
            if sample is not None:
                sample.add(record, number)
        counts.add(record)
        if hash_line is not None:
            hash_line(line_of(record))
    counts.whole = True


def _rows_left(source: InputSource, counts: "_InputCounts") -> int | None:
    """Return the number of rows after those read, or None if unknown."""
    rows = source.rows()
    remaining = 0 if rows is None else rows - counts.kinds.total()
    return remaining if remaining > 0 else None  # the source's count is wrong


class _InputCounts:
    """Counts of an input's records by type, and of the names in their annotation.

    Attributes:
        kinds: number of records of each type.
        remarks: number of records by remark.
        regions: number of records by name of a region that they have.
        misspelled: first sentence whose forms do not spell its text; None if there is none.
        whole: whether the input was read to its end.
    """

    def __init__(self) -> None:
        self.kinds: Counter[type] = Counter()
        self.remarks: Counter[Remark] = Counter()
        self.regions: Counter[str] = Counter()
        self.misspelled: Record | None = None
        self.whole = False
        self._tags: Counter[str] = Counter()
        self._relations: Counter[str] = Counter()

    def add(self, record: Record | BlankLine) -> None:
        self.kinds[type(record)] += 1
        if isinstance(record, BlankLine):
            if record.remark is not None:
                self.remarks[record.remark] += 1
            return
        self.remarks.update([*record.remarks])
        self.regions.update(record.region_names)
        if self.misspelled is None and Remark.FORMS in record.remarks:
            self.misspelled = record
        for word in record.words or ():
            self._tags[word.upos] += 1
            if word.head != NO_HEAD:
                self._relations[universal_relation(word.relation)] += 1

    def foreign(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return frequencies of tags and relations that are not in Universal Dependencies."""
        return _names_outside(self._tags, UPOS), _names_outside(self._relations, RELATIONS)


def _check_forms(name: str, counts: _InputCounts) -> None:
    """Raise an error if the forms of many sentences of a treebank do not spell their texts."""
    n_forms, first = counts.remarks[Remark.FORMS], counts.misspelled
    n_sentences = counts.kinds[Record]
    if first is not None and n_forms > max(MAX_MISSPELLED, MAX_MISSPELLED_SHARE * n_sentences):
        raise InputError(
            name,
            first.line,
            found=f"{n_forms:,} of {n_sentences:,} sentences whose forms do not spell their text, "
            f"here {first.remarks[Remark.FORMS]}",
            expected="forms that spell '# text', or no '# text', so that the forms are read",
        )


def _names_outside(counts: Mapping[str, int], known: Sequence[str]) -> dict[str, int]:
    """Return the counts of names that are neither known nor empty."""
    return {name: count for name, count in counts.items() if name and name not in known}


class Corpus:
    r"""Checked inputs as one stream of sentences; iterating reads the files, or a sample in memory.

    Close the corpus, or use it in a ``with`` block, to remove temporary copies of inputs that can
    be read only once.

    Attributes:
        files: the inputs, in the order in which the user gave them.
        shorten: function that cuts a very long text before any other processing; None leaves texts
            whole. Sentences with their own words stay whole.
        for_encoder: whether the model is an encoder, which reads both texts of a pair.
    """

    shorten: Callable[[str], str] | None = None
    for_encoder: bool = True

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

    def __iter__(self) -> Iterator[TextRecord]:
        for index, (file, record) in enumerate(self._records()):
            yield self._shortened(self._sentence(record, index, self.files[file].name))

    def _shortened(self, sentence: TextRecord) -> TextRecord:
        """Return a sentence with its texts cut by `shorten`, and how much was cut."""
        if self.shorten is None or sentence.words is not None:
            return sentence
        texts = [*map(self.shorten, sentence.texts)]
        text, regions = texts[0], within(sentence.regions, len(texts[0]))
        if sentence.is_pair:
            text, regions = joined_pair(*texts)
        target = None if sentence.target is None else self.shorten(sentence.target)
        return replace(
            sentence,
            text=text,
            regions=regions,
            target=target,
            left_out=len(sentence.text) - len(text),
            target_left_out=len(sentence.target or "") - len(target or ""),
        )

    def _records(self) -> Iterable[tuple[int, Record]]:
        """Return the records of all inputs or of the sample, with the number of their input."""
        return self._read() if self._sample is None else self._sample

    def _read(self) -> Iterator[tuple[int, Record]]:
        """Yield the records of all inputs in order, with the number of their input."""
        for number, file in enumerate(self.files):
            n_sentences = 0
            for record in file.source.records() if file.sentences else ():
                if isinstance(record, Record):
                    yield number, record
                    n_sentences += 1
                    if n_sentences == file.sentences:
                        break

    def _sentence(self, record: Record, index: int, file: str) -> TextRecord:
        """Return a record as the sentence with an index in the corpus."""
        is_pair = record.second is not None and self.for_encoder
        text, regions = record.text, record.regions
        if is_pair:
            text, regions = joined_pair(record.text, record.second or "")
        return TextRecord(
            index=index,
            id=record.id,
            text=text,
            target=None if is_pair else record.target,
            words=None if is_pair else record.words,
            metadata=record.metadata,
            class_numbers=record.class_numbers,
            bare_words=record.bare_words and not is_pair,
            origin=f"{file}:{record.line}",
            regions=regions,
            is_pair=is_pair,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._keep.close()

    @property
    def scheme(self) -> AnnotationScheme:
        """Annotation scheme of the inputs, independent of the order of files and sentences."""
        tags, relations = Counter[str](), Counter[str]()
        for file in self.files:
            tags.update(file.foreign_tags)
            relations.update(file.foreign_relations)
        return AnnotationScheme.of(tags, relations, self.regions)

    @property
    def regions(self) -> tuple[str, ...]:
        """Names of the regions of texts, those of most texts first."""
        counts = Counter[str]()
        for file in self.files if self.for_encoder else ():
            counts.update(file.regions)
        return tuple(sorted(counts, key=lambda name: (-counts[name], name)))

    @property
    def has_two_texts(self) -> bool:
        """Whether any row has a second text for an encoder."""
        return any(PAIR_REGIONS[1] in file.regions for file in self.files)

    def read_by(self, kind: ModelKind, model: str) -> None:
        """Read texts as a kind of model takes them: both texts of a pair, or source and target.

        Raises:
            InputError: the model is no encoder, and rows have a second text for one.
        """
        self.for_encoder = kind is ModelKind.ENCODER
        if self.for_encoder or not self.has_two_texts:
            return
        for file, record in self._records():
            if record.second is not None and record.target is None:
                raise InputError(
                    self.files[file].name,
                    record.line,
                    found=f"two texts, which only an encoder reads; '{model}' is {kind}",
                    expected="one text: --text-column names its column"
                    if kind is ModelKind.DECODER
                    else "columns 'source' and 'target', or one text that --text-column names",
                )

    @property
    def pairs(self) -> bool:
        """Whether the first sentence has a target."""
        first = next(iter(self), None)
        return first is not None and first.target is not None


def open_corpus(
    inputs: Sequence[str | Path | InputSource],
    selection: Selection | None = None,
    layout: InputLayout | None = None,
) -> Corpus:
    """Check inputs and open them as one corpus, with a warning for each remark of their readers.

    Args:
        inputs: names of files, folders or ids of datasets; ``-`` is standard input, one sentence
            a line; or sources that are open already. Two adjacent files whose names differ in an
            extension for a language, such as ``a.en`` and ``a.de``, are pairs.
        selection: which sentences are taken; None for all.
        layout: columns, subset and split of tables and datasets.

    Raises:
        InputError: a file is missing, of an unknown kind, not UTF-8, broken or without text.
        ConfigError: the layout has an option for inputs that are not given.
        OutputError: no disk space for copies of inputs that can be read only once.
    """
    selection, layout = selection or Selection(), layout or InputLayout()
    with ExitStack() as keep:
        sources = [
            source_of(str(each), layout, keep, selection.limit)
            if isinstance(each, str | Path)
            else each
            for each in with_pairs(inputs)
        ]
        _check_layout(layout, sources)
        files, sample = _check_all(sources, selection, keep)
        _check_regions(files)
        if not any(file.sentences for file in files):
            raise _nothing_error(files)
        for file in files:
            for remark, number in file.remarks.items():
                warn(f"{file.name}: {remark}: {number:,}")
        return Corpus(files, keep.pop_all(), sample)


def _check_regions(files: Sequence[InputFile]) -> None:
    """Raise an error if the texts of all inputs have more than `MAX_REGIONS` regions."""
    names = {name: file.name for file in files for name in file.regions}
    if len(names) > MAX_REGIONS:
        raise InputError(
            ", ".join(dict.fromkeys(names.values())),
            None,
            found=f"{len(names):,} names of regions: {', '.join([*names][: MAX_REGIONS + 1])}",
            expected=f"at most {MAX_REGIONS} in all texts",
        )


def _nothing_error(files: Sequence[InputFile]) -> InputError:
    """Return the error to raise for inputs without any text."""
    names = ", ".join(file.name for file in files) or "input"
    found, expected = "no text at all", "at least one line that is not blank"
    if all(file.source.kind in WITH_HEADER for file in files):
        found, expected = "a header and no row", "at least one row with text"
    elif not any(file.source.kind for file in files):
        expected = "at least one text that is not blank"
    return InputError(names, None, found=found, expected=expected)


def _check_all(
    sources: Sequence[InputSource], selection: Selection, keep: ExitStack
) -> tuple[list[InputFile], list[tuple[int, Record]] | None]:
    """Check all inputs, and return them with the sample, or None without sampling."""
    smallest_hashes = None if selection.sample is None else SmallestHashes(selection.sample)
    limit, files = selection.limit, list[InputFile]()
    for number, source in enumerate(sources):
        if smallest_hashes is None and limit != 0:
            source = spool(source, limit, keep)  # noqa: PLW2901 - often unchanged
        file = check_input(source, limit, smallest_hashes, number)
        limit = None if limit is None else limit - file.sentences
        files.append(file)
    if smallest_hashes is None:
        return files, None
    sample = [*smallest_hashes.chosen()]
    records_of_file: list[list[Record]] = [[] for _ in files]
    for number, record in sample:
        records_of_file[number].append(record)
    sampled = [file.sampled(records) for file, records in zip(files, records_of_file, strict=True)]
    return sampled, sample


def _check_layout(layout: InputLayout, sources: Sequence[InputSource]) -> None:
    """Raise an error if an option applies to none of the inputs."""
    has_datasets = any(isinstance(source, DatasetSource) for source in sources)
    has_tables = has_datasets or any(
        source.has_columns if isinstance(source, ObjectSource) else source.kind in TABLE_READERS
        for source in sources
    )
    table_kinds = f"a dataset or one of {' '.join(TABLE_READERS)}"
    for option, value, applies, expected in (
        ("--text-column", layout.text_column, has_tables, table_kinds),
        ("--pair-column", layout.pair_column, has_tables, table_kinds),
        ("--subset", layout.subset, has_datasets, "a dataset of Hugging Face"),
        ("--split", layout.split, has_datasets, "a dataset of Hugging Face"),
    ):
        if value is not None and not applies:
            raise ConfigError(f"{option}: got {value!r} with other inputs, expected {expected}")
