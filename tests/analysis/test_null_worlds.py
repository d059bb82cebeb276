"""Worlds in which claims cannot be true: few have one, and planted relations are found."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import comparing
import nulls
from headbook.inputs import open_corpus
from headbook.model.load import load_model
from headbook.run.collect import collect
from headbook.study.study import Study
from headbook.study.sums.word_samples import StrongestWords
from naive_relations import Annotated, drawn, grammatical, looking, stored

SENTENCES, HEADS, WORLDS = 64, 8, 40
TREEBANK = Path(__file__).parents[2] / "sample_inputs/sentences.conllu"


def by_distance(seed: int) -> Callable[[Annotated, int], int | None]:
    """Return a head that draws a distance for each word, near ones more often."""
    draw = np.random.default_rng(seed)

    def head(sentence: Annotated, word: int) -> int | None:
        others = np.array([w for w in range(len(sentence.tags)) if sentence.sees(word, w)])
        if not len(others):
            return None
        weights = np.exp(-np.abs(others - word) - (others < word) * (seed % 3 - 1.0))
        return int(draw.choice(others, p=weights / weights.sum()))

    return head


@pytest.fixture(scope="module")
def short_sentences() -> StrongestWords:
    """Sentences of 2 to 9 words, whose ends are near, with heads that choose by distance."""
    heads = [by_distance(seed) for seed in range(HEADS)]
    return stored(looking(drawn(0, 400), *heads))


def claimed(words: StrongestWords, world: str) -> dict[str, tuple[int, int]]:
    worlds = nulls.shuffled_worlds(words, world, nulls.Draw(SENTENCES), WORLDS)
    return nulls.count(worlds, (nulls.RELATION_P, nulls.RELATION, nulls.NEXT_WORD))


def test_few_worlds_have_a_claim_that_cannot_be_true(short_sentences: StrongestWords) -> None:
    moved = claimed(short_sentences, "both")
    assert {kind: worlds for kind, (_, worlds) in moved.items()} == dict.fromkeys(moved, WORLDS)
    for n_claimed, worlds in moved.values():
        assert nulls.interval(n_claimed, worlds)[0] <= 0.05


def test_rules_that_name_no_word_would_claim_too_often(
    short_sentences: StrongestWords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StrongestWords, "taken", StrongestWords.named)
    moved = claimed(short_sentences, "both")
    assert nulls.interval(*moved[nulls.RELATION_P])[0] > 0.05


def test_a_planted_relation_is_claimed_in_most_worlds() -> None:
    words = stored(looking(grammatical(3, 300), *map(by_distance, range(HEADS))))
    worlds = nulls.planted_worlds(words, nulls.Draw(200), 6, trees=True)
    counts = nulls.count(worlds, (nulls.RELATION_P, nulls.RELATION))
    assert counts[nulls.RELATION][0] >= 5
    assert counts[nulls.RELATION_P][0] >= counts[nulls.RELATION][0]


@pytest.mark.parametrize("causal", [False, True])
def test_trees_of_stored_words_are_tested_where_the_query_sees_the_key(*, causal: bool) -> None:
    words = stored(drawn(7, causal=causal))
    same = nulls.with_trees(words, words.head, words.relation)
    np.testing.assert_array_equal(same.asked, words.asked)


@pytest.mark.parametrize("world", ["trees", "both"])
def test_moved_trees_are_the_same_trees_at_other_words(world: str) -> None:
    words = stored(drawn(8))
    moved = nulls.moved(words, world, np.random.default_rng(0))
    assert (moved.tag != words.tag).any() == (world == "both")
    for start, length in zip(words.lengths.cumsum() - words.lengths, words.lengths, strict=True):
        part = slice(start, start + length)
        edges = [
            Counter(
                (int(w.relation[k]), w.relation[start + w.head[k]] if w.head[k] >= 0 else None)
                for k in range(part.start, part.stop)
            )
            for w in (words, moved)
        ]
        assert edges[0] == edges[1]
        tags = [
            Counter((int(w.relation[k]), int(w.tag[k])) for k in range(part.start, part.stop))
            for w in (words, moved)
        ]
        assert world != "both" or tags[0] == tags[1]


def test_worlds_of_a_model_are_treebanks_of_the_same_words() -> None:
    with open_corpus([TREEBANK]) as corpus:
        record = next(iter(corpus))
    words = record.words or ()
    forms = [record.text[word.start : word.end] for word in words]
    for world in ("", "trees", "tags", "both", "words"):
        text = nulls.rows_of(record, world, np.random.default_rng(1))
        rows = [row.split("\t") for row in text.strip().split("\n")]
        assert sorted(row[1] for row in rows) == sorted(forms)
        assert ([row[1] for row in rows] == forms) == (world != "words")
        same_tags = [row[3] for row in rows] == [word.upos for word in words]
        assert same_tags == (world not in {"tags", "both"})
        same_trees = [int(row[6]) - 1 for row in rows] == [max(word.head, -1) for word in words]
        assert same_trees == (world not in {"trees", "both"})
        assert sorted(row[7] for row in rows) == sorted(word.relation for word in words)


def test_claims_of_a_model_are_counted_by_kind(
    tiny_folder: Callable[[str], Path],
) -> None:
    with open_corpus([TREEBANK]) as corpus:
        records = [record for record in corpus if record.words][:12]
    rng = np.random.default_rng(0)
    claims = nulls.measured(records, "both", rng, str(tiny_folder("bert")))
    assert {*claims} >= {*nulls.KINDS["both"]}
    assert not claims[nulls.RELATION]  # of 12 sentences


def test_no_difference_is_claimed_of_models_that_do_not_differ(
    tiny_folder: Callable[[str], Path],
) -> None:
    model = load_model(str(tiny_folder("bert")))

    def collected(network: object, dtype: str = "float32") -> Study:
        return collect(
            [str(TREEBANK)], network, model.tokenizer, dtype=dtype, limit=24, annotator="none",
            metrics="attention_to,sink_share", importance="off", circuits="off", control="none",
            progress=False,
        )  # fmt: skip

    claims = comparing.compared_pairs(collected, model.base_model, [*comparing.PAIRS], 0)
    assert {*claims["itself"]} >= {"a supported number", "attention beyond rounding", "numbers"}
    assert not claims.pop("seeds")["counterparts"]
    assert not any(claimed for pair in claims.values() for claimed in pair.values())
