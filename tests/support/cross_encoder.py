"""A tiny cross-encoder: one head carries what decides from the first text to the second.

Both texts of a pair have the same words, but for one: the first has a marker where the second has
another word. The label of a pair is its marker. The head at `CARRIER` learns to attend from every
word of the second text to the marker, and the head at `READER` from ``[CLS]`` to the second text;
all other weights stay as transformers initialises them.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import processors
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedTokenizerFast,
)

import tiny

CARRIER, READER = (0, 2), (1, 1)  # layer and head
MARKERS = {"red": "warm", "water": "cold"}  # markers with the label of their pairs
DIFFERENT = "house"  # what the second text has in place of the marker
OTHERS = ("the", "cat", "dog", "sees", "small", "bird", "and", "near", "old")
LENGTHS = (4, 5, 6, 7, 8)  # words of a text
STEPS, BATCH, RATE = 250, 48, 0.02


def rows(number: int, seed: int) -> list[dict[str, str]]:
    """Return pairs with their labels."""
    rng = np.random.default_rng(seed)
    pairs = []
    for k in range(number):
        words = [*rng.choice(OTHERS, rng.choice(LENGTHS))]
        marker, place = [*MARKERS][k % 2], int(rng.integers(len(words)))
        first, second = [*words], [*words]
        first[place], second[place] = marker, DIFFERENT
        pairs.append(
            {"premise": " ".join(first), "hypothesis": " ".join(second), "label": MARKERS[marker]}
        )
    return pairs


def tokenizer_of(folder: Path) -> Any:
    """Return the tokenizer of a tiny BERT, which also takes pairs."""
    fast = AutoTokenizer.from_pretrained(folder).backend_tokenizer
    added = ("[CLS]", "[SEP]")
    fast.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(name, fast.token_to_id(name)) for name in added],
    )
    names = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=fast, model_max_length=64, model_input_names=names, **tiny.BRACKETS
    )


def write(folder: Path) -> Path:
    """Write the trained cross-encoder into a folder, which takes some seconds."""
    tiny.write("bert", folder, untrained=True)
    tokenizer = tokenizer_of(folder)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    labels = dict(enumerate(MARKERS.values()))
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=len(labels), id2label=labels, attn_implementation="eager",
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model.requires_grad_(requires_grad=False)
    learning = [*_learning(model)]
    for parameter, mask in learning:
        parameter.requires_grad_()
        parameter.register_hook(lambda grad, mask=mask: grad * mask)
    optimiser = torch.optim.Adam({id(p): p for p, _ in learning}.values(), lr=RATE)
    numbers = {name: number for number, name in labels.items()}
    for step in range(STEPS):
        batch = rows(BATCH, seed=1000 + step)
        texts = [[row[name] for row in batch] for name in ("premise", "hypothesis")]
        inputs = tokenizer(*texts, return_tensors="pt", padding=True)
        true = torch.tensor([numbers[row["label"]] for row in batch])
        optimiser.zero_grad()
        output = model(**inputs, labels=true, output_attentions=True)
        (output.loss + _attention_loss(output.attentions, inputs, tokenizer)).backward()
        optimiser.step()
    model.save_pretrained(folder)
    return folder


def _attention_loss(attentions: Any, inputs: Any, tokenizer: Any) -> torch.Tensor:
    """Return minus the log of the attention that both heads should give, in the mean."""
    ids, types = inputs["input_ids"], inputs["token_type_ids"]
    special = torch.isin(ids, torch.tensor(tokenizer.all_special_ids))
    second = (types == 1) & ~special
    marker = torch.isin(ids, torch.tensor(tokenizer.convert_tokens_to_ids([*MARKERS])))
    carried, read = (attentions[layer][:, head] for layer, head in (CARRIER, READER))
    to_marker = (carried * marker[:, None]).sum(-1)[second]
    to_itself = carried.diagonal(dim1=1, dim2=2)[(types == 0) & inputs["attention_mask"].bool()]
    to_second = (read[:, 0] * second).sum(-1)
    parts = (to_marker, to_itself, to_second)
    return -torch.stack([part.clamp_min(1e-6).log().mean() for part in parts]).sum()


def _learning(model: Any) -> Iterator[tuple[torch.nn.Parameter, torch.Tensor]]:
    """Yield parameters that are trained, each with 1 where they are."""
    width = tiny.WIDTH // tiny.HEADS
    for layer, head in (CARRIER, READER):
        block = model.bert.encoder.layer[layer].attention
        own = slice(head * width, (head + 1) * width)
        for linear in (block.self.query, block.self.key, block.self.value):
            for parameter in (linear.weight, linear.bias):
                mask = torch.zeros_like(parameter)
                mask[own] = 1
                yield parameter, mask
        mask = torch.zeros_like(block.output.dense.weight)
        mask[:, own] = 1
        yield block.output.dense.weight, mask
    for parameter in (*model.bert.pooler.parameters(), *model.classifier.parameters()):
        yield parameter, torch.ones_like(parameter)


def write_pairs(file: Path, number: int = 64, seed: int = 0) -> Path:
    """Write pairs that were not trained on into a file."""
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows(number, seed)))
    return file
