"""Sentences whose parts keep what they are: numbers, heads and links.

`say` fills a sentence that stands in one place:

    say("{head} gives {share:whole} of its attention to {token}.", head=..., share=..., token=...)

No code takes a finished sentence apart: a page prints its parts with links, and a list of search
results prints its `text`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from string import Formatter
from typing import Any, NamedTuple

from headbook.results.formats import head_name, head_page, metric_page
from headbook.results.number import Number
from headbook.schema import HeadName


class Link(NamedTuple):
    """Words with a link; the address is relative to the site's root."""

    text: str
    href: str


class Marked(NamedTuple):
    """Words with a class of the style sheet, or with the name of an element: ``small``, ``bdi``."""

    text: str
    style: str


def head_link(head: HeadName) -> Link:
    """Return a link to a head's page."""
    return Link(head_name(head), head_page(head))


def metric_link(name: str, text: str) -> Link:
    """Return a link to a metric's page."""
    return Link(text, metric_page(name))


@dataclass(frozen=True)
class Sentence:
    """Words, numbers and links in order.

    Attributes:
        parts: the parts; each one but plain words has a property ``text``.
    """

    parts: tuple[Any, ...] = ()

    @property
    def text(self) -> str:
        """The sentence without links."""
        return "".join(part if isinstance(part, str) else part.text for part in self.parts)

    def __bool__(self) -> bool:
        """Whether there is anything to say."""
        return bool(self.parts)

    def __add__(self, other: "Sentence") -> "Sentence":
        """Return this sentence followed by another one, with a space between them."""
        between = (" ",) if self.parts and other.parts else ()
        return Sentence((*self.parts, *between, *other.parts))


NOTHING = Sentence()


def say(words: str, /, **fields: Any) -> Sentence:
    """Return a sentence with the values of its fields, as in `str.format`.

    Args:
        fields: a text, a whole number, a `Number` (its format follows a colon), a head (a link to
            its page), a link, or another sentence.
    """
    parts: list[Any] = []
    for text, name, format_name, _ in Formatter().parse(words):
        if text:
            parts.append(text)
        if name is not None:
            parts += _parts(fields[name], format_name or "")
    return Sentence(tuple(parts))


def listed(items: Iterable[Any], last: str = " and ", between: str = ", ") -> Sentence:
    """Return things as a list in words: ``L0·H1, L0·H2 and L3·H4``."""
    *first, end = [Sentence(tuple(_parts(item, ""))) for item in items]
    parts: list[Any] = []
    for item in first:
        parts += [*item.parts, between]
    return Sentence((*parts[:-1], *([last] if first else []), *end.parts))


def _parts(value: Any, format_name: str) -> Iterable[Any]:
    """Return the value of a field as parts of a sentence."""
    if isinstance(value, Number):
        return (value.printed(format_name),)
    if isinstance(value, HeadName):
        return (head_link(value),)
    if isinstance(value, Sentence):
        return value.parts
    if isinstance(value, int):
        return (f"{value:,}",)
    if isinstance(value, str):
        return (value,) if value else ()
    return value if type(value) is tuple else (value,)
