"""How well sentence ends can be recovered from a head.

Two rules propose sentence ends. *similarity*: the mean centred *similarity of head outputs* of up
to ten tokens before a gap with as many after it; an end at each gap that is the lowest of five on
both sides and half a standard deviation below the mean of the passage; no gap inside a run of one
token. *attention*: an end after each `.`, `!` or `?` that receives more attention than the mean
token of the passage. Special tokens, which mark the true ends, are left out.

*f1* compares ends: higher is better. *f1_1* and *f1_2* count ends that are at most one or two
tokens from a true one, each with one other end at most; *pk* and *windowdiff* are shares of
windows, half a mean sentence long, that differ from the truth: lower is better. Two baselines
without a model: an end after every `.`, `!` or `?` (*punctuation*), and as many ends at even
distances (*even*). A layer's number is that of all its heads: gaps and attention are averaged over
heads first.

Only passages of several sentences take part (`--pack`), of the sample.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import ChartKind, ContextMetric, Need, Notable, Ratio, Section
from headbook.metrics.examples import Example, identity
from headbook.schema import HEAD_RULES, SEGMENTATION_RULES

if TYPE_CHECKING:
    from headbook.attention.head_outputs import HeadOutputs

MEASURES = ("f1", "f1_1", "f1_2", "pk", "windowdiff")
LABELS = tuple(f"{measure}:{rule}" for rule in SEGMENTATION_RULES for measure in MEASURES)


def measure(heads: "HeadOutputs") -> Ratio:
    """Return the ratios of each rule and measure. *Shape:* ``(sentence, head, label)``."""
    return _ratio(heads, together=False)


def layer(heads: "HeadOutputs") -> Ratio:
    """Return the ratios of each rule and measure for all heads of a layer together."""
    return _ratio(heads, together=True)


def _ratio(heads: "HeadOutputs", *, together: bool) -> Ratio:
    if heads.outputs is None or not heads.joined.any():
        return Ratio(heads.nothing(len(LABELS)), heads.nothing(len(LABELS)))
    above, below, ends = heads.segmented(together=together)
    return Ratio(above, below, ends)


METRIC = ContextMetric(
    title="Segmentation into sentences",
    question="Do head outputs show where sentences end?",
    formula=r"F_1 = \frac{2\,|P \cap T|}{|P| + |T|}, \qquad "
    r"P_k = \frac{1}{n-k+1}\sum_i \left[\,[p_i > 0] \ne [t_i > 0]\,\right]",
    reference="Beeferman et al. (1999), doi:10.1023/A:1007506220214; Pevzner & Hearst (2002), "
    "doi:10.1162/089120102317341756; Halevi et al. (2025), arXiv:2512.21956",
    bounds=lambda _: (0, 1),
    section=Section.OUTPUTS,
    chart=ChartKind.LABELS,
    labels=LABELS,
    headline="f1:similarity",
    low_labels=frozenset(label for label in LABELS if label.startswith(("pk", "windowdiff"))),
    of_no_head=frozenset(label for label in LABELS if not label.endswith(HEAD_RULES)),
    needs=frozenset({Need.ONE_TEXT, Need.OUTPUTS, Need.PASSAGES}),
    notable=Notable.HIGH,
    measure=measure,
    layer=layer,
    examples={
        "two values change where the sentence does": (
            Example(
                identity(8),
                values=(*[(1.0, 0.0)] * 4, *[(0.0, 1.0)] * 4),
                sentences=(0, 0, 0, 0, 1, 1, 1, 1),
                stops=(3, 5),
            ),
            {
                "f1:similarity": 1.0,
                "windowdiff:similarity": 0.0,
                "f1:punctuation": 2 / 3,
                "f1_2:punctuation": 2 / 3,
                "f1:even": 1.0,
                "pk:even": 0.0,
            },
        ),
        "a full stop two tokens before the end, and one at the end of the next sentence": (
            Example(
                identity(8),
                values=(*[(1.0, 0.0)] * 4, *[(0.0, 1.0)] * 4),
                sentences=(0, 0, 0, 0, 1, 1, 1, 1),
                stops=(1, 7),
            ),
            {"f1:punctuation": 0.0, "f1_1:punctuation": 0.0, "f1_2:punctuation": 1.0},
        ),
        "a text of one sentence": (
            Example(identity(3), values=((1.0, 0.0), (0.0, 1.0), (1.0, 0.0))),
            {"f1:similarity": float("nan")},
        ),
    },
)
