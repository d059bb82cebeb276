"""Tiny models to compare, and what becomes of them."""

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModel, AutoTokenizer

from headbook.comparison.comparison import Comparison

METRICS = (
    "sink_share,attention_distance,attention_to,type_shares,relative_entropy,"
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
