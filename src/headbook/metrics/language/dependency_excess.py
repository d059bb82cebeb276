"""Attention along dependencies beyond what a head without content would give.

Most dependencies are short, and a head that attends from each adjective to the next noun follows
many of them without any syntax. From the head's alignment with dependencies (share of attention
between words of which one is the other's head), an expectation is subtracted:

- **surface**: each linked pair is expected to receive the head's own mean attention on pairs with
  the same parts of speech and the same distance (up to 8 words either way, farther ones together);
- **distance**: at each distance the share of word pairs that are linked, weighted by the head's
  attention at that distance (32 words and more are one).

Means for **surface** come from the choice half of the sentences; where it has fewer than 30 pairs
of a kind, all pairs at the distance are taken. A head that attends by part of speech and distance
alone scores 0, whatever its alignment. Above 0: linked words are preferred among like ones; below
0: avoided. The excess is a share of attention and supports no claim of a relation.

Attention between words, sink masked: to a word the sum over its subword tokens, from a word the
mean. Taken on a sample of the sentences; texts with more than 256 linked pairs take no part. In a
small sample most pairs are compared by distance alone, and the excess is larger: 2,000 sentences
(`--sample-sentences`) make most kinds of pairs frequent enough.
"""

from typing import TYPE_CHECKING

import numpy as np

from headbook.attention.surface_rules import pairs_by_surface
from headbook.metrics.base import ChartKind, FinishedRatios, Need, SampledMetric, Section
from headbook.metrics.examples import Example, previous_token, uniform
from headbook.schema import SinkView

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from headbook.attention.masks import ViewMask
    from headbook.attention.views import LayerAttention

LABELS = ("surface", "distance")
LONGEST = 32
WIDTH = LONGEST + 1  # distances from 0 on


def distances(scope: "ViewMask") -> "torch.Tensor":
    """Return each pair's distance as a one-hot row. *Shape:* ``(word * word, WIDTH)``, 0 or 1."""
    words = scope.mask.new_tensor(range(scope.frame.queries.n_words))
    apart = (words[:, None] - words).abs().clamp(max=LONGEST).flatten()
    return (apart[:, None] == scope.mask.new_tensor(range(WIDTH))).to(scope.frame.dtype)


def measure(layer: "LayerAttention") -> "torch.Tensor":
    """Mass on linked words, mass at each distance, and room for what surface alone would give.

    Sentences without a tree have none. *Shape:* ``(sentence, head, 2 + WIDTH)``.
    """
    scope, weights = layer.scope, layer.maps.by_word
    pairs = scope.cached(pairs_by_surface)
    found = weights.new_zeros((*weights.shape[:2], 2 + WIDTH))
    found[..., 0] = (weights * pairs.linked.unsqueeze(1)).sum((-1, -2))
    found[..., 1:-1] = weights.flatten(2) @ scope.cached(distances)
    return found * pairs.counted[:, None, None]


def about(scope: "ViewMask") -> "torch.Tensor":
    """Words that look; linked pairs and all pairs at each distance.

    *Shape:* ``(sentence, 1 + 2 WIDTH)``.
    """
    pairs, each = scope.cached(pairs_by_surface), scope.cached(distances)
    found = each.new_empty((len(pairs.visible), 1 + 2 * WIDTH))
    found[:, 0] = pairs.visible.any(-1).sum(-1)
    found[:, 1 : 1 + WIDTH] = pairs.linked.flatten(1).to(each.dtype) @ each
    found[:, 1 + WIDTH :] = pairs.visible.flatten(1).to(each.dtype) @ each
    return found * pairs.counted.unsqueeze(1)


def finish(stats: "NDArray[np.float64]", text_stats: "NDArray[np.float64]") -> FinishedRatios:
    """Mass on links beyond what is expected, over all mass. *Shape:* ``(sentence, head, label)``.

    The last statistic is the expectation by surface (`headbook.study.sums.word_samples`).
    """
    links, pairs = np.split(text_stats[:, 1 : 1 + 2 * WIDTH].sum(0), 2)
    share = np.divide(links, pairs, out=np.zeros(WIDTH), where=pairs > 0)
    by_distance = stats[..., 1 : 1 + WIDTH]
    expected = np.stack([stats[..., 1 + WIDTH], by_distance @ share], -1)
    beyond = stats[..., :1] - expected
    mass = np.broadcast_to(by_distance.sum(-1, keepdims=True), beyond.shape)
    return FinishedRatios(beyond, mass, np.broadcast_to(text_stats[:, None, :1], beyond.shape))


METRIC = SampledMetric(
    title="Dependency alignment above a surface baseline",
    question="Does attention follow the parse beyond the surface?",
    formula=r"\frac{\sum_{i,j} (A_{ij} - \bar A_{t_i, t_j, j-i})\,\mathrm{dep}(i,j)}"
    r"{\sum_{i,j} A_{ij}}",
    reference="Dependency alignment (Vig & Belinkov, 2019, eq. 4) minus its expectation given the "
    "head's attention by parts of speech and distance",
    bounds=lambda _: (-1, 1),
    section=Section.LANGUAGE,
    chart=ChartKind.LABELS,
    labels=LABELS,
    headline="surface",
    expected_at=1 + WIDTH,
    views=(SinkView.NOSINK,),
    needs=frozenset({Need.ONE_TEXT, Need.WORDS, Need.TREE}),
    measure=measure,
    sentence_statistics=about,
    finish=finish,
    compares_sentences=True,
    examples={
        "each of four words looks one back, where two of three heads stand": (
            (Example(previous_token(4), heads=(-1, 0, 1, 0)),),
            # In each direction by itself 2 of 3 pairs one back are linked, and all get 1.
            {"distance": 0.0, "surface": 0.0},
        ),
        "two of three words look at their head, which is as far as another word is": (
            (
                Example(
                    ((1.0, 0.0, 0.0), (1.0, 0.0, 0.0), (1.0, 0.0, 0.0)),
                    heads=(-1, 0, 0),
                ),
            ),
            # Of 3 in all, 2 go to the head; pairs 1 apart are linked in half of the cases, those
            # 2 apart always: expected are 1/2 and 1. By direction, too, pairs one back get 1/2 on
            # average, the pair two back 1, and the two linked pairs ahead nothing.
            {"distance": 2 / 3 - (1 / 2 + 1) / 3, "surface": (2 - 1 / 2 - 1) / 3},
        ),
        "all words look everywhere alike": (
            (Example(uniform(3), heads=(-1, 0, 0)),),
            {"distance": 0.0, "surface": 0.0},
        ),
    },
)
