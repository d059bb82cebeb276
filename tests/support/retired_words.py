"""Words that readers no longer meet, and what they are held against.

A word is retired where the literature has a standard name for what it meant, or where it made a
head sound like a person. Files keep their codes (``raw``, ``nosink``): the pages that document
files may print them, and so may whatever quotes the input.
"""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import NamedTuple


class Retired(NamedTuple):
    """A pattern with the words that took its place."""

    pattern: str
    instead: str


RETIRED = (
    Retired(r"looks?(?! closer)|looked at|looking|looks? like", "attends to, attention received"),
    Retired(r"look less|get attention|gets attention", "attention given, attention received"),
    Retired(r"parks?|parked|parking", "attends to the sink"),
    Retired(r"brings?|brought", "contributes"),
    Retired(r"carries|carried|carry", "contributes, moves"),
    Retired(r"goes by|go by", "attention variability"),
    Retired(r"draws|draw better|drawn by a head", "trees induced from attention"),
    Retired(r"finds", "relation accuracy"),
    Retired(r"(?:word )?pieces?", "subword token"),
    Retired(r"vocabulary entr(?:y|ies)|entr(?:y|ies) (?:nearer|more probable)|one entry|entries",
            "vocabulary token"),
    Retired(r"relative entropy", "normalised entropy"),
    Retired(r"sink shares?(?: by norm)?", "attention to the sink, value-weighted norm"),
    Retired(r"head distance", "Jensen–Shannon divergence of two heads"),
    Retired(r"nosink|renorm|view raw|raw view|without the sink|no sink", "keys: all, sink masked"),
    Retired(r"state (?:mid|out)|space (?:positional|raw)|\(mid\)|\(out\)|\(raw\)|\(positional\)",
            "after attention, after the layer, compared with"),
    Retired(r"times chance|twice chance", "ratio to uniform attention"),
    Retired(r"by luck|not surely", "p = … family-wise, not clearly above"),
    Retired(r"(?:untrained )?twins?", "the same architecture with random weights"),
    # Readers ask for "vertical stripes", so the question on them says so.
    Retired(r"(?<!vertical )stripes?|slanted|broad|vertical(?! stripes)", "types of heads"),
    Retired(r"near-diagonal|diagonal heads", "types of heads"),
    Retired(r"alike from everywhere|look alike", "similar"),
    Retired(r"steps of 1/255|in steps of", "stored with 8 bits"),
    Retired(r"(?:what heads|what a head|what is) (?:writes?|written)", "head outputs"),
    Retired(r"(?<!context-)mixing ratios?", "context-mixing ratio"),
    Retired(r"stacks?", "attention type"),
    Retired(r"(?<!all )heads together", "all heads of a layer"),
    Retired(r"by length", "by norm"),
    Retired(r"percentage points|pp", "points"),
    Retired(r"found far away|relations found", "relation accuracy, at distance ≥ 3"),
)  # fmt: skip
PATTERN = re.compile(
    "|".join(rf"(?<![\w-])(?:{retired.pattern})(?![\w-])" for retired in RETIRED) + r"|\(s\)",
    re.IGNORECASE,
)
NUMBER_FIRST = re.compile(r"^\d[\d,.]* [a-z]+ .*[.]$")
TWICE = re.compile(r"\[[^\]]*%[^\]]*\]")  # the unit stands before the bracket

# Where a retired word may stand: attributes of elements that quote or document, with the reason.
ALLOWED_TAGS = {
    "script": "no text",
    "style": "no text",
    "code": "names of files, columns, metrics and options",
    "pre": "commands and BibTeX entries",
    "bdi": "words of the input",
    "text": "in pictures: tokens beside maps, words and relations of trees",
    "math": "formulas",
}
ALLOWED_CLASSES = {
    "text": "tokens of the input",
    "sentence": "a sentence of the input",
    "sentences": "sentences of the input",
    "becomes": "occurrences of a word, quoted with their sentences",
    "facts": "columns of files, options and their values",
    "record": "a row of a file with the meaning of its columns",
    "published": "what papers print, in their words",
}
ALLOWED_DIRECTED = 'dir="auto" marks words of the input'
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"}
TEXT_ATTRIBUTES = ("aria-label", "title", "alt", "placeholder", "content")


class _Visible(HTMLParser):
    """Texts a reader meets, block by block, without quotations of the input."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self._open: list[tuple[str, bool]] = []
        self._parts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        hidden = self._hidden or _quotes(tag, given)
        if tag not in INLINE:
            self._end()
        if not hidden:
            self.texts += [given[name] for name in TEXT_ATTRIBUTES if name in given]
        if tag not in VOID:
            self._open.append((tag, hidden))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in INLINE:
            self._end()

    def handle_endtag(self, tag: str) -> None:
        if tag not in INLINE:
            self._end()
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self._parts.append(data)

    @property
    def _hidden(self) -> bool:
        return bool(self._open) and self._open[-1][1]

    def _end(self) -> None:
        text = " ".join("".join(self._parts).split())
        self._parts = []
        if text:
            self.texts.append(text)

    def close(self) -> None:
        super().close()
        self._end()


INLINE = {"a", "b", "i", "em", "strong", "small", "span", "abbr", "code", "bdi", "sub", "sup", "q"}


def _quotes(tag: str, given: dict[str, str]) -> bool:
    known = {*given.get("class", "").split()} & ALLOWED_CLASSES.keys()
    return tag in ALLOWED_TAGS or bool(known) or given.get("dir") == "auto"


def visible(html: str) -> list[str]:
    """Return the visible text of a page by block, without quotations of the input."""
    reader = _Visible()
    reader.feed(html)
    reader.close()
    return reader.texts


def retired_in(text: str) -> Iterator[str]:
    """Retired words of a text, each with what stands around it."""
    for pattern in (PATTERN, TWICE, NUMBER_FIRST):
        for match in pattern.finditer(text):
            around = text[max(0, match.start() - 40) : match.end() + 40]
            yield f"{match[0]!r} in {around!r}"
