"""Tokens find their words by character offsets, whatever the tokenizer makes of white space."""

import numpy as np
import pytest

from headbook.errors import InputError
from headbook.inputs import TextRecord, Word
from headbook.model.load import Model, load_model
from headbook.model.tokenizer import SentenceTokenizer
from headbook.schema import Side
from headbook.text.annotate import NO_ANNOTATOR, Annotator
from headbook.text.batch import PaddedTexts
from headbook.text.tokens import (
    NO_WORD,
    TokenizedText,
    align_to_words,
    is_punctuation,
    token_strings,
    trim_span,
)


@pytest.fixture(scope="module")
def demo() -> Model:
    return load_model("demo")


def encode(model: Model, *texts: str, limit: int = 64) -> list[TokenizedText]:
    annotator = Annotator.load(NO_ANNOTATOR)
    given = [TextRecord(i, "", text, origin=f"a.txt:{i + 1}") for i, text in enumerate(texts)]
    encoder = SentenceTokenizer(model, limit=limit, targets=annotator)
    return [item.tokens[Side.SOURCE] for item in encoder.tokenize(annotator.annotate(given))]


def words_of(tokens: TokenizedText) -> list[str]:
    """The word that each ordinary token belongs to."""
    spans = [(w.start, w.end) for w in tokens.words]
    return [tokens.text[slice(*spans[word])] for word in tokens.word if word != NO_WORD]


WHITE = [" ", "\t", "  ", "\u00a0", "\u3000", "\u2003", "\u2028", " \t\u00a0 "]


@pytest.mark.parametrize("space", WHITE)
def test_pieces_find_their_words_across_any_white_space(demo: Model, space: str) -> None:
    (tokens,) = encode(demo, space.join(["Unbelievably", "small", "boats."]))
    assert words_of(tokens) == ["Unbelievably"] * 5 + ["small", "boats", "."]
    assert tokens.pieces[1:6] == ("Un", "bel", "ie", "va", "bly")
    assert tokens.initial.tolist() == [0, 1, 0, 0, 0, 0, 1, 1, 1, 0]
    assert tokens.punctuation.tolist() == [False] * 8 + [True, False]


def test_pieces_are_spelled_as_the_text_is(demo: Model) -> None:
    """The vocabulary is lower-case and without accents; the text is not."""
    (tokens,) = encode(demo, "Ein NAÏVER nai\u0308ver Satz")
    assert "".join(tokens.pieces[1:-1]) == "EinNAÏVERnai\u0308verSatz"


def test_special_tokens_have_no_word_and_no_place(demo: Model) -> None:
    (tokens,) = encode(demo, "One two")
    assert tokens.pieces == ("[CLS]", "One", "two", "[SEP]")
    assert tokens.special.tolist() == [True, False, False, True]
    assert tokens.separator.tolist() == [False, False, False, True]
    assert tokens.word.tolist() == [NO_WORD, 0, 1, NO_WORD]
    assert tokens.spans[[0, 3]].tolist() == [[0, 0], [0, 0]]


def test_a_text_that_is_too_long_is_cut_at_its_end(demo: Model) -> None:
    text = " ".join(f"word{n}" for n in range(20))
    whole, cut = encode(demo, text)[0], encode(demo, text, limit=7)[0]
    assert (len(cut), cut.lost) == (7, len(whole) - 7)
    assert (whole.lost, len(whole)) == (0, len(cut) + cut.lost)
    assert cut.special.tolist() == [True, *[False] * 5, True]
    assert cut.ids[:-1].tolist() == whole.ids[:6].tolist()
    assert cut.word[:-1].tolist() == whole.word[:6].tolist()
    assert cut.text == text
    assert len(cut.words) == 20


def test_a_text_of_exactly_the_limit_is_whole(demo: Model) -> None:
    (tokens,) = encode(demo, "one two three", limit=5)
    assert (len(tokens), tokens.lost) == (5, 0)


def test_text_that_leaves_no_token_is_a_fault_of_its_line(demo: Model) -> None:
    with pytest.raises(InputError, match=r"^a\.txt:2: .* makes no token; expected "):
        encode(demo, "fine", "\u200b")


def test_a_model_that_takes_one_text_keeps_a_target_as_metadata(demo: Model) -> None:
    pair = TextRecord(0, "", "one", target="eins", metadata={"n": "1"}, origin="a.tsv:2")
    encoder = SentenceTokenizer(demo, limit=8, targets=Annotator.load(NO_ANNOTATOR))
    (item,) = encoder.tokenize([pair])
    assert [*item.tokens] == [Side.SOURCE]
    assert item.sentence.target == "eins"  # the pass counts targets that no model reads
    assert item.sentence.metadata == {"n": "1", "target": "eins"}


def test_a_token_belongs_to_the_word_it_overlaps_most() -> None:
    text = "ab cde f"
    words = (Word(0, 2), Word(3, 6), Word(7, 8))
    spans = [(0, 2), (1, 6), (2, 3), (0, 0), (6, 8), (1, 4)]
    assert align_to_words(text, spans, words).tolist() == [0, 1, NO_WORD, NO_WORD, 2, 0]
    assert align_to_words(text, spans, ()).tolist() == [NO_WORD] * 6


def test_words_without_white_space_between_them_are_told_apart() -> None:
    words = (Word(0, 2), Word(2, 5))
    assert align_to_words("don't", [(0, 2), (2, 3), (3, 5)], words).tolist() == [0, 1, 1]


@pytest.mark.parametrize("space", WHITE)
def test_a_span_loses_the_white_space_at_its_ends(space: str) -> None:
    text = f"a{space}b{space}c"
    assert trim_span(text, 1, len(text) - 1) == (1 + len(space), 2 + len(space))
    start, end = trim_span(text, 1, 1 + len(space))
    assert start == end


def test_tokens_that_share_a_character_are_numbered() -> None:
    spans = [(0, 1), (1, 2), (1, 2), (1, 2), (0, 0)]
    names = ["x", "b1", "b2", "b3", "</s>"]
    assert token_strings("a👩", spans, names) == ("a", "👩 1/3", "👩 2/3", "👩 3/3", "</s>")


@pytest.mark.parametrize(
    ("name", "displayed"),
    [("Ġ", "␣"), ("▁", "␣"), ("ĠĠ", "␣␣"), ("Ċ", "␊"), ("ĉ", "␉"), ("Ġx", "Ġx")],
)
def test_tokens_of_blanks_alone_show_signs_for_them(name: str, displayed: str) -> None:
    """Not the letters by which vocabularies write them; a name with letters of its own stays."""
    assert token_strings("a b", [(0, 1), (2, 2), (2, 3)], ["a", name, "b"]) == ("a", displayed, "b")


def test_punctuation_is_known_in_every_script() -> None:
    assert all(map(is_punctuation, (".", "…", "。", "؟", "«", "--")))
    assert not any(map(is_punctuation, ("", "a.", "$", "+", "👩")))


def test_the_pieces_of_a_word_share_it_and_padding_has_none(demo: Model) -> None:
    long, short = encode(demo, "Unbelievably small", "Yes")
    texts = PaddedTexts.of([short, long], demo.device)
    assert texts.valid.sum(1).tolist() == [3, 8]
    assert texts.word[0].tolist() == [NO_WORD, 0, *[NO_WORD] * 6]
    np.testing.assert_allclose(texts.share[1], [0, *[0.2] * 5, 1, 0], rtol=1e-6)
    assert texts.share[0].tolist() == [0, 1, *[0] * 6]
    assert texts.first.sum(1).tolist() == [1, 1]
