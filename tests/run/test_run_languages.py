"""The embedded annotator reads English alone; texts that do not seem English are named once."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headbook
from headbook.errors import HeadbookWarning
from headbook.schema import Side
from headbook.study.study import Study

FILES = Path(__file__).parents[1] / "inputs" / "files"
ENGLISH = ["the old dog sees the small bird", "a cat sleeps near the house in the garden"]
PAIRS = [(text, "der Hund sieht den kleinen Vogel") for text in ENGLISH]
QUICK: dict[str, Any] = {
    "importance": "off", "circuits": "off", "sentence_pages": 1, "metrics": "attention_distance",
}  # fmt: skip
EMBEDDED, NONE = "en_ewt_small 1.0.0", "none (words by Unicode UAX #29)"
Folder = Callable[[str], Path]


def collected(inputs: Any, model: Path, **options: Any) -> tuple[Study, list[str]]:
    """The study, and the warnings of its run."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        study = headbook.collect(inputs, model=str(model), **(QUICK | options))
    return study, [str(w.message) for w in caught if issubclass(w.category, HeadbookWarning)]


def annotator(study: Study, side: Side = Side.SOURCE) -> str:
    return study.manifest.annotators[side]


def test_english_texts_are_parsed_without_a_word(tiny_folder: Folder) -> None:
    study, lines = collected(ENGLISH, tiny_folder("bert"))
    assert lines == []
    assert annotator(study) == EMBEDDED
    assert study.manifest.options["language"].startswith("en (wordfreq ")
    assert study.manifest.count(Side.SOURCE, "tagged") > 0


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("german.txt", ("'de'", "5.6", "2.1", "language='de'")),
        ("thai.txt", ("100%", "Thai", "language=")),
        ("proteins.txt", ("14%", "language=")),
    ],
)
def test_texts_that_do_not_seem_english_are_not_parsed_and_named_once(
    tiny_folder: Folder, file: str, expected: tuple[str, ...]
) -> None:
    study, lines = collected(FILES / file, tiny_folder("gpt2"))
    (line,) = (each for each in lines if not each.endswith("max_length= takes longer ones"))
    assert all(part in line for part in expected)
    assert "annotator=" in line
    assert "'embedded'" in line
    assert annotator(study).startswith("none")
    assert study.manifest.count(Side.SOURCE, "tagged") == 0
    assert study.manifest.options["language"] == "none"


def test_another_language_is_not_parsed_and_one_line_says_so(tiny_folder: Folder) -> None:
    study, (line,) = collected(FILES / "german.txt", tiny_folder("gpt2"), language="de")
    assert line.startswith("language: texts in 'de' are not parsed")
    assert "annotator=" in line
    assert annotator(study) == NONE
    assert study.manifest.options["language"].startswith("de (wordfreq ")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"annotator": "none", "language": "de"}, NONE),
        ({"annotator": "embedded", "language": "de"}, EMBEDDED),
        ({"language": "en"}, EMBEDDED),
        ({"language": "en-GB"}, EMBEDDED),
        ({"language": "none"}, EMBEDDED),
    ],
)
def test_who_names_annotator_or_english_hears_nothing(
    tiny_folder: Folder, options: dict[str, str], expected: str
) -> None:
    study, lines = collected(FILES / "german.txt", tiny_folder("gpt2"), **options)
    assert lines == []
    assert annotator(study) == expected


def test_a_named_annotator_stays_where_the_language_is_not_given(tiny_folder: Folder) -> None:
    study, (line,) = collected(FILES / "german.txt", tiny_folder("gpt2"), annotator="embedded")
    assert "5.6" in line
    assert "parsed" not in line
    assert annotator(study) == EMBEDDED


def test_a_treebank_keeps_its_own_words(tiny_folder: Folder, tmp_path: Path) -> None:
    file = tmp_path / "german.conllu"
    rows = ["1\tDer\t_\tDET\t_\t_\t2\tdet\t_\t_", "2\tHund\t_\tNOUN\t_\t_\t0\troot\t_\t_"]
    file.write_text("# text = Der Hund\n" + "\n".join(rows) + "\n\n", encoding="utf-8")
    study, lines = collected(file, tiny_folder("gpt2"), language="de")
    assert lines == []
    assert study.manifest.count(Side.SOURCE, "tagged") > 0


@pytest.mark.parametrize(
    ("options", "expected", "n_lines"),
    [
        ({}, NONE, 0),
        ({"target_language": "de"}, NONE, 1),
        ({"target_language": "en"}, EMBEDDED, 0),
        ({"target_language": "de", "target_annotator": "embedded"}, EMBEDDED, 0),
        ({"target_language": "none"}, NONE, 0),
    ],
)
def test_targets_are_parsed_as_english_only_on_request(
    tiny_folder: Folder, options: dict[str, str], expected: str, n_lines: int
) -> None:
    study, lines = collected(PAIRS, tiny_folder("bart"), **options)
    assert annotator(study, Side.TARGET) == expected
    assert annotator(study) == EMBEDDED
    assert len(lines) == n_lines
    assert all("target_language" in line and "'de'" in line for line in lines)


def test_languages_follow_from_the_codes_of_the_tokenizer(tiny_folder: Folder) -> None:
    given = {"source_lang": "fr_XX", "target_lang": "en_XX"}
    pairs = [("la vie est comme une boite", "life is like a box")]
    study, lines = collected(pairs, tiny_folder("mbart_50"), **given)
    assert annotator(study) == NONE
    assert annotator(study, Side.TARGET) == EMBEDDED
    assert study.manifest.options["language"].startswith("fr (wordfreq ")
    assert study.manifest.options["target_language"].startswith("en (wordfreq ")
    assert len(lines) == 1
    study, lines = collected(pairs, tiny_folder("mbart_50"), **given, language="none")
    assert study.manifest.options["language"] == "none"
    assert lines == []
