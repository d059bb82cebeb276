"""Attention along dependencies beyond what the distances of a head explain.

Most dependencies are short, so a head that always attends to the previous token follows many of
them without any grammar. From the head's alignment with dependencies, the expectation for a head
with the same distances is subtracted: at each distance the share of word pairs that are linked,
weighted by the head's attention at that distance. A head of fixed distances scores 0, whatever its
alignment. Above 0: linked words are preferred among equally distant ones; below 0: avoided.

Attention between words, sink masked: to a word the sum over its subword tokens, from a word the
mean. Distances are counted in words; 32 and more are one. Taken on a sample of the sentences,
because the share of linked pairs at each distance has to be known first.
"""

from typing import TYPE_CHECKING

import numpy as np

from headbook.metrics.base import Chart, Example, Finished, Need, SampledMetric, Section
from headbook.metrics.examples import previous_token, uniform
from headbook.terms import View

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from headbook.attention.frame import Scope
    from headbook.attention.layerattention import LayerAttention

LONGEST = 32
WIDTH = LONGEST + 1  # distances from 0 on


def distances(scope: "Scope") -> "torch.Tensor":
    """Which distance each pair of words has. *Shape:* ``(word * word, WIDTH)``, 0 or 1."""
    words = scope.mask.new_tensor(range(scope.frame.queries.n_words))
    apart = (words[:, None] - words).abs().clamp(max=LONGEST).flatten()
    return (apart[:, None] == scope.mask.new_tensor(range(WIDTH))).to(scope.frame.dtype)


def linked(scope: "Scope") -> "torch.Tensor":
    """Which words are head and dependent, either way. *Shape:* ``(sentence, word, word)``."""
    to_head = scope.frame.queries.to_head
    return to_head | to_head.mT


def measure(layer: "LayerAttention") -> "torch.Tensor":
    """Mass on linked words, then mass at each distance. *Shape:* ``(sentence, head, 1 + WIDTH)``.

    Sentences without a tree have none.
    """
    scope, weights = layer.scope, layer.maps.by_word
    on_links = (weights * scope.once(linked).unsqueeze(1)).sum((-1, -2))
    found = weights.new_empty((*weights.shape[:2], 1 + WIDTH))
    found[..., 0] = on_links
    found[..., 1:] = weights.flatten(2) @ scope.once(distances)
    return found * scope.frame.queries.parsed.unsqueeze(-1)


def about(scope: "Scope") -> "torch.Tensor":
    """Words that look; linked pairs and all pairs at each distance.

    *Shape:* ``(sentence, 1 + 2 WIDTH)``.
    """
    pairs = scope.word_visible
    each = scope.once(distances)
    found = each.new_empty((len(pairs), 1 + 2 * WIDTH))
    found[:, 0] = pairs.any(-1).sum(-1)
    found[:, 1 : 1 + WIDTH] = (pairs & scope.once(linked)).flatten(1).to(each.dtype) @ each
    found[:, 1 + WIDTH :] = pairs.flatten(1).to(each.dtype) @ each
    return found * scope.frame.queries.parsed


def finish(stats: "NDArray[np.float64]", text_stats: "NDArray[np.float64]") -> Finished:
    """Mass on links beyond what distances give, over all mass. *Shape:* ``(sentence, head, 1)``."""
    links, pairs = np.split(text_stats[:, 1 : 1 + 2 * WIDTH].sum(0), 2)
    share = np.divide(links, pairs, out=np.zeros(WIDTH), where=pairs > 0)
    by_distance = stats[..., 1 : 1 + WIDTH]
    beyond = stats[..., :1] - (by_distance @ share)[..., None]
    mass = by_distance.sum(-1, keepdims=True)
    return Finished(beyond, mass, np.broadcast_to(text_stats[:, None, :1], mass.shape))


METRIC = SampledMetric(
    title="Dependency alignment above a distance-matched baseline",
    formula=r"\frac{\sum_{i,j} A_{ij}\,\mathrm{dep}(i,j)}{\sum_{i,j} A_{ij}} - "
    r"\sum_d P(|i-j| = d)\,P(\mathrm{dep} \mid d)",
    reference="Dependency alignment (Vig & Belinkov, 2019, eq. 4) minus its expectation given the "
    "head's distances",
    bounds=lambda _: (-1, 1),
    section=Section.LANGUAGE,
    chart=Chart.HEATMAP,
    views=(View.NOSINK,),
    needs=frozenset({Need.ONE_TEXT, Need.WORDS, Need.TREE}),
    measure=measure,
    about=about,
    finish=finish,
    examples={
        "each of four words looks one back, where two of three heads stand": (
            (Example(previous_token(4), heads=(-1, 0, 1, 0)),),
            0.0,
        ),
        "two of three words look at their head, which is as far as another word is": (
            (
                Example(
                    ((1.0, 0.0, 0.0), (1.0, 0.0, 0.0), (1.0, 0.0, 0.0)),
                    heads=(-1, 0, 0),
                ),
            ),
            # Of 3 in all, 2 go to the head; pairs 1 apart are linked in half of the cases, those
            # 2 apart always: expected are 1/2 and 1.
            2 / 3 - (1 / 2 + 1) / 3,
        ),
        "all words look everywhere alike": ((Example(uniform(3), heads=(-1, 0, 0)),), 0.0),
    },
)
