"""Texts that a tokenizer was not made for: counted, named on the terminal and under *Methods*."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import EsmTokenizer

import headbook
import tiny
from headbook.errors import HeadbookWarning
from headbook.pages.methods_parts.rules import text_remarks
from headbook.schema import Side
from headbook.study.study import Study, merge
from sites import QUICK

FILES = Path(__file__).parent / "files"
# As published checkpoints of ESM-2 have it.
AMINO_ACIDS = "<cls> <pad> <eos> <unk> L A G V S E R T I D P K Q N F Y M H W C X B U Z O . - <mask>"
Folder = Callable[[str], Path]


def collect(inputs: Any, model: Path, **options: Any) -> Study:
    return headbook.collect(inputs, model=str(model), **{**QUICK, **options})


def notes(study: Study) -> list[str]:
    return [*text_remarks(study.manifest)]


@pytest.fixture
def proteins(tmp_path: Path) -> Path:
    """A tiny ESM."""
    from transformers import EsmConfig, EsmForMaskedLM

    folder = tmp_path / "esm"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(AMINO_ACIDS.split()))
    tokenizer: Any = EsmTokenizer(folder / "vocab.txt", model_max_length=1024)
    tokenizer.save_pretrained(folder)
    sizes = tiny._sizes(max_position_embeddings=1026, position_embedding_type="rotary")
    config = EsmConfig(
        vocab_size=len(AMINO_ACIDS.split()), pad_token_id=1, mask_token_id=31, **sizes
    )
    EsmForMaskedLM(config).save_pretrained(folder)
    return folder


def test_a_pasted_template_has_its_first_token_twice(tiny_folder: Folder) -> None:
    with pytest.warns(HeadbookWarning) as found:
        study = collect(FILES / "chat-pasted.jsonl", tiny_folder("llama"))
    (message,) = [str(w.message) for w in found if "adds, too" in str(w.message)]
    assert re.search(r"1 of 1 text begins with <s>", message)
    counts = study.manifest.counts
    assert counts["source.doubled.begin <s>"] == 1
    assert counts["source.special"] == 2
    assert any("1 of 1 text begins with <s>" in note for note in notes(study))


def test_both_ends_and_both_sides_are_looked_at(tiny_folder: Folder) -> None:
    texts = ["[CLS] the cat", "the dog [SEP]", "the [SEP] dog", "a bird"]
    with pytest.warns(HeadbookWarning) as found:
        study = collect(texts, tiny_folder("bert"))
    assert {str(w.message).partition(",")[0] for w in found if "adds, too" in str(w.message)} == {
        "1 of 4 texts begin with [CLS]",
        "1 of 4 texts end with [SEP]",
    }
    doubled = {k: v for k, v in study.manifest.counts.items() if "doubled" in k}
    assert doubled == {"source.doubled.begin [CLS]": 1, "source.doubled.end [SEP]": 1}

    pairs = [("the cat", "<s> the dog"), ("the dog", "the cat </s>"), ("a bird", "a dog")]
    with pytest.warns(HeadbookWarning):
        study = collect(pairs, tiny_folder("bart"))
    doubled = {k: v for k, v in study.manifest.counts.items() if "doubled" in k}
    assert doubled == {"target.doubled.begin <s>": 1, "target.doubled.end </s>": 1}


def test_texts_without_such_tokens_have_no_note(
    tiny_folder: Folder, recwarn: pytest.WarningsRecorder
) -> None:
    for family in ("bert", "llama", "gpt2"):
        study = collect(["the cat sees a dog.", "a bird"], tiny_folder(family))
        assert not [w for w in recwarn if issubclass(w.category, HeadbookWarning)]
        assert study.manifest.count(Side.SOURCE, "unknown") == 0
        assert notes(study) == []


def test_unknown_tokens_of_proteins_are_counted_and_named(proteins: Path, tmp_path: Path) -> None:
    """A line in lower case is one unknown token to ESM; so are ``*`` and ``J``."""
    with pytest.warns(HeadbookWarning) as found:
        study = collect(FILES / "proteins.txt", proteins)
    counts = study.manifest.counts
    ordinary = counts["source.tokens"] - counts["source.special"]
    assert counts["source.unknown"] == 3
    assert counts["source.unknown"] < 0.01 * ordinary
    assert counts["source.unreadable"] == 1  # a whole text, although one token
    study.save(tmp_path / "study")
    assert Study.load(tmp_path / "study").manifest.counts == counts
    (message,) = [str(w.message) for w in found if "vocabulary lacks" in str(w.message)]
    assert f"(3 of {ordinary:,})" in message
    assert "'mktayiakqr'" in message

    with pytest.warns(HeadbookWarning) as found:
        study = collect(["MKTAYIAKQR", "mktayiakqr", "MKT*AYJ"], proteins)
    (message,) = [str(w.message) for w in found if "vocabulary lacks" in str(w.message)]
    ordinary = study.manifest.counts["source.tokens"] - study.manifest.counts["source.special"]
    assert study.manifest.counts["source.unknown"] == 3
    assert f"(3 of {ordinary})" in message
    for piece in ("'mktayiakqr'", "'*'", "'J'"):
        assert piece in message
        assert piece in notes(study)[0]


def test_unknown_words_are_named_by_side_from_the_text_itself(tiny_folder: Folder) -> None:
    """Of a tokenizer with offsets; and merged studies add them up."""
    texts = [("the cat", "der Hund Ü"), ("the dog 猫", "der Vogel Ü")]
    with pytest.warns(HeadbookWarning) as found:
        study = collect(texts, tiny_folder("marian"))
    messages = [str(w.message) for w in found if "vocabulary lacks" in str(w.message)]
    assert ["'猫'" in m for m in messages] == [True, False]
    assert ["'Ü'" in m for m in messages] == [False, True]
    counts = study.manifest.counts
    assert counts["source.unknown"] == 1
    assert counts["target.unknown"] == 2
    both = merge([study, study]).manifest.counts
    assert both["target.unknown"] == 4
    assert both["target.unknown.'Ü'"] == 2 * counts["target.unknown.'Ü'"]
