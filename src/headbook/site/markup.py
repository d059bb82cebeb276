"""Text that pages take as HTML. No other module makes any.

Everything that comes from outside either goes through Jinja's escaping or through a function here.
"""

import base64
import json
import re
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import nh3
from latex2mathml.converter import convert
from markdown import markdown
from markupsafe import Markup, escape

from headbook.report.wording import unbroken, visible
from headbook.site import latex

LEGIBLE = 1_000  # characters of a data file up to which its values stay JSON
END = ");\n"  # of a data file
OURS, THEIRS = str.maketrans("&<>", ",.:"), str.maketrans(",.:", "&<>")
IDENTIFIERS = {
    re.compile(r"arXiv:(\d{4}\.\d{4,5})"): "https://arxiv.org/abs/",
    re.compile(r"doi:(10\.\S+[^\s.,;)])"): "https://doi.org/",
}


def printed(value: Any) -> Any:
    """What an expression in a template becomes: text without characters that HTML forbids."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def prose(text: str) -> Markup:
    """Markdown, cleaned of everything that could run or load."""
    html = markdown(visible(text), extensions=["tables", "sane_lists"], output_format="html")
    tags = nh3.ALLOWED_TAGS - {"img", "map", "area"}
    return Markup(nh3.clean(html, tags=tags))  # noqa: S704 - cleaned


@cache
def formula(latex: str) -> Markup:
    """A formula as MathML."""
    return Markup(convert(latex, display="block"))  # noqa: S704 - metrics write their formulas


def picture(svg: str) -> Markup:
    """A chart, rendered by `Figure.svg`."""
    return Markup(svg)  # noqa: S704 - made by vl-convert, which escapes its data


def reference(text: str) -> Markup:
    """A reference, its identifiers made links."""
    html = str(escape(visible(text)))
    for pattern, address in IDENTIFIERS.items():
        html = pattern.sub(rf'<a href="{address}\1">\g<0></a>', html)
    return Markup(html)  # noqa: S704 - escaped above


def safe_json(value: Any) -> str:
    """JSON that may stand in a script: no way out of it, no NaN, the same bytes every time.

    Raises:
        ValueError: a number is not finite.
    """
    text = json.dumps(
        value, ensure_ascii=True, allow_nan=False, sort_keys=True, separators=(",", ":")
    )
    for character in "&<>":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def script(name: str, value: Any) -> str:
    """A data file: one call of a function that every page registers.

    Values of more than `LEGIBLE` characters are deflated, as `letters`: `values` has them back.
    """
    text = safe_json(value)
    if len(text) <= LEGIBLE:
        return f"headbook.take({safe_json(name)},{text});\n"
    packed = letters(zlib.compress(text.encode(), 9))
    return f'headbook.packed({safe_json(name)},"{packed}");\n'


def letters(content: bytes) -> str:
    """Bytes as letters that mean nothing to HTML or in a string: five for every four.

    Base 85 of RFC 1924, but for three of its letters; base64 takes a fifteenth more.
    """
    return base64.b85encode(content).decode().translate(OURS)


def from_letters(text: str) -> bytes:
    """The bytes that `letters` wrote.

    Raises:
        ValueError: the text has other letters.
    """
    return base64.b85decode(text.translate(THEIRS))


def values(text: str) -> str:
    """The name and the value that a data file holds, as a JSON list."""
    call, _, rest = text.partition("(")
    given = f"[{rest.removesuffix(END)}]"
    if call == "headbook.take":
        return given
    name, packed = json.loads(given)
    value = zlib.decompress(from_letters(packed)).decode()
    return f"[{safe_json(name)},{value}]"


def filters() -> dict[str, Callable[..., Any]]:
    """The filters that templates use."""
    return {
        "prose": prose,
        "formula": formula,
        "reference": reference,
        "unbroken": unbroken,
        "svg": lambda figure: picture(figure.svg),
        "json_text": lambda text: safe_json(visible(text)),
        "bib_text": latex.escaped,
        "bib_entry": latex.entry,
    }
