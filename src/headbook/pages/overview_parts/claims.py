"""Claims on a page: their numbers, and the heads that each lights on the wall."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headbook.report.answers.overview.claim_parts import OverviewClaim
from headbook.report.wording import count_text
from headbook.schema import HeadName

Lit = Mapping[HeadName, Sequence[int]]  # numbers of the claims that light a head


@dataclass(frozen=True)
class ClaimItem:
    """A claim on the page.

    Attributes:
        claim: the claim.
        number: its number, from 1.
        heads: number of heads that it lights, in words.
        word: token that the live sentence shows with it; -1 without one.
    """

    claim: OverviewClaim
    number: int
    heads: str
    word: int = -1


def claim_items(claims: Sequence[OverviewClaim]) -> Iterator[ClaimItem]:
    """Yield the claims with their numbers and with the number of heads that each lights."""
    for place, claim in enumerate(claims, 1):
        yield ClaimItem(claim, place, count_text(len(claim.heads), "head"))


def lit_heads(claims: Sequence[OverviewClaim]) -> Lit:
    """Return the numbers of the claims that light each head."""
    return {
        head: [place for place, claim in enumerate(claims, 1) if head in claim.heads]
        for claim in claims
        for head in claim.heads
    }


def lit_classes(lit: Lit, head: HeadName) -> str:
    """Return the classes by which claims light a head."""
    return " ".join(f"k{place}" for place in lit.get(head, ()))
