"""Share of words whose strongest key is the rarest word of the sentence.

The word itself counts among the keys. Some heads of the first layers do so in most sentences.
Attention to a word is the sum over its subword tokens, from a word the mean; the sink is masked.
The baseline chooses one of the visible words at random: one over their number. In causal models,
words before the rarest one do not see it and do not count.

The rarest word is the one with the lowest Zipf frequency in the language of the texts, by the
library wordfreq; for languages that it lacks, the least frequent word of the input. Among equally
rare words the first counts. Only words with a letter can be the rarest, and only sentences count
whose rarest word is rarer than each of the 500 most frequent words. In cross-attention it is the
rarest word of the source.
"""

import math
from typing import TYPE_CHECKING

from headbook.metrics.base import AttentionMetric, ChartKind, Need, Ratio, Section
from headbook.metrics.examples import Example, to_token, uniform
from headbook.schema import SinkView
from headbook.text.tokens import NO_WORD

if TYPE_CHECKING:
    import torch

    from headbook.attention.masks import ViewMask
    from headbook.attention.views import LayerAttention


def looking(scope: "ViewMask") -> "torch.Tensor":
    """1 for words that look and see the rarest word, else 0. *Shape:* ``(sentence, 1, word)``."""
    rarest, visible = scope.frame.keys.rarest, scope.word_visible
    # A word that was cut off is no key; its place may lie beyond the batch's words.
    there = (rarest != NO_WORD) & (rarest < visible.shape[2])
    place = rarest.masked_fill(~there, 0).unsqueeze(1).expand(-1, visible.shape[1], 1)
    sees = visible.gather(2, place).squeeze(-1) & there
    return sees.to(scope.frame.dtype).unsqueeze(1)


def measure(layer: "LayerAttention") -> Ratio:
    """Words whose strongest key is the rarest word, and all words that see it.

    *Shape:* ``(sentence, head)``.
    """
    weight, word = layer.maps.strongest_word
    rows = layer.scope.cached(looking) * (weight > 0)
    found = word == layer.frame.keys.rarest.unsqueeze(1)
    return Ratio((rows * found).sum(-1), rows.sum(-1))


def chance(scope: "ViewMask") -> Ratio:
    """Return the expected ratio of a head that picks a visible word at random.

    *Shape:* ``(sentence, 1)``.
    """
    rows = scope.cached(looking).squeeze(1)
    each = rows / scope.word_visible.sum(-1).clamp(min=1)
    return Ratio(each.sum(-1, keepdim=True), rows.sum(-1, keepdim=True))


METRIC = AttentionMetric(
    title="Rarest word as strongest key",
    question="How often is the rarest word the strongest key?",
    formula=r"\frac{1}{N}\sum_w [\operatorname{argmax}_v A_{wv} = \mathrm{rarest}]",
    reference="Voita et al. (2019), section 5.3, arXiv:1905.09418; frequencies by Speer (2022), "
    "wordfreq, doi:10.5281/zenodo.7199437",
    bounds=lambda _: (0, 1),
    section=Section.PATTERNS,
    chart=ChartKind.HEATMAP,
    views=(SinkView.NOSINK,),
    needs=frozenset({Need.WORDS, Need.FREQUENCIES}),
    measure=measure,
    chance=chance,
    examples={
        "all words look at the rarest": (Example(to_token(3, 1), rarest=1), 1.0),
        "two of three words look at the rarest most": (
            Example(((0.2, 0.2, 0.6), (0.5, 0.1, 0.4), (0.1, 0.1, 0.8)), rarest=2),
            2 / 3,
        ),
        "of equals the first is the strongest": (Example(uniform(4), rarest=3), 0.0),
        "no word is rare": (Example(uniform(4)), math.nan),
    },
)
