"""Claims of the overview of two models: the largest of each kind, or a sentence in their place."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from headbook.comparison.claims import (
    ComparedStack,
    SizedClaim,
    alike_claim,
    compared_stacks,
    equal_evidence,
    heads_claim,
    layers_claim,
)
from headbook.comparison.comparison import Comparison
from headbook.comparison.drift import drift_summary
from headbook.comparison.number_claims import PairOfFunctions, number_claims, supported_numbers
from headbook.report.answers.overview.claim_parts import OF_STACK, OverviewClaim
from headbook.report.linked_rows import Parts
from headbook.report.wording import count_text
from headbook.results.sentence import Sentence
from headbook.schema import HeadName

# Rules of each stack; the last is joined by the claim on several equal stacks.
RULES: tuple[Callable[[ComparedStack], Iterator[SizedClaim]], ...] = (
    heads_claim, layers_claim, alike_claim,
)  # fmt: skip


def difference_claims(
    comparison: Comparison, functions: Mapping[str, PairOfFunctions] | None = None
) -> list[OverviewClaim]:
    """Return the claims on corresponding heads that two studies support, one of each kind.

    Args:
        comparison: the two models.
        functions: function of each head in both models, by name of the pair of stacks.
    """
    stacks = [*compared_stacks(comparison)]
    of_kinds = [[*number_claims(comparison, functions or {})]]
    of_kinds += [[claim for stack in stacks for claim in rule(stack)] for rule in RULES]
    of_kinds[-1] += _equal_stacks(stacks)
    claims: list[OverviewClaim] = []
    for sized in of_kinds:
        best = max(sized, key=lambda claim: claim.size, default=None)
        if best is not None and all(best.claim.heads != claim.heads for claim in claims):
            claims.append(best.claim)
    return claims


def _equal_stacks(stacks: Sequence[ComparedStack]) -> Iterator[SizedClaim]:
    """Yield the claim on several stacks that attend exactly alike; nothing for fewer than two."""
    equal = [stack for stack in stacks if stack.summary.equal]
    if len(equal) < 2:
        return
    names = " and".join(OF_STACK[stack.stack.name] for stack in equal)
    heads = frozenset(HeadName(each.stack.name, *place) for each in equal for place in each.places)
    sentence: Parts = (f"All heads{names} attend exactly alike in both models.",)
    evidence = equal_evidence(equal[0], equal[0].places[0])
    claim = OverviewClaim(
        "alike", equal[0].stack.name, Sentence(sentence), heads, Sentence(evidence)
    )
    yield SizedClaim(float(len(heads)), claim)


def equal_text(comparison: Comparison) -> str:
    """Return the sentence in place of claims on models that differ nowhere clearly."""
    names = " and ".join(comparison.sides.names)
    found = [drift_summary(heads) for heads in comparison.heads.values()]
    known = [summary for summary in found if summary is not None]
    if known and all(summary.equal for summary in known):
        total = sum(int(summary.there.sum()) for summary in known)
        return f"The attention of {names} is exactly equal in all {count_text(total, 'head')}."
    sentences = count_text(comparison.sides.sentences, "sentence")
    if not known and comparison.heads:
        return f"The attention of {names} was not compared: no sentence has maps of both models."
    supported = supported_numbers(comparison)
    if supported:
        numbers = f"{count_text(supported, 'number')} of layers"
        return f"No head differs with support between {names} on these {sentences}; {numbers} do."
    return (
        f"No difference between {names} is supported on these {sentences}: q < 0.05 for no number "
        "of a head or layer."
    )
