"""Pairs of sentences: what differs between their members, wherever these stand in the input."""

from collections.abc import Callable
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import grouped_studies
from grouped_studies import PAIRS, ROWS, Collect
from headbook.analysis.multiple_testing import FLIPS, sign_flip_p
from headbook.resources import folder
from headbook.study.contrasts import pair_differences
from headbook.study.groups import MAX_PAIR_SENTENCES, PairMembers
from headbook.study.study import Study, merge

pytestmark = pytest.mark.usefixtures("of_any_number")

pytest_plugins = ["grouped_studies"]

NAMES = ["layer", "head", "metric", "label"]


def test_differences_within_pairs_are_scipys_of_plain_loops(
    grouped_study: Study,
    tiny_folder: Callable[[str], Path],
) -> None:
    """Means, difference, interval and number of pairs, for every head and number."""
    table = grouped_study.minimal_pairs
    rows = dict(
        zip(table[NAMES].itertuples(index=False, name=None), table.itertuples(), strict=True)
    )
    naive = grouped_studies.parts(tiny_folder("bert"))
    assert {*rows} == {*naive}
    for place, parts in naive.items():
        pairs = [(parts[good], parts[bad]) for good, bad in PAIRS.values()]
        values = [[p.n / p.d for p in pair] for pair in pairs if all(p.d for p in pair)]
        first, second = map(np.array, zip(*values, strict=True))
        test, row = stats.ttest_rel(first, second), rows[place]
        interval = test.confidence_interval()
        expected = (first.mean(), second.mean(), (first - second).mean(), *interval)
        names = ("first", "second", "value", "low", "high")
        found = [float(getattr(row, name)) for name in names]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-6)
        assert row.pairs == len(values)
        assert (row.first_member, row.second_member) == ("good", "bad")


def test_pairs_are_counted_and_others_left_out(grouped_study: Study) -> None:
    """One sentence of a pair, or three, make none."""
    found = grouped_study.pair_differences["self"]
    assert (found.member_column, found.members) == ("label", ("good", "bad"))
    assert (found.pairs, found.left_out) == (4, 2)
    assert found.family == found.p.size == (~np.isnan(found.p)).sum()


@pytest.mark.parametrize("cut", [1, 4, 7])
def test_members_in_two_studies_make_the_pairs_of_the_whole(
    grouped_study: Study,
    gather: Collect,
    cut: int,
) -> None:
    merged = merge([gather(ROWS[:cut]), gather(ROWS[cut:])])
    pd.testing.assert_frame_equal(
        merged.minimal_pairs, grouped_study.minimal_pairs, rtol=1e-4, atol=2e-6
    )
    assert merged.pair_differences["self"].left_out == 2


def test_without_a_column_the_order_tells_members_apart(gather: Collect) -> None:
    """First minus second; the labels are turned in one pair."""
    rows = tuple(
        row._replace(label="same", kind=str(n)) for n, row in enumerate(ROWS) if row.pair in PAIRS
    )
    found = gather(rows, facet="none").pair_differences["self"]
    assert (found.member_column, found.members, found.pairs) == ("", ("first", "second"), 4)
    turned = gather(rows[::-1], facet="none").pair_differences["self"]
    np.testing.assert_allclose(found.difference.value, -turned.difference.value, atol=1e-5)


def test_a_column_that_was_asked_for_decides(gather: Collect) -> None:
    """Pairs in which it does not tell members apart are left out."""
    rows = tuple(row._replace(kind="two" if row.label == "good" else "one") for row in ROWS)
    rows = (rows[0], rows[1]._replace(kind="two"), *rows[2:8])
    found = gather(rows, pair_member="kind").pair_differences["self"]
    assert (found.member_column, found.members) == ("kind", ("two", "one"))
    assert (found.pairs, found.left_out) == (3, 1)


def test_without_pairs_there_are_no_differences(gather: Collect) -> None:
    rows = tuple(row._replace(pair="") for row in ROWS[:4])
    lonely = gather(rows, facet="none")
    assert lonely.corpus_sums.heads["self"].members is None
    assert lonely.minimal_pairs.empty


def drawn(pairs: list[int], size: int = 3) -> PairMembers:
    """A sentence of each pair, its values told by its place."""
    places = np.arange(len(pairs))
    values = np.tile(places.astype(np.float32)[:, None, None, None], (1, 2, 2, 1))
    return PairMembers(
        size, (0,), np.array(pairs, np.uint64), places, {"n": tuple(map(str, places))}, values
    )


@given(st.lists(st.integers(0, 6), max_size=14), st.data())
def test_any_split_keeps_the_same_members(pairs: list[int], data: st.DataObject) -> None:
    """Those of the pairs with the smallest hashes, at most three of each, with their values."""
    whole = drawn(pairs)
    ends = sorted(data.draw(st.lists(st.integers(0, len(pairs)), max_size=3)))
    merged = whole.smallest()
    pieces = [
        PairMembers(
            whole.size, whole.places, whole.pair[a:b], whole.index[a:b],
            {"n": whole.labels["n"][a:b]}, whole.values[a:b],
        ).smallest()
        for a, b in pairwise([0, *ends, len(pairs)])
    ]  # fmt: skip
    added = pieces[-1]
    for piece in pieces[:-1]:
        added += piece
    wanted = [
        (pair, place)
        for pair in sorted({*pairs})[: whole.size]
        for place in [n for n, each in enumerate(pairs) if each == pair][:MAX_PAIR_SENTENCES]
    ]
    for members in (merged, added):
        assert [*zip(members.pair.tolist(), members.index.tolist(), strict=True)] == wanted
        assert members.labels["n"] == tuple(str(position) for _, position in wanted)
        assert members.values[:, 1, 0, 0].tolist() == [position for _, position in wanted]


def test_two_sided_p_are_shares_of_flips_that_reach_the_largest_size() -> None:
    """All signs of seven pairs, drawn often enough, beside a plain loop over every pattern."""
    draw = np.random.default_rng(4)
    differences = draw.normal(0.2, 1, (7, 1, 2, 3))
    keys = draw.integers(0, 2**63, 7, dtype=np.uint64)
    p = sign_flip_p(differences, np.ones((1, 2), dtype=bool), keys, two_sided=True)
    flat = differences.reshape(7, 6)
    root = np.sqrt((flat**2).sum(0))
    most = [np.abs(np.array(s) @ flat / root).max() for s in product((1, -1), repeat=7)]
    for cell, found in zip(np.abs(flat.sum(0) / root), p.ravel(), strict=True):
        share = np.mean([m >= cell - 1e-9 for m in most])
        assert abs(found - share) < 5 * np.sqrt(share * (1 - share) / FLIPS) + 2 / FLIPS
    opposite = sign_flip_p(-differences, np.ones((1, 2), dtype=bool), keys, two_sided=True)
    np.testing.assert_array_equal(opposite, p)


def test_the_sample_of_pairs_has_two_labels_in_each() -> None:
    lines = pd.read_json(folder("sample_inputs") / "minimal_pairs.jsonl", lines=True)
    pairs = lines.groupby("pair_id")["label"].agg(sorted)
    assert len(pairs) >= 12
    assert all(pair == ["grammatical", "ungrammatical"] for pair in pairs)
    assert lines.groupby("pair_id")["phenomenon"].nunique().eq(1).all()
    assert lines["text"].is_unique


def test_a_pair_whose_difference_is_missing_takes_no_part(grouped_study: Study) -> None:
    """A member without a value leaves the other pairs as they are."""
    sums = grouped_study.corpus_sums.heads["self"]
    assert sums.members is not None
    present = np.ones(sums.table.heads.sums.shape[2:4], dtype=bool)
    whole = pair_differences(sums, present)
    assert whole is not None
    sums.members.values[sums.members.index == 0, 0, 0, 0], kept = (
        np.nan,
        sums.members.values[sums.members.index == 0, 0, 0, 0].copy(),
    )
    less = pair_differences(sums, present)
    sums.members.values[sums.members.index == 0, 0, 0, 0] = kept
    assert less is not None
    assert less.difference.n_sentences[0, 0, 0] == whole.difference.n_sentences[0, 0, 0] - 1
    np.testing.assert_array_equal(less.difference.value[1:], whole.difference.value[1:])
