"""Pairs of tiny models to compare, and the sites of their comparisons."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

import tiny
from headbook.comparison.comparison import Comparison, compare
from headbook.config import Config
from headbook.run.collect import collect
from headbook.run.models import model_drift
from headbook.site.sites import render_comparison
from headbook.study.study import Study

METRICS = (
    "sink_share,attention_distance,attention_to,type_shares,relative_entropy,"
    "cosine_to_input,vocabulary_rank,nearest_tokens"
)
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


def changed(source: Path, path: Path) -> None:
    """Write a model with noise in the queries of one layer."""
    model = AutoModel.from_pretrained(source)
    generator = torch.Generator().manual_seed(1)
    weight = model.encoder.layer[CHANGED].attention.self.query.weight
    with torch.no_grad():
        weight += NOISE * torch.randn(weight.shape, generator=generator)
    model.save_pretrained(path)
    AutoTokenizer.from_pretrained(source).save_pretrained(path)


@pytest.fixture(scope="session")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Compared]:
    """Return a site by name.

    ``equal``: a model and itself; ``tuned``: and itself with other queries in one layer, beside
    rounding and random weights, with the drift of weights and outputs; ``apart``: and a causal
    model of another shape.
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
        return collect(
            texts, model=str(model), dtype=dtype, metrics=METRICS, annotator="none", facet="none",
            importance="fast",
        )  # fmt: skip

    @cache
    def site(name: str) -> Compared:
        first = study("bert")
        if name == "tuned":
            other = study("noisy")
            rounded = study("bert", "bfloat16")
            one, two = ((None, Config(model=str(place / name))) for name in ("bert", "noisy"))
            drift = model_drift(first, other, (one, two), trained=True)
            found = compare(
                first, other, names=("before", "after"), rounded=rounded, null=other, drift=drift,
                twice=(first, rounded),
            )  # fmt: skip
        else:
            found = compare(first, study("gpt2" if name == "apart" else "bert"))
        render_comparison(found, place / f"site-{name}")
        return Compared(found, place / f"site-{name}")

    return site
