"""The author's own words: notes on pages and heads, names of heads, and pages of the author's own.

Notes and sections are Markdown. Studies store them in their manifest, as written.
"""

import re
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headbook.errors import ConfigError
from headbook.option_values import read_failure
from headbook.safe_files import is_endless
from headbook.schema import AttentionStack

MAX_NAME = 60  # characters of the name of a head, which labels and titles repeat
OVERVIEW = "index.html"
HEAD = re.compile(r"(?:([a-z]+)[- ])?L(\d+)[-·]H(\d+)")  # as in addresses, and as on pages
HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.*?)[ \t]*#*[ \t]*")
UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*")  # below a heading
FENCE = re.compile(r" {0,3}(```|~~~)")  # begins and ends code, in which ``#`` is no heading
MARKS = re.compile(r"!?\[([^\]]*)\]\([^)]*\)|<[^>]*>|[*_`|]+|^ *(?:>|#+|[-+]\s)", re.MULTILINE)


BLANK_LINES = re.compile(r"\n[ \t]*\n")  # between blocks of Markdown
INDENT = re.compile(r"^[ \t]+", re.MULTILINE)
MAX_SEARCHES = 10**7  # brackets times characters of their blocks, of a whole text: ten seconds
MAX_BLOCK_LINES = 4000
MAX_INDENT = 200  # blanks before a line: lists are nested up to fifty times


@dataclass(frozen=True)
class HeadNote:
    """Words of the author on one head.

    Attributes:
        name: name of the head; empty if it has none.
        text: note on the head, in Markdown.
    """

    name: str = ""
    text: str = ""

    @property
    def quoted(self) -> str:
        """Name in quotation marks, which tell it from names of Headbook; empty without a name."""
        return f"“{self.name}”" if self.name else ""

    def __bool__(self) -> bool:
        """Whether there are any words."""
        return bool(self.name or self.text)


def costly_markdown(text: str) -> str:
    """Return what makes Markdown take minutes to convert, or an empty text.

    The converter searches from each bracket to the end of its block, and passes a block once more
    for each of its lines.
    """
    searches = 0
    for block in BLANK_LINES.split(text):
        n_brackets, n_lines = block.count("[") + block.count("<"), block.count("\n") + 1
        searches += n_brackets * len(block)
        if searches > MAX_SEARCHES:
            return f"{n_brackets:,} brackets in a block of {len(block):,} characters"
        if n_lines > MAX_BLOCK_LINES:
            return f"a block of {n_lines:,} lines without a blank one"
    deepest = max((len(match[0].expandtabs(4)) for match in INDENT.finditer(text)), default=0)
    return f"a line that begins with {deepest:,} blanks" if deepest > MAX_INDENT else ""


def read_words(notes: Path | None, sections: Sequence[str | Path] | str | Path) -> dict[str, Any]:
    """Return the fields of a manifest that given files fill; the others are absent.

    Args:
        notes: file of ``--notes``; heads are checked by `known_heads`.
        sections: files of ``--section``.

    Raises:
        ConfigError: a file cannot be read, or its content does not fit.
    """
    words = {} if notes is None else read_notes(notes)
    files = [sections] if isinstance(sections, str | Path) else sections
    if files:
        words["sections"] = tuple(_section(Path(file)) for file in files)
    return words


def read_notes(file: Path) -> dict[str, Any]:
    """Return the notes of a file: Markdown for the overview, or TOML for pages and heads.

    Returns:
        ``notes`` for the overview, ``page_notes`` by address, ``head_notes`` by head as written.

    Raises:
        ConfigError: the file cannot be read, or holds an unknown key or an unsuitable value.
    """
    text = _text(file, "--notes", "a Markdown or TOML file in UTF-8")
    if file.suffix.lower() != ".toml":
        _check_cost(file, "", text)
        return {"notes": text, "page_notes": {}, "head_notes": {}}
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"--notes: {file}: {read_failure(error)}; expected TOML with tables pages and heads"
        ) from error
    _check_keys(file, "", table, ("pages", "heads"))
    pages: dict[str, str] = {}
    for name, note in table.get("pages", {}).items():
        _check_text(file, f"pages.{name!r}", note)
        pages[name.removesuffix(".html") + ".html"] = note
    heads = {}
    for name, note in table.get("heads", {}).items():
        _check_keys(file, f"heads.{name!r}", note, ("name", "text"))
        for key, value in note.items():
            _check_text(file, f"heads.{name!r}.{key}", value)
        heads[name] = HeadNote(**{key: value.strip() for key, value in note.items()})
        if len(heads[name].name) > MAX_NAME or len(heads[name].name.splitlines()) > 1:
            expected = f"one line of at most {MAX_NAME} characters"
            raise _fault(file, f"heads.{name!r}.name", heads[name].name, expected)
    return {"notes": pages.pop(OVERVIEW, ""), "page_notes": pages, "head_notes": heads}


def known_heads(
    words: Mapping[str, Any], stacks: Iterable[AttentionStack], file: Path | None
) -> dict[str, Any]:
    """Return the words with the notes on heads by `head_key`.

    Args:
        stacks: stacks of the model; a head without a stack is one of the first.
        file: file of the notes, for messages.

    Raises:
        ConfigError: the model has no such head, or a head has two notes.
    """
    by_name, notes = {stack.name: stack for stack in stacks}, dict[str, HeadNote]()
    for name, note in words.get("head_notes", {}).items():
        match = HEAD.fullmatch(name)
        stack_name = (match and match[1]) or next(iter(by_name))
        stack = by_name.get(stack_name)
        layer, head = (int(match[2]), int(match[3])) if match else (-1, -1)
        if stack is None or layer not in stack.attention_layers or head >= stack.n_heads:
            last = (
                f"{'' if len(by_name) == 1 else f'{each.name}-'}"
                f"L{each.attention_layers[-1]}-H{each.n_heads - 1}"
                for each in by_name.values()
            )
            expected = f"a head of the model, up to {' or '.join(last)}, counted from 0"
            raise _fault(file, "heads", name, expected)
        key = head_key((stack_name, layer, head))
        if key in notes:
            raise _fault(file, "heads", name, "each head once")
        notes[key] = note
    return {**words, "head_notes": notes} if "head_notes" in words else dict(words)


def head_key(head: tuple[str, int, int]) -> str:
    """Return the key of a head in a manifest.

    Args:
        head: stack, layer and head.
    """
    return f"{head[0]}-L{head[1]}-H{head[2]}"


def unknown_page(file: Path | None, path: str) -> ConfigError:
    """Return the error to raise for a note on a page that the site does not have."""
    expected = "the address of a page of this site, such as syntax.html or metrics/sink_share.html"
    return _fault(file, "pages", path, expected)


def _section(file: Path) -> str:
    """Return the text of a page of the author's own.

    Raises:
        ConfigError: the file cannot be read, or has no heading.
    """
    text = _text(file, "--section", "a Markdown file in UTF-8")
    _check_cost(file, "", text)
    if not section_parts(text)[0]:
        raise ConfigError(
            f"--section: {file}: no heading; expected Markdown with a line '# Title', which names "
            "the page in the menu"
        )
    return text


def section_parts(text: str) -> tuple[str, str]:
    """Return the first heading of Markdown as plain text, and the text without that heading."""
    lines, code = text.splitlines(), False
    for number, line in enumerate(lines):
        code ^= FENCE.match(line) is not None
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if code:
            continue
        match, underlined = HEADING.fullmatch(line), UNDERLINE.fullmatch(following)
        if match is None and not (line.strip() and underlined):
            continue
        title = plain_words(match[1] if match else line)
        if title:
            rest = lines[:number] + lines[number + (1 if match else 2) :]
            return title, "\n".join(rest).strip()
    return "", text


def plain_words(markdown: str) -> str:
    """Return the words of Markdown in one line, without its marks and the addresses of links."""
    return " ".join(MARKS.sub(r"\1", markdown).split())


def section_paths(titles: Iterable[str]) -> list[str]:
    """Return the addresses of sections: ``section-`` and the words of the title in ASCII."""
    paths: list[str] = []
    for number, title in enumerate(titles, 1):
        plain = unicodedata.normalize("NFKD", title.casefold()).encode("ascii", "ignore").decode()
        slug = "-".join(re.findall(r"[a-z0-9]+", plain))[:MAX_NAME].strip("-") or str(number)
        path = f"section-{slug}.html"
        paths.append(path if path not in paths else f"section-{slug}-{number}.html")
    return paths


def _text(file: Path, option: str, expected: str) -> str:
    if is_endless(file, pipes=False):
        raise ConfigError(f"{option}: {file}: a device; expected {expected}")
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{option}: {file}: {read_failure(error)}; expected {expected}"
        ) from error


def _check_keys(file: Path, place: str, table: Any, keys: tuple[str, ...]) -> None:
    """Refuse a value that is no table, and unknown keys."""
    if not isinstance(table, dict):
        raise _fault(file, place, table, f"a table with {' and '.join(keys)}")
    for key in table:
        if key not in keys:
            raise _fault(file, place or "the file", key, f"the keys {' and '.join(keys)}")
    if not place:
        for key, value in table.items():
            if not isinstance(value, dict):
                raise _fault(file, key, value, "a table")


def _check_text(file: Path, place: str, value: Any) -> None:
    if not isinstance(value, str):
        raise _fault(file, place, value, "Markdown as a text")
    _check_cost(file, place, value)


def _check_cost(file: Path, place: str, text: str) -> None:
    if costly := costly_markdown(text):
        raise ConfigError(
            f"{': '.join(filter(None, (str(file), place)))}: got {costly}, expected Markdown that "
            "is converted within seconds: shorter blocks with blank lines between them"
        )


def _fault(file: Path | None, place: str, found: Any, expected: str) -> ConfigError:
    """Return the error to raise for a key or a value of a file of notes."""
    value = f"'{found:.80}'" if isinstance(found, str) else f"{found!r:.80}"
    return ConfigError(f"--notes: {file or 'notes'}: {place}: got {value}, expected {expected}")
