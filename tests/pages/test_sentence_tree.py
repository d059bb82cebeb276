"""The dependency tree on a sentence's page: every arc and every row is the annotation's."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from headbook.charts import language
from headbook.pages.sentence import MOST_WORDS, SentenceTree, sentence_tree, tree_absent
from headbook.schema import Side
from headbook.study.sentence_data import StoredText
from html_pages import elements, html_of, written_html
from html_pages import text as text_of_cell
from sites import Site
from treebank import TREES, Gold

SVG = "{http://www.w3.org/2000/svg}"


def stored_text(words: list[tuple[str, int, str]]) -> StoredText:
    """A text of whole words with spaces between; heads count from 0."""
    names = [name for name, _, _ in words]
    starts = [sum(len(name) + 1 for name in names[:position]) for position in range(len(names))]
    return StoredText(
        text=" ".join(names),
        pieces=tuple(names),
        spans=tuple((at, at + len(name)) for at, name in zip(starts, names, strict=True)),
        special=(False,) * len(names),
        words=tuple(range(len(names))),
        tags=("X",) * len(names),
        lost=0,
        generated=False,
        heads=tuple(head for _, head, _ in words),
        relations=tuple(relation for _, _, relation in words),
    )


def of_gold(tree: tuple[Gold, ...]) -> StoredText:
    return stored_text([(word.form, word.head - 1, word.relation) for word in tree])


def made(text: StoredText) -> SentenceTree:
    tree = sentence_tree(text, "tree")
    assert tree is not None
    return tree


def parts(tree: SentenceTree, tag: str) -> list[ET.Element]:
    """The elements of the drawing with a tag."""
    return [*ET.fromstring(tree.drawing.svg).iter(f"{SVG}{tag}")]  # noqa: S314 - our own


def texts(tree: SentenceTree) -> dict[str, list[tuple[str, float]]]:
    """Words and labels with their places from the left, told apart by their size."""
    found: dict[str, list[tuple[str, float]]] = {"words": [], "labels": []}
    for text in parts(tree, "text"):
        kind = "words" if text.get("font-size") == str(language.TEXT_PIXELS) else "labels"
        found[kind].append((text.text or "", float(text.get("x", "nan"))))
    return found


def arcs(tree: SentenceTree) -> list[tuple[str, str]]:
    """The words that each arrow runs from and to: those nearest to its ends."""
    words = texts(tree)["words"]
    found = []
    for path in parts(tree, "path"):
        if path.get("fill") == "none":
            line = path.get("d", "").replace("M", "").replace("C", " ").split()
            ends = float(line[0]), float(line[-2])
            names = [min(words, key=lambda word: abs(word[1] - end))[0] for end in ends]
            found.append((names[0], names[1]))
    return found


@pytest.mark.parametrize("tree", [TREES[0], TREES[1], TREES[5]])
def test_arrows_run_from_heads_to_dependents(tree: tuple[Gold, ...]) -> None:
    named = [replace_form(word, number) for number, word in enumerate(tree)]
    drawn = made(of_gold(tuple(named)))
    wanted = [(named[word.head - 1].form, word.form) for word in named if word.head > 0]
    assert sorted(arcs(drawn)) == sorted(wanted)
    labels = [label for label, _ in texts(drawn)["labels"]]
    assert sorted(labels) == sorted(word.relation for word in named if word.head > 0)


def replace_form(word: Gold, number: int) -> Gold:
    """The word with its number, so that no two are the same."""
    return word._replace(form=f"{word.form}{number}")


def test_the_table_says_the_same() -> None:
    rows = made(of_gold(TREES[0])).table.rows
    assert [(row.name, *map(text_of_cell, row.cells[1:])) for row in rows] == [
        ("1 Fisherman", "nsubj", "2 sees"),
        ("2 sees", "root", "–"),
        ("3 the", "det", "5 bird"),
        ("4 small", "amod", "5 bird"),
        ("5 bird", "obj", "2 sees"),
        ("6 .", "punct", "2 sees"),
    ]


@pytest.mark.parametrize("mark", ["", "1 ", "\u202b"])
def test_texts_from_right_to_left_are_drawn_from_right_to_left(mark: str) -> None:
    """By the first letter that has a direction; arrows keep their words."""
    hebrew = stored_text([("הילד", 1, "nsubj"), ("ראה", -1, "root"), ("כלב", 1, "obj")])
    spans = tuple((start + len(mark), end + len(mark)) for start, end in hebrew.spans)
    tree = made(replace(hebrew, text=mark + hebrew.text, spans=spans))
    words = sorted(texts(tree)["words"], key=lambda word: -word[1])
    assert [word for word, _ in words] == ["הילד", "ראה", "כלב"]
    assert sorted(arcs(tree)) == sorted([("ראה", "הילד"), ("ראה", "כלב")])
    assert [row.name.split()[1] for row in tree.table.rows] == ["הילד", "ראה", "כלב"]


def test_long_texts_are_cut() -> None:
    n = MOST_WORDS + 7
    tree = made(stored_text([(f"w{i}", i - 1, "dep") for i in range(n)]))
    assert (len(tree.table.rows), tree.cut) == (MOST_WORDS, 7)
    assert len(arcs(tree)) == MOST_WORDS - 1
    assert made(stored_text([("v", 1, "dep"), ("w", -1, "root")])).cut == 0


def test_there_is_no_tree_without_annotation() -> None:
    bare = replace(of_gold(TREES[0]), heads=(), relations=())
    assert sentence_tree(bare, "tree") is None
    assert "no dependencies" in tree_absent(bare)
    assert tree_absent(of_gold(TREES[0])) == ""


def test_a_long_text_without_a_relation_in_its_first_words_has_no_empty_tree() -> None:
    """But the reason, as a sentence; one relation there is a tree."""
    n = MOST_WORDS + 7
    words = [(f"w{i}", n - 1, "dep") for i in range(n - 1)] + [("w", -1, "root")]
    far = stored_text(words)
    assert sentence_tree(far, "tree") is None
    assert f"the first {MOST_WORDS} words" in tree_absent(far)
    near = stored_text([("w0", 1, "dep"), *words[1:]])
    assert made(near).cut == n - MOST_WORDS
    assert not tree_absent(near)


def test_words_cannot_leave_the_picture() -> None:
    """Letters of markup are text; nothing is an attribute of style."""
    hostile = "</text><script>x</script>"
    tree = made(stored_text([(hostile, 1, "nsubj"), ('"&amp;', -1, "root")]))
    assert [word for word, _ in texts(tree)["words"]] == [hostile, '"&amp;']
    assert "<script" not in tree.drawing.svg
    assert "style=" not in tree.drawing.svg


def test_pages_of_annotated_sentences_have_their_tree(encoder_site: Site) -> None:
    for number in (1, 2):
        file = encoder_site.folder / f"sentences/000{number}.html"
        html = html_of(file)
        assert "tree-source" not in written_html(file)  # it waits until it is opened
        [figure] = [e for e in elements(html, "figure") if e.attributes.get("id") == "tree-source"]
        assert figure
        words = re.findall(r'<th scope="row">\d+ <bdi>(.*?)</bdi></th><td>', html)
        assert words == [word.form for word in TREES[number - 1]]


def test_pages_without_a_tree_have_none(pair_site: Site) -> None:
    text = pair_site.study.sentence_data.sentences[0].texts[Side.SOURCE]
    assert not text.heads
    html = html_of(pair_site.folder / "sentences/0001.html")
    assert "tree-" not in html
    assert 'class="tree"' not in html
    assert "Dependency tree: the text has no dependencies" in html
