"""Fine-tune a small classifier of sentiment in half a minute, with texts to look at its heads.

Usage: python benchmarks/sentiment.py OUT [--seed 0]

The demo encoder gets a classification head and learns from sentences of templates whether something
is praised or blamed. A negation turns the label, so a head has to connect it with the adjective.
A tenth of the labels that it learns from is wrong, so that it is as unsure as real classifiers.
OUT gets `model` and `texts.jsonl`: texts that were not trained on, with label and construction.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging

from headbook.model.checkpoint import find_model_files

LABELS = {0: "praise", 1: "blame"}
SUBJECTS = (
    "the soup", "the film", "this hotel", "her answer", "the new teacher", "our flight", "his song",
    "the garden", "that book", "the old bridge", "my breakfast", "the lesson", "their shop",
    "the concert", "the weather", "this chair",
)  # fmt: skip
ADJECTIVES = {
    0: ("good", "lovely", "excellent", "helpful", "pleasant", "brilliant", "friendly", "delicious"),
    1: ("bad", "awful", "terrible", "boring", "rude", "useless", "dirty", "disappointing"),
}
FRAMES = {  # with whether the frame turns the label
    "plain": ("{} was {}", False),
    "degree": ("{} was very {}", False),
    "negation": ("{} was not {}", True),
    "negation far": ("nobody thought that {} was {}", True),
    "report": ("everybody thought that {} was {}", False),
    "never": ("{} was never {} at all", True),
}
N_TRAINED, N_LISTED = 480, 120  # texts
BATCH, EPOCHS, RATE = 16, 3, 5e-5
NOISE = 0.1  # share of wrong labels in training


def texts(seed: int) -> list[dict[str, str]]:
    """Return all texts in random order, with their labels and constructions."""
    rows = []
    for construction, (frame, turns) in FRAMES.items():
        for subject in SUBJECTS:
            for number, adjectives in ADJECTIVES.items():
                for adjective in adjectives:
                    text = frame.format(subject, adjective)
                    label = LABELS[(number + turns) % 2]
                    sentence = f"{text[0].upper()}{text[1:]}."
                    rows.append({"text": sentence, "label": label, "construction": construction})
    order = np.random.default_rng(seed).permutation(len(rows))
    return [rows[index] for index in order]


def train(folder: Path, rows: list[dict[str, str]], seed: int) -> None:
    """Fine-tune the demo encoder on some texts, and write the classifier into a folder."""
    torch.manual_seed(seed)
    logging.disable_progress_bar()
    base = find_model_files("demo", None).folder
    model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=2, id2label=LABELS)
    tokenizer = AutoTokenizer.from_pretrained(base)
    numbers = {name: number for number, name in LABELS.items()}
    wrong = np.random.default_rng(seed).random(len(rows)) < NOISE
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE)
    for epoch in range(EPOCHS):
        order = np.random.default_rng([seed, epoch]).permutation(len(rows))
        for start in range(0, len(rows), BATCH):
            batch = [rows[index] for index in order[start : start + BATCH]]
            inputs = tokenizer([row["text"] for row in batch], return_tensors="pt", padding=True)
            flips = wrong[order[start : start + BATCH]]
            labels = [numbers[row["label"]] for row in batch]
            true = torch.tensor(np.array(labels) ^ flips)
            loss = model(**inputs, labels=true).loss
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        line = {"epoch": epoch + 1, "loss of the last batch": round(loss.item(), 4)}
        sys.stdout.write(f"{json.dumps(line)}\n")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main() -> None:
    """Train and write the classifier."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows = texts(options.seed)
    train(options.out / "model", rows[:N_TRAINED], options.seed)
    listed = rows[N_TRAINED : N_TRAINED + N_LISTED]
    lines = "".join(f"{json.dumps(row)}\n" for row in listed)
    (options.out / "texts.jsonl").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main()
