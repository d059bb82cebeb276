"""Styles of outputs in notebooks: the rules of the site that an output uses, below its root.

The sheets of the site are written for a page. In a notebook the output's root element takes the
place of the page: rules are nested in the root's selector, so that they concern nothing else of the
notebook, and the width of the window becomes the width of the output.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from html.parser import HTMLParser

from headbook.resources import folder as resource_folder
from headbook.site.assets import colour_rules, compact, size_rules

RULE = re.compile(r"([^{}]+)\{((?:[^{}]|\{[^{}]*\})*)\}")
OF_PAGE = {":root", "body"}  # selectors of a page's frame that concern the root of an output
FUNCTION = re.compile(r":(is|where|has|not)\(((?:[^()]|\([^()]*\))*)\)")
ATTRIBUTE = re.compile(r"\[([\w-]+)[^\]]*\]")
PSEUDO = re.compile(r"::?[\w-]+(?:\([^()]*\))?")
NAME = re.compile(r"[.#\[]?[\w-]+")
COMMA = re.compile(r",(?![^(]*\))")  # outside parentheses
WINDOW_WIDTH = re.compile(r"(?<=\d)vw\b")
MEDIA_WIDTH = re.compile(r"^@media (?=\((?:min|max)-width)")


def style_of(html: str, root: str, names: Iterable[str], maps: str, max_tiles: int) -> str:
    """Return a style sheet for an output, nested in the selector of the output's root.

    Args:
        html: the output without its style.
        root: class of the output's root element, which no other output of a notebook has.
        names: names of the style sheets in ``templates/assets`` to take rules from, in order.
        maps: rules with the mean maps of heads.
        max_tiles: largest number of layers of a model, or of heads of a layer.
    """
    parser = _Names()
    parser.feed(html)
    sheets = [_sheet(f"assets/{name}.css") for name in ("site", *names)]
    rules = (_sheet("notebook/reset.css"), *sheets, *colour_rules(), *size_rules(max_tiles), maps)
    nested = "".join(_used_rules("".join(rules), parser.names))
    # Two classes, so that rules of tags outweigh those of notebooks, as
    # `.jp-RenderedHTMLCommon tr:hover`.
    return f".headbook.{root}{{{nested}}}\n{_sheet('notebook/themes.css')}"


@cache
def _sheet(path: str) -> str:
    return compact((resource_folder("templates") / path).read_text(encoding="utf-8"))


class _Names(HTMLParser):
    """Names of tags, classes, ids and attributes of an output, as selectors write them."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Add the names of an element."""
        self.names |= {tag, *(f"[{name}" for name, _ in attrs)}
        for name, value in attrs:
            if name in {"class", "id"} and value:
                self.names |= {f"{'.' if name == 'class' else '#'}{each}" for each in value.split()}


def _used_rules(sheet: str, names: set[str]) -> Iterator[str]:
    """Yield the rules of a style sheet that concern an element with some of the names."""
    for match in RULE.finditer(sheet):
        prelude, body = match[1].strip(), match[2]
        if not prelude.startswith("@"):
            kept = [s for s in COMMA.split(prelude) if s in OF_PAGE or _is_used(s, names)]
            selectors = ",".join("&" if each in OF_PAGE else each for each in kept)
            if kept:
                yield f"{selectors}{{{WINDOW_WIDTH.sub('cqw', body)}}}"
        elif "prefers-color-scheme" not in prelude:  # the sheet of outputs has the themes
            inner = "".join(_used_rules(body, names))
            if inner:
                yield f"{MEDIA_WIDTH.sub('@container ', prelude)}{{{inner}}}"


def _is_used(selector: str, names: set[str]) -> bool:
    """Whether all names of a selector, outside negations, are among those of an output."""
    for function, alternatives in FUNCTION.findall(selector):
        parts = COMMA.split(alternatives)
        if function != "not" and not any(_is_used(part, names) for part in parts):
            return False
    bare = PSEUDO.sub("", ATTRIBUTE.sub(r"[\1", FUNCTION.sub("", selector)))
    return names.issuperset(NAME.findall(bare))
