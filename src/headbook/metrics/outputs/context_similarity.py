"""Cosine of a head's outputs for two tokens, by their distance.

The output of a head for a token is the mean of the values, weighted by attention, before the
output projection. The similarity of two tokens is the cosine of these vectors: 1 if the outputs
are the same. Label *all* is the mean over all pairs of a text; the others are means over pairs so
many tokens apart, *within* one sentence or *across* two sentences of a passage (`--pack`). Of a run
of one and the same token only the first takes part.

If all rows of attention are the same, all outputs are, whatever the tokens mean. *Similarity of
attention rows* shows where that is so; with the sink masked, the sink's keys are left out of the
sum. Norms do not count, so renormalised rows would give the same. Special tokens are left out.

From a sample of sentences. Uniform attention has no values and therefore no number.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import ChartKind, ContextMetric, Need, Ratio, Section
from headbook.metrics.examples import Example, identity, to_token
from headbook.schema import CONTEXT_DISTANCES

if TYPE_CHECKING:
    from headbook.attention.head_outputs import HeadOutputs


def measure(heads: "HeadOutputs") -> Ratio:
    """Similarities added up, and pairs. *Shape:* ``(sentence, head, label)``."""
    if heads.similarity is None:
        return Ratio(heads.nothing(len(CONTEXT_DISTANCES)), heads.nothing(len(CONTEXT_DISTANCES)))
    return Ratio(*heads.tensors(heads.cells.similarities()))


METRIC = ContextMetric(
    title="Similarity of head outputs",
    question="Does a head write the same for all words?",
    formula=r"S_{ij} = \frac{\langle o_i, o_j \rangle}{\|o_i\|\,\|o_j\|}, \qquad "
    r"o_i = \sum_m A_{im}\, v_m",
    reference="Halevi et al. (2025), arXiv:2512.21956; its details are not public, so that this is "
    "an operational definition",
    bounds=lambda _: (-1, 1),
    section=Section.OUTPUTS,
    chart=ChartKind.DISTANCES,
    labels=CONTEXT_DISTANCES,
    headline="all",
    needs=frozenset({Need.OUTPUTS}),
    measure=measure,
    examples={
        "each token looks at itself: the similarity is that of the values": (
            Example(identity(3), values=((1.0, 0.0), (1.0, 0.0), (0.0, 1.0))),
            {"all": 1 / 3, "within:1": 1 / 2, "within:2": 0.0},
        ),
        "two sentences, of a token each: its repetition takes no part": (
            Example(
                identity(3),
                ids=(5, 5, 6),
                values=((1.0, 0.0), (1.0, 0.0), (0.6, 0.8)),
                sentences=(0, 0, 1),
            ),
            {"all": 0.6, "across:2": 0.6, "across:1": float("nan"), "within:1": float("nan")},
        ),
        "all look at one token, so that the same is written everywhere": (
            Example(to_token(3, 0), values=((1.0, 2.0), (-1.0, 0.0), (0.0, 1.0))),
            {"all": 1.0, "within:1": 1.0, "across:1": float("nan")},
        ),
    },
)
