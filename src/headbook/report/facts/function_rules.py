"""Rules that decide the function of a head, each from the numbers of that head.

A rule returns a `Decision`, or None if it does not hold. The lower end of the 95 % interval
decides, on enough sentences and query tokens (`headbook.report.function_numbers.reaches`).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from headbook.attention.surface_rules import TAG_SETS
from headbook.metrics import ids
from headbook.report import thresholds
from headbook.report.alignment import AER, SAME_FORM
from headbook.report.class_flows import class_name, key_flows, rule_queries
from headbook.report.facts.language.alignment import agreement
from headbook.report.facts.texts import regions
from headbook.report.facts.word_rules import word_rules
from headbook.report.function_numbers import (
    ENTROPY,
    OWN_SENTENCE,
    PUNCTUATION,
    RENORM,
    ROUNDING,
    SINK,
    best_offset,
    counts,
    is_uneven,
    largest_parts,
    number_of,
    reaches,
    share_of,
)
from headbook.report.relation_counts import VIEW
from headbook.report.relation_tests import tests_of_stack
from headbook.report.relations import ends_of
from headbook.report.results import StackResults
from headbook.report.thresholds import (
    HALF,
    MIN_QUERIES,
    MIN_SENTENCES,
    Threshold,
)
from headbook.report.wording import count_text, number_word, rule_phrase
from headbook.results.formats import word_list
from headbook.results.number import Number
from headbook.results.sentence import NOTHING, Sentence, listed, say
from headbook.schema import HeadKey, HeadName
from headbook.text.aligned_words import AlignmentRow

# Metrics without which a head has no function.
NEEDED = (ids.SINK_SHARE, ids.TYPE_SHARES, ids.RELATIVE_ENTROPY)
OFFSET_NAMES = {-1: "the previous token", 0: "the token itself", 1: "the next token"}
MAX_CLASSES = 3  # classes of queries that a sentence names
MAX_KEY_CLASSES = 2  # classes of keys that a sentence names
PART_NAMES = {
    "previous": "previous token",
    "next": "next token",
    "self": "the token itself",
    "near": "tokens 2–3 away",
    "punctuation": "distant punctuation",
    "repeated": "distant same token",
    "before": "distant earlier tokens",
    "after": "distant later tokens",
}


class Decision(NamedTuple):
    """A rule that holds for a head.

    Attributes:
        number: the number that decided.
        threshold: value that its lower end reached.
        even: the number under uniform attention, if it is corrected for chance.
        noun: name in lists, if the rule has none of its own.
        where: words after "Attends", if the rule has none of its own.
        text: whole sentence, of functions that are not about where a head attends.
    """

    number: Number | None = None
    threshold: float = math.nan
    even: Number | None = None
    noun: str = ""
    where: str = ""
    text: Sentence = NOTHING


Decide = Callable[[StackResults, HeadName, Threshold], Decision | None]


def _reached(
    number: Number, least: float, even: Number | None = None, noun: str = "", where: str = ""
) -> Decision | None:
    """Return a decision by a number that reaches a value, or None."""
    return Decision(number, least, even, noun, where) if reaches(number, least) else None


def by_number(key: HeadKey) -> Decide:
    """Return a rule by a number as it is."""

    def decide(results: StackResults, head: HeadName, threshold: Threshold) -> Decision | None:
        number = number_of(results, key, head)
        return _reached(number, threshold.value) if number else None

    return decide


def by_share(key: HeadKey) -> Decide:
    """Return a rule by a share, corrected for chance."""

    def decide(results: StackResults, head: HeadName, threshold: Threshold) -> Decision | None:
        share = share_of(results, key, head)
        return _reached(share.number, share.least(threshold), share.even) if share else None

    return decide


def not_measured(results: StackResults, head: HeadName, _: Threshold) -> Decision | None:
    """Return a decision if a metric of every function was left out by ``--metrics``."""
    is_measured = all(metric in results.by_id for metric in NEEDED)
    has_numbers = number_of(results, SINK, head) or number_of(results, ENTROPY, head)
    return None if is_measured and has_numbers else Decision()


def too_few(results: StackResults, _: HeadName, __: Threshold) -> Decision | None:
    """Return a decision if the whole sample has too few sentences or query tokens."""
    n_sentences = results.study.manifest.counts["sentences"]
    queries = results.heads(*SINK).events.max()
    if n_sentences >= MIN_SENTENCES.value and queries >= MIN_QUERIES.value:
        return None
    amount = count_text(n_sentences, results.study.manifest.text_noun)
    return Decision(text=say("No function can be told from {amount}.", amount=amount))


ALIGNED = {  # name in lists, and words after "Attends", by the row that serves a head better
    AlignmentRow.READ: ("source of the word read", "to the source of the word that is read"),
    AlignmentRow.WRITTEN: (
        "source of the word written", "to the source of the word about to be written",
    ),
}  # fmt: skip


def alignment(results: StackResults, head: HeadName, threshold: Threshold) -> Decision | None:
    """Return a decision by error rate or equal forms, by the row that serves the head better."""
    if not results.stack.crosses or results.baseline:
        return None
    shares = (agreement(results, head, measure) for measure in (AER, SAME_FORM))
    decisions = (
        _reached(share.number, threshold.value, None, *ALIGNED[share.row])
        for share in shares if share
    )  # fmt: skip
    return next((decision for decision in decisions if decision), None)


def offset(results: StackResults, head: HeadName, threshold: Threshold) -> Decision | None:
    """Return a decision by the offset of the largest share, with its name."""
    best = best_offset(results, head)
    if best is None:
        return None
    offset, share = best
    name = OFFSET_NAMES.get(offset)
    side = "before" if offset < 0 else "after"
    where = name or f"the token {number_word(abs(offset))} {side}"
    noun = name if offset == 0 and name else where.removeprefix("the ")
    variability = HeadKey(ids.VARIABILITY, results.stack.default_view, "")
    varies = number_of(results, variability, head)
    always = varies is not None and varies.high <= thresholds.POSITION_ONLY.value
    where = f"to {where}{', whatever it is' if always else ''}"
    return _reached(share.number, share.least(threshold), share.even, noun, where)


def relation(results: StackResults, head: HeadName, _: Threshold) -> Decision | None:
    """Return the claimed relation with the largest margin over the best surface rule."""
    tests = None if results.baseline else results.cached(tests_of_stack)
    if tests is None:
        return None
    place = head.layer, head.head
    best = tests.best_label(tests.claimed & (tests.head == place).all(1))
    if best is None:
        return None
    label = tests.labels[best]
    number = number_of(results, HeadKey(ids.RELATION_ACCURACY, VIEW, label), head)
    if number is None or not counts(number):
        return None
    query, key = (words.partition(" ")[2] for words in ends_of(label))
    noun, where = f"{query} → {key}", f"from {plural(query)} to their {plural(key)}"
    return Decision(number, noun=noun, where=where)


def region(results: StackResults, head: HeadName, threshold: Threshold) -> Decision | None:
    """Return a decision by the share of another region, if the head seeks it beyond distance."""
    label = None if results.baseline else regions.sought(results, (head.layer, head.head))
    share = None if label is None else share_of(results, regions.share_key(label), head)
    if label is None or share is None:
        return None
    noun, where = regions.arrow(label), regions.phrase(label)
    return _reached(share.number, share.least(threshold), share.even, noun, where)


def plural(noun: str) -> str:
    """Return the plural of a noun for an end of a relation.

    Examples:
        >>> plural("later word of a fixed expression")
        'later words of a fixed expression'
        >>> plural("auxiliary")
        'auxiliaries'
    """
    word, of, rest = noun.partition(" of ")
    stem, ending = (word[:-1], "ies") if word.endswith("y") else (word, "s")
    if word.endswith("is"):
        stem, ending = word[:-2], "es"
    return f"{stem}{ending}{of}{rest}"


def next_word(results: StackResults, head: HeadName, threshold: Threshold) -> Decision | None:
    """Return a decision by the class rule that names most strongest words, if it is supported."""
    test = word_rules(results).get((head.layer, head.head))
    if test is None or not test.supported:
        return None
    number = number_of(results, HeadKey(ids.SURFACE_RULE, VIEW, test.rule), head)
    if number is None:
        return None
    phrase, (_, _, name) = rule_phrase(test.rule), test.rule.partition(":")
    tags = TAG_SETS.get(name, (name,))
    queries = [tag for tag in rule_queries(results, head, tags) if tag not in {*tags, "PUNCT"}]
    source = word_list([class_name(tag) for tag in queries[:MAX_CLASSES]]) if queries else ""
    where = f"from {source} to {phrase}" if source else f"to {phrase}"
    return _reached(number, threshold.value, noun=phrase.removeprefix("the "), where=where)


def punctuation(results: StackResults, head: HeadName, threshold: Threshold) -> Decision | None:
    """Return a decision by the share of punctuation, which is twice that of the mean head."""
    share = share_of(results, PUNCTUATION, head)
    if share is None:
        return None
    mean = float(np.nanmean(results.heads(*PUNCTUATION).value))
    least = max(share.least(threshold), thresholds.TWICE_THE_MEAN.value * mean)
    return _reached(share.number, least, share.even)


def even(results: StackResults, head: HeadName, threshold: Threshold) -> Decision | None:
    """Return a decision by the entropy of a head of which no share reaches half."""
    entropy = number_of(results, ENTROPY, head)
    if entropy is None or is_uneven(results, head):
        return None
    if math.isnan(entropy.low) and entropy.value > 1 - ROUNDING and counts(entropy):
        return Decision(entropy, threshold.value)  # exactly even in all sentences: no interval
    return _reached(entropy, threshold.value)


def same_keys(results: StackResults, head: HeadName, threshold: Threshold) -> Decision | None:
    """Return a decision by what the key word explains, with the classes of keys."""
    key = number_of(results, HeadKey(ids.ATTENTION_PARTS, RENORM, "key"), head)
    if key is None:
        return None
    classes = word_list(_key_classes(results, head) or ["words"])
    return _reached(key, threshold.value, where=f"from every word to the same {classes}")


def _key_classes(results: StackResults, head: HeadName) -> list[str]:
    """Return the one or two classes of keys that make up half, above the mean head; or none."""
    clear = []
    for tag, flow in {} if results.baseline else key_flows(results, head).items():
        received = number_of(results, HeadKey(ids.POS_RECEIVED, RENORM, tag), head)
        enough = received is not None and counts(received)
        if enough and flow.low > 1 and flow.sentences >= MIN_SENTENCES.value:
            clear.append(flow)
    clear.sort(key=lambda flow: -flow.share)
    for n_classes in range(1, MAX_KEY_CLASSES + 1):
        named = clear[:n_classes]
        if sum(flow.share for flow in named) >= HALF.value:
            return [class_name(flow.key) for flow in named]
    return []


def own_sentence(results: StackResults, head: HeadName, threshold: Threshold) -> Decision | None:
    """Return a decision by the odds of the query's own sentence, over uniform attention."""
    share = share_of(results, OWN_SENTENCE, head)
    if share is None:
        return None
    return _reached(share.number, share.least_by_odds(threshold), share.even)


def mixed(results: StackResults, head: HeadName, _: Threshold) -> Decision:
    """Return the shares furthest above uniform attention, and what distance and key explain."""
    names = PART_NAMES | ({"punctuation": "punctuation"} if results.stack.crosses else {})
    parts = [
        say("{name} {share:whole}", name=names[part], share=share.number)
        for part, share in largest_parts(results, head)
    ]
    start = say(": {parts}", parts=listed(parts, last=", ")) if parts else NOTHING
    distance, key = (
        number_of(results, HeadKey(ids.ATTENTION_PARTS, RENORM, label), head)
        for label in ("distance", "key")
    )
    if key is None:
        text = "No single function{start}."
    elif distance is None:
        text = (
            "No single function{start}; {key:whole} of its departure from even attention follows "
            "from the key."
        )
    else:
        text = (
            "No single function{start}; {distance:whole} of its departure from even attention "
            "follows from distance, {key:whole} from the key."
        )
    return Decision(text=say(text, start=start, distance=distance, key=key))
