"""Numbers that pages print: found in their HTML, with what they are of.

A *printed number* is an estimate with its interval, a difference, a ratio to a baseline, or a p
value, in the visible text of a page, in its titles or in its labels for screen readers. What stands
beside it says which head, layer, metric, view and label it is of; `sitetables` looks it up.

No estimates, and not looked for, are whole numbers without sign, unit or interval.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from html.parser import HTMLParser
from typing import NamedTuple

from headbook.metrics import all_metrics
from headbook.pages.head_parts.standing import STRIP_TITLES
from headbook.report.ablation import REPLACEMENT_NAMES
from headbook.report.relations import TAG_NAMES, arrow_words, ends_of, relation_words
from headbook.report.wording import DIRECTIONS, TOKEN_CLASSES, VIEWS, label_name
from headbook.schema import relation_of

VOID = {"br", "circle", "col", "hr", "img", "input", "line", "link", "meta", "path", "rect"}
BLOCKS = {"caption", "dd", "dt", "figcaption", "h1", "h2", "h3", "header", "li", "p", "pre",
          "summary", "td", "text", "th", "title"}  # fmt: skip
ATTRIBUTES = ("title", "aria-label")
HEAD = re.compile(r"(?:(encoder|decoder|cross) )?L(\d+)·H(\d+)")
DIGITS = r"(?:[<>] )?[−+]?\d[\d,]*(?:\.\d+)?"
UNIT = r" ?%(?: of the loss)?| points| times|×| × 10⁻³| thousandths| tokens| nats"
INTERVAL = rf"\[({DIGITS}), ({DIGITS})\]"
NUMBER = re.compile(rf"(?<![\w.,·])({DIGITS})({UNIT})?(?: ?{INTERVAL})?(?![\w·])")
UNITS_OF_TITLES = ("× 10⁻³", "thousandths", "points")
P_VALUE = re.compile(r"\bp ((?:= |< )\d\.\d+)")
SPAN = re.compile(r"\b(\d+)–(\d+) %")  # the least and the most of several layers
LOSS = "the loss changes by "
TAKEN = "⁂"  # stands where something was taken out of a text
Head = tuple[str, int, int]  # stack, layer and number
Of = Mapping[str, frozenset[str]]  # values that columns of facts may have


class Exempt(NamedTuple):
    """What no table holds: why, its pattern in a text, and in which elements (in all without)."""

    why: str
    pattern: str
    tag: str = ""


class Hint(NamedTuple):
    """What numbers in some place are of.

    Attributes:
        where: pattern of headings and of the title of the column, joined by `` / ``.
        near: pattern of its sentence, with » before the number.
        of: values that columns of facts may have.
    """

    where: str
    near: str
    of: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Printed:
    """A number that a page prints.

    Attributes:
        text: the number as it stands there.
        value: its digits; ``ends`` those of its interval, if there is one.
        unit: per cent, points, a power of ten, or another word.
        section: the page, and the headings above.
        context: what stands around it.
        heads, layers: which are named beside it; none where none is.
        of: what else is known of it; see `Hint`.
    """

    text: str
    value: str
    ends: tuple[str, str] | None
    unit: str
    section: tuple[str, ...]
    context: str
    heads: frozenset[Head]
    layers: frozenset[int]
    of: Of

    def __str__(self) -> str:
        heads = sorted(f"L{layer}·H{head}" for _, layer, head in self.heads)[:3]
        about = [
            *heads,
            *(f"{name} {'|'.join(sorted(each)[:3])}" for name, each in self.of.items()),
        ]
        return f"{self.text!r} in {' / '.join(self.section)} ({', '.join(about)}): …{self.context}…"


@dataclass(eq=False)
class Node:
    """An element of a page; children are elements and texts."""

    tag: str
    attributes: dict[str, str]
    parent: "Node | None"
    children: list["Node | str"] = field(default_factory=list)

    @property
    def elements(self) -> list["Node"]:
        """Child elements, without texts."""
        return [child for child in self.children if isinstance(child, Node)]

    def up(self) -> Iterator["Node"]:
        """Yield this element and those that it lies in, the innermost first."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    def inside(self, *tags: str) -> "Node | None":
        """Return the innermost element with one of the tags."""
        return next((node for node in self.up() if node.tag in tags), None)

    def every(self, tag: str = "") -> Iterator["Node"]:
        """Yield this element and all below it, in order; only those with a tag, if one is given."""
        if tag in {"", self.tag}:
            yield self
        for child in self.elements:
            yield from child.every(tag)

    def texts(self, *, own: bool = False) -> Iterator[str]:
        """Yield the texts of the element; its own are those outside of blocks below it."""
        for child in self.children:
            if isinstance(child, str):
                yield child
            elif child.tag not in {"script", "style"} and not (own and child.tag in BLOCKS):
                yield " "
                yield from child.texts(own=own)

    def text(self, *, own: bool = False) -> str:
        """Return all texts of the element as one."""
        return plain("".join(self.texts(own=own)))

    def leave_out(self, apart: frozenset[str]) -> None:
        """Remove all elements below this one that have some tag or class."""
        for child in self.elements:
            if apart & {child.tag, *child.attributes.get("class", "").split()}:
                self.children.remove(child)
            child.leave_out(apart)

    @cached_property
    def whole(self) -> str:
        """Text, labels and titles of the element."""
        labels = (node.attributes.get(name, "") for node in self.every() for name in ATTRIBUTES)
        return " ".join([self.text(), *filter(None, labels)])


def plain(text: str) -> str:
    """Return a text with single blanks, and none before punctuation that follows a link."""
    return re.sub(r" ([,.;:)])", r"\1", " ".join(text.split()))


class _Tree(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = self.at = Node("", {}, None)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, {name: value or "" for name, value in attrs}, self.at)
        self.at.children.append(node)
        if tag not in VOID:
            self.at = node

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.at.children.append(Node(tag, {n: v or "" for n, v in attrs}, self.at))

    def handle_endtag(self, tag: str) -> None:
        found = self.at.inside(tag)
        if found is not None and found.parent is not None:
            self.at = found.parent

    def handle_data(self, data: str) -> None:
        self.at.children.append(data)


def tree_of(html: str) -> Node:
    """Parse a page."""
    reader = _Tree()
    reader.feed(html)
    return reader.root


class Rules(NamedTuple):
    """What a test knows of pages.

    Attributes:
        apart: tags and classes of elements that are left out.
    """

    exempt: Sequence[Exempt]
    hints: Sequence[Hint]
    apart: frozenset[str]


def printed_numbers(page: str, html: str, rules: Rules) -> list[Printed]:
    """Return every printed number of a page."""
    main = next(tree_of(html).every("main"))
    main.leave_out(rules.apart)
    title = next((node.text() for node in main.every("h1")), "")
    found: list[Printed] = []
    upper: list[str] = []
    sections: list[str] = []
    for node in main.every():
        if node.tag == "h2":
            upper = sections = [node.text()]
        elif node.tag == "h3":
            sections = [*upper, node.text()]
        texts = [node.text(own=True)] if node.tag in BLOCKS else []
        texts += [plain(node.attributes[n]) for n in ATTRIBUTES if node.attributes.get(n)]
        for text in texts:
            for sentence in re.split(r"(?<=[.;]) (?=[^\d])", text):
                place = _Place(node, sentence, text, (page, *sections), title)
                found += place.numbers(rules, found[-1:])
    return found


@dataclass(frozen=True)
class _Place:
    """A sentence of a page, the whole text that it is part of, and where it stands."""

    node: Node
    text: str
    whole: str
    section: tuple[str, ...]
    title: str

    def numbers(self, rules: Rules, last: Sequence[Printed]) -> Iterator[Printed]:
        """Yield the numbers of the sentence.

        An interval in a cell of its own belongs to the last number before it.
        """
        text = self.text
        for each in rules.exempt:
            if each.tag in {"", self.node.tag}:
                text = re.sub(each.pattern, TAKEN, text)
        if (alone := re.fullmatch(INTERVAL, text)) and last:
            yield replace(last[0], text=f"{last[0].text} {text}", ends=(alone[1], alone[2]))
        elif self.column.startswith("p ") and (p := re.fullmatch(r"(?:< )?\d\.\d+", text)):
            yield self._printed(rules, p, p[0], role="p")
        else:
            yield from self._in_words(rules, text)

    def _in_words(self, rules: Rules, text: str) -> Iterator[Printed]:
        """Yield the numbers of running text, and of cells with more than an interval."""
        for match in P_VALUE.finditer(text):
            yield self._printed(rules, match, match[1].removeprefix("= "), role="p")
        text = P_VALUE.sub(TAKEN, text)
        for match in SPAN.finditer(text):
            for end in match.groups():
                yield self._printed(rules, match, end, "%")
        for match in NUMBER.finditer(SPAN.sub(TAKEN, text)):
            value, unit, low, high = match.groups()
            unit = (unit or "").strip()
            if "of the loss" in f"{unit}{self.titles}" or _before(match).endswith(LOSS):
                unit = "loss"
            unit = unit or next((u for u in UNITS_OF_TITLES if u in self.titles), "")
            if "." in value or low or unit not in {"", "tokens"}:
                ends = (low, high) if low else None
                yield replace(self._printed(rules, match, value, unit), ends=ends)

    def _printed(
        self, rules: Rules, match: re.Match[str], value: str, unit: str = "", *, role: str = "value"
    ) -> Printed:
        before, text = _before(match), match[0]
        where = " / ".join([*self.section, self.column])
        known = {"role": frozenset({"difference" if unit == "points" else role})}
        known |= {name: each for name, each in self._named.items() if each}
        for hint in rules.hints:
            if re.search(hint.where, where) and re.search(hint.near, f"{before}»{text}"):
                known |= {name: frozenset(each) for name, each in hint.of.items()}
        context = f"{before[-70:]}{text}{match.string[match.end() :][:40]}"
        places = self._heads, self._layers
        return Printed(text, value, None, unit, self.section, context, *places, known)

    @cached_property
    def _near(self) -> list[str]:
        """Texts that stand together with the sentence, the nearest first."""
        cell = self.node.inside("td", "th", "a")
        unit = self.node.inside("tr", "li", "article", "figure", "p")
        wider = (each.whole if each else "" for each in (cell, unit))
        return [self.text, self.whole, *wider, self.title]

    @cached_property
    def _heads(self) -> frozenset[Head]:
        """Heads that are named nearest to the sentence."""
        for text in self._near:
            if found := HEAD.findall(text):
                return frozenset((stack or "self", int(x), int(y)) for stack, x, y in found)
        return frozenset()

    @cached_property
    def _layers(self) -> frozenset[int]:
        """Layers that are named in the sentence, or in the first cell of its row."""
        named = re.findall(r"\b[Ll]ayers? (\d+)(?:–(\d+))?", self.text)
        named += re.findall(r"^L(\d+)($)", self._first)
        return frozenset(n for a, b in named for n in range(int(a), int(b or a) + 1))

    @cached_property
    def _first(self) -> str:
        """Text of the first cell of the row."""
        row = self.node.inside("tr")
        return row.elements[0].text() if row and row.elements else ""

    @cached_property
    def column(self) -> str:
        """Title of the column; empty outside of tables."""
        cell, row, table = (self.node.inside(*tags) for tags in (("td", "th"), ("tr",), ("table",)))
        if cell is None or row is None or table is None:
            return ""
        titles = [each.text() for each in next(table.every("tr")).elements]
        place = row.elements.index(cell)
        return titles[place] if place < len(titles) else ""

    @cached_property
    def titles(self) -> str:
        """Titles of the column and of the table; empty outside of tables."""
        table = self.node.inside("table")
        caption = next(table.every("caption"), None) if table else None
        return f"{self.column} {caption.text() if caption else ''}"

    @cached_property
    def _named(self) -> dict[str, frozenset[str]]:
        """Metrics, views, labels and replacements that are named beside the sentence."""
        unit, table = self.node.inside("tr", "li", "figure", "p"), self.node.inside("table")
        row, caption = self.node.inside("tr"), next(table.every("caption"), None) if table else None
        titles = [self._first, caption.text() if caption else ""]
        title = next((found for text in titles for found in titled(text)), None)
        addresses = (
            " ".join(each.attributes.get("href", "") for each in unit.every()) if unit else ""
        )
        metrics = {title[0]} if title else {*re.findall(r"metrics/(\w+)\.html", addresses)}
        labels = {title[1]} if title and title[1] else set()
        around = row.text() if row else self.text
        labels |= {label for words, label in _words().items() if words and words in around}
        labels |= {tag for tag, words in TAG_NAMES.items() if words == self._first}
        if self.node.tag in {"text", "title"}:  # of curves
            kinds = ((label, words) for label, words in TOKEN_CLASSES.items())
            labels |= {label for label, words in kinds if self.text.startswith(words)}
        item = self.node.inside("li")
        listed = item.text() if item else ""
        labels |= {
            label for label in _relations()
            if _is_relation(label, row, around) or listed.startswith(f"{arrow_words(label)} ")
        }  # fmt: skip
        if match := re.match(r"([−+]?\d+)(?:: |$)", self._first or self.text):
            labels.add(match[1].replace("−", "-").replace("+", ""))
        views = {str(view) for view, name in VIEWS.items() if name == self.column}
        instead = {str(each) for each, words in REPLACEMENT_NAMES.items() if words == self._first}
        named = {"metric": metrics, "view": views, "label": labels, "replacement": instead}
        return {name: frozenset(each) for name, each in named.items()}


def _before(match: re.Match[str]) -> str:
    return match.string[: match.start()]


def titled(text: str) -> Iterator[tuple[str, str]]:
    """Yield metric and label of a text that begins with the title of a metric."""
    metrics = [metric for metric in all_metrics().values() if text.startswith(metric.title)]
    for metric in sorted(metrics, key=lambda each: -len(each.title))[:1]:
        about = text.removeprefix(metric.title).removeprefix(": ")
        labels = [*getattr(metric, "labels", ()), *map(str, range(-32, 33))]
        names = {plain(label_name(label)): label for label in labels if label}
        exact = next((label for name, label in names.items() if name == about), "")
        begun = [name for name in names if about.startswith((f"{name} (", f"{name},"))]
        yield metric.id, exact or (names[max(begun, key=len)] if begun else "")


@cache
def _words() -> dict[str, str]:
    """Return labels of metrics by the words that pages have for kinds of keys."""
    return {words: label for label, words in STRIP_TITLES.items()}


@cache
def _relations() -> tuple[str, ...]:
    metric = all_metrics()["relation_accuracy"]
    return tuple(getattr(metric, "labels", ()))


def _is_relation(label: str, row: Node | None, around: str) -> bool:
    """Check whether a text names a relation and its direction."""
    relation, direction = relation_of(label)
    if row is not None:
        first, second, *_ = (*(each.text() for each in row.elements), "", "")
        return [first, second] == [
            relation,
            DIRECTIONS[direction],
        ] or first == f"{arrow_words(label)} {relation}"
    ends = ends_of(label)
    return relation_words(label) in around or (
        "(" not in around.partition(ends.key)[2][:3]
        and f"from {ends.query} to {ends.key} " in around
    )
