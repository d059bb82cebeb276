"""The page on how two models are compared: the meaning of each number, and its limits."""

from dataclasses import dataclass
from typing import ClassVar

from headbook.analysis.head_matching import NULL_QUANTILE
from headbook.analysis.paired import CANDIDATES, MIN_CLUSTERS
from headbook.comparison.comparison import Comparison
from headbook.comparison.drift import FLOOR_LABEL, PATTERN_DRIFT, WEIGHT_DRIFT
from headbook.comparison.matching import MIN_SHARED_WORDS
from headbook.pages.parts.page import TemplatePage
from headbook.results.formats import percent


@dataclass(frozen=True, kw_only=True)
class ComparingPage(TemplatePage):
    """The page on how comparisons are made.

    Attributes:
        names: of the models.
        same: whether heads correspond by their numbers; ``apart``: why not.
        rounded: whether rounding was measured; ``moved``: whether weights were compared.
        floors: sentences that rounding floors were measured on; 0 if they were not.
        tested: whether matches were tested against a model with random weights.
        sentences, mapped: how many both read, and of how many both keep maps.
        least: words that two heads need to be matched.
        null: share of heads that a model with random weights may resemble less, in words.
        least_clusters: sentences, or groups of them, that a test needs in each model.
        candidates: differences that each half of the sentences selects for the other.
    """

    template: ClassVar[str] = "comparison/comparing.html"
    styles = ("comparison",)
    names: tuple[str, str]
    same: bool
    apart: str
    rounded: bool
    moved: bool
    floors: int
    tested: bool
    sentences: int
    mapped: int
    least: int
    null: str
    least_clusters: ClassVar[int] = MIN_CLUSTERS
    candidates: ClassVar[int] = CANDIDATES


def comparing_page(comparison: Comparison) -> ComparingPage:
    """Return the page on the methods of a comparison."""
    sides = comparison.sides
    columns = {c for found in comparison.heads.values() for c in found.columns}
    return ComparingPage(
        path="comparing.html",
        title="Methods",
        description="How two models are compared, and what a difference does not say.",
        names=sides.names,
        same=sides.same_heads,
        apart=sides.mismatch,
        rounded=any(c.metric == PATTERN_DRIFT and c.label == FLOOR_LABEL for c in columns),
        moved=any(c.metric == WEIGHT_DRIFT for c in columns),
        floors=comparison.floor_sentences,
        tested=any(found.tested for found in comparison.matched.values()),
        sentences=sides.sentences,
        mapped=sum(1 for _ in sides.mapped()),
        least=MIN_SHARED_WORDS,
        null=percent(NULL_QUANTILE),
    )
