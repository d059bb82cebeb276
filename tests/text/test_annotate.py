"""Words come from spaCy or from Unicode, each with its place in the text as it came."""

from functools import cache
from itertools import count, islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headbook.errors import AnnotatorError
from headbook.inputs import NO_HEAD, TextRecord, Word, joined_words
from headbook.inputs.rows import places_of
from headbook.model.packing import join_sentences
from headbook.text.annotate import EMBEDDED, NO_ANNOTATOR, Annotator

TEXT = "The old man sees the\tsmall boats  on the river."


loaded = cache(Annotator.load)


@pytest.fixture
def embedded() -> Annotator:
    return loaded(EMBEDDED)


@pytest.fixture
def basic() -> Annotator:
    return loaded(NO_ANNOTATOR)


def words(annotator: Annotator, text: str) -> tuple[Word, ...]:
    return next(iter(annotator.words([text])))


def spelled(annotator: Annotator, text: str) -> list[str]:
    return [text[word.start : word.end] for word in words(annotator, text)]


def test_the_embedded_pipeline_tags_and_parses_a_plain_sentence(embedded: Annotator) -> None:
    found = words(embedded, TEXT)
    names = [TEXT[w.start : w.end] for w in found]
    assert names == [
        "The",
        "old",
        "man",
        "sees",
        "the",
        "small",
        "boats",
        "on",
        "the",
        "river",
        ".",
    ]
    assert " ".join(w.upos for w in found) == ("DET ADJ NOUN VERB DET ADJ NOUN ADP DET NOUN PUNCT")
    man, sees, boats, river = (names.index(name) for name in ("man", "sees", "boats", "river"))
    assert found[sees].head == NO_HEAD
    assert found[sees].relation == "root"
    assert (found[man].head, found[man].relation) == (sees, "nsubj")
    assert (found[boats].head, found[boats].relation) == (sees, "obj")
    assert found[names.index("on")].head == river


def test_the_name_of_a_pipeline_holds_its_version(embedded: Annotator, basic: Annotator) -> None:
    assert embedded.name == "en_ewt_small 1.0.0"
    assert basic.name == "none (words by Unicode UAX #29)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't pay 3.14!", ["Don't", "pay", "3.14", "!"]),
        ("中文 and кот", ["中", "文", "and", "кот"]),
        (
            "nai\u0308ve 👩\u200d💻🏳\ufe0f\u200d🌈.",
            ["nai\u0308ve", "👩\u200d💻", "🏳\ufe0f\u200d🌈", "."],
        ),
        ("مرحبا، عالم", ["مرحبا", "،", "عالم"]),
        (" \u2028a\u3000b\u00a0", ["a", "b"]),
        ("", []),
    ],
)
def test_without_a_pipeline_words_are_those_of_unicode(
    basic: Annotator, text: str, expected: list[str]
) -> None:
    assert spelled(basic, text) == expected
    assert {(w.upos, w.head, w.relation) for w in words(basic, text)} <= {("", NO_HEAD, "")}


@pytest.mark.parametrize("kind", [EMBEDDED, NO_ANNOTATOR])
@settings(max_examples=60, derandomize=True)
@given(text=st.text(max_size=30))
def test_words_lie_in_order_and_cover_all_but_white_space(kind: str, text: str) -> None:
    annotator = loaded(kind)
    found = words(annotator, text)
    edges = [0, *(edge for word in found for edge in (word.start, word.end)), len(text)]
    assert edges == sorted(edges)
    assert all(word.end > word.start for word in found)
    covered = "".join(spelled(annotator, text))
    assert "".join(covered.split()) == "".join(text.split())
    assert all(-1 <= word.head < len(found) for word in found)
    assert all(word.head != index for index, word in enumerate(found))


def test_words_that_came_with_the_input_are_kept(embedded: Annotator) -> None:
    own = (Word(0, 3, upos="X"),)
    given = [
        TextRecord(0, "", "One."),
        TextRecord(1, "", "Two.", words=own),
        TextRecord(2, "", "Three."),
    ]
    sentences = list(embedded.annotate(given))
    assert [s.index for s in sentences] == [0, 1, 2]
    assert sentences[1] is given[1]
    assert [s.words and len(s.words) for s in sentences] == [2, 1, 2]


def test_words_without_tags_are_kept_and_tagged(embedded: Annotator, basic: Annotator) -> None:
    """The words of a list stay, however the pipeline would cut them, in passages, too."""
    one, two = ["do", "n't", "New York", "sleeps"], ["She", "sees", "e.g.dogs", "."]
    sentence, other = (
        TextRecord(0, "", " ".join(forms), words=places_of(forms), bare_words=True)
        for forms in (one, two)
    )
    passage = join_sentences([sentence, other], 0, "[SEP] ")
    found = [*embedded.annotate([sentence, TextRecord(1, "", "A dog"), other, passage])]
    for before, after in ((sentence, found[0]), (other, found[2]), (passage, found[3])):
        assert before.words is not None
        assert after.words is not None
        assert [(w.start, w.end) for w in after.words] == [(w.start, w.end) for w in before.words]
        assert all(word.upos and word.relation for word in after.words)
    assert found[3].words == joined_words(
        [(0, found[0].words or ()), (len(sentence.text) + 6, found[2].words or ())]
    )
    assert [*basic.annotate([sentence])] == [sentence]


def test_annotation_is_lazy(basic: Annotator) -> None:
    endless = (TextRecord(i, "", f"number {i}") for i in count())
    assert [s.index for s in islice(basic.annotate(endless), 100)] == list(range(100))


@pytest.mark.parametrize("name", ["no_such_pipeline", "", "/no/such/folder", "empty"])
def test_an_unknown_pipeline_is_one_clear_error(tmp_path: Path, name: str) -> None:
    given = str(tmp_path) if name == "empty" else name
    with pytest.raises(AnnotatorError) as error:
        Annotator.load(given)
    message = str(error.value)
    assert message.startswith(f"annotator '{given}': ")
    assert message.endswith("a folder, 'auto', 'embedded' or 'none'")
    assert "\n" not in message
