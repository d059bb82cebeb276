"""The claim of the overview on a family of heads and on its head with the clearest role."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from headbook.analysis.accumulators import Estimate
from headbook.analysis.intervals import MIN_EFFECTIVE
from headbook.metrics import ids
from headbook.report.answers.head_numbers import evidence_number
from headbook.report.answers.head_roles import NEXT_WORD, head_roles
from headbook.report.answers.overview.claim_parts import (
    OverviewClaim,
    estimate_parts,
    heads_at,
    layers_text,
    sentences_text,
    short_link,
)
from headbook.report.families import MEANINGS, Family, families, family_names
from headbook.report.findings.finding import Parts
from headbook.report.head_types import METRIC, HeadType, OffSinkType, head_types
from headbook.report.linked_rows import LinkedNumber, claim_number, head_number
from headbook.report.next_word_tests import next_word_tests
from headbook.report.relation_counts import METRIC as RELATION_METRIC
from headbook.report.relation_counts import VIEW as RELATION_VIEW
from headbook.report.relation_tests import tests_of_stack
from headbook.report.relations import ends_of, points_text
from headbook.report.results import StackResults
from headbook.report.sink import sink_tokens
from headbook.report.wording import number_word, p_family_wise_text, rule_phrase
from headbook.results.formats import number, percent, whole_percent
from headbook.results.sentence import head_link
from headbook.schema import HELD_OUT_SPLIT, HeadKey, HeadName, Place, SinkView

Key = TypeVar("Key")

MIN_FAMILY_SHARE = 0.1  # of the heads in the layers that have the family
MIN_SHARE = 0.5  # lower bound of the share that names a head
MIN_ENTROPY = 0.8  # lower bound of the normalised entropy of an evenly spread head
MIN_SENTENCES = 20  # sentences in which a token is repeated


class Named(NamedTuple):
    """The head of a family that passes a test of its own.

    Attributes:
        head: the head.
        does: what it does, after its name and before its number.
        value: the number of its test, short.
        evidence: value, interval and baseline.
        of: what the number is a share of, after it; empty if the number stands in brackets.
    """

    head: HeadName
    does: str
    value: LinkedNumber
    evidence: Parts
    of: str = ""


AT_OFFSET = {
    "previous": "to the previous token",
    "next": "to the next token",
    "self": "to the token itself",
}
SAME_TOKEN = HeadKey(METRIC, SinkView.RENORM, "same_token")
ENTROPY = HeadKey(ids.RELATIVE_ENTROPY, SinkView.RENORM, "")


def fixed_distance(results: StackResults, members: Sequence[Place]) -> Iterator[Named]:
    """Yield the head with the largest share of its attention on one neighbour."""
    shares = {
        (label, place): results.heads(METRIC, SinkView.RENORM, label).at(*place)
        for label in AT_OFFSET
        if results.has_value(METRIC, SinkView.RENORM, label)
        for place in members
    }
    if best := _clearest(shares, MIN_SHARE):
        label, place = best
        column = HeadKey(METRIC, SinkView.RENORM, label)
        yield _of_share(results, place, column, AT_OFFSET[label])


def same_token(results: StackResults, members: Sequence[Place]) -> Iterator[Named]:
    """Yield the head with the largest share of its attention on other occurrences of a token."""
    shares = {place: results.heads(*SAME_TOKEN).at(*place) for place in members}
    clear = [
        place
        for place, value in shares.items()
        if value.low >= MIN_SHARE and value.sentences >= MIN_SENTENCES
    ]
    if clear:
        best = max(clear, key=lambda place: shares[place].value)
        yield _of_share(results, best, SAME_TOKEN, "most" if len(members) > 1 else "")


def _clearest(values: Mapping[Key, Estimate], least: float) -> Key | None:
    """Return the key of the largest value of those surely above a limit; None without one."""
    clear = [
        key for key, value in values.items()
        if value.low >= least and value.effective >= MIN_EFFECTIVE
    ]  # fmt: skip
    return max(clear, key=lambda key: values[key].value, default=None)


def _of_share(results: StackResults, place: Place, column: HeadKey, does: str) -> Named:
    """Return a head that is named by a share of its attention outside the sink."""
    head, value = HeadName(results.stack.name, *place), results.heads(*column).at(*place)
    exact = head_number(percent(value.value), head, column)
    return Named(
        head,
        does,
        exact._replace(text=whole_percent(value.value)),
        (
            head_link(head),
            ": ",
            *estimate_parts(exact, value),
            f" of its attention outside the sink.{sentences_text(value)}",
        ),
    )


def relation_or_next_word(results: StackResults, members: Sequence[Place]) -> Iterator[Named]:
    """Yield the head with the clearest relation, else the one that finds the next word of a class.

    Words and numbers are those of the head's own page.
    """
    yield from _with_relation(results, members)
    roles, tests = head_roles(results), next_word_tests(results)
    heads = heads_at(results, members)
    clear = [head for head in sorted(heads) if roles[head].kind == NEXT_WORD]
    if clear:
        head = max(clear, key=lambda each: tests[each.layer, each.head].chosen)
        test = tests[head.layer, head.head]
        found = roles[head].evidence[0]
        exact = evidence_number(head, found, percent(test.share.value))
        yield Named(
            head,
            f"to {test.target.phrase}, in",
            exact._replace(text=whole_percent(test.share.value)),
            (
                head_link(head),
                f": {roles[head].plain[0].lower()}{roles[head].plain[1:-1]}, in ",
                *estimate_parts(exact, test.share),
                f" of {round(test.share.events):,} cases; {found.baseline}: ",
                exact._replace(text=percent(test.at_offset.value)),
                f", {p_family_wise_text(test.p)}. Chosen on one half of the sentences, measured "
                f"on the other.{sentences_text(test.share)}",
            ),
            " of cases",
        )


def _with_relation(results: StackResults, members: Sequence[Place]) -> Iterator[Named]:
    """Yield the head whose relation has the largest margin over the best surface rule."""
    tests = results.cached(tests_of_stack)
    if tests is None:
        return
    claimed = [
        n for n in range(len(tests.labels)) if tests.claimed[n] and tuple(tests.head[n]) in members
    ]
    if not claimed:
        return
    n = max(claimed, key=lambda each: float(tests.selection_scores.margin.value[each]))
    layer, number_of_head = map(int, tests.head[n])
    head, ends = HeadName(results.stack.name, layer, number_of_head), ends_of(tests.labels[n])
    accuracy, margin = tests.accuracy.at(n), tests.margin.at(n)
    exact = claim_number(
        percent(accuracy.value), "relation", head.stack,
        (RELATION_METRIC, RELATION_VIEW, tests.labels[n]), split=HELD_OUT_SPLIT,
        layer=layer, head=number_of_head,
    )  # fmt: skip
    yield Named(
        head,
        f"from {ends.query} to {ends.key}",
        exact._replace(text=whole_percent(accuracy.value)),
        (
            head_link(head),
            f" attends from {ends.query} to {ends.key} in ",
            *estimate_parts(exact, accuracy),
            f" of {round(accuracy.events):,} cases: ",
            exact._replace(text=f"{points_text(margin.value)} points"),
            f" [{points_text(margin.low)}, {points_text(margin.high)}] over the best surface rule "
            f"({rule_phrase(tests.rule[n])}), {p_family_wise_text(float(tests.p[n]))}. Chosen on "
            f"one half of the sentences, measured on the other.{sentences_text(accuracy)}",
        ),
    )


def evenly_spread(results: StackResults, members: Sequence[Place]) -> Iterator[Named]:
    """Yield the head with the highest normalised entropy once the sink is masked."""
    entropies = {place: results.heads(*ENTROPY).at(*place) for place in members}
    if best := _clearest(entropies, MIN_ENTROPY):
        head, value = HeadName(results.stack.name, *best), entropies[best]
        linked = head_number(number(value.value), head, ENTROPY)
        yield Named(
            head,
            "most",
            linked._replace(text=f"entropy {linked.text}"),
            (
                head_link(head),
                ": ",
                "normalised entropy ",
                *estimate_parts(linked, value, share=False),
                f" once the sink is masked; uniform attention has 1.{sentences_text(value)}",
            ),
        )


Test = Callable[[StackResults, Sequence[Place]], Iterator[Named]]
# Families with what one head does, what several heads do, and the test that names a head.
FAMILY_TESTS: dict[Family, tuple[str, str, Test]] = {
    Family.NEARBY: ("attends to nearby words", "attend to nearby words", relation_or_next_word),
    Family.POSITION: (
        "attends at one fixed distance", "attend at one fixed distance", fixed_distance,
    ),
    Family.REPEATS: (
        "attends to other occurrences of a token", "attend to other occurrences of a token",
        same_token,
    ),
    Family.SPREAD: (
        "attends nearly evenly to all words", "attend nearly evenly to all words", evenly_spread,
    ),
}  # fmt: skip


def family_layers(results: StackResults, members: Sequence[Place]) -> tuple[int, ...]:
    """Return the layers from the first to the last head of a family.

    Empty if fewer than `MIN_FAMILY_SHARE` of the heads of these layers belong to the family.
    """
    if not members:
        return ()
    first, last = members[0][0], members[-1][0]
    layers = tuple(x for x in results.stack.attention_layers if first <= x <= last)
    share = len(members) / (len(layers) * results.stack.n_heads)
    return layers if share >= MIN_FAMILY_SHARE else ()


def family_claim(results: StackResults) -> Iterator[OverviewClaim]:
    """Yield the claim on the largest family with a head that passes a test of its own.

    Evenly spread heads come last, because most models have many of them.
    """
    of_heads = families(results)
    members = {
        family: sorted(place for place, own in of_heads.items() if own is family)
        for family in FAMILY_TESTS
    }
    order = sorted(FAMILY_TESTS, key=lambda each: (each is Family.SPREAD, -len(members[each])))
    for family in order:
        one, several, test = FAMILY_TESTS[family]
        layers, own = family_layers(results, members[family]), members[family]
        named = next(test(results, own), None) if layers else None
        if named is None:
            continue
        does = f"one head {one}" if len(own) == 1 else f"{number_word(len(own))} heads {several}"
        yield OverviewClaim(
            "family",
            results.stack.name,
            (
                f"In {layers_text(results, layers)}, {does}; ",
                short_link(named.head),
                f" {named.does}{' ' if named.of else ' ('}" if named.does else " (",
                named.value,
                f"{named.of}." if named.of else ").",
            ),
            heads_at(results, own),
            named.evidence,
        )
        return


class FamilyHeads(NamedTuple):
    """The heads of one family in all stacks.

    Attributes:
        family: the family.
        name: name of the family on pages.
        meaning: what its heads do.
        heads: the heads, stack by stack.
        clearest: head that shows best what the family does.
    """

    family: Family
    name: str
    meaning: str
    heads: tuple[HeadName, ...]
    clearest: HeadName


def family_heads(results: Mapping[str, StackResults]) -> list[FamilyHeads]:
    """Return the families that have heads, in their order."""
    found = []
    for family in Family:
        heads = [
            HeadName(stack, *place)
            for stack, each in results.items()
            for place, own in families(each).items()
            if own is family
        ]
        if heads:
            first = results[heads[0].stack]
            name = family_names(first)[family]
            clearest = max(heads, key=lambda head: _clarity(results[head.stack], head, family))
            meaning = MEANINGS.get(family) or _of_the_rest(results, heads)
            found.append(FamilyHeads(family, name, meaning, tuple(heads), clearest))
    return found


def _type_of(results: StackResults, head: HeadName) -> HeadType | None:
    return head_types(results)[head.layer, head.head]


def _of_the_rest(results: Mapping[str, StackResults], heads: Sequence[HeadName]) -> str:
    """Return what heads without a single type do."""
    sink = sink_tokens(results[heads[0].stack])
    types = [_type_of(results[head.stack], head) for head in heads]
    if any(kind is not None and kind.rest is OffSinkType.MIXED for kind in types):
        return "Several things at once; no single share of the attention reaches half."
    return f"Almost nothing is left once {sink} are masked."


def _clarity(results: StackResults, head: HeadName, family: Family) -> float:
    """Return by how much a head passes the threshold of its family."""
    kind = _type_of(results, head)
    if kind is None:
        return -math.inf
    shares = kind.shares
    values = {
        Family.POSITION: max(
            (share.corrected for share in (*shares.parts.values(), *shares.offsets.values())),
            default=math.nan,
        ),
        Family.NEARBY: shares.window.corrected,
        Family.BROADCAST: shares.key,
        Family.REPEATS: shares.same_token.corrected,
        Family.SPREAD: shares.entropy,
        Family.SINK: shares.sink.corrected,
    }
    value = values[family]
    return -math.inf if math.isnan(value) else value
