"""The page of methods: one interval worked out, and what the search finds of the page."""

import math

import numpy as np
import pytest
from scipy.stats import t as student

from headbook.metrics import all_metrics
from headbook.pages.methods import methods_page
from headbook.pages.methods_parts.intervals import INTERVALS, interval_steps
from headbook.pages.metric import study_metrics
from headbook.report.wording import VIEWS
from html_pages import html_of, text_of
from sites import Site, data_of


def wilson(share: float, number: float, critical: float) -> tuple[float, float]:
    """Wilson's score interval as the formula of 1927 has it."""
    middle = share + critical**2 / (2 * number)
    half = critical * math.sqrt(share * (1 - share) / number + critical**2 / (4 * number**2))
    return tuple((middle + sign * half) / (1 + critical**2 / number) for sign in (-1, 1))  # type: ignore[return-value]


def test_the_steps_of_an_interval_give_its_ends(any_site: Site) -> None:
    """From the sums over sentences alone, in double precision."""
    for results in any_site.results.values():
        steps = interval_steps(results)
        assert steps is not None
        table = results.study.head_tables[results.stack.name]
        place = steps.head.layer, steps.head.head, table.columns.index(steps.key)
        sums = {name: float(value) for name, value in table.heads[place].total.items()}
        count, share = sums["sentences"], sums["n"] / sums["d"]
        squares = sums["nn"] - 2 * share * sums["nd"] + share**2 * sums["dd"]
        error = math.sqrt(count / (count - 1) * squares / sums["d"] ** 2)
        effective = sums["d"] ** 2 / sums["dd"]
        critical = float(student.ppf(0.975, effective - 1))
        number = share * (1 - share) / (steps.factor * error) ** 2
        assert steps.share.value == pytest.approx(share, rel=1e-12)
        assert steps.error == pytest.approx(error, rel=1e-6)
        assert steps.effective == pytest.approx(effective, rel=1e-12)
        assert steps.critical == pytest.approx(critical, rel=1e-9)
        assert steps.observations == pytest.approx(number, rel=1e-6)
        ends = wilson(share, number, critical)
        np.testing.assert_allclose((steps.share.low, steps.share.high), ends, rtol=1e-6)
        assert steps.factor >= 1


def test_every_kind_of_interval_has_a_source_with_its_year() -> None:
    for interval in INTERVALS:
        assert any(part[:4].isdigit() for part in interval.reference.replace(",", "").split())


def test_the_search_finds_bootstrap_views_and_every_metric(any_site: Site) -> None:
    found = data_of(any_site, "find")
    lines = [*found["questions"], *found["metrics"]]
    texts = {address: " ".join(line).lower() for line in lines for address in [line[1]]}
    assert "bootstrap" in texts["methods.html#intervals"]
    for view in VIEWS.values():
        assert view in texts["methods.html#views"]
    words = [" ".join(line) for line in found["metrics"]]
    for metric in all_metrics().values():
        assert any(metric.id in text and metric.title in text for text in words), metric.id


def test_metrics_without_numbers_are_named(any_site: Site) -> None:
    results = any_site.results
    page = text_of(html_of(any_site.folder / "methods.html"))
    assert methods_page(results, study_metrics(results)).contents
    assert all(metric.id in page for metric in all_metrics().values())
