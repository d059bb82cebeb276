"""Tables of pages, read by their titles."""

from typing import Any

from headbook.pages.parts.table import PageTable


def text(content: Any) -> str:
    """What stands in a cell or a title, without its interval."""
    if content is None:
        return "·"
    return content if isinstance(content, str) else getattr(content, "text", str(content))


def lines(table: PageTable) -> list[dict[str, Any]]:
    """Rows, with what stands in their cells by title, from left to right."""
    titles = [text(title) for title in table.columns]
    return [dict(zip(titles, (row.head, *row.cells), strict=True)) for row in table.rows]
