r"""Whether a head raises the logit of the token that it reads, from its weights alone.

A head that reads a token adds something to the logit of every token of the vocabulary. If the
largest part of that goes to the token itself, the head copies. Elhage et al. (2021) read this from
the eigenvalues of the map from tokens to logits: their sum over the sum of their absolute values
is 1 if all are positive (each direction of tokens raises itself), and -1 if all are negative.

What the head reads of a token is the residual stream after layer 0 of the token alone, behind the
start token if the model has one; heads of layer 0 read the stream that enters it. The input
embedding itself says nothing where it is also the unembedding. The most frequent token types of the
corpus count, filled with random ordinary tokens up to 5,000, since few types give noisy scores.

The labels *permuted low* and *permuted high* are the 95 % band of the score if the types are
permuted at random: a score inside it is no evidence. The band follows from the variance of the
trace over all permutations, which has a closed form (Hoeffding 1951); the sum of absolute
eigenvalues hardly depends on the permutation, and its mean over four of them serves for all. A
score above the band does not show that the head copies in texts: `copy_rate` compares single
tokens.
"""

from typing import TYPE_CHECKING

import numpy as np

from headbook.metrics.base import ChartKind, CircuitMetric, Notable, Section

if TYPE_CHECKING:
    from headbook.analysis.arrays import Floats

PERMUTED_LOW, PERMUTED_HIGH = "permuted low", "permuted high"


def measure(products: "Floats") -> "Floats":
    """Sum of eigenvalues over the sum of their absolute values; NaN for products of 0.

    Args:
        products: W_O W_U E' W_V of each head, whose eigenvalues are those of the map from tokens
            to logits. *Shape:* ``(..., width, width)``.
    """
    lengths = eigenvalue_lengths(products)
    score: Floats = np.trace(products, axis1=-2, axis2=-1) / np.where(lengths > 0, lengths, np.nan)
    return score


def eigenvalue_lengths(products: "Floats") -> "Floats":
    """Sum of absolute eigenvalues. *Shape:* ``(...)``."""
    lengths: Floats = np.abs(np.linalg.eigvals(products)).sum(-1)
    return lengths


METRIC = CircuitMetric(
    title="Copying score",
    question="Which heads could copy what they read?",
    formula=r"\frac{\sum_k \lambda_k}{\sum_k |\lambda_k|},\quad"
    r"\lambda_k \text{ eigenvalues of } W_O W_U E' W_V",
    reference="Elhage et al. (2021), A Mathematical Framework for Transformer Circuits; band and "
    "effective embedding: own",
    bounds=lambda _: (-1, 1),
    section=Section.CIRCUITS,
    chart=ChartKind.HEATMAP,
    labels=("", PERMUTED_LOW, PERMUTED_HIGH),
    baselines=frozenset({PERMUTED_LOW, PERMUTED_HIGH}),
    notable=Notable.HIGH,
    measure=measure,
)
