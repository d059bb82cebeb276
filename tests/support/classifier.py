"""A tiny classifier that one head makes able: it reads the marker token, and the rest stays random.

All weights are fixed as transformers initialises them, but for the queries, keys, values and the
output of one head, and for the classification head. The label of a text is its marker.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import tiny

LAYER, HEAD = 0, 2  # of the head that learns
MARKERS = {"red": "warm", "water": "cold"}  # markers with the label of their texts
OTHERS = ("the", "cat", "dog", "sees", "small", "bird", "house", "and", "near", "old")
LENGTH = 7  # words of a text
STEPS, BATCH, RATE = 100, 64, 0.02


def rows(number: int, seed: int) -> list[dict[str, str]]:
    """Texts of other words with one marker anywhere, their labels, and where the marker stands."""
    rng = np.random.default_rng(seed)
    found = []
    for k in range(number):
        words = [*rng.choice(OTHERS, LENGTH)]
        marker, place = [*MARKERS][k % 2], int(rng.integers(LENGTH))
        words[place] = marker
        where = "early" if place < LENGTH // 2 else "late"
        found.append({"text": " ".join(words), "label": MARKERS[marker], "where": where})
    return found


def write(folder: Path) -> Path:
    """Write the fine-tuned classifier into a folder, which takes two seconds."""
    tiny.write("bert", folder, untrained=True)
    torch.manual_seed(0)
    labels = dict(enumerate(MARKERS.values()))
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=len(labels), id2label=labels,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model.requires_grad_(requires_grad=False)
    learning = [*_learning(model)]
    for parameter, mask in learning:
        parameter.requires_grad_()
        parameter.register_hook(lambda grad, mask=mask: grad * mask)
    optimiser = torch.optim.Adam([parameter for parameter, _ in learning], lr=RATE)
    numbers = {name: number for number, name in labels.items()}
    for step in range(STEPS):
        batch = rows(BATCH, seed=1000 + step)
        inputs = tokenizer([row["text"] for row in batch], return_tensors="pt", padding=True)
        true = torch.tensor([numbers[row["label"]] for row in batch])
        optimiser.zero_grad()
        model(**inputs, labels=true).loss.backward()
        optimiser.step()
    model.save_pretrained(folder)
    return folder


def _learning(model: Any) -> Iterator[tuple[torch.nn.Parameter, torch.Tensor]]:
    """Parameters that are trained, each with 1 where they are."""
    block = model.bert.encoder.layer[LAYER].attention
    width = tiny.WIDTH // tiny.HEADS
    own = slice(HEAD * width, (HEAD + 1) * width)
    for linear in (block.self.query, block.self.key, block.self.value):
        for parameter in (linear.weight, linear.bias):
            mask = torch.zeros_like(parameter)
            mask[own] = 1
            yield parameter, mask
    mask = torch.zeros_like(block.output.dense.weight)
    mask[:, own] = 1
    yield block.output.dense.weight, mask
    for parameter in model.classifier.parameters():
        yield parameter, torch.ones_like(parameter)


def write_texts(file: Path, number: int = 80, seed: int = 0) -> Path:
    """Write texts that were not trained on into a file."""
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows(number, seed)))
    return file
