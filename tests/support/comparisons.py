"""Pairs of tiny models to compare, and the sites of their comparisons."""

import pickle
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
from sites import Once

METRICS = (
    "sink_share,attention_distance,attention_to,type_shares,attention_parts,relative_entropy,"
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


def write_models(place: Path) -> None:
    """Write the models, and the sentences that all of them read."""
    for name in ("bert", "gpt2"):
        tiny.write(name, place / name)
    changed(place / "bert", place / "noisy")
    rows = (f"{who} sees {what}{end}\n" for who, what, end in product(SUBJECTS, OBJECTS, ENDS))
    (place / "sentences.txt").write_text("".join(rows), encoding="utf-8")


@pytest.fixture(scope="session")
def compared(once: Once) -> Callable[[str], Compared]:
    """Return a site by name; studies, comparisons and sites are made once for all workers.

    ``equal``: a model and itself; ``tuned``: and itself with other queries in one layer, beside
    rounding and random weights, with the drift of weights and outputs; ``apart``: and a causal
    model of another shape.
    """

    def study(name: str, dtype: str = "float32") -> Study:
        place = once("compared-models", write_models)

        def fill(draft: Path) -> None:
            collect(
                place / "sentences.txt", model=str(place / name), dtype=dtype, metrics=METRICS,
                annotator="none", facet="none", importance="auto",
            ).save(draft / "study")  # fmt: skip

        return Study.load(once(f"compared-{name}-{dtype}", fill) / "study")

    def comparison(name: str) -> Comparison:
        first = study("bert")
        if name != "tuned":
            return compare(first, study("gpt2") if name == "apart" else first)
        other, rounded = study("noisy"), study("bert", "bfloat16")
        place = once("compared-models", write_models)
        one, two = ((None, Config(model=str(place / each))) for each in ("bert", "noisy"))
        return compare(
            first, other, names=("before", "after"), rounded=rounded, null=other,
            drift=model_drift(first, other, (one, two), trained=True), twice=(first, rounded),
        )  # fmt: skip

    @cache
    def site(name: str) -> Compared:
        def fill(draft: Path) -> None:
            made = comparison(name)
            render_comparison(made, draft / "site")
            (draft / "comparison.pickle").write_bytes(pickle.dumps(made))

        place = once(f"compared-{name}", fill)
        found = pickle.loads((place / "comparison.pickle").read_bytes())  # noqa: S301 (as dumped)
        return Compared(found, place / "site")

    return site
