"""A training that takes a minute: a causal model of two layers learns to continue repetitions.

Usage: python benchmarks/training.py OUT [--steps 1600] [--seed 0]

From random weights, on rows of random tokens that are repeated, and on the sample sentences. Heads
of the first layer learn to attend to the previous token; then, within a few hundred steps, a head
of the second learns to continue what stood before: an induction head. OUT gets a folder for each
checkpoint, `step-0` and ever larger steps up to the last, each a model that Headbook reads. It
takes about a minute on two cores.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

STEPS, SEED = 1600, 0
LAYERS, HEADS, WIDTH, VOCABULARY, LIMIT = 2, 4, 64, 320, 128
LENGTH, ROWS, TEXTS = 64, 24, 3  # tokens of a row, rows of a batch, those that are sentences
PERIODS = (8, 30)  # tokens after which a row of random ones begins again
RATE, WARM, SCALE = 2e-3, 50, 0.05  # learning rate, steps until it is reached; first weights
BETAS = (0.9, 0.95)
END = "<|endoftext|>"
SAMPLES = Path(__file__).parents[1] / "sample_inputs" / "sentences.conllu"


def train(
    out: Path, steps: int = STEPS, seed: int = SEED, *, texts: int = TEXTS, rate: float = RATE
) -> list[int]:
    """Train, and write the checkpoints.

    Args:
        texts: rows of a batch that are sentences.
        rate: learning rate.

    Returns:
        Their steps.
    """
    torch.manual_seed(seed)
    logging.disable_progress_bar()
    samples = sentences()
    tokenizer = made_tokenizer(samples)
    model = LlamaForCausalLM(configuration(len(tokenizer)))
    rows = batches(tokenizer, samples, texts, torch.Generator().manual_seed(seed))
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01, betas=BETAS)
    kept = checkpoints(steps)
    for step in range(steps + 1):
        if step in kept:
            folder = out / f"step-{step}"
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        if step == steps:
            break
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / WARM)
        ids = next(rows)
        loss = model(input_ids=ids, labels=ids).loss
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    return kept


def checkpoints(steps: int) -> list[int]:
    """Return the steps whose weights are kept: powers of 2 (later of its root), and both ends."""
    spread = [2**power for power in range(4, 8)] + [
        round(2 ** (half / 2)) for half in range(16, 64)
    ]
    return [0, *(step for step in spread if step < 0.9 * steps), steps]


def configuration(vocabulary: int) -> LlamaConfig:
    """Return the sizes of the model."""
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=WIDTH,
        intermediate_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=LIMIT,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
        initializer_range=SCALE,
    )


def sentences() -> list[str]:
    """Return the sample sentences."""
    lines = SAMPLES.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix("# text = ") for line in lines if line.startswith("# text = ")]


def made_tokenizer(texts: list[str]) -> Any:
    """Pieces of bytes, so that every text has tokens."""
    fast = Tokenizer(BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    fast.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=fast, eos_token=END, pad_token=END, model_max_length=LIMIT
    )


def batches(
    tokenizer: Any, samples: list[str], texts: int, draw: torch.Generator
) -> Iterator[torch.Tensor]:
    """Rows without end, some of them text, the others random. *Shape:* ``(row, token)``."""
    ids = [tokenizer(text, truncation=True)["input_ids"] for text in samples]
    text = torch.tensor([token for each in ids for token in (*each, 0)])
    while True:
        rows = [repeated(len(tokenizer), draw) for _ in range(ROWS - texts)]
        starts = torch.randint(len(text) - LENGTH, (texts,), generator=draw)
        rows += [text[start : start + LENGTH] for start in starts.tolist()]
        yield torch.stack(rows)


def repeated(vocabulary: int, draw: torch.Generator) -> torch.Tensor:
    """Random tokens, again and again up to a row's end; how many differs from row to row."""
    period = int(torch.randint(PERIODS[0], PERIODS[1] + 1, (), generator=draw))
    tokens = 1 + torch.randperm(vocabulary - 1, generator=draw)[:period]
    return tokens.repeat(-(-LENGTH // period))[:LENGTH]


def main() -> None:
    """Print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args()
    torch.set_num_threads(min(4, os.cpu_count() or 1))
    start = time.monotonic()
    kept = train(given.out, given.steps, given.seed)
    revisions = ",".join(f"step-{step}" for step in kept)
    print(json.dumps({"revisions": revisions, "seconds": round(time.monotonic() - start, 1)}))  # noqa: T201


if __name__ == "__main__":
    main()
