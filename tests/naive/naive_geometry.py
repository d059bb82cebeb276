"""Numbers of states as their definitions read: every pair of tokens by itself.

A number's twin is found by metric and label in `NAIVE`. Where a sentence is left out, the same is
computed again without it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
NAN = float("nan")


@dataclass(frozen=True)
class Tokens:
    """Tokens of some sentences in one state.

    Attributes:
        sentence, kind: of each token; kind -1 is none.
        vectors, start: *Shape:* ``(token, width)``.
        fixed: what stays when a sentence is left out, from all sentences.
    """

    sentence: Sequence[int]
    kind: Sequence[int]
    vectors: Floats
    start: Floats
    fixed: "Tokens | None" = None

    def without(self, sentence: int) -> "Tokens":
        """Return the numbers of all sentences but one."""
        kept = [i for i, s in enumerate(self.sentence) if s != sentence]
        return replace(
            self,
            sentence=[self.sentence[i] for i in kept],
            kind=[self.kind[i] for i in kept],
            vectors=self.vectors[kept],
            start=self.start[kept],
            fixed=self.whole,
        )

    @property
    def whole(self) -> "Tokens":
        """The tokens of all sentences."""
        return self.fixed or self


def cosine(one: Floats, other: Floats) -> float:
    lengths = np.linalg.norm(one) * np.linalg.norm(other)
    return float(one @ other / lengths) if lengths else NAN


def average(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else NAN


def all_cosines(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1)
    return vectors @ vectors.T / np.outer(lengths, lengths)


def pair_mean(tokens: Tokens, vectors: Floats) -> float:
    found = all_cosines(vectors)
    n = len(tokens.sentence)
    apart = [
        found[i, j] for i in range(n) for j in range(n) if tokens.sentence[i] != tokens.sentence[j]
    ]
    return average(apart)


def anisotropy(tokens: Tokens) -> float:
    return pair_mean(tokens, tokens.vectors)


def contribution(tokens: Tokens, vectors: Floats, dimension: int) -> float:
    column = vectors[:, dimension] / np.linalg.norm(vectors, axis=1)
    products = np.outer(column, column)
    different = np.not_equal.outer(tokens.sentence, tokens.sentence)
    return average(products[different].tolist())


def outliers(tokens: Tokens, vectors: Floats, most: int = 3) -> list[int]:
    sizes = [abs(contribution(tokens, vectors, d)) for d in range(vectors.shape[1])]
    return sorted(range(len(sizes)), key=lambda d: -sizes[d])[:most]


def standardised(vectors: Floats, like: Floats) -> Floats:
    return np.stack(
        [
            [(x - np.mean(column)) / np.std(column) for x in values]
            for values, column in zip(vectors.T, like.T, strict=True)
        ],
        axis=1,
    )


def dropped(vectors: Floats, dimensions: Sequence[int]) -> Floats:
    return np.delete(vectors, list(dimensions), axis=1)


def anisotropy_standardised(tokens: Tokens) -> float:
    return pair_mean(tokens, standardised(tokens.vectors, tokens.whole.vectors))


def anisotropy_without(tokens: Tokens) -> float:
    worst = outliers(tokens.whole, tokens.whole.vectors)
    return pair_mean(tokens, dropped(tokens.vectors, worst))


def self_similarity(tokens: Tokens) -> float:
    found = all_cosines(tokens.vectors)
    means = []
    for kind in sorted(set(tokens.kind) - {-1}):
        places = [i for i, k in enumerate(tokens.kind) if k == kind]
        pairs = [
            found[i, j] for i in places for j in places if tokens.sentence[i] != tokens.sentence[j]
        ]
        if pairs:
            means.append(average(pairs))
    return average(means)


def intra_sentence_similarity(tokens: Tokens) -> float:
    values = []
    for sentence in sorted(set(tokens.sentence)):
        rows = [tokens.vectors[i] for i, s in enumerate(tokens.sentence) if s == sentence]
        if len(rows) > 1:
            middle = sum(rows[1:], rows[0]) / len(rows)
            values += [cosine(row, middle) for row in rows]
    return average(values)


def occurrences(tokens: Tokens) -> list[list[int]]:
    """By kind, its first token in each sentence, in at most 16, where there are 5."""
    found = []
    for kind in sorted(set(tokens.kind) - {-1}):
        first: dict[int, int] = {}
        for index, (s, k) in enumerate(zip(tokens.sentence, tokens.kind, strict=True)):
            if k == kind:
                first.setdefault(s, index)
        if len(first) >= 5:
            found.append(list(first.values())[:16])
    return found


def share(rows: Floats) -> float:
    sizes = np.linalg.svd(rows, compute_uv=False)
    return float(sizes[0] ** 2 / sum(sizes**2))


def explainable(tokens: Tokens, sets: Sequence[Sequence[int]]) -> float:
    """Return the mean share over sets of tokens, of which some may be missing."""
    there = set(tokens.sentence)
    left = [[i for i in places if tokens.whole.sentence[i] in there] for places in sets]
    return average([share(tokens.whole.vectors[places]) for places in left if places])


def maximum_explainable_variance(tokens: Tokens) -> float:
    return explainable(tokens, occurrences(tokens.whole))


def largest_outliers(most: int) -> Callable[[Tokens], float]:
    def added(tokens: Tokens) -> float:
        worst = outliers(tokens.whole, tokens.whole.vectors, most)
        return sum(contribution(tokens, tokens.vectors, d) for d in worst)

    return added


def path(tokens: Tokens, vectors: Floats, start: Floats) -> float:
    return average([cosine(*pair) for pair in zip(vectors, start, strict=True)])


def path_raw(tokens: Tokens) -> float:
    return path(tokens, tokens.vectors, tokens.start)


def path_standardised(tokens: Tokens) -> float:
    whole = tokens.whole
    return path(
        tokens,
        standardised(tokens.vectors, whole.vectors),
        standardised(tokens.start, whole.start),
    )


def path_without(tokens: Tokens) -> float:
    whole = tokens.whole
    worst = {*outliers(whole, whole.vectors), *outliers(whole, whole.start)}
    return path(tokens, dropped(tokens.vectors, [*worst]), dropped(tokens.start, [*worst]))


def less(one: Callable[[Tokens], float]) -> Callable[[Tokens], float]:
    return lambda tokens: one(tokens) - anisotropy(tokens)


NAIVE: dict[tuple[str, str], Callable[[Tokens], float]] = {
    ("anisotropy", "raw"): anisotropy,
    ("anisotropy", "standardised"): anisotropy_standardised,
    ("anisotropy", "without_outliers"): anisotropy_without,
    ("self_similarity", "raw"): self_similarity,
    ("self_similarity", "adjusted"): less(self_similarity),
    ("intra_sentence_similarity", "raw"): intra_sentence_similarity,
    ("intra_sentence_similarity", "adjusted"): less(intra_sentence_similarity),
    ("maximum_explainable_variance", "raw"): maximum_explainable_variance,
    ("outlier_dimensions", "largest"): largest_outliers(1),
    ("outlier_dimensions", "three"): largest_outliers(3),
    ("standardised_cosine", "raw"): path_raw,
    ("standardised_cosine", "standardised"): path_standardised,
    ("standardised_cosine", "without_outliers"): path_without,
}


def minibatches(n: int) -> list[list[int]]:
    """Every k-th token, 256 of them, as often as that goes."""
    number = n // 256
    return [[start + i * number for i in range(256)] for start in range(number)]


def effective_rank(vectors: Floats) -> float:
    ranks = []
    for places in minibatches(len(vectors)):
        rows = vectors[places]
        sizes = np.linalg.svd(rows - rows.mean(0), compute_uv=False)
        shares = [s / sum(sizes) for s in sizes if s > 0]
        ranks.append(np.exp(-sum(p * np.log(p) for p in shares)))
    return average(ranks)


def hsic(one: Floats, other: Floats) -> float:
    """Return the unbiased estimate as Song et al. (2012) write it, eq. 5."""
    n = len(one)
    k, m = (x @ x.T * (1 - np.eye(n)) for x in (one, other))
    ones = np.ones(n)
    total = np.trace(k @ m) + (ones @ k @ ones) * (ones @ m @ ones) / ((n - 1) * (n - 2))
    return float((total - 2 / (n - 2) * (ones @ k @ m @ ones)) / (n * (n - 3)))


def cka(one: Floats, other: Floats) -> float:
    parts = minibatches(len(one))
    sums = [
        sum(hsic(a[places], b[places]) for places in parts)
        for a, b in ((one, other), (one, one), (other, other))
    ]
    return float(sums[0] / np.sqrt(sums[1] * sums[2]))


def interval(tokens: Tokens, metric: Callable[[Tokens], float]) -> tuple[float, float]:
    """Return the delete-one jackknife's, with Student's t."""
    from scipy.stats import t

    sentences = sorted(set(tokens.sentence))
    n = len(sentences)
    left = np.array([metric(tokens.without(sentence)) for sentence in sentences])
    error = np.sqrt((n - 1) / n * sum((left - left.mean()) ** 2))
    reach = t.ppf(0.975, n - 1) * error
    return metric(tokens) - reach, metric(tokens) + reach
