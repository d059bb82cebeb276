"""Texts seem English by their letters and words; the sample and common sentences do."""

from pathlib import Path

import pytest

from headbook.languages import closest_language, is_english, language_of
from headbook.text.languages import LanguageDoubt

FILES = Path(__file__).parents[1] / "inputs" / "files"
SAMPLE = Path(__file__).parents[2] / "sample_inputs" / "sentences.txt"


@pytest.mark.parametrize(
    "texts",
    [
        SAMPLE.read_text(encoding="utf-8").splitlines(),
        ["The cat sees a bird."],
        ["Colorless green ideas sleep furiously"],
        ["12 + 30 = 42"],
        [],
    ],
)
def test_english_texts_raise_no_doubt(texts: list[str]) -> None:
    assert LanguageDoubt.about(texts) == LanguageDoubt()


@pytest.mark.parametrize(
    ("text", "code", "parts"),
    [
        ((FILES / "german.txt").read_text(encoding="utf-8"), "de", ("5.6", "2.1")),
        ("la vie est comme une boite", "fr", ("'fr'",)),
        ("el perro ve un gato", "es", ("'es'",)),
        ("мама мыла раму", "", ("100%", "Cyrillic")),
        ((FILES / "thai.txt").read_text(encoding="utf-8"), "", ("Thai",)),
        ((FILES / "proteins.txt").read_text(encoding="utf-8"), "", ("14%",)),
        ("M K T A Y I A K Q R Q I S F V K S H F S R Q", "", ("%",)),
        ("CC(=O)Oc1ccccc1C(=O)O", "", ("%",)),
    ],
)
def test_other_texts_are_told_with_numbers(text: str, code: str, parts: tuple[str, ...]) -> None:
    doubt = LanguageDoubt.about(text.splitlines())
    assert doubt.code == code
    assert all(part in doubt.reason for part in parts)


@pytest.mark.parametrize(
    ("code", "language"),
    [
        ("eng_Latn", "en"), ("en_XX", "en"), ("__en__", "en"), ("zho_Hans", "zh"), ("cmn", "zh"),
        ("arb_Arab", "ar"), ("fr", "fr"), ("python", "und"), ("java", "und"), ("ns", "und"),
    ],
)  # fmt: skip
def test_a_code_of_a_tokenizer_names_its_language(code: str, language: str) -> None:
    assert language_of(code) == language


def test_codes_with_country_or_script_mean_their_language() -> None:
    listed = ["de", "en", "nb", "pt", "zh"]
    given = ["en-US", "deu", "no", "pt_BR", "zh-Hant", "tlh"]
    assert [closest_language(code, listed) for code in given] == ["en", "de", "nb", "pt", "zh", ""]
    assert [is_english(code) for code in ("en", "EN-gb", "eng_Latn", "none", "enm", "und")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip
