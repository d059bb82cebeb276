"""Sites of comparisons of tiny models: one against itself, changed, and another architecture."""

from collections.abc import Callable
from functools import cache
from itertools import product

import pytest

import tiny
from compared import ENDS, METRICS, OBJECTS, SUBJECTS, Compared, changed
from headbook.comparison.comparison import compare
from headbook.config import Config
from headbook.run.collect import collect
from headbook.run.models import model_drift
from headbook.site.sites import render_comparison
from headbook.study.study import Study


@pytest.fixture(scope="session")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Compared]:
    """A site by name.

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
            models = str(place / "bert"), str(place / "noisy")
            drift = model_drift(first, other, models, Config(model=models[0]), trained=True)
            found = compare(
                first, other, names=("before", "after"), rounded=rounded, null=other, drift=drift,
                twice=(first, rounded),
            )  # fmt: skip
        else:
            found = compare(first, study("gpt2" if name == "apart" else "bert"))
        render_comparison(found, place / f"site-{name}")
        return Compared(found, place / f"site-{name}")

    return site
