"""CoNLL-U brings words, tags and a tree; what is no tree is refused with its line."""

from pathlib import Path

import numpy as np
import pytest

from headbook import Study, collect
from headbook.errors import InputError, StudyError
from headbook.inputs import NO_HEAD, Sentence, open_corpus
from headbook.pages.head_parts.sections import found_relations
from headbook.pages.parts.page import gap_texts
from headbook.pages.speech import speech_page
from headbook.pages.syntax import syntax_page
from headbook.report.results import StackResults
from headbook.schema import MAX_OWN_NAMES, OTHER, RELATIONS, UPOS, AnnotationScheme, HeadName


def row(i: int | str, form: str, head: int | str = "_", **other: str) -> str:
    """A word line; columns that do not matter here stay empty."""
    upos, relation, misc = (other.get(name, "_") for name in ("upos", "relation", "misc"))
    return f"{i}\t{form}\t_\t{upos}\t_\t_\t{head}\t{relation}\t_\t{misc}"


def read(folder: Path, *lines: str) -> list[Sentence]:
    (folder / "a.conllu").write_bytes("\n".join(lines).encode())
    with open_corpus([folder / "a.conllu"]) as corpus:
        return list(corpus)


def spelled(sentence: Sentence) -> list[str]:
    assert sentence.words is not None
    return [sentence.text[word.start : word.end] for word in sentence.words]


def heads(sentence: Sentence) -> list[int]:
    assert sentence.words is not None
    return [word.head for word in sentence.words]


def test_words_come_with_tags_heads_and_offsets(tmp_path: Path) -> None:
    (sentence,) = read(
        tmp_path,
        "# sent_id = weblog-7",
        "# genre = blog",
        "# text = Cats,  they say sleep.",
        row(1, "Cats", 5, upos="NOUN", relation="nsubj"),
        row(2, ",", 4, upos="PUNCT", relation="punct"),
        row(3, "they", 4, upos="PRON", relation="nsubj"),
        row(4, "say", 5, upos="VERB", relation="parataxis"),
        row(5, "sleep", 0, upos="VERB", relation="root"),
        row(6, ".", 5, upos="PUNCT", relation="punct"),
    )
    assert sentence.words is not None
    assert (sentence.id, sentence.metadata) == ("weblog-7", {"genre": "blog"})
    assert sentence.text == "Cats,  they say sleep."
    assert spelled(sentence) == ["Cats", ",", "they", "say", "sleep", "."]
    assert heads(sentence) == [4, 3, 3, 4, NO_HEAD, 4]
    assert [w.upos for w in sentence.words][:2] == ["NOUN", "PUNCT"]
    assert [w.relation for w in sentence.words][3:5] == ["parataxis", "root"]


def test_blocks_are_sentences_and_extra_blank_lines_do_not_matter(tmp_path: Path) -> None:
    sentences = read(
        tmp_path, "", row(1, "One", 0), "", "", row(1, "Two", 0), row(2, "more", 1), ""
    )
    assert [(s.text, s.origin) for s in sentences] == [
        ("One", "a.conllu:2"), ("Two more", "a.conllu:5"),
    ]  # fmt: skip


def test_text_that_is_not_given_is_spelled_from_the_words(tmp_path: Path) -> None:
    (sentence,) = read(
        tmp_path, row(1, "Stop", 0, misc="SpaceAfter=No"), row(2, "!", 1), row(3, "Now", 1)
    )
    assert sentence.text == "Stop! Now"
    assert spelled(sentence) == ["Stop", "!", "Now"]


def test_empty_nodes_are_no_words(tmp_path: Path) -> None:
    (sentence,) = read(
        tmp_path, row("0.1", "Was"), row(1, "He", 2), row("1.1", "then"), row(2, "left", 0)
    )
    assert sentence.text == "He left"
    assert heads(sentence) == [1, NO_HEAD]


def test_a_multiword_token_whose_parts_spell_it_stays_several_words(tmp_path: Path) -> None:
    (sentence,) = read(
        tmp_path,
        "# text = They don't go.",
        row(1, "They", 4),
        row("2-3", "don't"),
        row(2, "do", 4),
        row(3, "n't", 4),
        row(4, "go", 0, misc="SpaceAfter=No"),
        row(5, ".", 4),
    )
    assert spelled(sentence) == ["They", "do", "n't", "go", "."]
    assert heads(sentence) == [3, 3, 3, NO_HEAD, 3]


def test_any_other_multiword_token_is_one_word(tmp_path: Path) -> None:
    (sentence,) = read(
        tmp_path,
        row(1, "Il", 2, upos="PRON"),
        row(2, "parle", 0, upos="VERB"),
        row("3-4", "du"),
        row(3, "de", 5, upos="ADP"),
        row(4, "le", 5, upos="DET"),
        row(5, "chat", 2, upos="NOUN"),
    )
    assert sentence.words is not None
    assert spelled(sentence) == ["Il", "parle", "du", "chat"]
    assert [w.upos for w in sentence.words] == ["PRON", "VERB", "ADP", "NOUN"]
    assert heads(sentence) == [1, NO_HEAD, 3, 1]


def test_merging_the_parts_of_a_token_leaves_a_tree(tmp_path: Path) -> None:
    """The part nearest to the root speaks for all, or "du" and "x" would be each other's head."""
    (sentence,) = read(tmp_path, row("1-2", "du"), row(1, "de", 3), row(2, "le", 0), row(3, "x", 2))
    assert heads(sentence) == [NO_HEAD, 0]


def test_a_text_without_a_tree_has_words_without_heads(tmp_path: Path) -> None:
    (sentence,) = read(tmp_path, row(1, "Only", upos="ADV"), row(2, "tags", upos="NOUN"))
    assert sentence.words is not None
    assert heads(sentence) == [NO_HEAD, NO_HEAD]
    assert [w.upos for w in sentence.words] == ["ADV", "NOUN"]


FAULTS = {
    "columns are missing": (["1\tOne\t_"], "a.conllu:1: 3 columns"),
    "spaces instead of tabs": (["1 One _ _ _ _ 0 _ _ _"], "a.conllu:1: 1 columns"),
    "a head that is no number": ([row(1, "a", 0), row(2, "b", "x")], "a.conllu:2: "),
    "a head beyond the words": ([row(1, "a", 0), row(2, "b", 3)], "a.conllu:2: head 3 of word 2"),
    "a negative head": ([row(1, "a", -1)], "a.conllu:1: head -1 of word 1"),
    "a word that is its own head": ([row(1, "a", 1)], "a.conllu:1: head 1 of word 1"),
    "two words that are each other's heads": (
        [row(1, "a", 0), row(2, "b", 3), row(3, "c", 2)],
        "a.conllu:2: head 3 of word 2, which leads round in a circle",
    ),
    "a longer circle": (
        [row(1, "a", 2), row(2, "b", 3), row(3, "c", 1)], "a.conllu:1: head 2 of word 1, which",
    ),
    "ids that leave one out": ([row(1, "a", 0), row(3, "b", 1)], "a.conllu:2: word id 3"),
    "an id that comes twice": ([row(1, "a", 0), row(1, "b", 0)], "a.conllu:2: word id 1 twice"),
    "a range beyond the words": (
        [row("1-3", "dele"), row(1, "de", 0), row(2, "le", 1)],
        "a.conllu:1: a range without its word 3",
    ),
    "a range behind its words": (
        [row(1, "de", 0), row("1-2", "du"), row(2, "le", 1)], "a.conllu:2: word id 1",
    ),
    "a form that is not in the text": (
        ["# text = one two", row(1, "one", 0), row(2, "too", 1)], "a.conllu:3: the form 'too'",
    ),
    "a form that skips a part of the text": (
        ["# text = one two", row(1, "two", 0)], "a.conllu:2: the form 'two'",
    ),
    "a block of comments": (["# newdoc"], "a.conllu:1: a block without words"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told_in_one_line_with_its_place(tmp_path: Path, name: str) -> None:
    lines, message = FAULTS[name]
    with pytest.raises(InputError) as error:
        read(tmp_path, *lines, "")
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_annotation_that_is_not_universal_is_told(tmp_path: Path) -> None:
    """Tags and relations of a corpus are counted by their own names, a subtype as its relation."""
    file = tmp_path / "a.conllu"
    lines = [
        row(1, "C", 0, upos="ATOM", relation="root"),
        row(2, ">>", 1, upos="SYM", relation="arrow"),
        row(3, "C", 1, upos="ATOM", relation="dep:map"),
        row(4, "O", 1, relation="map"),
    ]
    file.write_text("\n".join(lines))
    with open_corpus([file]) as corpus:
        assert corpus.files[0].foreign_tags == {"ATOM": 2}
        assert corpus.files[0].foreign_relations == {"arrow": 1, "map": 1}
        assert corpus.scheme.tags == (*UPOS, "ATOM")
        assert corpus.scheme.relations == (*RELATIONS, "arrow", "map")
    study = collect([file], annotator="none", metrics="relation_accuracy")
    texts = gap_texts(study.manifest.gaps)
    assert any(text.startswith("tags ATOM: not among the 17 parts of speech") for text in texts)
    assert not any("relations" in text for text in texts)
    (stack,) = study.manifest.stacks
    words = study.corpus_sums.heads[stack.name].strongest_words
    assert words is not None
    asked = {words.labels[n]: len(words.cases(n).query) for n in words.labels_asked()}
    directions = ("to_head", "to_dependent")
    assert asked == {f"{name}:{way}": 1 for way in directions for name in ("dep", "arrow", "map")}


ARROW, ATOM = "<arrow> & co", "$,"  # names that would mean something in HTML, files or addresses


def written(folder: Path, name: str, n: int, relation: str = ARROW) -> Path:
    """Sentences of three words, no name of them in Universal Dependencies but one."""
    blocks = []
    for number in range(n):
        words = [f"a{number}", "b" * (1 + number % 5), f"c{number * 7 % 13}"]
        blocks += [
            row(1, words[0], 0, upos=ATOM, relation="root"),
            row(2, words[1], 1, upos="NOUN", relation="obj"),
            row(3, words[2], 1, upos=ATOM, relation=relation),
            "",
        ]
    file = folder / name
    file.write_text("\n".join(blocks) + "\n")
    return file


def collected(*files: Path, tokens: int = 4096) -> Study:
    metrics = "relation_accuracy,pos_received,pos_received_ratio,pos_given"
    return collect(
        files,
        annotator="none",
        metrics=metrics,
        language="none",
        batch_tokens=tokens,
        importance="off",
        sentence_pages="1",
        query_key_sentences=0,
    )


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return collected(written(tmp_path_factory.mktemp("own"), "a.conllu", 60))


def test_tags_and_relations_of_its_own_stand_on_the_pages(own: Study) -> None:
    (stack,) = own.manifest.stacks
    results = StackResults(own, stack)
    assert results.labels("pos_received") == (*UPOS, ATOM)
    (syntax,) = syntax_page({"self": results}).stacks
    assert {row.relation for row in (*syntax.claimed, *syntax.rows)} == {"obj", ARROW}
    (speech,) = speech_page({"self": results}).stacks
    for rows in (speech.received, speech.given):
        assert {row.name: row.words for row in rows} == {
            f"words tagged {ATOM}": "120",
            "nouns": "60",
        }
    assert speech.plot is not None
    assert {row.kind for row in speech.received} == {"other", "content"}
    found = found_relations(results, HeadName("self", 0, 0))
    assert any(ARROW in measured.text for measured in found)


def test_labels_of_its_own_do_not_depend_on_batches(own: Study, tmp_path: Path) -> None:
    again = collected(written(tmp_path, "a.conllu", 60), tokens=64)
    one, other = (study.heads.drop(columns=["value", "low", "high"]) for study in (own, again))
    assert one.equals(other)
    assert np.allclose(own.heads["value"], again.heads["value"], equal_nan=True, atol=1e-5)


def test_studies_add_up_under_the_same_names_alone(own: Study, tmp_path: Path) -> None:
    both = own + own
    assert StackResults(both, both.manifest.stacks[0]).labels("pos_given") == (*UPOS, ATOM)
    own.save(tmp_path / "study")
    loaded = Study.load(tmp_path / "study")
    (name,) = loaded.corpus_sums.heads
    words = loaded.corpus_sums.heads[name].strongest_words
    assert words is not None
    assert words.own == (ARROW,)
    assert words.own_tags == (ATOM,)
    other = collected(written(tmp_path, "b.conllu", 4, "bond"))
    with pytest.raises(StudyError, match=r"own tags and relations .*arrow.* and .*bond") as error:
        own + other
    assert "\n" not in str(error.value)


def test_the_most_frequent_names_are_told_apart() -> None:
    """By frequency, then by name; the rest are one."""
    counts = {f"T{number:02}": 1 for number in range(MAX_OWN_NAMES)}
    assert AnnotationScheme.of(counts, {}).tags == (*UPOS, *counts)
    scheme = AnnotationScheme.of(counts, counts | {"Z": 2})
    assert scheme.tags[len(UPOS)] == "T00"
    assert scheme.relations[len(RELATIONS) :] == ("Z", *[*counts][: MAX_OWN_NAMES - 1], OTHER)
    last = len(scheme.relations) - 1
    assert scheme.relation_number(f"T{MAX_OWN_NAMES - 1}", -1) == last
    assert scheme.relation_number("Z:part", -1) == len(RELATIONS)
    assert scheme.relation_number("", -1) == scheme.tag_number("", -1) == -1
    assert scheme.tag_number("none of them", -1) == -1
    assert scheme.relation_number("obj", -1) == RELATIONS.index("obj")
    assert AnnotationScheme() == AnnotationScheme.of({}, {})
