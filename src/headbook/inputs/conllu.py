r"""Reader of CoNLL-U files: text with gold words, parts of speech and dependencies.

Empty nodes (``8.1``) are skipped. A multiword token (``3-4``) is read as two words if their forms
spell the surface ("don't" = "do" + "n't"). Otherwise ("du" = "de" + "le") it is read as one word
with the tag and head of the member nearest to the root, so that the merged words form a tree.

A sentence whose forms do not spell its text is read from its forms, with a remark.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conllu.exceptions import ParseException
from conllu.parser import parse_comment_line, parse_line

from headbook.errors import InputError
from headbook.inputs.form_spans import Spans, spans_of_forms
from headbook.inputs.records import (
    NO_HEAD,
    BlankLine,
    Record,
    Records,
    Remark,
    Word,
    decoded_lines,
)

FIELDS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
GLOBAL_COLUMNS = "global.columns"  # comment with the names of all columns of a file
HIDDEN = "_"  # form of a word that a licence keeps out of the file
MAX_HIDDEN = 1000  # sentences without any other form, after which no word is expected any more


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


def read_conllu(path: Path, file_name: str) -> Records:
    """Yield one sentence per block of lines; blank lines separate blocks.

    Raises:
        InputError: a line is faulty, or all words of the treebank are hidden.
    """
    held: list[Record | BlankLine] = []  # as long as all forms stand for hidden words
    hidden, n_sentences = True, 0
    for record, is_hidden in _sentences(path, file_name):
        held.append(record)
        hidden &= is_hidden
        n_sentences += isinstance(record, Record)
        if not hidden:
            yield from held
            held.clear()
        elif n_sentences == MAX_HIDDEN:
            break
    if n_sentences and hidden:
        raise InputError(
            file_name,
            next(record.line for record in held if isinstance(record, Record)),
            found=f"a treebank whose words are hidden: all forms are '{HIDDEN}'",
            expected="its words, which their licence keeps out of the file; the treebank's own "
            "page says how they are merged into it",
        )
    yield from held


def _sentences(path: Path, file_name: str) -> Iterator[tuple[Record | BlankLine, bool]]:
    """Yield the sentence of each block of lines, and whether all its forms stand for hidden words.

    A block of comments is no sentence; what it says of documents counts for the next sentence.
    """
    comments: dict[str, str] = {}
    names: tuple[str, ...] = FIELDS
    for block in _blocks(path, file_name):
        texts = [line for _, line in block]
        names = next(filter(None, map(_columns_of_file, texts)), names)
        if tuple(map(str.lower, names[: len(FIELDS)])) != FIELDS:
            raise InputError(
                file_name,
                block[0][0],
                found=f"columns {' '.join(names)}",
                expected=f"{' '.join(FIELDS).upper()} first (CoNLL-U Plus)",
            )
        words = [(number, line) for number, line in block if not line.startswith("#")]
        own = [pair for line in texts if line.startswith("#") for pair in parse_comment_line(line)]
        comments |= {key: value or "" for key, value in own if key != GLOBAL_COLUMNS}
        if words:
            yield _sentence(block[0][0], words, comments, len(names), file_name)
            comments = {}
        else:
            comments = {key: value for key, value in comments.items() if key.startswith("new")}
            yield BlankLine(block[0][0], Remark.COMMENTS), True


def _blocks(path: Path, file_name: str) -> Iterator[list[tuple[int, str]]]:
    """Yield blocks of numbered lines between blank lines."""
    block: list[tuple[int, str]] = []
    for number, line in enumerate(decoded_lines(path, file_name), start=1):
        if line.strip():
            block.append((number, line.rstrip("\r\n")))
        elif block:
            yield block
            block = []
    if block:
        yield block


def _columns_of_file(line: str) -> tuple[str, ...]:
    """Return the names of a comment on the columns of the whole file; of another line, none."""
    key, _, names = line.removeprefix("#").partition("=")
    return tuple(names.split()) if line.startswith("#") and key.strip() == GLOBAL_COLUMNS else ()


def _sentence(
    line: int,
    words: list[tuple[int, str]],
    comments: dict[str, str],
    n_columns: int,
    file_name: str,
) -> tuple[Record, bool]:
    """Return the sentence of a block, after checks of its words and heads.

    Args:
        line: first line of the block.
        words: numbered word lines.
        comments: comments by key.
        n_columns: number of columns of the file.
        file_name: name of the file.

    Returns:
        The sentence, and whether all forms stand for hidden words.
    """
    tokens: dict[int, dict[str, Any]] = {}
    units: list[SurfaceToken] = []
    for number, word in words:
        token = _token(word, number, n_columns, file_name, len(words))
        if token["id"] in tokens:
            raise InputError(
                file_name, number, found=f"word id {token['id']} twice", expected="each id once"
            )
        _add_token(token, tokens, units)
    if not tokens:
        raise InputError(
            file_name, line, found="a block without words", expected="at least one word"
        )
    _check_ids(tokens, units, file_name)
    depths = _depths(tokens, file_name)
    text = comments.pop("text", "").strip()
    spans, fault = spans_of_forms(text, [unit.form for unit in units]) if text else ([], "")
    if not spans:
        text, spans = _compose_text(units)
    record = Record(
        line,
        text,
        id=comments.pop("sent_id", ""),
        words=_words(text, units, spans, tokens, depths),
        metadata=comments,
        remarks={Remark.FORMS: fault} if fault else {},
    )
    return record, all(unit.form == HIDDEN for unit in units)


def _token(line: str, number: int, n_columns: int, file_name: str, n_lines: int) -> dict[str, Any]:
    """Parse the columns of a word line, in a block of at most ``n_lines`` word lines."""
    columns = line.split("\t")
    while len(columns) > n_columns and not columns[-1].strip():  # tabs at the end of the line
        columns.pop()
    if len(columns) != n_columns:
        raise InputError(
            file_name,
            number,
            found=f"{len(columns)} columns",
            expected=f"{n_columns}, separated by tabs (CoNLL-U)",
        )
    try:
        token = dict(parse_line("\t".join(columns[: len(FIELDS)]), FIELDS))
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


def _depths(tokens: dict[int, dict[str, Any]], file_name: str) -> dict[int, int]:
    """Return the number of steps from each word to the top of its tree.

    Raises:
        InputError: heads are no words of the sentence, or lead round in a circle.
    """
    for word_id, token in tokens.items():
        head = token["head"]
        if head is not None and (head == word_id or not 0 <= head <= len(tokens)):
            raise InputError(
                file_name,
                token["line"],
                found=f"head {head} of word {word_id}",
                expected=f"0 (root) or the id of another of the {len(tokens)} words",
            )
    depths = {0: 0}
    for word_id, token in tokens.items():
        path = list[int]()
        current = word_id
        while current not in depths and len(path) <= len(tokens):
            path.append(current)
            current = tokens[current]["head"] or 0
        if len(path) > len(tokens):
            raise InputError(
                file_name,
                token["line"],
                found=f"head {token['head']} of word {word_id}, which leads round in a circle",
                expected="heads that lead to a root",
            )
        # Each word is passed once: a long chain takes no longer than other sentences.
        depths |= {
            passed: steps for steps, passed in enumerate(reversed(path), depths[current] + 1)
        }
    return depths


def _compose_text(units: list[SurfaceToken]) -> tuple[str, Spans]:
    """Compose the text of its units, and their spans, if the file gives no text or another one."""
    text, spans = "", []
    for unit in units:
        spans.append((len(text), len(text) + len(unit.form)))
        text += unit.form + (" " if unit.space_after else "")
    return text.rstrip(), spans


def _words(
    text: str,
    units: list[SurfaceToken],
    spans: Spans,
    tokens: dict[int, dict[str, Any]],
    depths: dict[int, int],
) -> tuple[Word, ...]:
    """Return the words of a sentence; a multiword token is one word if its forms differ from it."""
    spans_and_ids: list[tuple[int, int, int]] = []  # start, end, id of the word with tag and head
    word_of_id: dict[int, int] = {}
    for unit, (start, end) in zip(units, spans, strict=True):
        forms = [tokens[word_id]["form"] for word_id in unit.members]
        parts, _ = spans_of_forms(text[start:end], forms)
        if "".join(forms) == unit.form and parts:
            for word_id, (part_start, part_end) in zip(unit.members, parts, strict=True):
                word_of_id[word_id] = len(spans_and_ids)
                spans_and_ids.append((start + part_start, start + part_end, word_id))
        else:
            word_of_id.update(dict.fromkeys(unit.members, len(spans_and_ids)))
            topmost = min(unit.members, key=depths.__getitem__)
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
