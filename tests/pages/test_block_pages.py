"""Pages of blocks: every number is that of its row, every chart has its files, each id is once."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import pytest

from block_parts import Rows, every
from comparisons import Compared
from headbook.charts import Figure, Plot
from headbook.comparison.comparison import COMPARISON_TABLES
from headbook.pages.alignment import alignment_page, has_alignment
from headbook.pages.comparison.metricpair import metric_pairs
from headbook.pages.comparison.parts import both_stacks
from headbook.pages.geometry import geometry_page, has_geometry
from headbook.pages.importance import has_importance, importance_page
from headbook.pages.methods import methods_page
from headbook.pages.metric import metric_pages, metrics_page, study_metrics
from headbook.pages.metrics.depth import depth_page, has_depth
from headbook.pages.parts.blocks import Group, Page, Table
from headbook.pages.patterns import has_patterns, patterns_page
from headbook.pages.similar import has_similar, similar_page
from headbook.pages.speech import speech_page
from headbook.pages.syntax import syntax_page
from headbook.pages.tokens import has_types, types_page
from headbook.report.linked_rows import LinkedNumber
from headbook.report.tables import STUDY_TABLES
from headbook.results.number import Number
from headbook.site.rows import SiteRows
from sites import Site

pytest_plugins = ["comparisons"]
PAGES: dict[str, tuple[Callable[..., bool], Callable[..., Page]]] = {
    "depth": (has_depth, depth_page),
    "speech": (lambda _: True, speech_page),
    "similar": (has_similar, similar_page),
    "patterns": (has_patterns, patterns_page),
    "importance": (has_importance, importance_page),
    "syntax": (lambda _: True, syntax_page),
    "alignment": (has_alignment, alignment_page),
    "methods": (lambda _: True, lambda r: methods_page(r, study_metrics(r))),
    "geometry": (has_geometry, geometry_page),
    "tokens": (has_types, types_page),
}


@cache
def rows_of(site: Site) -> Rows:
    """Keep the tables of each site."""
    return Rows(SiteRows(STUDY_TABLES, site.study))


def values(row: Mapping[str, Any]) -> Iterator[float]:
    """Yield the numbers of a row, and those that pages make of several of its columns."""
    known = {name: float(each) for name, each in row.items() if isinstance(each, int | float)}
    yield from known.values()
    if known.get("baseline_value"):
        yield from (known[part] / known["baseline_value"] for part in ("value", "low", "high"))
    if known.get("random_sets"):
        yield 2 / (known["random_sets"] + 1)  # p of a rank at the edge


def check(rows: Rows, page: Page) -> int:
    """Check every number of a page against its row; return how many there are."""
    numbers = [number for number in every(Number, page) if number.known]
    for number in numbers:
        known = [*values(rows.behind(number))]
        for part in (number.value, number.low, number.high):
            assert math.isnan(part) or any(part == pytest.approx(x) for x in known), number
    for linked in every(LinkedNumber, page):
        assert rows.behind(linked)
    return len(numbers)


METRICS = "metrics"  # pages of all metrics, and their list


def pages_of(name: str, site: Site) -> list[Page]:
    """Return the pages that a study has."""
    if name == METRICS:
        metrics = study_metrics(site.results)
        return [*metric_pages(site.results, metrics), metrics_page(metrics, site.results)]
    exists, make = PAGES[name]
    return [make(site.results)] if exists(site.results) else []


@pytest.mark.parametrize("name", [*PAGES, METRICS])
def test_every_number_is_that_of_its_row(name: str, any_site: Site) -> None:
    n_numbers = sum(check(rows_of(any_site), page) for page in pages_of(name, any_site))
    # The encoder's study has every metric, but no cross-attention.
    assert n_numbers or any_site.kind != "encoder" or name == "alignment"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tuned", "apart"])
def test_every_number_of_a_metric_in_two_models_is_that_of_its_row(
    name: str, compared: Callable[[str], Compared]
) -> None:
    found = compared(name).found
    rows = Rows(SiteRows({table.name: table for table in COMPARISON_TABLES}, found))
    assert sum(check(rows, each.page) for each in metric_pairs(both_stacks(found))) > 0


@pytest.mark.parametrize("name", [*PAGES, METRICS])
def test_a_page_is_whole(name: str, any_site: Site) -> None:
    """Rows are as long as their titles, ids differ, answers are short, charts have files."""
    for page in pages_of(name, any_site):
        check_whole(page, any_site)


def check_whole(page: Page, site: Site) -> None:
    assert len(page.title) <= 60
    for answer in (page.answer, *(question.answer for question in page.questions)):
        text = answer if isinstance(answer, str) else answer.text
        assert 3 < len(text.split()) <= 30, text
    ids = [part.id for part in every(Group, page)] + [part.id for part in page.questions]
    assert {*Counter(filter(None, ids)).values()} <= {1}
    for table in every(Table, page):
        assert {len(row) for row in table.rows} <= {len(table.columns)}
        assert table.rows
        assert table.caption or table.label
    charts: list[Plot | Figure] = [*every(Plot, page), *every(Figure, page)]
    for chart in charts:
        for ending in ("svg", "pdf", "csv"):
            assert (site.folder / f"figures/{chart.name}.{ending}").stat().st_size
