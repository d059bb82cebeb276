"""One sentence of at most 20 words on what a head does, with the numbers that support it.

The first rule that holds gives the sentence, in this order: too few sentences; the same token;
repetition; almost only the sink; one offset; a dependency relation; the next or previous word of a
class; punctuation; the same keys from everywhere; near-uniform; nearby words; mostly the sink; no
single role. Each sentence says where attention goes, never what the model needs it for. A head that
gives at least half of its attention to the sink says so in every sentence. What the output of a
head does follows if it was measured (`headbook.report.answers.head_writes`).

`RoleSentence.evidence` holds the numbers behind a sentence; they are rows of the table ``tests``.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from headbook.analysis.accumulators import Estimate
from headbook.metrics import ids
from headbook.report.answers.head_numbers import (
    MEAN_HEAD,
    UNIFORM,
    Evidence,
    HeadNumbers,
    RoleSentence,
    against_mean,
    share_detail,
    tested_detail,
)
from headbook.report.answers.head_writes import with_output
from headbook.report.class_flows import class_name, key_flows, rule_queries
from headbook.report.findings.finding import Part, Parts
from headbook.report.head_types import METRIC, PART_NAMES, OffSinkType, head_types
from headbook.report.linked_rows import LinkedNumber
from headbook.report.next_word_tests import Target, next_word_tests
from headbook.report.relation_tests import best_relation, tests_of_stack
from headbook.report.relations import ends_of
from headbook.report.results import TAG_VIEW, StackResults
from headbook.report.sink import FIRST_TOKEN, sink_tokens
from headbook.report.wording import (
    count_text,
    estimate,
    number_word,
    p_family_wise_text,
    rule_phrase,
)
from headbook.results.formats import percent, word_list
from headbook.schema import HeadKey, HeadName, SinkView, heads_of

MIN_SENTENCES = 20  # sentences below which no role is told
MIN_QUERIES = 200  # query tokens below which no role is told
MIN_SHARE = 0.5  # share at which the interval has to begin
MIN_SINK_ONLY = 0.9  # share of the sink at which the interval of a head has to begin
MIN_SCORE = 0.3  # score on repeated random tokens at which the interval has to begin
MIN_UNIFORM_ENTROPY = 0.8  # normalised entropy at which the interval has to begin
MAX_POSITION_ONLY = 0.05  # attention variability at the interval's end
MIN_PUNCTUATION_RATIO = 2.0  # ratio to the mean head at which the interval has to begin
MAX_NUMBERS = 3  # numbers of an evidence line
MAX_CLASSES = 3  # classes of queries that a sentence names
NEXT_WORD = "next_word"  # kind of the sentence on the next word of a class, and its metric

SINK = HeadKey(ids.SINK_SHARE, SinkView.RAW, "")
SINK_NORM = HeadKey(ids.SINK_NORM_SHARE, SinkView.RAW, "")
ENTROPY = HeadKey(ids.RELATIVE_ENTROPY, SinkView.RENORM, "")
PUNCTUATION = HeadKey(ids.POS_RECEIVED, TAG_VIEW, "PUNCT")
BY_KEY = HeadKey(ids.ATTENTION_PARTS, SinkView.RENORM, "key")
SAME_TOKEN = HeadKey(METRIC, SinkView.RENORM, "same_token")
Sentences = Iterator[RoleSentence]


def too_few(numbers: HeadNumbers) -> Sentences:
    """Yield that no role can be told, below `MIN_SENTENCES` sentences or `MIN_QUERIES` queries."""
    n_sentences = numbers.results.study.manifest.counts["sentences"]
    queries = numbers(SINK).events
    if n_sentences < MIN_SENTENCES or 0 < queries < MIN_QUERIES:
        amount = "this sentence" if n_sentences == 1 else f"these {n_sentences:,} sentences"
        line = f"It takes at least {MIN_SENTENCES} sentences and {MIN_QUERIES} query tokens."
        yield RoleSentence("too_few", (f"No role can be told from {amount}.",), (line,))


def _sink(numbers: HeadNumbers, adverb: str, minimum: float) -> Sentences:
    share = Evidence(numbers(SINK), SINK, UNIFORM, numbers.even(SINK))
    norm = Evidence(numbers(SINK_NORM), SINK_NORM)
    if not share.value.low >= minimum:
        return
    line: Parts = (numbers.cell(share), " of its attention")
    details = [share_detail(share, f"of its attention goes to {numbers.sink}")]
    if not math.isnan(norm.value.value):
        line = (*line, ", ", numbers.cell(norm), " of its output norm")
        details.append(
            share_detail(norm, f"of its output norm (‖αvW_O‖) comes from {numbers.sink}")
        )
    pronoun = "it" if numbers.sink == FIRST_TOKEN else "them"
    takes_little = norm.value.high < share.value.low / 2
    little = f", and takes little from {pronoun}" if takes_little else ""
    yield RoleSentence(
        "sink" if minimum == MIN_SINK_ONLY else "mostly_sink",
        (f"Attends {adverb} to {numbers.sink}{little}.",),
        (*line, "; uniform attention: ", numbers.cell(share, baseline=True), "."),
        tuple(details),
        (share, norm) if len(details) > 1 else (share,),
    )


def sink_only(numbers: HeadNumbers) -> Sentences:
    """Yield that nearly all attention goes to the sink, if the interval begins at 90 %."""
    yield from _sink(numbers, "almost only", MIN_SINK_ONLY)


def mostly_sink(numbers: HeadNumbers) -> Sentences:
    """Yield that most attention goes to the sink, of a head whose name begins with it."""
    if numbers.type is not None and numbers.type.sink:
        yield from _sink(numbers, "mostly", MIN_SHARE)


AT_OFFSET = {
    OffSinkType.PREVIOUS: ("previous", "the previous token"),
    OffSinkType.NEXT: ("next", "the next token"),
    OffSinkType.SELF: ("self", "the token itself"),
}


def position(numbers: HeadNumbers) -> Sentences:
    """Yield the one offset to which half of the attention goes, by type and interval."""
    kind = numbers.type
    if kind is None:
        return
    if kind.rest in AT_OFFSET:
        label, where = AT_OFFSET[kind.rest]
    elif kind.rest is OffSinkType.OFFSET:
        label, side = str(kind.offset), "before" if kind.offset < 0 else "after"
        where = f"the token {number_word(abs(kind.offset))} {side}"
    else:
        return
    column = HeadKey(METRIC, SinkView.RENORM, label)
    share = Evidence(numbers(column), column, MEAN_HEAD, numbers.mean(column))
    if not share.value.low >= MIN_SHARE:
        return
    variability = HeadKey(ids.VARIABILITY, numbers.results.stack.default_view, "")
    varies = Evidence(numbers(variability), variability)
    always = varies.value.high <= MAX_POSITION_ONLY
    details = [share_detail(share, f"{numbers.off_sink} goes to {where}")]
    if always:
        details.append(
            f"Attention variability: {estimate(varies.value)}; 0 is position only, 1 content only."
        )
    yield RoleSentence(
        "position",
        (f"Attends to {where}{', whatever it is' if always else ''}.",),
        against_mean(numbers, share),
        tuple(details),
        (share, varies) if always else (share,),
    )


def relation(numbers: HeadNumbers) -> Sentences:
    """Yield the dependency relation that the head serves beyond the best surface rule."""
    tests = numbers.results.cached(tests_of_stack)
    best = best_relation(tests, (numbers.head.layer, numbers.head.head))
    if tests is None or best is None:
        return
    ends, phrase = ends_of(tests.labels[best]), rule_phrase(tests.rule[best])
    found = Evidence(
        tests.accuracy.at(best),
        HeadKey(ids.RELATION_ACCURACY, SinkView.NOSINK, tests.labels[best]),
        f"best surface rule ({phrase})",
        float(tests.at_rule.value[best]),
        tests.margin.at(best),
        float(tests.p[best]),
    )
    p = p_family_wise_text(found.p)
    yield RoleSentence(
        "relation",
        (f"Attends from {ends.query} to {ends.key}.",),
        ("In ", numbers.cell(found), f" of cases; the best surface rule ({phrase}) reaches ",
         numbers.cell(found, baseline=True), f", {p}."),
        (tested_detail(found, p),),
        (found,),
    )  # fmt: skip


def next_word(numbers: HeadNumbers) -> Sentences:
    """Yield the nearest word of a class to one side, if the head finds more than any offset."""
    test = next_word_tests(numbers.results).get((numbers.head.layer, numbers.head.head))
    if test is None or not test.supported:
        return
    column = HeadKey(NEXT_WORD, SinkView.NOSINK, test.target.phrase.removeprefix("the "))
    found = Evidence(
        test.share, column, f"best fixed offset ({test.offset:+d})".replace("-", "−"),
        test.at_offset.value, test.margin, test.p,
    )  # fmt: skip
    mean = Evidence(test.share, column, MEAN_HEAD, test.mean.value)
    queries = named_queries(numbers.results, numbers.head, test.target)
    source = f"from {word_list([class_name(tag) for tag in queries])} " if queries else ""
    yield RoleSentence(
        NEXT_WORD,
        (f"Attends {source}to {test.target.phrase}.",),
        ("This holds for ", numbers.cell(found), f" of all words that are {_apart(test.target)} "
         "(held-out half); the best fixed offset reaches ", numbers.cell(found, baseline=True),
         ", the mean of all heads ", numbers.cell(mean, baseline=True), "."),
        (tested_detail(found, p_family_wise_text(test.p)),
         f"Cases: words that are {_apart(test.target)} and have {test.target.phrase} in their "
         f"text, whatever their own class. Mean of all heads: {percent(test.mean.value)}."),
        (found, mean),
    )  # fmt: skip


def named_queries(results: StackResults, head: HeadName, target: Target) -> tuple[str, ...]:
    """Return the classes of queries that the sentence on the next word names; may be empty."""
    classes = rule_queries(results, head, target.tags)
    return tuple(tag for tag in classes if tag not in {*target.tags, "PUNCT"})[:MAX_CLASSES]


def _apart(target: Target) -> str:
    """Return the classes of words that are no cases: ``neither noun, verb nor punctuation``."""
    if "PUNCT" in target.tags:
        return "no punctuation"
    return f"neither {target.noun.replace(' or ', ', ')} nor punctuation"


def punctuation(numbers: HeadNumbers) -> Sentences:
    """Yield that half of the attention goes to punctuation, twice as much as of the mean head."""
    flow = key_flows(numbers.results, numbers.head).get("PUNCT")
    share = Evidence(numbers(PUNCTUATION), PUNCTUATION, MEAN_HEAD, numbers.mean(PUNCTUATION))
    ratio = flow.low if flow else share.value.low / share.baseline_value
    if share.value.low >= MIN_SHARE and ratio >= MIN_PUNCTUATION_RATIO:
        even = share._replace(baseline=UNIFORM, baseline_value=numbers.even(PUNCTUATION))
        yield RoleSentence(
            "punctuation",
            ("Attends to punctuation.",),
            (*against_mean(numbers, share)[:-1], "; uniform attention: ",
             numbers.cell(even, baseline=True), "."),
            (share_detail(share, f"{numbers.off_sink} goes to punctuation"),),
            (share, even),
        )  # fmt: skip


def same_token(numbers: HeadNumbers) -> Sentences:
    """Yield that half of the attention goes to other occurrences of the token."""
    share = Evidence(numbers(SAME_TOKEN), SAME_TOKEN, MEAN_HEAD, numbers.mean(SAME_TOKEN))
    if share.value.low >= MIN_SHARE and share.value.sentences >= MIN_SENTENCES:
        yield RoleSentence(
            "same_token",
            ("Attends to other occurrences of the same token.",),
            ("Where there is one: ", *against_mean(numbers, share)),
            (share_detail(share, f"{numbers.off_sink} goes to other occurrences"),),
            (share,),
        )


SCORES = {
    ids.DUPLICATE_SCORE: ("duplicate", "the earlier occurrence of the current token"),
    ids.INDUCTION_SCORE: ("induction", "what followed an earlier occurrence of the current token"),
}


def repetition(numbers: HeadNumbers) -> Sentences:
    """Yield what the head attends to where random tokens are repeated."""
    for metric, (kind, where) in SCORES.items():
        column = HeadKey(metric, SinkView.RAW, "")
        score = Evidence(numbers(column), column, UNIFORM, numbers.even(column))
        if score.value.low >= MIN_SCORE:
            yield RoleSentence(
                kind,
                (f"Attends to {where}.",),
                (numbers.cell(score), " of its attention on repeated random tokens; uniform "
                 "attention: ", numbers.cell(score, baseline=True), "."),
                (f"{estimate(score.value)} on {count_text(score.value.sentences, 'sequence')} of "
                 f"random tokens, each repeated; uniform attention: "
                 f"{percent(score.baseline_value)}.",),
                (score,),
            )  # fmt: skip


def broadcast(numbers: HeadNumbers) -> Sentences:
    """Yield that every word attends to the same keys, with their classes if these are clear."""
    by_key = Evidence(numbers(BY_KEY), BY_KEY)
    kind = numbers.type
    if kind is None or kind.rest is not OffSinkType.KEYS or not by_key.value.low >= MIN_SHARE:
        return
    flows = key_flows(numbers.results, numbers.head).values()
    clear = sorted((flow for flow in flows if flow.low > 1), key=lambda flow: -flow.share)[:2]
    named = next((clear[:n] for n in (1, 2) if sum(f.share for f in clear[:n]) >= MIN_SHARE), [])
    shares = []
    for flow in named:
        column = HeadKey(ids.POS_RECEIVED, TAG_VIEW, flow.key)
        shares.append(Evidence(numbers(column), column, MEAN_HEAD, numbers.mean(column)))
    line: list[Part] = []
    for flow, share in zip(named, shares, strict=True):
        words = "" if line else " of its attention to words goes"
        line += [", " if line else "", numbers.cell(share), f"{words} to {class_name(flow.key)}"]
    if len(named) == 1:
        line += [" (mean of all heads ", numbers.cell(shares[0], baseline=True), ")"]
    line += ["; the" if line else "The", " key explains ", numbers.cell(by_key),
             " of its departure from even attention."]  # fmt: skip
    details = [
        share_detail(share, f"{numbers.off_sink} goes to {class_name(flow.key)}")
        for flow, share in zip(named, shares, strict=True)
    ]
    keys = word_list([class_name(flow.key) for flow in named]) if named else "words"
    yield RoleSentence(
        "broadcast",
        (f"Attends from every word to the same {keys}.",),
        tuple(line),
        (*details, f"Part of its preference that the key explains: {estimate(by_key.value)}."),
        (*shares, by_key),
    )


def near_uniform(numbers: HeadNumbers) -> Sentences:
    """Yield that all words get nearly equal weights."""
    entropy = Evidence(numbers(ENTROPY), ENTROPY, UNIFORM, 1.0)
    if numbers.type is None or numbers.type.rest is not OffSinkType.UNIFORM:
        return
    if entropy.value.low >= MIN_UNIFORM_ENTROPY:
        yield RoleSentence(
            "near_uniform",
            ("Attends nearly evenly to all words.",),
            ("Normalised entropy off ", numbers.sink, ": ", numbers.cell(entropy, share=False),
             "; uniform attention: 1."),
            (f"Normalised entropy with {numbers.sink} masked: "
             f"{estimate(entropy.value, share=False)}; 1 is uniform attention.",),
            (entropy,),
        )  # fmt: skip


def nearby(numbers: HeadNumbers) -> Sentences:
    """Yield that most attention stays within three tokens, or within the query's own sentence."""
    kind = numbers.type
    if kind is None or kind.rest not in {OffSinkType.WINDOW, OffSinkType.OWN}:
        return
    if kind.rest is OffSinkType.OWN:
        where, share = "tokens of its own sentence", kind.shares.own_sentence
        column = HeadKey(METRIC, SinkView.RENORM, "own_sentence")
    else:
        where, share = "nearby words, within three tokens", kind.shares.window
        column = HeadKey(METRIC, SinkView.RENORM, "window")
    behind = numbers(SINK)
    value = Estimate(share.value, math.nan, math.nan, behind.sentences, behind.events)
    found = Evidence(value, column, UNIFORM, share.even)
    yield RoleSentence(
        "nearby",
        (f"Attends to {where}.",),
        (numbers.cell(found), f" {numbers.off_sink}; uniform attention: ",
         numbers.cell(found, baseline=True), "."),
        (share_detail(found, f"{numbers.off_sink} goes to {where}"),
         "By the rule for types of heads; the share was not tested."),
        (found,),
    )  # fmt: skip


def mixed(numbers: HeadNumbers) -> Sentences:
    """Yield the two largest shares of a head without a single role."""
    kind = numbers.type
    if kind is None or not kind.measured:
        return
    evidence = []
    for part in kind.shares.largest[:2]:
        share = kind.shares.parts[part]
        column = HeadKey(METRIC, SinkView.RENORM, part)
        value = numbers(column)._replace(value=share.value)
        evidence.append(Evidence(value, column, UNIFORM, share.even))
    crosses = numbers.results.stack.crosses  # where punctuation counts at any distance
    names = [
        "punctuation" if crosses and label == "punctuation" else PART_NAMES[label]
        for label in (found.column.label for found in evidence)
    ]
    text: list[Part] = ["No single role"]
    for separator, name, found in zip((": ", ", "), names, evidence, strict=False):
        text += [f"{separator}{name} ", numbers.cell(found)]
    line = (f"Shares {numbers.off_sink}, furthest above uniform attention.",) if evidence else ()
    yield RoleSentence(
        "mixed",
        (*text, "."),
        line,
        tuple(
            share_detail(found, f"{numbers.off_sink} goes to {name}")
            for name, found in zip(names, evidence, strict=True)
        ),
        tuple(evidence),
    )


def unmeasured(_: HeadNumbers) -> Sentences:
    """Yield that the study lacks the numbers that tell a role."""
    line = (
        "Roles follow from sink_share, type_shares, attention_parts and relative_entropy "
        "(--metrics)."
    )
    yield RoleSentence("unmeasured", ("The role was not measured.",), (line,))


RULES: tuple[Callable[[HeadNumbers], Sentences], ...] = (
    too_few, same_token, repetition, sink_only, position, relation, next_word, punctuation,
    broadcast, near_uniform, nearby, mostly_sink, mixed, unmeasured,
)  # fmt: skip
# Sentences that say by themselves what the sink receives, or that say nothing of attention.
WITHOUT_SINK = {"sink", "mostly_sink", "too_few", "unmeasured"}


def head_roles(results: StackResults) -> Mapping[HeadName, RoleSentence]:
    """Return the sentence of every head of a stack."""
    return results.cached(_roles)


def _roles(results: StackResults) -> Mapping[HeadName, RoleSentence]:
    types, sink = head_types(results), sink_tokens(results)
    numbers = (
        HeadNumbers(results, head, types.get((head.layer, head.head)), sink)
        for head in heads_of(results.stack)
    )
    return {each.head: with_output(each, role_sentence(each)) for each in numbers}


def role_sentence(numbers: HeadNumbers) -> RoleSentence:
    """Return the sentence of the first rule that holds; it names a large share of the sink."""
    found = next(sentence for rule in RULES for sentence in rule(numbers))
    if numbers.type is None or not numbers.type.sink or found.kind in WITHOUT_SINK:
        return found
    share = Evidence(numbers(SINK), SINK, UNIFORM, numbers.even(SINK))
    line = (*found.line, " ", numbers.cell(share), f" of all its attention goes to {numbers.sink}.")
    n_numbers = sum(isinstance(part, LinkedNumber) for part in line)
    first, *rest = found.text
    assert isinstance(first, str)
    return replace(
        found,
        text=(first.replace("Attends", f"Attends mostly to {numbers.sink}, otherwise", 1), *rest),
        line=line if n_numbers <= MAX_NUMBERS else found.line,
        details=(*found.details, share_detail(share, f"of its attention goes to {numbers.sink}")),
        evidence=(*found.evidence, share),
    )
