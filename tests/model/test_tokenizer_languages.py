"""Translators read the languages that their tokenizers mark: around a source, before a target."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import headbook
from headbook.errors import ConfigError
from headbook.inputs import TextRecord
from headbook.model.load import load_model
from headbook.model.tokenizer import SentenceTokenizer, random_sequences
from headbook.schema import Side
from headbook.text.annotate import NO_ANNOTATOR, Annotator
from headbook.text.tokens import TokenizedText

FILE = Path(__file__).parents[1] / "inputs" / "files" / "translators.tsv"
PAIR = ("life is like a box", "la vie est comme une boite")
# Options for English to French; what surrounds a source; what a target begins with.
CASES = {
    "nllb": (("eng_Latn", "fra_Latn"), (["eng_Latn"], ["</s>"]), ["</s>", "fra_Latn"]),
    "old_nllb": (("eng_Latn", "fra_Latn"), ([], ["</s>", "eng_Latn"]), ["</s>", "fra_Latn"]),
    "m2m_100": (("en", "fr"), (["__en__"], ["</s>"]), ["</s>", "__fr__"]),
    "mbart_50": (("en_XX", "fr_XX"), (["en_XX"], ["</s>"]), ["</s>", "fr_XX"]),
    "mbart_25": (("en_XX", "fr_XX"), ([], ["</s>", "en_XX"]), ["fr_XX"]),
}
Folder = Callable[[str], Path]
QUICK: dict[str, Any] = {
    "annotator": "none", "importance": "off", "circuits": "off", "sentence_pages": 1,
    "metrics": "attention_distance,vocabulary_rank",
}  # fmt: skip


def encoder_of(folder: Path, languages: tuple[str, str]) -> SentenceTokenizer:
    source, target = languages
    model = load_model(str(folder), source_lang=source, target_lang=target, device="cpu")
    return SentenceTokenizer(model, limit=60, targets=Annotator.load(NO_ANNOTATOR))


def tokens_of(encoder: SentenceTokenizer, target: str | None) -> dict[Side, TokenizedText]:
    sentence = TextRecord(0, "", PAIR[0], target=target, origin="a.tsv:2")
    (item,) = encoder.tokenize([sentence])
    return dict(item.tokens)


def names_of(encoder: SentenceTokenizer, text: TokenizedText) -> list[str]:
    names: list[str] = encoder.model.tokenizer.convert_ids_to_tokens(text.ids.tolist())
    return names


@pytest.mark.parametrize("name", CASES)
def test_source_and_target_begin_with_their_languages(tiny_folder: Folder, name: str) -> None:
    languages, (before, after), begin = CASES[name]
    encoder = encoder_of(tiny_folder(name), languages)
    tokens = tokens_of(encoder, PAIR[1])
    source, target = (names_of(encoder, tokens[side]) for side in Side)
    n_ordinary = len(source) - len(before) - len(after)
    assert source == [*before, *source[len(before) : len(before) + n_ordinary], *after]
    assert target[: len(begin)] == begin
    ordinary = target[len(begin) :]
    assert "".join(ordinary).replace("▁", " ").strip() == PAIR[1]
    special = tokens[Side.TARGET].special.tolist()
    assert special == [True] * len(begin) + [False] * len(ordinary)
    assert tokens[Side.SOURCE].special.sum() == len(before) + len(after)


@pytest.mark.parametrize("name", CASES)
def test_generated_targets_begin_with_the_target_language(tiny_folder: Folder, name: str) -> None:
    languages, _, begin = CASES[name]
    encoder = encoder_of(tiny_folder(name), languages)
    target = tokens_of(encoder, None)[Side.TARGET]
    assert target.generated
    assert names_of(encoder, target)[: len(begin)] == begin
    assert not any(code in target.text for code in languages)


@pytest.mark.parametrize("name", CASES)
def test_random_sequences_begin_like_texts(tiny_folder: Folder, name: str) -> None:
    languages, _, begin = CASES[name]
    encoder = encoder_of(tiny_folder(name), languages)
    sequence = next(random_sequences(encoder, seed=0))
    target = sequence.tokens[Side.TARGET]
    assert names_of(encoder, target)[: len(begin)] == begin
    assert not target.special[len(begin) :].any()


@pytest.mark.parametrize("name", CASES)
def test_a_run_reads_the_target_after_its_language(tiny_folder: Folder, name: str) -> None:
    (source, target), _, begin = CASES[name]
    study = headbook.collect(
        FILE, model=str(tiny_folder(name)), source_lang=source, target_lang=target, **QUICK
    )
    stored = study.sentence_data.sentences[0].texts[Side.TARGET]
    assert list(stored.pieces[: len(begin)]) == begin
    assert (stored.text, stored.generated) == (PAIR[1], False)
    assert study.manifest.options["source_lang"] == source
    assert study.manifest.options["target_lang"] == target


def fault(folder: Path, **options: Any) -> str:
    with pytest.raises(ConfigError) as error:
        headbook.collect(FILE, model=str(folder), **QUICK, **options)
    message = str(error.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(("name", "n_codes"), [("nllb", 202), ("m2m_100", 100), ("mbart_50", 52)])
def test_without_languages_one_line_lists_codes(
    tiny_folder: Folder, name: str, n_codes: int
) -> None:
    message = fault(tiny_folder(name))
    assert message.startswith("source_lang=, target_lang: got none ")
    assert f"{n_codes} codes" in message
    assert all(code in message for code in CASES[name][0])
    source = CASES[name][0][0]
    assert fault(tiny_folder(name), source_lang=source).startswith("target_lang: got none ")


@pytest.mark.parametrize(
    ("name", "given", "meant"),
    [
        ("nllb", "en", "eng_Latn"), ("m2m_100", "english", "en"), ("mbart_25", "de", "de_DE"),
        ("mbart_50", "fr_FR", "fr_XX"),
    ],
)  # fmt: skip
def test_an_unknown_language_names_the_code_that_was_meant(
    tiny_folder: Folder, name: str, given: str, meant: str
) -> None:
    target = CASES[name][0][1]
    message = fault(tiny_folder(name), source_lang=given, target_lang=target)
    assert message.startswith(f"source_lang: got {given!r}, expected ")
    assert message.endswith(f"did you mean '{meant}'?")


def test_other_tokenizers_have_no_languages(tiny_folder: Folder) -> None:
    message = fault(tiny_folder("t5"), source_lang="en", target_lang="fr")
    assert message.startswith("source_lang: got 'en' ")


@pytest.mark.parametrize("name", ["m2m_100", "mbart_25"])
def test_a_model_object_reads_languages_and_stays_as_it_was(tiny_folder: Folder, name: str) -> None:
    (source, target), _, begin = CASES[name]
    network = AutoModelForSeq2SeqLM.from_pretrained(tiny_folder(name))
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder(name))
    before = (len(tokenizer), tokenizer.src_lang, tokenizer.tgt_lang)
    start = network.generation_config.to_dict()
    study = headbook.collect(
        [PAIR], model=network, tokenizer=tokenizer, source_lang=source, target_lang=target, **QUICK
    )
    pieces = study.sentence_data.sentences[0].texts[Side.TARGET].pieces
    assert list(pieces[: len(begin)]) == begin
    assert (len(tokenizer), tokenizer.src_lang, tokenizer.tgt_lang) == before
    assert network.generation_config.to_dict() == start
