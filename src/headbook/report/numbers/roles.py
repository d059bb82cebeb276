"""What a head does, from all evidence in one order.

Position, then a relation beyond the best surface rule or the rule that explains the head best,
then classes of tokens, then repetition, then evenness or a mixture, and last the sink. Each claim
is one sentence with its numbers: estimate, interval, baseline. What was tested family-wise says so;
the rest describes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
from headbook.report.numbers.headrelations import head_rules
from headbook.report.numbers.headtypes import HeadType, Rest, head_types
from headbook.report.numbers.relationnames import ends_of, relation_words
from headbook.report.numbers.results import StackResults
from headbook.report.numbers.typeshares import Place
from headbook.report.wording import counted, percent, rule_phrase, tested
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
    at = [*position(results, cell, head_type)]
    window = head_type is not None and head_type.rest is Rest.WINDOW
    serves = [*relation(tests, cell)]
    claims = (
        *at,
        *(serves or rule(results, cell, positional=bool(at) and not window)),
        *token_class(results, cell, head_type),
        *repetition(results, cell),
        *shape(results, cell, head_type),
        *sink(results, cell, head_type),
    )
    return Role(head, head_type, claims)


def served(tests: "RelationTests | None", place: Place) -> int | None:
    """Return the number of the relation that a head serves most, by the choice half."""
    if tests is None or not len(tests.labels):
        return None
    return tests.first(tests.claimed & (tests.head == place).all(1))


def relation(tests: "RelationTests | None", place: Place) -> Iterator[Claim]:
    """Yield the relation that a head serves beyond the best surface rule."""
    n = served(tests, place)
    if tests is None or n is None:
        return
    ends, label = ends_of(tests.labels[n]), tests.labels[n]
    found, phrase = tests.accuracy.at(n), rule_phrase(tests.rule[n])
    other, p = float(tests.at_rule.value[n]), float(tests.p[n])
    wrong = tests.where_wrong.at(n)
    cases = counted(round(wrong.events), "case")
    beside = f" It finds {percent(wrong.value)} of the {cases} that the rule misses."
    yield Claim(
        "relation",
        f"attends {relation_words(label)}",
        f"It attends most from {ends.query} to {ends.key} in {estimate(found)} of "
        f"{counted(round(found.events), 'case')}: {point_estimate(tests.margin.at(n))} over the "
        f"best surface rule ({phrase}: {percent(other)}), {tested(p)}."
        + (beside if wrong.events else ""),
        found,
        other,
        f"best surface rule ({phrase})",
        p,
        float(tests.choice.margin.value[n]),
    )


def rule(results: StackResults, place: Place, *, positional: bool) -> Iterator[Claim]:
    """Yield the surface rule that explains a head without a relation.

    Args:
        positional: whether one offset was named already, so that an offset says nothing new.
    """
    found = results.once(head_rules).get(place)
    if found is None or not found.names or (positional and found.rule.startswith("offset:")):
        return
    phrase = rule_phrase(found.rule)
    yield Claim(
        "rule",
        f"mostly attends to {phrase}",
        f"Its strongest other word is {phrase} in {estimate(found.agreement)} of "
        f"{counted(round(found.agreement.events), 'word')} (mean over heads: "
        f"{percent(found.mean.value)}).",
        found.agreement,
        found.mean.value,
        "mean over heads",
    )
