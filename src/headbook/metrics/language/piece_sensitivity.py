"""How much numbers of words depend on how subword tokens are combined.

A tokenizer splits words into subword tokens, and there is no one way back. Two numbers of each
head are computed three times: its alignment with dependencies (either direction), and the share of
words whose strongest other word is their head.

- **sum**: attention to a word is the sum over its subword tokens, from a word the mean. The rule
  of all other metrics of words.
- **first**: only the first subword token of each word counts, as query and as key.
- **unsplit**: only words of one subword token take part.

If the three agree, subword tokens do not matter. If not, the sum can favour long words: more
tokens, more weight. Sink masked, on a sample of the sentences.
"""

from typing import TYPE_CHECKING

import numpy as np

from headbook.metrics.base import ChartKind, FinishedRatios, Need, SampledMetric, Section
from headbook.metrics.examples import Example, previous_token, to_token
from headbook.schema import SinkView

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from headbook.attention.masks import ViewMask
    from headbook.attention.views import LayerAttention

RULES = ("sum", "first", "unsplit")
LABELS = tuple(f"{what}:{rule}" for what in ("alignment", "head_found") for rule in RULES)


def allowed(scope: "ViewMask") -> "list[torch.Tensor]":
    """Return the visible pairs of words under each of the `RULES`.

    *Shape:* ``(sentence, word, word)``.
    """
    frame = scope.frame
    first = _at_first(scope.visible.unsqueeze(1), scope).squeeze(1)
    first = first & (frame.word_rows > 0).any(-1).unsqueeze(2)
    first = first & (frame.word_columns > 0).any(1).unsqueeze(1)
    whole = frame.word_columns.sum(1) == 1
    return [scope.word_visible, first, first & whole.unsqueeze(2) & whole.unsqueeze(1)]


def _at_first(maps: "torch.Tensor", scope: "ViewMask") -> "torch.Tensor":
    """Return maps between the first pieces of words."""
    # The largest of equals that argmax gives is the first.
    rows = (scope.frame.word_rows > 0).byte().argmax(-1)
    columns = (scope.frame.word_columns > 0).byte().argmax(1)
    rows_of_word = maps.gather(
        2, rows[:, None, :, None].expand(-1, maps.shape[1], -1, maps.shape[3])
    )
    return rows_of_word.gather(3, columns[:, None, None, :].expand(*rows_of_word.shape[:3], -1))


def measure(layer: "LayerAttention") -> "torch.Tensor":
    """Numerators, denominators and words of each label. *Shape:* ``(sentence, head, 3 * label)``.

    Sentences without a tree have none.
    """
    scope, maps = layer.scope, layer.maps
    to_head, rules = scope.frame.queries.to_head, scope.cached(allowed)
    first = _at_first(maps.kept, scope)
    parts = first.new_empty((*first.shape[:2], 3, len(LABELS)))
    for index, (weights, may) in enumerate(zip((maps.by_word, first, first), rules, strict=True)):
        seen = weights * may.unsqueeze(1)
        linked = seen * (to_head | to_head.mT).unsqueeze(1)
        parts[..., 0, index] = linked.sum((-1, -2))
        parts[..., 1, index] = seen.sum((-1, -2))
        parts[..., 2, index] = may.any(-1).sum(-1, keepdim=True)
        strongest, key = (seen - seen.diagonal(dim1=-2, dim2=-1).diag_embed()).max(-1)
        asked = (may & to_head).any(-1).unsqueeze(1)
        among = to_head.unsqueeze(1).expand(-1, seen.shape[1], -1, -1)
        hit = among.gather(-1, key.unsqueeze(-1)).squeeze(-1) & (strongest > 0) & asked
        parts[..., 0, len(RULES) + index] = hit.sum(-1)
        parts[..., 1:, len(RULES) + index] = asked.sum(-1, keepdim=True)
    return parts.flatten(2) * scope.frame.queries.parsed.unsqueeze(-1)


def finish(stats: "NDArray[np.float64]", _: "NDArray[np.float64]") -> FinishedRatios:
    """Return numerators and denominators of the ratios.

    *Shape:* ``(sentence, head, label)`` each.
    """
    return FinishedRatios(*np.split(stats[..., : 3 * len(LABELS)], 3, axis=-1))


METRIC = SampledMetric(
    title="Sensitivity to subword tokens",
    question="Do numbers depend on how words are split?",
    formula=r"\frac{\sum_{v,w} A^{\mathrm{rule}}_{vw}\,\mathrm{dep}(v,w)}"
    r"{\sum_{v,w} A^{\mathrm{rule}}_{vw}}",
    reference="Rules of Clark et al. (2019), section 4.1, arXiv:1906.04341, and of their code",
    bounds=lambda _: (0, 1),
    section=Section.LANGUAGE,
    chart=ChartKind.LABELS,
    labels=LABELS,
    headline="alignment:sum",
    views=(SinkView.NOSINK,),
    needs=frozenset({Need.ONE_TEXT, Need.WORDS, Need.TREE}),
    measure=measure,
    finish=finish,
    examples={
        "each of three words of one piece looks one back, where its head stands": (
            (Example(previous_token(3), heads=(-1, 0, 1)),),
            {
                "alignment:sum": 2 / 3,
                "alignment:first": 2 / 3,
                "alignment:unsplit": 2 / 3,
                "head_found:sum": 1.0,
            },
        ),
        "all look at the first of two words, the head of the other": (
            (Example(to_token(2, 0), heads=(-1, 0)),),
            {"alignment:sum": 1 / 2, "head_found:first": 1.0},
        ),
    },
)
