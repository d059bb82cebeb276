"""HTML of what stands in pages: texts, numbers with links to their rows, heads, pictures, blocks.

A template prints any of them with ``{{ x }}``; `Printer` knows how. A number finds the line of its
row while it is printed, so that no finished HTML is searched.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import Environment, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from headbook.charts import Drawing, Figure, Plot
from headbook.pages.parts.blocks import Block, Heat, SmallMap
from headbook.report.linked_rows import LinkedNumber
from headbook.report.wording import unbroken, visible
from headbook.results.formats import head_name, head_page, metric_page
from headbook.results.number import Number, Printed, RowAddress
from headbook.results.sentence import Link, Marked, Sentence, head_link
from headbook.schema import HeadName
from headbook.site.rows import PageRows

IDENTIFIERS = {
    re.compile(r"arXiv:(\d{4}\.\d{4,5})"): "https://arxiv.org/abs/",
    re.compile(r"doi:(10\.\S+[^\s.,;)])"): "https://doi.org/",
}
# Elements of `Marked`; other names are classes.
ELEMENTS = {"small", "b", "bdi", "code", "mark", "sub"}


class Printer:
    """Prints what stands in one page.

    Args:
        environment: the templates.
        root: path from the page to the site's root.
        rows: rows of the page, which collect those that are printed; None in a page without files.
        joins_units: whether numbers in texts are joined to their units.
        frame: variables of the templates.
    """

    def __init__(
        self,
        environment: Environment,
        root: str,
        rows: PageRows | None,
        frame: Mapping[str, Any],
        *,
        joins_units: bool,
    ) -> None:
        self.root, self.rows = root, rows
        variables = {**frame, "root": root, "printer": self}
        self._macros: Any = environment.get_template("blocks.html").make_module(variables)
        self._by_type: dict[type, Callable[[Any], str]] = {
            str: (lambda text: unbroken(visible(text))) if joins_units else visible,
            Number: lambda number: self._number(number.printed("")),
            Printed: self._number,
            LinkedNumber: lambda number: self._row(number.place, number.text),
            HeadName: lambda head: self._link(head_link(head)),
            Link: self._link,
            Marked: _marked,
            SmallMap: lambda each: self._macros.map(each.style, each.size),
            Sentence: lambda sentence: Markup("").join(map(self, sentence.parts)),
            tuple: lambda parts: Markup("").join(map(self, parts)),
        }

    def __call__(self, value: Any) -> Any:
        """Return a value as HTML; what is neither text nor part of a page stays."""
        write = self._by_type.get(type(value))
        if write is not None:
            return write(value)
        if isinstance(value, Block):
            return getattr(self._macros, value.macro)(value)
        if isinstance(value, Plot):
            return Markup(value.html(self.address))
        return Markup(value.svg) if isinstance(value, Drawing | Figure) else value

    def address(self, target: str | RowAddress) -> str:
        """Return the address of a page of the site, or of a row, from this page."""
        if isinstance(target, str):
            return self.root + target
        if self.rows is None:
            return f"{self.root}data.html#{target.table}"
        line = self.rows.line(target)
        return f"{self.root}data.html?row={target.table}:{line}&on={self.rows.page}#{target.table}"

    def cell(self, value: Any) -> Markup:
        """Return a cell of a table."""
        if value is None:
            return Markup('<td class="none">·</td>')
        if isinstance(value, Heat):
            return self._heat(value)
        if isinstance(value, Number):
            ends = value.as_text("ends") if value.known else ""
            interval = f" <small>{escape(ends)}</small>" if ends else ""
            thin = " thin" if value.is_thin else ""
            basis = f' title="{value.basis}"' if value.sentences else ""
            return Markup(f'<td class="number{thin}"{basis}>{self(value)}{interval}</td>')
        if isinstance(value, int):
            return Markup(f'<td class="number">{value:,}</td>')
        if isinstance(value, Printed | LinkedNumber):
            return Markup(f'<td class="number">{self(value)}</td>')
        if type(value) not in self._by_type and not isinstance(value, Drawing):
            raise TypeError(f"a cell of a table cannot print {value!r}")
        # Words of a text may run from right to left.
        way = ' dir="auto"' if isinstance(value, Sentence) else ""
        return Markup(f"<td{way}>{escape(self(value))}</td>")

    def _heat(self, cell: Heat) -> Markup:
        note = f' title="{escape(cell.note)}"' if cell.note else ""
        inside = self(cell.number)
        if isinstance(cell.number, str | Sentence):
            inside = f"<span>{escape(inside)}</span>"
        return Markup(f'<td class="h {cell.fill}"{note}>{inside}</td>')

    def _number(self, printed: Printed) -> Markup:
        """Return a number with a link to its row; one that is missing has none."""
        number = printed.number
        if not number.known:
            return escape(printed.text)
        return self._row(number.row, printed.text, number.few_note)

    def _row(self, row: RowAddress, text: str, note: str = "") -> Markup:
        """Return a printed number with a link to its row, and with a note as tooltip."""
        href, title = escape(self.address(row)), f' title="{escape(note)}"' if note else ""
        return Markup(f'<a class="n" href="{href}"{title}>{escape(unbroken(text))}</a>')

    def _link(self, link: Link) -> Markup:
        href = escape(link.href if "://" in link.href else self.root + link.href)
        return Markup(f'<a href="{href}">{escape(visible(link.text))}</a>')


def reference(text: str) -> Markup:
    """Return a reference, its identifiers made links."""
    html = str(escape(visible(text)))
    for pattern, address in IDENTIFIERS.items():
        html = pattern.sub(rf'<a href="{address}\1">\g<0></a>', html)
    return Markup(html)


def _marked(words: Marked) -> Markup:
    """Return words in an element, or with a class."""
    if words.style == "cite":
        return Markup(f"<cite>{reference(words.text)}</cite>")
    text = escape(visible(words.text))
    if words.style in ELEMENTS:
        return Markup(f"<{words.style}>{text}</{words.style}>")
    return Markup(f'<span class="{words.style}">{text}</span>')


@pass_context
def printed(context: Context, value: Any) -> Any:
    """Return the value of an expression of a template as HTML."""
    printer = context.get("printer")
    if printer is not None:
        return printer(value)
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@pass_context
def _cell(context: Context, value: Any) -> Markup:
    printer: Printer = context["printer"]
    return printer.cell(value)


def filters() -> dict[str, Callable[..., Any]]:
    """Return the filters of blocks."""
    return {
        "cell": _cell,
        "reference": reference,
        "metric_page": metric_page,
        "name_of": head_name,
        "page_of": head_page,
    }
