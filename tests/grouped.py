"""Sentences with labels and pairs, for tests of groups: a tiny study of them, and plain loops."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from bare import Bare, Given
from headbook.study.study import Study
from looks import Viewed
from naive import NAIVE
from ratios import Part

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
    """The sentences as JSON lines."""
    lines = [
        {"text": row.text, "pair_id": row.pair, "label": row.label, "kind": row.kind}
        for row in rows
    ]
    file.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    return file


def parts(model: Path, rows: Iterable[Row] = ROWS, view: str = "raw") -> dict[Where, list[Part]]:
    """What each sentence adds to the numbers of each head, by plain loops."""
    bare = Bare.load(model)
    found: dict[Where, list[Part]] = defaultdict(list)
    for row in rows:
        for _, layer, head, attention in bare.looks(Given(row.text, [])):
            for metric, label in LABELS.items():
                found[layer, head, metric, label].append(
                    NAIVE[metric](Viewed(attention, view))[label]
                )
    return found
