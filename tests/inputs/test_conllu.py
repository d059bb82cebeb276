"""CoNLL-U brings words, tags and a tree; what is no tree is refused with its line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from block_parts import every
from headbook import Study, collect
from headbook.charts import Plot
from headbook.errors import InputError, StudyError
from headbook.inputs import NO_HEAD, Selection, TextRecord, conllu, open_corpus
from headbook.inputs.conllu import MAX_HIDDEN
from headbook.inputs.records import Remark
from headbook.pages.head_parts.sections import found_relations
from headbook.pages.parts.blocks import Table
from headbook.pages.parts.page import gap_texts
from headbook.pages.speech import speech_page
from headbook.pages.syntax import syntax_page
from headbook.report.facts import words
from headbook.report.results import StackResults
from headbook.report.token_neighbours import class_of_tag
from headbook.schema import MAX_OWN_NAMES, OTHER, RELATIONS, UPOS, AnnotationScheme, HeadName, Side
from headbook.study.study import merge


def row(i: int | str, form: str, head: int | str = "_", **other: str) -> str:
    """A word line; columns that do not matter here stay empty."""
    upos, relation, misc = (other.get(name, "_") for name in ("upos", "relation", "misc"))
    return f"{i}\t{form}\t_\t{upos}\t_\t_\t{head}\t{relation}\t_\t{misc}"


def read(folder: Path, *lines: str) -> list[TextRecord]:
    (folder / "a.conllu").write_bytes("\n".join(lines).encode())
    with open_corpus([folder / "a.conllu"]) as corpus:
        return list(corpus)


def spelled(sentence: TextRecord) -> list[str]:
    assert sentence.words is not None
    return [sentence.text[word.start : word.end] for word in sentence.words]


def heads(sentence: TextRecord) -> list[int]:
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


def test_a_long_chain_of_words_passes_each_word_once() -> None:
    """By the number of looks at a head; a walk from each word to the root would be quadratic."""
    length, looks = 2000, 0

    class Token(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            nonlocal looks
            looks += key == "head"
            return super().__getitem__(key)

    for heads in (range(2, length + 2), range(length)):  # words lead to the last one, to the first
        looks = 0
        chain: dict[int, dict[str, Any]] = {
            n: Token(head=head % (length + 1), line=n) for n, head in enumerate(heads, 1)
        }
        depths = conllu._depths(chain, "a.conllu")
        assert max(depths.values()) == length
        assert looks < 10 * length


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
    "a block without a word": ([row("0.1", "a")], "a.conllu:1: a block without words"),
    "other columns first": (
        ["# global.columns = ID LEMMA FORM", row(1, "a", 0)], "a.conllu:1: columns ID LEMMA FORM",
    ),
    "more columns than the file names": ([f"{row(1, 'a', 0)}\t*"], "a.conllu:1: 11 columns"),
    "comments alone": (["# newdoc"], "a.conllu: no text at all"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_known_in_one_line_with_its_place(tmp_path: Path, name: str) -> None:
    lines, message = FAULTS[name]
    with pytest.raises(InputError) as error:
        read(tmp_path, *lines, "")
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_a_text_in_another_spelling_than_the_forms_keeps_its_places(tmp_path: Path) -> None:
    """Normal form, case, accents, quotes, white space and soft hyphens; spans are of the text."""
    spelling = {
        "caf\u00e9 x": (["cafe\u0301", "x"], ["caf\u00e9", "x"]),
        "cafe\u0301s x": (["caf\u00e9", "s", "x"], ["cafe\u0301", "s", "x"]),
        "La entr\u00e9e": (["la", "entree"], ["La", "entr\u00e9e"]),
        "\u201cOui\u201d dit": (['"', "Oui", '"', "dit"], ["\u201c", "Oui", "\u201d", "dit"]),
        '"No" it said': (["``", "No", "''", "it", "said"], ['"', "No", '"', "it", "said"]),
        "10\u00a0000 m": (["10 000", "m"], ["10\u00a0000", "m"]),
        "a  b\u2003c d": (["a b c", "d"], ["a  b\u2003c", "d"]),
        "Don\u2019t co\u00adop go": (["Don't", "coop", "go"], ["Don\u2019t", "co\u00adop", "go"]),
        "STRASSE 5": (["Stra\u00dfe", "5"], ["STRASSE", "5"]),
        "caf\u00e9 _": (["CAFE", "_"], ["caf\u00e9", "_"]),
    }
    for text, (forms, expected) in spelling.items():
        words = [row(number, form, number - 1) for number, form in enumerate(forms, start=1)]
        (sentence,) = read(tmp_path, f"# text = {text}", *words)
        assert (sentence.text, spelled(sentence)) == (text, expected)


def test_a_multiword_token_is_split_where_its_parts_stand_in_the_text(tmp_path: Path) -> None:
    (sentence,) = read(
        tmp_path, "# text = e\u0301te\u0301s", row("1-2", "\u00e9t\u00e9s"),
        row(1, "\u00e9t\u00e9", 0), row(2, "s", 1),
    )  # fmt: skip
    assert spelled(sentence) == ["e\u0301te\u0301", "s"]


def bad(number: int) -> list[str]:
    return [f"# text = one {number}", row(1, "one", 0), row(2, "too", 1, misc="SpaceAfter=No"),
            row(3, "!", 1), ""]  # fmt: skip


def good(number: int) -> list[str]:
    return [f"# text = one {number}", row(1, "one", 0), row(2, str(number), 1), ""]


def test_a_sentence_that_does_not_match_is_read_from_its_forms(tmp_path: Path) -> None:
    file = tmp_path / "a.conllu"
    missing, more = [["# text = a b", row(1, form, 0), ""] for form in ("b", "a")]
    file.write_text("\n".join([*good(1), *bad(2), *missing, *more]))
    with open_corpus([file]) as corpus:
        assert [s.text for s in corpus] == ["one 1", "one too!", "b", "a"]
        assert [spelled(s) for s in corpus][1] == ["one", "too", "!"]
        assert corpus.files[0].remarks == {Remark.FORMS: 3}
    with open_corpus([file], Selection(limit=1)) as corpus:
        assert not corpus.files[0].remarks
    with open_corpus([file], Selection(sample=2)) as corpus:
        n_bad = sum(s.text != "one 1" for s in corpus)
        assert corpus.files[0].remarks == {Remark.FORMS: n_bad}


@pytest.mark.parametrize(
    ("n_bad", "n_good", "stops"), [(10, 0, False), (11, 98, True), (11, 99, False), (30, 10, True)]
)
def test_many_such_sentences_stop_the_run(
    tmp_path: Path, n_bad: int, n_good: int, stops: bool
) -> None:
    lines = [line for number in range(n_bad) for line in bad(number)]
    lines += [line for number in range(n_good) for line in good(number)]
    if not stops:
        assert len(read(tmp_path, *lines)) == n_bad + n_good
        return
    with pytest.raises(InputError) as error:
        read(tmp_path, *lines)
    message = str(error.value)
    assert message.startswith(f"a.conllu:1: {n_bad} of {n_bad + n_good} sentences")
    assert "the form 'too' where the text has '0'" in message
    assert "\n" not in message


def test_comments_between_sentences_are_counted_and_begin_a_document(tmp_path: Path) -> None:
    file = tmp_path / "a.conllu"
    file.write_text("\n".join(
        ["# newdoc id = a", "# text = of no sentence", "", *good(1), "", "# note", "", *good(2)]
    ))  # fmt: skip
    with open_corpus([file]) as corpus:
        assert [dict(s.metadata) for s in corpus] == [{"newdoc id": "a"}, {}]
        assert (corpus.files[0].remarks, corpus.files[0].blank) == ({Remark.COMMENTS: 2}, 0)
    with open_corpus([file], Selection(sample=1)) as corpus:
        assert corpus.files[0].remarks == {Remark.COMMENTS: 2}


def test_columns_beyond_the_ten_and_tabs_at_the_end_are_ignored(tmp_path: Path) -> None:
    names = "ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC PARSEME:MWE X:Y"
    (one,) = read(tmp_path, f"# global.columns = {names}", f"{row(1, 'a', 0, upos='X')}\t1\t_")
    assert one.words is not None
    assert (one.words[0].upos, dict(one.metadata)) == ("X", {})
    assert [s.text for s in read(tmp_path, f"{row(1, 'a', 0)}\t", f"{row(2, 'b', 1)}\t\t")] == [
        "a b"
    ]


def test_hidden_words_are_refused_and_one_underscore_is_a_word(tmp_path: Path) -> None:
    hidden = ["# text = _ _", row(1, "_", 0), row(2, "_", 1), ""]
    for lines in (hidden, [*hidden * 3], ["# newdoc", "", *hidden * (MAX_HIDDEN + 1), *good(1)]):
        with pytest.raises(InputError) as error:
            read(tmp_path, *lines)
        assert "hidden" in str(error.value)
        assert "\n" not in str(error.value)
    texts = [s.text for s in read(tmp_path, "# text = _", row(1, "_", 0), "", *good(1))]
    assert texts == ["_", "one 1"]
    file = tmp_path / "a.conllu"
    file.write_text("\n".join(hidden * 3))
    with pytest.raises(InputError, match="hidden"), open_corpus([file], Selection(limit=1)):
        pass


FILES = {  # texts and remarks of the sentences of each file
    "comments-only": (["A dog"], {Remark.COMMENTS: 1}),
    "eleven-columns": (["A dog"], {}),
    "form-accent": (["A entr\u00e9e"], {}),
    "form-nfd": (["A caf\u00e9"], {}),
    "one-bad-sentence": (["A dog", "A entr\u00e9e", "A dog"], {}),
}


@pytest.mark.parametrize("name", FILES)
def test_small_treebanks_that_people_have(name: str) -> None:
    texts, remarks = FILES[name]
    with open_corpus([Path(__file__).parent / "files" / f"{name}.conllu"]) as corpus:
        assert [s.text for s in corpus] == texts
        assert corpus.files[0].remarks == remarks
        assert all(spelled(s) == s.text.split() for s in corpus)


def test_annotation_that_is_not_universal_is_known(model: Path, tmp_path: Path) -> None:
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
    study = collect([file], model, annotator="none", metrics="relation_accuracy")
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


def collected(model: Path, *files: Path, tokens: int = 4096) -> Study:
    metrics = "relation_accuracy,pos_received,pos_received_ratio,pos_given"
    return collect(
        files,
        model,
        dtype="float64",
        annotator="none",
        metrics=metrics,
        language="none",
        batch_tokens=tokens,
        importance="off",
        sentence_pages="1",
        query_key_sentences=0,
    )


@pytest.fixture(scope="module")
def model(tiny_folder: Callable[[str], Path]) -> Path:
    return tiny_folder("bert")


@pytest.fixture(scope="module")
def own(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Study:
    return collected(model, written(tmp_path_factory.mktemp("own"), "a.conllu", 60))


def test_tags_and_relations_of_its_own_stand_on_the_pages(own: Study) -> None:
    (stack,) = own.manifest.stacks
    results = StackResults(own, stack)
    assert results.labels("pos_received") == (*UPOS, ATOM)
    rows = [row for table in every(Table, syntax_page({"self": results})) for row in table.rows]
    assert {row[0] for row in rows if isinstance(row[0], str)} == {"obj", ARROW}
    counts = {tag: words.n_words(results, Side.SOURCE, tag) for tag in words.frequent(results)}
    assert counts == {ATOM: 120, "NOUN": 60}
    given = {tested.label for tested in words.given_by_words(results).evidence}
    assert {*counts} <= given
    assert [class_of_tag(tag) for tag in counts] == ["other", "content"]
    assert words.tag_name(ATOM) == f"words tagged {ATOM}"
    (plot,) = every(Plot, speech_page({"self": results}))
    assert {*plot.rows["series"]} == {*map(words.tag_name, counts)}
    found = found_relations(results, HeadName("self", 0, 0))
    assert any(ARROW in measured.text for measured in found)


def test_labels_of_its_own_do_not_depend_on_batches(
    model: Path, own: Study, tmp_path: Path
) -> None:
    again = collected(model, written(tmp_path, "a.conllu", 60), tokens=64)
    one, other = (study.heads.drop(columns=["value", "low", "high"]) for study in (own, again))
    assert one.equals(other)
    assert np.allclose(own.heads["value"], again.heads["value"], equal_nan=True, atol=1e-5)


def test_studies_add_up_under_the_same_names_alone(model: Path, own: Study, tmp_path: Path) -> None:
    both = merge([own, own])
    assert StackResults(both, both.manifest.stacks[0]).labels("pos_given") == (*UPOS, ATOM)
    own.save(tmp_path / "study")
    loaded = Study.load(tmp_path / "study")
    (name,) = loaded.corpus_sums.heads
    words = loaded.corpus_sums.heads[name].strongest_words
    assert words is not None
    assert words.own == (ARROW,)
    assert words.own_tags == (ATOM,)
    other = collected(model, written(tmp_path, "b.conllu", 4, "bond"))
    with pytest.raises(StudyError, match=r"own tags and relations .*arrow.* and .*bond") as error:
        merge([own, other])
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
