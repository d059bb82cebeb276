"""Few clusters that decide a number: against a plain search, and in tests of what leads."""

import numpy as np
import pytest

from headbook.analysis.arrays import Floats
from headbook.analysis.few_clusters import few_clusters
from headbook.analysis.leaders import leaders_of, ranks_of


def plain_few(n: list[float]) -> list[int]:
    """Return the fewest clusters that hold more than a third; empty if five do not."""
    order = sorted(range(len(n)), key=lambda c: (-n[c], c))
    for count in range(1, 6):
        if len(n) >= 15 and min(n) >= 0 and 3 * sum(n[c] for c in order[:count]) > sum(n):
            return sorted(order[:count])
    return []


@pytest.mark.parametrize("clusters", [3, 14, 15, 40, 200])
def test_few_clusters_are_those_of_a_plain_search(clusters: int) -> None:
    n = np.random.default_rng(clusters).lognormal(0, 1.5, (clusters, 4, 3))
    n[0, 0] *= -1
    few = few_clusters(n)
    for cell in np.ndindex(4, 3):
        expected = plain_few(n[:, *cell].tolist())
        assert np.flatnonzero(few.mask[:, *cell]).tolist() == expected
        assert few.sentences[cell] == len(expected)
        held = n[expected, *cell].sum() / n[:, *cell].sum()
        assert few.share[cell] == pytest.approx(held)


def test_alike_clusters_decide_nothing() -> None:
    assert not few_clusters(np.ones((15, 2))).sentences.any()
    assert not few_clusters(np.zeros((20, 1))).sentences.any()
    assert few_clusters(np.array([8.0] + [1.0] * 14)).sentences == 1


def test_buckets_are_few_by_their_sentences() -> None:
    n = np.array([9.0, 8.0] + [1.0] * 18)
    for in_bucket, few in ((1, 2), (2, 4), (3, 0)):  # at most five sentences of a small corpus
        assert few_clusters(n, np.full(20, in_bucket)).sentences == few
    many = np.array([30, 30] + [100] * 18)  # at most 5 % of a large one
    assert few_clusters(n, many).sentences == 60
    assert not few_clusters(n, np.full(20, 100)).sentences
    assert not few_clusters(n, np.zeros(20, np.int64)).sentences  # unknown


def planted(far: float) -> tuple[Floats, Floats]:
    """Numbers of three layers, of which the last leads; a long text has another one far ahead."""
    rng = np.random.default_rng(4)
    d = np.full((60, 3), 10.0)
    n = d * (np.array([1.0, 1.2, 2.0]) + 0.1 * rng.normal(size=(60, 3)))
    d = np.vstack([d, np.full((1, 3), 60.0)])
    return np.vstack([n, 60.0 * np.array([[far, 1.2, 2.0]])]), d


def test_what_one_long_text_decides_leads_nothing() -> None:
    assert leaders_of(*planted(1.0))[0] == [2]
    n, d = planted(40.0)
    order, ranks = leaders_of(n, d)
    assert order[0] == 0  # the highest number of all texts
    assert 2 in order  # which the number that leads without the text is not told from
    assert ranks.p[2] == 1


def test_what_leads_without_the_few_as_well_leads() -> None:
    n, d = planted(1.0)
    n[-1, 2] = 60 * 40.0
    ranks = ranks_of(n, d, 2)
    assert few_clusters(n[:, 2]).sentences == 1
    others = ranks_of(n[:-1], d[:-1], 2)
    assert (ranks.p >= others.p).all()
    assert ranks.difference == pytest.approx(n[:, 2].sum() / d[:, 2].sum() - n.sum(0) / d.sum(0))
