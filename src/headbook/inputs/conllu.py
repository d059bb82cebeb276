r"""Reader of CoNLL-U files: text with gold words, parts of speech and dependencies.

Empty nodes (``8.1``) are skipped. A multiword token (``3-4``) is read as two words if their forms
spell the surface ("don't" = "do" + "n't"). Otherwise ("du" = "de" + "le") it is read as one word
with the tag and head of the member nearest to the root, so that the merged words form a tree.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conllu.exceptions import ParseException
from conllu.parser import parse_comment_line, parse_line

from headbook.errors import InputError
from headbook.inputs.records import NO_HEAD, Record, Word, decoded_lines

FIELDS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


@dataclass(frozen=True, slots=True)
class SurfaceToken:
    r"""A range of surface text with the syntactic words that it contains.

    Attributes:
        form: the surface text.
        members: ids of the syntactic words.
        space_after: whether a space follows in the text.
        line: line of the file, counted from 1.
    """

    form: str
    members: tuple[int, ...]
    space_after: bool
    line: int


def read_conllu(path: Path, file_name: str) -> Iterator[Record]:
    """Yield one sentence per block of lines; blank lines separate blocks."""
    block: list[tuple[int, str]] = []
    for number, line in enumerate(decoded_lines(path, file_name), start=1):
        if line.strip():
            block.append((number, line.rstrip("\r\n")))
        elif block:
            yield _record(block, file_name)
            block = []
    if block:
        yield _record(block, file_name)


def _record(block: list[tuple[int, str]], file_name: str) -> Record:
    """Return the sentence of a block of numbered lines, after checks of its words and heads."""
    comments: dict[str, str] = {}
    tokens: dict[int, dict[str, Any]] = {}
    units: list[SurfaceToken] = []
    for number, line in block:
        if line.startswith("#"):
            comments.update((key, value or "") for key, value in parse_comment_line(line))
        else:
            token = _token(line, number, file_name, len(block))
            if token["id"] in tokens:
                raise InputError(
                    file_name, number, found=f"word id {token['id']} twice", expected="each id once"
                )
            _add_token(token, tokens, units)
    first = block[0][0]
    if not tokens:
        raise InputError(
            file_name, first, found="a block without words", expected="at least one word"
        )
    _check_ids(tokens, units, file_name)
    _check_heads(tokens, file_name)
    text = comments.pop("text", "").strip()
    spans = _spans(text, units, file_name) if text else None
    if spans is None:
        text, spans = _compose_text(units)
    return Record(
        first,
        text,
        id=comments.pop("sent_id", ""),
        words=_words(units, spans, tokens),
        metadata=comments,
    )


def _token(line: str, number: int, file_name: str, n_lines: int) -> dict[str, Any]:
    """Parse the columns of a word line, in a block of at most ``n_lines`` lines."""
    columns = line.count("\t") + 1
    if columns != len(FIELDS):
        raise InputError(
            file_name,
            number,
            found=f"{columns} columns",
            expected=f"{len(FIELDS)}, separated by tabs (CoNLL-U)",
        )
    try:
        token = dict(parse_line(line, FIELDS))
    except (ParseException, ValueError) as error:
        endless = isinstance(error, ValueError)  # a number of too many digits
        found = "a number of thousands of digits" if endless else str(error)
        raise InputError(file_name, number, found=found, expected="a CoNLL-U word line") from None
    if token["id"] is None or not token["form"]:
        raise InputError(file_name, number, found="no id or form", expected="a CoNLL-U word line")
    match token["id"]:
        case (int(first), "-", int(last)) if not first <= last <= n_lines:
            raise InputError(
                file_name,
                number,
                found=f"the range {first}-{last}",
                expected=f"words of the same sentence, which has {n_lines} lines",
            )
    return token | {"line": number}


def _add_token(
    token: dict[str, Any], tokens: dict[int, dict[str, Any]], units: list[SurfaceToken]
) -> None:
    """Add a token to the syntactic words and surface units; skip empty nodes."""
    number, space_after = token["line"], (token["misc"] or {}).get("SpaceAfter") != "No"
    match token["id"]:
        case int(word_id):
            tokens[word_id] = token
            if not (units and word_id in units[-1].members):
                units.append(SurfaceToken(token["form"], (word_id,), space_after, number))
        case (int(first), "-", int(last)):
            units.append(
                SurfaceToken(token["form"], tuple(range(first, last + 1)), space_after, number)
            )
        case _:  # an empty node has no place in the text
            pass


def _check_ids(
    tokens: dict[int, dict[str, Any]], units: list[SurfaceToken], file_name: str
) -> None:
    """Raise an error unless word ids count from 1 and each word is in one unit."""
    for index, (word_id, token) in enumerate(tokens.items(), start=1):
        if word_id != index:
            raise InputError(
                file_name, token["line"], found=f"word id {word_id}", expected=f"id {index}"
            )
    members = [(word_id, unit.line) for unit in units for word_id in unit.members]
    for index, (word_id, line) in enumerate(members, start=1):
        if word_id != index or word_id not in tokens:
            is_word = word_id in tokens
            found = f"word id {word_id}" if is_word else f"a range without its word {word_id}"
            expected = f"words 1 to {len(tokens)}, each in one place"
            raise InputError(file_name, line, found=found, expected=expected)


def _check_heads(tokens: dict[int, dict[str, Any]], file_name: str) -> None:
    """Raise an error unless the heads of all words lead to a root."""
    for word_id, token in tokens.items():
        head = token["head"]
        if head is not None and (head == word_id or not 0 <= head <= len(tokens)):
            raise InputError(
                file_name,
                token["line"],
                found=f"head {head} of word {word_id}",
                expected=f"0 (root) or the id of another of the {len(tokens)} words",
            )
    for word_id, token in tokens.items():
        if _depth(word_id, tokens) > len(tokens):
            raise InputError(
                file_name,
                token["line"],
                found=f"head {token['head']} of word {word_id}, which leads round in a circle",
                expected="heads that lead to a root",
            )


def _depth(word_id: int, tokens: dict[int, dict[str, Any]]) -> int:
    """Count the steps from a word up to its root; in a circle more than there are words."""
    depth = 0
    while (head := tokens[word_id]["head"]) and depth <= len(tokens):
        word_id, depth = head, depth + 1
    return depth


def _spans(text: str, units: list[SurfaceToken], file_name: str) -> list[tuple[int, int]]:
    """Return the character span of each unit in the sentence's text."""
    spans, end = [], 0
    for unit in units:
        start = text.find(unit.form, end)
        if start < 0 or text[end:start].strip():
            raise InputError(
                file_name,
                unit.line,
                found=f"the form {unit.form!r}",
                expected=f"the next word of the text, {text[end : end + 20].strip()!r}",
            )
        end = start + len(unit.form)
        spans.append((start, end))
    return spans


def _compose_text(units: list[SurfaceToken]) -> tuple[str, list[tuple[int, int]]]:
    """Compose the text, and the spans of its units, if the file gives no text."""
    text, spans = "", []
    for unit in units:
        spans.append((len(text), len(text) + len(unit.form)))
        text += unit.form + (" " if unit.space_after else "")
    return text.rstrip(), spans


def _words(
    units: list[SurfaceToken], spans: list[tuple[int, int]], tokens: dict[int, dict[str, Any]]
) -> tuple[Word, ...]:
    """Return the words of a sentence; a multiword token is one word if its forms differ from it."""
    spans_and_ids: list[tuple[int, int, int]] = []  # start, end, id of the word with tag and head
    word_of_id: dict[int, int] = {}
    for unit, (start, end) in zip(units, spans, strict=True):
        forms = [tokens[word_id]["form"] for word_id in unit.members]
        if "".join(forms) == unit.form:
            form_start = start
            for word_id, form in zip(unit.members, forms, strict=True):
                word_of_id[word_id] = len(spans_and_ids)
                spans_and_ids.append((form_start, form_start + len(form), word_id))
                form_start += len(form)
        else:
            word_of_id.update(dict.fromkeys(unit.members, len(spans_and_ids)))
            topmost = min(unit.members, key=lambda word_id: _depth(word_id, tokens))
            spans_and_ids.append((start, end, topmost))
    return tuple(
        Word(
            start,
            end,
            upos=_column_text(tokens[word_id]["upos"]),
            relation=_column_text(tokens[word_id]["deprel"]),
            head=word_of_id.get(tokens[word_id]["head"] or 0, NO_HEAD),
        )
        for start, end, word_id in spans_and_ids
    )


def _column_text(value: str | None) -> str:
    """Return the text of a column; empty for ``_``, which stands for a missing value."""
    return "" if value in {None, "_"} else str(value)
