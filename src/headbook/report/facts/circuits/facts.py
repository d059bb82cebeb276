"""Facts of the page on circuits: induction circuits, copying, writing, and their evidence.

Weights alone never say that a head uses another one: the word stands only where an intervention
lowers an induction score. *Copies* rests on weights, *promotes* and *suppresses* on contributions
to logits at the exemplars of a head.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from headbook.report.facts.circuits.rules import (
    ATTENDED,
    CHANGE,
    COPY_RATE,
    COPYING,
    HIGH_END,
    IN_BOTTOM,
    IN_TOP,
    INDUCTION,
    LOW_END,
    MIN_COPY_RATE,
    NEGATIVE_RATE,
    PREVIOUS,
    RANK,
    TOWARDS,
    ExemplarRow,
    Feed,
    Written,
    circuits_of,
    copying_heads,
    exemplar_texts,
    exemplars_by_head,
    heads_from,
    induction_feeds,
    main_feeder,
    used_feeds,
    values_of,
    writes_into_vector,
    written_tokens,
)
from headbook.report.results import StackResults
from headbook.report.wording import capital, count_text, number_word, shortened
from headbook.results.fact import Fact
from headbook.results.formats import percent
from headbook.results.number import PLAIN, SHARE, Number, Unit
from headbook.results.sentence import NOTHING, Marked, Sentence, listed, say
from headbook.schema import HeadKey, HeadName

CLEAR_LOSS = 0.3  # loss of an induction score from which on the answer names a head
MAX_NAMED = 2
LISTED_WORDS = 3  # words of an example towards which a head moves the sentence vector
Results = Mapping[str, StackResults]


def number_of(
    results: StackResults, key: HeadKey, head: HeadName, unit: Unit = PLAIN
) -> Number | None:
    """Return a number of a head; None if the study lacks it."""
    if not results.has_value(*key):
        return None
    number = results.number(key, head.layer, head.head, unit=unit)
    return number if number.known else None


def circuit_stack(results: Results) -> StackResults:
    """Return the stack that the page begins with: the first one with a supported circuit."""
    return next((r for r in results.values() if used_feeds(r)), next(iter(results.values())))


def circuits(results: Results) -> Fact:
    """Return the first claim that the numbers support: a circuit, copying, promoting, or none."""
    if used := used_feeds(circuit_stack(results)):
        return _circuit(used)
    copies = [
        (of_stack, HeadName(of_stack.stack.name, *place))
        for of_stack in results.values()
        for place, sign in copying_heads(of_stack).items()
        if sign > 0
    ]
    if copies:
        of_stack, head = max(
            copies, key=lambda pair: float(values_of(pair[0], COPY_RATE)[pair[1][1:]])
        )
        text = say(
            "{Count} {subject} weights; {head} copies {rate} of token types. No induction circuit "
            "was found.",
            Count=capital(number_word(len(copies))), head=head,
            subject="head copies the tokens that it reads, by its" if len(copies) == 1
            else "heads copy the tokens that they read, by their",
            rate=number_of(of_stack, COPY_RATE, head, SHARE),
        )  # fmt: skip
        return Fact("circuits", text, heads=(head,))
    if any(written_tokens(of_stack) for of_stack in results.values()):
        return Fact("circuits", writers(results).text)
    text = say(
        "No induction circuit, no copying head, and no head that promotes the token that it "
        "attends to: these numbers support no claim."
    )
    return Fact("circuits", text, holds=False)


def _circuit(used: Sequence[Feed]) -> Fact:
    """Return the previous-token head that costs most, and the heads that use it."""
    lower = main_feeder(used)
    of_lower = [feed for feed in used if feed.lower == lower]
    clear = [feed for feed in of_lower if -feed.change.value >= CLEAR_LOSS][:MAX_NAMED]
    upper = [feed.upper for feed in clear or of_lower[:1]]
    text = say(
        "An induction circuit: {lower} attends to the previous token, and {upper} {use} what it "
        "writes to attend to what followed.",
        lower=lower, upper=listed(upper), use="use" if len(upper) > 1 else "uses",
    )  # fmt: skip
    return Fact("circuits", text, heads=(lower, *upper))


def intervention(results: Results) -> Fact:
    """Return the intervention behind the circuit, with its interval and the composition."""
    used = used_feeds(circuit_stack(results))
    if not used:
        return Fact("intervention", holds=False)
    lower = main_feeder(used)
    feed = next(feed for feed in used if feed.lower == lower)
    text = say(
        "Without {lower} in its keys, the induction score of {upper}, {before}, changes by "
        "{change:interval} ({sequences} of repeated random tokens). K-composition: {composition}, "
        "rank {rank} of all pairs of heads; random matrices: {random}.",
        lower=lower, upper=feed.upper, before=feed.before, change=feed.change,
        sequences=count_text(feed.sequences, "sequence"), composition=feed.value, rank=feed.rank,
        random=feed.random,
    )  # fmt: skip
    return Fact("intervention", text, heads=(lower, feed.upper))


def without_links(results: StackResults) -> Sentence:
    """Return the previous-token and induction heads that no line joins, with their scores."""
    used = used_feeds(results)
    joined = {head for feed in used for head in (feed.upper, feed.lower)}
    kinds = []
    for key, name in ((PREVIOUS, "previous-token heads"), (INDUCTION, "induction heads")):
        heads = sorted({*heads_from(results, key)} - joined)
        scores = [say("{head} {score}", head=head, score=number_of(results, key, head))
                  for head in heads]  # fmt: skip
        if scores:
            kinds.append(say("{name} {scores}", name=name, scores=listed(scores, ", ")))
    return say("Without a line: {kinds}.", kinds=listed(kinds, "; ", "; ")) if kinds else NOTHING


def copying(results: Results) -> Fact:
    """Return how many heads copy by their weights, and how many do the opposite."""
    signs = [sign for of_stack in results.values() for sign in copying_heads(of_stack).values()]
    heads = sum(int(np.isfinite(values_of(r, COPYING)).sum()) for r in results.values())
    copies, opposite = signs.count(1), signs.count(-1)
    if not signs:
        text = say(
            "None of {heads} heads copies the token that it reads: no copying score lies outside "
            "its band with a copy rate of {rate}.",
            heads=heads, rate=percent(MIN_COPY_RATE),
        )  # fmt: skip
        return Fact("copying", text, holds=False)
    text = say(
        "{Copies} of {heads} heads {copy}{opposite}.",
        Copies=capital(number_word(copies)) if copies else "None", heads=heads,
        copy="copies the token that it reads" if copies == 1 else "copy the token that they read",
        opposite=_opposite(opposite),
    )  # fmt: skip
    return Fact("copying", text)


def _opposite(heads: int) -> Sentence:
    """Return how many heads lower the logit of the token they read; nothing without any."""
    if not heads:
        return NOTHING
    verb = "lowers the logit of the token it reads" if heads == 1 else (
        "lower the logit of the token they read"
    )  # fmt: skip
    return say("; {count} {verb}", count=number_word(heads), verb=verb)


def writers(results: Results) -> Fact:
    """Return how many heads promote or suppress the token that they attend to."""
    kinds = [kind for of_stack in results.values() for kind in written_tokens(of_stack).values()]
    heads = sum(int(np.isfinite(values_of(r, ATTENDED)).sum()) for r in results.values())
    promote, suppress = kinds.count(Written.PROMOTES), kinds.count(Written.SUPPRESSES)
    if not kinds:
        text = say(
            "None of {heads} heads promotes or suppresses the token that it attends to.",
            heads=heads,
        )
        return Fact("writers", text, holds=False)
    text = say(
        "{Promote} of {heads} heads {verb}{suppress}.",
        Promote=capital(number_word(promote)) if promote else "None", heads=heads,
        verb="promote the token that they attend to" if promote > 1
        else "promotes the token that it attends to",
        suppress=say(
            "; {count} {verb} it", count=number_word(suppress),
            verb="suppresses" if suppress == 1 else "suppress",
        ) if suppress else NOTHING,
    )  # fmt: skip
    return Fact("writers", text)


def strongest_pairs(results: StackResults) -> list[tuple[Feed, Feed]]:
    """Return for each induction head the pair of largest loss and that of highest composition.

    Heads with one measured pair, and heads that lose nothing, take no part.
    """
    by_head: dict[HeadName, list[Feed]] = {}
    for feed in induction_feeds(results):
        by_head.setdefault(feed.upper, []).append(feed)
    strongest = []
    for pairs in by_head.values():
        largest = min(pairs, key=lambda feed: feed.change.value)
        if len(pairs) > 1 and largest.is_loss:
            strongest.append((largest, max(pairs, key=lambda feed: feed.value.value)))
    return strongest


def agreement(results: StackResults) -> Fact:
    """Return for how many induction heads weights and interventions name the same lower head."""
    pairs = strongest_pairs(results)
    apart = [(loss, weights) for loss, weights in pairs if loss.lower != weights.lower]
    if not pairs:
        return Fact("agreement", holds=False)
    of = count_text(len(pairs), "induction head")
    if not apart:
        text = say(
            "For {count} of {of}, the lower head of highest K-composition is also the one whose "
            "removal costs most (largest values, not tested against the others).",
            count=number_word(len(pairs)), of=of,
        )  # fmt: skip
        return Fact("agreement", text)
    loss, weights = min(apart, key=lambda pair: pair[0].change.value)
    text = say(
        "Not always: for {count} of {of} they differ. In {upper}, taking out {lower} costs most "
        "({change}); K-composition is highest with {other} ({other_change}). Both are largest "
        "values, not tested against the others.",
        count=number_word(len(apart)), of=of, upper=loss.upper, lower=loss.lower,
        change=loss.change, other=weights.lower, other_change=weights.change,
    )  # fmt: skip
    return Fact("agreement", text, heads=(loss.upper, loss.lower, weights.lower), holds=False)


def circuit_exemplar(results: StackResults) -> tuple[Feed, ExemplarRow] | None:
    """Return the strongest exemplar of an induction head whose next token is the attended one.

    Only heads that use a previous-token head take part. The token before the attended one equals
    the query, so that the attended token is what followed the earlier occurrence. Where maps of the
    sentence are stored, the previous-token head attends to the token before there, too.
    """
    of_heads: dict[HeadName, tuple[Feed, ExemplarRow]] = {}
    for feed in used_feeds(results):
        exemplars = exemplars_by_head(results).get(feed.upper, ())
        fitting = (exemplar for exemplar in exemplars if _is_induction(results, feed, exemplar))
        if feed.upper not in of_heads and (exemplar := next(fitting, None)) is not None:
            of_heads[feed.upper] = feed, exemplar
    return max(of_heads.values(), key=lambda pair: float(pair[1].row["weight"]), default=None)


def _is_induction(results: StackResults, feed: Feed, exemplar: ExemplarRow) -> bool:
    row = exemplar.row
    if math.isnan(row["query"]) or math.isnan(row["key"]) or row["key"] < 1:
        return False
    query, key = int(row["query"]), int(row["key"])
    pieces = exemplar_texts(results)[int(row["sentence"])].pieces
    if key >= query or query + 1 >= len(pieces):
        return False
    follows = pieces[query] == pieces[key - 1] and pieces[query + 1] == pieces[key]
    maps = results.study.sentence_data.maps.get((results.stack.name, int(row["sentence"]) - 1))
    steps = 255 if maps is None else int(maps[feed.lower.layer, feed.lower.head, key, key - 1])
    return follows and steps >= 0.3 * 255


def random_walk(results: StackResults, feed: Feed) -> tuple[Sentence, ...]:
    """Return what the heads of a circuit do on repeated random tokens, a sentence each."""
    lower, upper = feed.lower, feed.upper
    return (
        say("{lower} attends to the previous token, from B to A (score {score}).",
            lower=lower, score=number_of(results, PREVIOUS, lower)),
        say("{upper} attends from the second A to B, which followed the first A (score {score}). "
            "Without {lower} in its keys, that score changes by {change:interval}.",
            upper=upper, score=number_of(results, INDUCTION, upper), lower=lower,
            change=feed.change),
    )  # fmt: skip


def walk_steps(results: StackResults, feed: Feed, exemplar: ExemplarRow) -> tuple[Sentence, ...]:
    """Return what the heads of a circuit do at an exemplar of the induction head."""
    row = exemplar.row
    pieces = exemplar_texts(results)[int(row["sentence"])].pieces
    query, key = (shortened(pieces[int(row[name])].strip(), 20) for name in ("query", "key"))
    words = {"lower": feed.lower, "upper": feed.upper, "query": query, "key": key}
    steps = (
        say("At “{key}”, {lower} attends to the token before, “{query}” (previous-token score "
            "{score}).", **words, score=number_of(results, PREVIOUS, feed.lower)),
        say("At the second “{query}”, {upper} attends to “{key}”, which followed the first (weight "
            "{weight}). Without {lower} in its keys, its induction score changes by "
            "{change:interval}.", **words, weight=exemplar.number("weight"), change=feed.change),
    )  # fmt: skip
    if math.isnan(row["true_probability"]):
        return steps
    return (
        *steps,
        say("The model continues with “{key}” (probability {probability}); {upper} alone adds "
            "{part} to its centred logit.", **words,
            probability=exemplar.number("true_probability"),
            part=exemplar.number("true_contribution", CHANGE)),
    )  # fmt: skip


def vector_words(results: StackResults, layer: int) -> Fact:
    """Return which heads of a layer move the sentence vector towards what they attend to.

    The example is the word that comes highest among those towards which a head moves the vector.
    """
    stack, n_heads = results.stack.name, results.stack.n_heads
    heads = [HeadName(stack, layer, head) for head in range(n_heads)
             if writes_into_vector(results, (layer, head))]  # fmt: skip
    examples = [
        (float(exemplar.row["key_rank"]), head, exemplar)
        for head in heads
        for exemplar in exemplars_by_head(results).get(head, ())
        if exemplar.tokens.get("to") and exemplar.row["key_rank"] > 0
    ]
    if not examples:
        return Fact("vector_words", holds=False)
    _, head, exemplar = min(examples, key=lambda example: example[:2])
    text = say(
        "{Count} of the {n} heads of layer {layer} {move} the sentence vector towards the word "
        "that {they}. For example {head}: {word} → {words}. Median rank of that word among "
        "{all} words: {rank:interval}.",
        Count=capital(number_word(len(heads))), n=n_heads, layer=layer,
        move="moves" if len(heads) == 1 else "move", head=head,
        they="it attends to" if len(heads) == 1 else "they attend to",
        word=Marked(str(exemplar.row["key_token"]), "bdi"),
        words=Marked(", ".join(word for word, _ in exemplar.tokens["to"][:LISTED_WORDS]), "bdi"),
        all=circuits_of(results).vocabulary, rank=number_of(results, TOWARDS, head, RANK),
    )  # fmt: skip
    return Fact("vector_words", text, heads=(head, *(other for other in heads if other != head)))


def copying_note(results: StackResults, head: HeadName) -> str:
    """Return band and rate behind the copying score of a head, for a tooltip."""
    low, high = (number_of(results, key, head) for key in (LOW_END, HIGH_END))
    rate = number_of(results, COPY_RATE, head, SHARE)
    band = f"permuted types {PLAIN.ends(low.value, high.value)}" if low and high else ""
    copied = f"copy rate {rate.as_text()}" if rate else ""
    return "; ".join(filter(None, (band, copied)))


COPYING_STARTS = {
    1: "It copies by its weights: copying score",
    0: "Copying score",
    -1: "By its weights it lowers the logit of the token that it reads: copying score",
}


def output_facts(results: StackResults, head: HeadName, kind: Written | None) -> Iterator[Sentence]:
    """Yield facts on the output of a head of a language model, a sentence each.

    Args:
        results: results of the head's stack.
        head: the head.
        kind: effect on the token that the head attends to; None without one.
    """
    yield from _counted(results, head, kind)
    yield from _copying_facts(results, head)
    yield from _feed_facts(results, head)


def _counted(results: StackResults, head: HeadName, kind: Written | None) -> Iterator[Sentence]:
    """Yield in how many exemplars the token attended to is among the ten."""
    key = IN_BOTTOM if kind is Written.SUPPRESSES else IN_TOP
    if count := number_of(results, key, head, RANK):
        yield say(
            "Among the ten {end} tokens in {count} of {exemplars} exemplars.",
            end="most suppressed" if kind is Written.SUPPRESSES else "most promoted", count=count,
            exemplars=len(exemplars_by_head(results).get(head, ())),
        )  # fmt: skip


def _copying_facts(results: StackResults, head: HeadName) -> Iterator[Sentence]:
    """Yield the copying score with its band, and the copy rate."""
    score = number_of(results, COPYING, head, CHANGE)
    if score is None:
        return
    low, high = (number_of(results, key, head, CHANGE) for key in (LOW_END, HIGH_END))
    sign = copying_heads(results).get(head[1:], 0)
    turned = sign < 0 or score.value < 0
    rate = number_of(results, NEGATIVE_RATE if turned else COPY_RATE, head, SHARE)
    yield say(
        "{start} {score}{band}{rate}.",
        start=COPYING_STARTS[sign], score=score,
        band=say(" (permuted types {low} to {high})", low=low, high=high) if low and high
        else NOTHING,
        rate=say(
            "; {rate} of token types are among their own five highest logits{turned}",
            rate=rate, turned=", sign turned" if turned else "",
        ) if rate else NOTHING,
    )  # fmt: skip


def _feed_facts(results: StackResults, head: HeadName) -> Iterator[Sentence]:
    """Yield the heads that a head uses, and those that use the head, the largest loss first."""
    used = used_feeds(results)
    for feed in [feed for feed in used if feed.upper == head][:3]:
        yield say(
            "Uses what {lower} writes: without it in its keys, its induction score, {before}, "
            "changes by {change:interval}.",
            lower=feed.lower, before=feed.before, change=feed.change,
        )  # fmt: skip
    for feed in [feed for feed in used if feed.lower == head][:3]:
        yield say(
            "{upper} uses what it writes: without it in the keys, the induction score there, "
            "{before}, changes by {change:interval}.",
            upper=feed.upper, before=feed.before, change=feed.change,
        )  # fmt: skip
