"""What a comparison says first of a model and its copy that learned to tell past tense.

Usage: python benchmarks/tense.py CORPUS [--sentences 128] [--steps 150] [--rate 1e-4] [--seed 0]

The demo encoder learns to tell sentences whose root is in the past tense (`Tense=Past` of a CoNLL-U
treebank) from others, by the mean of its tokens' states. Both models read the same sentences, which
were not trained on.

Prints lines of JSON: the loss and the accuracy on the held-out sentences, each claim of the
overview with its numbers and whether they are those of the table of differences, and the largest
supported change of ten heads.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

import headbook
from headbook.comparison.change_sizes import largest_changes, number_title, value_text
from headbook.comparison.comparison import Comparison
from headbook.comparison.difference_claims import difference_claims
from headbook.comparison.differences import ComparedColumn
from headbook.comparison.drift import divergence_text
from headbook.metrics import ids
from headbook.model.load import load_model
from headbook.report.facts.functions import functions_of
from headbook.report.linked_rows import LinkedNumber
from headbook.report.results import stack_results

BATCH, LISTED = 16, 10  # sentences of a step; heads that are printed
METRICS = (
    ids.ATTENTION_DISTANCE, ids.RELATIVE_ENTROPY, ids.CONFIDENCE, ids.ATTENTION_TO, ids.SINK_SHARE,
    ids.POS_GIVEN, ids.POS_RECEIVED, ids.POS_RECEIVED_RATIO, ids.RELATION_ACCURACY,
    ids.SURFACE_RULE, ids.TYPE_SHARES, ids.ATTENTION_PARTS, ids.VARIABILITY, ids.COSINE_TO_INPUT,
)  # fmt: skip


class Sentence(NamedTuple):
    """A sentence of a treebank.

    Attributes:
        text: the sentence.
        past: whether its root is in the past tense.
        rows: lines of the treebank.
    """

    text: str
    past: bool
    rows: str


def sentences(corpus: Path) -> Iterator[Sentence]:
    """Yield the sentences of a treebank that have a text."""
    for block in corpus.read_text(encoding="utf-8").split("\n\n"):
        lines = block.strip().split("\n")
        text = next((line[9:] for line in lines if line.startswith("# text = ")), "")
        cells = [line.split("\t") for line in lines if line and not line.startswith("#")]
        past = any(row[6] == "0" and "Tense=Past" in row[5].split("|") for row in cells)
        if text:
            yield Sentence(text, past, "\n".join([*lines, "", ""]))


class Classifier(torch.nn.Module):
    """An encoder whose mean state is classified."""

    def __init__(self, network: Any, tokenizer: Any) -> None:
        super().__init__()
        self.network, self.tokenizer = network, tokenizer
        self.head = torch.nn.Linear(network.config.hidden_size, 2)

    def forward(self, texts: Sequence[str]) -> torch.Tensor:
        """Return the logits of both classes. *Shape:* ``(text, 2)``."""
        inputs = self.tokenizer(
            list(texts), return_tensors="pt", padding=True, truncation=True, max_length=128
        )
        states = self.network(**inputs).last_hidden_state
        mask = inputs["attention_mask"][..., None]
        logits: torch.Tensor = self.head((states * mask).sum(1) / mask.sum(1))
        return logits


def trained(model: Any, rows: Sequence[Sentence], given: argparse.Namespace) -> Classifier:
    """Return a classifier whose encoder is a copy of the model, fine-tuned on sentences."""
    torch.manual_seed(given.seed)
    rng = np.random.default_rng(given.seed)
    classifier = Classifier(deepcopy(model.base_model).train().requires_grad_(), model.tokenizer)
    optimiser = torch.optim.AdamW(classifier.parameters(), lr=given.rate)
    for _ in range(given.steps):
        batch = [rows[place] for place in rng.choice(len(rows), BATCH, replace=False)]
        logits = classifier([row.text for row in batch])
        true = torch.tensor([int(row.past) for row in batch])
        loss = torch.nn.functional.cross_entropy(logits, true)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return classifier.eval()


def compared(
    held_out: Sequence[Sentence], model: Any, network: Any, given: argparse.Namespace
) -> Comparison:
    """Compare the model with its fine-tuned copy on sentences that were not trained on."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "held_out.conllu"
        file.write_text("".join(row.rows for row in held_out), encoding="utf-8")
        return headbook.compare(
            [str(file)], (model.base_model, network), model.tokenizer, progress=False,
            annotator="none", metrics=",".join(METRICS), circuits="off", control="none",
            importance=given.importance, importance_sentences=64, sentence_pages=0,
        )  # fmt: skip


def agrees(part: LinkedNumber, table: pd.DataFrame) -> bool:
    """Check whether a printed number is that of its row of the table of differences."""
    row = table
    for name, value in part.row:
        wanted = row[name].isna() if name == "head" and value == "" else row[name] == value
        row = row[wanted]
    if len(row) != 1:
        return False
    found = row.iloc[0]
    column = ComparedColumn(found["metric"], found["view"], found["label"])
    values = [found[name] for name in ("a", "b", "difference") if not pd.isna(found[name])]
    texts = {value_text(column, sign * value) for value in values for sign in (1, -1)}
    return part.text in texts | {divergence_text(found["difference"])}


def claims(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """Yield the claims of the overview, with their numbers of the table of differences."""
    results = [stack_results(study) for study in (comparison.sides.a, comparison.sides.b)]
    functions = {
        pair.name: (functions_of(results[0][pair.a.name]), functions_of(results[1][pair.b.name]))
        for pair in comparison.sides.stacks
    }
    table = comparison.differences
    for claim in difference_claims(comparison, functions):
        parts = (*claim.sentence.parts, *claim.evidence.parts)
        numbers = [part for part in parts if isinstance(part, LinkedNumber)]
        of_table = [part for part in numbers if part.table == "differences"]
        yield {
            "claim": claim.kind,
            "sentence": claim.sentence.text,
            "evidence": claim.evidence.text,
            "numbers": len(of_table),
            "as in the table": sum(agrees(part, table) for part in of_table),
        }


def changes(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """Yield the largest supported change of each of a few heads."""
    for pair in comparison.sides.stacks:
        found = comparison.heads[pair.name]
        for change in [*largest_changes(found, pair.a)][:LISTED]:
            index, column = (*change.place, change.column), found.columns[change.column]
            a, b = (value_text(column, float(part[index])) for part in (found.a, found.b))
            head = f"L{change.place[0]}·H{change.place[1]}"
            size = round(change.size, 2)
            yield {"head": head, "number": number_title(column), "a": a, "b": b, "size": size}


def main() -> None:
    """Train, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--sentences", type=int, default=128, help="held-out ones")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--importance", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found = [*sentences(given.corpus)]
    order = np.random.default_rng(given.seed).permutation(len(found))
    held_out, rows = (
        [found[place] for place in part] for part in np.split(order, [given.sentences])
    )
    model = load_model("demo")
    classifier = trained(model, rows, given)
    with torch.no_grad():
        right = [int(classifier([row.text]).argmax()) == row.past for row in held_out]
    lines: list[dict[str, Any]] = [
        {"past": float(np.mean([row.past for row in held_out])), "accuracy": float(np.mean(right))}
    ]
    comparison = compared(held_out, model, classifier.network, given)
    lines += [*claims(comparison), *changes(comparison)]
    for line in lines:
        sys.stdout.write(f"{json.dumps(line, ensure_ascii=False)}\n")


if __name__ == "__main__":
    main()
