"""Pages as they are written, read without a browser: what a reader without scripts is given."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

from html_pages import written_html

VOID = frozenset({"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "wbr"})
DRAWN = frozenset({"img", "image", "svg"})  # what shows something without any text
PART = re.compile(
    r"(?P<tag>^[a-z][a-z0-9]*)|\.(?P<name>[\w-]+)|#(?P<id>[\w-]+)|"
    r"\[(?P<key>[\w-]+)(?:(?P<sign>[\^$*]?)=\"?(?P<value>[^\]\"]*)\"?)?\]"
)


@dataclass(eq=False)
class Node:
    """An element of a page, with its parents and what it holds."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    parent: "Node | None" = None
    content: "list[Node | str]" = field(default_factory=list)

    def lineage(self) -> "Iterator[Node]":
        """Go from the element to its parent, and so on outwards."""
        node: Node | None = self
        while node:
            yield node
            node = node.parent

    def inside(self) -> "Iterator[Node]":
        """Every element in this one, in order."""
        for node in self.content:
            if isinstance(node, Node):
                yield node
                yield from node.inside()

    @property
    def text(self) -> str:
        """All text in the element."""
        return "".join(n if isinstance(n, str) else n.text for n in self.content)

    @property
    def is_picture(self) -> bool:
        """Whether it is a picture, or a part of the one picture of all maps."""
        return self.tag in DRAWN or "map" in self.attributes.get("class", "").split()

    @property
    def is_hidden(self) -> bool:
        """Whether only scripts show it."""
        return any("hidden" in node.attributes for node in self.lineage())

    @property
    def is_folded(self) -> bool:
        """Whether it waits in closed details, beside their summary."""
        inner = None
        for node in self.lineage():
            closed = node.tag == "details" and "open" not in node.attributes
            if closed and inner and inner.tag != "summary":
                return True
            inner = node
        return False

    @property
    def shows_something(self) -> bool:
        """Whether it is a picture, or holds one, text or a name."""
        nodes = [self, *self.inside()]
        named = any(node.attributes.keys() & {"aria-label", "title"} for node in nodes)
        return named or any(node.is_picture for node in nodes) or bool(self.text.strip())

    def all(self, selector: str) -> "list[Node]":
        """Return elements in this one by selectors of parents, children, names and attributes."""
        choices = [choice.replace(">", " > ").split() for choice in selector.split(",")]
        return [node for node in self.inside() if any(_leads(steps, node) for steps in choices)]

    def one(self, selector: str) -> "Node":
        """Return the first of them."""
        return self.all(selector)[0]


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.top = self.node = Node("")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        inner = Node(tag, {name: value or "" for name, value in attrs}, self.node)
        self.node.content.append(inner)
        if tag not in VOID:
            self.node = inner

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.node.tag == tag, f"</{tag}> in <{self.node.tag}>"
        self.node = self.node.parent or self.top

    def handle_data(self, data: str) -> None:
        self.node.content.append(data)


def plain(file: Path) -> Node:
    """Return the page in a file."""
    return parsed(written_html(file))


def parsed(html: str) -> Node:
    """Return the page with some markup."""
    builder = _Builder()
    builder.feed(html)
    builder.close()
    return builder.top


def _leads(steps: list[str], node: Node) -> bool:
    *outer, last = steps
    if not _fits(last, node):
        return False
    if not outer:
        return True
    above = [*node.lineage()][1:]
    if outer[-1] == ">":
        return bool(above) and _leads(outer[:-1], above[0])
    return any(_leads(outer, parent) for parent in above)


def _fits(step: str, node: Node) -> bool:
    parts = [*PART.finditer(step)]
    assert "".join(part[0] for part in parts) == step, step
    return all(_has(node, part) for part in parts)


def _has(node: Node, part: re.Match[str]) -> bool:
    if part["tag"]:
        return node.tag == part["tag"]
    if part["name"]:
        return part["name"] in node.attributes.get("class", "").split()
    if part["id"]:
        return node.attributes.get("id") == part["id"]
    value, wanted = node.attributes.get(part["key"]), part["value"]
    if value is None or wanted is None:
        return value is not None
    signs = {"^": value.startswith, "$": value.endswith, "*": value.__contains__}
    return signs.get(part["sign"], value.__eq__)(wanted)
