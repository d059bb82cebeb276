"""Which tokens are special: those with a role, marked ones, decoders' starts, language codes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken
from transformers import AutoTokenizer, MBart50Tokenizer

import tiny
from headbook.inputs import TextRecord
from headbook.model.load import Model, load_model
from headbook.model.probe import some_token
from headbook.model.tokenizer import SentenceTokenizer, ordinary_and_added
from headbook.model.tokens.special import reserved_ids, special_ids, special_pattern
from headbook.schema import Side
from headbook.text.annotate import NO_ANNOTATOR, Annotator
from headbook.text.tokens import TokenizedSentence

CHAT = (
    "<|start_header_id|>user<|end_header_id|>\n\nthe cat<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\na dog<|eot_id|>"
)
MARKERS = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
PLAIN_MARKER = "<tool>"  # an added token that is not marked as special

Change = Callable[[Any], None]


def loaded(family: str, folder: Path, change: Change = lambda _: None, **config: Any) -> Model:
    """A tiny model whose tokenizer and configuration are changed."""
    tiny.write(family, folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    change(tokenizer)
    tokenizer.save_pretrained(folder)
    model = load_model(str(folder))
    for name, value in config.items():
        setattr(model.config, name, value)
        if model.network.generation_config is not None:
            setattr(model.network.generation_config, name, value)
    return model


def read(model: Model, text: str, target: str | None = None) -> TokenizedSentence:
    annotator = Annotator.load(NO_ANNOTATOR)
    encoder = SentenceTokenizer(model, limit=64, targets=annotator)
    sentences = annotator.annotate([TextRecord(0, "", text, origin="a.txt:1", target=target)])
    return next(encoder.tokenize(sentences))


def with_markers(tokenizer: Any) -> None:
    """As Llama 3's: marked as special, without a role; and one that is not marked."""
    tokenizer.add_tokens([AddedToken(m, special=True, normalized=False) for m in MARKERS])
    tokenizer.add_tokens([AddedToken(PLAIN_MARKER, special=False, normalized=False)])


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_added_tokens_without_a_role_are_special_if_they_are_marked(
    family: str, tmp_path: Path
) -> None:
    model = loaded(family, tmp_path, with_markers)
    markers = {*model.tokenizer.convert_tokens_to_ids([*MARKERS])}
    assert markers <= special_ids(model)
    assert model.tokenizer.convert_tokens_to_ids(PLAIN_MARKER) not in special_ids(model)
    tokens = read(model, CHAT).tokens[Side.SOURCE]
    is_marker = np.isin(tokens.ids, [*markers])
    assert is_marker.sum() == 6
    assert tokens.special[is_marker].all()
    assert (tokens.word[is_marker] == -1).all()
    ordinary = "".join(
        piece for piece, s in zip(tokens.pieces, tokens.special, strict=True) if not s
    )
    assert "|" not in ordinary
    assert "user" in ordinary
    assert markers.isdisjoint(ordinary_and_added(model)[0].tolist())


def test_the_start_of_a_decoder_is_special_without_a_role(tmp_path: Path) -> None:
    """Even if the tokenizer takes it for a word."""
    start = tiny.PIECES.index("bird") + 3  # after pad, eos and unk
    model = loaded("marian", tmp_path, decoder_start_token_id=start)
    assert model.tokenizer.convert_ids_to_tokens(start) == "bird"
    assert start in special_ids(model)
    target = read(model, "the cat", "the dog").tokens[Side.TARGET]
    assert target.ids[0] == start
    assert target.special.tolist() == [True, False, False]
    assert start not in ordinary_and_added(model)[0]
    generated = read(model, "the cat").tokens[Side.TARGET]
    assert generated.ids[0] == start
    assert generated.special[0]
    assert not generated.text.startswith("bird")


def test_other_tokens_stay_what_they_are(tmp_path: Path) -> None:
    """Unknown token and mask stand for a word; no random token of any kind is one of them."""
    model = load_model(str(tiny.write("bert", tmp_path)))
    names = {name: getattr(model.tokenizer, f"{name}_token_id") for name in tiny_roles()}
    assert special_ids(model) == {names[role] for role in ("pad", "cls", "sep")}
    assert reserved_ids(model) == {*names.values()}
    assert {*range(len(model.tokenizer))} - {*ordinary_and_added(model)[0]} == {*names.values()}
    assert some_token(model) not in reserved_ids(model)
    assert special_pattern(model) == "[CLS] … [SEP]"


def tiny_roles() -> list[str]:
    return [role.removesuffix("_token") for role in tiny.BRACKETS]


def test_an_end_of_text_that_is_the_unknown_token_too_is_special(tmp_path: Path) -> None:
    model = load_model(str(tiny.write("gpt2", tmp_path)))
    assert model.tokenizer.unk_token_id == model.tokenizer.eos_token_id
    assert special_ids(model) == {model.tokenizer.eos_token_id}


def test_codes_of_languages_are_special(tmp_path: Path) -> None:
    """Also those that the tokenizer lists nowhere but in its table of codes."""
    model = loaded("mbart", tmp_path)
    words = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁cat", -1.0)]
    tokenizer: Any = MBart50Tokenizer(vocab=words, src_lang="en_XX", tgt_lang="fr_XX")
    codes = {*tokenizer.lang_code_to_id.values()}
    assert len(codes) > 50
    object.__setattr__(model, "tokenizer", tokenizer)
    assert codes <= special_ids(model)

    tokens = read(model, "cat").tokens[Side.SOURCE]
    assert tokens.ids[0] == tokenizer.lang_code_to_id["en_XX"]
    assert tokens.special.tolist() == [True, False, True]

    bare: Any = AutoTokenizer.from_pretrained(tmp_path)
    code = bare.convert_tokens_to_ids("garden")
    object.__setattr__(model, "tokenizer", bare)
    assert code not in special_ids(model)
    bare.lang_code_to_id = {"xx": code, "yy": bare.unk_token_id, "zz": None}
    assert code in special_ids(model)
    assert {bare.unk_token_id, None}.isdisjoint(special_ids(model))
