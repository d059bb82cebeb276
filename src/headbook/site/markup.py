"""HTML that templates insert unescaped; no other module makes any.

All text from models, inputs and users is escaped by Jinja or by a function of this module.
"""

import base64
import gzip
import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import nh3
from latex2mathml.converter import convert
from markdown import markdown
from markupsafe import Markup

from headbook.report.wording import unbroken, visible
from headbook.site import latex

MAX_PLAIN_CHARACTERS = 1_000  # of a value that a data file has as JSON, not compressed
CALL_END = ");\n"  # of the call in a data file
JSON_END = b"\n"  # between a value's JSON and its bytes
HEADING_TAG = re.compile(r"</?h([1-6])(?=[ >])")  # in HTML that nh3 has written


def printed(value: Any) -> Any:
    """Return the value of an expression in a template, without characters that HTML forbids."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def prose(text: str, *, code: bool = False) -> Markup:
    """Return Markdown as HTML without elements that run or load something.

    Args:
        code: whether lines between fences are code.
    """
    extensions = ["tables", "sane_lists", *(["fenced_code"] if code else [])]
    html = markdown(visible(text), extensions=extensions, output_format="html")
    tags = nh3.ALLOWED_TAGS - {"img", "map", "area"}
    return Markup(nh3.clean(html, tags=tags))  # noqa: S704 - cleaned


def words(text: str, top: int = 3) -> Markup:
    """Return the author's Markdown as HTML.

    Args:
        top: level of its highest headings, below those of the page.
    """
    html = prose(text, code=True)
    shift = top - min(map(int, HEADING_TAG.findall(html)), default=top)

    def shifted(match: re.Match[str]) -> str:
        return f"{match[0][:-1]}{min(6, int(match[1]) + shift)}"

    return Markup(HEADING_TAG.sub(shifted, html))  # noqa: S704 - cleaned by prose


@cache
def formula(latex: str) -> Markup:
    """Return a formula as MathML."""
    return Markup(convert(latex, display="block"))  # noqa: S704 - metrics write their formulas


def picture(svg: str) -> Markup:
    """Return the SVG of a chart."""
    return Markup(svg)  # noqa: S704 - made by vl-convert, which escapes its data


def safe_json(value: Any) -> str:
    """Return JSON that is safe in a script element: no tags, no NaN, reproducible bytes.

    Raises:
        ValueError: a number is not finite.
    """
    text = _json(value)
    for character in "&<>":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _json(value: Any, default: Callable[[Any], Any] | None = None) -> str:
    return json.dumps(
        value,
        ensure_ascii=True,
        allow_nan=False,
        sort_keys=True,
        separators=(",", ":"),
        default=default,
    )


def script(name: str, value: Any) -> str:
    """Return a data file: one call of a function that every page registers.

    Args:
        value: JSON data and bytes. With bytes, or of more than `MAX_PLAIN_CHARACTERS`, the value is
            written as `gzipped`; `values` reads it.
    """
    content = _content(value)
    if len(content) <= MAX_PLAIN_CHARACTERS and JSON_END not in content:
        return f"headbook.take({safe_json(name)},{safe_json(value)}{CALL_END}"
    return f'headbook.packed({safe_json(name)},"{gzipped(content)}"{CALL_END}'


def gzipped(content: bytes) -> str:
    """Return bytes compressed with gzip, in base64; ``templates/assets/gunzip.js`` opens them.

    The same bytes give the same text wherever zlib has the same version.
    """
    return base64.b64encode(gzip.compress(content, mtime=0)).decode()


def _content(value: Any) -> bytes:
    """Return one line of JSON followed by all bytes, to which the JSON refers by offsets."""
    raw_bytes = bytearray()

    def append_bytes(raw: bytes) -> dict[str, list[int]]:
        raw_bytes.extend(raw)
        return {"bytes": [len(raw_bytes) - len(raw), len(raw_bytes)]}

    text = _json(value, append_bytes).encode()
    return text + JSON_END + raw_bytes if raw_bytes else text


def values(text: str) -> bytes:
    """Return name and value of a data file as a list in JSON, followed by the value's bytes."""
    call, _, rest = text.partition("(")
    name, _, argument = rest.removesuffix(CALL_END).partition(",")
    is_plain = call == "headbook.take"
    content = argument.encode() if is_plain else gzip.decompress(base64.b64decode(argument[1:-1]))
    value, separator, raw_bytes = content.partition(JSON_END)
    return b"[%s,%s]" % (name.encode(), value) + separator + raw_bytes


def filters() -> dict[str, Callable[..., Any]]:
    """Return the filters that templates use."""
    return {
        "prose": prose,
        "words": words,
        "formula": formula,
        "unbroken": unbroken,
        "svg": lambda figure: picture(figure.svg),
        "json_text": lambda text: safe_json(visible(text)),
        "bib_text": latex.escaped,
        "bib_entry": latex.entry,
    }
