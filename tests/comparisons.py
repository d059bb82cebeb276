"""Sites of comparisons of tiny models: one against itself, changed, and another architecture."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

import tiny
from headbook.collection.collect import collect
from headbook.comparison.comparison import Comparison, compare
from headbook.site.comparisons.comparing import render_comparison
from headbook.study.study import Study

METRICS = "sink_share,attention_distance,attention_to,type_shares"
CHANGED = 1  # layer whose queries are changed
NOISE = 2.0
SUBJECTS = ("The fisherman", "The old dog", "The small red bird", "The gardener")
OBJECTS = ("the dog", "a bird", "the red house", "the water")
ENDS = (".", " near the house.", " in the garden!")


@dataclass(frozen=True)
class Compared:
    """A comparison and its site."""

    found: Comparison
    folder: Path


@pytest.fixture(scope="session")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Compared]:
    """A site by name.

    ``equal``: a model and itself; ``tuned``: and itself with other queries in one layer, beside
    rounding and random weights; ``apart``: and a causal model of another shape.
    """
    place = tmp_path_factory.mktemp("compared")
    texts = place / "sentences.txt"
    rows = (f"{who} sees {what}{end}\n" for who, what, end in product(SUBJECTS, OBJECTS, ENDS))
    texts.write_text("".join(rows), encoding="utf-8")

    @cache
    def study(name: str, dtype: str = "float32") -> Study:
        model = place / name
        if not model.exists():
            changed(place / "bert", model) if name == "noisy" else tiny.write(name, model)
        given = {"metrics": METRICS, "annotator": "none", "facet": "none"}
        return collect(texts, model=str(model), dtype=dtype, importance="fast", **given)

    @cache
    def site(name: str) -> Compared:
        first = study("bert")
        if name == "tuned":
            other = study("noisy")
            rounded = study("bert", "bfloat16")
            found = compare(first, other, names=("before", "after"), rounded=rounded, null=other)
        else:
            found = compare(first, study("gpt2" if name == "apart" else "bert"))
        render_comparison(found, place / f"site-{name}")
        return Compared(found, place / f"site-{name}")

    return site


def changed(source: Path, path: Path) -> None:
    """Write a model with noise in the queries of one layer."""
    model = AutoModel.from_pretrained(source)
    generator = torch.Generator().manual_seed(1)
    weight = model.encoder.layer[CHANGED].attention.self.query.weight
    with torch.no_grad():
        weight += NOISE * torch.randn(weight.shape, generator=generator)
    model.save_pretrained(path)
    AutoTokenizer.from_pretrained(source).save_pretrained(path)
