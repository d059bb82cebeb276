"""In scripts without spaces, tokens make the words, but never cut a letter from its marks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import Unigram
from transformers import AutoModel, PreTrainedTokenizerFast

import headbook
from headbook.inputs import TextRecord
from headbook.model.load import Model, load_model
from headbook.model.tokenizer import SentenceTokenizer
from headbook.pages.methods import model_facts
from headbook.text.annotate import (
    NO_ANNOTATOR,
    Annotator,
    WordFrequencies,
    is_unspaced,
    shuffle_words,
)

FILE = Path(__file__).parents[1] / "inputs" / "files" / "thai.txt"
THAI = "ฉันรักภาษาไทย"
PIECES = (
    "ฉ", "ัน", "รัก", "ภาษา", "ไทย", "วันนี้", "อากาศ", "ดี", "สวัส", "私は", "猫", "です", "。", "hello",
    " ",
)  # fmt: skip


def tokenizer() -> PreTrainedTokenizerFast:
    letters = sorted(set("".join(PIECES) + FILE.read_text(encoding="utf-8")) - set(PIECES))
    scores = [("<unk>", 0.0), *((piece, -1.0) for piece in PIECES), *((c, -9.0) for c in letters)]
    fast = Tokenizer(Unigram(scores, unk_id=0))
    return PreTrainedTokenizerFast(
        tokenizer_object=fast, model_max_length=64, unk_token=scores[0][0]
    )


@pytest.fixture(scope="module")
def annotator(tiny_folder: Any) -> Annotator:
    model: Model = replace(load_model(str(tiny_folder("bert"))), tokenizer=tokenizer())
    encoder = SentenceTokenizer(model, 64, Annotator.load(NO_ANNOTATOR))
    return Annotator.load(NO_ANNOTATOR, encoder.spans)


def spelled(annotator: Annotator, text: str) -> list[str]:
    (words,) = annotator.words([text])
    return [text[word.start : word.end] for word in words]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (THAI, ["ฉัน", "รัก", "ภาษา", "ไทย"]),  # "ัน" begins with a mark
        ("วันนี้อากาศดี", ["วันนี้", "อากาศ", "ดี"]),
        ("hello สวัสดี, hello", ["hello", "สวัส", "ดี", ",", "hello"]),
        ("私は猫です。", ["私は", "猫", "です", "。"]),
        ("hello don't 3.14", ["hello", "don't", "3.14"]),
    ],
)
def test_a_token_that_begins_a_cluster_begins_a_word(
    annotator: Annotator, text: str, expected: list[str]
) -> None:
    assert spelled(annotator, text) == expected


@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_no_tokenizer_cuts_a_letter_from_its_marks(tiny_folder: Any, family: str) -> None:
    encoder = SentenceTokenizer(
        load_model(str(tiny_folder(family))), 64, Annotator.load(NO_ANNOTATOR)
    )
    words = spelled(Annotator.load(NO_ANNOTATOR, encoder.spans), THAI)
    assert "".join(words) == THAI
    marks = {chr(code) for code in (*range(0x0E34, 0x0E3B), 0x0E31, *range(0x0E47, 0x0E4F))}
    assert not any(word[0] in marks for word in words)


def test_scripts_with_spaces_never_ask_the_tokenizer() -> None:
    def unasked(_: str) -> list[tuple[int, int]]:
        raise AssertionError("the tokenizer was asked")

    assert spelled(Annotator.load(NO_ANNOTATOR, unasked), "мама, мыла") == ["мама", ",", "мыла"]
    given = [
        "ไทย",
        "ລາວ",
        "ខ្មែរ",
        "မြန်မာ",
        "中文",
        "ひらがな",
        "カタカナ",
        "Deutsch",
        "हिन्दी",
        "한국어",
    ]
    assert [is_unspaced(text) for text in given] == [True] * 7 + [False] * 3


def test_counted_and_shuffled_words_are_those_words(annotator: Annotator) -> None:
    texts = [THAI] * 3
    found = WordFrequencies.load("th", texts, annotator.split)
    assert found.name == "th (counts in the input)"
    sentence = TextRecord(0, id="", text="hello", target=THAI)
    mixed = {shuffle_words(sentence, seed, annotator.split).target or "" for seed in range(20)}
    assert len(mixed) > 1
    assert all(
        sorted(spelled(annotator, text)) == sorted(spelled(annotator, THAI)) for text in mixed
    )


def test_a_study_has_these_words_and_methods_says_so(tiny_folder: Any) -> None:
    model = AutoModel.from_pretrained(tiny_folder("bert"))
    options: dict[str, Any] = {
        "importance": "off", "circuits": "off", "metrics": "attention_distance", "language": "th",
        "annotator": "none",
    }  # fmt: skip
    study = headbook.collect(FILE, model=model, tokenizer=tokenizer(), **options)
    assert study.manifest.counts["source.words"] == 7
    assert study.manifest.counts["source.unspaced"] == 2
    facts = dict(model_facts(study.manifest))
    assert "2 texts" in facts["Words"]
    assert "token" in facts["Words"]
    english = headbook.collect(["hello hello"], model=model, tokenizer=tokenizer(), **options)
    assert "source.unspaced" not in english.manifest.counts
    assert "Words" not in dict(model_facts(english.manifest))
