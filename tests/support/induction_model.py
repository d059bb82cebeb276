"""A causal model built by hand that continues repeated sequences, by two heads of two layers."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

N_WORDS, LENGTH = 120, 64
WORDS = tuple(f"w{number}" for number in range(N_WORDS))
END = "<|endoftext|>"
SHARP, SURE = 200.0, 2.0  # how sharply both heads choose; behind a norm, whose scale they undo
SMALL = 0.01  # spread of the weights of the other heads
PREVIOUS, INDUCTION = (0, 0), (1, 0)  # layer and head


def write(folder: Path) -> Path:
    """Write it and its tokenizer into a folder.

    States hold one-hot the word, the position, the word before (written by `PREVIOUS`), and the
    word that is continued with (written by `INDUCTION`), which alone the unembedding reads.
    """
    vocabulary = {word: number for number, word in enumerate((END, *WORDS))}
    fast = Tokenizer(WordLevel(vocabulary, unk_token=END))
    fast.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=fast, unk_token=END, eos_token=END, model_max_length=LENGTH
    ).save_pretrained(folder)
    size = len(vocabulary)
    width = 3 * size + LENGTH + (3 * size + LENGTH) % 2
    config = GPT2Config(
        vocab_size=size, n_positions=LENGTH, n_embd=width, n_layer=2, n_head=2, n_inner=4,
        tie_word_embeddings=False, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".attn.c_" in name and name.endswith("weight"):
                parameter.normal_(0, SMALL)
            else:
                parameter.fill_(float(".ln_" in name and name.endswith("weight")))
        _wire(model, size, width)
    model.save_pretrained(folder)
    return folder


def _wire(model: Any, size: int, width: int) -> None:
    body, half = model.transformer, width // 2
    word, place = torch.arange(size), size + torch.arange(LENGTH)
    before, copied = size + LENGTH + word, 2 * size + LENGTH + word
    body.wte.weight[word, word] = 1.0
    body.wpe.weight[torch.arange(LENGTH), place] = 1.0
    own, later = slice(half), torch.arange(1, LENGTH)
    for layer, (read, written) in enumerate(((word, before), (word, copied))):
        attention = body.h[layer].attn
        queries, keys, values = (attention.c_attn.weight[:, k * width :] for k in range(3))
        for part in (queries, keys, values):
            part[:, own] = 0
        attention.c_proj.weight[own] = 0
        if layer == 0:
            queries[place[later], later - 1] = SHARP
            keys[place, torch.arange(LENGTH)] = 1.0
        else:
            queries[word, word] = SHARP
            keys[before, word] = 1.0
        values[read, word] = 1.0
        attention.c_proj.weight[word, written] = 1.0
    model.lm_head.weight[word, copied] = SURE
