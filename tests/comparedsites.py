"""Sites of two tiny models on the same sentences, made once a session."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from headbook.comparison.comparison import Comparison, compare
from headbook.site.comparisons.comparing import render_comparison
from headbook.study.study import Study
from sites import Once, make_study

METRICS = "attention_distance,attention_to,cosine_to_input,vocabulary_rank,nearest_tokens"
FAMILIES = {"a": ("bert", 0), "b": ("bert", 1), "other": ("gpt2", 0)}  # family and seed of weights
SITES = {"seeds": "ab", "itself": "aa", "apart": ("a", "other")}


@dataclass(frozen=True)
class ComparedSite:
    """Two studies and the site of both.

    Attributes:
        place: folder that holds all studies and sites.
        kind: of `SITES`.
    """

    place: Path
    kind: str

    @property
    def folder(self) -> Path:
        """The site."""
        return self.place / "sites" / self.kind

    @cached_property
    def comparison(self) -> Comparison:
        """What the site is of, read and compared anew."""
        a, b = (Study.load(self.place / "studies" / name) for name in SITES[self.kind])
        return compare(a, b)


def _fill(place: Path) -> None:
    import tiny
    import treebank

    inputs = treebank.write_trees(place / "trees.conllu", treebank.MANY)
    for name, (family, seed) in FAMILIES.items():
        model = tiny.write(family, place / f"tiny-{name}", seed)
        options = {
            "metrics": METRICS,
            "exemplars": 1,
            "sentence_pages": "4",
            "control": "none",
            "importance": "off",
        }
        make_study(inputs, model, **options).save(place / "studies" / name)
    for kind in SITES:
        site = ComparedSite(place, kind)
        render_comparison(site.comparison, site.folder)


@pytest.fixture(scope="session")
def compared(once: Once) -> dict[str, ComparedSite]:
    """The sites by kind: two seeds of a family, a model and itself, models of other shapes."""
    place = once("compared", _fill)
    return {kind: ComparedSite(place, kind) for kind in SITES}
