"""The claims of the overview: one to four sentences with one number each.

A claim is printed only under the condition of its rule. Candidates are taken in the order of
`RULES`, no two with the same heads, at most `MAX_CLAIMS`. The stacks of an encoder-decoder share
them: a second claim of a kind comes after the first of every kind. With fewer than `MIN_CLAIMS`
the model is compared with random weights. The claims are then ordered by depth, the sink first.
"""

from collections.abc import Callable, Iterator, Mapping
from statistics import median

from headbook.report.answers.overview.ablation_claims import (
    layer_claim,
    sink_heads_claim,
    task_claim,
)
from headbook.report.answers.overview.attention_claims import (
    induction_claim,
    random_weights_claim,
    same_keys_claim,
    sink_claim,
)
from headbook.report.answers.overview.claim_parts import OverviewClaim
from headbook.report.answers.overview.family_claim import family_claim
from headbook.report.results import StackResults

MAX_CLAIMS = 4
MIN_CLAIMS = 2  # claims below which a model is compared with random weights
RULES: tuple[Callable[[StackResults], Iterator[OverviewClaim]], ...] = (
    task_claim,
    sink_claim,
    family_claim,
    same_keys_claim,
    induction_claim,
    layer_claim,
    sink_heads_claim,
)


def overview_claims(results: Mapping[str, StackResults]) -> list[OverviewClaim]:
    """Return the claims that a study supports, ordered by depth, the sink first."""
    chosen: list[OverviewClaim] = []
    for claim in _candidates(results):
        if len(chosen) < MAX_CLAIMS and all(claim.heads != other.heads for other in chosen):
            chosen.append(claim)
    if len(chosen) < MIN_CLAIMS:
        chosen += [
            claim for of_stack in results.values() for claim in random_weights_claim(of_stack)
        ][:1]
    stacks = [*results]

    def depth(claim: OverviewClaim) -> tuple[bool, int, float]:
        layers = median(head.layer for head in claim.heads)
        return claim.kind != "sink", stacks.index(claim.stack), layers

    return sorted(chosen, key=depth)


def _candidates(results: Mapping[str, StackResults]) -> list[OverviewClaim]:
    """Return the claims of all stacks: the first of each kind, then the others."""
    by_rule = [
        [claim for of_stack in results.values() if of_stack.metrics for claim in rule(of_stack)]
        for rule in RULES
    ]
    firsts = [claim for claims in by_rule for claim in claims[:1]]
    return firsts + [claim for claims in by_rule for claim in claims[1:]]
