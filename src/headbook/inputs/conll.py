"""Reader of CoNLL files of two columns: a word and its tag on each line, as for named entities."""

import json
from collections.abc import Iterator
from pathlib import Path

from headbook.errors import InputError
from headbook.inputs.records import Record, Records, decoded_lines
from headbook.inputs.rows import LABEL_COLUMNS, places_of

DOCUMENT_START = "-DOCSTART-"  # in place of a word, between documents
TAGS = LABEL_COLUMNS[-1]  # metadata column of the tags, a list in JSON


def read_conll(path: Path, file_name: str) -> Records:
    """Yield one sentence per block of lines, its words joined by spaces; blank lines end blocks."""
    for first, rows in _blocks(path, file_name):
        words, tags = zip(*rows, strict=True)
        metadata = {TAGS: json.dumps(tags, ensure_ascii=False)}
        yield Record(
            first, " ".join(words), words=places_of(words), metadata=metadata, bare_words=True
        )


def _blocks(path: Path, file_name: str) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """Yield the first line of each block, with its words and tags."""
    first, rows = 0, list[tuple[str, str]]()
    for number, line in enumerate(decoded_lines(path, file_name), start=1):
        cells = _cells(line)
        if cells and (cells[0] == DOCUMENT_START or (line.startswith("#") and len(cells) != 2)):
            continue
        if not cells:
            if rows:
                yield first, rows
            rows = []
            continue
        if len(cells) != 2:
            raise InputError(
                file_name,
                number,
                found=f"{len(cells)} columns",
                expected="2, a word and its tag; a treebank is a .conllu file of ten columns",
            )
        first = first if rows else number
        rows.append((cells[0], cells[1]))
    if rows:
        yield first, rows


def _cells(line: str) -> list[str]:
    """Return the columns of a line, which tabs separate, or else any white space."""
    cells = [cell.strip() for cell in line.split("\t")] if "\t" in line.strip() else line.split()
    return cells if any(cells) else []
