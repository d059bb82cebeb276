"""Sentences of the page on circuits: induction circuits, copying, writing, and their evidence.

Weights alone never say that a head uses another one: the word stands only where an intervention
lowers an induction score. *Copies* rests on weights, *promotes* and *suppresses* on contributions
to logits at the exemplars of a head.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from headbook.report.answers.circuit_rules import (
    ATTENDED,
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
    ExemplarRow,
    Feed,
    Written,
    copying_heads,
    exemplar_texts,
    exemplars_by_head,
    heads_from,
    induction_feeds,
    main_feeder,
    used_feeds,
    values_of,
    written_tokens,
)
from headbook.report.linked_rows import LinkedNumber, Part, Parts, head_row
from headbook.report.results import StackResults, share_of_head
from headbook.report.wording import capital, count_text, number_word, shortened
from headbook.results.formats import interval_text, number, percent
from headbook.results.sentence import head_link
from headbook.schema import HeadName

CLEAR_LOSS = 0.3  # loss of an induction score from which on the answer names a head
MAX_NAMED = 2
Results = Mapping[str, StackResults]


def change_text(value: float) -> str:
    """Return a change of a score with its sign."""
    text = number(abs(value))
    if text.startswith("<"):
        least = text.removeprefix("<").strip()
        return f"< +{least}" if value > 0 else f"> −{least}"
    return ("+" if value > 0 else "−" if value < 0 else "") + text


def change_parts(feed: Feed) -> Parts:
    """Return the change by an intervention, which leads to its row, with its interval."""
    low, high = feed.change.low, feed.change.high
    ends = "" if math.isnan(low) else f" [{change_text(low)}, {change_text(high)}]"
    return (feed.number(change_text(feed.change.value)), ends)


def circuit_stack(results: Results) -> StackResults:
    """Return the stack that the page begins with: the first one with a supported circuit."""
    return next((r for r in results.values() if used_feeds(r)), next(iter(results.values())))


def circuits_answer(results: Results) -> Parts:
    """Return the first claim that the numbers support: a circuit, copying, promoting, or none."""
    first = circuit_stack(results)
    if used := used_feeds(first):
        return _circuit_claim(used)
    copies = [
        (each, place)
        for each in results.values()
        for place, sign in copying_heads(each).items()
        if sign > 0
    ]
    if copies:
        each, place = max(copies, key=lambda c: float(values_of(c[0], COPY_RATE)[c[1]]))
        rate = head_row(each, COPY_RATE, place, percent(float(values_of(each, COPY_RATE)[place])))
        link, one = head_link(HeadName(each.stack.name, *place)), len(copies) == 1
        subject = "head copies the tokens that it reads, by its" if one else (
            "heads copy the tokens that they read, by their"
        )  # fmt: skip
        count = capital(number_word(len(copies)))
        return (f"{count} {subject} weights; ", link, " copies ", rate, " of token types. No "
                "induction circuit was found.")  # fmt: skip
    if any(written_tokens(each) for each in results.values()):
        return writers_answer(results)
    return ("No induction circuit, no copying head, and no head that promotes the token that it "
            "attends to: these numbers support no claim.",)  # fmt: skip


def _circuit_claim(used: Sequence[Feed]) -> Parts:
    """Return the sentence on the previous-token head that costs most, and the heads that use it."""
    lower = main_feeder(used)
    own = [feed for feed in used if feed.lower == lower]
    named = [feed for feed in own if -feed.change.value >= CLEAR_LOSS][:MAX_NAMED] or own[:1]
    links = [head_link(feed.upper) for feed in named]
    several = len(links) > 1
    between: Parts = (links[0], " and ", links[1]) if several else (links[0],)
    return (
        "An induction circuit: ",
        head_link(lower),
        " attends to the previous token, and ",
        *between,
        f" {'use' if several else 'uses'} what it writes to attend to what followed.",
    )


def circuits_evidence(results: Results) -> Parts:
    """Return the intervention behind the first sentence, with interval and baseline."""
    first = circuit_stack(results)
    used = used_feeds(first)
    if not used:
        return ()
    lower = main_feeder(used)
    feed = next(feed for feed in used if feed.lower == lower)
    return (
        "Without ",
        head_link(lower),
        " in its keys, the induction score of ",
        head_link(feed.upper),
        ", ",
        feed.number(number(feed.before)),
        ", changes by ",
        *change_parts(feed),
        f" ({count_text(feed.change.sentences, 'sequence')} of repeated random tokens). "
        "K-composition: ",
        feed.number(number(feed.value)),
        f", rank {feed.rank:,} of all pairs of heads; random matrices: ",
        feed.number(number(feed.random)),
        ".",
    )


def feeding_note(results: StackResults) -> Parts:
    """Return the previous-token and induction heads without a line, with their scores."""
    used = used_feeds(results)
    joined = {feed.upper for feed in used} | {feed.lower for feed in used}
    parts: list[Part] = []
    for key, name in ((PREVIOUS, "previous-token heads"), (INDUCTION, "induction heads")):
        alone = [head for head in heads_from(results, key) if head not in joined]
        values = values_of(results, key)
        for n, head in enumerate(sorted(alone)):
            place = head.layer, head.head
            score = head_row(results, key, place, number(float(values[place])))
            start = f"{'; ' if parts else 'Without a line: '}{name} " if n == 0 else ", "
            parts += [start, f"L{head.layer}·H{head.head} ", score]
    return (*parts, ".") if parts else ()


def copying_answer(results: Results) -> Parts:
    """Return how many heads copy by their weights, and how many do the opposite."""
    signs = [sign for each in results.values() for sign in copying_heads(each).values()]
    heads = sum(int(np.isfinite(values_of(each, COPYING)).sum()) for each in results.values())
    copies, opposite = signs.count(1), signs.count(-1)
    if not signs:
        return (f"None of {heads:,} heads copies the token that it reads: no copying score lies "
                f"outside its band with a copy rate of {percent(MIN_COPY_RATE)}.",)  # fmt: skip
    verb = "copies" if copies == 1 else "copy"
    lower = "lowers the logit of the token it reads" if opposite == 1 else (
        "lower the logit of the token they read"
    )  # fmt: skip
    text = f"{capital(number_word(copies)) if copies else 'None'} of {heads:,} heads {verb}"
    text += " the token that it reads" if copies == 1 else " the token that they read"
    return (f"{text}; {number_word(opposite)} {lower}." if opposite else f"{text}.",)


def writers_answer(results: Results) -> Parts:
    """Return how many heads promote or suppress the token that they attend to."""
    kinds = [kind for each in results.values() for kind in written_tokens(each).values()]
    heads = sum(int(np.isfinite(values_of(each, ATTENDED)).sum()) for each in results.values())
    promote, suppress = kinds.count(Written.PROMOTES), kinds.count(Written.SUPPRESSES)
    if not kinds:
        return (f"None of {heads:,} heads promotes or suppresses the token that it attends to.",)
    one = promote == 1
    text = f"{capital(number_word(promote)) if promote else 'None'} of {heads:,} heads "
    text += "promotes the token that it attends to" if one else (
        "promote the token that they attend to" if promote else "promotes the token it attends to"
    )  # fmt: skip
    if not suppress:
        return (f"{text}.",)
    return (f"{text}; {number_word(suppress)} {'suppresses' if suppress == 1 else 'suppress'} it.",)


def strongest_pairs(results: StackResults) -> list[tuple[Feed, Feed]]:
    """Return for each induction head the pair of largest loss and that of highest composition.

    Heads with one measured pair, and heads that lose nothing, take no part.
    """
    by_head: dict[HeadName, list[Feed]] = {}
    for feed in induction_feeds(results):
        by_head.setdefault(feed.upper, []).append(feed)
    found = []
    for pairs in by_head.values():
        largest = min(pairs, key=lambda feed: feed.change.value)
        if len(pairs) > 1 and largest.is_loss:
            found.append((largest, max(pairs, key=lambda feed: feed.value)))
    return found


def agreement_answer(results: StackResults) -> Parts:
    """Return for how many induction heads weights and interventions name the same lower head."""
    pairs = strongest_pairs(results)
    apart = [(loss, weights) for loss, weights in pairs if loss.lower != weights.lower]
    if not pairs:
        return ()
    heads = "head" if len(pairs) == 1 else "heads"
    if not apart:
        return (
            f"For {number_word(len(pairs))} of {len(pairs):,} induction {heads}, the lower "
            "head of highest K-composition is also the one whose removal costs most (largest "
            "values, not tested against the others).",
        )
    loss, weights = min(apart, key=lambda each: each[0].change.value)
    return (
        f"Not always: for {number_word(len(apart))} of {len(pairs):,} induction {heads} they "
        "differ. In ",
        head_link(loss.upper),
        ", taking out ",
        head_link(loss.lower),
        " costs most (",
        loss.number(change_text(loss.change.value)),
        "); K-composition is highest with ",
        head_link(weights.lower),
        " (",
        weights.number(change_text(weights.change.value)),
        "). Both are largest values, not tested against the others.",
    )  # fmt: skip


def circuit_exemplar(results: StackResults) -> tuple[Feed, ExemplarRow] | None:
    """Return the strongest exemplar of an induction head whose next token is the attended one.

    Only heads that use a previous-token head take part. The token before the attended one equals
    the query, so that the attended token is what followed the earlier occurrence. Where maps of the
    sentence are stored, the previous-token head attends to the token before there, too.
    """
    found: list[tuple[Feed, ExemplarRow]] = []
    for feed in used_feeds(results):
        if any(feed.upper == other.upper for other, _ in found):
            continue
        for exemplar in exemplars_by_head(results).get(feed.upper, ()):
            if _is_induction(results, feed, exemplar):
                found.append((feed, exemplar))
                break
    return max(found, key=lambda each: float(each[1].row["weight"]), default=None)


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


def random_walk(results: StackResults, feed: Feed) -> tuple[Parts, ...]:
    """Return what the heads of a circuit do on repeated random tokens, a sentence each."""
    lower, upper = head_link(feed.lower), head_link(feed.upper)
    induction = head_row(
        results, INDUCTION, (feed.upper.layer, feed.upper.head), number(feed.before)
    )
    return (
        (lower, " attends to the previous token, from B to A (score ",
         _previous_score(results, feed), ")."),
        (upper, " attends from the second A to B, which followed the first A (score ", induction,
         "). Without ", lower, " in its keys, that score changes by ", *change_parts(feed), "."),
    )  # fmt: skip


def _previous_score(results: StackResults, feed: Feed) -> LinkedNumber:
    place = feed.lower.layer, feed.lower.head
    score = share_of_head(results, *PREVIOUS, place).value
    return head_row(results, PREVIOUS, place, number(score))


def walk_steps(results: StackResults, feed: Feed, exemplar: ExemplarRow) -> tuple[Parts, ...]:
    """Return what the heads of a circuit do at an exemplar of the induction head."""
    lower, upper, row = head_link(feed.lower), head_link(feed.upper), exemplar.row
    pieces = exemplar_texts(results)[int(row["sentence"])].pieces
    query, key = (shortened(pieces[int(row[name])].strip(), 20) for name in ("query", "key"))
    steps: tuple[Parts, ...] = (
        (f"At “{key}”, ", lower, f" attends to the token before, “{query}” (previous-token score ",
         _previous_score(results, feed), ")."),
        (f"At the second “{query}”, ", upper, f" attends to “{key}”, which followed the first "
         "(weight ", exemplar.number(number(float(row["weight"]))), "). Without ", lower,
         " in its keys, its induction score changes by ", *change_parts(feed), "."),
    )  # fmt: skip
    if math.isnan(row["true_probability"]):
        return steps
    return (
        *steps,
        (f"The model continues with “{key}” (probability ",
         exemplar.number(number(float(row["true_probability"]))), "); ", upper, " alone adds ",
         exemplar.number(change_text(float(row["true_contribution"]))),
         " to its centred logit."),
    )  # fmt: skip


def copying_note(results: StackResults, place: tuple[int, int]) -> str:
    """Return band and rates behind the copying score of a head, for a tooltip."""
    low, high = (share_of_head(results, *key, place).value for key in (LOW_END, HIGH_END))
    rate = share_of_head(results, *COPY_RATE, place).value
    band = "" if math.isnan(low) else f"permuted types {interval_text(low, high)}"
    copied = "" if math.isnan(rate) else f"copy rate {percent(rate)}"
    return "; ".join(filter(None, (band, copied)))


COPYING_STARTS = {
    1: "It copies by its weights: copying score ",
    0: "Copying score ",
    -1: "By its weights it lowers the logit of the token that it reads: copying score ",
}


def output_facts(results: StackResults, head: HeadName, kind: Written | None) -> Iterator[Parts]:
    """Yield facts on the output of a head of a language model, a sentence each.

    Args:
        results: results of the head's stack.
        head: the head.
        kind: effect on the token that the head attends to; None without one.
    """
    yield from _counted(results, head, kind)
    yield from _copying_facts(results, head)
    yield from _feed_facts(results, head)


def _counted(results: StackResults, head: HeadName, kind: Written | None) -> Iterator[Parts]:
    """Yield in how many exemplars the token attended to is among the ten."""
    place = head.layer, head.head
    key = IN_BOTTOM if kind is Written.SUPPRESSES else IN_TOP
    count = share_of_head(results, *key, place)
    exemplars = len(exemplars_by_head(results).get(head, ()))
    if not math.isnan(count.value):
        end = "most suppressed" if kind is Written.SUPPRESSES else "most promoted"
        linked = head_row(results, key, place, f"{count.value:,.0f}")
        yield (f"Among the ten {end} tokens in ", linked, f" of {exemplars:,} exemplars.")


def _copying_facts(results: StackResults, head: HeadName) -> Iterator[Parts]:
    """Yield the copying score with its band, and the copy rate."""
    place = head.layer, head.head
    score = share_of_head(results, *COPYING, place)
    if math.isnan(score.value):
        return
    low, high = (share_of_head(results, *key, place).value
                 for key in (LOW_END, HIGH_END))  # fmt: skip
    sign = copying_heads(results).get(place, 0)
    start = COPYING_STARTS[sign]
    key = NEGATIVE_RATE if sign < 0 or score.value < 0 else COPY_RATE
    rate = share_of_head(results, *key, place).value
    parts: list[Part] = [start, head_row(results, COPYING, place, change_text(score.value))]
    if not math.isnan(low):
        parts += [
            " (permuted types ", head_row(results, LOW_END, place, change_text(low)), " to ",
            head_row(results, HIGH_END, place, change_text(high)), ")",
        ]  # fmt: skip
    if not math.isnan(rate):
        turned = ", sign turned" if key is NEGATIVE_RATE else ""
        linked = head_row(results, key, place, percent(rate))
        parts += ["; ", linked, f" of token types are among their own five highest logits{turned}"]
    yield (*parts, ".")


def _feed_facts(results: StackResults, head: HeadName) -> Iterator[Parts]:
    """Yield the heads that a head uses, and those that use the head, the largest loss first."""
    used = used_feeds(results)
    for feed in [feed for feed in used if feed.upper == head][:3]:
        yield ("Uses what ", head_link(feed.lower), " writes: without it in its keys, its "
               "induction score, ", feed.number(number(feed.before)), ", changes by ",
               *change_parts(feed), ".")  # fmt: skip
    for feed in [feed for feed in used if feed.lower == head][:3]:
        yield (head_link(feed.upper), " uses what it writes: without it in the keys, the induction "
               "score there, ", feed.number(number(feed.before)), ", changes by ",
               *change_parts(feed), ".")  # fmt: skip
