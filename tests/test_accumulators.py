"""Summaries of a stream are right, and the same however the stream is split."""

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

from headbook.metrics.base import Ratio
from headbook.summaries.accumulators import Ratios, Reservoir, TopK
from headbook.summaries.reduce import Parts

HEADS, LABELS = 2, 3
Floats = NDArray[np.float64]
Batch = tuple[Floats, Floats, NDArray[np.int64]]  # numerators, denominators, halves


def ratios(n: Floats, d: Floats, half: NDArray[np.int64]) -> Ratios:
    """What survives of sentences with numerators and denominators ``(sentence, head, label)``."""
    parts = Parts.of([Ratio(torch.from_numpy(n), torch.from_numpy(d))], [n.shape[2]], n.shape[1])
    return Ratios(parts.sums(half)[0])


def sentences(seed: int, count: int) -> Batch:
    """Numerators, denominators of which some are 0, and halves."""
    random = np.random.default_rng(seed)
    shape = (count, HEADS, LABELS)
    d = random.integers(0, 4, shape).astype(float)
    return random.random(shape) * d, d, np.sort(random.integers(0, 2, count))


def naive(n: Floats, d: Floats) -> tuple[float, float, float]:
    """One cell by the textbook: ratio of sums, linearised variance over clusters, Student's t."""
    n, d = n[d > 0], d[d > 0]
    value = n.sum() / d.sum()
    residuals = n - value * d
    count = len(n)
    variance = count / (count - 1) * (residuals**2).sum() / d.sum() ** 2
    reach = stats.t.ppf(0.975, count - 1) * np.sqrt(variance)
    return value, value - reach, value + reach


def splits(batch: Batch, cuts: list[int]) -> list[Ratios]:
    n, d, half = batch
    edges = [0, *sorted(cuts), len(n)]
    return [ratios(n[a:b], d[a:b], half[a:b]) for a, b in pairwise(edges) if b > a]


def test_value_and_interval_are_those_of_the_textbook() -> None:
    n, d, half = sentences(0, 40)
    found = ratios(n, d, half)
    low, high = found.interval()
    for cell in np.ndindex(HEADS, LABELS):
        expected = naive(n[:, *cell], d[:, *cell])
        assert (found.value[cell], low[cell], high[cell]) == pytest.approx(expected, rel=1e-9)
        assert found.sentences[cell] == (d[:, *cell] > 0).sum()
        assert found.events[cell] == d[:, *cell].sum()


def test_the_interval_covers_the_true_ratio_as_often_as_it_says() -> None:
    """95 % of 400 studies of 30 sentences, give or take what chance explains."""
    random = np.random.default_rng(1)
    d = random.integers(1, 20, (30, 400, 1)).astype(float)
    n = d * 0.3 + random.normal(0, 0.1, d.shape) * np.sqrt(d)
    low, high = ratios(n, d, np.zeros(30, dtype=np.int64)).interval()
    covered = ((low <= 0.3) & (high >= 0.3)).mean()
    assert 0.92 < covered < 0.98


def test_a_cell_without_denominator_is_missing() -> None:
    n, d, half = sentences(2, 10)
    n[:, 0, 0] = d[:, 0, 0] = 0
    found = ratios(n, d, half)
    low, high = found.interval()
    assert np.isnan([found.value[0, 0], low[0, 0], high[0, 0]]).all()
    assert found.sentences[0, 0] == found.events[0, 0] == 0
    assert np.isfinite([found.value[0, 1], low[0, 1], high[0, 1]]).all()
    assert np.isnan(Ratios.zero(3).value).all()


def test_one_sentence_gives_a_value_but_no_interval() -> None:
    n, d = np.array([[[0.5]]]), np.array([[[2.0]]])
    found = ratios(n, d, np.zeros(1, dtype=np.int64))
    assert found.value[0, 0] == 0.25
    assert np.isnan(found.interval()).all()
    twice = found + found
    assert twice.interval()[0][0, 0] == pytest.approx(0.25)  # two equal sentences do not differ


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
    np.testing.assert_array_equal((Ratios.zero(HEADS, LABELS) + a).sums, a.sums)


def test_the_halves_are_the_sentences_of_each_half_and_add_to_the_whole() -> None:
    n, d, half = sentences(4, 20)
    found = ratios(n, d, half)
    for number in (0, 1):
        mine = half == number
        np.testing.assert_allclose(
            found.half(number).value, ratios(n[mine], d[mine], half[mine]).value, rtol=1e-12
        )
    np.testing.assert_array_equal((found.half(0) + found.half(1)).sums, found.sums)
    np.testing.assert_array_equal(found[1, 2].value, found.value[1, 2])


def test_heads_together_are_their_sums_sentence_by_sentence() -> None:
    n, d, half = sentences(5, 15)
    parts = Parts.of([Ratio(torch.from_numpy(n), torch.from_numpy(d))], [LABELS], HEADS)
    _, together = parts.sums(half)
    expected = ratios(n.sum(1, keepdims=True), d.sum(1, keepdims=True), half)
    np.testing.assert_allclose(together, expected.sums, rtol=1e-12)


def test_heads_are_added_up_layer_by_layer() -> None:
    n, d, half = sentences(8, 15)
    for ratio in (Ratio(torch.from_numpy(n), torch.from_numpy(d)),
                  Ratio(torch.from_numpy(n), torch.from_numpy(d[:, :1]))):  # fmt: skip
        parts = Parts.of([ratio], [LABELS], HEADS)
        _, layers = parts.sums(half, [0, 1, HEADS])
        for layer, heads in enumerate((slice(0, 1), slice(1, HEADS))):
            below = np.broadcast_to(ratio.denominator.numpy(), n.shape)[:, heads]
            expected = ratios(n[:, heads].sum(1, keepdims=True), below.sum(1, keepdims=True), half)
            np.testing.assert_allclose(layers[:, :, layer], expected.sums[:, :, 0], rtol=1e-12)


def test_one_denominator_may_serve_all_labels_and_heads() -> None:
    n, _, half = sentences(6, 8)
    shared = torch.arange(8.0, dtype=torch.float64)[:, None, None]
    whole = Ratio(torch.from_numpy(n), shared.expand(-1, HEADS, LABELS))
    for narrow in (shared, shared.expand(-1, HEADS, 1)):
        ratios = [Ratio(torch.from_numpy(n), narrow), whole]
        sums = Parts.of(ratios, [LABELS, LABELS], HEADS).sums(half)[0]
        np.testing.assert_allclose(sums[..., :LABELS], sums[..., LABELS:], rtol=1e-12)


def test_labels_that_are_not_given_are_nothing() -> None:
    n, d, half = sentences(7, 9)
    n[..., 1] = 0
    alone = Ratio(torch.from_numpy(n[..., [0, 2]]), torch.from_numpy(d[..., :1]), labels=[0, 2])
    shared = Ratio(torch.from_numpy(n), torch.from_numpy(d[..., :1]))
    one, other = (Parts.of([each], [LABELS], HEADS).sums(half)[0] for each in (alone, shared))
    np.testing.assert_allclose(one, other, rtol=1e-12)
    own = Ratio(torch.from_numpy(n[..., [0, 2]]), torch.from_numpy(d[..., [0, 2]]), labels=[0, 2])
    d[..., 1] = 0
    np.testing.assert_allclose(
        Parts.of([own], [LABELS], HEADS).sums(half)[0], ratios(n, d, half).sums, rtol=1e-12
    )


def top(k: int, rows: list[tuple[float, int, int]]) -> TopK:
    """The best of sentences given as score, index, key, for one cell."""
    scores, index, key = (np.array(column) for column in zip(*rows, strict=True))
    return TopK.of(k, scores.astype(float)[:, None], index, key.astype(np.uint64))


def listed(best: TopK) -> list[tuple[float, int, int]]:
    cells = zip(best.score[0], best.index[0], best.key[0], strict=True)
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
    rows = [(round((key * 7 % 4) / 4, 6), place, key) for place, key in enumerate(keys)]
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
        Reservoir.of(size, key[part], index[part], payload[part])
        for part in (slice(0, cut), slice(cut, None))
    ]
    for sample in (
        parts[0] + parts[1],
        parts[1] + parts[0],
        Reservoir.zero(size, 1) + parts[0] + parts[1],
    ):
        assert sample.index.tolist() == expected
        assert sample.key.tolist() == [keys[place] for place in expected]
        assert sample.payload[:, 0].tolist() == [place * 10 for place in expected]
