"""A head has one name: on its page, in search, list, table and notebook, that of `functions_of`."""

from collections.abc import Iterator

import pandas as pd
import pytest

from headbook.report.facts.functions import HeadFunction, functions_of
from headbook.results.formats import head_name, head_page
from html_pages import html_of, text_of
from sites import Site, data_of

pytestmark = pytest.mark.slow


def functions(site: Site) -> Iterator[HeadFunction]:
    """Yield the functions of all heads, in the order of lists."""
    for results in site.results.values():
        yield from functions_of(results).values()


def named(function: HeadFunction, text: str) -> bool:
    """Check whether a text has the noun or the sentence of a function."""
    words = " ".join(text.split()).lower()
    names = (function.noun, function.text.text.removesuffix("."))
    return any(name and " ".join(name.split()).lower() in words for name in names)


def test_table_and_search_have_the_names_of_all_heads(any_site: Site) -> None:
    table = pd.read_parquet(any_site.folder / "data" / "functions.parquet")
    expected = [
        (*function.head, function.id, function.noun, function.family or "")
        for function in functions(any_site)
    ]
    columns = ["stack", "layer", "head", "function", "noun", "family"]
    assert [*table[columns].itertuples(index=False, name=None)] == expected
    found = data_of(any_site, "find")["functions"]
    assert [row[:2] for row in found] == [
        [function.noun, function.text.text] for function in functions(any_site)
    ]


def test_the_list_of_heads_has_their_names(any_site: Site) -> None:
    rows = data_of(any_site, "headlist")["heads"]
    for row, function in zip(rows, functions(any_site), strict=True):
        assert row[0] == head_name(function.head)
        if function.family:
            assert named(function, " ".join(map(str, row))), (row, function.noun)


def test_pages_and_outputs_of_heads_have_their_names(any_site: Site) -> None:
    study = any_site.study
    for function in functions(any_site):
        page = text_of(html_of(any_site.folder / head_page(function.head)))
        assert named(function, page), (function.head, function.noun)
        view = study.head(function.head.layer, function.head.head, function.head.stack)
        assert named(function, text_of(view._repr_html_())), (function.head, function.noun)
        assert named(function, repr(view)), (function.head, function.noun)
