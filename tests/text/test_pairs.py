"""Two texts for an encoder: tokens, types, words and the order of shuffled words."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cross_encoder
import headbook
import tiny
from headbook.errors import ConfigError, InputError
from headbook.inputs import TextRecord, joined_pair
from headbook.model.load import load_model
from headbook.model.tokenizer import SentenceTokenizer
from headbook.run import prepare
from headbook.schema import NO_REGION, PAIR_REGIONS, Side
from headbook.text.annotate import Annotator, shuffle_words
from headbook.text.tokens import TokenizedText
from sites import QUICK

FIRST, SECOND = "the small dog", "old fisherman sees"
NONE = Annotator.load("none")


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    tiny.write("bert", folder)
    cross_encoder.tokenizer_of(folder).save_pretrained(folder)
    return folder


def pair(first: str = FIRST, second: str = SECOND) -> TextRecord:
    text, regions = joined_pair(first, second)
    return TextRecord(0, "", text, regions=regions, is_pair=True, origin="a.jsonl:1")


def tokens_of(folder: Path, limit: int = 64, record: TextRecord | None = None) -> TokenizedText:
    encoder = SentenceTokenizer(load_model(str(folder), device="cpu"), limit, NONE)
    (item,) = encoder.tokenize(NONE.annotate([record or pair()]))
    return item.tokens[Side.SOURCE]


def test_a_pair_is_tokenized_as_one(model_folder: Path) -> None:
    tokens = tokens_of(model_folder)
    assert tokens.pieces == (
        "[CLS]", "the", "small", "dog", "[SEP]", "old", "fisher", "man", "sees", "[SEP]",
    )  # fmt: skip
    assert tokens.types == (0, 0, 0, 0, 0, 1, 1, 1, 1, 1)
    assert tokens.region(PAIR_REGIONS).tolist() == [
        NO_REGION, 0, 0, 0, NO_REGION, 1, 1, 1, 1, NO_REGION,
    ]  # fmt: skip
    assert tokens.word.tolist() == [-1, 0, 1, 2, -1, 3, 4, 4, 5, -1]
    words = [tokens.text[word.start : word.end] for word in tokens.words]
    assert words == [*FIRST.split(), *SECOND.split()]


def test_a_long_pair_loses_the_end_of_its_longer_text(model_folder: Path) -> None:
    tokens = tokens_of(model_folder, limit=8, record=pair("the dog", "the old small cat sees"))
    assert tokens.lost == 2
    assert tokens.pieces == ("[CLS]", "the", "dog", "[SEP]", "the", "old", "small", "[SEP]")


def test_words_are_shuffled_within_each_text() -> None:
    record = next(NONE.annotate([pair("a b c d e f", "u v w x y z")]))
    shuffled = shuffle_words(record, seed=1)
    assert shuffled.texts != record.texts
    assert [sorted(text.split()) for text in shuffled.texts] == [
        sorted(text.split()) for text in record.texts
    ]
    assert shuffled.words is not None
    spelled = [shuffled.text[word.start : word.end] for word in shuffled.words]
    assert spelled == " ".join(shuffled.texts).split()


def test_states_of_the_second_text_have_their_own_encoding(model_folder: Path) -> None:
    """The self-check compares the embedding block's output with the computed encodings."""
    study = headbook.collect(
        [(FIRST, SECOND), ("the cat", "a bird sings")], model=str(model_folder), annotator="none",
        language="none", importance="off", circuits="off", dtype="float64",
    )  # fmt: skip
    assert not study.manifest.failed
    assert study.manifest.counts["sentences"] == 2
    text = study.sentence_data.sentences[0].texts[Side.SOURCE]
    assert text.text == f"{FIRST}\n{SECOND}"


def test_pairs_for_other_models_and_passages_of_pairs_are_one_line(
    model_folder: Path, tmp_path: Path
) -> None:
    file = cross_encoder.write_pairs(tmp_path / "pairs.jsonl", 4)
    for family in ("bart", "gpt2"):
        other = tiny.write(family, tmp_path / family)
        for column in (None, "hypothesis"):
            with pytest.raises(InputError, match=r"jsonl:1: two texts, which only an encoder"):
                headbook.collect(
                    file, model=str(other), annotator="none", language="none", pair_column=column
                )
    with pytest.raises(ConfigError, match=r"^pack: got pairs of texts"):
        headbook.collect([(FIRST, SECOND)], model=str(model_folder), pack=32, annotator="none")


OPTIONS = "a dataset or one of .jsonl"
NO_PAIR = "expected a text, a path, a pair of texts, or a dict"
MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "passages": ({"pack": 32}, r"^pack: got pairs of texts, expected one text in each row$"),
    "no such column": (
        {"pair_column": "nope"},
        r"^pairs.jsonl:1: columns 'premise', .*; expected a column 'nope', as pair_column= says$",
    ),
    "a blank name": ({"pair_column": ""}, r"^pair_column: got '', expected something"),
    "a number as name": ({"pair_column": 3}, r"^pair_column: got 3, expected text$"),
    "one column twice": (
        {"text_column": "premise", "pair_column": "premise"},
        r"^pairs.jsonl:1: column 'premise' for both texts of a pair; expected two columns",
    ),
    "a column of tuples": (
        {"inputs": [("a", "b")], "pair_column": "b"},
        rf"^pair_column: got 'b' with other inputs, expected {OPTIONS}",
    ),
    "three texts": ({"inputs": [("a", "b", "c")]}, rf"^inputs\[0\]: got \('a', .*; {NO_PAIR}$"),
    "one text": ({"inputs": [("a",)]}, rf"^inputs\[0\]: got \('a',\); {NO_PAIR}$"),
    "a number": ({"inputs": [("a", "b"), ("a", 3)]}, rf"^inputs\[1\]: got \('a', 3\); {NO_PAIR}$"),
    "no second text": ({"inputs": [("a", None)]}, rf"^inputs\[0\]: got \('a', None\); {NO_PAIR}$"),
    "pairs and texts": (
        {"inputs": [("a", "b"), "c"]},
        r"^inputs: got the pair inputs\[0\] = .* and the text inputs\[1\] = 'c'; expected items",
    ),
    "a number in a column": (
        {"inputs": [{"premise": "a", "hypothesis": 3}]},
        r":1: hypothesis = 3; expected text that is not blank$",
    ),
}


@pytest.mark.parametrize(("given", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_one_line_before_a_model_is_loaded(
    given: dict[str, Any],
    message: str,
    model_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def loaded(*_: object, **__: object) -> None:
        pytest.fail("a model was loaded")

    monkeypatch.setattr(prepare, "open_model", loaded)
    options = {"inputs": cross_encoder.write_pairs(tmp_path / "pairs.jsonl", 4), **given}
    with pytest.raises((ConfigError, InputError), match=message) as error:
        headbook.collect(options.pop("inputs"), model=str(model_folder), **options)
    assert "\n" not in str(error.value)


def test_pairs_that_are_cut_are_counted(model_folder: Path) -> None:
    """`longest_first` cuts 3 tokens of 8, 2 and 3 special ones, for a limit of 10."""
    long = " ".join(["the", "dog"] * 4), "the cat"
    with pytest.warns(headbook.HeadbookWarning, match=r"1 source text longer than 10 tokens"):
        study = headbook.collect(
            [long, ("the cat", "a bird")], model=str(model_folder), max_length=10, **QUICK
        )
    counts = study.manifest.counts
    assert (counts["source.cut_sentences"], counts["source.cut_tokens"]) == (1, 3)
    text = study.sentence_data.sentences[0].texts[Side.SOURCE]
    assert text.lost == 3
    assert text.pieces == ("[CLS]", *["the", "dog"] * 2, "the", "[SEP]", "the", "cat", "[SEP]")


def test_texts_are_counted_as_pairs_if_all_are(model_folder: Path) -> None:
    rows = [{"text": FIRST, "text_b": SECOND}, {"text": "the cat", "text_b": "a bird"}]
    of_pairs = headbook.collect(rows, model=str(model_folder), **QUICK).manifest
    assert (of_pairs.counts["pairs"], of_pairs.counts["sentences"]) == (2, 2)
    assert of_pairs.text_noun == "pair"
    of_both = replace(of_pairs, counts={**of_pairs.counts, "sentences": 3})
    assert of_both.text_noun == "sentence"
    firsts = headbook.collect(rows, model=str(model_folder), text_column="text", **QUICK).manifest
    assert "pairs" not in firsts.counts
    assert firsts.text_noun == "sentence"
