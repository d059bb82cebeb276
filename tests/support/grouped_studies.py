"""Sentences with labels and pairs, plain loops over their groups, and tiny studies of them."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bare_model import Bare, Given
from headbook.run.collect import collect
from headbook.study.study import Study
from naive import NAIVE
from naive_ratios import Part
from single_head import Viewed

METRICS = "attention_distance,relative_entropy,sink_share,attention_to"
LABELS = {
    "attention_distance": "", "relative_entropy": "", "sink_share": "", "attention_to": "previous",
}  # fmt: skip


class Row(NamedTuple):
    """A sentence with its columns."""

    text: str
    pair: str
    label: str
    kind: str = "one"


ROWS = (
    Row("The fisherman sees the bird.", "a", "good"),
    Row("The fisherman see the bird.", "a", "bad"),
    Row("Old dogs sleep near the house.", "b", "good", "two"),
    Row("The small red bird sings in the garden.", "c", "bad"),
    Row("Old dogs sleeping near house the.", "b", "bad", "two"),
    Row("The small red birds sings in the garden!", "c", "good"),
    Row("Unhappiness and water.", "d", "good", "two"),
    Row("The gardener sees the dog.", "d", "bad"),
    Row("Water.", "e", "good", "lonely"),
    Row("The dog runs and the bird sings.", "f", "good"),
    Row("The dog run and the bird sings.", "f", "bad"),
    Row("The dog runs, and the birds sing.", "f", "bad"),
)
PAIRS = {"a": (0, 1), "b": (2, 4), "c": (5, 3), "d": (6, 7)}  # good first; e and f are none
Collect = Callable[..., Study]
Where = tuple[int, int, str, str]  # layer, head, metric, label


def write_rows(file: Path, rows: Sequence[Row] = ROWS) -> Path:
    """Return the sentences as JSON lines."""
    lines = [
        {"text": row.text, "pair_id": row.pair, "label": row.label, "kind": row.kind}
        for row in rows
    ]
    file.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    return file


def parts(model: Path, rows: Iterable[Row] = ROWS, view: str = "raw") -> dict[Where, list[Part]]:
    """Return the sums of each sentence and head, by plain loops."""
    bare = Bare.load(model)
    found: dict[Where, list[Part]] = defaultdict(list)
    for row in rows:
        for _, layer, head, attention in bare.looks(Given(row.text, [])):
            for metric, label in LABELS.items():
                found[layer, head, metric, label].append(
                    NAIVE[metric](Viewed(attention, view))[label]
                )
    return found


@pytest.fixture(scope="module")
def gather(tiny_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Collect:
    """Return a study of some of the sentences, in float64."""

    def made(rows: tuple[Row, ...] = ROWS, **options: Any) -> Study:
        file = write_rows(tmp_path_factory.mktemp("rows") / "rows.jsonl", rows)
        given: dict[str, Any] = {"facet": "label,kind", "metrics": METRICS, "batch_tokens": 40}
        model = str(tiny_folder("bert"))
        return collect(file, model=model, dtype="float64", annotator="none", **(given | options))

    return made


@pytest.fixture(scope="module")
def grouped_study(gather: Collect) -> Study:
    """Return the study of all sentences."""
    return gather()
