"""Heads against the best fixed offset: choice on one half, report on the other, all at once."""

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from headbook.analysis.accumulators import Reservoir
from headbook.analysis.flips import FLIPS, family_wise
from headbook.attention.relations import LABELS, OFFSETS
from headbook.report.numbers import inference
from headbook.report.numbers.inference import best_offsets, best_places, relation_tests
from headbook.study.summaries.sums import RelationHits
from ratios import Part, ratio

LAYERS, HEADS = 2, 3
USED = (3, 14, 60)  # places of the labels that words have here
ALL = np.ones((LAYERS, HEADS), dtype=bool)


class Counts(NamedTuple):
    """Sentences one by one: words found ``(sentence, layer, head, label)``, and asked for."""

    hits: NDArray[np.uint16]
    asked: NDArray[np.uint16]
    keys: NDArray[np.uint64]

    @property
    def found(self) -> RelationHits:
        """As a study keeps them."""
        places = np.arange(len(self.keys))
        size = len(places)
        return RelationHits(
            Reservoir.of(size, self.keys, places, self.hits),
            Reservoir.of(size, self.keys, places, self.asked),
        )


def drawn(seed: int, sentences: int = 60) -> Counts:
    """Heads and offsets that find words by chance."""
    draw = np.random.default_rng(seed)
    hits = np.zeros((sentences, LAYERS, HEADS, len(LABELS)), np.uint16)
    asked = np.zeros((sentences, len(LABELS), 1 + len(OFFSETS)), np.uint16)
    words = draw.integers(0, 5, (sentences, len(USED)))
    asked[:, USED, 0] = words
    asked[:, USED, 1:] = draw.binomial(words[..., None], draw.uniform(0, 0.3, len(OFFSETS)))
    chances = draw.uniform(0, 0.6, (LAYERS, HEADS, len(USED)))
    hits[..., USED] = draw.binomial(words[:, None, None], chances)
    return Counts(hits, asked, draw.integers(0, 2**63, sentences, dtype=np.uint64))


def naive_signs(key: int) -> list[int]:
    """Signs of a sentence in all flips: splitmix64 seeded with its hash, lowest bits first."""
    whole, state = 2**64, key
    signs: list[int] = []
    while len(signs) < FLIPS:
        state = (state + 0x9E3779B97F4A7C15) % whole
        z = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % whole
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % whole
        z ^= z >> 31
        signs += [1 if z >> bit & 1 else -1 for bit in range(64)]
    return signs[:FLIPS]


def statistic(differences: list[int], signs: list[int]) -> float:
    root = math.sqrt(sum(d * d for d in differences))
    return sum(s * d for s, d in zip(signs, differences, strict=True)) / root if root else 0.0


class Chosen(NamedTuple):
    """What one label's choice half says, and the reporting half's sentences."""

    head: tuple[int, int]
    by_layer: list[int]
    offset: int
    reported: list[int]


def naive_choice(counts: Counts, label: int) -> Chosen:
    first = [i for i, key in enumerate(counts.keys) if int(key) % 2 == 0]
    total = {
        (a, b): sum(int(counts.hits[i, a, b, label]) for i in first)
        for a in range(LAYERS)
        for b in range(HEADS)
    }
    at = [sum(int(counts.asked[i, label, 1 + o]) for i in first) for o in range(len(OFFSETS))]
    by_layer = [max(range(HEADS), key=lambda b: total[a, b]) for a in range(LAYERS)]
    reported = [i for i in range(len(counts.keys)) if i not in first]
    return Chosen(max(total, key=lambda place: total[place]), by_layer, at.index(max(at)), reported)


def ahead(counts: Counts, chosen: Chosen, label: int, head: tuple[int, int]) -> list[int]:
    """By how much a head beats the offset in each sentence of the reporting half."""
    return [
        int(counts.hits[i, head[0], head[1], label])
        - int(counts.asked[i, label, 1 + chosen.offset])
        for i in chosen.reported
    ]


def same(numbers: Any, place: Any, parts: list[Part], limits: tuple[float, float]) -> None:
    wanted = ratio(parts, limits)
    found = [array[place] for array in numbers]
    np.testing.assert_allclose(np.array(found, float), np.array(wanted, float), rtol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_numbers_are_those_of_plain_loops(seed: int) -> None:
    counts = drawn(seed)
    tests = relation_tests(counts.found, ALL)
    assert tests.labels == tuple(LABELS[label] for label in USED)
    for n, label in enumerate(USED):
        chosen = naive_choice(counts, label)
        assert tuple(tests.head[n]) == chosen.head
        assert tests.offset[n] == OFFSETS[chosen.offset]
        assert list(tests.layer_head[:, n]) == chosen.by_layer
        words = [int(counts.asked[i, label, 0]) for i in chosen.reported]
        best = [int(counts.hits[i, *chosen.head, label]) for i in chosen.reported]
        at = [int(counts.asked[i, label, 1 + chosen.offset]) for i in chosen.reported]
        margins = ahead(counts, chosen, label, chosen.head)
        for numbers, found, limits in (
            (tests.accuracy, best, (0, 1)),
            (tests.at_offset, at, (0, 1)),
            (tests.margin, margins, (-1, 1)),
        ):
            parts = [Part(f, w, w) for f, w in zip(found, words, strict=True)]
            same(numbers, n, parts, limits)
        for layer, head in enumerate(chosen.by_layer):
            found = ahead(counts, chosen, label, (layer, head))
            parts = [Part(f, w, w) for f, w in zip(found, words, strict=True)]
            same(tests.layer_margin, (layer, n), parts, (-1, 1))


def test_p_is_that_of_plain_loops() -> None:
    counts = drawn(4)
    tests = relation_tests(counts.found, ALL)
    choices = {label: naive_choice(counts, label) for label in USED}
    reported = choices[USED[0]].reported
    signs = [*zip(*(naive_signs(int(counts.keys[i])) for i in reported), strict=True)]
    cells = [
        ahead(counts, choices[label], label, (a, b))
        for label in USED
        for a in range(LAYERS)
        for b in range(HEADS)
    ]
    most = [max(statistic(cell, list(flip)) for cell in cells) for flip in signs]
    basic = [1] * len(reported)
    for n, label in enumerate(USED):
        own = statistic(ahead(counts, choices[label], label, choices[label].head), basic)
        reach = sum(m >= own - 1e-9 for m in most)
        assert tests.p[n] == pytest.approx((1 + reach) / (1 + FLIPS), abs=1e-12)


def test_a_planted_head_is_found_and_chance_is_not() -> None:
    counts = drawn(7, sentences=200)
    words = counts.asked[:, USED[1], 0]
    counts.asked[:, USED, 1:] = 0
    counts.asked[:, USED, 1] = np.random.default_rng(1).binomial(counts.asked[:, USED, 0], 0.5)
    counts.hits[...] = 0
    counts.hits[:, 1, 2, USED[1]] = np.random.default_rng(2).binomial(words, 0.8)
    tests = relation_tests(counts.found, ALL)
    assert tuple(tests.head[1]) == (1, 2)
    assert tests.offset[1] == OFFSETS[0]
    assert 0.2 < tests.margin.value[1] < 0.4
    assert tests.margin.low[1] > 0
    assert tests.p[1] == 1 / (1 + FLIPS)
    assert tests.p[0] == tests.p[2] == 1


def test_under_the_null_one_family_in_twenty_has_a_p_below_five_per_cent() -> None:
    """Heads and the offset toss coins: a sentence's differences are as likely as the opposite."""
    draw, families, wrong = np.random.default_rng(11), 400, 0
    for _ in range(families):
        heads = draw.binomial(6, 0.5, (30, 2, 3, 4))
        offset = draw.binomial(6, 0.5, (30, 1, 1, 4))
        keys = draw.integers(0, 2**63, 30, dtype=np.uint64)
        p = family_wise((heads - offset).astype(np.float32), np.ones((2, 3), dtype=bool), keys)
        wrong += bool(p.min() <= 0.05)
    low, high = stats.binom.interval(0.999, families, 0.05)
    assert low <= wrong <= high


def test_the_order_of_the_sentences_changes_nothing() -> None:
    counts = drawn(5)
    turned = Counts(counts.hits[::-1], counts.asked[::-1], counts.keys[::-1])
    one, other = (relation_tests(each.found, ALL) for each in (counts, turned))
    np.testing.assert_array_equal(one.p, other.p)
    np.testing.assert_array_equal(one.margin, other.margin)


def test_heads_that_are_not_there_take_no_part() -> None:
    counts = drawn(6)
    there = ALL.copy()
    there[0] = there[1, 0] = False
    tests = relation_tests(counts.found, there)
    assert {tuple(head) for head in tests.head.tolist()} <= {(1, 1), (1, 2)}
    assert np.isnan(tests.layer_margin.value[0]).all()
    assert not np.isnan(tests.layer_margin.value[1]).any()
    assert tests.family == 2 * len(USED)
    counts.hits[:, 0] = counts.hits[:, 1, :1] = 0
    fewer = Counts(counts.hits[:, 1:, 1:], counts.asked, counts.keys)
    np.testing.assert_array_equal(
        relation_tests(fewer.found, np.ones((1, 2), dtype=bool)).p, tests.p
    )


def test_labels_of_fewer_than_ten_effective_sentences_to_report_are_left_out() -> None:
    counts = drawn(8)
    reported = (counts.keys & np.uint64(1)) == 1
    counts.asked[:, USED[0]] = counts.hits[..., USED[0]] = 0
    first, *rest = np.flatnonzero(reported)
    counts.asked[~reported, USED[0], 0] = 9
    for sentences, ranked in ((9, False), (10, True)):
        counts.asked[[first, *rest[: sentences - 1]], USED[0], 0] = 4
        assert (LABELS[USED[0]] in relation_tests(counts.found, ALL).labels) == ranked
    counts.asked[first, USED[0], 0] = 5  # one with more words counts for less than one
    assert LABELS[USED[0]] not in relation_tests(counts.found, ALL).labels


@pytest.mark.usefixtures("of_any_number")
def test_one_sentence_has_no_interval_and_no_p(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = drawn(9)
    reported = np.flatnonzero((counts.keys & np.uint64(1)) == 1)
    counts.asked[reported[1:]] = counts.hits[reported[1:]] = 0
    counts.asked[reported[0], USED, 0] = 30
    monkeypatch.setattr(inference, "FEW", 1)
    tests = relation_tests(counts.found, ALL)
    assert len(tests.labels) == len(USED)
    assert np.isnan([*tests.margin.low, *tests.margin.high, *tests.p]).all()
    assert not np.isnan(tests.margin.value).any()


def test_without_sentences_nothing_is_tested() -> None:
    empty = drawn(0, sentences=0)
    tests = relation_tests(empty.found, ALL)
    assert tests.labels == ()
    assert tests.p.shape == (0,)
    assert np.isnan(best_offsets(empty.found)[1]).all()


def test_the_best_offset_finds_most_words_of_all_sentences() -> None:
    counts = drawn(3)
    offsets, shares = best_offsets(counts.found)
    for label in range(len(LABELS)):
        words = sum(int(sentence[label, 0]) for sentence in counts.asked)
        if label not in USED:
            assert math.isnan(shares[label])
            continue
        at = [sum(int(s[label, 1 + o]) for s in counts.asked) for o in range(len(OFFSETS))]
        assert shares[label] == pytest.approx(max(at) / words)
        ends = [offset for offset, count in zip(OFFSETS, at, strict=True) if count == max(at)]
        assert offsets[label] == min(ends, key=abs)


def test_of_equal_offsets_the_nearest_counts() -> None:
    """So that a direction and its mirror image have the same one, the other way round."""
    counts = np.zeros((2, len(OFFSETS)), np.int64)
    counts[0, [OFFSETS.index(-3), OFFSETS.index(-2)]] = 7
    counts[1] = counts[0, ::-1]
    assert [OFFSETS[place] for place in best_places(counts)] == [-2, 2]
