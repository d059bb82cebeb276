"""Share of tokens that are attention sinks.

A token is a sink of a head if it receives more than 30 % of the attention of the tokens that see
it, on average. The value is the share of such tokens, by position or kind:

- **all**: every visible token.
- **first**: the first token of the text; position 0.
- **special**: all special tokens; **separator**: those that close a sentence, such as `[SEP]`.
- **punctuation**: tokens of nothing but punctuation.
- **other**: none of these.

Kinds overlap, except the last. Each token of each sentence counts once, whatever its weight.

Keys at the end of a causal text are seen by few tokens, the last one by itself alone, so one or
two strong weights make a sink: mind this for *all* and *other* of causal models. In short texts a
share of 30 % is close to uniform attention, the baseline. Gu et al. average the same indicator
over heads and layers, for the first token and texts of 64 tokens.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import AttentionMetric, ChartKind, Ratio, Section
from headbook.metrics.examples import Example, identity, to_token, uniform
from headbook.schema import SinkView

if TYPE_CHECKING:
    import torch

    from headbook.attention.masks import ViewMask
    from headbook.attention.views import LayerAttention

THRESHOLD = 0.3
BY_KEY = ("first", "separator", "special", "punctuation")
LABELS = ("all", *BY_KEY, "other")


def n_looking(scope: "ViewMask") -> "torch.Tensor":
    """Return the number of queries that see each key. *Shape:* ``(sentence, 1, key)``."""
    return scope.mask.sum(-2)


def kinds(scope: "ViewMask") -> "torch.Tensor":
    """Return the kind of each key that is seen, as 0 and 1.

    *Shape:* ``(sentence, key, label)``.
    """
    keys, seen = scope.frame.keys, scope.cached(n_looking)[:, 0] > 0
    table = seen.unsqueeze(-1).repeat(1, 1, len(LABELS))
    for label in BY_KEY:
        members = getattr(keys, label)
        table[..., LABELS.index(label)] &= members
        table[..., -1] &= ~members
    return table.to(scope.frame.dtype)


def n_keys(scope: "ViewMask") -> "torch.Tensor":
    """Return the number of keys of each kind. *Shape:* ``(sentence, 1, label)``."""
    return scope.cached(kinds).sum(1, keepdim=True)


def measure(layer: "LayerAttention") -> Ratio:
    """Return the number of sinks of each kind, and of keys.

    *Shape:* ``(sentence, head, label)``.
    """
    scope = layer.scope
    mean = layer.received / scope.cached(n_looking).clamp(min=1)
    return Ratio((mean > THRESHOLD).to(mean.dtype) @ scope.cached(kinds), scope.cached(n_keys))


METRIC = AttentionMetric(
    title="Sink rate",
    question="How often does a key receive much of all attention?",
    formula=r"\frac{1}{|c|}\sum_{j\ \mathrm{is\ a}\ c} "
    r"\left[\frac{1}{N_j}\sum_{i\ \mathrm{sees}\ j} A_{ij} > 0.3\right]",
    reference="Gu et al. (2025), arXiv:2410.10781",
    bounds=lambda _: (0, 1),
    section=Section.PATTERNS,
    chart=ChartKind.LABELS,
    labels=LABELS,
    headline="first",
    views=(SinkView.RAW,),
    measure=measure,
    examples={
        "everybody looks at the special token at the end": (
            Example(to_token(4, 3), special=(3,)),
            {"all": 1 / 4, "special": 1.0, "first": 0.0, "other": 0.0},
        ),
        "each of four tokens looks at itself": (Example(identity(4)), {"all": 0.0, "first": 0.0}),
        "of three tokens that look alike each gives a third": (
            Example(uniform(3)),
            {"all": 1.0, "first": 1.0, "other": 1.0},
        ),
    },
)
