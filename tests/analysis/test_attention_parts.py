"""Distance, key and pair: laws of hand-built heads."""

from collections.abc import Callable

import numpy as np
import pytest

from drawn_maps import Floats
from headbook.analysis.attention_parts import OffsetCounts, departure_sums, fitted_offsets
from headbook.analysis.pattern_fits import Bools

Draw = Callable[[np.random.Generator, int], Floats]
SHARP: dict[str, Draw] = {
    "previous": lambda _, n: 5.0 * np.eye(n, k=-1),
    "decay": lambda _, n: -np.abs(np.subtract.outer(np.arange(n), np.arange(n))) / 3.0,
    "same keys": lambda rng, n: np.broadcast_to(rng.normal(0, 1.5, n), (n, n)),
    "random rows": lambda rng, n: rng.normal(0, 1.5, (n, n)),
}


def drawn(name: str, *, causal: bool) -> list[tuple[Floats, Bools, Floats]]:
    """Return maps, visible pairs and weights of 64 sentences of 12 to 23 tokens."""
    rng = np.random.default_rng(0)
    sentences = []
    for n in rng.integers(12, 24, 64).tolist():
        seen = np.tril(np.ones((n, n), bool), 0 if causal else n)
        strength = np.where(seen, np.exp(SHARP[name](rng, n)), 0)
        keys = seen.sum(1)
        weights = np.where(keys > 1, 1 / np.log(np.maximum(keys, 2)), 0)
        sentences.append(((strength / strength.sum(1, keepdims=True))[None], seen, weights[None]))
    return sentences


def parts(sentences: list[tuple[Floats, Bools, Floats]]) -> tuple[float, float]:
    """Return the shares of distance and key."""
    logs = fitted_offsets(OffsetCounts.together([OffsetCounts.of(*each) for each in sentences]))
    sums = np.sum([departure_sums(*each, logs)[0] for each in sentences], axis=0)
    return sums[1] / sums[0], sums[2] / sums[0]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["previous", "decay"])
def test_weights_by_offset_are_distance_alone(name: str, *, causal: bool) -> None:
    """Under a causal mask a decay could be taken for weights that grow from key to key."""
    assert parts(drawn(name, causal=causal)) == pytest.approx((1, 0), abs=1e-8)


@pytest.mark.parametrize("causal", [False, True])
def test_the_same_keys_for_every_query_are_key(*, causal: bool) -> None:
    distance, key = parts(drawn("same keys", causal=causal))
    assert key >= 0.95
    assert distance <= 0.01


@pytest.mark.parametrize("causal", [False, True])
def test_independent_rows_have_no_key(*, causal: bool) -> None:
    assert parts(drawn("random rows", causal=causal))[1] <= 0


def test_batches_and_heads_do_not_matter() -> None:
    """Counts of parts add up, and each head is fitted by itself."""
    sentences = drawn("random rows", causal=False)
    counts = [OffsetCounts.of(*each) for each in sentences]
    whole = fitted_offsets(OffsetCounts.together(counts))
    halves = [OffsetCounts.together(counts[:20]), OffsetCounts.together(counts[20:])]
    assert fitted_offsets(OffsetCounts.together(halves)) == pytest.approx(whole, abs=1e-9)
    two = [
        OffsetCounts.of(np.concatenate([a, a[:, :, ::-1]]), seen, np.concatenate([w, w]))
        for a, seen, w in sentences
    ]
    assert fitted_offsets(OffsetCounts.together(two))[0] == pytest.approx(whole[0], abs=1e-9)


def test_rows_that_do_not_count_change_nothing() -> None:
    attention, seen, weights = drawn("random rows", causal=False)[0]
    weights = weights.copy()
    weights[:, 3] = 0
    other = attention.copy()
    other[:, 3] = np.eye(attention.shape[1])[5]
    logs = fitted_offsets(OffsetCounts.of(attention, seen, weights))
    assert logs == pytest.approx(fitted_offsets(OffsetCounts.of(other, seen, weights)), abs=1e-9)
    assert departure_sums(attention, seen, weights, logs) == pytest.approx(
        departure_sums(other, seen, weights, logs), abs=1e-9
    )


def test_without_offsets_distance_explains_nothing() -> None:
    for attention, seen, weights in drawn("same keys", causal=False)[:5]:
        departure, distance, key = departure_sums(attention, seen, weights, None)[0]
        assert distance == pytest.approx(0, abs=1e-9)
        assert key > 0.9 * departure
