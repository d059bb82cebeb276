"""Share of attention along syntactic dependencies.

The share of attention between two words of which one is the other's syntactic head:

- **either**: in any direction;
- **to_head**: from a dependent to its head;
- **to_dependent**: from a head to its dependents.

Most dependencies are short, so attention to the neighbouring word scores high without any syntax.
Compare attention to the previous and the next token.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import AttentionMetric, ChartKind, Need, Notable, Ratio, Section
from headbook.metrics.examples import Example, previous_token, to_token
from headbook.text.tokens import NO_WORD

if TYPE_CHECKING:
    import torch

    from headbook.attention.masks import BatchMask, QueryKeyPairs
    from headbook.attention.views import LayerAttention

LABELS = ("either", "to_head", "to_dependent")


def links(frame: "BatchMask") -> "QueryKeyPairs":
    """Pairs in which the key is the query's head, in which it is its dependent, and any with both.

    Each piece of a word stands for its share of the word. Words that are each other's head are no
    tree, but annotation may hold them: where a multiword token became one word, for example.
    """
    word_i, word_j = frame.queries.word[:, :, None], frame.keys.word[:, None, :]
    to_head = (frame.queries.head[:, :, None] == word_j) & (word_j != NO_WORD)
    to_dependent = (frame.keys.head[:, None, :] == word_i) & (word_i != NO_WORD)
    share = frame.word_weights.unsqueeze(-1)
    both = to_head & to_dependent
    kinds = [to_head, to_dependent, *([both] if bool(both.any()) else [])]
    return frame.pairs([(kind & frame.attention_mask) * share for kind in kinds])


def n_words(frame: "BatchMask") -> "torch.Tensor":
    """Return the number of queries. *Shape:* ``(sentence, 1, 1)``."""
    return (frame.word_weights.sum(-1, keepdim=True) * frame.queries.parsed).unsqueeze(-1)


def measure(layer: "LayerAttention") -> Ratio:
    """Mass along dependencies, and all mass from words. *Shape:* ``(sentence, head, label)``."""
    mass = layer.mass_on_pairs(layer.frame.cached(links))
    found = mass.new_empty((*mass.shape[:2], len(LABELS)))
    found[..., 1:] = mass[..., :2]
    found[..., 0] = mass[..., :2].sum(-1) - mass[..., 2:].sum(-1)
    total = (layer.total_from_words * layer.frame.queries.parsed).unsqueeze(-1)
    return Ratio(found, total, layer.frame.cached(n_words))


METRIC = AttentionMetric(
    title="Dependency alignment",
    question="How much attention follows the parse?",
    formula=r"\frac{\sum_{i,j} A_{ij}\,\mathrm{dep}(i,j)}{\sum_{i,j} A_{ij}}",
    reference="Vig & Belinkov (2019), eq. 4, arXiv:1906.04284; "
    "word level after Clark et al. (2019)",
    bounds=lambda _: (0, 1),
    section=Section.LANGUAGE,
    chart=ChartKind.LABELS,
    labels=LABELS,
    headline="either",
    needs=frozenset({Need.ONE_TEXT, Need.WORDS, Need.TREE}),
    notable=Notable.HIGH,
    measure=measure,
    pairs=links,
    examples={
        "each of three words looks one back, where its head stands": (
            Example(previous_token(3), heads=(-1, 0, 1)),
            {"either": 2 / 3, "to_head": 2 / 3, "to_dependent": 0.0},
        ),
        "all look at the middle word, the head of both others": (
            Example(to_token(3, 1), heads=(1, -1, 1)),
            {"either": 2 / 3, "to_head": 2 / 3, "to_dependent": 0.0},
        ),
    },
)
