"""The data of the search, as a site holds them."""

from typing import Any

from html_pages import data_file
from sites import Site


def data_of(site: Site, name: str) -> Any:
    """The value of a data file."""
    named, value = data_file(site.folder / f"data/{name}.js")
    assert named == name
    return value
