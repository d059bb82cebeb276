"""What a head does, from all evidence in one order.

Position, then a relation beyond the best fixed offset, then classes of tokens, then repetition,
then evenness or a mixture, and last the sink. Each claim is one sentence with its numbers:
estimate, interval, baseline. What was tested family-wise says so; the rest describes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headbook.report.numbers.claims import (
    Claim,
    estimate,
    point_estimate,
    position,
    repetition,
    shape,
    sink,
    sink_words,
    token_class,
)
from headbook.report.numbers.headtypes import HeadType, head_types
from headbook.report.numbers.relationnames import ends_of, relation_words
from headbook.report.numbers.results import StackResults
from headbook.report.numbers.typeshares import Place
from headbook.report.wording import counted, percent, signed, tested
from headbook.study.sentencedata import HeadName

if TYPE_CHECKING:
    from headbook.report.numbers.inference import RelationTests

__all__ = ["Claim", "Role", "estimate", "point_estimate", "role", "served", "sink_words"]


@dataclass(frozen=True)
class Role:
    """What one head does.

    Attributes:
        head: which one.
        type: its type; None where the study lacks the numbers.
        claims: evidence, in the order in which it is told.
    """

    head: HeadName
    type: HeadType | None
    claims: tuple[Claim, ...]

    @property
    def short(self) -> str:
        """What it does, in a few words without numbers; empty where nothing is known."""
        relation, sink = self.claim("relation"), self.claim("sink")
        if relation is not None:
            return relation.short
        parts = [claim.short for claim in self.claims if claim.short and claim.kind != "sink"]
        if sink is not None and sink.short:
            return ", otherwise ".join([sink.short, *parts[:1]])
        return ", and ".join(parts[:2])

    @property
    def text(self) -> str:
        """All claims as sentences."""
        return " ".join(claim.text for claim in self.claims)

    def claim(self, kind: str) -> Claim | None:
        """The claim of a kind; None without one."""
        return next((claim for claim in self.claims if claim.kind == kind), None)


def role(results: StackResults, head: HeadName, tests: "RelationTests | None") -> Role:
    """What a head does.

    Args:
        tests: which heads serve relations; without it nothing is said of them.
    """
    cell = head.layer, head.head
    head_type = head_types(results).get(cell)
    claims = (
        *position(results, cell, head_type),
        *relation(tests, cell),
        *token_class(results, cell, head_type),
        *repetition(results, cell),
        *shape(results, cell, head_type),
        *sink(results, cell, head_type),
    )
    return Role(head, head_type, claims)


def served(tests: "RelationTests | None", place: Place) -> int | None:
    """Number of the relation in which a head beats the best fixed offset most, family-wise."""
    if tests is None or not len(tests.labels):
        return None
    own = np.flatnonzero(tests.supported & (tests.head == place).all(1))
    return int(own[tests.margin.value[own].argmax()]) if len(own) else None


def relation(tests: "RelationTests | None", place: Place) -> Iterator[Claim]:
    """The relation that a head serves beyond the best fixed offset."""
    n = served(tests, place)
    if tests is None or n is None:
        return
    ends, label = ends_of(tests.labels[n]), tests.labels[n]
    found, offset = tests.accuracy.at(n), signed(int(tests.offset[n]))
    other, p = float(tests.at_offset.value[n]), float(tests.p[n])
    yield Claim(
        "relation",
        f"attends {relation_words(label)}",
        f"It attends most from {ends.query} to {ends.key} in {estimate(found)} of "
        f"{counted(round(found.events), 'case')}: {point_estimate(tests.margin.at(n))} over the "
        f"best fixed offset ({offset}: {percent(other)}), {tested(p)}.",
        found,
        other,
        f"best fixed offset ({offset})",
        p,
    )
