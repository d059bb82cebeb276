"""Tiny translators with the tokenizer classes of NLLB, M2M-100, mBART-50 and mBART.

Their vocabularies are pieces of a few English and French sentences, which SentencePiece learns; the
codes of languages follow, as in the published checkpoints.
"""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    M2M100Tokenizer,
    MBart50Tokenizer,
    MBartConfig,
    MBartForConditionalGeneration,
    MBartTokenizer,
    NllbTokenizer,
)

TEXTS = (
    "life is like a box", "the cat sees a bird", "la vie est comme une boite",
    "le chat voit un oiseau",
)  # fmt: skip
SIZES: dict[str, Any] = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
    "max_position_embeddings": 72,
}  # fmt: skip
START = ["<s>", "<pad>", "</s>", "<unk>"]  # first entries of all vocabularies
MADE_UP = 8  # entries of M2M-100 after the codes


def write(name: str, folder: Path) -> Path:
    """Write a tiny translator and its tokenizer into a folder, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer, config, network_class = MAKERS[name](folder)
    torch.manual_seed(0)
    network = network_class(config)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.35)
    network.save_pretrained(folder)
    if name == "m2m_100":  # the published folder as many people copy it, without special_tokens_map
        options = {"tokenizer_class": "M2M100Tokenizer", "model_max_length": 64}
        (folder / "tokenizer_config.json").write_text(json.dumps(options), encoding="utf-8")
    else:
        tokenizer.save_pretrained(folder)
    return folder


def _pieces(folder: Path | None = None) -> list[tuple[str, float]]:
    """Return the pieces of a SentencePiece model with their scores; a folder gets the model."""
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS * 20), model_writer=trained, vocab_size=60,
        hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    if folder is not None:
        (folder / "sentencepiece.bpe.model").write_bytes(trained.getvalue())
    pieces = sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())
    return [(pieces.id_to_piece(i), pieces.get_score(i)) for i in range(len(pieces))]


def _m2m_100(folder: Path) -> tuple[Any, Any, type]:
    names = [*START, *(piece for piece, _ in _pieces(folder)[3:])]
    vocabulary = folder / "vocab.json"
    vocabulary.write_text(json.dumps({name: i for i, name in enumerate(names)}), encoding="utf-8")
    tokenizer = M2M100Tokenizer(str(vocabulary), str(folder / "sentencepiece.bpe.model"))
    size = len(names) + len(tokenizer.lang_code_to_id) + MADE_UP
    return tokenizer, M2M100Config(**SIZES, vocab_size=size), M2M100ForConditionalGeneration


def _nllb(_: Path, **options: Any) -> tuple[Any, Any, type]:
    letters = sorted(set("".join(TEXTS).replace(" ", "▁")))
    vocabulary = {name: i for i, name in enumerate([*START, *letters])}
    tokenizer = NllbTokenizer(vocab=vocabulary, merges=[], model_max_length=64, **options)
    config = M2M100Config(**SIZES, vocab_size=len(tokenizer))
    return tokenizer, config, M2M100ForConditionalGeneration


def _old_nllb(folder: Path) -> tuple[Any, Any, type]:
    return _nllb(folder, legacy_behaviour=True)


def _mbart_50(_: Path) -> tuple[Any, Any, type]:
    tokenizer = MBart50Tokenizer(vocab=_pieces(), model_max_length=64)
    config = MBartConfig(**SIZES, vocab_size=len(tokenizer), decoder_start_token_id=2)
    return tokenizer, config, MBartForConditionalGeneration


def _mbart_25(_: Path) -> tuple[Any, Any, type]:
    vocabulary = [(name, 0.0) for name in START] + _pieces()[3:]
    tokenizer = MBartTokenizer(vocab=vocabulary, model_max_length=64)
    config = MBartConfig(**SIZES, vocab_size=len(tokenizer))
    return tokenizer, config, MBartForConditionalGeneration


MAKERS: dict[str, Callable[[Path], tuple[Any, Any, type]]] = {
    "nllb": _nllb, "old_nllb": _old_nllb, "m2m_100": _m2m_100, "mbart_50": _mbart_50,
    "mbart_25": _mbart_25,
}  # fmt: skip
