"""Stored sentences word by word: the same as what a study counts while the model runs."""

import numpy as np
import pytest
import torch

from headbook.attention.word_pairs import LABELS, word_trees
from headbook.report.word_attention import word_attention, word_links, word_names
from headbook.study.sentence_data import UINT8_STEPS, StoredText
from headbook.text.batch import PaddedTexts
from headbook.text.tokens import TokenizedText

# Two words of two pieces, one of one, between special tokens.
TEXT = StoredText(
    text="sleeping dogs bark",
    pieces=("[CLS]", "sleep", "ing", "dog", "s", "bark", "[SEP]"),
    spans=((0, 0), (0, 5), (5, 8), (9, 12), (12, 13), (14, 18), (0, 0)),
    special=(True, False, False, False, False, False, True),
    words=(-1, 0, 0, 1, 1, 2, -1),
    tags=("", "VERB", "VERB", "NOUN", "NOUN", "VERB", ""),
    lost=0,
    generated=False,
    heads=(1, 2, -1),
    relations=("amod", "nsubj", "root"),
)


def text(heads: list[int], relations: list[str], tags: list[str]) -> StoredText:
    """A text whose words are its tokens."""
    n = len(heads)
    return StoredText(
        text="x" * n,
        pieces=("x",) * n,
        spans=tuple((i, i + 1) for i in range(n)),
        special=(False,) * n,
        words=tuple(range(n)),
        tags=tuple(tags),
        lost=0,
        generated=False,
        heads=tuple(heads),
        relations=tuple(relations),
    )


def test_words_are_written_as_in_the_text() -> None:
    assert word_names(TEXT) == ("sleeping", "dogs", "bark")


@pytest.mark.parametrize("causal", [False, True])
def test_attention_between_words_is_the_mean_over_rows_and_the_sum_over_columns(
    causal: bool,
) -> None:
    steps = np.random.default_rng(1).integers(0, UINT8_STEPS + 1, (2, 7, 7), dtype=np.uint8)
    found = word_attention(steps, TEXT, causal=causal)
    counts = [i for i in range(7) if not TEXT.special[i] and not (causal and i == 0)]
    for head in range(2):
        for a in range(3):
            rows = [i for i in counts if TEXT.words[i] == a]
            for b in range(3):
                keys = [j for j in counts if TEXT.words[j] == b]
                sums = [sum(int(steps[head, i, j]) for j in keys) / UINT8_STEPS for i in rows]
                assert found[head, a, b] == pytest.approx(sum(sums) / len(sums))


def test_the_first_token_of_a_causal_text_neither_looks_nor_is_looked_at() -> None:
    basic = text([1, -1], ["nsubj", "root"], ["NOUN", "VERB"])
    steps = np.full((2, 2), 100, np.uint8)
    assert word_attention(steps, basic, causal=True).tolist() == [[0, 0], [0, 100 / UINT8_STEPS]]
    assert (
        word_links(word_attention(steps, basic, causal=True), basic, LABELS[0], causal=True) == []
    )


def test_a_head_finds_a_word_where_that_is_its_strongest_other_word() -> None:
    weights = np.array([[0.9, 0.3, 0.2], [0.1, 0.9, 0.1], [0.2, 0.4, 0.0]])
    assert word_links(weights, TEXT, "amod:to_head", causal=False) == [(0, 1, True)]
    assert word_links(weights, TEXT, "nsubj:to_head", causal=False) == [(1, 2, False)]
    assert word_links(weights, TEXT, "nsubj:to_dependent", causal=False) == [(2, 1, True)]
    assert word_links(weights, TEXT, "obj:to_head", causal=False) == []
    assert word_links(weights * 0, TEXT, "amod:to_head", causal=False) == [(0, 1, False)]


def test_in_a_causal_text_only_words_before_are_asked_for() -> None:
    weights = np.full((3, 3), 0.3)
    assert word_links(weights, TEXT, "amod:to_head", causal=True) == []
    assert [link[:2] for link in word_links(weights, TEXT, "nsubj:to_dependent", causal=True)] == [
        (2, 1)
    ]


def test_subtypes_that_labels_do_not_know_count_as_their_relation() -> None:
    basic = text([1, -1, 1], ["nsubj:outer", "root", "acl:relcl"], ["NOUN", "VERB", "VERB"])
    weights = np.ones((3, 3))
    assert len(word_links(weights, basic, "nsubj:to_head", causal=False)) == 1
    assert len(word_links(weights, basic, "acl:relcl:to_head", causal=False)) == 1
    assert word_links(weights, basic, "acl:to_head", causal=False) == []


def as_tokens(stored_text: StoredText) -> TokenizedText:
    """The text as the model sees it."""
    from headbook.inputs import Word

    tags = dict(zip(stored_text.words, stored_text.tags, strict=True))
    n = len(stored_text.pieces)
    return TokenizedText(
        text=stored_text.text,
        pieces=stored_text.pieces,
        ids=np.arange(n),
        spans=np.array(stored_text.spans),
        special=np.array(stored_text.special),
        separator=np.zeros(n, dtype=bool),
        punctuation=np.zeros(n, dtype=bool),
        word=np.array(stored_text.words),
        words=tuple(
            Word(i, i + 1, tags.get(i, ""), head, relation)
            for i, (head, relation) in enumerate(
                zip(stored_text.heads, stored_text.relations, strict=True)
            )
        ),
    )


class _Frame:
    def __init__(self, texts: PaddedTexts) -> None:
        self.queries = texts


class _Scope:
    def __init__(self, texts: PaddedTexts) -> None:
        self.frame = _Frame(texts)


def tree_of(stored_text: StoredText) -> tuple[list[int], list[int]]:
    """The words of a text's tree without punctuation, and their heads among these words."""
    texts = PaddedTexts.of([as_tokens(stored_text)], torch.device("cpu"))
    trees = word_trees(_Scope(texts))  # type: ignore[arg-type]
    length = int(trees.lengths[0])
    return trees.place[0, :length].tolist(), trees.heads[0, :length].tolist()


def test_words_below_punctuation_hang_on_its_head() -> None:
    basic = text([1, 3, 1, -1], ["a", "b", "c", "root"], ["NOUN", "PUNCT", "PUNCT", "VERB"])
    assert tree_of(basic) == ([0, 3], [1, -1])


def test_words_in_a_circle_are_no_tree() -> None:
    assert tree_of(text([1, 0, -1], ["a", "b", "root"], ["NOUN", "NOUN", "VERB"])) == ([], [])
