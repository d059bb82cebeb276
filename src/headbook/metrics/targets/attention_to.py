"""Share of attention that each kind of key receives.

The mean over tokens of the attention that goes to one kind of key:

- **previous**, **next**, **self**: by position.
- **first**: the first token of the text; position 0.
- **special**: all special tokens; **separator**: those that close a sentence, such as `[SEP]` or
  `</s>`.
- **punctuation**: tokens of nothing but punctuation.
- **same_token**: other occurrences of the same token.
- **same_word**: the other subword tokens of the token's own word; **rest_of_word**: the same, for
  continuation tokens only, such as `##ly` in `secret ##ly`.

Tokens without such a key do not count: the last token has no next one. Kinds overlap, so the
shares need not sum to 1. Attention across two texts has only the kinds that do not compare
positions or tokens: first, special, separator and punctuation.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import AttentionMetric, ChartKind, Notable, Ratio, Section
from headbook.metrics.examples import Example, previous_token, to_token, uniform
from headbook.schema import IntervalRule
from headbook.text.tokens import NO_WORD

if TYPE_CHECKING:
    import torch

    from headbook.attention.masks import BatchMask, QueryKeyPairs, ViewMask
    from headbook.attention.views import LayerAttention

BY_OFFSET = {"previous": -1, "self": 0, "next": 1}
BY_KEY = ("first", "separator", "special", "punctuation")
BY_PAIR = ("same_token", "same_word", "rest_of_word")
LABELS = (*BY_OFFSET, *BY_KEY, *BY_PAIR)


def kinds(scope: "ViewMask") -> "torch.Tensor":
    """Return the membership of keys in each of `BY_KEY`. *Shape:* ``(sentence, key, label)``."""
    keys = scope.frame.keys
    table = keys.valid.new_zeros((*keys.valid.shape, len(BY_KEY)))
    for number, members in enumerate((keys.first, keys.separator, keys.special, keys.punctuation)):
        table[..., number] = members & scope.kept_keys
    return table.to(scope.frame.dtype)


def tables(frame: "BatchMask") -> "list[torch.Tensor]":
    """Return the membership of pairs in each of `BY_PAIR`.

    *Shape:* ``(sentence, query, key)`` each, 0 or 1.
    """
    queries, keys, other = frame.queries, frame.keys, frame.offset != 0
    word = queries.word[:, :, None]
    same_token = queries.ids[:, :, None] == keys.ids[:, None, :]
    same_word = (word == keys.word[:, None, :]) & (word != NO_WORD)
    rest = same_word & ~queries.initial[:, :, None]
    return [
        (found & other & frame.attention_mask).to(frame.dtype)
        for found in (same_token, same_word, rest)
    ]


def pairs(frame: "BatchMask") -> "QueryKeyPairs":
    """Return the pairs of query and key of a kind."""
    return frame.pairs(frame.cached(tables))


def queries_with(scope: "ViewMask") -> "torch.Tensor":
    """Return the number of queries that see a key of each kind.

    *Shape:* ``(sentence, 1, label)``.
    """
    frame = scope.frame
    counts = scope.mask.new_zeros((len(scope.mask), 1, len(LABELS)))
    of_key = (scope.mask.squeeze(1) @ scope.cached(kinds)) > 0
    counts[:, 0, len(BY_OFFSET) : len(BY_OFFSET) + len(BY_KEY)] = of_key.sum(1)
    if not frame.stack.crosses:
        for label, offset in BY_OFFSET.items():
            counts[:, 0, LABELS.index(label)] = scope.sees_at(offset).sum(1)
        for label, members in zip(BY_PAIR, frame.cached(tables), strict=True):
            sees = (scope.mask.squeeze(1) * members).sum(-1) > 0  # faster than `any`
            counts[:, 0, LABELS.index(label)] = sees.sum(1)
    return counts


def measure(layer: "LayerAttention") -> Ratio:
    """Mass on each kind, and the number of queries that see one.

    *Shape:* ``(sentence, head, label)``.
    """
    n, by_key = layer.received.shape[-1], layer.received @ layer.scope.cached(kinds)
    mass = by_key.new_zeros((*by_key.shape[:2], len(LABELS)))
    mass[..., len(BY_OFFSET) : len(BY_OFFSET) + len(BY_KEY)] = by_key
    # Positions and tokens of two texts do not compare.
    if not layer.frame.stack.crosses:
        if n > 1:
            mass[..., : len(BY_OFFSET)] = layer.by_offset[..., n - 2 : n + 1]
        mass[..., -len(BY_PAIR) :] = layer.mass_on_pairs(layer.frame.cached(pairs))
    return Ratio(mass, layer.scope.cached(queries_with))


METRIC = AttentionMetric(
    title="Attention to kinds of tokens",
    question="Which kinds of tokens do heads attend to?",
    formula=r"\frac{1}{N_c}\sum_{i\ \mathrm{sees\ a}\ c}\ \sum_{j\ \mathrm{is}\ c} A_{ij}",
    reference="Clark et al. (2019), section 3, arXiv:1906.04341",
    bounds=lambda _: (0, 1),
    section=Section.PATTERNS,
    chart=ChartKind.LABELS,
    labels=LABELS,
    headline="previous",
    spreads=dict.fromkeys(BY_PAIR, IntervalRule.RARE),
    notable=Notable.HIGH,
    measure=measure,
    pairs=pairs,
    examples={
        "each token looks one back": (
            Example(previous_token(4)),
            {"previous": 1.0, "next": 0.0, "self": 1 / 4, "first": 2 / 4},
        ),
        "all look at the special token at the end": (
            Example(to_token(3, 2), special=(2,)),
            {"special": 1.0, "next": 1 / 2, "previous": 0.0},
        ),
        "all of four tokens look everywhere alike": (Example(uniform(4)), {"self": 1 / 4}),
    },
)
