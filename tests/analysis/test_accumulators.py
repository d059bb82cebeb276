"""Summaries of a stream are right, and the same however the stream is split."""

import math
import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from operator import add

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from headbook.analysis.accumulators import (
    HashSample,
    RatioSums,
    TopK,
    add_fields,
    shift_fields,
)
from headbook.metrics.base import Ratio
from headbook.passes.batch_sums import BatchRatios
from headbook.passes.observers import PassResults
from headbook.schema import IntervalRule, SinkView
from headbook.study.corpus_sums import (
    CorpusSums,
    HeadDistances,
    HellingerSums,
    PairColumn,
    SampleSums,
)
from naive_ratios import Part, ratio

HEADS, LABELS = 2, 3
Floats = NDArray[np.float64]
Batch = tuple[Floats, Floats, NDArray[np.int64]]  # numerators, denominators, halves


def ratios(n: Floats, d: Floats, half: NDArray[np.int64]) -> RatioSums:
    """What survives of sentences with numerators and denominators ``(sentence, head, label)``."""
    parts = BatchRatios.of(
        [Ratio(torch.from_numpy(n), torch.from_numpy(d))], [n.shape[2]], n.shape[1]
    )
    return RatioSums(parts.sums(half)[0])


def sentences(seed: int, count: int) -> Batch:
    """Numerators, denominators of which some are 0, and halves."""
    random = np.random.default_rng(seed)
    shape = (count, HEADS, LABELS)
    d = random.integers(0, 4, shape).astype(float)
    return random.random(shape) * d, d, np.sort(random.integers(0, 2, count))


def splits(batch: Batch, cuts: list[int]) -> list[RatioSums]:
    n, d, half = batch
    edges = [0, *sorted(cuts), len(n)]
    return [ratios(n[a:b], d[a:b], half[a:b]) for a, b in pairwise(edges) if b > a]


BOUNDS = [(0.0, 1.0), (0.0, math.inf), (-1.0, 1.0), (-math.inf, math.inf), (1.0, math.inf)]


@pytest.mark.parametrize("limits", BOUNDS)
@pytest.mark.parametrize("spread", IntervalRule)
@pytest.mark.parametrize("count", [9, 40])
def test_value_and_interval_are_those_of_plain_loops(
    count: int, limits: tuple[float, float], spread: IntervalRule
) -> None:
    n, d, half = sentences(0, count)
    n[1::3, 1], n[:, 0, 2], n[:, 1, 2] = 0, 0, d[:, 1, 2]
    if limits[0] == 1:
        n += d
    found = ratios(n, d, half)
    low, high = found.interval(limits, spread)
    seen = 0
    for cell in np.ndindex(HEADS, LABELS):
        pairs = zip(n[:, *cell].tolist(), d[:, *cell].tolist(), strict=True)
        parts = [Part(above, below, below) for above, below in pairs]
        wanted = ratio(parts, limits, spread)
        ends = (np.clip(end[cell], *limits) for end in (low, high))
        behind = [found.n_sentences[cell], found.n_observations[cell], found.n_effective[cell]]
        np.testing.assert_allclose(
            [found.known(spread)[cell], *ends, *behind], wanted, rtol=1e-9, atol=1e-12
        )
        seen += not math.isnan(wanted.low)
    assert bool(seen) == (count > 20 and spread not in {IntervalRule.FEW, IntervalRule.CONSTANT})


def test_a_share_of_independent_sentences_has_wilsons_interval() -> None:
    """13 of 40 sentences, all of one size: as scipy has it, but for Student's t."""
    n, d = np.zeros((40, 1)), np.ones((40, 1))
    n[:13] = 1
    low, high = RatioSums.of(n, d, d, np.zeros(40, np.int64)).interval((0, 1))
    # The variance has n - 1 where Wilson has n.
    level = 1 - 2 * stats.norm.sf(stats.t.ppf(0.975, 39) * math.sqrt(40 / 39))
    wilson = stats.binomtest(13, 40).proportion_ci(level, method="wilson")
    assert (low[0], high[0]) == pytest.approx((wilson.low, wilson.high), abs=2e-4)


@pytest.mark.parametrize("found", [0, 30])
def test_what_was_never_or_always_found_has_an_interval_all_the_same(found: int) -> None:
    n, d = np.full((30, 1), found / 30), np.ones((30, 1))
    low, high = RatioSums.of(n, d, d, np.zeros(30, np.int64)).interval((0, 1))
    assert high[0] - low[0] > 0.1
    assert low[0] == pytest.approx(0) if found == 0 else high[0] == pytest.approx(1)


def drawn(kind: str, count: int, studies: int) -> tuple[Floats, Floats, float]:
    """Numerators, denominators ``(sentence, study)`` and the true ratio."""
    random = np.random.default_rng(1)
    shape = (count, studies)
    d = random.integers(1, 20, shape).astype(float)
    if kind == "dense":
        return d * 0.3 + random.normal(0, 0.1, shape) * np.sqrt(d), d, 0.3
    if kind == "counted":
        return random.binomial(d.astype(int), 0.02).astype(float), d, 0.02
    n = d * random.lognormal(-0.5, 1, shape)  # mean 1
    return n, d, 1.0


@pytest.mark.parametrize(
    ("kind", "limits"),
    [("dense", (0, 1)), ("dense", (-math.inf, math.inf)), ("counted", (0, 1)),
     ("skewed", (0, math.inf))],
)  # fmt: skip
@pytest.mark.parametrize("count", [30, 200])
def test_the_interval_covers_the_true_ratio_as_often_as_it_says(
    kind: str, limits: tuple[float, float], count: int
) -> None:
    """At least 95 % of 400 studies, but for what chance explains."""
    n, d, truth = drawn(kind, count, 400)
    found = RatioSums.of(n, d, d, np.zeros(count, np.int64))
    low, high = found.interval(limits)
    assert (high > low).all()
    assert ((low <= truth) & (high >= truth)).mean() > 0.925


def test_a_cell_without_denominator_is_missing() -> None:
    n, d, half = sentences(2, 30)
    n[:, 0, 0] = d[:, 0, 0] = 0
    found = ratios(n, d, half)
    low, high = found.interval()
    assert np.isnan([found.value[0, 0], low[0, 0], high[0, 0]]).all()
    assert found.n_sentences[0, 0] == found.n_observations[0, 0] == 0
    assert np.isfinite([found.value[0, 1], low[0, 1], high[0, 1]]).all()
    assert np.isnan(RatioSums.zero(3).value).all()


def test_few_sentences_give_a_value_but_no_interval() -> None:
    n, d = np.array([[[0.5]]]), np.array([[[2.0]]])
    one = ratios(n, d, np.zeros(1, dtype=np.int64))
    assert one.value[0, 0] == 0.25
    assert np.isnan(one.interval((0, 1))).all()
    nine = reduce(add, [one] * 9)
    assert np.isnan(nine.interval((0, 1))).all()
    for limits in ((0, 1), (-math.inf, math.inf)):
        assert np.isnan((nine + one).interval(limits)).all()  # equal sentences are no evidence
        other = ratios(np.array([[[0.4]]]), d, np.zeros(1, dtype=np.int64))
        assert np.isfinite((nine + other).interval(limits)).all()
        assert np.isnan((reduce(add, [one] * 8) + other).interval(limits)).all()


def test_where_one_sentence_decides_there_is_no_interval() -> None:
    n, d = np.ones((40, 1)), np.ones((40, 1))
    n[0], d[0] = 300, 400
    n[1::2] = 0
    found = RatioSums.of(n, d, d, np.zeros(40, np.int64))
    assert found.n_effective[0] < 2
    assert np.isnan(found.interval((0, 1))).all()


def test_a_sentence_with_denominator_zero_takes_no_part() -> None:
    n, d, half = sentences(3, 12)
    d[5:], n[5:] = 0, 0
    whole, part = ratios(n, d, half), ratios(n[:5], d[:5], half[:5])
    np.testing.assert_array_equal(whole.sums, part.sums)


@settings(max_examples=30, derandomize=True)
@given(
    seed=st.integers(0, 999),
    count=st.integers(1, 12),
    cuts=st.lists(st.integers(0, 12), max_size=4),
)
def test_any_split_gives_the_same_sums(seed: int, count: int, cuts: list[int]) -> None:
    batch = sentences(seed, count)
    merged = reduce(add, splits(batch, [min(cut, count) for cut in cuts]))
    np.testing.assert_allclose(merged.sums, ratios(*batch).sums, rtol=1e-12, atol=1e-12)


def test_adding_is_associative_and_has_a_zero() -> None:
    a, b, c = (ratios(*sentences(seed, 5)) for seed in range(3))
    np.testing.assert_allclose(((a + b) + c).sums, (a + (b + c)).sums, rtol=1e-12)
    np.testing.assert_array_equal((a + b).sums, (b + a).sums)
    np.testing.assert_array_equal((RatioSums.zero(HEADS, LABELS) + a).sums, a.sums)


def test_the_halves_are_the_sentences_of_each_half_and_add_to_the_whole() -> None:
    n, d, half = sentences(4, 20)
    found = ratios(n, d, half)
    for number in (0, 1):
        mine = half == number
        np.testing.assert_allclose(
            found.split(number).value, ratios(n[mine], d[mine], half[mine]).value, rtol=1e-12
        )
    np.testing.assert_array_equal((found.split(0) + found.split(1)).sums, found.sums)
    np.testing.assert_array_equal(found[1, 2].value, found.value[1, 2])


def test_heads_together_are_their_sums_sentence_by_sentence() -> None:
    n, d, half = sentences(5, 15)
    parts = BatchRatios.of([Ratio(torch.from_numpy(n), torch.from_numpy(d))], [LABELS], HEADS)
    _, together = parts.sums(half)
    expected = ratios(n.sum(1, keepdims=True), d.sum(1, keepdims=True), half)
    np.testing.assert_allclose(together, expected.sums, rtol=1e-12)


def test_heads_are_added_up_layer_by_layer() -> None:
    n, d, half = sentences(8, 15)
    for each in (Ratio(torch.from_numpy(n), torch.from_numpy(d)),
                 Ratio(torch.from_numpy(n), torch.from_numpy(d[:, :1]))):  # fmt: skip
        parts = BatchRatios.of([each], [LABELS], HEADS)
        _, layers = parts.sums(half, [0, 1, HEADS])
        for layer, heads in enumerate((slice(0, 1), slice(1, HEADS))):
            below = np.broadcast_to(each.denominator.numpy(), n.shape)[:, heads]
            expected = ratios(n[:, heads].sum(1, keepdims=True), below.sum(1, keepdims=True), half)
            np.testing.assert_allclose(layers[:, :, layer], expected.sums[:, :, 0], rtol=1e-12)


def test_one_denominator_may_serve_all_labels_and_heads() -> None:
    n, _, half = sentences(6, 8)
    shared = torch.arange(8.0, dtype=torch.float64)[:, None, None]
    whole = Ratio(torch.from_numpy(n), shared.expand(-1, HEADS, LABELS))
    for narrow in (shared, shared.expand(-1, HEADS, 1)):
        ratios = [Ratio(torch.from_numpy(n), narrow), whole]
        sums = BatchRatios.of(ratios, [LABELS, LABELS], HEADS).sums(half)[0]
        np.testing.assert_allclose(sums[..., :LABELS], sums[..., LABELS:], rtol=1e-12)


def test_labels_that_are_not_given_are_nothing() -> None:
    n, d, half = sentences(7, 9)
    n[..., 1] = 0
    alone = Ratio(torch.from_numpy(n[..., [0, 2]]), torch.from_numpy(d[..., :1]), labels=[0, 2])
    shared = Ratio(torch.from_numpy(n), torch.from_numpy(d[..., :1]))
    one, other = (BatchRatios.of([each], [LABELS], HEADS).sums(half)[0] for each in (alone, shared))
    np.testing.assert_allclose(one, other, rtol=1e-12)
    own = Ratio(torch.from_numpy(n[..., [0, 2]]), torch.from_numpy(d[..., [0, 2]]), labels=[0, 2])
    d[..., 1] = 0
    np.testing.assert_allclose(
        BatchRatios.of([own], [LABELS], HEADS).sums(half)[0], ratios(n, d, half).sums, rtol=1e-12
    )


def top(k: int, rows: list[tuple[float, int, int]]) -> TopK:
    """The best of sentences given as score, index, key, for one cell."""
    scores, index, key = (np.array(column) for column in zip(*rows, strict=True))
    return TopK.of(k, scores.astype(float)[:, None], index, key.astype(np.uint64))


def listed(best: TopK) -> list[tuple[float, int, int]]:
    cells = zip(best.score[0], best.index[0], best.content_hash[0], strict=True)
    return [(float(score), int(index), int(key)) for score, index, key in cells if index >= 0]


def by_hand(k: int, rows: list[tuple[float, int, int]]) -> list[tuple[float, int, int]]:
    """Sorted by score, then by place; of equal keys the first in that order."""
    best: dict[int, tuple[float, int, int]] = {}
    for entry in sorted(rows, key=lambda entry: (-entry[0], entry[1])):
        best.setdefault(entry[2], entry)
    return sorted(best.values(), key=lambda entry: (-entry[0], entry[1]))[:k]


ROWS = st.lists(st.integers(1, 6), min_size=1, max_size=12)  # keys; a key decides the score


@settings(max_examples=60, derandomize=True)
@given(keys=ROWS, cut=st.integers(0, 12), k=st.integers(1, 4))
def test_the_best_are_those_of_a_sorted_list_for_any_split(
    keys: list[int], cut: int, k: int
) -> None:
    rows = [(round((key * 7 % 4) / 4, 6), index, key) for index, key in enumerate(keys)]
    parts = [top(k, part) for part in (rows[:cut], rows[cut:]) if part]
    for order in (parts, parts[::-1]):
        assert listed(reduce(add, order)) == by_hand(k, rows)
    assert listed(TopK.zero(k, 1) + top(k, rows)) == by_hand(k, rows)


def test_ties_go_to_the_earlier_sentence() -> None:
    rows = [(0.5, 7, 1), (0.5, 2, 2), (0.9, 9, 3), (0.5 + 1e-9, 4, 4)]
    assert listed(top(3, rows)) == [(0.9, 9, 3), (0.5, 2, 2), (0.5, 4, 4)]
    merged = top(3, rows[:1]) + top(3, rows[1:])
    assert [index for _, index, _ in listed(merged)] == [9, 2, 4]


def test_an_equal_text_counts_once_and_makes_room_for_another() -> None:
    rows = [(0.9, 0, 11), (0.9, 1, 11), (0.4, 2, 12)]
    for best in (top(2, rows), top(2, rows[:1]) + top(2, rows[1:])):
        assert listed(best) == [(0.9, 0, 11), (0.4, 2, 12)]


def test_of_equal_texts_the_earlier_counts_even_if_rounding_favours_the_later() -> None:
    earlier, later = top(2, [(0.5, 0, 11)]), top(2, [(0.500001, 3, 11)])
    assert listed(earlier + later) == listed(later + earlier) == [(0.5, 0, 11)]


def test_fewer_than_k_leave_places_empty() -> None:
    best = top(3, [(0.2, 5, 1)])
    assert best.index.tolist() == [[5, -1, -1]]
    assert best.score[0, 1:].tolist() == [-np.inf, -np.inf]
    assert listed(top(3, [(-np.inf, 0, 1), (0.1, 1, 2)])) == [(0.1, 1, 2)]


@settings(max_examples=40, derandomize=True)
@given(
    keys=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20),
    cut=st.integers(0, 20),
    size=st.integers(1, 8),
)
def test_a_sample_is_the_sentences_with_the_smallest_hashes(
    keys: list[int], cut: int, size: int
) -> None:
    key = np.array(keys, dtype=np.uint64)
    index = np.arange(len(keys))
    payload = np.arange(len(keys), dtype=np.float32)[:, None] * 10
    expected = sorted(range(len(keys)), key=lambda place: (keys[place], place))[:size]
    parts = [
        HashSample.of(size, key[part], index[part], payload[part])
        for part in (slice(0, cut), slice(cut, None))
    ]
    for sample in (
        parts[0] + parts[1],
        parts[1] + parts[0],
        HashSample.zero(size, 1) + parts[0] + parts[1],
    ):
        assert sample.index.tolist() == expected
        assert sample.content_hash.tolist() == [keys[position] for position in expected]
        assert sample.payload[:, 0].tolist() == [position * 10 for position in expected]


def test_no_more_than_one_batch_is_kept_beside_the_sums() -> None:
    """With many heads the tables of a batch are as large as those of all."""
    found: list[weakref.ref[CorpusSums]] = []

    def batches() -> Iterator[PassResults]:
        for _ in range(4):
            assert not [each for each in found if each() is not None]
            found.append(weakref.ref(sums := CorpusSums(counts=Counter(batches=1))))
            yield PassResults(sums)
            del sums

    assert PassResults.merge(batches()).corpus_sums.counts == {"batches": 4}
    assert len(found) == 4


def test_sums_are_added_and_shifted_field_by_field() -> None:
    """Descriptions stay, missing parts are taken from the other, mappings merge by key."""
    rng = np.random.default_rng(0)
    columns = (PairColumn("head_distance", SinkView.RAW),)
    one, other = (
        HeadDistances(columns, rng.random((1, 3, 3)), rng.random((1, 3, 3)), n) for n in (2, 5)
    )
    alike = HellingerSums(*rng.random((2, 1, 3, 3)))
    both = add_fields(one, replace(other, alike=alike))
    assert (both.columns, both.sentences, both.alike) == (columns, 7, alike)
    np.testing.assert_array_equal(both.total, one.total + other.total)
    np.testing.assert_array_equal(both.rows, one.rows + other.rows)
    counts = add_fields(
        CorpusSums(distances={"a": one, "b": one}, counts=Counter(x=1)),
        CorpusSums(distances={"b": other, "c": other}, counts=Counter(x=2, y=1)),
    )
    assert [*counts.distances] == ["a", "b", "c"]
    assert [each.sentences for each in counts.distances.values()] == [2, 7, 5]
    assert counts.counts == Counter(x=3, y=1)
    assert add_fields(one, other, sentences=0).sentences == 0

    sample = HashSample.of(4, np.arange(3, dtype=np.uint64), np.arange(3), np.zeros((3, 1)))
    sums = SampleSums((), sample)
    shifted = shift_fields(CorpusSums(sampled={"a": sums}, counts=Counter(x=1)), 10)
    assert shifted.sampled["a"].stats.index.tolist() == [10, 11, 12]
    assert shifted.counts == Counter(x=1)
    assert sums.stats.index.tolist() == [0, 1, 2]
