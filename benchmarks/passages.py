"""Numbers of passages beside those of a plain computation with the same definitions.

Usage: python benchmarks/passages.py CORPUS [--sentences 420]

CORPUS is the development part of Universal Dependencies English-EWT, in CoNLL-U. The first
sentences are collected with ``--pack 128``, the demo model, and the passages of several sentences;
`REFERENCE` has the numbers that a script of NumPy alone computes from them. Prints a line of JSON
for each number: its values by layer, the reference, and whether the largest difference is within
the tolerance (0.003, or 2 % of odds and distances). Exits with 1 if any is not.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from headbook import Study, collect
from headbook.inputs import open_corpus
from headbook.metrics import ids
from headbook.model.load import load_model
from headbook.model.packing import pack_sentences
from headbook.model.tokenizer import sequence_limit
from headbook.report.facts.outputs import anchor_counts
from headbook.report.results import StackResults, stack_results
from headbook.schema import Baseline, SinkView

PACK = 128
METRICS = (
    "sentence_excess", "repetition_excess", "same_sentence_preference", "repetition_lift",
    "high_pair_distance", "anchor_token", "segmentation",
)  # fmt: skip


class Reference(NamedTuple):
    """A number of every layer by the plain computation.

    Attributes:
        relative: whether differences are shares of the number.
        separated: whether separators stand between the sentences of a passage.
    """

    metric: str
    label: str
    values: tuple[float, ...]
    tolerance: float
    relative: bool = False
    separated: bool = True


REFERENCE = (
    Reference("sentence_excess", "", (-0.002, 0.002, 0.020, 0.053, 0.026, 0.002), 0.003),
    Reference(
        "sentence_excess", "", (0.000, 0.005, 0.026, 0.061, 0.031, 0.002), 0.003, separated=False
    ),
    Reference("repetition_excess", "", (0.203, 0.219, 0.174, 0.137, 0.159, 0.171), 0.003),
    Reference(
        "same_sentence_preference", "top 1 %", (1.086, 1.214, 1.428, 1.870, 1.653, 1.157), 0.02,
        relative=True,
    ),
    Reference(
        "repetition_lift", "top 1 %", (207.045, 42.314, 37.414, 29.287, 33.177, 48.680), 0.02,
        relative=True,
    ),
    Reference(
        "high_pair_distance", "top 1 %", (0.65, 0.51, 0.38, 0.43, 0.51, 0.87), 0.02, relative=True
    ),
)  # fmt: skip
ANCHORS = (9, 9, 8, 7, 7, 3)  # different anchors of 12 heads with a lower end of the lift above 1


def sentences(corpus: Path, number: int) -> Iterator[tuple[bool, str]]:
    """Yield the first sentences of a treebank, and whether each begins a document."""
    blocks = corpus.read_text(encoding="utf-8").strip().split("\n\n")
    for block in blocks[:number]:
        lines = block.split("\n")
        kept = [line for line in lines if not line.startswith("# newdoc")]
        yield len(kept) < len(lines), "\n".join(kept)


def passages(corpus: Path, number: int, folder: Path) -> Path:
    """Write the passages of several sentences, each as a document of its own."""
    first = folder / "sentences.conllu"
    marked = [("# newdoc\n" if new else "") + text for new, text in sentences(corpus, number)]
    first.write_text("\n\n".join(marked) + "\n\n", encoding="utf-8")
    model = load_model("demo", device="cpu")
    limit = sequence_limit(model, None)
    sizes = pack_sentences(open_corpus([first]), model, PACK, limit).sizes
    texts, documents = [text for _, text in sentences(corpus, number)], []
    for start, size in zip(np.cumsum([0, *sizes[:-1]]), sizes, strict=True):
        if size > 1:
            documents.append("# newdoc\n" + "\n\n".join(texts[start : start + size]))
    path = folder / "passages.conllu"
    path.write_text("\n\n".join(documents) + "\n\n", encoding="utf-8")
    return path


def packed(path: Path, metrics: str) -> Study:
    """Return a study of passages with the demo model."""
    return collect(
        path, model="demo", pack=PACK, metrics=metrics, annotator="none", importance="off",
        circuits="off", sentence_pages="0", control="no_separators",
    )  # fmt: skip


def compared(results: StackResults, reference: Reference) -> bool:
    """Print a number beside its reference; return whether they agree."""
    if not reference.separated:
        (results,) = results.baselines[Baseline.NO_SEPARATORS]
    found = results.layers(reference.metric, SinkView.RAW, reference.label)
    difference = np.abs(found.value - reference.values)
    if reference.relative:
        difference /= reference.values
    agree = bool(difference.max() <= reference.tolerance)
    line = {
        "metric": reference.metric,
        "label": reference.label,
        "separated": reference.separated,
        "value": [round(float(value), 3) for value in found.value],
        "reference": reference.values,
        "largest_difference": round(float(difference.max()), 4),
        "tolerance": reference.tolerance,
        "agree": agree,
        "passages": int(found.sentences.min()),
    }
    print(json.dumps(line), flush=True)  # noqa: T201
    return agree


def main() -> None:
    """Print all numbers."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--sentences", type=int, default=420)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = passages(arguments.corpus, arguments.sentences, Path(folder))
        results = stack_results(packed(path, ",".join(METRICS)))["self"]
    agree = [compared(results, reference) for reference in REFERENCE]
    counts = anchor_counts(results)
    anchors = {
        "metric": ids.ANCHOR_TOKEN,
        "different": [of_layer.different for of_layer in counts],
        "permuted": [of_layer.permuted for of_layer in counts],
        "reference": ANCHORS,
    }
    print(json.dumps(anchors), flush=True)  # noqa: T201
    for label in [name for name in results.labels(ids.SEGMENTATION) if "punctuation" not in name]:
        found = results.layers(ids.SEGMENTATION, SinkView.RAW, label).value
        heads = results.heads(ids.SEGMENTATION, SinkView.RAW, label).value
        low, high = (
            [round(float(pick(heads)), 3), *map(int, np.unravel_index(place(heads), heads.shape))]
            for pick, place in ((np.nanmin, np.nanargmin), (np.nanmax, np.nanargmax))
        )
        values = [round(float(value), 3) for value in found]
        line = {"metric": label, "value": values, "lowest_head": low, "highest_head": high}
        print(json.dumps(line), flush=True)  # noqa: T201
    sys.exit(not all(agree))


if __name__ == "__main__":
    main()
