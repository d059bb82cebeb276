"""Facts by subject, and `FACTS`, the functions whose evidence makes the table ``tests``."""

from collections.abc import Callable

from headbook.report.facts.alike import mean_distances_fact
from headbook.report.facts.depth import (
    correlations,
    depth_rows,
    given_by_depth,
    received_by_depth,
)
from headbook.report.facts.fact import Fact
from headbook.report.facts.words import given_by_words
from headbook.report.results import StackResults

FACTS: tuple[Callable[[StackResults], Fact], ...] = (
    mean_distances_fact,
    given_by_words,
    depth_rows,
    received_by_depth,
    given_by_depth,
    correlations,
)
