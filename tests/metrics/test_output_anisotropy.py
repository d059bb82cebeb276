"""Anisotropy of head outputs: laws, and its interval against a bootstrap of sentences."""

from collections.abc import Sequence

import numpy as np
import torch

from headbook.analysis.accumulators import RatioSums
from headbook.attention.views import LayerAttention
from headbook.metrics import all_metrics
from headbook.metrics.base import HeadMetric, SampledMetric
from headbook.schema import SinkView
from layers import Marks, views_of
from metric_values import finished, values


def head_metric(name: str) -> HeadMetric:
    metric = all_metrics()[name]
    assert isinstance(metric, HeadMetric)
    return metric


METRIC = head_metric("output_anisotropy")


def layer(vectors: np.ndarray, ids: Sequence[int] = ()) -> LayerAttention:
    """Return a layer of a sentence whose head outputs these vectors for its tokens."""
    n = len(vectors)
    marks = Marks(n, values=vectors.tolist(), ids=ids)
    return views_of(torch.eye(n, dtype=torch.float64)[None], marks)[SinkView.RAW]


def value(layers: Sequence[LayerAttention]) -> float:
    return float(values(METRIC, layers)[0, 0])


def sentences(seed: int, amount: int) -> list[np.ndarray]:
    """Return outputs that share a direction, one of their sentence, and noise."""
    random = np.random.default_rng(seed)
    shared = 0.5 * random.normal(size=6)
    return [
        shared + random.normal(size=6) + random.normal(size=(random.integers(2, 9), 6))
        for _ in range(amount)
    ]


def test_a_head_with_constant_outputs_has_1_within_and_across_sentences() -> None:
    layers = [layer(np.outer(np.arange(1, n + 1), (1.0, -2.0, 0.5))) for n in (2, 5, 3)]
    assert abs(value(layers) - 1) < 1e-12
    similarity = head_metric("context_similarity")
    within = values(similarity, layers)[0, similarity.labels.index("all")]
    assert abs(float(within) - 1) < 1e-12


def test_opposite_sentences_are_alike_within_and_opposite_across() -> None:
    layers = [layer(sign * np.ones((n, 3))) for sign, n in ((1.0, 4), (-1.0, 3))]
    assert abs(value(layers) + 1) < 1e-12


def test_a_repeated_token_takes_part_once() -> None:
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    other = layer(np.array([[1.0, 0.0], [1.0, 0.0]]), ids=(8, 9))
    assert value([layer(vectors, ids=(3, 4, 4)), other]) == 1 / 2
    assert value([layer(vectors, ids=(3, 4, 5)), other]) == 1 / 3


def test_the_interval_has_the_error_of_a_bootstrap_of_sentences() -> None:
    """Draw sentences anew; a sentence that is drawn twice is no pair with itself."""
    texts = sentences(5, 40)
    assert isinstance(METRIC, SampledMetric)
    parts = finished(METRIC, [layer(text) for text in texts])
    n, d, events = (part[:, 0, 0] for part in parts)
    sums = RatioSums.of(n, d, events, np.zeros(len(texts), np.int64))
    units = [text / np.linalg.norm(text, axis=1, keepdims=True) for text in texts]
    products = np.array([[float((a @ b.T).sum()) for b in units] for a in units])
    lengths = np.array([len(text) for text in texts], float)
    pairs = np.outer(lengths, lengths)
    np.fill_diagonal(products, 0)
    np.fill_diagonal(pairs, 0)
    draws = np.random.default_rng(0).multinomial(40, np.full(40, 1 / 40), 4000).astype(float)
    means = [(draw @ products @ draw) / (draw @ pairs @ draw) for draw in draws]
    assert abs(float(sums.value) - products.sum() / pairs.sum()) < 1e-12
    error = float(np.sqrt(sums.variance((-1.0, 1.0))))
    assert 0.9 < error / np.std(means) < 1.25
