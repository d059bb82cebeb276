"""The role of a head: claims with estimate, interval and baseline, in a fixed order.

The order is: position, then a relation beyond the best surface rule or the rule that explains the
head best, then classes of tokens, then repetition, then evenness or a mixture, and last the sink.
Each claim is one sentence with estimate, interval and baseline. Claims that were tested family-wise
give p; the others describe.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from headbook.analysis.accumulators import Estimate
from headbook.analysis.intervals import MIN_EFFECTIVE
from headbook.metrics import ids
from headbook.metrics.patterns.type_shares import EVEN
from headbook.report.head_types import (
    KEY_NAMES,
    METRIC,
    MIN_SINK_MENTION,
    PART_NAMES,
    HeadType,
    OffSinkType,
    head_types,
    sink_share,
)
from headbook.report.relation_tests import best_relation, tests_of_stack
from headbook.report.relations import TAGS, ends_of, head_rules, relation_words
from headbook.report.results import TAG_VIEW, StackResults, share_of_head
from headbook.report.sink import sink_words
from headbook.report.wording import (
    capital,
    count_text,
    estimate,
    p_family_wise_text,
    point_estimate,
    rule_phrase,
)
from headbook.results.formats import THIN, percent
from headbook.schema import HeadKey, HeadName, Place, SinkView, heads_of

if TYPE_CHECKING:
    from headbook.report.relation_tests import RelationTests


MIN_REPEATED_SHARE = 0.4  # of attention on repeated random tokens, the usual convention
MIN_CLASS_RATIO = 2.0  # ratio to uniform attention for a claim on a class of tokens
MIN_FIRST_SHARE = 0.95  # part of the sink's attention for which the first position is named


class Claim(NamedTuple):
    """One piece of evidence on the role of a head.

    Attributes:
        kind: ``position``, ``relation``, ``rule``, ``class``, ``repetition``, ``shape`` or
            ``sink``.
        short: a phrase that follows the head's name; empty if the claim decides no role.
        text: the claim as a whole sentence.
        value: the number behind the claim.
        baseline: the number that ``value`` is compared with; NaN without one.
        against: name of the baseline.
        p: family-wise p; NaN if the claim was not tested.
        chosen: margin on the selection split, by which the best relation is chosen; else NaN.
        column: metric, view and label of ``value``; None if no single metric gives the value.
    """

    kind: str
    short: str
    text: str
    value: Estimate
    baseline: float = math.nan
    against: str = "uniform attention"
    p: float = math.nan
    chosen: float = math.nan
    column: HeadKey | None = None


def _subject(results: StackResults, head_type: HeadType) -> str:
    """Return the subject of a sentence on shares outside the sink."""
    return f"With {sink_words(results)} masked, it" if head_type.some_sink else "It"


SHARE_AND_PLACE = {
    OffSinkType.PREVIOUS: ("previous", "the previous token"),
    OffSinkType.NEXT: ("next", "the next token"),
    OffSinkType.SELF: ("self", "the token itself"),
    OffSinkType.SAME: ("same_token", "other occurrences of the token"),
}


def position_claim(
    results: StackResults, place: Place, head_type: HeadType | None
) -> Iterator[Claim]:
    """Yield a claim on the share at one offset, on the same token, or in a window."""
    if head_type is None:
        return
    if head_type.rest in SHARE_AND_PLACE:
        label, where = SHARE_AND_PLACE[head_type.rest]
    elif head_type.rest is OffSinkType.OFFSET:
        label = str(head_type.offset)
        side = "back" if head_type.offset < 0 else "ahead"
        where = f"the token {abs(head_type.offset)} positions {side}"
    elif head_type.rest is OffSinkType.WINDOW:
        window = head_type.shares.window
        share_text = f"{percent(window.value)} of its attention within three tokens"
        yield Claim(
            "position",
            "attends to nearby words, within three tokens",
            f"{_subject(results, head_type)} keeps {share_text}{_uniform_note(window.even)}.",
            Estimate(window.value, math.nan, math.nan, 0, 0),
            window.even,
            column=HeadKey(METRIC, SinkView.RENORM, "window"),
        )
        return
    else:
        return
    value = share_of_head(results, METRIC, SinkView.RENORM, label, place)
    uniform = share_of_head(results, METRIC, SinkView.RENORM, EVEN[label], place).value
    clause = f"{_subject(results, head_type)} gives {estimate(value)} of its attention to {where}"
    yield Claim("position", f"attends to {where}", f"{clause}{_uniform_note(uniform)}.", value,
                uniform, column=HeadKey(METRIC, SinkView.RENORM, label))  # fmt: skip


def _uniform_note(uniform: float) -> str:
    """Return a number of uniform attention in brackets; empty if it is missing."""
    return "" if math.isnan(uniform) else f" (uniform attention: {percent(uniform)})"


def _uniform_value(
    results: StackResults, metric: str, view: SinkView, label: str, place: Place
) -> float:
    """Return a number of uniform attention in a head's layer; NaN if it is not known."""
    if not results.has_value(metric, view, label):
        return math.nan
    return float(results.uniform(metric, view, label).value[place[0]])


KEY_CLASSES = {"punctuation": "punctuation", "same_word": "other subword tokens of the same word"}


def token_class(results: StackResults, place: Place, head_type: HeadType | None) -> Iterator[Claim]:
    """Yield the class of tokens furthest above uniform attention, if at least twice as high."""
    if head_type is not None and head_type.rest in {*SHARE_AND_PLACE, OffSinkType.OFFSET}:
        return
    default_view = results.stack.default_view
    candidates = [
        (ids.ATTENTION_TO, default_view, label, name) for label, name in KEY_CLASSES.items()
    ]
    candidates += [
        (ids.POS_RECEIVED, TAG_VIEW, tag, f"{tag_name} ({tag})") for tag, tag_name in TAGS.items()
    ]
    best, best_ratio = None, 0.0
    for metric, view, label, name in candidates:
        value = share_of_head(results, metric, view, label, place)
        uniform = _uniform_value(results, metric, view, label, place)
        clear = value.effective >= MIN_EFFECTIVE and value.low >= MIN_CLASS_RATIO * uniform > 0
        if clear and value.value / uniform > best_ratio:
            best_ratio = value.value / uniform
            best = _class_claim(name, value, uniform, HeadKey(metric, view, label))
    if best is not None:
        yield best


def _class_claim(name: str, value: Estimate, uniform: float, column: HeadKey) -> Claim:
    """Return the claim that a class of tokens receives more than under uniform attention."""
    verb = "receives" if name == KEY_CLASSES["punctuation"] else "receive"
    whole = "attention outside the sink" if column.metric == ids.POS_RECEIVED else "attention"
    text = (
        f"{capital(name)} {verb} {estimate(value)} of its {whole}, {value.value / uniform:.1f} "
        f"times uniform attention ({percent(uniform)})."
    )
    return Claim("class", f"attends to {name}", text, value, uniform, column=column)


REPETITION_KINDS = {
    ids.INDUCTION_SCORE: ("the token after its earlier occurrence", "an induction head"),
    ids.DUPLICATE_SCORE: ("its earlier occurrence", "a duplicate-token head"),
}


def repetition_claim(results: StackResults, place: Place) -> Iterator[Claim]:
    """Yield claims on repeated random tokens, above a conventional threshold."""
    for metric, (where, kind) in REPETITION_KINDS.items():
        value = share_of_head(results, metric, SinkView.RAW, "", place)
        if value.value >= MIN_REPEATED_SHARE and value.low > 0:
            uniform = _uniform_value(results, metric, SinkView.RAW, "", place)
            yield Claim(
                "repetition",
                f"is {kind}",
                f"On repeated random tokens, a token gives {estimate(value)} of its attention to "
                f"{where} (threshold 40{THIN}%; uniform attention: {percent(uniform)}).",
                value,
                uniform,
                column=HeadKey(metric, SinkView.RAW, ""),
            )


def shape_claim(results: StackResults, place: Place, head_type: HeadType | None) -> Iterator[Claim]:
    """Yield a claim on evenness, on keys that all queries share, or on the largest shares."""
    if head_type is None:
        return
    subject = _subject(results, head_type)
    if head_type.rest is OffSinkType.UNIFORM:
        value = share_of_head(results, ids.RELATIVE_ENTROPY, SinkView.RENORM, "", place)
        clause = (
            f"{subject} has a normalised entropy of {estimate(value, share=False)}, where 1 is "
        )
        yield Claim("shape", "spreads its attention nearly evenly",
                    f"{clause}uniform attention.", value, 1.0,
                    column=HeadKey(ids.RELATIVE_ENTROPY, SinkView.RENORM, ""))  # fmt: skip
    elif head_type.rest is OffSinkType.KEYS:
        value = share_of_head(results, ids.ATTENTION_PARTS, SinkView.RENORM, "key", place)
        key_class = max(
            head_type.shares.keys, key=lambda kind: head_type.shares.keys[kind], default="other"
        )
        key_class_note = "" if key_class == "other" else (
            f"; the key that receives most belongs mostly to {KEY_NAMES[key_class]} "
            f"({percent(head_type.shares.keys[key_class])} of sentences)"
        )  # fmt: skip
        clause = f"{subject} attends to the same keys from every query: the key explains "
        yield Claim("shape", "attends to the same words from everywhere",
                    f"{clause}{estimate(value)} of its departure from even attention"
                    f"{key_class_note}.", value,
                    column=HeadKey(ids.ATTENTION_PARTS, SinkView.RENORM, "key"))  # fmt: skip
    elif head_type.rest is OffSinkType.OWN:
        value = share_of_head(results, METRIC, SinkView.RENORM, "own_sentence", place)
        clause = f"{subject} keeps {estimate(value)} of its attention in the query's own sentence"
        uniform = head_type.shares.own_sentence.even
        yield Claim("shape", "attends within the query's own sentence",
                    f"{clause}{_uniform_note(uniform)}.", value, uniform,
                    column=HeadKey(METRIC, SinkView.RENORM, "own_sentence"))  # fmt: skip
    elif head_type.rest is OffSinkType.MIXED and head_type.shares.largest:
        yield _mixture_claim(results, place, head_type)


def _mixture_claim(results: StackResults, place: Place, head_type: HeadType) -> Claim:
    """Return the claim on the one or two largest shares of a mixed head."""
    shares, largest = head_type.shares.parts, head_type.shares.largest[:2]
    part_list = " and ".join(
        f"{PART_NAMES[part]} {percent(shares[part].value)}{_uniform_note(shares[part].even)}"
        for part in largest
    )
    first = largest[0]
    value = share_of_head(results, METRIC, SinkView.RENORM, first, place)
    if math.isnan(value.value):  # cross-attention: the share of words is 1 - punctuation
        value = Estimate(shares[first].value, math.nan, math.nan, 0, 0)
    names = " and ".join(PART_NAMES[part] for part in largest)
    return Claim(
        "shape",
        "" if head_type.sink else f"attends to {names}",
        f"{_subject(results, head_type)} mixes shares; furthest above uniform attention: "
        f"{part_list}.",
        value,
        shares[first].even,
        column=HeadKey(METRIC, SinkView.RENORM, first),
    )


def sink_claim(results: StackResults, place: Place, head_type: HeadType | None) -> Iterator[Claim]:
    """Yield a claim on the sink's attention and its share of the output."""
    attention = share_of_head(results, ids.SINK_SHARE, SinkView.RAW, "", place)
    if math.isnan(attention.value):
        return
    norm_share = share_of_head(results, ids.SINK_NORM_SHARE, SinkView.RAW, "", place)
    uniform, sink = (
        _uniform_value(results, ids.SINK_SHARE, SinkView.RAW, "", place),
        sink_words(results),
    )
    text = f"{capital(sink)} receive {estimate(attention)} of its attention{_uniform_note(uniform)}"
    first = share_of_head(results, ids.ATTENTION_TO, SinkView.RAW, "first", place).value
    is_large = sink_share(results, place).corrected >= MIN_SINK_MENTION
    at_first = is_large and first >= MIN_FIRST_SHARE * attention.value
    if at_first:
        text += ", almost all of it at the first position"
    if not math.isnan(norm_share.value):
        conjunction = (
            ", but" if norm_share.high < attention.low else ", and" if at_first else " and"
        )
        text += f"{conjunction} contribute {estimate(norm_share)} of its output norm"
    short = f"attends mostly to {sink}" if head_type is not None and head_type.sink else ""
    column = HeadKey(ids.SINK_SHARE, SinkView.RAW, "")
    yield Claim("sink", short, f"{text}.", attention, uniform, column=column)


@dataclass(frozen=True)
class Role:
    """The role of one head.

    Attributes:
        head: the head.
        type: type of the head; None if the study lacks the numbers.
        claims: evidence, in the order of the page.
    """

    head: HeadName
    type: HeadType | None
    claims: tuple[Claim, ...]

    @property
    def short(self) -> str:
        """The role in a few words without numbers; empty if nothing is known."""
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
        """Return the claim of a kind; None without one."""
        return next((claim for claim in self.claims if claim.kind == kind), None)


def role_of(results: StackResults, head: HeadName, tests: "RelationTests | None") -> Role:
    """Return the role of a head.

    Args:
        tests: the tests of relations; None for no claims on relations.
    """
    cell = head.layer, head.head
    head_type = head_types(results).get(cell)
    position = [*position_claim(results, cell, head_type)]
    window = head_type is not None and head_type.rest is OffSinkType.WINDOW
    relation_claims = [*relation(tests, cell)]
    claims = (
        *position,
        *(relation_claims or rule(results, cell, positional=bool(position) and not window)),
        *token_class(results, cell, head_type),
        *repetition_claim(results, cell),
        *shape_claim(results, cell, head_type),
        *sink_claim(results, cell, head_type),
    )
    return Role(head, head_type, claims)


def relation(tests: "RelationTests | None", place: Place) -> Iterator[Claim]:
    """Yield a claim on the relation that a head serves beyond the best surface rule."""
    n = best_relation(tests, place)
    if tests is None or n is None:
        return
    ends, label = ends_of(tests.labels[n]), tests.labels[n]
    accuracy, phrase = tests.accuracy.at(n), rule_phrase(tests.rule[n])
    rule_accuracy, p = float(tests.at_rule.value[n]), float(tests.p[n])
    beyond_rule = tests.accuracy_where_rule_fails.at(n)
    cases = count_text(round(beyond_rule.events), "case")
    rule_note = f" It finds {percent(beyond_rule.value)} of the {cases} that the rule misses."
    yield Claim(
        "relation",
        f"attends {relation_words(label)}",
        f"It attends most from {ends.query} to {ends.key} in {estimate(accuracy)} of "
        f"{count_text(round(accuracy.events), 'case')}: {point_estimate(tests.margin.at(n))} over "
        f"the best surface rule ({phrase}: {percent(rule_accuracy)}), {p_family_wise_text(p)}."
        + (rule_note if beyond_rule.events else ""),
        accuracy,
        rule_accuracy,
        f"best surface rule ({phrase})",
        p,
        float(tests.selection_scores.margin.value[n]),
    )


def rule(results: StackResults, place: Place, *, positional: bool) -> Iterator[Claim]:
    """Yield a claim on the surface rule that explains a head without a relation.

    Args:
        positional: whether another claim names an offset, so that an offset rule is not claimed.
    """
    head_rule = results.cached(head_rules).get(place)
    if (
        head_rule is None
        or not head_rule.names
        or (positional and head_rule.rule.startswith("offset:"))
    ):
        return
    phrase = rule_phrase(head_rule.rule)
    yield Claim(
        "rule",
        f"mostly attends to {phrase}",
        f"Its strongest other word is {phrase} in {estimate(head_rule.agreement)} of "
        f"{count_text(round(head_rule.agreement.events), 'word')} (mean over heads: "
        f"{percent(head_rule.mean.value)}).",
        head_rule.agreement,
        head_rule.mean.value,
        "mean over heads",
    )


def roles_by_head(results: StackResults) -> Mapping[HeadName, Role]:
    """Return the role of every head of a stack."""
    return results.cached(_roles)


def _roles(results: StackResults) -> Mapping[HeadName, Role]:
    tests = results.cached(tests_of_stack)
    return {head: role_of(results, head, tests) for head in heads_of(results.stack)}
