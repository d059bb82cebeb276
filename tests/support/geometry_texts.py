"""Sentences and runs for tests of state geometry."""

from pathlib import Path
from typing import Any

import numpy as np

from headbook.metrics import all_metrics, layer_metrics
from headbook.run.collect import collect
from headbook.study.study import Study
from headbook.study.sums.state_geometry import CKA

METRICS = {metric.id: metric for metric in layer_metrics(all_metrics().values())}

IDS = [*METRICS, CKA]

WORDS = (
    "the", "old", "fisherman", "sees", "small", "dog", "bird", "house", "water", "sings", "sleeps",
    "garden", "red", "unhappiness",
)  # fmt: skip


def sentences(number: int, seed: int = 0) -> list[str]:
    """Different sentences of words that recur."""
    draw = np.random.default_rng(seed)
    found: dict[str, None] = {}
    while len(found) < number:
        words = draw.choice(WORDS, draw.integers(2, 7))
        found[" ".join(words) + draw.choice([" .", ""])] = None
    return [*found]


TEXTS = sentences(14)


def write(folder: Path, texts: list[str], *, paired: bool = False) -> Path:
    """Sentences as a file; a pair has the same text backwards on its other side."""
    file = folder / ("pairs.tsv" if paired else "texts.txt")
    rows = [f"{t}\t{' '.join(t.split()[::-1])}" for t in texts] if paired else texts
    head = ["source\ttarget"] if paired else []
    file.write_text("\n".join([*head, *rows]) + "\n", encoding="utf-8")
    return file


def run(folder: Path, model: Path, texts: list[str], *, paired: bool = False, **more: Any) -> Study:
    """Return the geometry of a tiny model, in float64."""
    given: dict[str, Any] = {"metrics": ",".join(IDS), "dtype": "float64", "annotator": "none"}
    given["importance"] = "off"
    return collect(write(folder, texts, paired=paired), model=str(model), **given | more)
