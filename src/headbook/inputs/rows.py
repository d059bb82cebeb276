"""Rows of named columns as records: which column holds the text, and in which form.

The same rules hold for files, datasets, tables and dicts in memory.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

from headbook.config import FACETS
from headbook.errors import InputError
from headbook.inputs.records import DEFAULT_TEXTS, BlankLine, Record, TextColumns, Word

TEXT, SENTENCE, TOKENS, TRANSLATION = TEXT_COLUMNS = ("text", "sentence", "tokens", "translation")
SOURCE, TARGET, ID = "source", "target", "id"
LABEL_COLUMNS = ("label", "ner_tags", "labels")  # columns of labels, the first that there is
CHAT_COLUMNS = ("messages", "conversations")
SECOND_TEXT_COLUMNS = {  # columns of the second text of a pair, by that of the first
    TEXT: ("text_pair", "text_b"), SENTENCE: ("sentence_pair", "sentence_b"),
    "text_a": ("text_b",), "premise": ("hypothesis",), "sentence1": ("sentence2",),
    "question": ("context",), "query": ("passage",),
}  # fmt: skip
TASK_COLUMNS = ("pair_id", "acceptable", "answer", "wrong", "corrupt", "alignment", "document")
# Columns that have a meaning; headers may write them with capitals.
KNOWN_COLUMNS = frozenset(
    {
        *TEXT_COLUMNS, SOURCE, TARGET, ID, *LABEL_COLUMNS, *CHAT_COLUMNS, *TASK_COLUMNS, *FACETS,
        *SECOND_TEXT_COLUMNS, *(name for names in SECOND_TEXT_COLUMNS.values() for name in names),
    }
)  # fmt: skip
# Columns that pandas makes of an index, and of columns without a name.
INDEX_COLUMN = re.compile(r"Unnamed: \d+(\.\d+)*|__index_level_\d+__")
DEFAULT_COLUMNS = (
    f"a column '{TEXT}', '{SENTENCE}', '{TOKENS}' or '{TRANSLATION}', both '{SOURCE}' and "
    f"'{TARGET}', or two texts such as 'premise' and 'hypothesis'; --text-column takes another"
)


MAX_NAMED = 20  # columns that a message names


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Meaning of the columns of a row.

    Attributes:
        names: column names without surrounding blanks, known ones in lower case; empty for columns
            that are no data.
        text: position of the column of the text.
        target: position of the column of the target; None without one.
        second: position of the column of the second text of a pair; None without one.
        id: position of the column of the id; None without one.
        chosen: whether the user has named the column of the text.
    """

    names: tuple[str, ...]
    text: int
    target: int | None
    second: int | None
    id: int | None
    chosen: bool


class ColumnError(Exception):
    """Columns that cannot be read. The arguments are what was found, and what was expected."""


@lru_cache(maxsize=256)  # rows of a file share their columns
def layout_of(columns: tuple[str, ...], chosen: TextColumns) -> RowLayout:
    """Return what columns mean.

    Args:
        columns: names of the columns.
        chosen: columns of the texts that the user has named.

    Raises:
        ColumnError: no column has the text, or a name occurs twice.
    """
    names = column_names(columns)
    repeated = next((name for name, n in Counter(names).items() if name and n > 1), None)
    if repeated is not None:
        raise ColumnError(f"column '{repeated}' twice", "each column name once")
    second = _second_column(names, chosen)
    text = _text_column(names, chosen, second)
    if text is None:
        _raise_missing(names, chosen.text)
    if text == second:
        expected = "two columns; --text-column names that of the first text"
        raise ColumnError(f"column '{names[text]}' for both texts of a pair", expected)
    if second is None and chosen.text is None:
        second = _place_of_second(names, names[text])
    id_column = names.index(ID) if ID in names and names[text] != ID else None
    is_pair = chosen.text is None and names[text] == SOURCE and second is None
    return RowLayout(
        names,
        text,
        names.index(TARGET) if is_pair else None,
        second,
        id_column,
        chosen.text is not None,
    )


def column_names(columns: Iterable[str]) -> tuple[str, ...]:
    """Return names of columns as they are matched: without blanks, known ones in lower case.

    A name that pandas gives to an index is empty, as is that of a column without a name.
    """
    bare = [name.strip() for name in columns]
    there = {*bare}
    return tuple(
        ""
        if INDEX_COLUMN.fullmatch(name)
        else name.casefold()
        if name.casefold() in KNOWN_COLUMNS and name.casefold() not in there
        else name
        for name in bare
    )


def matching_column(name: str, columns: Iterable[str]) -> str | None:
    """Return the column with a name, or else the only one with that name in other case."""
    known = {*columns}
    if name in known:
        return name
    equal = [column for column in known if column.casefold() == name.strip().casefold()]
    return equal[0] if len(equal) == 1 else None


def _second_column(names: Sequence[str], chosen: TextColumns) -> int | None:
    """Return the position of the column that the user has named for second texts, or None.

    Raises:
        ColumnError: there is no such column.
    """
    if chosen.pair is None:
        return None
    name = matching_column(chosen.pair, names)
    if not name:
        expected = f"a column '{chosen.pair}', as --pair-column says"
        raise ColumnError(_listed(names), expected)
    return names.index(name)


def _text_column(names: Sequence[str], chosen: TextColumns, second: int | None) -> int | None:
    """Return the position of the column of the text, or None."""
    if chosen.text is not None:
        name = matching_column(chosen.text, names)
        return None if not name else names.index(name)
    default = next((name for name in TEXT_COLUMNS if name in names), None)
    if default is None and {SOURCE, TARGET} <= {*names}:
        default = SOURCE
    if default is None:
        firsts = (name for name in SECOND_TEXT_COLUMNS if name in {*names} - {_name(names, second)})
        if second is None:
            firsts = (name for name in firsts if _place_of_second(names, name) is not None)
        default = next(firsts, None)
    return None if default is None else names.index(default)


def _name(names: Sequence[str], place: int | None) -> str | None:
    return None if place is None else names[place]


def _place_of_second(names: Sequence[str], first: str) -> int | None:
    """Return the position of the column of second texts beside that of first ones, or None."""
    seconds = (name for name in SECOND_TEXT_COLUMNS.get(first, ()) if name in names)
    return next(map(names.index, seconds), None)


def names_text(columns: Iterable[str], chosen: TextColumns) -> bool:
    """Whether any of some columns holds texts, whether they are read or not.

    Args:
        columns: names of columns.
        chosen: columns of the texts that the user has named.
    """
    names = column_names(columns)
    if chosen.text is not None:
        return matching_column(chosen.text, names) is not None
    firsts = {*TEXT_COLUMNS, *CHAT_COLUMNS, SOURCE, *SECOND_TEXT_COLUMNS}
    return not firsts.isdisjoint(names)


def _raise_missing(names: Sequence[str], column: str | None) -> NoReturn:
    """Raise the error for columns without a text."""
    expected = DEFAULT_COLUMNS
    if column is not None:
        expected = f"a column '{column}', as --text-column says"
    elif chat := next((name for name in CHAT_COLUMNS if name in names), None):
        raise ColumnError(f"column '{chat}'", f"texts: chats are not read yet; {expected}")
    raise ColumnError(_listed(names), expected)


def _listed(names: Sequence[str]) -> str:
    """Return the names of columns for a message."""
    quoted = [f"'{name}'" for name in names if name]
    more = f" and {len(quoted) - MAX_NAMED:,} more" if len(quoted) > MAX_NAMED else ""
    return f"columns {', '.join(quoted[:MAX_NAMED]) or 'nothing'}{more}"


def check_header(header: Sequence[str], file_name: str, chosen: TextColumns) -> None:
    """Raise an error for columns that `layout_of` refuses.

    Raises:
        InputError: the columns lack the text, or a name occurs twice.
    """
    try:
        layout_of(tuple(header), chosen)
    except ColumnError as error:
        found, expected = error.args
        raise InputError(file_name, 1, found=found, expected=expected) from None


def record_of(
    row: Mapping[str, Any], number: int, file_name: str, chosen: TextColumns = DEFAULT_TEXTS
) -> Record | BlankLine:
    """Return the record of a row; columns other than its texts become metadata.

    Args:
        row: values by name of the column.
        number: line or row, counted from 1.
        chosen: columns of the texts that the user has named; a named text has no target.

    Returns:
        The record, or a `BlankLine` if the text, or the second one of a pair, is missing or blank.

    Raises:
        InputError: the column is missing, or holds no text.
    """
    try:
        layout = layout_of(tuple(row), chosen)
        values = [*map(_plain, row.values())]
        target = None if layout.target is None else values[layout.target]
        text, target, words = _texts(layout, values[layout.text], target)
        second = None if layout.second is None else _second_text(layout, values[layout.second])
    except ColumnError as error:
        found, expected = error.args
        raise InputError(file_name, number, found=found, expected=expected) from None
    if not text or second == "":
        return BlankLine(number)
    own = {layout.text, layout.target, layout.second, layout.id}
    metadata = {
        name: _as_text(value)
        for place, (name, value) in enumerate(zip(layout.names, values, strict=True))
        if name and place not in own and not is_missing(value)
    }
    identity = None if layout.id is None else values[layout.id]
    name = "" if is_missing(identity) else str(identity)
    for string in (text, target or "", second or "", name, *metadata, *metadata.values()):
        _check_unicode(string, number, file_name)
    return Record(
        number,
        text,
        target=target,
        second=second,
        id=name,
        words=words,
        metadata=metadata,
        bare_words=words is not None,
    )


def record_of_cells(
    header: Sequence[str],
    cells: Sequence[Any],
    number: int,
    file_name: str,
    chosen: TextColumns = DEFAULT_TEXTS,
) -> Record | BlankLine:
    """Return the record of a row whose columns are named by a header, as `record_of` does.

    Empty columns without a name are left out, as is a first one, the index that pandas writes.

    Raises:
        InputError: the row has fewer cells than the header, or a cell without a name.
    """
    if all(map(_is_blank, cells)):
        return BlankLine(number)
    n_columns = max(place for place, name in enumerate(header, start=1) if name.strip())
    if len(cells) < n_columns or not all(map(_is_blank, cells[len(header) :])):
        raise InputError(
            file_name,
            number,
            found=f"{len(cells)} columns",
            expected=f"{len(header)}, as in the header line",
        )
    row = {}
    for place, (name, cell) in enumerate(zip(header, cells, strict=False)):
        if name.strip():
            row[name] = cell
        elif place and not _is_blank(cell):
            raise InputError(
                file_name,
                number,
                found=f"{_shortened(cell)} in column {place + 1}, which has no name",
                expected="a name in the header line for each column that is not empty",
            )
    return record_of(row, number, file_name, chosen)


def _is_blank(cell: Any) -> bool:
    return is_missing(cell) or not str(cell).strip()


Texts = tuple[str, str | None, tuple[Word, ...] | None]  # text, target and words


def _texts(layout: RowLayout, value: Any, target: Any) -> Texts:
    """Return text, target and words of the value of a text column; an empty text if it is blank.

    Raises:
        ColumnError: the value is no text, no list of words, or no pair of texts.
    """
    name = layout.names[layout.text]
    if is_missing(value):
        return "", None, None
    target = None if is_missing(target) else target
    if not isinstance(target, str | None):
        raise ColumnError(f"{TARGET} = {_shortened(target)}", "text")
    if name == TOKENS or (layout.chosen and isinstance(value, list)):
        return _joined(name, value)
    if name == TRANSLATION or (layout.chosen and isinstance(value, Mapping)):
        return _translated(name, value)
    if not isinstance(value, str):
        raise ColumnError(f"{name} = {_shortened(value)}", "text that is not blank")
    return value.strip(), (target or "").strip() or None, None


def _second_text(layout: RowLayout, value: Any) -> str:
    """Return the second text of a pair; empty if it is blank.

    Raises:
        ColumnError: the value is no text, or the first text is no text of its own.
    """
    assert layout.second is not None
    name = layout.names[layout.second]
    if layout.names[layout.text] in {TOKENS, TRANSLATION}:
        found = f"column '{layout.names[layout.text]}' beside '{name}'"
        raise ColumnError(found, "two columns of texts; --text-column names that of the first")
    if not isinstance(value, str) and not is_missing(value):
        raise ColumnError(f"{name} = {_shortened(value)}", "text that is not blank")
    return "" if is_missing(value) else value.strip()


def _joined(name: str, value: Any) -> Texts:
    """Return words joined by spaces, with their places; a text has them as JSON or with blanks."""
    if isinstance(value, str):
        with suppress(ValueError):  # refused as text below
            value = json.loads(value) if value.lstrip().startswith("[") else value.split()
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        expected = "a list of words; --text-column takes another column"
        raise ColumnError(f"{name} = {_shortened(value)}", expected)
    words = [*filter(None, map(str.strip, value))]
    return " ".join(words), None, places_of(words)


def places_of(words: Iterable[str]) -> tuple[Word, ...]:
    """Return the places of words in the text that spaces between them make."""
    places, start = list[Word](), 0
    for word in words:
        places.append(Word(start, start + len(word)))
        start += len(word) + 1
    return tuple(places)


def _translated(name: str, value: Any) -> Texts:
    """Return the pair of a mapping from two languages to texts, the source first."""
    texts = [*value.values()] if isinstance(value, Mapping) else []
    if len(texts) != 2 or not all(isinstance(text, str | None) for text in texts):
        expected = "two texts by language, the source first"
        raise ColumnError(f"{name} = {_shortened(value)}", expected)
    source, target = ((text or "").strip() for text in texts)
    return source, target or None, None


def is_missing(value: Any) -> bool:
    """Whether a value is None or one of those that tables hold for no value: NaN, NaT and NA."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return value is None or is_nan or type(value).__name__ in {"NaTType", "NAType"}


def _plain(value: Any) -> Any:
    """Return an array or number of numpy as Python values, a tuple as a list, bytes as their text.

    Tables of some programs do not say that their bytes are UTF-8; other bytes stay bytes.
    """
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            return value.decode()
        return value
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


def _as_text(value: Any) -> str:
    """Return a value of a column as text, or as JSON."""
    return value if isinstance(value, str) else json.dumps(value, default=_json_default)


def _json_default(value: Any) -> Any:
    plain = _plain(value)
    return str(value) if plain is value else plain


def _check_unicode(text: str, number: int, file_name: str) -> None:
    """Raise an error for lone surrogates, which JSON can spell and no encoding can represent."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            file_name,
            number,
            found=f"the lone surrogate {text[error.start]!a}",
            expected="whole Unicode characters",
        ) from None


def _shortened(value: Any) -> str:
    """Return the representation of a value, shortened for a message."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
