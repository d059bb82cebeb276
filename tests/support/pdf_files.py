"""What a reader of a PDF sees: the width of its page, its text, and how large letters are."""

from collections.abc import Iterator
from io import BytesIO
from typing import Any

from pypdf import PageObject, PdfReader
from pypdf.generic import ContentStream

POINTS = 72  # of an inch


def page_of(pdf: bytes) -> PageObject:
    """Return the only page of a PDF, read without tolerance for faults."""
    (page,) = PdfReader(BytesIO(pdf), strict=True).pages
    return page


def inches(pdf: bytes) -> float:
    """Return the width of the page in inches."""
    return float(page_of(pdf).mediabox.width) / POINTS


def tall_inches(pdf: bytes) -> float:
    """Return the height of the page in inches."""
    return float(page_of(pdf).mediabox.height) / POINTS


def letters(pdf: bytes) -> list[str]:
    """Return the letters of the text that a reader selects and copies, sorted, without blanks."""
    return sorted("".join(page_of(pdf).extract_text().split()))


def fonts(pdf: bytes) -> set[str]:
    """Return the names of the fonts that a page uses by itself, not in its forms."""
    page: Any = page_of(pdf)
    return {font.get_object()["/BaseFont"] for font in page["/Resources"]["/Font"].values()}


def type_sizes(pdf: bytes) -> set[float]:
    """Return the sizes of all letters in points, under all transformations around them."""
    page = page_of(pdf)
    contents = page.get_contents()
    assert contents is not None
    return {round(size, 2) for size in _sizes(contents, page, 1.0)}


def _sizes(content: Any, holder: Any, scale: float) -> Iterator[float]:
    """Yield the size of each text of a page or a form.

    Args:
        holder: the page or form, whose resources its operators name.
        scale: of the transformations around it.
    """
    kept, font, text = list[float](), 0.0, 1.0
    for operands, operator in ContentStream(content, None).operations:
        match operator:
            case b"q":
                kept.append(scale)
            case b"Q":
                scale = kept.pop()
            case b"cm":
                scale *= _scale(operands)
            case b"Tm":
                text = _scale(operands)
            case b"Tf":
                font = float(operands[1])
            case b"Tj" | b"TJ":
                yield font * text * scale
            case b"Do":
                form = holder["/Resources"]["/XObject"][operands[0]]
                if form["/Subtype"] == "/Form":
                    inner = scale * _scale(form.get("/Matrix", [1, 0, 0, 1, 0, 0]))
                    yield from _sizes(form, form, inner)


def _scale(matrix: list[float]) -> float:
    """Return the factor by which a transformation enlarges."""
    a, b, c, d = map(float, matrix[:4])
    return float(abs(a * d - b * c) ** 0.5)
