"""Which tokens and pairs of tokens heads favour: as plain loops have it, whatever the batches."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import treebank
from bare_model import Bare, Given, given
from headbook.pages.head_parts.tokens import top_tokens
from headbook.passes import token_affinities
from headbook.report.results import stack_results
from headbook.run.collect import collect
from headbook.schema import HeadName
from headbook.study.study import Study, merge
from headbook.study.sums.token_sums import ANY_TOKEN, MIN_SENTENCES, Affinities
from headbook.study.token_tables import TOP_TOKENS
from naive_affinities import Item, Values, affinities, texts_with
from single_head import HeadAttention

Folder = Callable[[str], Path]
OPTIONS: dict[str, Any] = {
    "dtype": "float64",
    "annotator": "none",
    "importance": "off",
    "metrics": "attention_distance",
    "exemplars": 1,
    "sentence_pages": "1",
}
TREES = (*treebank.TREES, treebank.TREES[1])
TIMES = 3  # each sentence comes, so that there are enough for intervals


def naive(
    folder: Path, texts: list[tuple[Given, ...]], *, times: int = 1
) -> dict[Any, tuple[dict[Item, Values], dict[Item, int]]]:
    """By stack, layer and head what loops find, each text coming several times.

    With it, the number of different sentences of each item.
    """
    bare = Bare.load(folder, pairs=len(texts[0]) > 1)
    attentions: dict[Any, list[HeadAttention]] = {}
    for sides in texts:
        for stack, layer, head, attention in bare.looks(*sides):
            attentions.setdefault((stack, layer, head), []).append(attention)
    return {
        place: (affinities(each * times), texts_with(each)) for place, each in attentions.items()
    }


def item_of(sums: Affinities, place: int) -> tuple[str, int | None, int | None]:
    query, key = (int(each[place]) for each in (sums.query, sums.key))
    what = "pair" if ANY_TOKEN not in (query, key) else "query" if key == ANY_TOKEN else "key"
    return what, None if query == ANY_TOKEN else query, None if key == ANY_TOKEN else key


def check(sums: Affinities, stack: str, expected: dict[Any, Any], *, ends: bool = False) -> None:
    """Every item of every head, with its baselines, and with the ends of its interval."""
    places = [place for place in expected if place[0] == stack]
    for _, layer, head in places:
        wanted, texts = expected[stack, layer, head]
        ratios, items = sums.ratios(layer), [item_of(sums, n) for n in range(len(sums.query))]
        limits = np.array([[0, np.inf if key[0] == "key" else 1] for key in items]).T
        low, high = ratios.interval((limits[0], limits[1]))
        assert {*items} == wanted.keys()
        for n, item in enumerate(items):
            number, chance = wanted[item]
            assert ratios.value[head, n] == pytest.approx(number.value, abs=1e-9)
            assert ratios.n_sentences[head, n] == number.sentences
            assert sums.counts[0, layer, n] == number.events
            assert sums.even[layer, n] == pytest.approx(chance, abs=1e-9)
            every = [expected[place][0][item][0].value for place in places]
            assert sums.mean_head[n] == pytest.approx(sum(every) / len(every), abs=1e-9)
            assert sums.distinct(layer)[n] == (texts[item] >= MIN_SENTENCES)
            if ends:
                both = pytest.approx([number.low, number.high], abs=1e-7, nan_ok=True)
                assert [low[head, n], high[head, n]] == both


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_every_item_is_that_of_plain_loops(
    family: str, tiny_folder: Folder, tmp_path: Path
) -> None:
    """Intervals of the first alone: in a causal model some weights are 0 but for rounding."""
    file = treebank.write_trees(tmp_path / "trees.conllu", TREES * TIMES)
    study = collect(file, model=str(tiny_folder(family)), **OPTIONS)
    sums = study.corpus_sums.affinities["self"]
    assert (sums.floor, sums.looked) == (1, TIMES * len(TREES))
    assert np.isfinite(sums.ratios(0).interval()).any()
    found = naive(tiny_folder(family), [(given(tree),) for tree in TREES], times=TIMES)
    check(sums, "self", found, ends=family == "bert")


def test_queries_and_keys_may_be_of_two_texts(tiny_folder: Folder, tmp_path: Path) -> None:
    file = treebank.write_pairs(tmp_path / "pairs.jsonl")
    study = collect(file, model=str(tiny_folder("bart")), **OPTIONS)
    texts = [tuple(Given(text, []) for text in pair) for pair in treebank.PAIRS]
    expected = naive(tiny_folder("bart"), texts)
    for stack in ("encoder", "decoder", "cross"):
        check(study.corpus_sums.affinities[stack], stack, expected)


def test_any_split_and_any_padding_give_the_same(tiny_folder: Folder, tmp_path: Path) -> None:
    model = str(tiny_folder("bert"))
    parts = [
        treebank.write_trees(tmp_path / f"{name}.conllu", trees)
        for name, trees in (("a", TREES[:3]), ("b", TREES[3:]))
    ]
    whole = collect(parts, model=model, **OPTIONS)
    one_by_one = collect(parts, model=model, **OPTIONS, batch_tokens=1)
    studies = [collect(part, model=model, **OPTIONS) for part in parts]
    studies[0].save(tmp_path / "stored")
    merged = merge([Study.load(tmp_path / "stored"), studies[1]])
    for other in (one_by_one, merged):
        pd.testing.assert_frame_equal(other.top_tokens, whole.top_tokens, rtol=1e-8)
        assert other.corpus_sums.affinities["self"].looked == len(TREES)


def test_a_page_has_no_tokens_where_none_occurs_in_five_sentences(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    (tmp_path / "few.txt").write_text("the dog sees the bird\nthe bird sings\nthe dog runs\n")
    study = collect(tmp_path / "few.txt", model=str(tiny_folder("bert")), **OPTIONS)
    assert top_tokens(stack_results(study)["self"], HeadName("self", 0, 0)) is None


def pairs_in(table: pd.DataFrame) -> set[tuple[str, str]]:
    rows = table[table["role"] == "pair"]
    return {*zip(rows["query"], rows["key"], strict=True)}


def test_one_sentence_makes_no_top_token_however_often_it_comes(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    """Nor do four; five do. Equal sentences count once, also those of two studies."""
    model = str(tiny_folder("bert"))
    often = "the bird, the bird, the bird, the bird, the bird"
    others = [f"the dog {what}" for what in ("sees", "sleeps", "sings", "runs", "sees water")]
    (tmp_path / "four.txt").write_text("\n".join([*[often] * 6, *others[:4], *others[:4]]))
    (tmp_path / "fifth.txt").write_text("\n".join([often, others[4], others[0]]))
    four, fifth = (
        collect(tmp_path / f"{name}.txt", model=model, **OPTIONS) for name in ("four", "fifth")
    )
    pairs = pairs_in(four.top_tokens)
    assert not {("the", "bird"), ("the", "dog")} & pairs
    pairs = pairs_in(merge([four, fifth]).top_tokens)
    assert ("the", "dog") in pairs
    assert ("the", "bird") not in pairs


def test_the_table_holds_items_of_many_sentences_those_above_both_baselines_first(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    file = treebank.write_trees(tmp_path / "trees.conllu", treebank.MANY)
    table = collect(file, model=str(tiny_folder("bert")), **OPTIONS).top_tokens
    assert tuple(table.columns) == tuple(TOP_TOKENS.columns)
    assert (table["n_sentences"] >= MIN_SENTENCES).all()
    assert (table["count"] >= table["n_sentences"]).all()
    assert set(table["role"]) == {"query", "key", "pair"}
    assert ((table["query"] == "") == (table["role"] == "key")).all()
    np.testing.assert_allclose(table["ratio"], table["mean"] / table["uniform"])
    np.testing.assert_allclose(table["mean_head_ratio"], table["mean"] / table["mean_head"])
    seen = set()
    for _, rows in table.groupby(["layer", "head", "role"]):
        clear = (rows["low"] > rows["uniform"]) & (rows["low"] > rows["mean_head"])
        seen |= {*clear}
        assert clear.is_monotonic_decreasing
        assert rows[clear]["ratio"].is_monotonic_decreasing
    assert seen == {True, False}


def test_where_not_all_have_room_those_of_most_sentences_are_kept(
    tiny_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said by the least number of sentences, and by the sentences that were looked at."""
    file = treebank.write_trees(tmp_path / "trees.conllu", TREES)
    model = str(tiny_folder("bert"))
    every = collect(file, model=model, **OPTIONS).corpus_sums.affinities["self"]
    cell = 4 * token_affinities.BYTES_PER_HEAD + token_affinities.BYTES_PER_LAYER
    monkeypatch.setattr(token_affinities, "MAX_STACK_BYTES", 20 * 2 * cell)
    few = collect(file, model=model, **OPTIONS).corpus_sums.affinities["self"]
    assert len(few.query) <= 20 < len(every.query)
    assert few.floor > 1
    often = every.counts[2, 0] >= few.floor
    np.testing.assert_array_equal(few.query, every.query[often])
    np.testing.assert_allclose(few.sums, every.sums[..., often], atol=1e-12)
    monkeypatch.setattr(token_affinities, "MAX_PAIRS", 500)
    assert collect(file, model=model, **OPTIONS).corpus_sums.affinities["self"].looked < len(TREES)
