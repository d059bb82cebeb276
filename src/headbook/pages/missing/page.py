"""What a wrong address leads to."""

from dataclasses import dataclass
from typing import ClassVar

from headbook.pages.parts.page import Page


@dataclass(frozen=True, kw_only=True)
class MissingPage(Page):
    """What a web server shows for a wrong address."""

    template: ClassVar[str] = "404.html"


def missing_page() -> MissingPage:
    """The page for wrong addresses."""
    return MissingPage(
        path="404.html",
        title="Page not found",
        description="There is no page at this address.",
    )
