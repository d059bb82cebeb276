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
    PART_NAMES,
    SOME_SINK,
    TAG_VIEW,
    HeadType,
    OffSinkType,
    Place,
    head_types,
    share_of_head,
    sink_share,
)
from headbook.report.relation_tests import tests_of_stack
from headbook.report.relations import TAGS, ends_of, head_rules, relation_words
from headbook.report.results import StackResults
from headbook.report.wording import (
    THIN,
    capital,
    count_text,
    interval_text,
    number,
    p_family_wise_text,
    percent,
    rule_phrase,
)
from headbook.schema import HeadKey, SinkView
from headbook.study.sentence_data import HeadName, heads_of

if TYPE_CHECKING:
    from headbook.report.relation_tests import RelationTests


REPEATED = 0.4  # least share of attention on repeated random tokens for a claim, by convention
TWICE = 2.0  # least ratio to uniform attention for a claim on a class of tokens
ALMOST_ALL = 0.95  # share of the sink's attention from which on the first position is named


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


def estimate(value: Estimate, *, share: bool = True) -> str:
    """Return a number with its interval as text, with one unit: ``84.4 % [72.0, 96.9]``."""
    return " ".join(value_and_interval(value, share=share)).strip()


def value_and_interval(value: Estimate, *, share: bool = True) -> tuple[str, str]:
    """Return a number and its interval as two texts; the second is empty without an interval."""
    ends = interval_text(value.low, value.high, share=share)
    return number(value.value, share=share), ends


def signed_points(value: float) -> str:
    """Return a difference of shares in points as text, with its sign."""
    return f"{100 * value:+.1f}".replace("-", "−")


def point_estimate(value: Estimate) -> str:
    """Return a difference of shares with its interval as text: ``+40.0 points [+22.8, +57.2]``."""
    ends = f" [{signed_points(value.low)}, {signed_points(value.high)}]"
    return f"{signed_points(value.value)} points" + ("" if math.isnan(value.low) else ends)


def sink_words(results: StackResults) -> str:
    """Return the tokens that are the sink of a stack, in words."""
    what = "special tokens and the first position" if results.stack.causal else "special tokens"
    return f"{what}, and the learned sink" if results.stack.learned_sink else what


def _it(results: StackResults, found: HeadType) -> str:
    """Return the subject of a sentence on shares outside the sink."""
    return f"With {sink_words(results)} masked, it" if found.some_sink else "It"


AT = {
    OffSinkType.PREVIOUS: ("previous", "the previous token"),
    OffSinkType.NEXT: ("next", "the next token"),
    OffSinkType.SELF: ("self", "the token itself"),
    OffSinkType.SAME: ("same_token", "other occurrences of the token"),
}


def position_claim(results: StackResults, place: Place, found: HeadType | None) -> Iterator[Claim]:
    """Yield a claim on the share at one offset, on the same token, or in a window."""
    if found is None:
        return
    if found.rest in AT:
        label, where = AT[found.rest]
    elif found.rest is OffSinkType.OFFSET:
        label = str(found.offset)
        side = "back" if found.offset < 0 else "ahead"
        where = f"the token {abs(found.offset)} positions {side}"
    elif found.rest is OffSinkType.WINDOW:
        within = found.shares.window
        kept = f"{percent(within.value)} of its attention within three tokens"
        yield Claim(
            "position",
            "attends to a local window, up to three tokens away",
            f"{_it(results, found)} keeps {kept}{_uniform(within.even)}.",
            Estimate(within.value, math.nan, math.nan, 0, 0),
            within.even,
            column=HeadKey(METRIC, SinkView.RENORM, "window"),
        )
        return
    else:
        return
    value = share_of_head(results, METRIC, SinkView.RENORM, label, place)
    even = share_of_head(results, METRIC, SinkView.RENORM, EVEN[label], place).value
    clause = f"{_it(results, found)} gives {estimate(value)} of its attention to {where}"
    yield Claim("position", f"attends to {where}", f"{clause}{_uniform(even)}.", value,
                even, column=HeadKey(METRIC, SinkView.RENORM, label))  # fmt: skip


def _uniform(even: float) -> str:
    return "" if math.isnan(even) else f" (uniform attention: {percent(even)})"


def _even(results: StackResults, metric: str, view: SinkView, label: str, place: Place) -> float:
    """Return a number of uniform attention in a head's layer; NaN if it is not known."""
    if not results.has_value(metric, view, label):
        return math.nan
    return float(results.uniform(metric, view, label).value[place[0]])


CLASSES = {"punctuation": "punctuation", "same_word": "other subword tokens of the same word"}


def token_class(results: StackResults, place: Place, found: HeadType | None) -> Iterator[Claim]:
    """Yield the class of tokens furthest above uniform attention, if at least twice as high."""
    if found is not None and found.rest in {*AT, OffSinkType.OFFSET}:
        return
    own, best = results.stack.default_view, None
    asked = [(ids.ATTENTION_TO, own, label, name) for label, name in CLASSES.items()]
    asked += [(ids.POS_RECEIVED, TAG_VIEW, tag, f"{n} ({tag})") for tag, n in TAGS.items()]
    for metric, view, label, name in asked:
        value = share_of_head(results, metric, view, label, place)
        even = _even(results, metric, view, label, place)
        clear = value.effective >= MIN_EFFECTIVE and value.low >= TWICE * even > 0
        if clear and (best is None or value.value / even > best[0]):
            of = "attention outside the sink" if metric == ids.POS_RECEIVED else "attention"
            best = value.value / even, value, even, name, of, HeadKey(metric, view, label)
    if best is not None:
        times, value, even, name, of, column = best
        yield Claim(
            "class",
            f"attends to {name}",
            f"{capital(name)} receive {estimate(value)} of its {of}, {times:.1f} times "
            f"uniform attention ({percent(even)}).".replace("Punctuation receive", "Punctuation "
                                                            "receives"),
            value,
            even,
            column=column,
        )  # fmt: skip


REPETITION = {
    ids.INDUCTION_SCORE: ("the token after its earlier occurrence", "an induction head"),
    ids.DUPLICATE_SCORE: ("its earlier occurrence", "a duplicate-token head"),
}


def repetition_claim(results: StackResults, place: Place) -> Iterator[Claim]:
    """Yield claims on repeated random tokens, above a conventional threshold."""
    for metric, (where, kind) in REPETITION.items():
        value = share_of_head(results, metric, SinkView.RAW, "", place)
        if value.value >= REPEATED and value.low > 0:
            even = _even(results, metric, SinkView.RAW, "", place)
            yield Claim(
                "repetition",
                f"is {kind}",
                f"On repeated random tokens, a token gives {estimate(value)} of its attention to "
                f"{where} (threshold 40{THIN}%; uniform attention: {percent(even)}).",
                value,
                even,
                column=HeadKey(metric, SinkView.RAW, ""),
            )


def shape_claim(results: StackResults, place: Place, found: HeadType | None) -> Iterator[Claim]:
    """Yield a claim on evenness, on keys that all queries share, or on the largest shares."""
    if found is None:
        return
    it, parts = _it(results, found), found.shares.parts
    if found.rest is OffSinkType.UNIFORM:
        value = share_of_head(results, ids.RELATIVE_ENTROPY, SinkView.RENORM, "", place)
        clause = f"{it} has a normalised entropy of {estimate(value, share=False)}, where 1 is "
        yield Claim("shape", "spreads its attention almost evenly",
                    f"{clause}uniform attention.", value, 1.0,
                    column=HeadKey(ids.RELATIVE_ENTROPY, SinkView.RENORM, ""))  # fmt: skip
    elif found.rest is OffSinkType.KEYS:
        value = share_of_head(results, METRIC, SinkView.RENORM, "column", place)
        best = max(found.shares.keys, key=lambda kind: found.shares.keys[kind], default="other")
        often = "" if best == "other" else (
            f"; the key of largest weight belongs mostly to {KEY_NAMES[best]} "
            f"({percent(found.shares.keys[best])} of sentences)"
        )  # fmt: skip
        clause = f"{it} attends to the same keys from every query: one weight per key leaves "
        yield Claim("shape", "attends to the same keys from every query",
                    f"{clause}{estimate(value, share=False)} unexplained (scale 0 to 1)"
                    f"{often}.", value,
                    column=HeadKey(METRIC, SinkView.RENORM, "column"))  # fmt: skip
    elif found.rest is OffSinkType.OWN:
        value = share_of_head(results, METRIC, SinkView.RENORM, "own_sentence", place)
        clause = f"{it} keeps {estimate(value)} of its attention in the query's own sentence"
        even = found.shares.own_sentence.even
        yield Claim("shape", "attends within the query's own sentence",
                    f"{clause}{_uniform(even)}.", value, even,
                    column=HeadKey(METRIC, SinkView.RENORM, "own_sentence"))  # fmt: skip
    elif found.rest is OffSinkType.MIXED and found.shares.largest:
        first, *others = found.shares.largest[:2]
        listed = " and ".join(
            f"{PART_NAMES[part]} {percent(parts[part].value)}{_uniform(parts[part].even)}"
            for part in (first, *others)
        )
        value = share_of_head(results, METRIC, SinkView.RENORM, first, place)
        if math.isnan(value.value):  # cross-attention: the share of words is 1 - punctuation
            value = Estimate(parts[first].value, math.nan, math.nan, 0, 0)
        names = [PART_NAMES[part] for part in (first, *others)]
        yield Claim("shape", "" if found.sink else f"attends to {' and '.join(names)}",
                    f"{it} mixes shares; furthest above uniform attention: {listed}.",
                    value, parts[first].even,
                    column=HeadKey(METRIC, SinkView.RENORM, first))  # fmt: skip


def sink_claim(results: StackResults, place: Place, found: HeadType | None) -> Iterator[Claim]:
    """Yield a claim on the sink's attention and its share of the output."""
    given = share_of_head(results, ids.SINK_SHARE, SinkView.RAW, "", place)
    if math.isnan(given.value):
        return
    brought = share_of_head(results, ids.SINK_NORM_SHARE, SinkView.RAW, "", place)
    even, what = _even(results, ids.SINK_SHARE, SinkView.RAW, "", place), sink_words(results)
    text = f"{capital(what)} receive {estimate(given)} of its attention{_uniform(even)}"
    first = share_of_head(results, ids.ATTENTION_TO, SinkView.RAW, "first", place).value
    named = sink_share(results, place).corrected >= SOME_SINK
    inserted = named and first >= ALMOST_ALL * given.value
    if inserted:
        text += ", almost all of it at the first position"
    if not math.isnan(brought.value):
        joined = ", but" if brought.high < given.low else ", and" if inserted else " and"
        text += f"{joined} contribute {estimate(brought)} of its output norm"
    short = f"attends mostly to {what}" if found is not None and found.sink else ""
    column = HeadKey(ids.SINK_SHARE, SinkView.RAW, "")
    yield Claim("sink", short, f"{text}.", given, even, column=column)


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
    at = [*position_claim(results, cell, head_type)]
    window = head_type is not None and head_type.rest is OffSinkType.WINDOW
    serves = [*relation(tests, cell)]
    claims = (
        *at,
        *(serves or rule(results, cell, positional=bool(at) and not window)),
        *token_class(results, cell, head_type),
        *repetition_claim(results, cell),
        *shape_claim(results, cell, head_type),
        *sink_claim(results, cell, head_type),
    )
    return Role(head, head_type, claims)


def best_relation(tests: "RelationTests | None", place: Place) -> int | None:
    """Return the index of the relation that a head serves best, by the selection split, or None."""
    if tests is None or not len(tests.labels):
        return None
    return tests.best_label(tests.claimed & (tests.head == place).all(1))


def relation(tests: "RelationTests | None", place: Place) -> Iterator[Claim]:
    """Yield a claim on the relation that a head serves beyond the best surface rule."""
    n = best_relation(tests, place)
    if tests is None or n is None:
        return
    ends, label = ends_of(tests.labels[n]), tests.labels[n]
    found, phrase = tests.accuracy.at(n), rule_phrase(tests.rule[n])
    other, p = float(tests.at_rule.value[n]), float(tests.p[n])
    wrong = tests.accuracy_where_rule_fails.at(n)
    cases = count_text(round(wrong.events), "case")
    beside = f" It finds {percent(wrong.value)} of the {cases} that the rule misses."
    yield Claim(
        "relation",
        f"attends {relation_words(label)}",
        f"It attends most from {ends.query} to {ends.key} in {estimate(found)} of "
        f"{count_text(round(found.events), 'case')}: {point_estimate(tests.margin.at(n))} over the "
        f"best surface rule ({phrase}: {percent(other)}), {p_family_wise_text(p)}."
        + (beside if wrong.events else ""),
        found,
        other,
        f"best surface rule ({phrase})",
        p,
        float(tests.selection_scores.margin.value[n]),
    )


def rule(results: StackResults, place: Place, *, positional: bool) -> Iterator[Claim]:
    """Yield a claim on the surface rule that explains a head without a relation.

    Args:
        positional: whether another claim names an offset, so that an offset rule is not claimed.
    """
    found = results.cached(head_rules).get(place)
    if found is None or not found.names or (positional and found.rule.startswith("offset:")):
        return
    phrase = rule_phrase(found.rule)
    yield Claim(
        "rule",
        f"mostly attends to {phrase}",
        f"Its strongest other word is {phrase} in {estimate(found.agreement)} of "
        f"{count_text(round(found.agreement.events), 'word')} (mean over heads: "
        f"{percent(found.mean.value)}).",
        found.agreement,
        found.mean.value,
        "mean over heads",
    )


def roles_by_head(results: StackResults) -> Mapping[HeadName, Role]:
    """Return the role of every head of a stack."""
    return results.cached(_roles)


def _roles(results: StackResults) -> Mapping[HeadName, Role]:
    tests = results.cached(tests_of_stack)
    return {head: role_of(results, head, tests) for head in heads_of(results.stack)}
