"""Similarity of the arrangement of the same tokens in two layers.

Linear centred kernel alignment compares the inner products of all tokens in one layer with those
in another. It is invariant to rotation and uniform scaling of a layer's space, so layers need not
share dimensions. A layer with itself has 1; 0: the arrangement in one layer says nothing about the
other.

The plain value is too high unless there are far more tokens than dimensions. Here the unbiased
estimate of Song et al. is taken on minibatches of 256 tokens and added up before the division, as
Nguyen et al. do, so it does not depend on their size. It can fall a little below 0. Tokens with
very long vectors would dominate: special tokens and the first token of a causal model are left
out. There is no interval, since minibatches share sentences.
"""

from typing import TYPE_CHECKING

import numpy as np

from headbook.metrics.base import ChartKind, LayerPairMetric, Section

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headbook.analysis.arrays import Floats


def measure(states: "Sequence[Floats]") -> "Floats":
    """Return the unbiased HSIC of every two states over a minibatch, up to a common factor."""
    found = np.stack([_centred(state @ state.T).ravel() for state in states])
    products: Floats = found @ found.T
    return products


def _centred(products: "Floats") -> "Floats":
    """Products of tokens without their own and without what rows and columns have in common.

    The sum of the elementwise product of two such matrices is n (n - 3) times the unbiased HSIC
    (Székely & Rizzo 2014, doi:10.1214/14-AOS1255).
    """
    n = len(products)
    np.fill_diagonal(products, 0)
    rows = products.sum(0) / (n - 2)
    found: Floats = products - rows - rows[:, None] + products.sum() / ((n - 1) * (n - 2))
    np.fill_diagonal(found, 0)
    return found


METRIC = LayerPairMetric(
    title="Similarity of layers (CKA)",
    question="How similar are the states of two layers?",
    formula=r"\frac{\sum_b \mathrm{HSIC}_1(K_b, L_b)}"
    r"{\sqrt{\sum_b \mathrm{HSIC}_1(K_b, K_b)}\,\sqrt{\sum_b \mathrm{HSIC}_1(L_b, L_b)}}",
    reference="Nguyen, Raghu & Kornblith (2021), arXiv:2010.15327; "
    "HSIC of Song et al. (2012), JMLR 13",
    bounds=lambda _: (-1, 1),
    section=Section.STATES,
    chart=ChartKind.STATES,
    measure=measure,
)
