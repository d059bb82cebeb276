"""Agreement of trees induced from attention with the dependency tree.

The words of a sentence are a complete graph; the weight of one word as the head of another is the
attention from the other to the one. Given the gold root, the tree of maximum total weight is
compared with the gold tree edge by edge, ignoring direction.

- **uas**: undirected attachment score, the share of the gold tree's edges in the induced tree;
- **chain**: the same for a tree that links each word to the next (linking neighbours). Most
  dependencies are short: it is a strong baseline.

Punctuation is left out of both trees; words below a punctuation mark attach to its head. A
sentence with several roots keeps them all. Attention to a word is the sum over its subword tokens,
from a word the mean; the sink is masked, since it is no word or, in causal models, would head all
others. There, a word does not see a head that comes after it, so such edges are correct by
accident only.

Weights are rounded to some five digits, so that equal ones are equal; among trees of equal weight,
the first words head the others, as in the tree of uniform attention. Edges are counted over all
sentences together. Taken on a sample of the sentences; texts of more than 100 words are left out.
"""

from typing import TYPE_CHECKING

import numpy as np

from headbook.analysis.trees import NO_HEAD, chain, spanning_trees, undirected_matches
from headbook.attention.word_pairs import attention_parts, word_trees
from headbook.metrics.base import ChartKind, FinishedRatios, Need, Notable, SampledMetric, Section
from headbook.metrics.examples import Example, previous_token, uniform
from headbook.schema import SinkView

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from headbook.attention.views import LayerAttention

LABELS = ("uas", "chain")


def measure(layer: "LayerAttention") -> "torch.Tensor":
    """Edges found, those of a chain, and all edges. *Shape:* ``(sentence, head, label + 1)``."""
    words = layer.scope.cached(word_trees)
    stats = np.zeros((*layer.attention.shape[:2], len(LABELS) + 1))
    for part, weights in attention_parts(layer):
        gold = words.heads[part, None, : weights.shape[-1]]
        trees = spanning_trees(weights, gold == NO_HEAD, words.lengths[part, None])
        stats[part, :, 0], stats[part, :, 2] = undirected_matches(trees, gold)
        stats[part, :, 1], _ = undirected_matches(
            np.broadcast_to(chain(gold.shape[-1]), gold.shape), gold
        )
    return layer.attention.new_tensor(stats)


def finish(stats: "NDArray[np.float64]", _: "NDArray[np.float64]") -> FinishedRatios:
    """Edges in both trees over those of the gold tree. *Shape:* ``(sentence, head, label)``."""
    return FinishedRatios.over_last(stats)


METRIC = SampledMetric(
    title="Dependency trees induced from attention",
    question="Can dependency trees be read from attention?",
    formula=r"\frac{|T \cap G|}{|G|},\quad T = \operatorname{argmax}_T "
    r"\sum_{(w,\,\mathrm{head}(w)) \in T} A_{w,\,\mathrm{head}(w)}",
    reference="Raganato & Tiedemann (2018), https://aclanthology.org/W18-5431; undirected after "
    "Htut et al. (2019), arXiv:1911.12246",
    bounds=lambda _: (0, 1),
    section=Section.LANGUAGE,
    chart=ChartKind.LABELS,
    labels=LABELS,
    headline="uas",
    views=(SinkView.NOSINK,),
    needs=frozenset({Need.ONE_TEXT, Need.WORDS, Need.TREE}),
    notable=Notable.HIGH,
    measure=measure,
    finish=finish,
    examples={
        "each of four words looks one back; the third is the root, the second below the first": (
            (Example(previous_token(4), heads=(2, 0, -1, 2)),),
            # The first word hangs on the root, since nothing else leads there: 0-2, 0-1, 2-3.
            {"uas": 1.0, "chain": 2 / 3},
        ),
        "a comma heads a word and is left out": (
            (
                Example(
                    ((0.0, 0.9, 0.1), (0.0, 1.0, 0.0), (0.2, 0.8, 0.0)),
                    tags=("VERB", "PUNCT", "NOUN"),
                    heads=(-1, 0, 1),
                ),
            ),
            {"uas": 1.0, "chain": 1.0},
        ),
        "where all weigh the same, the first word heads the others": (
            (Example(uniform(4), heads=(-1, 0, 1, 2)), Example(uniform(3), heads=(-1, 0, 0))),
            {"uas": 3 / 5, "chain": 4 / 5},
        ),
    },
)
