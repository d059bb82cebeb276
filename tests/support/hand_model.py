"""A causal model built by hand: one head copies the previous token, the other does nothing."""

from itertools import permutations
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

WORDS = ("red", "bird", "cat", "house", "old", "water", "sleeps", "garden")
LENGTH, WIDTH, HEAD = 16, 64, 32  # positions, states, and what a head writes
END = "<|endoftext|>"
# How sharply it looks back, and how sure it is of what it saw; at position 0 it is wrong.
SHARP, SURE = 30.0, 0.6
COPIES, IDLE = 0, 1


def write(folder: Path) -> Path:
    """Write it and its tokenizer into a folder.

    States hold one-hot the word (from 0 on), the position (from 16 on) and what was copied (from 40
    on), which alone the language-model head reads.
    """
    vocabulary = {word: number for number, word in enumerate((END, *WORDS))}
    fast = Tokenizer(WordLevel(vocabulary, unk_token=END))
    fast.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=fast, unk_token=END, eos_token=END, model_max_length=LENGTH
    ).save_pretrained(folder)
    config = GPT2Config(
        vocab_size=len(vocabulary), n_positions=LENGTH, n_embd=WIDTH, n_layer=1, n_head=2,
        n_inner=4, tie_word_embeddings=False, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(float(".ln_" in name and name.endswith("weight")))
        _wire(model, len(vocabulary))
    model.save_pretrained(folder)
    return folder


def _wire(model: Any, size: int) -> None:
    body, block = model.transformer, model.transformer.h[0]
    word, place, copied = torch.arange(size), 16 + torch.arange(LENGTH), 40 + torch.arange(size)
    body.wte.weight[word, word] = 1.0
    body.wpe.weight[torch.arange(LENGTH), place] = 1.0
    # Columns of queries, keys and values, each for both heads; the first one is the first head's.
    queries, keys, values = (block.attn.c_attn.weight[:, k * WIDTH :] for k in range(3))
    before = torch.arange(1, LENGTH)
    queries[place[before], before - 1] = SHARP
    keys[place, torch.arange(LENGTH)] = 1.0
    values[word, word] = 1.0
    block.attn.c_proj.weight[word, copied] = 1.0
    model.lm_head.weight[word, copied] = SURE


def texts() -> str:
    """Two words in turn, every pair of words; of several lengths, some with another word inside."""
    lines = []
    for number, (one, other) in enumerate(permutations(WORDS, 2)):
        words = ([one, other] * 6)[: 7 + number % 5]
        if number % 3 == 0:
            words[4] = WORDS[number % len(WORDS)]
        lines.append(" ".join(words) + "\n")
    return "".join(lines)
