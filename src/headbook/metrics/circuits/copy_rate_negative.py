r"""How often a head lowers a token that it reads below nearly all other tokens.

The share of token types whose own token is among the five smallest of all logits that the head
adds when it reads this type alone: `copy_rate` with the sign of the output turned. Heads with a
high rate suppress what they read (McDougall et al. 2023); by chance it is 5 over the size of the
vocabulary. Pages say that a head suppresses from 10 %.
"""

from typing import TYPE_CHECKING

from headbook.metrics.base import ChartKind, CircuitMetric, Notable, Section
from headbook.metrics.circuits.copy_rate import measure as share_of_types

if TYPE_CHECKING:
    from headbook.analysis.arrays import Floats


def measure(smaller: "Floats") -> "Floats":
    """Share of types with fewer than five smaller logits than their own.

    Args:
        smaller: number of tokens with a smaller logit than the type itself. *Shape:*
            ``(..., type)``.
    """
    return share_of_types(smaller)


METRIC = CircuitMetric(
    title="Negative copy rate",
    question="Which heads lower the tokens that they read?",
    variant_of="copy_rate",
    formula=r"\frac1{|T|} \sum_{t \in T} \left[\, t \in \mathrm{top}_5"
    r"\left(-E'_t W_V W_O W_U\right) \right]",
    reference="McDougall et al. (2023), arXiv:2310.04625",
    bounds=lambda _: (0, 1),
    section=Section.CIRCUITS,
    chart=ChartKind.HEATMAP,
    notable=Notable.HIGH,
    measure=measure,
)
