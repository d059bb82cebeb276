"""Agreement of phrases induced from attention with those of syntax.

Neighbouring words with the same strongest word make a candidate phrase, and the candidates choose
the best binary tree over the sentence. Its brackets are compared with the phrases that the
dependency tree implies: each word with everything below it, if contiguous. Neither single words
nor the whole sentence count, as they are in every tree; sentences of one or two words are left
out.

- **f1**: the tree of this head alone;
- **joint**: the tree of all heads of the layer together, so the same for each of them;
- **right_branching**, **left_branching**, **balanced**: trees that ignore the words. For English
  the first is the strongest baseline;
- **ceiling**: the score of the best binary tree. It has two brackets fewer than words, and a
  dependency tree mostly implies even fewer, so that 1 is out of reach.

Punctuation is left out of both trees; words below a punctuation mark attach to its head. Attention
to a word is the sum over its subword tokens, from a word the mean. The sink is masked, since a
token to which all words attend would make one phrase of the whole sentence. Weights are rounded to
some five digits, so that equal ones are equal. Between equal trees the latest split wins, as in
the authors' code; undecided parts therefore branch to the left. Brackets are counted over all
sentences together. Taken on a sample of the sentences; texts of more than 100 words are left out.
"""

from typing import TYPE_CHECKING

import numpy as np

from headbook.analysis.trees import (
    balanced,
    best_trees,
    bracket_counts,
    equalised,
    gold_phrases,
    left_branching,
    phrase_scores,
    right_branching,
)
from headbook.attention.word_pairs import attention_parts, word_trees
from headbook.metrics.base import ChartKind, FinishedRatios, Need, Notable, SampledMetric, Section
from headbook.metrics.examples import Example, identity, previous_token
from headbook.schema import SinkView

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from headbook.attention.masks import ViewMask
    from headbook.attention.views import LayerAttention

LABELS = ("f1", "joint", "right_branching", "left_branching", "balanced", "ceiling")
BASELINES = (right_branching, left_branching, balanced)


def gold(scope: "ViewMask") -> "tuple[NDArray[np.bool_], NDArray[np.int64]]":
    """Gold brackets, and what of them is no head's doing.

    That is twice the brackets that the baselines and the best binary tree share with them, and
    those of both trees, as many for any binary tree.

    *Shape:* ``(sentence, word, word)`` and ``(sentence, baseline + 2)``.
    """
    trees = scope.cached(word_trees)
    n_words = trees.heads.shape[1]
    brackets = np.zeros((len(trees.heads), n_words, n_words), dtype=bool)
    counts = np.zeros((len(brackets), len(BASELINES) + 2), dtype=np.int64)
    for table, line, heads, n in zip(brackets, counts, trees.heads, trees.lengths, strict=True):
        phrases = table[:n, :n]
        phrases[:] = gold_phrases(heads[:n])
        found = [bracket_counts(tree(n), phrases)[0] for tree in BASELINES]
        line[:-1] = 2 * np.array([*found, phrases.sum()])
        line[-1] = max(n - 2, 0) + phrases.sum()
    return brackets, counts


def measure(layer: "LayerAttention") -> "torch.Tensor":
    """Twice the brackets in both trees by label, and those of both trees.

    *Shape:* ``(sentence, head, label + 1)``.
    """
    brackets, counts = layer.scope.cached(gold)
    lengths = layer.scope.cached(word_trees).lengths
    stats = np.zeros((*layer.attention.shape[:2], len(LABELS) + 1))
    stats[..., 2:] = counts[:, None]
    for part, weights in attention_parts(layer):
        n_words = weights.shape[-1]
        phrases = brackets[part, None, :n_words, :n_words]
        scores = phrase_scores(weights)
        for label, summed in enumerate((scores, scores.sum(1, keepdims=True))):
            trees = best_trees(equalised(summed), lengths[part, None], late=True)
            stats[part, :, label] = 2 * bracket_counts(trees, phrases)[0]
    return layer.attention.new_tensor(stats)


def finish(stats: "NDArray[np.float64]", _: "NDArray[np.float64]") -> FinishedRatios:
    """Twice the common brackets over those of both trees. *Shape:* ``(sentence, head, label)``."""
    return FinishedRatios.over_last(stats)


METRIC = SampledMetric(
    title="Phrase trees induced from attention",
    question="Can phrase trees be read from attention?",
    formula=r"F_1 = \frac{2\,|T \cap G|}{|T| + |G|}",
    reference="Mareček & Rosa (2019), section 6, arXiv:1906.01958; against phrases of the "
    "dependency tree",
    bounds=lambda _: (0, 1),
    section=Section.LANGUAGE,
    chart=ChartKind.LABELS,
    labels=LABELS,
    headline="f1",
    views=(SinkView.NOSINK,),
    needs=frozenset({Need.ONE_TEXT, Need.WORDS, Need.TREE}),
    notable=Notable.HIGH,
    measure=measure,
    finish=finish,
    examples={
        "two and two of four words look at the same word; the last two are a phrase": (
            (Example(tuple(identity(4)[i] for i in (1, 1, 3, 3)), heads=(1, -1, 3, 1)),),
            # One of the two brackets is the one of the gold tree.
            {"f1": 2 / 3, "joint": 2 / 3, "right_branching": 2 / 3, "left_branching": 0.0,
             "balanced": 2 / 3, "ceiling": 2 / 3},
        ),
        "each of five words looks one back; the first two and the last two are phrases": (
            (Example(previous_token(5), heads=(1, 2, -1, 4, 2)),),
            # The tree branches to the left: (0, 1), (0, 2), (0, 3). Gold: (0, 1), (3, 4).
            {"f1": 2 / 5, "right_branching": 2 / 5, "left_branching": 2 / 5, "balanced": 4 / 5,
             "ceiling": 4 / 5},
        ),
        "a sentence of two words has no brackets and leaves the number to the other": (
            (
                Example(identity(2), heads=(1, -1)),
                # Without the full stop between them, the first three words are a phrase.
                Example(
                    tuple(identity(5)[i] for i in (1, 1, 1, 1, 4)),
                    tags=("DET", "NOUN", "PUNCT", "ADJ", "VERB"),
                    heads=(1, 4, 4, 1, -1),
                ),
            ),
            {"f1": 2 / 3, "ceiling": 2 / 3},
        ),
    },
)  # fmt: skip
