"""Share of a token's vectors in all contexts that one fixed vector explains.

The vectors of one vocabulary token in different sentences, one below the other, make a matrix; the
value is the share of its first singular value squared in the sum of all of them, averaged over
vocabulary tokens that occur in five sentences or more. Near 1: a static embedding would lose
little. From each sentence the first occurrence is taken, from at most 16 sentences.

The share is high for few vectors whatever they are, so *baseline* is the same for as many random
tokens, each from another sentence, and *adjusted* is the difference. Neither is centred. The
paper's code centres the matrix of the word but not that of the random tokens. Its baseline is one
set of many tokens; here it has the size of the set it is for.

When the interval leaves a sentence out, vocabulary tokens and random tokens stay those of the
whole sample.
"""

from typing import TYPE_CHECKING

import numpy as np

from headbook.analysis.state_vectors import KindShares, mean_over_kinds
from headbook.metrics.base import ChartKind, LayerMetric, Section

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headbook.analysis.arrays import Ints
    from headbook.analysis.state_vectors import Jackknife, StateVectors, TokenSample


LEAST, MOST = 5, 16  # sentences of an entry
NOTHING = -1  # where a kind has no more occurrences


def measure(cloud: "StateVectors") -> "Mapping[str, Jackknife]":
    """Mean share of the first singular value, of entries and of random tokens."""
    places = occurrences(cloud.sample)
    raw = _shares(cloud, places)
    baseline = _shares(cloud, drawn(cloud.sample, places))
    return {"raw": raw, "baseline": baseline, "adjusted": raw.minus(baseline)}


def occurrences(sample: "TokenSample") -> "Ints":
    """Return a token of each entry and sentence, or `NOTHING`. *Shape:* ``(kind, MOST)``."""
    cells = sample.cells
    sizes = np.bincount(cells.kind)
    number = np.arange(len(cells.kind)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    found = np.full((len(sizes), MOST), NOTHING)
    kept = number < MOST
    found[cells.kind[kept], number[kept]] = cells.tokens[cells.starts[kept]]
    return found[sizes >= LEAST]


def drawn(sample: "TokenSample", places: "Ints") -> "Ints":
    """Draw as many random tokens of different sentences as each entry has occurrences.

    *Shape:* that of ``places``.
    """
    random = np.random.default_rng(sample.seed)
    order = random.random((len(places), len(sample.counts))).argsort(1)
    entries = np.full(places.shape, 0)
    entries[:, : order.shape[1]] = order[
        :, :MOST
    ]  # an entry has no more occurrences than sentences
    inside = random.random(places.shape) * sample.counts[entries]
    return np.where(places == NOTHING, NOTHING, sample.starts[entries] + inside.astype(np.int64))


def _shares(cloud: "StateVectors", places: "Ints") -> "Jackknife":
    sentences = len(cloud.sample.counts)
    rows = np.where((places == NOTHING)[..., None], 0, cloud.vectors[places])
    products = np.einsum("kid,kjd->kij", rows, rows, optimize=True)
    if not np.isfinite(products).all():
        return mean_over_kinds(KindShares.none(), sentences)
    kind, place = np.nonzero(places != NOTHING)
    one = np.arange(len(kind))
    fewer = products[kind]
    fewer[one, place], fewer[one, :, place] = 0, 0
    largest = np.linalg.eigvalsh(products)[:, -1]
    parts = KindShares(
        largest,
        np.einsum("kii->k", products),
        kind,
        cloud.sample.sentence[places[kind, place]],
        largest[kind] - np.linalg.eigvalsh(fewer)[:, -1],
        products[kind, place, place],
    )
    return mean_over_kinds(parts, sentences)


METRIC = LayerMetric(
    title="Maximum explainable variance",
    question="How much of a word's states is the same everywhere?",
    formula=r"\frac{1}{|W|} \sum_{w \in W} \frac{\sigma_1(X_w)^2}{\sum_k \sigma_k(X_w)^2}",
    reference="Ethayarajh (2019), section 3.3, arXiv:1909.00512",
    bounds=lambda _: (-1, 1),
    section=Section.STATES,
    chart=ChartKind.STATES,
    labels=("raw", "baseline", "adjusted"),
    headline="raw",
    measure=measure,
)
