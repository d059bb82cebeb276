"""Sums of buckets of sentences, and maps of a few of them: by which two models are compared."""

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from grouped_studies import ROWS, write_rows
from headbook.analysis.accumulators import Estimates, RatioSums
from headbook.analysis.arrays import Floats
from headbook.metrics import all_metrics, limits_in_texts
from headbook.metrics.base import ContextMetric
from headbook.report.results import stack_results
from headbook.run.collect import collect
from headbook.schema import NO_OUTLIERS, HeadKey, ResidualPoint, Side, SinkView, TokenKey
from headbook.study.corpus_sums import CorpusSums
from headbook.study.sentence_data import MAX_MAPPED_SENTENCES
from headbook.study.storage import ARRAYS_FILE, arrays, write_arrays
from headbook.study.study import Study, merge
from headbook.study.sums.buckets import HeadBuckets, SentenceSet, TokenBuckets, bucket_of
from headbook.text.batch import text_hash
from sealed_studies import reseal

Made = Callable[..., Study]
COLUMN = HeadKey("attention_distance", SinkView.RAW, "")


@pytest.fixture(scope="module")
def made(tiny_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A study of some of the grouped sentences."""

    def of(first: int, last: int, model: str = "gpt2") -> Study:
        file = write_rows(tmp_path_factory.mktemp("rows") / "rows.jsonl", ROWS[first:last])
        model = str(tiny_folder(model))
        return collect(
            file, model=model, dtype="float64", annotator="none", facet="none", importance="off"
        )

    return of


@pytest.fixture(scope="module")
def whole(made: Made) -> Study:
    """All of them."""
    return made(0, len(ROWS))


def test_buckets_add_up_to_the_table(whole: Study) -> None:
    table = whole.head_tables["self"]
    places = {column: index for index, column in enumerate(table.columns)}
    seen = set()
    for part in whole.corpus_sums.buckets["self"]:
        at = [places[column] for column in part.columns]
        n, d = (sums[..., at] for sums in (table.heads.total["n"], table.heads.total["d"]))
        np.testing.assert_allclose(part.n.sum(0), n, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(
            np.broadcast_to(part.d.sum(0), n.shape), d, rtol=1e-12, atol=1e-12
        )
        seen |= {column.metric for column in part.columns}
    assert {"attention_distance", "context_similarity", "induction_score", "attention_to"} <= seen
    assert "offset_profile" not in seen


def test_buckets_of_tokens_add_up_to_the_table(whole: Study) -> None:
    sums = whole.corpus_sums
    tables = {
        column: table["self"].layers.total
        for table in (sums.tokens, sums.vocabulary, sums.flows)
        for column in table["self"].columns
    }
    places = {
        column: at
        for table in (sums.tokens, sums.vocabulary, sums.flows)
        for at, column in enumerate(table["self"].columns)
    }
    seen = set()
    for part in sums.token_buckets["self"]:
        for at, column in enumerate(part.columns):
            for name, kept in (("n", part.n), ("d", part.d)):
                total = tables[column][name][:, places[column]]
                added = np.broadcast_to(kept[..., at].sum(0), total.shape)
                np.testing.assert_allclose(added, total, rtol=1e-12, atol=1e-12)
            seen.add((column.metric, column.label))
    assert {("cosine_to_input", "content"), ("mixing_ratio", "all")} <= seen
    assert {label for _, label in seen} == {"all", "content", "function", "special", NO_OUTLIERS}


def test_a_bucket_of_tokens_is_the_sum_of_its_sentences(whole: Study) -> None:
    """Of what was kept of every token, one by one: all sentences have a page here."""
    part = of_tokens(whole.corpus_sums, "cosine_to_input")
    at = part.columns.index(TokenKey("cosine_to_input", ResidualPoint.POST, None, "all"))
    sentences = whole.sentence_data.listed
    assert len(sentences) == len(ROWS)
    rows = whole.tokens[whole.tokens["metric"] == "cosine_to_input"]
    rows = rows[rows["state"] == "out"].set_index(["sentence", "layer", "position"])
    n = np.zeros((part.size, part.n.shape[1]))
    d = np.zeros_like(n)
    for sentence in sentences:
        text = sentence.texts[Side.SOURCE]
        bucket = text_hash([text.text]) % part.size
        for layer, (position, special) in product(range(n.shape[1]), enumerate(text.special)):
            if not special:
                n[bucket, layer] += rows.loc[(sentence.number, layer, position), "value"]
                d[bucket, layer] += 1
    np.testing.assert_array_equal(np.flatnonzero(d.any(1)), part.keys)
    np.testing.assert_allclose(part.n[..., at], n[part.keys], rtol=1e-6)
    np.testing.assert_array_equal(np.broadcast_to(part.d[..., at], part.n.shape[:2]), d[part.keys])


def test_a_bucket_holds_its_sentences(whole: Study, made: Made) -> None:
    alone = made(0, 1).corpus_sums
    assert alone.texts is not None
    key = int(bucket_of(alone.texts.smallest.content_hash, 256)[0])
    mine, theirs = (bucket(sums, COLUMN, key) for sums in (alone, whole.corpus_sums))
    others = [made(i, i + 1).corpus_sums for i in range(1, len(ROWS))]
    others = [sums for sums in others if key in part_of(sums, COLUMN).keys]
    for other in others:
        added = bucket(other, COLUMN, key)
        mine = mine[0] + added[0], mine[1] + added[1]
    for one, another in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(one, another, rtol=1e-9)


def part_of(sums: CorpusSums, column: HeadKey) -> HeadBuckets:
    """The buckets that have a column."""
    return next(part for part in sums.buckets["self"] if column in part.columns)


def bucket(sums: CorpusSums, column: HeadKey, key: int) -> tuple[Floats, Floats]:
    """Numerators and denominators of one bucket."""
    part = part_of(sums, column)
    place, at = part.keys.tolist().index(key), part.columns.index(column)
    return part.n[place, ..., at], part.d[place, ..., at]


def test_parts_add_up_to_the_whole(whole: Study, made: Made, tmp_path: Path) -> None:
    middle = len(ROWS) // 2
    made(0, middle).save(tmp_path / "one")
    both = merge([Study.load(tmp_path / "one"), made(middle, len(ROWS))])
    sums, every = both.corpus_sums, whole.corpus_sums
    for one, another in zip(sums.buckets["self"], every.buckets["self"], strict=True):
        if isinstance(all_metrics()[one.columns[0].metric], ContextMetric):
            continue  # what is similar is found in each part by itself
        assert one.keys.tolist() == another.keys.tolist()
        np.testing.assert_allclose(one.n, another.n, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(one.d, another.d, rtol=1e-9, atol=1e-12)
    cosines, others = (of_tokens(each, "cosine_to_input") for each in (sums, every))
    assert cosines.keys.tolist() == others.keys.tolist()
    np.testing.assert_allclose(cosines.n, others.n, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(cosines.d, others.d)
    assert sums.texts is not None
    assert every.texts is not None
    np.testing.assert_array_equal(sums.texts.prints, every.texts.prints)
    np.testing.assert_array_equal(sums.texts.smallest.index, every.texts.smallest.index)
    kept = both.map_sample.sentences, whole.map_sample.sentences
    assert kept[0].keys() == kept[1].keys()
    for key, sentence in kept[0].items():
        np.testing.assert_allclose(
            sentence.maps["self"].astype(float),
            kept[1][key].maps["self"].astype(float),
            atol=1e-3,
        )


def test_a_study_without_sums_of_tokens_leaves_none(made: Made, tmp_path: Path) -> None:
    """Such as earlier versions have written; the other's would be of half the sentences."""
    new = made(0, 3)
    made(3, 6).save(tmp_path / "earlier")
    earlier = Study.load(without_token_buckets(tmp_path / "earlier"))
    assert earlier.corpus_sums.buckets
    assert not earlier.corpus_sums.token_buckets
    for both in (merge([new, earlier]), merge([earlier, new])):
        assert not both.corpus_sums.token_buckets
        assert both.manifest.counts["sentences"] == 6


def without_token_buckets(folder: Path) -> Path:
    """A stored study as if it had been written before there were any."""
    file = folder / ARRAYS_FILE
    with safe_open(file, framework="numpy") as opened:
        layout = json.loads(opened.metadata()["layout"])
    del layout["corpus_sums"]["token_buckets"]
    write_arrays(file, arrays(file), json.dumps(layout))
    reseal(folder)
    return folder


def of_tokens(sums: CorpusSums, metric: str) -> TokenBuckets:
    """The buckets of a metric of tokens."""
    parts = sums.token_buckets["self"]
    return next(part for part in parts if metric in {column.metric for column in part.columns})


def test_fewer_buckets_hold_the_same() -> None:
    draw = np.random.default_rng(0)
    hashes = draw.integers(0, 2**63, 500).astype(np.uint64)
    n = draw.random((500, 2, 3, 1))

    def of(size: int) -> HeadBuckets:
        place = bucket_of(hashes, size)
        limit = np.zeros((size, 2, 3, 1))
        np.add.at(limit, place, n)
        return HeadBuckets(size, np.arange(size), limit, limit[:, :, :1], columns=(COLUMN,))

    fewer, asked = of(256).of_size(64), of(64)
    np.testing.assert_allclose(fewer.n, asked.n)
    np.testing.assert_array_equal(fewer.keys, asked.keys)


def test_texts_tell_which_sentences_there_are() -> None:
    hashes = np.arange(10, dtype=np.uint64) * np.uint64(2**60 + 7)
    places, tokens = np.arange(10), np.array([3, 9, 4, 5, 66, 2, 7, 8, 6, 1])

    def of(part: slice) -> SentenceSet:
        return SentenceSet.of(hashes[part], places[part], tokens[part])

    one, other = of(slice(4)) + of(slice(4, 10)), of(slice(None, None, -1))
    np.testing.assert_array_equal(one.prints, other.prints)
    np.testing.assert_array_equal(one.smallest.index, other.smallest.index)
    assert (one.max_tokens, other.max_tokens, of(slice(4)).max_tokens) == (66, 66, 9)
    assert not np.array_equal(one.prints, of(slice(9)).prints)


def test_no_interval_goes_beyond_what_the_longest_text_allows(whole: Study) -> None:
    longest = max(len(x.texts[Side.SOURCE].special) for x in whole.sentence_data.listed)
    assert whole.corpus_sums.max_tokens == longest
    for table in (whole.heads, whole.layers, whole.controls):
        of_distance = table[table["metric"] == "attention_distance"]
        assert of_distance["high"].max() <= longest - 1
    results = stack_results(whole)["self"]
    rows = whole.heads[whole.heads["metric"] == "attention_distance"]
    for view in SinkView:
        highs = results.heads(*COLUMN._replace(view=view)).high.ravel()
        in_table = rows[rows["view"] == str(view)]["high"].to_numpy()
        np.testing.assert_array_equal(highs, in_table)


def test_an_interval_that_few_long_sentences_widen_is_clipped() -> None:
    """A mean distance of 9.2 had an interval to 118 where no distance exceeds 66."""
    n, d = np.ones((12, 1)), np.ones((12, 1))
    n[0] = 66.0
    wide = Estimates.of(RatioSums.of(n, d, d, np.arange(12) % 2), (0, np.inf))
    assert wide.at(0).high > 66
    limits = limits_in_texts("attention_distance", 67)
    assert limits == (0.0, 66.0)
    clipped = wide.within(limits).at(0)
    assert clipped[:3] == (*wide.at(0)[:2], 66)
    assert limits_in_texts("attention_distance", np.inf) == (0.0, np.inf)
    assert limits_in_texts("dependency_alignment", 67) == (0.0, 1.0)


def test_maps_of_a_few_sentences_are_kept(whole: Study) -> None:
    sentences = whole.map_sample.sentences
    assert 0 < len(sentences) <= MAX_MAPPED_SENTENCES
    for sentence in sentences.values():
        maps, (text,) = sentence.maps["self"].astype(float), sentence.texts.values()
        stored = whole.sentence_data.maps.get(("self", sentence.index))
        assert maps.shape[2:] == (len(text.pieces),) * 2
        np.testing.assert_allclose(maps.sum(-1), 1, atol=5e-3)
        if stored is not None:
            np.testing.assert_allclose(maps, stored / 255, atol=3e-3)
