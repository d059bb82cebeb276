"""The facts that the list of heads shows: what a head does, its best relation, and its verdict."""

from dataclasses import dataclass

from headbook.report.ablation import head_changes, short_verdict
from headbook.report.families import Family, families, family_names
from headbook.report.head_types import (
    KEY_NAMES,
    MIN_PART_SHARE,
    NOT_MEASURED,
    PART_NAMES,
    HeadType,
    OffSinkType,
)
from headbook.report.linked_rows import LinkedNumber, claim_number
from headbook.report.next_word_tests import next_word_tests
from headbook.report.relation_counts import METRIC, VIEW
from headbook.report.relation_tests import best_relation, tests_of_stack
from headbook.report.relations import (
    points_text,
    relation_words,
)
from headbook.report.results import StackResults
from headbook.report.roles import Role, roles_by_head
from headbook.report.wording import rule_phrase
from headbook.results.formats import head_name, head_page, number
from headbook.schema import HELD_OUT_SPLIT, HeadKey, HeadName, heads_of


@dataclass(frozen=True)
class HeadWord:
    """A word about a head, with what supports the word.

    Attributes:
        word: the word that readers filter by; empty if nothing is known.
        detail: further words.
        sort_value: number by which heads with the same word are sorted; None without one.
        number: number printed beside the word; None without one.
    """

    word: str = ""
    detail: str = ""
    sort_value: float | None = None
    number: LinkedNumber | None = None


@dataclass(frozen=True)
class HeadFacts:
    """The facts about a head in the list of heads.

    Attributes:
        head: stack, layer and number of the head.
        name, href: name of the head and address of its page.
        family: family of the head; None if its type was not measured.
        label: family by name, with the type and further evidence on the role.
        relation: the relation that is claimed for the head; empty without one.
        beats: whether the relation is claimed: the head beats the best surface rule family-wise,
            and does more than prefer a class of words.
        verdict: verdict by ablation; empty for heads that were not replaced.
        has_role: whether the head has a clear role: that of `has_clear_role`, or the next or
            previous word of a class, which it finds more often than any fixed offset does.
    """

    head: HeadName
    name: str
    href: str
    family: Family | None
    label: HeadWord
    relation: HeadWord
    beats: bool
    verdict: HeadWord
    has_role: bool


TYPE_WORDS = {
    OffSinkType.PREVIOUS: "previous token",
    OffSinkType.NEXT: "next token",
    OffSinkType.SELF: "the token itself",
    OffSinkType.SAME: "other occurrences of the token",
    OffSinkType.WINDOW: "within three tokens",
    OffSinkType.UNIFORM: "nearly evenly",
    OffSinkType.KEYS: "same words from everywhere",
    OffSinkType.OWN: "own sentence",
    OffSinkType.NOT_MEASURED: NOT_MEASURED,
    OffSinkType.NONE: "nothing else",
}


def type_words(head_type: HeadType) -> str:
    """Return the type of a head outside the sink in words, with the sink if it gets most."""
    shares = head_type.shares
    words = TYPE_WORDS.get(head_type.rest, "")
    match head_type.rest:
        case OffSinkType.OFFSET:
            side = "back" if head_type.offset < 0 else "ahead"
            words = f"the token {abs(head_type.offset)} positions {side}"
        case OffSinkType.KEYS if shares.keys:
            best = max(shares.keys, key=lambda kind: shares.keys[kind])
            words = f"same words from everywhere: {KEY_NAMES[best]}" if best != "other" else words
        case OffSinkType.MIXED:
            parts = " + ".join(PART_NAMES[part] for part in shares.largest[:2])
            words = parts or "nothing clear"
    return f"{words} + sink" if head_type.sink else words


def has_clear_role(role: Role) -> bool:
    """Check whether a head has a clear role.

    It serves a dependency relation, or attends to repeated tokens, or gives at least half of its
    attention to one place with the whole interval above that, and less than half to the sink.
    """
    if role.claim("relation") or role.claim("repetition"):
        return True
    position = role.claim("position")
    if position is None or role.type is None or role.type.sink:
        return False
    return role.type.rest is not OffSinkType.WINDOW and position.value.low >= MIN_PART_SHARE


def head_facts(results: StackResults) -> tuple[HeadFacts, ...]:
    """Return the facts about every head of a stack, layer by layer."""
    return results.cached(_facts)


def _facts(results: StackResults) -> tuple[HeadFacts, ...]:
    verdicts = _verdicts(results)
    facts = []
    for head in heads_of(results.stack):
        cell, role = (head.layer, head.head), results.cached(roles_by_head)[head]
        claimed = _claimed_relation(results, head)
        facts.append(
            HeadFacts(
                head=head,
                name=head_name(head),
                href=head_page(head),
                family=families(results).get(cell),
                label=_label(results, head, role),
                relation=claimed or HeadWord(),
                beats=claimed is not None,
                verdict=HeadWord(short_verdict(verdicts.get(head, ""))),
                has_role=has_clear_role(role) or bool(_next_word(results, head)),
            )
        )
    return tuple(facts)


def _verdicts(results: StackResults) -> dict[HeadName, str]:
    """Return the verdict of each head that was replaced; empty without ablation."""
    ablation = results.study.corpus_sums.ablation
    if ablation is None:
        return {}
    rows = head_changes(ablation)
    heads = zip(rows["stack"], rows["layer"], rows["head"], strict=True)
    return {HeadName(*head): verdict for head, verdict in zip(heads, rows["verdict"], strict=True)}


def _label(results: StackResults, head: HeadName, role: Role) -> HeadWord:
    if role.type is None:
        return HeadWord()
    family = families(results).get((head.layer, head.head))
    name = family_names(results)[family] if family else NOT_MEASURED
    next_word = _next_word(results, head)
    kinds = ("class", "repetition") if next_word else ("rule", "class", "repetition")
    claims = [role.claim(kind) for kind in kinds]
    further = [next_word] if next_word else []
    further += [claim.short for claim in claims if claim is not None]
    return HeadWord(name, "; ".join([type_words(role.type), *further]))


def _next_word(results: StackResults, head: HeadName) -> str:
    """Return that a head attends to the next word of a class, if its test supports that."""
    test = next_word_tests(results).get((head.layer, head.head))
    return f"attends to {test.target.phrase}" if test is not None and test.supported else ""


def _claimed_relation(results: StackResults, head: HeadName) -> HeadWord | None:
    """Return the relation that is claimed for a head, with its accuracy on the held-out split."""
    tests = results.cached(tests_of_stack)
    n = best_relation(tests, (head.layer, head.head))
    if tests is None or n is None:
        return None
    accuracy, rule = float(tests.accuracy.value[n]), rule_phrase(tests.rule[n])
    return HeadWord(
        relation_words(tests.labels[n]),
        f"{points_text(float(tests.margin.value[n]))} points over {rule}",
        accuracy,
        claim_number(
            number(accuracy, share=True), "relation", head.stack,
            HeadKey(METRIC, VIEW, tests.labels[n]),
            split=HELD_OUT_SPLIT, layer=head.layer, head=head.head,
        ),
    )  # fmt: skip
