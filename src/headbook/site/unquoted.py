"""Templates as authors write them, attributes without quotes where HTML needs none."""

import re

from jinja2.ext import Extension

# Attributes with one value that no expression makes. Names of headings and of the main part stay:
# `headbook.site.contents` looks for them.
FIXED = re.compile(
    r""" (?!id=|tabindex=)([a-z][a-z-]*)="([\w#.:;,+%/-]*[\w#.:;,+%-])\""""
    r"(?=[ >]|{% (?:if|elif|else|endif)\b)"
)


class Unquoted(Extension):
    """Takes the quotes from a template of a page when it is read, at no cost for each page."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        """The template with fewer letters that means the same."""
        return FIXED.sub(r" \1=\2", source) if (name or "").endswith(".html") else source
