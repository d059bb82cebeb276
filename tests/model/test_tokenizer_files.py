"""A class of transformers that reads ``tokenizer.json`` in another way than it is written."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import headbook
import tiny
from headbook.errors import HeadbookWarning
from headbook.model.checkpoint import TOKENIZER_FILE, tokenizer_folder
from headbook.model.tokens.files import differences_from_file
from headbook.run.prepare import COMPARED_TEXTS
from sites import QUICK

TEXTS = ["in 1234 houses", "the cat", "no digits, and 56"]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A model whose tokenizer keeps digits together, as the file says; its class splits them."""
    folder = tiny.write("qwen2", tmp_path / "model")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("1", "2"), ("3", "4"), ("12", "34"), ("5", "6")]
    names = ["<|endoftext|>", *alphabet, *("".join(pair) for pair in merges)]
    fast = Tokenizer(BPE({name: n for n, name in enumerate(names)}, merges))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.enable_truncation(3)
    fast.enable_padding(length=30)
    tokenizer: Any = PreTrainedTokenizerFast(tokenizer_object=fast, **tiny.END_OF_TEXT)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def copied(written: Path) -> Path:
    """The tokenizer alone, which no class overrides: what the message asks for."""
    folder = written.parent / "tokenizer"
    folder.mkdir()
    (folder / TOKENIZER_FILE).write_bytes((written / TOKENIZER_FILE).read_bytes())
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **tiny.END_OF_TEXT})
    )
    return folder


def test_ids_of_the_file_are_those_of_the_class_or_named(written: Path, copied: Path) -> None:
    """Neither truncation nor padding that the file sets is a difference."""
    file = written / TOKENIZER_FILE
    assert differences_from_file(AutoTokenizer.from_pretrained(copied), file, TEXTS) == ""
    other = AutoTokenizer.from_pretrained(written)
    ids = [other(text, add_special_tokens=False)["input_ids"] for text in TEXTS]
    fast = Tokenizer.from_file(str(file))
    fast.no_truncation()
    fast.no_padding()
    own = [fast.encode(text, add_special_tokens=False).ids for text in TEXTS]
    different = [a != b for a, b in zip(ids, own, strict=True)]
    assert different == [True, False, True]
    message = differences_from_file(other, file, TEXTS)
    assert type(other).__name__ in message
    assert str(file) in message
    assert "2 of 3 texts" in message
    assert f"{len(ids[0])} of {TEXTS[0]!r}" in message
    assert f"the file makes {len(own[0])};" in message


def test_a_run_warns_once_and_not_after_its_advice(written: Path, copied: Path) -> None:
    texts = [TEXTS[0]] * (COMPARED_TEXTS + 1)
    with pytest.warns(HeadbookWarning) as found:
        headbook.collect(texts, model=str(written), **QUICK)
    (message,) = [str(w.message) for w in found if TOKENIZER_FILE in str(w.message)]
    assert f"{COMPARED_TEXTS} of {COMPARED_TEXTS} texts" in message
    with warnings.catch_warnings():
        warnings.simplefilter("error", HeadbookWarning)
        headbook.collect(texts, model=str(written), tokenizer=str(copied), **QUICK)


def test_a_tokenizer_without_a_file_is_compared_with_none(
    tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder("bert"))
    assert differences_from_file(tokenizer, tmp_path / TOKENIZER_FILE, TEXTS) == ""
    (tmp_path / TOKENIZER_FILE).write_text("{}")
    assert differences_from_file(tokenizer, tmp_path / TOKENIZER_FILE, TEXTS) == ""
    assert tokenizer_folder("") is None
    assert tokenizer_folder("no/such-model") is None
    assert tokenizer_folder("no hub id: * ?") is None
    assert tokenizer_folder(str(tmp_path)) == tmp_path
